//! Compares tables by content, independent of file format and the order of rows and columns.

use std::collections::HashSet;

use crate::text::{hash, normalized};

/// Minimum number of common rows for recognizing a table.
const MIN_COMMON_ROWS: usize = 5;
/// Maximum number of rows that are read.
const MAX_ROWS: usize = 1_000_000;

/// Maximum number of rows in a sketch.
const SKETCH_ROWS: usize = 128;

/// A sample of a table's rows as hashes, by which copies are recognized without its contents. Rows are sampled by their
/// hashes, so the samples of two tables have the same rows in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSketch {
    /// Hash of the column names.
    pub(super) columns: u64,
    /// Number of distinct rows in the table.
    pub(super) rows: u32,
    /// Rows whose hashes begin with so many zero bits are in the sample.
    pub(super) zero_bits: u32,
    /// The lower halves of the hashes in the sample, sorted and unique.
    pub(super) sample: Vec<u32>,
}

/// The column names and distinct rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    /// Hashes of the distinct rows, sorted.
    rows: Vec<u64>,
    /// Whether common rows are unlikely to be a coincidence: there are far more combinations of values than rows.
    distinctive: bool,
}

impl Table {
    /// Create a table. Numeric values are compared as numbers, other values as trimmed text.
    pub fn new(header: &[String], rows: impl IntoIterator<Item = Vec<Option<String>>>) -> Self {
        let mut order: Vec<usize> = (0..header.len()).collect();
        let name = |at: &usize| normalized(&header[*at]).trim().to_lowercase();
        order.sort_by_key(name);
        let mut hashes = Vec::new();
        let mut values: Vec<HashSet<u64>> = vec![HashSet::new(); header.len()];
        for row in rows.into_iter().take(MAX_ROWS) {
            let cells: Vec<String> = order
                .iter()
                .map(|at| canonical(row.get(*at).and_then(Option::as_deref)))
                .collect();
            for (seen, cell) in values.iter_mut().zip(&cells) {
                if seen.len() < MAX_ROWS / 10 {
                    seen.insert(hash(&[cell]));
                }
            }
            hashes.push(hash(&cells));
        }
        hashes.sort_unstable();
        hashes.dedup();
        let combinations = values.iter().map(|seen| seen.len().max(1) as f64);
        Self {
            distinctive: combinations.product::<f64>() >= 20.0 * hashes.len() as f64,
            columns: order.iter().map(name).collect(),
            rows: hashes,
        }
    }

    /// Names of the columns, sorted.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Number of distinct rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Hash of the column names.
    pub(super) fn columns_hash(&self) -> u64 {
        hash(&self.columns)
    }

    /// A sample of the table; `None` if the table is so small or so regular that equal rows would prove nothing.
    pub fn sketch(&self) -> Option<TableSketch> {
        let enough = self.rows.len() >= MIN_COMMON_ROWS && self.columns.len() > 1;
        if !(enough && self.distinctive) {
            return None;
        }
        let samples = (0..u64::BITS).map(|zero_bits| (zero_bits, self.sample(zero_bits)));
        let mut small = samples.filter(|(_, sample)| sample.len() <= SKETCH_ROWS);
        small.next().map(|(zero_bits, sample)| TableSketch {
            columns: self.columns_hash(),
            rows: self.rows.len() as u32,
            zero_bits,
            sample,
        })
    }

    fn sample(&self, zero_bits: u32) -> Vec<u32> {
        let rows = self.rows.iter();
        let rows = rows.filter(|row| row.leading_zeros() >= zero_bits);
        let mut sample: Vec<u32> = rows.map(|row| *row as u32).collect();
        sample.sort_unstable();
        sample.dedup();
        sample
    }

    /// Like [`Table::common`], estimated with the rows that are in the sample.
    pub(super) fn common_with_sketch(&self, other: &TableSketch) -> (usize, f64) {
        let own = self.sample(other.zero_bits);
        let common = own
            .iter()
            .filter(|row| other.sample.binary_search(row).is_ok());
        let (common, fewer) = (common.count(), own.len().min(other.sample.len()));
        (common, common as f64 / fewer.max(1) as f64)
    }

    /// Like [`Table::has_common_source`]. A small part of a large table is not recognized, because too few of its rows
    /// are in the sample.
    pub(super) fn has_common_source_with_sketch(&self, other: &TableSketch) -> bool {
        let (common, share) = self.common_with_sketch(other);
        self.columns_hash() == other.columns
            && share > 0.5
            && common >= MIN_COMMON_ROWS
            && self.distinctive
    }

    /// Number of distinct common rows, and their share of the smaller table.
    pub fn common(&self, other: &Self) -> (usize, f64) {
        let (fewer, more) = match self.rows.len() <= other.rows.len() {
            true => (&self.rows, &other.rows),
            false => (&other.rows, &self.rows),
        };
        let common = fewer.iter().filter(|row| more.binary_search(row).is_ok());
        let common = common.count();
        (common, common as f64 / fewer.len().max(1) as f64)
    }

    /// Whether one table was probably made from the other: they have the same columns, more than half of the rows in
    /// common, and the common rows are not a coincidence.
    pub fn has_common_source(&self, other: &Self) -> bool {
        let (common, share) = self.common(other);
        let enough = common >= MIN_COMMON_ROWS || common == self.rows.len().max(other.rows.len());
        self.columns == other.columns
            && share > 0.5
            && enough
            && self.distinctive
            && other.distinctive
    }
}

/// Normalize a value for comparison.
fn canonical(value: Option<&str>) -> String {
    let text = normalized(value.unwrap_or_default());
    let text = text.trim();
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => format!("{:e}", number + 0.0),
        _ if ["nan", "null", "none", "na", "n/a"].contains(&&*text.to_lowercase()) => String::new(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(header: &[&str], rows: &[&[&str]]) -> Table {
        let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
        let row = |row: &&[&str]| row.iter().map(|cell| Some((*cell).to_owned())).collect();
        Table::new(&header, rows.iter().map(row).collect::<Vec<_>>())
    }

    fn rows(from: usize, to: usize) -> Vec<Vec<String>> {
        let row = |n: usize| {
            vec![
                format!("name {n}"),
                format!("{}", n * 7 % 101),
                format!("{n}.50"),
            ]
        };
        (from..to).map(row).collect()
    }

    fn of(rows: &[Vec<String>]) -> Table {
        let header = ["name", "count", "price"].map(str::to_owned);
        let some = |row: &Vec<String>| row.iter().cloned().map(Some).collect();
        Table::new(
            &header,
            rows.iter().map(some).collect::<Vec<Vec<Option<String>>>>(),
        )
    }

    #[test]
    fn order_number_format_and_repeated_rows_do_not_matter() {
        let plain = of(&rows(0, 50));
        let mut reordered = rows(0, 50);
        reordered.reverse();
        reordered.extend(rows(10, 20));
        assert_eq!(of(&reordered), plain);
        let header = ["Price ", "name", "COUNT"].map(str::to_owned);
        let other: Vec<Vec<Option<String>>> = rows(0, 50)
            .into_iter()
            .map(|row| {
                let price = row[2].parse::<f64>().unwrap();
                vec![
                    Some(price.to_string()),
                    Some(format!(" {}", row[0])),
                    Some(format!("{}.0", row[1])),
                ]
            })
            .collect();
        assert_eq!(Table::new(&header, other), plain);
        let accented = table(&["größe"], &[&["Zoë"], &["1"]]);
        let decomposed = table(&["gro\u{308}ße"], &[&["Zoe\u{308}\u{200b}"], &["１"]]);
        assert_eq!(decomposed, accented);
    }

    #[test]
    fn a_sample_is_recognized_and_another_table_is_not() {
        let whole = of(&rows(0, 200));
        assert!(of(&rows(50, 80)).has_common_source(&whole));
        assert!(whole.has_common_source(&of(&rows(50, 300))));
        assert!(!of(&rows(200, 400)).has_common_source(&whole));
        assert!(
            !of(&rows(150, 300)).has_common_source(&whole),
            "a third is not enough"
        );
        assert!(
            !of(&rows(0, 3)).has_common_source(&whole),
            "three rows are too few"
        );
        let other = table(&["name", "count"], &[&["name 0", "0"]]);
        assert!(!other.has_common_source(&whole));
    }

    #[test]
    fn a_sketch_recognizes_copies_and_large_parts() {
        let small = of(&rows(0, 60)).sketch().unwrap();
        assert_eq!((small.zero_bits, small.sample.len()), (0, 60));
        assert!(of(&rows(20, 60)).has_common_source_with_sketch(&small));
        assert!(!of(&rows(60, 120)).has_common_source_with_sketch(&small));
        let large = of(&rows(0, 20_000)).sketch().unwrap();
        assert!((SKETCH_ROWS / 4..=SKETCH_ROWS).contains(&large.sample.len()));
        assert!(of(&rows(5_000, 20_000)).has_common_source_with_sketch(&large));
        assert!(of(&rows(0, 60_000)).has_common_source_with_sketch(&large));
        assert!(!of(&rows(20_000, 60_000)).has_common_source_with_sketch(&large));
        assert!(
            !of(&rows(15_000, 60_000)).has_common_source_with_sketch(&large),
            "a quarter is not enough"
        );
    }

    #[test]
    fn tables_that_prove_nothing_have_no_sketch() {
        assert!(of(&rows(0, 4)).sketch().is_none(), "too few rows");
        let numbers = (0..50).map(|n| vec![Some(n.to_string())]);
        let column = Table::new(&["n".to_owned()], numbers);
        assert!(column.sketch().is_none(), "rows of a single value");
    }

    #[test]
    fn coincidental_rows_are_not_evidence() {
        let all: Vec<Vec<String>> = (0..100)
            .map(|n| {
                vec![
                    format!("{}", n % 2),
                    format!("{}", n / 2 % 5),
                    format!("{}", n / 10),
                ]
            })
            .collect();
        // All one hundred possible rows.
        assert!(!of(&all).has_common_source(&of(&all)));
    }

    #[test]
    fn fuzz_tables() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let rows = text
                .lines()
                .map(|line| line.split(',').map(|c| Some(c.to_owned())).collect());
            let made = Table::new(&["a".into(), "b".into()], rows);
            let (common, share) = made.common(&made);
            assert_eq!(common, made.rows());
            assert!(share <= 1.0);
        });
    }
}
