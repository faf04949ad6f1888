//! Columns of numbers that depend on each other up to noise, for models.

use polars::prelude::{Column, DataFrame};

/// A whole number below a maximum that looks drawn at random.
pub(crate) fn noise(i: usize, maximum: usize) -> f64 {
    (i * i * 31 % maximum) as f64
}

/// A column with a value for each row.
pub(crate) fn number(name: &str, rows: usize, value: impl Fn(usize) -> f64) -> Column {
    Column::new(name.into(), (0..rows).map(value).collect::<Vec<f64>>())
}

/// `y` depends on `x` and `z`. `w` is noise, `twice` depends on `x` alone, `exact` is `y` without noise, and `far` is far from
/// zero.
pub(crate) fn related(rows: usize) -> DataFrame {
    let exact = |i: usize| 7.0 + 2.0 * i as f64 - noise(i, 97);
    let columns = vec![
        number("x", rows, |i| i as f64 + 0.5),
        number("z", rows, |i| noise(i, 97) / 4.0),
        number("w", rows, |i| noise(i, 89) / 4.0),
        number("twice", rows, |i| 2.0 * i as f64 + 9.0),
        number("exact", rows, exact),
        number("far", rows, |i| 1e5 + noise(i, 97)),
        number("y", rows, |i| exact(i) + noise(i, 13)),
    ];
    DataFrame::new(rows, columns).unwrap()
}
