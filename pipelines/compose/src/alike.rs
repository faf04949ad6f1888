//! What a check could take for the same table.

use std::cmp::Ordering;

use polars::prelude::DataFrame;
use serde_json::Value;

use crate::frame::records;

/// Numbers that differ by less, in relation to their size, count as equal. Ten times what a check allows.
pub(crate) const TOLERANCE: f64 = 1e-5;
/// Smaller numbers differ by their difference in relation to this one.
pub(crate) const SMALLEST: f64 = 1e-9;

/// Whether a check could take one table for the other: the same columns, and the same values within the tolerance, in any
/// order of rows unless it counts.
pub(crate) fn same(one: &DataFrame, other: &DataFrame, ordered: bool) -> bool {
    let alike = Alike {
        ordered,
        tolerance: TOLERANCE,
        absolute: TOLERANCE * SMALLEST,
        ignore_case: false,
    };
    alike.same(one, other)
}

/// What a check takes for the same.
pub(crate) struct Alike {
    /// Whether the order of the rows counts.
    pub ordered: bool,
    /// Of numbers, relative.
    pub tolerance: f64,
    /// Of numbers near zero, absolute.
    pub absolute: f64,
    pub ignore_case: bool,
}

impl Alike {
    pub(crate) fn same(&self, one: &DataFrame, other: &DataFrame) -> bool {
        let names = |data: &DataFrame| {
            let mut names = data.get_column_names_owned();
            names.sort();
            names
        };
        if one.height() != other.height() || names(one) != names(other) {
            return false;
        }
        let pairs = self.rows(one).into_iter().zip(self.rows(other));
        let mut pairs = pairs.flat_map(|(a, b)| a.into_iter().zip(b));
        pairs.all(|(a, b)| self.equal(&a, &b))
    }

    /// The values of each row, by the names of their columns.
    fn rows(&self, data: &DataFrame) -> Vec<Vec<Value>> {
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(data.height());
        for mut record in records(data) {
            record.sort_keys();
            rows.push(record.into_values().collect());
        }
        if !self.ordered {
            rows.sort_by(|a, b| compare(a, b));
        }
        rows
    }

    fn equal(&self, a: &Value, b: &Value) -> bool {
        match (a.as_f64(), b.as_f64(), a.as_str(), b.as_str()) {
            (Some(a), Some(b), ..) => {
                let allowed = self.tolerance * a.abs().max(b.abs());
                (a - b).abs() <= allowed.max(self.absolute)
            }
            (.., Some(a), Some(b)) if self.ignore_case => a.to_lowercase() == b.to_lowercase(),
            _ => a == b,
        }
    }
}

/// An order of rows that does not depend on the last digits of numbers: texts first.
fn compare(a: &[Value], b: &[Value]) -> Ordering {
    let texts = a.iter().zip(b).map(|(a, b)| a.as_str().cmp(&b.as_str()));
    let numbers = a.iter().zip(b).map(|(a, b)| {
        let (a, b) = (
            a.as_f64().unwrap_or(f64::NAN),
            b.as_f64().unwrap_or(f64::NAN),
        );
        a.total_cmp(&b)
    });
    texts
        .chain(numbers)
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}
