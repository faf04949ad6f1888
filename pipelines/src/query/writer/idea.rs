//! What the models are asked to write: for each task a keyword, files, a language and a difficulty,
//! balanced as the recipe says.
//!
//! A *slot* is a task to be had. What is rejected in a slot is tried again on other files of the same
//! type, so that the balance is that of the accepted tasks too. Everything follows from recipe, files and
//! dictionary alone.

use std::collections::BTreeMap;

use pybench::id::Digest;
use pybench::run::{Query, RunError, WriterChoice};
use pybench::task::{Category, Difficulty, FileKind, Language, Profile, SourceFile};
use rand::seq::SliceRandom;

use crate::library::{Keyword, Library};
use crate::query::plan::{deck, known_keywords, rng};

/// Keywords whose tasks need two files, where there are two of a type.
const OF_TWO: [&str; 5] = [
    "merge",
    "merge documents",
    "join audio",
    "image collage",
    "text similarity",
];

/// One query to be written.
#[derive(Clone, Debug)]
pub(super) struct Idea<'a> {
    /// The unit's item: `writer#slot.attempt:digest`.
    pub(super) item: String,
    /// Tells equal questions apart, so that they get answers of their own.
    pub(super) sample: u32,
    /// What it is about.
    pub(super) keyword: &'a Keyword,
    /// What it rests on.
    pub(super) files: Vec<&'a SourceFile>,
    /// Its language.
    pub(super) language: Language,
    /// How hard it is to be.
    pub(super) difficulty: Difficulty,
}

/// Every task to be had.
#[derive(Clone, Debug)]
pub(super) struct Ideas {
    slots: Vec<Slot>,
    /// Attempts at each.
    tries: u32,
    /// Files of each type, in a seeded order.
    of_kind: BTreeMap<FileKind, Vec<SourceFile>>,
}

#[derive(Clone, Debug)]
struct Slot {
    keyword: Keyword,
    /// The type of its files, how many, and the place of the first.
    files: Option<(FileKind, usize, usize)>,
    language: Language,
    difficulty: Difficulty,
}

impl Ideas {
    /// As many as the recipe asks for.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a keyword that the dictionary lacks, and when nothing is left to write
    /// about.
    pub(super) fn new(
        library: &Library,
        files: &[SourceFile],
        query: &Query,
        writer: &WriterChoice,
        seed: u64,
    ) -> Result<Self, RunError> {
        known_keywords(library, query)?;
        let mut of_kind: BTreeMap<FileKind, Vec<SourceFile>> = BTreeMap::new();
        let readable = |file: &&SourceFile| !matches!(file.profile, Profile::Broken { .. });
        for file in files.iter().filter(readable) {
            of_kind.entry(file.kind).or_default().push(file.clone());
        }
        for (kind, files) in &mut of_kind {
            files.shuffle(&mut rng(&(seed, kind, "files")));
        }
        let languages = deck(
            query.tasks,
            &query.languages,
            &mut rng(&(seed, "languages")),
        );
        let weights = Difficulty::ALL.map(|d| (d, weight(&writer.balance.difficulties, &d)));
        let weights = BTreeMap::from(weights);
        let difficulties = deck(query.tasks, &weights, &mut rng(&(seed, "difficulties")));
        let mut balance = Balance::new(library, query, writer, &of_kind, seed);
        let mut slots = Vec::with_capacity(query.tasks);
        for (language, difficulty) in languages.into_iter().zip(difficulties) {
            let Some((keyword, files)) = balance.next(&of_kind) else {
                return Err(RunError::BadInput(
                    "recipe, query: no keyword is left that applies to the crawled files; crawl more \
                     files, or widen `query.categories`, `query.keywords` and `query.writer.balance`"
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
            tries: writer.tries,
            of_kind,
        })
    }

    /// The first of them alone.
    pub(super) fn first(mut self, slots: usize) -> Self {
        self.slots.truncate(slots);
        self
    }

    /// Tasks to be had.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Attempts at each.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// An attempt at a slot, from 0; `None` beyond the last of either.
    pub(super) fn at(&self, slot: usize, attempt: u32) -> Option<Idea<'_>> {
        let slot_of = self.slots.get(slot).filter(|_| attempt < self.tries)?;
        let files = self.files(slot_of, attempt);
        let ids: Vec<_> = files.iter().map(|file| &file.id).collect();
        let (language, difficulty) = (slot_of.language, slot_of.difficulty);
        let digest = Digest::of_json(&(&slot_of.keyword.name, ids, language, difficulty));
        Some(Idea {
            item: format!("writer#{slot}.{attempt}:{}", digest.short()),
            sample: u32::try_from(slot).ok()?.checked_mul(100)? + attempt,
            keyword: &slot_of.keyword,
            files,
            language,
            difficulty,
        })
    }

    fn files(&self, slot: &Slot, attempt: u32) -> Vec<&SourceFile> {
        let Some((kind, count, first)) = slot.files else {
            return Vec::new();
        };
        let Some(files) = self.of_kind.get(&kind) else {
            return Vec::new();
        };
        let first = first + attempt as usize * count;
        let places = (0..count).map(|n| (first + n) % files.len());
        places.filter_map(|place| files.get(place)).collect()
    }
}

fn weight<K: Ord>(weights: &BTreeMap<K, f64>, key: &K) -> f64 {
    weights.get(key).copied().unwrap_or(1.0)
}

/// Draws what is furthest behind its share.
struct Balance {
    categories: Shares<Category>,
    /// Of each category.
    keywords: BTreeMap<Category, Shares<String>>,
    /// Of each keyword; empty where it needs no file.
    kinds: BTreeMap<String, Vec<FileKind>>,
    of_kinds: Shares<FileKind>,
    dictionary: BTreeMap<String, Keyword>,
    /// Where the next file of a type is taken.
    places: BTreeMap<FileKind, usize>,
}

impl Balance {
    fn new(
        library: &Library,
        query: &Query,
        writer: &WriterChoice,
        of_kind: &BTreeMap<FileKind, Vec<SourceFile>>,
        seed: u64,
    ) -> Self {
        let weights = &writer.balance;
        let wanted = |keyword: &&Keyword| {
            let listed = query.keywords.is_empty() || query.keywords.contains(&keyword.name);
            listed && (query.categories.is_empty() || query.categories.contains(&keyword.category))
        };
        let usable =
            |kind: &FileKind| of_kind.contains_key(kind) && weight(&weights.types, kind) > 0.0;
        let mut balance = Self {
            categories: Shares::default(),
            keywords: BTreeMap::new(),
            kinds: BTreeMap::new(),
            of_kinds: Shares::default(),
            dictionary: BTreeMap::new(),
            places: BTreeMap::new(),
        };
        let mut keywords: Vec<_> = library.keywords().iter().filter(wanted).collect();
        keywords.shuffle(&mut rng(&(seed, "keywords")));
        for keyword in keywords {
            let kinds: Vec<_> = keyword.files.iter().copied().filter(usable).collect();
            let own = weight(&weights.keywords, &keyword.name);
            let of_category = weight(&weights.categories, &keyword.category);
            let needs_files = !keyword.files.is_empty();
            if own == 0.0 || of_category == 0.0 || (needs_files && kinds.is_empty()) {
                continue;
            }
            for kind in &kinds {
                balance.of_kinds.add(*kind, weight(&weights.types, kind));
            }
            let (name, category) = (keyword.name.clone(), keyword.category);
            balance.categories.add(category, of_category);
            let within = balance.keywords.entry(category).or_default();
            within.add(name.clone(), own);
            balance.kinds.insert(name.clone(), kinds);
            balance.dictionary.insert(name, keyword.clone());
        }
        balance
    }

    #[allow(clippy::type_complexity)]
    fn next(
        &mut self,
        of_kind: &BTreeMap<FileKind, Vec<SourceFile>>,
    ) -> Option<(Keyword, Option<(FileKind, usize, usize)>)> {
        let category = self.categories.take(|_| true)?;
        let name = self.keywords.get_mut(&category)?.take(|_| true)?;
        let keyword = self.dictionary.get(&name)?.clone();
        let kinds = self.kinds.get(&name)?;
        if kinds.is_empty() {
            return Some((keyword, None));
        }
        let kind = self.of_kinds.take(|kind| kinds.contains(kind))?;
        let there = of_kind.get(&kind)?.len();
        let count = if OF_TWO.contains(&&*name) {
            2.min(there)
        } else {
            1
        };
        let place = self.places.entry(kind).or_default();
        let first = *place;
        *place = (*place + count) % there;
        Some((keyword, Some((kind, count, first))))
    }
}

/// Things with weights, and how often each was taken.
struct Shares<T>(Vec<(T, f64, usize)>);

impl<T> Default for Shares<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone + PartialEq> Shares<T> {
    fn add(&mut self, what: T, weight: f64) {
        if self.0.iter().all(|(known, ..)| *known != what) {
            self.0.push((what, weight, 0));
        }
    }

    /// Of those allowed the one that is furthest behind its share; of equal ones the first.
    fn take(&mut self, allowed: impl Fn(&T) -> bool) -> Option<T> {
        let due = |(_, weight, taken): &(T, f64, usize)| (taken + 1) as f64 / weight;
        let open = self.0.iter_mut().filter(|(what, ..)| allowed(what));
        let next = open.min_by(|a, b| due(a).total_cmp(&due(b)))?;
        next.2 += 1;
        Some(next.0.clone())
    }
}

#[cfg(test)]
#[path = "idea_tests.rs"]
mod tests;
