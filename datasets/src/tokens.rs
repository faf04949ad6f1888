//! Counting tokens: the byte-pair encoding of Llama 2, from its `tokenizer.json`.
//!
//! A small one of our own: the `tokenizers` crate changes features of crates below polars, and all that
//! is asked here is how many. Spaces become `▁`, one stands before the text, characters without a token
//! become bytes, and pairs are merged by rank over the whole text.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Largest `tokenizer.json`, bytes.
const MOST_BYTES: u64 = 64 << 20;
/// Tokens of Llama 2's vocabulary.
const LLAMA_2: usize = 32_000;
/// What stands for a space.
const SPACE: char = '▁';

/// Who counts tokens.
pub enum Counter {
    /// A tokenizer.
    Bpe(Box<Bpe>),
    /// None: a quarter of the UTF-8 bytes, rounded up.
    QuarterOfBytes,
}

impl Counter {
    /// Llama 2's tokenizer where this machine has it, otherwise none.
    pub fn here(caches: &[PathBuf]) -> Self {
        let found = caches.iter().flat_map(|cache| llama_2_in(cache));
        let mut read = found.filter_map(|path| Bpe::read(&path).ok());
        let llama = read.find(|bpe| bpe.vocabulary.len() >= LLAMA_2);
        llama.map_or(Self::QuarterOfBytes, |bpe| Self::Bpe(Box::new(bpe)))
    }

    /// Who counts, for people.
    pub fn name(&self) -> String {
        match self {
            Self::Bpe(bpe) => bpe.name.clone(),
            Self::QuarterOfBytes => {
                "no tokenizer: a quarter of the UTF-8 bytes; `--tokenizer FILE` names Llama 2's \
                 tokenizer.json"
                    .to_owned()
            }
        }
    }

    /// Tokens of a text.
    pub fn count(&self, text: &str) -> u64 {
        match self {
            Self::Bpe(bpe) => bpe.count(text),
            Self::QuarterOfBytes => (text.len() as u64).div_ceil(4),
        }
    }
}

/// Files in which Llama 2's tokenizer may lie, in a folder laid out as the Hub's own cache is.
fn llama_2_in(cache: &Path) -> Vec<PathBuf> {
    let below = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).take(10_000).collect();
        paths.sort();
        paths
    };
    let named = |path: &PathBuf| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().to_lowercase());
        name.is_some_and(|name| name.contains("llama-2") || name.contains("llama2"))
    };
    let models = below(cache.to_owned()).into_iter().filter(named);
    let places = models.flat_map(|model| {
        let snapshots = below(model.join("snapshots"));
        snapshots.into_iter().chain([model])
    });
    let files = places.map(|place| place.join("tokenizer.json"));
    files.filter(|file| file.is_file()).collect()
}

/// A byte-pair encoding over whole texts.
pub struct Bpe {
    name: String,
    vocabulary: HashMap<String, u32>,
    /// Two tokens beside each other → rank of the pair, and what it becomes.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Tokens that texts may hold as they are, longest first.
    added: Vec<String>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    content: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    r#type: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
}

/// Older files have one text, newer ones two.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair(String, String),
}

impl Bpe {
    /// Reads a `tokenizer.json`, or the one in a folder.
    ///
    /// # Errors
    /// What is wrong, with the file: other kinds of tokenizers are refused, never counted wrongly.
    pub fn read(path: &Path) -> Result<Self, String> {
        let path = match path.is_dir() {
            true => path.join("tokenizer.json"),
            false => path.to_owned(),
        };
        let wrong = |text: String| format!("{}: {text}", path.display());
        let file = File::open(&path).map_err(|error| wrong(error.to_string()))?;
        let mut text = String::new();
        file.take(MOST_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text, &path.display().to_string()).map_err(wrong)
    }

    /// The same from text; `origin` is part of its name.
    ///
    /// # Errors
    /// As [`Bpe::read`], without the file.
    pub fn parse(text: &str, origin: &str) -> Result<Self, String> {
        let wire: Wire = serde_json::from_str(text).map_err(|e| format!("no tokenizer: {e}"))?;
        let model = wire.model;
        let spaces = wire.normalizer.to_string().contains(SPACE);
        let bpe = model.r#type.as_deref().unwrap_or("BPE") == "BPE";
        if !(bpe && model.byte_fallback && spaces && wire.pre_tokenizer.is_null()) {
            return Err(
                "another kind of tokenizer than Llama 2's: only byte-pair encodings with \
                        `▁` for spaces and a fallback to bytes are read"
                    .to_owned(),
            );
        }
        let vocabulary = model.vocab;
        let mut merges = HashMap::with_capacity(model.merges.len());
        for (rank, merge) in (0_u32..).zip(&model.merges) {
            let (left, right) = match merge {
                Merge::Pair(left, right) => (left.as_str(), right.as_str()),
                Merge::Text(text) => text.split_once(' ').ok_or("a merge of one part")?,
            };
            let id = |token: &str| {
                let id = vocabulary.get(token).copied();
                id.ok_or_else(|| format!("merge {rank}: `{token}` is no token"))
            };
            let pair = (id(left)?, id(right)?);
            let whole = id(&format!("{left}{right}"))?;
            merges.entry(pair).or_insert((rank, whole));
        }
        let mut added: Vec<_> = wire.added_tokens.into_iter().map(|a| a.content).collect();
        added.retain(|token| !token.is_empty());
        added.sort_by_key(|token| Reverse(token.len()));
        let kind = match vocabulary.len() {
            LLAMA_2 => "Llama 2",
            _ => "byte-pair encoding",
        };
        Ok(Self {
            name: format!("{kind}, {} tokens ({origin})", vocabulary.len()),
            vocabulary,
            merges,
            added,
        })
    }

    /// Tokens of a text, without one for its beginning.
    pub fn count(&self, text: &str) -> u64 {
        let (mut rest, mut count) = (text, 0);
        while !rest.is_empty() {
            let next = self
                .added
                .iter()
                .filter_map(|token| Some((rest.find(&**token)?, token)));
            let next = next.min_by_key(|(at, token)| (*at, Reverse(token.len())));
            let (plain, after) = match next {
                Some((at, token)) => (&rest[..at], Some(&rest[at + token.len()..])),
                None => (rest, None),
            };
            count += self.plain(plain) + u64::from(after.is_some());
            rest = after.unwrap_or("");
        }
        count
    }

    fn plain(&self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let mut merging = Merging::new(self, self.symbols(text));
        merging.run();
        merging.left as u64
    }

    /// A token per character, or per byte of one without a token of its own.
    fn symbols(&self, text: &str) -> Vec<u32> {
        let mut symbols = Vec::with_capacity(text.len() + 1);
        let mut buffer = [0; 4];
        let spaced = text.chars().map(|c| if c == ' ' { SPACE } else { c });
        for c in std::iter::once(SPACE).chain(spaced) {
            let character = c.encode_utf8(&mut buffer);
            match self.vocabulary.get(&*character) {
                Some(id) => symbols.push(*id),
                None => {
                    let byte = |byte| self.vocabulary.get(&format!("<0x{byte:02X}>"));
                    // A byte without a token counts as one that nothing merges with.
                    symbols.extend(
                        character
                            .bytes()
                            .map(|b| byte(b).copied().unwrap_or(u32::MAX)),
                    );
                }
            }
        }
        symbols
    }
}

/// A text while its pairs are merged: a list of symbols linked by place.
struct Merging<'a> {
    bpe: &'a Bpe,
    symbols: Vec<u32>,
    /// The neighbours of a place; the first is its own, the last's is past the end.
    before: Vec<usize>,
    after: Vec<usize>,
    gone: Vec<bool>,
    /// Rank, place of the left one, the two symbols as they were.
    queue: BinaryHeap<Reverse<(u32, usize, u32, u32)>>,
    left: usize,
}

impl<'a> Merging<'a> {
    fn new(bpe: &'a Bpe, symbols: Vec<u32>) -> Self {
        let count = symbols.len();
        let mut merging = Self {
            bpe,
            before: (0..count).map(|at| at.saturating_sub(1)).collect(),
            after: (1..=count).collect(),
            gone: vec![false; count],
            queue: BinaryHeap::new(),
            left: count,
            symbols,
        };
        for at in 0..count.saturating_sub(1) {
            merging.consider(at);
        }
        merging
    }

    fn consider(&mut self, at: usize) {
        let next = self.after[at];
        if next >= self.symbols.len() {
            return;
        }
        let (left, right) = (self.symbols[at], self.symbols[next]);
        if let Some((rank, _)) = self.bpe.merges.get(&(left, right)) {
            self.queue.push(Reverse((*rank, at, left, right)));
        }
    }

    fn run(&mut self) {
        while let Some(Reverse((_, at, left, right))) = self.queue.pop() {
            let next = self.after[at];
            let stale = self.gone[at]
                || next >= self.symbols.len()
                || (self.symbols[at], self.symbols[next]) != (left, right);
            if stale {
                continue;
            }
            let Some((_, whole)) = self.bpe.merges.get(&(left, right)) else {
                continue;
            };
            self.symbols[at] = *whole;
            self.gone[next] = true;
            self.left -= 1;
            self.after[at] = self.after[next];
            if let Some(before) = self.before.get_mut(self.after[at]) {
                *before = at;
            }
            self.consider(at);
            if at > 0 {
                self.consider(self.before[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn small() -> Value {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
        tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        tokens.extend("▁abcl".chars().map(|c| c.to_string()));
        tokens.extend(["ab", "▁ab", "bc", "abc", "ll"].map(str::to_owned));
        let vocab: HashMap<_, _> = tokens.into_iter().zip(0_u32..).collect();
        json!({
            "added_tokens": [{"content": "<s>"}],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]},
            "pre_tokenizer": null,
            "model": {"type": "BPE", "byte_fallback": true, "vocab": vocab,
                      "merges": ["b c", "a bc", ["a", "b"], "▁ ab", "l l"]},
        })
    }

    fn bpe() -> Bpe {
        Bpe::parse(&small().to_string(), "test").unwrap()
    }

    #[test]
    fn pairs_are_merged_by_rank_and_the_rest_is_bytes() {
        let bpe = bpe();
        for (text, count) in [
            ("", 0),
            ("abc", 2),     // ▁ abc: "b c" comes before "a b"
            ("ab", 1),      // ▁ab
            ("ab ab", 2),   // ▁ab ▁ab
            ("lllll", 4),   // ▁ ll ll l
            ("é", 3),       // ▁ and two bytes
            ("ab<s>ab", 3), // ▁ab <s> ▁ab
            ("\n", 2),      // ▁ and a byte
        ] {
            assert_eq!(bpe.count(text), count, "{text:?}");
        }
    }

    #[test]
    fn other_tokenizers_are_refused() {
        let mut other = small();
        other["pre_tokenizer"] = json!({"type": "ByteLevel"});
        assert!(Bpe::parse(&other.to_string(), "").is_err());
        let mut other = small();
        other["model"]["merges"] = json!(["x y"]);
        let error = Bpe::parse(&other.to_string(), "").err().unwrap();
        assert!(error.contains("`x` is no token"), "{error}");
        assert!(Bpe::read(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn llama_2_is_found_in_a_cache_and_named() {
        let cache = tempfile::tempdir().unwrap();
        let caches = [cache.path().to_owned()];
        assert!(Counter::here(&caches).name().starts_with("no tokenizer"));
        let folder = cache.path().join("models--x--Llama-2-7b-hf/snapshots/abc");
        std::fs::create_dir_all(&folder).unwrap();
        let mut large = small();
        let there = large["model"]["vocab"].as_object().unwrap().len();
        for n in there..LLAMA_2 {
            large["model"]["vocab"][format!("extra{n}")] = json!(n);
        }
        std::fs::write(folder.join("tokenizer.json"), large.to_string()).unwrap();
        let name = Counter::here(&caches).name();
        assert!(name.starts_with("Llama 2, 32000 tokens"), "{name}");
    }

    proptest! {
        /// Merging by a queue gives what merging the best pair again and again gives.
        #[test]
        fn the_queue_is_right(text in "[abcl ]{0,40}") {
            let bpe = bpe();
            let mut symbols = match text.is_empty() { true => vec![], false => bpe.symbols(&text) };
            loop {
                let pairs = symbols.windows(2).enumerate();
                let known = pairs.filter_map(|(at, pair)| {
                    Some((bpe.merges.get(&(pair[0], pair[1]))?, at))
                });
                let Some(((_, whole), at)) = known.min() else { break };
                symbols.splice(at..at + 2, [*whole]);
            }
            prop_assert_eq!(bpe.count(&text), symbols.len() as u64);
        }
    }

    #[test]
    fn fuzz_tokenizers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = Bpe::parse(&String::from_utf8_lossy(bytes), "");
            assert!(bpe().count(&String::from_utf8_lossy(bytes)) <= 2 * bytes.len() as u64 * 3 + 2);
        });
    }
}
