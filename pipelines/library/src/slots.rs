//! Chooses input files and slot values for a template. The choice depends only on the seed.

use std::collections::{BTreeMap, BTreeSet};

use pybench_run::{ContentStore, RunError};
use pybench_types::task::SourceFile;
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::fit;
use super::split_file::split_file;
use super::template::{Slot, Template};

/// Name of the slot for a column that both files share.
const COMMON: &str = "common";

/// Values by slot name.
pub(crate) type Slots = BTreeMap<String, Value>;

/// Values for every slot, or `None` if the files have no fitting columns. The files must fit their inputs.
fn draw(template: &Template, files: &[&SourceFile], rng: &mut ChaCha8Rng) -> Option<Slots> {
    let mut candidates = column_candidates(template, files)?;
    for (_, names) in &mut candidates {
        names.shuffle(rng);
    }
    let mut chosen = BTreeMap::new();
    // Assigning the slot with the fewest candidates first keeps the search short.
    candidates.sort_by_key(|(_, names)| names.len());
    if !assign(&candidates, &mut chosen) {
        return None;
    }
    let mut slots: Slots = chosen
        .into_iter()
        .map(|(k, v)| (k.into(), v.into()))
        .collect();
    for (name, slot) in &template.slots {
        if let Some(value) = draw_value(slot.get_ref(), rng) {
            slots.insert(name.clone(), value);
        }
    }
    Some(slots)
}

type Candidates<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// The fitting columns of every column slot; `None` if a slot has none.
fn column_candidates<'a>(
    template: &'a Template,
    files: &[&'a SourceFile],
) -> Option<Candidates<'a>> {
    let mut candidates = Candidates::new();
    for (name, slot) in &template.slots {
        let slot = slot.get_ref();
        if slot.column.is_some() && name != COMMON {
            candidates.push((name, fitting(files.get(slot.input)?, slot)?));
        }
    }
    let second = template
        .inputs
        .iter()
        .position(|i| i.same_columns_as.is_some());
    if let Some(second) = second {
        let free = Slot::default();
        let slot = template.slots.get(COMMON).map_or(&free, |s| s.get_ref());
        let other: BTreeSet<_> = fitting(files.get(second)?, &free)?.into_iter().collect();
        let mut shared = fitting(files.first()?, slot)?;
        shared.retain(|name| other.contains(name));
        candidates.push((COMMON, shared));
    }
    candidates
        .iter()
        .all(|(_, names)| !names.is_empty())
        .then_some(candidates)
}

fn fitting<'a>(file: &'a SourceFile, slot: &Slot) -> Option<Vec<&'a str>> {
    let table = fit::table(file)?;
    let fitting = fit::usable_columns(table)
        .into_iter()
        .filter(|column| fit::column_fits(table, column, slot));
    Some(fitting.map(|column| column.name.as_str()).collect())
}

/// Assigns a distinct column to every slot by backtracking, with candidates in their order.
fn assign<'a>(
    candidates: &[(&'a str, Vec<&'a str>)],
    chosen: &mut BTreeMap<&'a str, &'a str>,
) -> bool {
    let Some(((slot, names), rest)) = candidates.split_first() else {
        return true;
    };
    for name in names {
        if chosen.values().any(|taken| taken == name) {
            continue;
        }
        chosen.insert(slot, name);
        if assign(rest, chosen) {
            return true;
        }
        chosen.remove(slot);
    }
    false
}

/// The value of a slot that is not a column slot.
fn draw_value(slot: &Slot, rng: &mut ChaCha8Rng) -> Option<Value> {
    if let Some([low, high]) = slot.integer {
        return Some(rng.random_range(low..=high).into());
    }
    if let Some(choices) = &slot.choice {
        return serde_json::to_value(choices.choose(rng)?).ok();
    }
    let letters = slot.words?;
    let word: String = (0..letters)
        .map(|_| char::from(rng.random_range(b'a'..=b'z')))
        .collect();
    Some(word.into())
}

impl Template {
    /// Chooses values for every slot; `None` if the files have no fitting columns.
    pub fn draw(
        &self,
        files: &[&SourceFile],
        rng: &mut ChaCha8Rng,
    ) -> Option<BTreeMap<String, Value>> {
        draw(self, files, rng)
    }

    /// Combinations of files (indices, one per input) that this template can use, at most `max_combinations`, in
    /// a seeded order. A template without inputs has one empty combination. The store is read only if rows
    /// must be split.
    pub fn combinations(
        &self,
        files: &[SourceFile],
        max_combinations: usize,
        store: &ContentStore,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<Vec<usize>>, RunError> {
        let mut partial = vec![Vec::new()];
        for index in 0..self.inputs.len() {
            let fits = |i: &usize| fit::file_fits(&files[*i], self, index);
            let mut fitting: Vec<usize> = (0..files.len()).filter(fits).collect();
            fitting.shuffle(rng);
            partial = extend(&partial, &fitting, files, max_combinations);
        }
        partial.shuffle(rng);
        let mut usable = Vec::new();
        for combination in partial {
            let chosen: Vec<_> = combination.iter().map(|i| &files[*i]).collect();
            if draw(self, &chosen, rng).is_some() && self.can_split(&chosen, store)? {
                usable.push(combination);
            }
        }
        Ok(usable)
    }

    /// Whether the rows of every input with a `split` rule can be split.
    fn can_split(&self, files: &[&SourceFile], store: &ContentStore) -> Result<bool, RunError> {
        for (input, file) in self.inputs.iter().zip(files) {
            if let Some(rule) = &input.split
                && split_file(file, rule, 0, store)?.is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Extends every combination by every file with different content and a different name. The order alternates
/// between the combinations, so that the limit cuts all of them evenly.
fn extend(
    partial: &[Vec<usize>],
    fitting: &[usize],
    files: &[SourceFile],
    max_combinations: usize,
) -> Vec<Vec<usize>> {
    let mut extended = Vec::new();
    for offset in 0..fitting.len() {
        for (i, combination) in partial.iter().enumerate() {
            let next = fitting[(offset + i) % fitting.len()];
            let other = |i: &usize| {
                files[*i].id != files[next].id
                    && files[*i].name.to_lowercase() != files[next].name.to_lowercase()
            };
            if combination.iter().all(other) {
                extended.push([combination.as_slice(), &[next]].concat());
            }
            if extended.len() >= max_combinations {
                return extended;
            }
        }
    }
    extended
}
