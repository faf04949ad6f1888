//! Chooses what the models write about: a keyword, files, a language and a difficulty per task, balanced
//! by the weights of the recipe.
//!
//! A *slot* is one requested task. If an attempt in a slot is rejected, the next attempt uses other files of
//! the same type, so the accepted tasks have the same balance. The result depends only on recipe, files and
//! keyword dictionary.

use std::collections::BTreeMap;

use pybench_run::{FileUse, Query, RunError, WriterChoice};
use pybench_types::id::Digest;
use pybench_types::task::{Category, Difficulty, FileKind, Language, Profile, SourceFile};
use rand::seq::SliceRandom;

use crate::plan::{allocate, known_keywords, rng};
use pybench_library::{Keyword, Library};

/// Keywords whose tasks use two files if the run has two of a type.
const TWO_FILES: [&str; 5] = [
    "merge",
    "merge documents",
    "join audio",
    "image collage",
    "text similarity",
];

/// The topic of one query to write.
#[derive(Clone, Debug)]
pub(super) struct TaskSeed<'a> {
    /// The unit's item: `writer#slot.attempt:digest`.
    pub(super) item: String,
    /// Distinguishes equal questions, so that each gets its own answer.
    pub(super) sample: u32,
    pub(super) keyword: &'a Keyword,
    pub(super) files: Vec<&'a SourceFile>,
    pub(super) language: Language,
    pub(super) difficulty: Difficulty,
}

/// The seeds of all requested tasks.
#[derive(Clone, Debug)]
pub(super) struct TaskSeeds {
    slots: Vec<Slot>,
    /// Maximum attempts per slot.
    max_attempts: u32,
    /// Files by type, in a seeded order.
    files_by_kind: BTreeMap<FileKind, Vec<SourceFile>>,
}

#[derive(Clone, Debug)]
struct Slot {
    keyword: Keyword,
    /// File type, number of files, and index of the first file.
    files: Option<(FileKind, usize, usize)>,
    language: Language,
    difficulty: Difficulty,
}

impl TaskSeeds {
    /// Draws as many seeds as the recipe requests tasks.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for an unknown keyword, or if no keyword applies to the files.
    pub(super) fn new(
        library: &Library,
        files: &[SourceFile],
        query: &Query,
        writer: &WriterChoice,
        seed: u64,
    ) -> Result<Self, RunError> {
        known_keywords(library, query)?;
        let mut files_by_kind: BTreeMap<FileKind, Vec<SourceFile>> = BTreeMap::new();
        let readable = |file: &&SourceFile| !matches!(file.profile, Profile::Broken { .. });
        for file in files.iter().filter(readable) {
            files_by_kind
                .entry(file.kind)
                .or_default()
                .push(file.clone());
        }
        for (kind, files) in &mut files_by_kind {
            files.shuffle(&mut rng(&(seed, kind, "files")));
        }
        let languages = allocate(
            query.tasks,
            &query.languages,
            &mut rng(&(seed, "languages")),
        );
        let weights = Difficulty::ALL.map(|d| (d, weight(&writer.balance.difficulties, &d)));
        let weights = BTreeMap::from(weights);
        let difficulties = allocate(query.tasks, &weights, &mut rng(&(seed, "difficulties")));
        let mut balance = Balance::new(library, query, writer, &files_by_kind, seed);
        let mut slots = Vec::with_capacity(query.tasks);
        for (language, difficulty) in languages.into_iter().zip(difficulties) {
            let Some((keyword, files)) = balance.next(&files_by_kind) else {
                return Err(RunError::BadInput(
                    "recipe, query: no keyword is left that applies to the crawled files; crawl more \
                     files, or allow more in `query.categories`, `query.keywords` and \
                     `query.writer.balance`"
                        .into(),
                ));
            };
            slots.push(Slot {
                keyword,
                files,
                language,
                difficulty,
            });
        }
        Ok(Self {
            slots,
            max_attempts: writer.tries,
            files_by_kind,
        })
    }

    /// Keeps only the first `slots` slots.
    pub(super) fn first(mut self, slots: usize) -> Self {
        self.slots.truncate(slots);
        self
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Maximum attempts per slot.
    pub(super) fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The seed of an attempt at a slot, both counted from 0; `None` beyond the last slot or attempt.
    pub(super) fn at(&self, slot: usize, attempt: u32) -> Option<TaskSeed<'_>> {
        let slot_spec = self
            .slots
            .get(slot)
            .filter(|_| attempt < self.max_attempts)?;
        let files = self.files(slot_spec, attempt);
        let ids: Vec<_> = files.iter().map(|file| &file.id).collect();
        let (language, difficulty) = (slot_spec.language, slot_spec.difficulty);
        let digest = Digest::of_json(&(&slot_spec.keyword.name, ids, language, difficulty));
        Some(TaskSeed {
            item: format!("writer#{slot}.{attempt}:{}", digest.short()),
            sample: u32::try_from(slot).ok()?.checked_mul(100)? + attempt,
            keyword: &slot_spec.keyword,
            files,
            language,
            difficulty,
        })
    }

    fn files(&self, slot: &Slot, attempt: u32) -> Vec<&SourceFile> {
        let Some((kind, count, first)) = slot.files else {
            return Vec::new();
        };
        let Some(files) = self.files_by_kind.get(&kind) else {
            return Vec::new();
        };
        let first = first + attempt as usize * count;
        let indices = (0..count).map(|n| (first + n) % files.len());
        indices.filter_map(|index| files.get(index)).collect()
    }
}

fn weight<K: Ord>(weights: &BTreeMap<K, f64>, key: &K) -> f64 {
    weights.get(key).copied().unwrap_or(1.0)
}

/// Draws keywords and file types by weight: always the one that is furthest behind its share.
struct Balance {
    categories: WeightedShares<Category>,
    keywords: BTreeMap<Category, WeightedShares<String>>,
    /// Usable file types of each keyword; empty if it needs no file.
    kinds: BTreeMap<String, Vec<FileKind>>,
    kind_shares: WeightedShares<FileKind>,
    dictionary: BTreeMap<String, Keyword>,
    /// Index of the next file of each type.
    next_file: BTreeMap<FileKind, usize>,
}

impl Balance {
    fn new(
        library: &Library,
        query: &Query,
        writer: &WriterChoice,
        files_by_kind: &BTreeMap<FileKind, Vec<SourceFile>>,
        seed: u64,
    ) -> Self {
        let weights = &writer.balance;
        let wanted = |keyword: &&Keyword| {
            let listed = query.keywords.is_empty() || query.keywords.contains(&keyword.name);
            listed && (query.categories.is_empty() || query.categories.contains(&keyword.category))
        };
        let usable = |kind: &FileKind| {
            files_by_kind.contains_key(kind) && weight(&weights.types, kind) > 0.0
        };
        let mut balance = Self {
            categories: WeightedShares::default(),
            keywords: BTreeMap::new(),
            kinds: BTreeMap::new(),
            kind_shares: WeightedShares::default(),
            dictionary: BTreeMap::new(),
            next_file: BTreeMap::new(),
        };
        let mut keywords: Vec<_> = library.keywords().iter().filter(wanted).collect();
        keywords.shuffle(&mut rng(&(seed, "keywords")));
        for keyword in keywords {
            let kinds: Vec<_> = keyword.files.iter().copied().filter(usable).collect();
            let keyword_weight = weight(&weights.keywords, &keyword.name);
            let category_weight = weight(&weights.categories, &keyword.category);
            let needs_files = !keyword.files.is_empty() || query.files == FileUse::Required;
            if keyword_weight == 0.0 || category_weight == 0.0 || (needs_files && kinds.is_empty())
            {
                continue;
            }
            for kind in &kinds {
                balance.kind_shares.add(*kind, weight(&weights.types, kind));
            }
            let (name, category) = (keyword.name.clone(), keyword.category);
            balance.categories.add(category, category_weight);
            let within = balance.keywords.entry(category).or_default();
            within.add(name.clone(), keyword_weight);
            balance.kinds.insert(name.clone(), kinds);
            balance.dictionary.insert(name, keyword.clone());
        }
        balance
    }

    #[allow(clippy::type_complexity)]
    fn next(
        &mut self,
        files_by_kind: &BTreeMap<FileKind, Vec<SourceFile>>,
    ) -> Option<(Keyword, Option<(FileKind, usize, usize)>)> {
        let category = self.categories.take(|_| true)?;
        let name = self.keywords.get_mut(&category)?.take(|_| true)?;
        let keyword = self.dictionary.get(&name)?.clone();
        let kinds = self.kinds.get(&name)?;
        if kinds.is_empty() {
            return Some((keyword, None));
        }
        let kind = self.kind_shares.take(|kind| kinds.contains(kind))?;
        let available = files_by_kind.get(&kind)?.len();
        let count = if TWO_FILES.contains(&&*name) {
            2.min(available)
        } else {
            1
        };
        let index = self.next_file.entry(kind).or_default();
        let first = *index;
        *index = (*index + count) % available;
        Some((keyword, Some((kind, count, first))))
    }
}

/// Values with their weights and how often each was taken.
struct WeightedShares<T>(Vec<(T, f64, usize)>);

impl<T> Default for WeightedShares<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone + PartialEq> WeightedShares<T> {
    fn add(&mut self, what: T, weight: f64) {
        if self.0.iter().all(|(known, ..)| *known != what) {
            self.0.push((what, weight, 0));
        }
    }

    /// Takes the allowed value that is furthest behind its share; the first one on a tie.
    fn take(&mut self, allowed: impl Fn(&T) -> bool) -> Option<T> {
        let quotient = |(_, weight, taken): &(T, f64, usize)| (taken + 1) as f64 / weight;
        let allowed_values = self.0.iter_mut().filter(|(what, ..)| allowed(what));
        let next = allowed_values.min_by(|a, b| quotient(a).total_cmp(&quotient(b)))?;
        next.2 += 1;
        Some(next.0.clone())
    }
}

#[cfg(test)]
#[path = "task_seed_tests.rs"]
mod tests;
