//! The file of a task on a text, a document, a picture or a sound: the crawled one as it is, or a new one that is made
//! from it.

use std::collections::{BTreeMap, HashSet};

use pybench_profile::{Block, Cells};
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, Profile, SourceFile, TaskFile};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::content::{Content, Medium};
use crate::document::{self, Document, Tables};
use crate::frame::Frame;
use crate::inputs::{self, Inputs};
use crate::picture::Picture;
use crate::rename::{self, Naming};
use crate::sound::Sound;
use crate::source;

/// Share of the words of a text that get invented ones.
const REPLACED: f64 = 0.25;
/// Letters of a word that is replaced, at least.
const MIN_LETTERS: usize = 4;
/// Longest side of a picture that is written, in pixels.
const MAX_SIDE: usize = 640;
/// Longest sound that is written, in seconds.
const MAX_SECONDS: f64 = 12.0;
/// Bytes of the paragraphs of a document that is written.
const EXCERPT: usize = 9_000;
const MIN_EXCERPT: usize = 200;
/// Share of the PDFs that have tables.
const RULED: f64 = 0.5;
/// Rows of such a table.
const TABLE_ROWS: std::ops::RangeInclusive<usize> = 14..=32;
/// Letters of a name in it.
const MAX_NAME: usize = 20;
/// Characters of a text that tasks are composed over.
const CHARACTERS: std::ops::RangeInclusive<u64> = 200..=100_000;
/// Pixels on each side of a picture.
const SIDES: std::ops::RangeInclusive<u32> = 32..=4_000;

/// What tasks over a file that is no table can work on.
pub(crate) fn of(file: &SourceFile) -> Vec<Medium> {
    let medium = Medium::of(file.kind);
    let fits = match (medium, &file.profile) {
        (Medium::Text | Medium::Document, Profile::Document(text)) => {
            CHARACTERS.contains(&text.characters)
        }
        (Medium::Picture, Profile::Image(picture)) => {
            let sides = SIDES.contains(&picture.width) && SIDES.contains(&picture.height);
            sides && picture.frames == 1 && !picture.uniform
        }
        (Medium::Sound, Profile::Audio(sound)) => {
            (0.5..=120.0).contains(&sound.duration)
                && (1..=2).contains(&sound.channels)
                && sound.rms > 1e-3
        }
        _ => false,
    };
    match (fits, file.kind) {
        (false, _) => Vec::new(),
        (true, FileKind::Txt | FileKind::Md) => vec![Medium::Text, Medium::Document],
        (true, _) => vec![medium],
    }
}

/// Draws the file of a task over a crawled one; `None` if tools read it in different ways.
pub(crate) fn draw(
    file: &SourceFile,
    bytes: &[u8],
    (renamed, naming): (bool, Naming),
    rng: &mut ChaCha8Rng,
) -> Option<Inputs> {
    let content = Content::read(file.kind, bytes)?;
    if !renamed && is_exact(file, bytes) {
        return Some(kept(file, content));
    }
    let (kind, bytes) = match &content {
        Content::Table | Content::Document(_) => return None,
        Content::Text(text) => (file.kind, invented(text, rng).into_bytes()),
        Content::Picture(picture) => {
            let kind = *[FileKind::Png, FileKind::Png, FileKind::Bmp].choose(rng)?;
            // Pillow reads gray bitmaps by their palette.
            let kind = if picture.is_gray() {
                FileKind::Png
            } else {
                kind
            };
            (kind, recolored(picture, renamed, rng).encoded(kind)?)
        }
        Content::Sound(sound) => (FileKind::Wav, cut(sound, rng).wav()),
    };
    written(file, (kind, bytes), renamed.then_some(naming), rng)
}

/// As [`draw`], over a crawled document, or over a text that is written as one.
pub(crate) fn draw_document(
    file: &SourceFile,
    bytes: &[u8],
    (renamed, naming): (bool, Naming),
    rng: &mut ChaCha8Rng,
) -> Option<Inputs> {
    if !renamed && pybench_profile::has_plain_blocks(file.kind, bytes) {
        return Some(kept(file, Content::read(file.kind, bytes)?));
    }
    let mut blocks = excerpt(source::source(file.kind, bytes)?, rng)?;
    if renamed {
        let texts = invented(&Document::text(&blocks), rng);
        for (block, text) in blocks.iter_mut().zip(texts.split('\n')) {
            text.clone_into(&mut block.text);
        }
    }
    // Names in tables are those of the crawled file.
    let mut tables = match renamed {
        true => Tables::None,
        false => Tables::read(file.kind, bytes),
    };
    let is_ascii = blocks.iter().all(|block| block.text.is_ascii());
    let kind = match (rng.random_range(0..5), &tables) {
        (_, Tables::Word(_)) => FileKind::Docx,
        (_, Tables::Page(_)) => FileKind::Html,
        (_, Tables::Ruled(_)) => FileKind::Pdf,
        (0 | 1, Tables::None) if is_ascii => FileKind::Pdf,
        (2, Tables::None) => FileKind::Html,
        (_, Tables::None) => FileKind::Docx,
    };
    if kind == FileKind::Pdf && rng.random_bool(RULED) {
        let count = rng.random_range(1..=2);
        tables = Tables::Ruled((0..count).map(|_| invented_table(rng)).collect());
    }
    let bytes = document::written(kind, &blocks, tables.all(), rng)?;
    let read = Document::read(kind, &bytes)?;
    (read.tables == tables).then_some(())?;
    let words = |blocks: &[Block]| Document::text(blocks).replace('\n', " ");
    let (found, expected) = (words(&read.blocks), words(&blocks));
    // Pages with tables come last.
    let is_whole = found == expected || (!read.has_text() && found.starts_with(&expected));
    is_whole.then_some(())?;
    written(file, (kind, bytes), renamed.then_some(naming), rng)
}

/// A table with a name for each row, a category, and numbers, all invented.
fn invented_table(rng: &mut ChaCha8Rng) -> Cells {
    let mut taken = HashSet::new();
    let mut header: Vec<String> = (0..2)
        .map(|_| plain_name(&mut taken, rng, rename::column_name))
        .collect();
    let rows = rng.random_range(TABLE_ROWS);
    let mut values = HashSet::new();
    let mut names = |count: usize, rng: &mut ChaCha8Rng| -> Vec<String> {
        (0..count)
            .map(|_| plain_name(&mut values, rng, rename::category_name))
            .collect()
    };
    let (labels, categories) = (names(rows, rng), names(4, rng));
    let category = |at: usize, rng: &mut ChaCha8Rng| match categories.get(at) {
        // Each occurs.
        Some(category) => category.clone(),
        None => categories.choose(rng).cloned().unwrap_or_default(),
    };
    let mut cells: Cells = labels
        .into_iter()
        .enumerate()
        .map(|(at, label)| vec![label, category(at, rng)])
        .collect();
    for _ in 0..rng.random_range(1..=3) {
        header.push(plain_name(&mut taken, rng, rename::column_name));
        let most: i32 = *[50, 900, 20_000].choose(rng).unwrap_or(&900);
        let is_whole = rng.random_bool(0.5);
        for row in &mut cells {
            let number = rng.random_range(-most / 10..=most);
            row.push(match is_whole {
                true => number.to_string(),
                false => format!("{:.2}", f64::from(number) / 7.0),
            });
        }
    }
    cells.insert(0, header);
    cells
}

/// A name in ASCII that is not too long and was not given yet.
fn plain_name(
    taken: &mut HashSet<String>,
    rng: &mut ChaCha8Rng,
    draw: fn(&mut ChaCha8Rng) -> String,
) -> String {
    loop {
        let name = rename::unused(taken, rng, draw);
        if name.is_ascii() && name.len() <= MAX_NAME {
            return name;
        }
    }
}

/// Some paragraphs in a row, not too many; `None` if there are too few.
fn excerpt(blocks: Vec<Block>, rng: &mut ChaCha8Rng) -> Option<Vec<Block>> {
    let blocks: Vec<Block> = blocks
        .into_iter()
        .filter(|block| block.text.len() <= EXCERPT / 2)
        .collect();
    let rest = |from: usize| {
        blocks[from..]
            .iter()
            .map(|block| block.text.len())
            .sum::<usize>()
    };
    let starts: Vec<usize> = (0..blocks.len())
        .filter(|from| rest(*from) >= MIN_EXCERPT)
        .collect();
    let start = *starts.choose(rng)?;
    let mut size = 0;
    let kept = blocks.into_iter().skip(start).take_while(|block| {
        size += block.text.len();
        size <= EXCERPT
    });
    Some(kept.collect())
}

/// The crawled file as it is.
fn kept(file: &SourceFile, content: Content) -> Inputs {
    Inputs {
        frame: Frame::of_content(content),
        files: vec![TaskFile::from(file)],
        written: Vec::new(),
        messy: false,
    }
}

/// A new file, which derives from the crawled one. It gets another name if there is a `naming`.
fn written(
    file: &SourceFile,
    (kind, bytes): (FileKind, Vec<u8>),
    naming: Option<Naming>,
    rng: &mut ChaCha8Rng,
) -> Option<Inputs> {
    let stem = match naming {
        Some(naming) => naming.file_stem(rng),
        None => inputs::stem(&file.name).to_owned(),
    };
    let mut new = TaskFile::from(file);
    new.name = format!("{stem}.{}", kind.name());
    new.derived_from = Some(std::mem::replace(&mut new.id, Digest::of_bytes(&bytes)));
    new.kind = kind;
    new.format = pybench_profile::profile(kind, &bytes).format();
    Some(Inputs {
        frame: Frame::of_content(Content::read(kind, &bytes)?),
        files: vec![new],
        written: vec![bytes],
        messy: false,
    })
}

/// Whether all tools see the same characters, pixels or samples in a file.
fn is_exact(file: &SourceFile, bytes: &[u8]) -> bool {
    match &file.profile {
        Profile::Document(text) => text.encoding.as_deref() == Some("utf-8"),
        Profile::Image(picture) => {
            // The header says how many bits a channel has.
            let eight_bits = bytes.get(24) == Some(&8);
            let plain = matches!(picture.mode.as_str(), "L" | "RGB");
            file.kind == FileKind::Png && plain && eight_bits
        }
        Profile::Audio(sound) => file.kind == FileKind::Wav && sound.codec == "pcm_s16le",
        _ => false,
    }
}

/// A text with invented words in place of some, each always of the same one.
fn invented(text: &str, rng: &mut ChaCha8Rng) -> String {
    let mut names: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphabetic());
        let (word, tail) = rest.split_at(end.unwrap_or(rest.len()));
        let name = names.entry(word.to_lowercase()).or_insert_with(|| {
            let replaced = word.len() >= MIN_LETTERS && rng.random_bool(REPLACED);
            replaced.then(|| rename::word(rng))
        });
        match name {
            Some(name) => new.push_str(&in_case_of(word, name)),
            None => new.push_str(word),
        }
        let other = tail.find(|c: char| c.is_ascii_alphabetic());
        let (between, tail) = tail.split_at(other.unwrap_or(tail.len()));
        new.push_str(between);
        rest = tail;
    }
    new
}

/// A name with the upper-case letters of a word: none, the first, or all.
fn in_case_of(word: &str, name: &str) -> String {
    let upper = |c: char| c.is_ascii_uppercase();
    if word.chars().all(upper) {
        return name.to_uppercase();
    }
    match (word.starts_with(upper), name.get(..1), name.get(1..)) {
        (true, Some(first), Some(rest)) => first.to_uppercase() + rest,
        _ => name.to_owned(),
    }
}

/// A part of a picture, not too large; with its channels exchanged where names and values are invented.
fn recolored(picture: &Picture, renamed: bool, rng: &mut ChaCha8Rng) -> Picture {
    let step = picture.width.max(picture.height).div_ceil(MAX_SIDE);
    let (width, height) = (picture.width / step, picture.height / step);
    let mut margin = |side: usize| match renamed && side >= 40 {
        true => rng.random_range(0..side / 8),
        false => 0,
    };
    let (left, top, right, bottom) = (margin(width), margin(height), margin(width), margin(height));
    let part = picture.moved(width - left - right, height - top - bottom, |x, y| {
        ((x + left) * step, (y + top) * step)
    });
    let orders = [
        [0, 1, 2],
        [1, 2, 0],
        [2, 0, 1],
        [0, 2, 1],
        [1, 0, 2],
        [2, 1, 0],
    ];
    match (orders.choose(rng), renamed && !part.is_gray()) {
        (Some(order), true) => Picture::from_fn(part.width, part.height, 3, |x, y, channel| {
            part.at(x, y, order[channel])
        }),
        _ => part,
    }
}

/// The start of a sound, not too long, without its first samples.
fn cut(sound: &Sound, rng: &mut ChaCha8Rng) -> Sound {
    let frames = sound
        .frames()
        .min((MAX_SECONDS * f64::from(sound.rate)) as usize);
    let first = rng.random_range(0..=frames / 10);
    let samples = sound.samples[first * sound.channels..frames * sound.channels].to_vec();
    sound.with(samples)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_document_gets_a_table_on_a_page_of_its_own() {
        let text = "The quay was built of stone. It has two cranes.\n\n".repeat(20);
        let file = pybench_profile::source_file("quay.txt", FileKind::Txt, text.as_bytes());
        let draw = |seed: u64| {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let naming = (seed.is_multiple_of(2), Naming::default());
            draw_document(&file, text.as_bytes(), naming, rng)
        };
        let drawn: Vec<Inputs> = (0..60).filter_map(draw).collect();
        let ruled = drawn.iter().filter_map(|inputs| {
            let document = inputs.frame.content.document()?;
            (!document.has_text()).then_some((inputs, document))
        });
        let ruled: Vec<_> = ruled.collect();
        assert!(!ruled.is_empty(), "no PDF with a table");
        for (inputs, document) in ruled {
            assert_eq!(inputs.files[0].kind, FileKind::Pdf);
            for table in document.tables.all() {
                assert!(table.len() > 14 && table[0].len() > 2, "{table:?}");
                let values: HashSet<&str> = table[1..].iter().map(|row| row[1].as_str()).collect();
                assert_eq!(values.len(), 4);
            }
        }
    }

    #[test]
    fn invented_words_keep_their_case_and_are_always_the_same() {
        let text = "Harbour harbour HARBOUR, the clock of 3 harbours. Clock!\n".repeat(3);
        let changed = (0..40).map(|seed| invented(&text, &mut ChaCha8Rng::seed_from_u64(seed)));
        let changed: Vec<String> = changed
            .filter(|new| !new.contains("arbour harbour"))
            .collect();
        assert!(!changed.is_empty(), "some draw replaces the word");
        for new in changed {
            let words: Vec<&str> = new.split([' ', ',']).collect();
            assert_eq!(words[0].to_lowercase(), words[1]);
            assert_eq!(words[1].to_uppercase(), words[2]);
            assert!(new.contains(" 3 ") && new.ends_with("!\n"), "{new}");
            assert_eq!(new.matches(words[2]).count(), 3);
        }
    }
}
