//! Tables by what is in them, whatever the order of rows and columns and whatever the file format.

use std::collections::HashSet;

use crate::text::hash;

/// Different rows from which on a table can be recognised.
const FEW: usize = 5;
/// Most rows looked at.
const MOST: usize = 1_000_000;

/// Columns and different rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    /// Sorted.
    rows: Vec<u64>,
    /// Whether rows of other tables with these columns would be others: there are far more
    /// combinations of its values than rows.
    telling: bool,
}

impl Table {
    /// A table with that header. Values are compared as numbers where they are, otherwise as texts
    /// without white space around them.
    pub fn new(header: &[String], rows: impl IntoIterator<Item = Vec<Option<String>>>) -> Self {
        let mut order: Vec<usize> = (0..header.len()).collect();
        let name = |at: &usize| header[*at].trim().to_lowercase();
        order.sort_by_key(name);
        let mut hashes = Vec::new();
        let mut values: Vec<HashSet<u64>> = vec![HashSet::new(); header.len()];
        for row in rows.into_iter().take(MOST) {
            let cells: Vec<String> = order
                .iter()
                .map(|at| canonical(row.get(*at).and_then(Option::as_deref)))
                .collect();
            for (seen, cell) in values.iter_mut().zip(&cells) {
                if seen.len() < MOST / 10 {
                    seen.insert(hash(&[cell]));
                }
            }
            hashes.push(hash(&cells));
        }
        hashes.sort_unstable();
        hashes.dedup();
        let combinations = values.iter().map(|seen| seen.len().max(1) as f64);
        Self {
            telling: combinations.product::<f64>() >= 20.0 * hashes.len() as f64,
            columns: order.iter().map(name).collect(),
            rows: hashes,
        }
    }

    /// Names of the columns, sorted.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Different rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Different rows that both have, and their share of the table with fewer.
    pub fn common(&self, other: &Self) -> (usize, f64) {
        let (fewer, more) = match self.rows.len() <= other.rows.len() {
            true => (&self.rows, &other.rows),
            false => (&other.rows, &self.rows),
        };
        let common = fewer.iter().filter(|row| more.binary_search(row).is_ok());
        let common = common.count();
        (common, common as f64 / fewer.len().max(1) as f64)
    }

    /// Whether rows of one come from the other: the same columns, more than half of the rows, and
    /// rows that do not come about by chance.
    pub fn is_taken_from(&self, other: &Self) -> bool {
        let (common, share) = self.common(other);
        let enough = common >= FEW || common == self.rows.len().max(other.rows.len());
        self.columns == other.columns && share > 0.5 && enough && self.telling && other.telling
    }
}

/// A value as it is compared.
fn canonical(value: Option<&str>) -> String {
    let text = value.unwrap_or_default().trim();
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
    fn order_form_and_repetition_are_no_difference() {
        let plain = of(&rows(0, 50));
        let mut turned = rows(0, 50);
        turned.reverse();
        turned.extend(rows(10, 20));
        assert_eq!(of(&turned), plain);
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
    }

    #[test]
    fn a_sample_is_recognised_and_another_table_is_not() {
        let whole = of(&rows(0, 200));
        assert!(of(&rows(50, 80)).is_taken_from(&whole));
        assert!(whole.is_taken_from(&of(&rows(50, 300))));
        assert!(!of(&rows(200, 400)).is_taken_from(&whole));
        assert!(
            !of(&rows(150, 300)).is_taken_from(&whole),
            "a third is not enough"
        );
        assert!(
            !of(&rows(0, 3)).is_taken_from(&whole),
            "three rows say little"
        );
        let other = table(&["name", "count"], &[&["name 0", "0"]]);
        assert!(!other.is_taken_from(&whole));
    }

    #[test]
    fn rows_that_come_about_by_chance_say_nothing() {
        let all: Vec<Vec<String>> = (0..100)
            .map(|n| {
                vec![
                    format!("{}", n % 2),
                    format!("{}", n / 2 % 5),
                    format!("{}", n / 10),
                ]
            })
            .collect();
        // A hundred rows of a hundred possible ones.
        assert!(!of(&all).is_taken_from(&of(&all)));
    }

    #[test]
    fn fuzz_any_cells_make_a_table() {
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
