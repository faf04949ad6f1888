//! Counts tokens with cl100k_base, which is built in, or with the byte-pair encoding of Llama 2, read from its
//! `tokenizer.json`.
//!
//! Llama 3's vocabulary is cl100k_base with 28,000 tokens more, most of them not English, and the same division of text
//! before merging; its own file has a license that forbids building it in.
//!
//! Llama 2's encoding is a minimal implementation that only counts. The crate `tokenizers` is not used because it would bring 18
//! crates and a C library into the main program, and other features of a crate that it shares with arrow. A space is
//! put before the text, spaces become `▁`, characters without a token become bytes, and pairs are merged by rank over
//! the whole text.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Maximum size of a `tokenizer.json`, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Size of Llama 2's vocabulary.
const LLAMA_2_VOCABULARY: usize = 32_000;
/// The character that represents a space.
const SPACE: char = '▁';

/// The name of the built-in tokenizer.
pub const CL100K: &str = "cl100k_base";

/// Counts tokens.
pub enum TokenCounter {
    /// With a tokenizer.
    Bpe(Box<Bpe>),
    /// With cl100k_base.
    Cl100k,
}

impl TokenCounter {
    /// Use Llama 2's tokenizer if it is in one of the caches, otherwise cl100k_base.
    pub fn detect(caches: &[PathBuf]) -> Self {
        let found = caches.iter().flat_map(|cache| llama_2_in(cache));
        let mut read = found.filter_map(|path| Bpe::read(&path).ok());
        let llama = read.find(|bpe| bpe.vocabulary.len() >= LLAMA_2_VOCABULARY);
        llama.map_or(Self::Cl100k, |bpe| Self::Bpe(Box::new(bpe)))
    }

    /// Description of the counting method, for display.
    pub fn name(&self) -> String {
        match self {
            Self::Bpe(bpe) => bpe.name.clone(),
            Self::Cl100k => {
                format!("{CL100K}; `--tokenizer FILE` counts with Llama 2's tokenizer.json")
            }
        }
    }

    pub fn count(&self, text: &str) -> u64 {
        match self {
            Self::Bpe(bpe) => bpe.count(text),
            Self::Cl100k => cl100k(text),
        }
    }
}

/// Number of tokens of a text in cl100k_base. Names of special tokens are counted as plain text.
pub fn cl100k(text: &str) -> u64 {
    bpe_openai::cl100k_base().count(text) as u64
}

/// Paths of Llama 2 tokenizers in a cache with the layout of the Hub's cache.
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
    let folders = models.flat_map(|model| {
        let snapshots = below(model.join("snapshots"));
        snapshots.into_iter().chain([model])
    });
    let files = folders.map(|folder| folder.join("tokenizer.json"));
    files.filter(|file| file.is_file()).collect()
}

/// A byte-pair encoding.
pub struct Bpe {
    name: String,
    vocabulary: HashMap<String, u32>,
    /// Pair of adjacent tokens → rank of the merge, and merged token.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Special tokens that are matched literally, longest first.
    added: Vec<String>,
}

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: BpeModel,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
}

#[derive(Deserialize)]
struct BpeModel {
    #[serde(default)]
    r#type: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
}

/// Older files write a merge as one string, newer ones as two.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair(String, String),
}

impl Bpe {
    /// Read a `tokenizer.json`, given the file or its folder.
    ///
    /// # Errors
    /// A message with the path, if the file is invalid or contains another kind of tokenizer.
    pub fn read(path: &Path) -> Result<Self, String> {
        let path = match path.is_dir() {
            true => path.join("tokenizer.json"),
            false => path.to_owned(),
        };
        let wrong = |text: String| format!("{}: {text}", path.display());
        let file = File::open(&path).map_err(|error| wrong(error.to_string()))?;
        let mut text = String::new();
        file.take(MAX_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text, &path.display().to_string()).map_err(wrong)
    }

    /// Parse the text of a `tokenizer.json`. `origin` becomes part of the name.
    ///
    /// # Errors
    /// As [`Bpe::read`], without the path.
    pub fn parse(text: &str, origin: &str) -> Result<Self, String> {
        let file: TokenizerFile =
            serde_json::from_str(text).map_err(|e| format!("not a valid tokenizer.json: {e}"))?;
        let model = file.model;
        let spaces = file.normalizer.to_string().contains(SPACE);
        let bpe = model.r#type.as_deref().unwrap_or("BPE") == "BPE";
        if !(bpe && model.byte_fallback && spaces && file.pre_tokenizer.is_null()) {
            return Err(
                "unsupported tokenizer: only byte-pair encodings like Llama 2's, with `▁` for spaces \
                 and byte fallback, are supported"
                    .to_owned(),
            );
        }
        let vocabulary = model.vocab;
        let mut merges = HashMap::with_capacity(model.merges.len());
        for (rank, merge) in (0_u32..).zip(&model.merges) {
            let (left, right) = match merge {
                Merge::Pair(left, right) => (left.as_str(), right.as_str()),
                Merge::Text(text) => text.split_once(' ').ok_or("a merge has only one part")?,
            };
            let id = |token: &str| {
                let id = vocabulary.get(token).copied();
                id.ok_or_else(|| format!("merge {rank}: `{token}` is not in the vocabulary"))
            };
            let pair = (id(left)?, id(right)?);
            let whole = id(&format!("{left}{right}"))?;
            merges.entry(pair).or_insert((rank, whole));
        }
        let mut added: Vec<_> = file.added_tokens.into_iter().map(|a| a.content).collect();
        added.retain(|token| !token.is_empty());
        added.sort_by_key(|token| Reverse(token.len()));
        let kind = match vocabulary.len() {
            LLAMA_2_VOCABULARY => "Llama 2",
            _ => "byte-pair encoding",
        };
        Ok(Self {
            name: format!("{kind}, {} tokens ({origin})", vocabulary.len()),
            vocabulary,
            merges,
            added,
        })
    }

    /// Number of tokens in a text, without a start token.
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
            count += self.count_plain(plain) + u64::from(after.is_some());
            rest = after.unwrap_or("");
        }
        count
    }

    fn count_plain(&self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let mut merging = Merging::new(self, self.symbols(text));
        merging.run();
        merging.remaining as u64
    }

    /// One token per character, or one per byte if the character has no token.
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
                    // A byte without a token counts as a token that is never merged.
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

/// State while merging pairs: a linked list of symbols.
struct Merging<'a> {
    bpe: &'a Bpe,
    symbols: Vec<u32>,
    /// Indices of the neighbors. The first symbol is its own predecessor; the successor of the last one is past the
    /// end.
    before: Vec<usize>,
    after: Vec<usize>,
    removed: Vec<bool>,
    /// Rank, index of the left symbol, and both symbols at the time of insertion.
    queue: BinaryHeap<Reverse<(u32, usize, u32, u32)>>,
    remaining: usize,
}

impl<'a> Merging<'a> {
    fn new(bpe: &'a Bpe, symbols: Vec<u32>) -> Self {
        let count = symbols.len();
        let mut merging = Self {
            bpe,
            before: (0..count).map(|at| at.saturating_sub(1)).collect(),
            after: (1..=count).collect(),
            removed: vec![false; count],
            queue: BinaryHeap::new(),
            remaining: count,
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
            let stale = self.removed[at]
                || next >= self.symbols.len()
                || (self.symbols[at], self.symbols[next]) != (left, right);
            if stale {
                continue;
            }
            let Some((_, whole)) = self.bpe.merges.get(&(left, right)) else {
                continue;
            };
            self.symbols[at] = *whole;
            self.removed[next] = true;
            self.remaining -= 1;
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
    fn pairs_are_merged_by_rank_and_unknown_characters_become_bytes() {
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
    fn other_tokenizers_are_rejected() {
        let mut other = small();
        other["pre_tokenizer"] = json!({"type": "ByteLevel"});
        assert!(Bpe::parse(&other.to_string(), "").is_err());
        let mut other = small();
        other["model"]["merges"] = json!(["x y"]);
        let error = Bpe::parse(&other.to_string(), "").err().unwrap();
        assert!(error.contains("`x` is not in the vocabulary"), "{error}");
        assert!(Bpe::read(Path::new("/nowhere")).is_err());
    }

    /// The example of tiktoken's documentation; Chinese and names of special tokens as tiktoken counts them.
    #[test]
    fn cl100k_counts_like_tiktoken() {
        for (text, tokens) in [
            ("", 0),
            ("tiktoken is great!", 6),
            ("你好", 2),
            ("<|endoftext|>", 7),
        ] {
            assert_eq!(cl100k(text), tokens, "{text}");
        }
    }

    #[test]
    fn llama_2_is_found_in_a_cache_and_named() {
        let cache = tempfile::tempdir().unwrap();
        let caches = [cache.path().to_owned()];
        assert!(TokenCounter::detect(&caches).name().starts_with(CL100K));
        let folder = cache.path().join("models--x--Llama-2-7b-hf/snapshots/abc");
        std::fs::create_dir_all(&folder).unwrap();
        let mut large = small();
        let there = large["model"]["vocab"].as_object().unwrap().len();
        for n in there..LLAMA_2_VOCABULARY {
            large["model"]["vocab"][format!("extra{n}")] = json!(n);
        }
        std::fs::write(folder.join("tokenizer.json"), large.to_string()).unwrap();
        let name = TokenCounter::detect(&caches).name();
        assert!(name.starts_with("Llama 2, 32000 tokens"), "{name}");
    }

    proptest! {
        /// The queue gives the same result as repeatedly merging the best pair.
        #[test]
        fn the_queue_merges_like_the_simple_algorithm(text in "[abcl ]{0,40}") {
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
