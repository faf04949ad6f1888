//! Finds rows that contain tasks of a benchmark, by file, by table, and by n-grams of query and answer.
//!
//! A [`BenchmarkIndex`] contains the tasks of the benchmarks. First, every query of the dataset is added
//! ([`BenchmarkIndex::observe`]), to learn which n-grams are common in the dataset. Then each text, file and table can be
//! looked up. A [`Hit`] has the evidence and a verdict. The thresholds are tuned for precision: texts that are only
//! similar to a task are reported, but not as contaminated. `docs/decontamination.md` lists the rules and their measured
//! quality.

pub mod fingerprints;
mod near_duplicates;
mod search;
mod table;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pybench_types::id::Digest;
use serde::Serialize;

use crate::text::{combine, each_unit, hash_of, is_ideograph};

pub use near_duplicates::{NearDuplicates, SuiteQuestion};
pub use search::{
    BenchmarkMatch, BenchmarkMatches, BenchmarkSearch, FileSearch, MatchAction, ReadTable, RowPrint,
};
pub use table::{Table, TableSketch};

/// Weight of an n-gram: four words, or eight CJK characters.
const NGRAM_WEIGHT: u8 = 8;
/// A text with fewer n-grams than this is short: it is recognized only as a whole.
const SHORT_TEXT: usize = 8;
/// Minimum share of a task's n-grams for reporting a hit.
const MIN_REPORTED_SHARE: f64 = 0.3;
/// An n-gram is common if it occurs in more than this share of the dataset's texts.
const COMMON_SHARE: f64 = 0.002;
/// An n-gram is never common if it occurs in at most this many texts.
const COMMON_MIN_TEXTS: u32 = 8;
/// A text with at least this share of a task's n-grams is a copy of the task. It does not count toward how common
/// these n-grams are.
const COPY_SHARE: f64 = 0.6;
/// Maximum length of a text, in bytes. The rest is ignored.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// A task of a benchmark, or a file that belongs to none of its tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchmarkTask {
    /// Name of the benchmark.
    pub suite: String,
    /// Name of the task in the benchmark.
    pub index: String,
    pub query: String,
    /// Hashes of the query's n-grams, where the query itself is not known; see [`fingerprints`].
    pub ngrams: Vec<u32>,
    /// Solutions or answers, if the benchmark has any.
    pub answers: Vec<String>,
    pub files: Vec<Digest>,
    /// Contents of the files that are tables.
    pub tables: Vec<Table>,
    /// Samples of tables, where the tables themselves are not known; see [`fingerprints`].
    pub sketches: Vec<TableSketch>,
}

/// What a row and a task have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchKind {
    /// An identical file.
    File,
    /// A table with the same columns and common rows.
    Table,
    /// Common n-grams in the query.
    Query,
    /// Common n-grams in a reply and an answer of the task.
    Answer,
    /// A query that is nearly the task's question; see [`NearDuplicates`].
    NearDuplicate,
}

impl MatchKind {
    /// How a row was recognized by this common share, in words.
    pub fn reason(self, share: f64) -> String {
        let percent = 100.0 * share;
        match self {
            Self::File => "an identical file".to_owned(),
            Self::Table => format!("{percent:.0} % of a table's rows"),
            Self::Query => format!("{percent:.0} % of the query's word sequences"),
            Self::Answer => format!("{percent:.0} % of an answer's word sequences"),
            Self::NearDuplicate => {
                format!("a near duplicate with {percent:.0} % of the word sequences in common")
            }
        }
    }
}

/// A match between a row and a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hit {
    /// The task, as `suite/index`.
    pub task: String,
    pub by: MatchKind,
    /// Common share of the task's n-grams, or of the rows of the smaller table.
    pub share: f64,
    /// Description of what they have in common.
    pub evidence: String,
    /// Whether the row counts as contaminated.
    pub contaminated: bool,
}

/// A query or answer of a benchmark task.
struct IndexedText {
    task: u32,
    kind: MatchKind,
    /// Hashes of the n-grams, sorted and unique.
    ngrams: Vec<u64>,
    /// Hashes of the words, sorted and unique.
    units: Vec<u64>,
    /// The beginning of the text, for messages.
    excerpt: String,
}

impl IndexedText {
    fn has(&self, ngram: u64) -> bool {
        self.ngrams.binary_search(&ngram).is_ok()
    }
}

/// A table of a task, by its position among the tables or sketches of the task.
#[derive(Clone, Copy)]
enum KnownTable {
    Whole(usize),
    Sketch(usize),
}

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |n, byte| n << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type HashIndex<T> = HashMap<u64, T, BuildHasherDefault<IdentityHasher>>;

/// The tasks of one or more benchmarks, by what they are recognized by.
struct KnownTasks {
    tasks: Vec<BenchmarkTask>,
    texts: Vec<IndexedText>,
    /// N-gram → texts that contain it.
    ngrams: HashIndex<Vec<u32>>,
    files: HashMap<Digest, Vec<u32>>,
    /// Hash of the column names → task and its table.
    tables: HashIndex<Vec<(u32, KnownTable)>>,
    /// The bits of an n-gram's hash that are compared.
    mask: u64,
}

/// The tasks of one or more benchmarks, and how common their n-grams are in a dataset.
pub struct BenchmarkIndex {
    known: Arc<KnownTasks>,
    /// N-gram of a benchmark → number of distinct texts in the dataset that contain it.
    ngram_counts: HashIndex<u32>,
    observed: HashSet<u64, BuildHasherDefault<IdentityHasher>>,
}

/// A text, as far as an index knows it.
#[derive(Clone, Debug)]
pub struct TextPrint {
    /// Hash of the whole text.
    key: u64,
    /// The n-grams that occur in the index, sorted and unique.
    found: Vec<u64>,
    /// Number of all n-grams.
    ngrams: usize,
    /// Hashes of the words, sorted and unique; none if no n-gram is known.
    units: Vec<u64>,
}

impl KnownTasks {
    fn new(tasks: Vec<BenchmarkTask>) -> Self {
        let mut index = Self {
            tasks: Vec::new(),
            texts: Vec::new(),
            ngrams: HashMap::default(),
            files: HashMap::new(),
            tables: HashMap::default(),
            mask: match tasks.iter().all(|task| task.ngrams.is_empty()) {
                true => u64::MAX,
                false => fingerprints::MASK,
            },
        };
        for (number, task) in tasks.iter().enumerate() {
            let number = number as u32;
            index.add_text(number, MatchKind::Query, &task.query);
            index.add_ngrams(number, &task.ngrams);
            for answer in &task.answers {
                index.add_text(number, MatchKind::Answer, answer);
            }
            for file in &task.files {
                index.files.entry(file.clone()).or_default().push(number);
            }
            let whole = task.tables.iter().enumerate();
            let whole = whole.map(|(at, table)| (table.columns_hash(), KnownTable::Whole(at)));
            let sketches = task.sketches.iter().enumerate();
            let sketches = sketches.map(|(at, sketch)| (sketch.columns, KnownTable::Sketch(at)));
            for (columns, known) in whole.chain(sketches) {
                index
                    .tables
                    .entry(columns)
                    .or_default()
                    .push((number, known));
            }
        }
        index.tasks = tasks;
        index
    }

    fn add_text(&mut self, task: u32, kind: MatchKind, text: &str) {
        let words = Words::of(text);
        self.add_indexed(IndexedText {
            task,
            kind,
            ngrams: sorted_unique(words.ngrams().map(|ngram| ngram & self.mask)),
            units: sorted_unique(words.hashes.into_iter()),
            excerpt: text.chars().take(120).collect(),
        });
    }

    /// Add a query of which only n-grams are known.
    fn add_ngrams(&mut self, task: u32, ngrams: &[u32]) {
        self.add_indexed(IndexedText {
            task,
            kind: MatchKind::Query,
            ngrams: sorted_unique(ngrams.iter().map(|ngram| u64::from(*ngram))),
            units: Vec::new(),
            excerpt: String::new(),
        });
    }

    fn add_indexed(&mut self, text: IndexedText) {
        // A text shorter than an n-gram cannot be recognized.
        if text.ngrams.is_empty() {
            return;
        }
        let number = self.texts.len() as u32;
        for ngram in &text.ngrams {
            self.ngrams.entry(*ngram).or_default().push(number);
        }
        self.texts.push(text);
    }
}

impl BenchmarkIndex {
    /// Build an index.
    pub fn new(tasks: Vec<BenchmarkTask>) -> Self {
        Self::of_known(Arc::new(KnownTasks::new(tasks)))
    }

    /// An index of the same tasks, for another dataset.
    fn for_another_dataset(&self) -> Self {
        Self::of_known(self.known.clone())
    }

    fn of_known(known: Arc<KnownTasks>) -> Self {
        Self {
            known,
            ngram_counts: HashMap::default(),
            observed: HashSet::default(),
        }
    }

    /// What a text has in common with the index.
    pub fn print(&self, text: &str) -> TextPrint {
        let words = Words::of(text);
        let found = words.ngrams().map(|ngram| ngram & self.known.mask);
        let found = sorted_unique(found.filter(|ngram| self.known.ngrams.contains_key(ngram)));
        let (key, known) = (combine(&words.hashes), !found.is_empty());
        // Most texts share nothing with a task; then nothing else is needed.
        TextPrint {
            key,
            ngrams: match known {
                true => sorted_unique(words.ngrams()).len(),
                false => 0,
            },
            units: match known {
                true => sorted_unique(words.hashes.into_iter()),
                false => Vec::new(),
            },
            found,
        }
    }

    /// Add a query of the dataset, to learn which n-grams are common. Repeated texts are counted once. Copies of a task
    /// do not count toward the task's n-grams, so that a task that occurs a thousand times with small changes does not
    /// become common.
    pub fn observe(&mut self, text: &str) {
        self.observe_print(self.print(text));
    }

    /// As [`BenchmarkIndex::observe`].
    pub fn observe_print(&mut self, text: TextPrint) {
        if !self.observed.insert(text.key) {
            return;
        }
        let mut found = text.found;
        let copied = self.texts_with(&found, COPY_SHARE, |_| true);
        found.retain(|ngram| copied.iter().all(|known| !known.has(*ngram)));
        for ngram in found {
            *self.ngram_counts.entry(ngram).or_default() += 1;
        }
    }

    /// Indexed texts that pass the filter and have at least the given share of their n-grams in `found`.
    fn texts_with(
        &self,
        found: &[u64],
        share: f64,
        filter: impl Fn(&IndexedText) -> bool,
    ) -> Vec<&IndexedText> {
        let with_ngram = |ngram: &u64| self.known.ngrams.get(ngram);
        let numbers = found.iter().filter_map(with_ngram).flatten();
        let mut numbers: Vec<u32> = numbers.copied().collect();
        numbers.sort_unstable();
        let counted = numbers.chunk_by(|a, b| a == b);
        let counted = counted.map(|same| (&self.known.texts[same[0] as usize], same.len()));
        let enough = counted.filter(|(known, count)| {
            *count as f64 >= share * known.ngrams.len() as f64 && filter(known)
        });
        enough.map(|(known, _)| known).collect()
    }

    /// Look up a row's query.
    pub fn query(&self, text: &str) -> Vec<Hit> {
        self.look_up(&self.print(text), MatchKind::Query)
    }

    /// Look up a row's replies among the answers.
    pub fn answer(&self, text: &str) -> Vec<Hit> {
        self.look_up(&self.print(text), MatchKind::Answer)
    }

    /// Look up a text that this index has [printed](BenchmarkIndex::print).
    pub fn look_up(&self, text: &TextPrint, kind: MatchKind) -> Vec<Hit> {
        // Most texts share some n-gram with most tasks; the full comparison is made only for candidates.
        let same_kind = |known: &IndexedText| known.kind == kind;
        let candidates = self.texts_with(&text.found, MIN_REPORTED_SHARE, same_kind);
        let hit = |known| self.hit(known, &Overlap::of(self, known, text));
        candidates.into_iter().map(hit).collect()
    }

    fn hit(&self, known: &IndexedText, overlap: &Overlap) -> Hit {
        let (all, distinctive) = (100.0 * overlap.all, 100.0 * overlap.distinctive);
        Hit {
            task: self.name(known.task),
            by: known.kind,
            share: overlap.all,
            evidence: format!(
                "{all:.0} % of the n-grams of {}, {distinctive:.0} % of those that are not common \
                 in the dataset",
                match known.excerpt.is_empty() {
                    true => "its query".to_owned(),
                    false => format!("{:?}", known.excerpt),
                }
            ),
            contaminated: overlap.is_contamination(known),
        }
    }

    fn name(&self, task: u32) -> String {
        let task = &self.known.tasks[task as usize];
        format!("{}/{}", task.suite, task.index)
    }

    /// Whether an n-gram is common in the dataset.
    fn is_common(&self, ngram: u64) -> bool {
        let limit = (COMMON_SHARE * self.observed.len() as f64) as u32;
        self.ngram_counts.get(&ngram).copied().unwrap_or(0) > limit.max(COMMON_MIN_TEXTS)
    }

    /// Look up a file by its digest.
    pub fn file(&self, file: &Digest) -> Vec<Hit> {
        let tasks = self.known.files.get(file).into_iter().flatten();
        let hit = |task: &u32| Hit {
            task: self.name(*task),
            by: MatchKind::File,
            share: 1.0,
            evidence: format!("the file {file}"),
            contaminated: true,
        };
        tasks.map(hit).collect()
    }

    /// Look up a table: finds tables with the same columns and common rows.
    pub fn table(&self, table: &Table) -> Vec<Hit> {
        let candidates = self.known.tables.get(&table.columns_hash());
        let hit = |(task, known): &(u32, KnownTable)| self.table_hit(table, *task, *known);
        candidates.into_iter().flatten().filter_map(hit).collect()
    }

    fn table_hit(&self, table: &Table, task: u32, known: KnownTable) -> Option<Hit> {
        let of_task = &self.known.tasks[task as usize];
        let (common, share, rows, contaminated, sampled) = match known {
            KnownTable::Whole(at) => {
                let other = &of_task.tables[at];
                let (common, share) = table.common(other);
                let contaminated = table.has_common_source(other);
                (common, share, other.rows(), contaminated, "")
            }
            KnownTable::Sketch(at) => {
                let other = &of_task.sketches[at];
                let (common, share) = table.common_with_sketch(other);
                let contaminated = table.has_common_source_with_sketch(other);
                let sampled = match other.zero_bits {
                    0 => "",
                    _ => " in a sample",
                };
                (common, share, other.rows as usize, contaminated, sampled)
            }
        };
        (share >= MIN_REPORTED_SHARE && common > 0).then(|| Hit {
            task: self.name(task),
            by: MatchKind::Table,
            share,
            evidence: format!(
                "columns {}; {common} distinct rows in common{sampled}, of {} and {rows}",
                table.columns().join(", "),
                table.rows()
            ),
            contaminated,
        })
    }
}

/// Overlap of a text with an indexed text.
struct Overlap {
    /// Share of the task's n-grams that the text contains.
    all: f64,
    /// The same share among distinctive n-grams, which are not common in the dataset; 0 if there are none.
    distinctive: f64,
    /// Number of distinctive n-grams in the task.
    distinctive_count: usize,
    /// Share of the task's distinct words that the text contains.
    units: f64,
    /// Share of the text's n-grams that are in the task.
    of_text: f64,
}

impl Overlap {
    fn of(index: &BenchmarkIndex, known: &IndexedText, text: &TextPrint) -> Self {
        let common = text.found.iter().copied().filter(|ngram| known.has(*ngram));
        let common: Vec<u64> = common.collect();
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        let is_distinctive = |ngram: &&u64| !index.is_common(**ngram);
        let distinctive = common.iter().filter(is_distinctive).count();
        let distinctive_count = known.ngrams.iter().filter(is_distinctive).count();
        let units = known.units.iter();
        let units = units.filter(|unit| text.units.binary_search(unit).is_ok());
        Self {
            all: share(common.len(), known.ngrams.len()),
            distinctive: share(distinctive, distinctive_count),
            distinctive_count,
            units: share(units.count(), known.units.len()),
            of_text: share(common.len(), text.ngrams),
        }
    }

    /// Whether the overlap counts as contamination. A short text must be contained completely, and must be at least
    /// half of the row's text. For a longer one it is enough that nearly all of its n-grams, more than half of its
    /// distinctive n-grams, or a third of these and nearly all of its words are contained.
    fn is_contamination(&self, known: &IndexedText) -> bool {
        if known.ngrams.len() < SHORT_TEXT {
            return self.all > 0.99 && self.of_text >= 0.5;
        }
        if known.kind == MatchKind::Answer {
            return self.all >= 0.7
                && self.distinctive >= 0.7
                && self.distinctive_count >= SHORT_TEXT;
        }
        let enough = self.distinctive_count >= SHORT_TEXT / 2;
        self.all >= 0.9
            || (enough && self.all >= 0.5 && self.distinctive >= 0.55)
            || (enough && self.distinctive >= 0.35 && self.units >= 0.85)
    }
}

/// Hashes of the words of a text.
struct Words {
    hashes: Vec<u64>,
    /// A word has weight 2, a CJK character weight 1.
    weights: Vec<u8>,
}

impl Words {
    fn of(text: &str) -> Self {
        let (mut hashes, mut weights) = (Vec::new(), Vec::new());
        each_unit(truncated(text), |unit| {
            hashes.push(hash_of(unit));
            let ideograph = unit.chars().next().is_some_and(is_ideograph);
            weights.push(if ideograph { 1 } else { 2 });
        });
        Self { hashes, weights }
    }

    /// Hashes of all n-grams in order. An n-gram is a sequence of words with a total weight of [`NGRAM_WEIGHT`].
    fn ngrams(&self) -> impl Iterator<Item = u64> + '_ {
        let (mut end, mut total) = (0, 0);
        (0..self.hashes.len()).map_while(move |start| {
            while total < NGRAM_WEIGHT && end < self.hashes.len() {
                total += self.weights[end];
                end += 1;
            }
            let whole = total >= NGRAM_WEIGHT;
            total -= self.weights[start].min(total);
            whole.then(|| combine(&self.hashes[start..end]))
        })
    }
}

fn sorted_unique(hashes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut hashes: Vec<u64> = hashes.collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Whether a text is so short that it is recognized only as a whole.
pub fn is_short(text: &str) -> bool {
    sorted_unique(Words::of(text).ngrams()).len() < SHORT_TEXT
}

/// The text, limited to [`MAX_TEXT_BYTES`].
fn truncated(text: &str) -> &str {
    let max = MAX_TEXT_BYTES.min(text.len());
    let end = (0..=max).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
