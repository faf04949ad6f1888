//! Choosing values for the slots of a template, by a seed and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use pybench::task::SourceFile;
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::fit;
use super::template::{Slot, Template};

/// The slot that two-file templates share.
const COMMON: &str = "common";

/// Values by slot name.
pub(crate) type Slots = BTreeMap<String, Value>;

/// Values for every slot, or `None` where the files offer none. The files fit their inputs.
pub(crate) fn draw(template: &Template, files: &[&SourceFile], rng: &mut ChaCha8Rng) -> Option<Slots> {
    let mut candidates = column_candidates(template, files)?;
    for (_, names) in &mut candidates {
        names.shuffle(rng);
    }
    let mut chosen = BTreeMap::new();
    // The slot with the fewest candidates first keeps the search short.
    candidates.sort_by_key(|(_, names)| names.len());
    if !assign(&candidates, &mut chosen) {
        return None;
    }
    let mut slots: Slots = chosen.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    for (name, slot) in &template.slots {
        if let Some(value) = draw_value(slot.get_ref(), rng) {
            slots.insert(name.clone(), value);
        }
    }
    Some(slots)
}

type Candidates<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// For every column slot the columns that fit it; `None` where a slot has none.
fn column_candidates<'a>(template: &'a Template, files: &[&'a SourceFile]) -> Option<Candidates<'a>> {
    let mut candidates = Candidates::new();
    for (name, slot) in &template.slots {
        let slot = slot.get_ref();
        if slot.column.is_some() && name != COMMON {
            candidates.push((name, fitting(files.get(slot.input)?, slot)?));
        }
    }
    let second = template.inputs.iter().position(|i| i.same_columns_as.is_some());
    if let Some(second) = second {
        let free = Slot::default();
        let slot = template.slots.get(COMMON).map_or(&free, |s| s.get_ref());
        let other: BTreeSet<_> = fitting(files.get(second)?, &free)?.into_iter().collect();
        let mut shared = fitting(files.first()?, slot)?;
        shared.retain(|name| other.contains(name));
        candidates.push((COMMON, shared));
    }
    candidates.iter().all(|(_, names)| !names.is_empty()).then_some(candidates)
}

fn fitting<'a>(file: &'a SourceFile, slot: &Slot) -> Option<Vec<&'a str>> {
    let columns = fit::usable_columns(fit::table(file)?);
    let fitting = columns.into_iter().filter(|column| fit::column_fits(column, slot));
    Some(fitting.map(|column| column.name.as_str()).collect())
}

/// Gives every slot a column of its own, trying candidates in their order.
fn assign<'a>(candidates: &[(&'a str, Vec<&'a str>)], chosen: &mut BTreeMap<&'a str, &'a str>) -> bool {
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

/// The value of a slot that is no column.
fn draw_value(slot: &Slot, rng: &mut ChaCha8Rng) -> Option<Value> {
    if let Some([low, high]) = slot.integer {
        return Some(rng.random_range(low..=high).into());
    }
    if let Some(choices) = &slot.choice {
        return serde_json::to_value(choices.choose(rng)?).ok();
    }
    let letters = slot.words?;
    let word: String = (0..letters).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect();
    Some(word.into())
}
