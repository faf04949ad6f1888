//! The files of a task: a crawled file as it is, or new files that are written from it, one or several.

use std::collections::HashSet;
use std::sync::Arc;

use polars::prelude::{Column, DataFrame, DataType};
use pybench_types::id::Digest;
use pybench_types::task::{ColumnKind, FileKind, SourceFile, TaskFile};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::alike::same;
use crate::content::{Content, Medium};
use crate::draw::quotable;
use crate::frame::{Class, Frame, OtherTable};
use crate::messy::{self, Messy};
use crate::rename::{self, Naming};

/// Keys of a lookup table.
const KEYS: std::ops::RangeInclusive<usize> = 3..=60;
/// Rows of a table that is written in two parts.
const DIVIDED: std::ops::RangeInclusive<usize> = 40..=4_000;
/// Columns beside its key of another crawled table with invented names.
const MAX_JOINED: usize = 5;
/// Rows of a lookup table that is the first file of a task.
const MIN_LOOKUP: usize = 10;

/// The files of a task, and the tables in them.
pub(crate) struct Inputs {
    /// The table of the first file, with those of the others.
    pub frame: Frame,
    pub files: Vec<TaskFile>,
    /// The bytes of the files that are new.
    pub written: Vec<Vec<u8>>,
    /// Whether a table was written as people hand tables on.
    pub messy: bool,
}

/// How the rows and columns of a task are spread over its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    OneTable,
    /// A second file has attributes of a category.
    Lookup,
    /// As `Lookup`; the file with the attributes comes first.
    LookupFirst,
    /// The rows are divided over two files.
    Parts,
    /// `Parts` and `Lookup`: three files.
    PartsAndLookup,
}

impl Layout {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        match rng.random_range(0..20) {
            0..=12 => Self::OneTable,
            13..=15 => Self::Lookup,
            16 => Self::LookupFirst,
            17 | 18 => Self::Parts,
            _ => Self::PartsAndLookup,
        }
    }
}

/// Draws the files of a task over a crawled table; `None` if the table does not suit what was drawn. With the second
/// choice, they are written as people hand tables on.
pub(crate) fn draw(
    file: &SourceFile,
    bytes: &[u8],
    (renamed, messy): (bool, bool),
    naming: Naming,
    rng: &mut ChaCha8Rng,
) -> Option<Inputs> {
    let (data, kinds) = pybench_profile::frame(file.kind, bytes)?;
    let frame = Frame::new(data);
    let (frame, stem) = match renamed {
        true => {
            let frame = rename::renamed(&frame, naming, rng).ok()??;
            (frame, naming.file_stem(rng))
        }
        // A column that pandas reads in another way may be part of the result.
        false if kinds.contains(&ColumnKind::Other) => return None,
        false => (frame, stem(&file.name).to_owned()),
    };
    let mut desk = Desk {
        crawled: file,
        inputs: Vec::new(),
        messy,
        naming,
    };
    let layout = Layout::draw(rng);
    match layout {
        Layout::OneTable | Layout::Lookup if !renamed && !messy => desk.keep(frame.clone()),
        Layout::OneTable | Layout::Lookup => desk.write(&frame.data, &stem, rng)?,
        Layout::LookupFirst => {}
        Layout::Parts | Layout::PartsAndLookup => {
            let (first, second) = parts(&frame.data, rng)?;
            let (a, b) = *PART_NAMES.choose(rng)?;
            desk.write(&first, &format!("{stem}{a}"), rng)?;
            desk.write(&second, &format!("{stem}{b}"), rng)?;
        }
    }
    if matches!(
        layout,
        Layout::Lookup | Layout::LookupFirst | Layout::PartsAndLookup
    ) {
        let table = lookup(&frame, naming, rng)?;
        desk.write(&table, &naming.file_stem(rng), rng)?;
        if layout == Layout::LookupFirst {
            if table.height() < MIN_LOOKUP {
                return None;
            }
            desk.write(&frame.data, &stem, rng)?;
        }
    }
    desk.inputs()
}

/// Another crawled table of a task, and the columns by which it is joined.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    pub file: &'a SourceFile,
    pub bytes: &'a [u8],
    /// The key in the first table.
    pub key: &'a str,
    /// The key in this one.
    pub other_key: &'a str,
}

/// Draws the files of a task over crawled tables that share keys; `None` if they do not suit what was drawn. Keys whose
/// names differ get one name, for which names have to be invented.
pub(crate) fn draw_joined(
    (file, bytes): (&SourceFile, &[u8]),
    joined: &[Joined<'_>],
    renamed: bool,
    naming: Naming,
    rng: &mut ChaCha8Rng,
) -> Option<Inputs> {
    let mut desk = Desk {
        crawled: file,
        inputs: Vec::new(),
        messy: false,
        naming,
    };
    if !renamed {
        if joined.iter().any(|other| other.key != other.other_key) {
            return None;
        }
        desk.keep(read(file.kind, bytes)?);
        for other in joined {
            desk.crawled = other.file;
            desk.keep(read(other.file.kind, other.bytes)?);
        }
        return desk.inputs();
    }
    let mut keys: Vec<&str> = Vec::new();
    for other in joined {
        if !keys.contains(&other.key) {
            keys.push(other.key);
        }
    }
    let first = crawled_frame(file, bytes)?;
    let width = first.data.width();
    let (first, names) = rename::renamed_with_keys(&first, &keys, width, naming, rng)?;
    desk.write(&first.data, &naming.file_stem(rng), rng)?;
    for other in joined {
        let at = keys.iter().position(|key| *key == other.key)?;
        let table = crawled_frame(other.file, other.bytes)?;
        let key = [other.other_key];
        let (table, _) = rename::renamed_with_keys(&table, &key, MAX_JOINED, naming, rng)?;
        desk.crawled = other.file;
        let table = with_key_name(&table.data, names.get(at)?)?;
        desk.write(&table, &naming.file_stem(rng), rng)?;
    }
    desk.inputs()
}

/// A crawled table, whose names are to be invented.
fn crawled_frame(file: &SourceFile, bytes: &[u8]) -> Option<Frame> {
    let (data, _) = pybench_profile::frame(file.kind, bytes)?;
    Some(Frame::new(data))
}

/// A table with another name for its first column; `None` if another column has it.
fn with_key_name(data: &DataFrame, name: &str) -> Option<DataFrame> {
    let mut columns = data.columns().to_vec();
    let (key, others) = columns.split_first_mut()?;
    let is_taken = |other: &Column| other.name().to_lowercase() == name.to_lowercase();
    if others.iter().any(is_taken) {
        return None;
    }
    *key = key.clone().with_name(name.into());
    DataFrame::new(data.height(), columns).ok()
}

/// What tells the names of two parts apart.
const PART_NAMES: [(&str, &str); 6] = [
    ("_1", "_2"),
    ("_a", "_b"),
    ("_jan", "_feb"),
    ("_2023", "_2024"),
    ("_old", "_new"),
    (" part 1", " part 2"),
];

pub(crate) fn stem(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

/// One file on its way into a task.
struct Input {
    file: TaskFile,
    frame: Frame,
    /// Its bytes, if it is new.
    written: Option<Vec<u8>>,
}

/// Collects the files of a task.
struct Desk<'a> {
    /// What the next file is, or is made of.
    crawled: &'a SourceFile,
    inputs: Vec<Input>,
    /// Whether the first file that is written is a messy one.
    messy: bool,
    naming: Naming,
}

impl Desk<'_> {
    /// Adds the crawled file as it is.
    fn keep(&mut self, frame: Frame) {
        self.inputs.push(Input {
            file: TaskFile::from(self.crawled),
            frame,
            written: None,
        });
    }

    /// Adds a new file with a table; `None` if it cannot be read back as every tool reads it.
    fn write(&mut self, data: &DataFrame, stem: &str, rng: &mut ChaCha8Rng) -> Option<()> {
        if self.messy && self.inputs.is_empty() {
            let Messy { kind, bytes, data } = messy::written(data, self.naming, rng)?;
            self.add(kind, bytes, stem)?;
            let added = self.inputs.last()?;
            let plain = added.file.format.as_ref()?;
            let plain = plain.read.is_default()
                && plain.encoding.as_deref().is_none_or(|name| name == "utf-8");
            return (!plain && same(&added.frame.data, &data, true)).then_some(());
        }
        let (kind, text) = match rng.random_range(0..6) {
            0 => (FileKind::Json, rename::json(data, false)),
            1 => (FileKind::Jsonl, rename::json(data, true)),
            2 => (FileKind::Tsv, rename::csv(data, '\t')),
            3 => (FileKind::Csv, rename::csv(data, ';')),
            _ => (FileKind::Csv, rename::csv(data, ',')),
        };
        self.add(kind, text.into_bytes(), stem)
    }

    fn add(&mut self, kind: FileKind, bytes: Vec<u8>, stem: &str) -> Option<()> {
        let mut file = TaskFile::from(self.crawled);
        file.name = format!("{stem}.{}", kind.name());
        file.derived_from = Some(std::mem::replace(&mut file.id, Digest::of_bytes(&bytes)));
        file.kind = kind;
        file.format = pybench_profile::profile(kind, &bytes).format();
        let frame = read(kind, &bytes)?;
        self.inputs.push(Input {
            file,
            frame,
            written: Some(bytes),
        });
        Some(())
    }

    fn inputs(self) -> Option<Inputs> {
        let names: HashSet<String> = self
            .inputs
            .iter()
            .map(|input| input.file.name.to_lowercase())
            .collect();
        let differ = names.len() == self.inputs.len();
        let (mut files, mut written, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        for input in self.inputs {
            files.push(input.file);
            frames.push(input.frame);
            written.extend(input.written);
        }
        let frame = joined(&files, frames)?;
        (differ && numbers_agree(&frame)).then_some(Inputs {
            frame,
            files,
            written,
            messy: self.messy,
        })
    }
}

/// Whether each name stands for numbers in all tables that have it, or in none: plain Python finds numbers by these names.
fn numbers_agree(start: &Frame) -> bool {
    let others = start.others.iter().map(|other| other.frame.as_ref());
    let frames: Vec<&Frame> = std::iter::once(start).chain(others).collect();
    let differs = |frame: &Frame, name: &str| {
        let class = frame.class(name);
        class.is_some_and(|class| class != Class::Number)
    };
    let mut numbers = frames
        .iter()
        .flat_map(|frame| frame.of_class(Class::Number));
    numbers.all(|name| !frames.iter().any(|frame| differs(frame, &name)))
}

/// A file as it is read; `None` if tools read one of its columns in different ways. What is read back counts: a whole
/// column of a float may read as integers.
pub(crate) fn read(kind: FileKind, bytes: &[u8]) -> Option<Frame> {
    let (data, kinds) = pybench_profile::frame(kind, bytes)?;
    let plain = !kinds.contains(&ColumnKind::Other);
    plain.then(|| Frame::new(data))
}

/// The path of a task's file, as queries and code name it.
pub(crate) fn path(file: &TaskFile) -> String {
    format!("./data/{}", file.name)
}

/// The table of the first file with those of the others.
fn joined(files: &[TaskFile], frames: Vec<Frame>) -> Option<Frame> {
    let mut frames = frames.into_iter();
    let first = frames.next()?;
    let others = frames
        .zip(&files[1..])
        .map(|(frame, file)| OtherTable {
            path: path(file),
            frame: Arc::new(frame),
        })
        .collect();
    Some(first.with_others(others))
}

/// What a task starts from, from the bytes of its files; `None` if one cannot be read.
pub(crate) fn start(files: &[TaskFile], bytes: &[Vec<u8>]) -> Option<Frame> {
    let (file, first) = (files.first()?, bytes.first()?);
    match Medium::of(file.kind) {
        Medium::Table => tables(files, bytes),
        _ => Content::read(file.kind, first).map(Frame::of_content),
    }
}

/// The tables of a task's files, from their bytes; `None` if one is no table.
fn tables(files: &[TaskFile], bytes: &[Vec<u8>]) -> Option<Frame> {
    let frames = files.iter().zip(bytes).map(|(file, bytes)| {
        let (data, _) = pybench_profile::frame(file.kind, bytes)?;
        Some(Frame::new(data))
    });
    joined(files, frames.collect::<Option<Vec<_>>>()?)
}

/// The rows in two parts, in file order.
fn parts(data: &DataFrame, rng: &mut ChaCha8Rng) -> Option<(DataFrame, DataFrame)> {
    let data = data.head(Some(*DIVIDED.end()));
    if !DIVIDED.contains(&data.height()) {
        return None;
    }
    let cut = (data.height() as f64 * rng.random_range(0.3..0.7)) as usize;
    let rest = data.height() - cut;
    Some((data.head(Some(cut)), data.tail(Some(rest))))
}

/// A table with one row for most values of a text column and for some others, with invented attributes.
fn lookup(frame: &Frame, naming: Naming, rng: &mut ChaCha8Rng) -> Option<DataFrame> {
    let keys: Vec<(String, Vec<String>)> = frame
        .of_class(Class::Text)
        .into_iter()
        .filter(|name| quotable(name))
        .filter_map(|name| keys_of(&frame.data, &name).map(|keys| (name, keys)))
        .collect();
    let (key, mut values) = keys.choose(rng)?.clone();
    values.shuffle(rng);
    let left_out = (values.len() as f64 * rng.random_range(0.1..0.35)).ceil() as usize;
    let mut taken: HashSet<String> = values.iter().map(|value| value.to_lowercase()).collect();
    values.truncate((values.len() - left_out).max(2));
    for _ in 0..rng.random_range(1..=3) {
        let name = rename::unused(&mut taken, rng, |rng| naming.category(rng));
        values.push(name);
    }
    values.shuffle(rng);
    let names = frame.data.get_column_names_owned();
    let mut taken: HashSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let rows = values.len();
    let mut columns = vec![Column::new(key.into(), values)];
    let kinds: [&[bool]; 4] = [&[true], &[false], &[true, false], &[false, true]];
    for is_number in kinds.choose(rng)?.iter() {
        let name = rename::unused(&mut taken, rng, |rng| naming.column(rng));
        columns.push(match is_number {
            true => attribute_numbers(&name, rows, rng),
            false => attribute_texts(&name, rows, naming, rng),
        });
    }
    DataFrame::new(rows, columns).ok()
}

/// The values of a column that can be the key of a lookup table.
fn keys_of(data: &DataFrame, name: &str) -> Option<Vec<String>> {
    let column = data.column(name).ok()?;
    if column.dtype() != &DataType::String || column.null_count() > 0 {
        return None;
    }
    let mut values: Vec<String> = column
        .str()
        .ok()?
        .iter()
        .flatten()
        .map(str::to_owned)
        .collect();
    values.sort();
    values.dedup();
    // Each value is met by several rows, and reads as text in every format.
    let fits = KEYS.contains(&values.len()) && data.height() >= 2 * values.len();
    (fits && values.iter().all(|value| quotable(value))).then_some(values)
}

fn attribute_numbers(name: &str, rows: usize, rng: &mut ChaCha8Rng) -> Column {
    let (scale, whole) = (
        *[10, 100, 1000].choose(rng).unwrap_or(&100),
        rng.random_bool(0.5),
    );
    if whole {
        let values: Vec<i64> = (0..rows).map(|_| rng.random_range(1..=scale * 5)).collect();
        return Column::new(name.into(), values);
    }
    let hundredths = |rng: &mut ChaCha8Rng| rng.random_range(1..=scale * 100) as f64 / 100.0;
    let values: Vec<f64> = (0..rows).map(|_| hundredths(rng)).collect();
    Column::new(name.into(), values)
}

fn attribute_texts(name: &str, rows: usize, naming: Naming, rng: &mut ChaCha8Rng) -> Column {
    let mut taken = HashSet::new();
    let count = rng.random_range(2..=4usize).min(rows);
    let names: Vec<String> = (0..count)
        .map(|_| rename::unused(&mut taken, rng, |rng| naming.category(rng)))
        .collect();
    // Each value occurs.
    let mut values: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .cycle()
        .take(rows)
        .collect();
    values.shuffle(rng);
    Column::new(name.into(), values)
}
