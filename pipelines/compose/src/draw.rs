//! Draws arguments for an operation from the table that it would work on, so that the task is well defined.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polars::prelude::{Column, DataType};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::argument::{Argument, Arguments};
use crate::content::Content;
use crate::document::Document;
use crate::frame::{Class, Frame};
use crate::picture::Picture;
use crate::sound::Sound;

/// Categories of a grouping.
const CATEGORIES: std::ops::RangeInclusive<usize> = 2..=25;
/// How often a column that no step has used yet is preferred to others.
const PREFERENCE: f64 = 0.9;
/// Longest text that a query may quote, in characters.
const MAX_QUOTED: usize = 30;

/// Longest column name that the name of a new column repeats, in characters.
const MAX_STEM: usize = 12;
/// Fewest letters of a new name that does not repeat a column's.
const MIN_SHORT: usize = 3;

/// A table, and the random choices for one step.
pub(crate) struct Draw<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) rng: &'a mut ChaCha8Rng,
    /// Columns that earlier steps made and none has used. They are preferred: otherwise those steps count for nothing.
    unused: &'a [String],
}

impl<'a> Draw<'a> {
    pub(crate) fn new(frame: &'a Frame, rng: &'a mut ChaCha8Rng) -> Self {
        Self {
            frame,
            rng,
            unused: &[],
        }
    }

    pub(crate) fn preferring(mut self, unused: &'a [String]) -> Self {
        self.unused = unused;
        self
    }

    /// The text that the step would work on.
    pub(crate) fn text(&self) -> Option<Arc<str>> {
        match &self.frame.content {
            Content::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// As [`Draw::text`].
    pub(crate) fn document(&self) -> Option<Arc<Document>> {
        match &self.frame.content {
            Content::Document(document) => Some(document.clone()),
            _ => None,
        }
    }

    /// As [`Draw::text`].
    pub(crate) fn picture(&self) -> Option<Arc<Picture>> {
        match &self.frame.content {
            Content::Picture(picture) => Some(picture.clone()),
            _ => None,
        }
    }

    /// As [`Draw::text`].
    pub(crate) fn sound(&self) -> Option<Arc<Sound>> {
        match &self.frame.content {
            Content::Sound(sound) => Some(sound.clone()),
            _ => None,
        }
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.frame.data.column(name).ok()
    }

    /// The values of a numeric column that are not missing, ascending.
    pub(crate) fn numbers(&self, column: &str) -> Vec<f64> {
        self.column(column).map_or_else(Vec::new, Self::numbers_of)
    }

    /// As [`Draw::numbers`].
    pub(crate) fn numbers_of(column: &Column) -> Vec<f64> {
        let Ok(floats) = column.cast(&DataType::Float64) else {
            return Vec::new();
        };
        let Ok(floats) = floats.f64() else {
            return Vec::new();
        };
        let mut values: Vec<f64> = floats.iter().flatten().collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The values of a text column in file order.
    pub(crate) fn texts(&self, column: &str) -> Vec<Option<String>> {
        let texts = self.column(column).and_then(|c| c.str().ok());
        let texts = texts.into_iter().flat_map(|texts| texts.iter());
        texts.map(|text| text.map(str::to_owned)).collect()
    }

    pub(crate) fn nulls(&self, column: &str) -> usize {
        self.column(column).map_or(0, Column::null_count)
    }

    pub(crate) fn distinct(&self, column: &str) -> usize {
        let Some(column) = self.column(column) else {
            return 0;
        };
        let missing = usize::from(column.null_count() > 0);
        column.n_unique().map_or(0, |count| count - missing)
    }

    /// A column of a class for which a test holds.
    pub(crate) fn pick(
        &mut self,
        class: Class,
        fits: impl Fn(&Self, &str) -> bool,
    ) -> Option<String> {
        let mut names = self.frame.of_class(class);
        names.retain(|name| quotable(name));
        names.shuffle(self.rng);
        if self.rng.random_bool(PREFERENCE) {
            names.sort_by_key(|name| !self.unused.contains(name));
        }
        names.into_iter().find(|name| fits(self, name))
    }

    /// A numeric column with several values.
    pub(crate) fn number(&mut self) -> Option<String> {
        self.pick(Class::Number, |draw, name| draw.distinct(name) >= 5)
    }

    /// A numeric column without missing values.
    pub(crate) fn full_number(&mut self) -> Option<String> {
        self.pick(Class::Number, |draw, name| {
            draw.distinct(name) >= 5 && draw.nulls(name) == 0
        })
    }

    /// Another numeric column than this one.
    pub(crate) fn other_number(&mut self, column: &str) -> Option<String> {
        self.pick(Class::Number, |draw, name| {
            name != column && draw.distinct(name) >= 5
        })
    }

    /// A text column with few values, none of them missing.
    pub(crate) fn category(&mut self) -> Option<String> {
        self.pick(Class::Text, |draw, name| {
            CATEGORIES.contains(&draw.distinct(name))
                && draw.nulls(name) == 0
                && draw.frame.height() >= 2 * draw.distinct(name)
        })
    }

    /// A category and a numeric column of which each group has at least `least` values.
    pub(crate) fn grouped(&mut self, least: usize) -> Option<(String, String)> {
        let key = self.category()?;
        let value = self.pick(Class::Number, |draw, name| {
            draw.distinct(name) >= 5 && draw.smallest_group(&key, name) >= least
        })?;
        Some((key, value))
    }

    /// The number of values that are not missing in the smallest group.
    pub(crate) fn smallest_group(&self, key: &str, value: &str) -> usize {
        let Some(column) = self.column(value) else {
            return 0;
        };
        let missing = column.is_null();
        let mut counts = HashMap::new();
        for (key, missing) in self.texts(key).into_iter().zip(missing.iter()) {
            *counts.entry(key).or_insert(0) += usize::from(missing == Some(false));
        }
        counts.into_values().min().unwrap_or(0)
    }

    /// The number of different values in the group that has the fewest. Missing values do not count.
    pub(crate) fn fewest_in_group(&self, key: &str, value: &str) -> usize {
        let floats = self.column(value).map(|c| c.cast(&DataType::Float64));
        let Some(Ok(floats)) = floats else {
            return 0;
        };
        let Ok(floats) = floats.f64() else {
            return 0;
        };
        let mut groups: HashMap<Option<String>, HashSet<u64>> = HashMap::new();
        for (key, value) in self.texts(key).into_iter().zip(floats.iter()) {
            let values = groups.entry(key).or_default();
            values.extend(value.map(f64::to_bits));
        }
        groups.values().map(HashSet::len).min().unwrap_or(0)
    }

    /// A text column without missing values.
    pub(crate) fn full_text(&mut self) -> Option<String> {
        self.pick(Class::Text, |draw, name| {
            draw.distinct(name) >= 2 && draw.nulls(name) == 0
        })
    }

    /// A column of days without missing values.
    pub(crate) fn date(&mut self) -> Option<String> {
        self.pick(Class::Date, |draw, name| {
            draw.distinct(name) >= 5 && draw.nulls(name) == 0
        })
    }

    /// A round number between the values of a column, where about this share of them is smaller.
    pub(crate) fn threshold(&mut self, column: &str, share: f64) -> Option<f64> {
        let values = self.numbers(column);
        let at = ((values.len() as f64 * share) as usize).min(values.len().checked_sub(1)?);
        let round = round_near(
            values[at],
            values[at.saturating_sub(1)],
            values.last()? - values[0],
        );
        (round > values[0] && round < *values.last()?).then_some(round)
    }

    /// A share between these, for a threshold.
    pub(crate) fn share(&mut self, from: f64, to: f64) -> f64 {
        self.rng.random_range(from..to)
    }

    /// A value of a text column that a query can quote.
    pub(crate) fn value(&mut self, column: &str) -> Option<String> {
        let mut values = self.values(column);
        values.shuffle(self.rng);
        values.into_iter().next()
    }

    /// The distinct values of a text column that a query can quote, sorted.
    pub(crate) fn values(&self, column: &str) -> Vec<String> {
        let values: HashSet<String> = self.texts(column).into_iter().flatten().collect();
        let mut values: Vec<String> = values.into_iter().filter(|text| quotable(text)).collect();
        values.sort();
        values
    }

    /// Some, not all, of the values of a category.
    pub(crate) fn some_values(&mut self, column: &str) -> Option<Argument> {
        let mut values = self.values(column);
        let most = self.distinct(column).checked_sub(1)?.min(4);
        if values.len() < 3 || most < 2 {
            return None;
        }
        values.shuffle(self.rng);
        values.truncate(self.rng.random_range(2..=most));
        Some(Argument::Texts(values))
    }

    /// A whole number.
    pub(crate) fn count(&mut self, from: i64, to: i64) -> i64 {
        self.rng.random_range(from..=to)
    }

    /// A name for a new column: one of these patterns, with `*` for the column's name, that no column has. A name that is
    /// long or has spaces is not repeated: the new name would be easy to confuse with it.
    pub(crate) fn new_name(&mut self, patterns: &[&str], column: &str) -> Option<Argument> {
        let names = self.frame.data.get_column_names_owned();
        // SQLite takes names that differ in case only for one.
        let same = |one: &str, other: &str| one.to_lowercase() == other.to_lowercase();
        let is_taken = |name: &str| names.iter().any(|other| same(other, name));
        if column.chars().count() <= MAX_STEM && !column.contains(' ') {
            let name = patterns.choose(self.rng)?.replace('*', column);
            return (!is_taken(&name)).then_some(Argument::New(name));
        }
        let short = patterns.iter().map(|pattern| pattern.replace('*', ""));
        let short = short.map(|name| name.trim_matches('_').to_owned());
        let short: Vec<String> = short.filter(|name| name.len() >= MIN_SHORT).collect();
        let name = short.choose(self.rng)?;
        let numbered = (2..10).map(|number| format!("{name}_{number}"));
        let mut free = std::iter::once(name.clone()).chain(numbered);
        free.find(|name| !is_taken(name)).map(Argument::New)
    }

    /// Whether the `n`th value from one end differs from the next one, and at least one row stays out.
    pub(crate) fn clear_cut(&self, column: &str, n: usize, largest: bool) -> bool {
        let mut values = self.numbers(column);
        if largest {
            values.reverse();
        }
        n >= 1 && n < values.len() && values[n - 1] != values[n]
    }

    /// Whether all values of a column differ and none is missing.
    pub(crate) fn unique(&self, column: &str) -> bool {
        self.nulls(column) == 0 && self.distinct(column) == self.frame.height()
    }
}

/// Whether a query and code can quote a name or value without doubt. A stop at the end of an answer is not part of it.
pub(crate) fn quotable(text: &str) -> bool {
    !text.ends_with(['.', ',', ';', ':', '!', '?'])
        && !text.is_empty()
        && text.trim() == text
        && text.chars().count() <= MAX_QUOTED
        && !text.contains(|c: char| {
            c.is_control() || matches!(c, '"' | '\\' | '`' | '“' | '”' | '$' | '#')
        })
}

/// The number with the fewest digits near a value: not below the previous value, within a hundredth of the range.
fn round_near(value: f64, previous: f64, range: f64) -> f64 {
    let allowed = range / 100.0;
    let mut step = 10f64.powf(range.abs().max(f64::MIN_POSITIVE).log10().ceil());
    for _ in 0..8 {
        let rounded = (value / step).round() * step;
        // Repeat the division through text, so that 0.1 + 0.2 is 0.3.
        let rounded: f64 = format!("{rounded:.9}").parse().unwrap_or(rounded);
        if (rounded - value).abs() <= allowed && rounded >= previous {
            return rounded;
        }
        step /= 10.0;
    }
    value
}

/// The draw of an operation without arguments that fits everywhere.
pub(crate) fn always(_: &mut Draw<'_>) -> Option<Arguments> {
    Some(Arguments::default())
}

/// That of one that fits pictures in color.
pub(crate) fn only_rgb(draw: &mut Draw<'_>) -> Option<Arguments> {
    (!draw.picture()?.is_gray()).then(Arguments::default)
}

/// That of one that fits gray pictures.
pub(crate) fn only_gray(draw: &mut Draw<'_>) -> Option<Arguments> {
    draw.picture()?.is_gray().then(Arguments::default)
}

#[cfg(test)]
mod tests {
    use polars::prelude::DataFrame;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_new_name_repeats_short_names_only() {
        let names = ["cost", "share", "amount cost tasvik", "cost_per_weight"];
        let columns = names.map(|name| Column::new(name.into(), vec![1_i64, 2]));
        let frame = Frame::new(DataFrame::new(2, columns.into()).unwrap());
        let new = |pattern: &str, column: &str| {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let name = Draw::new(&frame, &mut rng).new_name(&[pattern, "*_2"], column);
            let first = Draw::new(&frame, &mut rng).new_name(&[pattern], column);
            assert_ne!(name, Some(Argument::New("2".into())));
            first
        };
        let named = |name: &str| Some(Argument::New(name.to_owned()));
        assert_eq!(new("*_rank", "cost"), named("cost_rank"));
        assert_eq!(new("*_rank", "amount cost tasvik"), named("rank"));
        assert_eq!(new("mean_*", "cost_per_weight"), named("mean"));
        assert_eq!(new("*_share", "cost_per_weight"), named("share_2"));
        assert_eq!(new("Share", "cost"), None);
    }
}
