//! What a check could take for the same table.

use std::cmp::Ordering;

use polars::prelude::{Column, DataFrame, DataType};

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
        let (one_columns, other_columns) = (by_name(one), by_name(other));
        let names = one_columns.iter().map(|column| column.name());
        if one.height() != other.height()
            || !names.eq(other_columns.iter().map(|column| column.name()))
        {
            return false;
        }
        let columns = one_columns.into_iter().zip(other_columns);
        let mut pairs = columns.map(|(a, b)| (cells(a), cells(b)));
        let equal = |(a, b): (&Cell<'_>, &Cell<'_>)| self.equal(*a, *b);
        if self.ordered {
            // One column after the other, so that a difference in the first one ends it.
            return pairs.all(|(a, b)| a.iter().zip(&b).all(equal));
        }
        let (one_columns, other_columns): (Vec<_>, Vec<_>) = pairs.unzip();
        let orders = [&one_columns, &other_columns].map(|columns| order(columns, one.height()));
        let [one_order, other_order] = orders;
        let mut rows = one_order.into_iter().zip(other_order);
        rows.all(|(a, b)| {
            let mut columns = one_columns.iter().zip(&other_columns);
            columns.all(|(one, other)| equal((&one[a], &other[b])))
        })
    }

    fn equal(&self, a: Cell<'_>, b: Cell<'_>) -> bool {
        match (a, b) {
            (Cell::Number(a), Cell::Number(b)) => {
                let allowed = self.tolerance * a.abs().max(b.abs());
                (a - b).abs() <= allowed.max(self.absolute)
            }
            (Cell::Text(a), Cell::Text(b)) if self.ignore_case => {
                a.to_lowercase() == b.to_lowercase()
            }
            _ => a == b,
        }
    }
}

/// A value as a check sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell<'a> {
    Missing,
    Number(f64),
    Text(&'a str),
    Truth(bool),
}

impl<'a> Cell<'a> {
    fn of_number(number: Option<f64>) -> Self {
        // JSON has no other numbers.
        let finite = number.filter(|number| number.is_finite());
        finite.map_or(Self::Missing, Self::Number)
    }

    fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            _ => f64::NAN,
        }
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

fn by_name(data: &DataFrame) -> Vec<&Column> {
    let mut columns: Vec<&Column> = data.columns().iter().collect();
    columns.sort_by(|a, b| a.name().cmp(b.name()));
    columns
}

fn cells(column: &Column) -> Vec<Cell<'_>> {
    let cells: Option<Vec<Cell<'_>>> = match column.dtype() {
        DataType::Float64 => {
            let numbers = column.f64().ok();
            numbers.map(|numbers| numbers.iter().map(Cell::of_number).collect())
        }
        DataType::Int64 => column.i64().ok().map(|numbers| {
            let numbers = numbers.iter().map(|number| number.map(|n| n as f64));
            numbers.map(Cell::of_number).collect()
        }),
        DataType::Boolean => column.bool().ok().map(|truths| {
            let truths = truths.iter();
            truths
                .map(|truth| truth.map_or(Cell::Missing, Cell::Truth))
                .collect()
        }),
        DataType::String => column.str().ok().map(|texts| {
            let texts = texts.iter();
            texts
                .map(|text| text.map_or(Cell::Missing, Cell::Text))
                .collect()
        }),
        _ => None,
    };
    cells.unwrap_or_else(|| vec![Cell::Missing; column.len()])
}

/// The rows of a table in an order that does not depend on the last digits of numbers: by their texts first.
fn order(columns: &[Vec<Cell<'_>>], height: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..height).collect();
    rows.sort_by(|a, b| {
        let pairs = columns.iter().map(|column| (column[*a], column[*b]));
        let texts = pairs.clone().map(|(a, b)| a.text().cmp(&b.text()));
        let numbers = pairs.map(|(a, b)| a.number().total_cmp(&b.number()));
        let mut orders = texts.chain(numbers);
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str], numbers: &[Option<f64>]) -> DataFrame {
        let columns = vec![
            Column::new("name".into(), names.to_vec()),
            Column::new("number".into(), numbers.to_vec()),
        ];
        DataFrame::new(names.len(), columns).unwrap()
    }

    #[test]
    fn rows_in_another_order_are_the_same_only_if_the_order_does_not_count() {
        let one = table(&["a", "a", "b"], &[Some(2.0), Some(1.0), None]);
        let other = table(&["b", "a", "a"], &[None, Some(1.0), Some(2.000_001)]);
        assert!(same(&one, &other, false));
        assert!(!same(&one, &other, true));
        assert!(same(&one, &one, true));
    }

    #[test]
    fn a_missing_value_is_no_zero_and_a_whole_number_is_a_float() {
        let one = table(&["a", "b"], &[Some(1.0), None]);
        let zero = table(&["a", "b"], &[Some(1.0), Some(0.0)]);
        let whole = |last: Option<i64>| {
            let names = Column::new("name".into(), vec!["a", "b"]);
            let numbers = Column::new("number".into(), vec![Some(1_i64), last]);
            DataFrame::new(2, vec![names, numbers]).unwrap()
        };
        for ordered in [true, false] {
            assert!(!same(&one, &zero, ordered));
            assert!(same(&one, &whole(None), ordered));
            assert!(same(&zero, &whole(Some(0)), ordered));
        }
    }

    #[test]
    fn columns_are_compared_by_their_names() {
        let one = table(&["a", "b"], &[Some(1.0), Some(2.0)]);
        let turned = one.select(["number", "name"]).unwrap();
        assert!(same(&one, &turned, true));
        let fewer = one.select(["name"]).unwrap();
        assert!(!same(&one, &fewer, true) && !same(&one, &one.head(Some(1)), false));
    }

    #[test]
    fn case_is_ignored_where_a_check_ignores_it() {
        let alike = |ignore_case| Alike {
            ordered: true,
            tolerance: TOLERANCE,
            absolute: 0.0,
            ignore_case,
        };
        let (one, other) = (table(&["Oslo"], &[None]), table(&["oslo"], &[None]));
        assert!(alike(true).same(&one, &other) && !alike(false).same(&one, &other));
    }
}
