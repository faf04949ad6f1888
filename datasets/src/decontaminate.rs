//! Whether rows hold tasks of a benchmark: by file, by table, by the words of query and answer.
//!
//! An [`Index`] knows the benchmarks. It looks at every query of the dataset once ([`Index::observe`]),
//! to learn which runs of words are everybody's, and then says of each text, file and table what it
//! holds of which task, with the evidence and a verdict. Verdicts are tuned for precision: what merely
//! resembles a task is told and not judged. `docs/data-quality.md` has the rules and what they measure.

mod table;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use pybench::id::Digest;
use serde::Serialize;

use crate::text::{each_unit, hash_of, is_ideograph, run};

pub use table::Table;

/// Weight of a run of words: four words, or eight ideographs.
const RUN: u8 = 8;
/// Tasks with fewer runs than this are recognised as a whole or not at all.
const SHORT: usize = 8;
/// Share of a task's runs from which on a resemblance is told.
const TOLD: f64 = 0.3;
/// A run that more texts of the dataset have than this share is everybody's.
const COMMON: f64 = 0.002;
/// Texts that may have it anyway.
const COMMON_FLOOR: u32 = 8;
/// A text with this share of a task's runs is a copy of it, and shows nothing of how common they are.
const COPY: f64 = 0.6;
/// Longest text looked at, bytes.
const TEXT: usize = 1 << 20;

/// One task of a benchmark.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// The benchmark.
    pub suite: String,
    /// The task's name in it.
    pub index: String,
    /// What is asked.
    pub query: String,
    /// Solutions or answers, where the benchmark has them.
    pub answers: Vec<String>,
    /// Its files.
    pub files: Vec<Digest>,
    /// Those of its files that are tables.
    pub tables: Vec<Table>,
}

/// By what a row was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A file is the same, byte by byte.
    File,
    /// A table has the same columns and the same rows.
    Table,
    /// The query has the words of a task's.
    Query,
    /// A reply has the words of a task's answer.
    Answer,
}

/// What a row has of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hit {
    /// The task, `suite/index`.
    pub task: String,
    /// By what.
    pub by: By,
    /// Share of the task's runs of words, or of the smaller table's rows, that both have.
    pub share: f64,
    /// What both have, in words.
    pub evidence: String,
    /// The verdict.
    pub contaminated: bool,
}

/// A text of a benchmark.
struct Known {
    item: u32,
    by: By,
    /// Each once, in order.
    runs: Vec<u64>,
    /// Each once, in order.
    units: Vec<u64>,
    shown: String,
}

impl Known {
    fn has(&self, run: u64) -> bool {
        self.runs.binary_search(&run).is_ok()
    }
}

/// Hashes need not be hashed again.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
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

type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;

/// What the benchmarks hold.
pub struct Index {
    items: Vec<Item>,
    texts: Vec<Known>,
    /// Run → texts that have it.
    runs: ByHash<Vec<u32>>,
    files: HashMap<Digest, Vec<u32>>,
    /// Names of columns → items and tables.
    tables: HashMap<Vec<String>, Vec<(u32, usize)>>,
    /// Run of a benchmark → different texts of the dataset that have it.
    seen: ByHash<u32>,
    observed: HashSet<u64, BuildHasherDefault<Hashed>>,
}

impl Index {
    /// An index of those tasks.
    pub fn new(items: Vec<Item>) -> Self {
        let mut index = Self {
            items: Vec::new(),
            texts: Vec::new(),
            runs: HashMap::default(),
            files: HashMap::new(),
            tables: HashMap::new(),
            seen: HashMap::default(),
            observed: HashSet::default(),
        };
        for (number, item) in items.iter().enumerate() {
            let number = number as u32;
            index.know(number, By::Query, &item.query);
            for answer in &item.answers {
                index.know(number, By::Answer, answer);
            }
            for file in &item.files {
                index.files.entry(file.clone()).or_default().push(number);
            }
            for (place, table) in item.tables.iter().enumerate() {
                let columns = table.columns().to_vec();
                let places = index.tables.entry(columns).or_default();
                places.push((number, place));
            }
        }
        index.items = items;
        index
    }

    fn know(&mut self, item: u32, by: By, text: &str) {
        let words = Words::of(text);
        let runs = once(words.runs());
        // Less than a run says nothing.
        if runs.is_empty() {
            return;
        }
        let number = self.texts.len() as u32;
        for run in &runs {
            self.runs.entry(*run).or_default().push(number);
        }
        self.texts.push(Known {
            item,
            by,
            runs,
            units: once(words.hashes.into_iter()),
            shown: text.chars().take(120).collect(),
        });
    }

    /// Look at a query of the dataset, to learn what is everybody's. The same text again teaches
    /// nothing, nor does one of a task's runs of which it has most: a task that was planted a thousand
    /// times, each time in slightly other words, does not become common.
    pub fn observe(&mut self, text: &str) {
        let words = Words::of(text);
        if !self.observed.insert(run(&words.hashes)) {
            return;
        }
        let mut found = self.known(&words);
        let copies = self.common(&found, COPY, |_| true);
        found.retain(|run| copies.iter().all(|known| !known.has(*run)));
        for run in found {
            *self.seen.entry(run).or_default() += 1;
        }
    }

    /// The runs of a text that some task has, each once.
    fn known(&self, words: &Words) -> Vec<u64> {
        once(words.runs().filter(|run| self.runs.contains_key(run)))
    }

    /// Known texts of some kind that have at least that share of their runs in `found`.
    fn common(&self, found: &[u64], share: f64, kind: impl Fn(&Known) -> bool) -> Vec<&Known> {
        if found.is_empty() {
            return Vec::new();
        }
        let mut counts = vec![0_usize; self.texts.len()];
        for run in found {
            for number in self.runs.get(run).into_iter().flatten() {
                counts[*number as usize] += 1;
            }
        }
        let counted = self.texts.iter().zip(counts);
        let enough = counted.filter(|(known, count)| {
            *count > 0 && *count as f64 >= share * known.runs.len() as f64 && kind(known)
        });
        enough.map(|(known, _)| known).collect()
    }

    /// What a row's query has of tasks.
    pub fn query(&self, text: &str) -> Vec<Hit> {
        self.text(text, By::Query)
    }

    /// What a row's replies have of answers.
    pub fn answer(&self, text: &str) -> Vec<Hit> {
        self.text(text, By::Answer)
    }

    fn text(&self, text: &str, by: By) -> Vec<Hit> {
        let words = Words::of(text);
        let found = self.known(&words);
        let common = self.common(&found, TOLD, |known| known.by == by);
        if common.is_empty() {
            return Vec::new();
        }
        // Most texts share some run with most tasks: what that amounts to is looked at only where it is enough.
        let all = once(words.runs()).len();
        let own = once(words.hashes.into_iter());
        let hit = |known| self.hit(known, &Shared::of(self, known, &found, all, &own));
        common.into_iter().map(hit).collect()
    }

    fn hit(&self, known: &Known, shared: &Shared) -> Hit {
        let (all, telling) = (100.0 * shared.all, 100.0 * shared.telling);
        Hit {
            task: self.name(known.item),
            by: known.by,
            share: shared.all,
            evidence: format!(
                "{all:.0} % of the runs of words of {:?}, {telling:.0} % of those that are not \
                 everybody's",
                known.shown
            ),
            contaminated: shared.decides(known),
        }
    }

    fn name(&self, item: u32) -> String {
        let item = &self.items[item as usize];
        format!("{}/{}", item.suite, item.index)
    }

    /// Whether a run of words is one that many texts of the dataset have.
    fn is_common(&self, run: u64) -> bool {
        let most = (COMMON * self.observed.len() as f64) as u32;
        self.seen.get(&run).copied().unwrap_or(0) > most.max(COMMON_FLOOR)
    }

    /// Tasks that have this very file.
    pub fn file(&self, file: &Digest) -> Vec<Hit> {
        let items = self.files.get(file).into_iter().flatten();
        let hit = |item: &u32| Hit {
            task: self.name(*item),
            by: By::File,
            share: 1.0,
            evidence: format!("the file {file}"),
            contaminated: true,
        };
        items.map(hit).collect()
    }

    /// Tasks that have a table with the same columns and some of the same rows.
    pub fn table(&self, table: &Table) -> Vec<Hit> {
        let places = self.tables.get(table.columns()).into_iter().flatten();
        let hit = |(item, place): &(u32, usize)| {
            let other = &self.items[*item as usize].tables[*place];
            let (common, share) = table.common(other);
            (share >= TOLD && common > 0).then(|| Hit {
                task: self.name(*item),
                by: By::Table,
                share,
                evidence: format!(
                    "columns {}; {common} different rows in both, of {} and {}",
                    table.columns().join(", "),
                    table.rows(),
                    other.rows()
                ),
                contaminated: table.is_taken_from(other),
            })
        };
        places.filter_map(hit).collect()
    }
}

/// What a text and a task have in common.
struct Shared {
    /// Share of the task's runs.
    all: f64,
    /// Share of those that are not everybody's; 0 where all are.
    telling: f64,
    /// Number of those.
    telling_runs: usize,
    /// Share of the task's different words.
    units: f64,
    /// Share of the text's runs that are the task's.
    back: f64,
}

impl Shared {
    /// Of `found`, the runs that some task has, of `all`, the number of the text's runs, and of its `own` units.
    fn of(index: &Index, known: &Known, found: &[u64], all: usize, own: &[u64]) -> Self {
        let common = found.iter().copied().filter(|run| known.has(*run));
        let common: Vec<u64> = common.collect();
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        let is_telling = |run: &&u64| !index.is_common(**run);
        let telling = common.iter().filter(is_telling).count();
        let telling_runs = known.runs.iter().filter(is_telling).count();
        let units = known.units.iter();
        let units = units.filter(|unit| own.binary_search(unit).is_ok());
        Self {
            all: share(common.len(), known.runs.len()),
            telling: share(telling, telling_runs),
            telling_runs,
            units: share(units.count(), known.units.len()),
            back: share(common.len(), all),
        }
    }

    /// A short task is taken over when it is there whole and there is little else; a longer one when
    /// nearly all of it is there, or more than half of what is not everybody's, or a third of it with
    /// nearly all of its words.
    fn decides(&self, known: &Known) -> bool {
        if known.runs.len() < SHORT {
            return self.all > 0.99 && self.back >= 0.5;
        }
        if known.by == By::Answer {
            return self.all >= 0.7 && self.telling >= 0.7 && self.telling_runs >= SHORT;
        }
        let telling = self.telling_runs >= SHORT / 2;
        self.all >= 0.9
            || (telling && self.all >= 0.5 && self.telling >= 0.55)
            || (telling && self.telling >= 0.35 && self.units >= 0.85)
    }
}

/// The words of a text.
struct Words {
    hashes: Vec<u64>,
    /// A word weighs two, an ideograph one.
    weights: Vec<u8>,
}

impl Words {
    fn of(text: &str) -> Self {
        let (mut hashes, mut weights) = (Vec::new(), Vec::new());
        each_unit(bounded(text), |unit| {
            hashes.push(hash_of(unit));
            let ideograph = unit.chars().next().is_some_and(is_ideograph);
            weights.push(if ideograph { 1 } else { 2 });
        });
        Self { hashes, weights }
    }

    /// Hashes of the runs of words, in order: as many words as weigh [`RUN`].
    fn runs(&self) -> impl Iterator<Item = u64> + '_ {
        let (mut end, mut total) = (0, 0);
        (0..self.hashes.len()).map_while(move |start| {
            while total < RUN && end < self.hashes.len() {
                total += self.weights[end];
                end += 1;
            }
            let whole = total >= RUN;
            total -= self.weights[start].min(total);
            whole.then(|| run(&self.hashes[start..end]))
        })
    }
}

/// Each once, in order.
fn once(hashes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut hashes: Vec<u64> = hashes.collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

fn bounded(text: &str) -> &str {
    let most = TEXT.min(text.len());
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
