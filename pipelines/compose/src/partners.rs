//! Finds crawled tables that share a key, so that a task can join them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use polars::prelude::{Column, DataType};
use pybench_types::task::{ColumnKind, SourceFile};

use crate::draw::quotable;

/// Tables that are compared: the first ones.
pub const MAX_TABLES: usize = 400;
/// Columns of a table that are compared.
const MAX_KEYS: usize = 6;
/// Different values of such a column.
const VALUES: std::ops::RangeInclusive<usize> = 4..=2_000;
/// Values that two keys have in common.
const MIN_COMMON: usize = 3;
/// Values that are compared in all, which takes less than a second however alike the tables are.
const MAX_COMPARED: usize = 100_000_000;
/// Share of the values of a key that the other one has, if the columns have one name.
const MIN_SHARE: f64 = 0.1;
/// As [`MIN_SHARE`], if they have different names.
const MIN_SHARE_BY_VALUE: f64 = 0.3;
/// Tables that are connected by keys. The rows of all tasks on them are in one split, so a larger group would leave
/// nothing to split.
const MAX_GROUP: usize = 3;

/// The columns by which a table can be joined to others.
#[derive(Clone, Debug, Default)]
pub struct TableKeys(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    name: String,
    lower_name: String,
    is_text: bool,
    /// Whether each value is in one row only.
    is_unique: bool,
    /// Hashes of the different values, ascending.
    values: Vec<u64>,
}

/// Another table that shares a key with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partner {
    /// Its place among the tables.
    pub at: usize,
    /// The key in the table.
    pub key: String,
    /// The key in the other one.
    pub other_key: String,
}

/// Two keys, and how much they have in common.
struct Match<'a> {
    keys: [&'a Key; 2],
    common: usize,
    /// The share of the key with fewer values that the other one has.
    share: f64,
}

impl TableKeys {
    /// The keys of a crawled file; none if it is no table.
    pub fn read(file: &SourceFile, bytes: &[u8]) -> Self {
        let Some((data, kinds)) = pybench_profile::frame(file.kind, bytes) else {
            return Self::default();
        };
        let columns = data.columns().iter().zip(kinds);
        let readable = columns.filter(|(_, kind)| *kind != ColumnKind::Other);
        let keys = readable.filter_map(|(column, _)| Key::of(column));
        Self(keys.take(MAX_KEYS).collect())
    }
}

impl Key {
    /// A column of texts or whole numbers without gaps; `None` if it only numbers the rows.
    fn of(column: &Column) -> Option<Self> {
        if column.null_count() > 0 || !quotable(column.name()) {
            return None;
        }
        let mut values: Vec<u64> = match column.dtype() {
            DataType::String => column.str().ok()?.iter().flatten().map(hash).collect(),
            DataType::Int64 => {
                let mut numbers: Vec<i64> = column.i64().ok()?.iter().flatten().collect();
                numbers.sort_unstable();
                numbers.dedup();
                if is_counter(&numbers) {
                    return None;
                }
                column.i64().ok()?.iter().flatten().map(hash).collect()
            }
            _ => return None,
        };
        let rows = values.len();
        values.sort_unstable();
        values.dedup();
        VALUES.contains(&values.len()).then(|| Self {
            name: column.name().to_string(),
            lower_name: column.name().to_lowercase(),
            is_text: column.dtype() == &DataType::String,
            is_unique: values.len() == rows,
            values,
        })
    }

    /// Whether two keys could mean the same: texts under any name, numbers under one name.
    fn is_comparable(&self, other: &Self) -> bool {
        self.is_text == other.is_text
            && (self.is_unique || other.is_unique)
            && (self.is_text || self.has_name_of(other))
    }

    fn has_name_of(&self, other: &Self) -> bool {
        self.lower_name == other.lower_name
    }

    /// The values that both have.
    fn common(&self, other: &Self) -> usize {
        let (mut at, mut common) = (0, 0);
        for value in &self.values {
            while other.values.get(at).is_some_and(|other| other < value) {
                at += 1;
            }
            common += usize::from(other.values.get(at) == Some(value));
        }
        common
    }
}

/// Whether numbers, ascending, count from zero or one, as those of rows do.
fn is_counter(numbers: &[i64]) -> bool {
    match (numbers.first().copied(), numbers.last().copied()) {
        (Some(first @ (0 | 1)), Some(last)) => last - first == numbers.len() as i64 - 1,
        _ => false,
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// For each table, the others that a task on it can join: those that share a key which is unique in one of the two, and
/// leaves some rows of the table without a partner. `may_meet` says of two places whether tasks may join these tables.
/// Tables that follow each other are compared first, and comparing ends after 100 million values.
pub fn partners(
    tables: &[TableKeys],
    may_meet: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<Partner>> {
    partners_within(tables, may_meet, MAX_COMPARED)
}

/// As [`partners`], comparing this many values at most.
fn partners_within(
    tables: &[TableKeys],
    may_meet: impl Fn(usize, usize) -> bool,
    max_compared: usize,
) -> Vec<Vec<Partner>> {
    let mut left = max_compared;
    let mut matches = Vec::new();
    for (at, other_at) in nearest_first(tables.len().min(MAX_TABLES)) {
        if !may_meet(at, other_at) {
            continue;
        }
        let pairs = comparable(&tables[at], &tables[other_at]);
        let Some(rest) = left.checked_sub(pairs.iter().map(effort).sum()) else {
            break;
        };
        left = rest;
        matches.extend(best_match(pairs).map(|found| (at, other_at, found)));
    }
    // Of equal ones, the first tables come first.
    matches.sort_by(|(at, other, a), (b_at, b_other, b)| {
        let places = (at, other).cmp(&(b_at, b_other));
        b.share.total_cmp(&a.share).then(places)
    });
    let mut groups = Groups::new(tables.len());
    let mut partners = vec![Vec::new(); tables.len()];
    for (at, other, found) in matches {
        if !groups.join(at, other) {
            continue;
        }
        let [here, there] = found.keys;
        let directions = [(at, other, here, there), (other, at, there, here)];
        for (at, other, key, other_key) in directions {
            if found.suits(key) {
                partners[at].push(Partner {
                    at: other,
                    key: key.name.clone(),
                    other_key: other_key.name.clone(),
                });
            }
        }
    }
    partners
}

/// The pairs of this many places, those of places next to each other first.
fn nearest_first(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..count).flat_map(move |apart| (apart..count).map(move |other| (other - apart, other)))
}

/// The keys of two tables that could mean the same.
fn comparable<'a>(one: &'a TableKeys, other: &'a TableKeys) -> Vec<[&'a Key; 2]> {
    let pairs = one
        .0
        .iter()
        .flat_map(|a| other.0.iter().map(move |b| [a, b]));
    pairs.filter(|[a, b]| a.is_comparable(b)).collect()
}

/// The values that are looked at when two keys are compared.
fn effort([a, b]: &[&Key; 2]) -> usize {
    a.values.len() + b.values.len()
}

/// The two keys that have most in common.
fn best_match<'a>(pairs: Vec<[&'a Key; 2]>) -> Option<Match<'a>> {
    let found = pairs.into_iter().map(Match::of);
    let usable = found.filter(|found| found.keys.iter().any(|key| found.suits(key)));
    usable.max_by(|a, b| a.share.total_cmp(&b.share))
}

impl<'a> Match<'a> {
    fn of(keys: [&'a Key; 2]) -> Self {
        let [a, b] = keys;
        let common = a.common(b);
        Self {
            keys,
            common,
            share: common as f64 / a.values.len().min(b.values.len()) as f64,
        }
    }

    /// Whether the table with this key can be joined to the other one: some of its values are there, and some are not.
    fn suits(&self, key: &Key) -> bool {
        let [a, b] = self.keys;
        let least = match a.has_name_of(b) {
            true => MIN_SHARE,
            false => MIN_SHARE_BY_VALUE,
        };
        let share = self.common as f64 / key.values.len() as f64;
        self.common >= MIN_COMMON && (least..1.0).contains(&share)
    }
}

/// Tables that are connected, each group under one number.
struct Groups {
    of: Vec<usize>,
    sizes: HashMap<usize, usize>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Self {
            of: (0..count).collect(),
            sizes: (0..count).map(|at| (at, 1)).collect(),
        }
    }

    /// Connects two tables; `false` if their group would be too large.
    fn join(&mut self, at: usize, other: usize) -> bool {
        let (one, two) = (self.of[at], self.of[other]);
        if one == two {
            return true;
        }
        let size = self.sizes[&one] + self.sizes[&two];
        if size > MAX_GROUP {
            return false;
        }
        for group in self.of.iter_mut().filter(|group| **group == two) {
            *group = one;
        }
        self.sizes.insert(one, size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(name: &str, values: &[&str]) -> Option<Key> {
        Key::of(&Column::new(name.into(), values.to_vec()))
    }

    fn numbers(name: &str, values: std::ops::Range<i64>) -> Option<Key> {
        Key::of(&Column::new(name.into(), values.collect::<Vec<_>>()))
    }

    fn table(key: Option<Key>) -> TableKeys {
        TableKeys(key.into_iter().collect())
    }

    const TOWNS: [&str; 6] = ["Oslo", "Riga", "Bern", "Turin", "Graz", "Lyon"];

    #[test]
    fn tables_are_joined_by_values_that_only_some_rows_share() {
        let often: Vec<&str> = TOWNS.iter().chain(&TOWNS).copied().collect();
        let tables = [
            table(texts("town", &often)),
            table(texts("Place", &["Oslo", "Riga", "Bern", "Turin", "Kyiv"])),
            // None of these is in another table.
            table(texts("town", &["Porto", "Gent", "Brno", "Vigo"])),
        ];
        let found = partners(&tables, |_, _| true);
        let partner = |at: usize, key: &str, other_key: &str| Partner {
            at,
            key: key.to_owned(),
            other_key: other_key.to_owned(),
        };
        assert_eq!(found[0], [partner(1, "town", "Place")]);
        assert_eq!(found[1], [partner(0, "Place", "town")]);
        assert!(found[2].is_empty());
        assert!(partners(&tables, |_, _| false).iter().all(Vec::is_empty));
    }

    #[test]
    fn a_table_without_a_row_left_over_joins_no_other() {
        let tables = [
            table(texts("town", &TOWNS[..4])),
            table(texts("town", &TOWNS)),
        ];
        let found = partners(&tables, |_, _| true);
        assert!(found[0].is_empty(), "each of its rows has a partner");
        assert_eq!(found[1].len(), 1);
        let same = [tables[1].clone(), tables[1].clone()];
        assert!(partners(&same, |_, _| true).iter().all(Vec::is_empty));
    }

    #[test]
    fn numbers_are_keys_under_one_name_unless_they_count_rows() {
        assert!(numbers("id", 1..60).is_none() && numbers("id", 0..60).is_none());
        let years = table(numbers("Year", 1990..2020));
        let same = [years.clone(), table(numbers("year", 2000..2030))];
        assert_eq!(partners(&same, |_, _| true)[0].len(), 1);
        let other = [years, table(numbers("price", 2000..2030))];
        assert!(partners(&other, |_, _| true)[0].is_empty());
    }

    #[test]
    fn a_key_that_repeats_in_both_tables_joins_nothing() {
        let often: Vec<&str> = TOWNS.iter().chain(&TOWNS).copied().collect();
        let repeated = ["Oslo", "Oslo", "Riga", "Bern", "Kyiv", "Gent"];
        let tables = [
            table(texts("town", &often)),
            table(texts("town", &repeated)),
        ];
        assert!(partners(&tables, |_, _| true).iter().all(Vec::is_empty));
    }

    #[test]
    fn comparing_ends_where_tables_would_take_too_long() {
        let year = |at: i64| table(numbers("year", 1950 + at..1990 + at));
        let tables: Vec<TableKeys> = (0..6).map(year).collect();
        // Each pair has 80 values.
        let found = partners_within(&tables, |_, _| true, 2 * 80 + 79);
        let compared: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(compared, [1, 2, 1, 0, 0, 0], "the first two pairs only");
        assert!(
            partners_within(&tables, |_, _| true, 79)
                .iter()
                .all(Vec::is_empty)
        );
    }

    #[test]
    fn places_next_to_each_other_come_first() {
        let pairs: Vec<(usize, usize)> = nearest_first(4).collect();
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)]);
        assert_eq!(nearest_first(0).count() + nearest_first(1).count(), 0);
    }

    #[test]
    fn few_tables_are_connected() {
        let year = |at: i64| table(numbers("year", 1950 + at..1990 + at));
        let tables: Vec<TableKeys> = (0..10).map(year).collect();
        let found = partners(&tables, |_, _| true);
        let most = found.iter().map(Vec::len).max();
        assert_eq!(most, Some(MAX_GROUP - 1), "{found:?}");
        assert!(found.iter().filter(|others| !others.is_empty()).count() >= 8);
    }
}
