//! Least squares with few predictors: the reference of tasks that end with a fitted model.

use polars::prelude::{DataFrame, DataType};

/// A column that depends so much on others that rounding errors decide its coefficient.
const SINGULAR: f64 = 1e-9;

/// The linear function of some columns that comes closest to another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fit {
    /// `None` for a function through the origin.
    pub intercept: Option<f64>,
    /// Of each predictor.
    pub coefficients: Vec<f64>,
    /// What each predictor contributes, in relation to the size of the target (without its mean if there is an intercept).
    pub weights: Vec<f64>,
    /// The share of the predictor that depends most on those before it which does not depend on them: 1 if none does.
    pub independence: f64,
    /// The share of the target that the function leaves unexplained, from 0 to 1.
    pub unexplained: f64,
}

/// The values of a column of numbers in the order of the rows; `None` if it has gaps.
pub(crate) fn floats(data: &DataFrame, name: &str) -> Option<Vec<f64>> {
    let column = data.column(name).ok()?;
    let column = column.cast(&DataType::Float64).ok()?;
    let values: Option<Vec<f64>> = column.f64().ok()?.iter().collect();
    values
}

/// Fits a function with one coefficient for each column of `predictors`; `None` if they do not determine it.
pub(crate) fn fit(predictors: &[Vec<f64>], target: &[f64], with_intercept: bool) -> Option<Fit> {
    let center = |values: &[f64]| match with_intercept {
        true => mean(values),
        false => 0.0,
    };
    let columns: Option<Vec<Scaled>> = predictors
        .iter()
        .map(|values| Scaled::new(values, center(values)))
        .collect();
    let (columns, target) = (columns?, Scaled::new(target, center(target))?);
    let factor = cholesky(&columns)?;
    let independence = (0..columns.len()).map(|at| factor[at][at].powi(2));
    let independence = independence.fold(1.0, f64::min);
    let along: Vec<f64> = columns.iter().map(|column| column.dot(&target)).collect();
    let weights = solved(&factor, &along);
    let explained: f64 = weights.iter().zip(&along).map(|(a, b)| a * b).sum();
    let pairs = weights.iter().zip(&columns);
    let coefficients: Vec<f64> = pairs
        .map(|(weight, column)| weight * target.size / column.size)
        .collect();
    let moved = coefficients.iter().zip(&columns);
    let moved: f64 = moved.map(|(b, column)| b * column.center).sum();
    Some(Fit {
        intercept: with_intercept.then_some(target.center - moved),
        coefficients,
        weights: weights.into_iter().map(f64::abs).collect(),
        independence,
        unexplained: 1.0 - explained,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A column around its center, with the length 1.
struct Scaled {
    values: Vec<f64>,
    center: f64,
    size: f64,
}

impl Scaled {
    /// `None` for a column that is its center.
    fn new(values: &[f64], center: f64) -> Option<Self> {
        let apart: Vec<f64> = values.iter().map(|x| x - center).collect();
        let size = apart.iter().map(|x| x * x).sum::<f64>().sqrt();
        (size.is_finite() && size > 0.0).then(|| Self {
            values: apart.into_iter().map(|x| x / size).collect(),
            center,
            size,
        })
    }

    fn dot(&self, other: &Self) -> f64 {
        let pairs = self.values.iter().zip(&other.values);
        pairs.map(|(a, b)| a * b).sum()
    }
}

/// The lower triangle L with L Lᵀ = the products of the columns; `None` if they are not independent.
fn cholesky(columns: &[Scaled]) -> Option<Vec<Vec<f64>>> {
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(columns.len());
    for (at, column) in columns.iter().enumerate() {
        let mut row: Vec<f64> = Vec::with_capacity(at + 1);
        for (before, other) in factor.iter().zip(columns) {
            let known: f64 = row.iter().zip(before).map(|(a, b)| a * b).sum();
            row.push((column.dot(other) - known) / before[row.len()]);
        }
        let rest = 1.0 - row.iter().map(|x| x * x).sum::<f64>();
        if rest < SINGULAR {
            return None;
        }
        row.push(rest.sqrt());
        factor.push(row);
    }
    Some(factor)
}

/// The x with L Lᵀ x = `right`.
fn solved(factor: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut x = right.to_vec();
    for (at, row) in factor.iter().enumerate() {
        let known: f64 = row[..at].iter().zip(&x).map(|(a, b)| a * b).sum();
        x[at] = (x[at] - known) / row[at];
    }
    for at in (0..x.len()).rev() {
        let later = at + 1..x.len();
        let known: f64 = later.map(|after| factor[after][at] * x[after]).sum();
        x[at] = (x[at] - known) / factor[at][at];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f64; 6] = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0];
    const Z: [f64; 6] = [4.0, -1.0, 2.0, 0.0, 7.0, 1.0];

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn a_linear_function_is_found_again() {
        let y: Vec<f64> = X
            .iter()
            .zip(&Z)
            .map(|(x, z)| 3.0 - 2.0 * x + 0.5 * z)
            .collect();
        let found = fit(&[X.to_vec(), Z.to_vec()], &y, true).unwrap();
        close(found.intercept.unwrap(), 3.0);
        close(found.coefficients[0], -2.0);
        close(found.coefficients[1], 0.5);
        close(found.unexplained, 0.0);
        assert!(found.weights[0] > found.weights[1]);
    }

    #[test]
    fn the_rest_is_orthogonal_to_the_predictors() {
        let y = [2.0, 9.0, 4.0, 4.0, 1.0, 6.0];
        for with_intercept in [true, false] {
            let found = fit(&[X.to_vec(), Z.to_vec()], &y, with_intercept).unwrap();
            assert_eq!(found.intercept.is_some(), with_intercept);
            let start = found.intercept.unwrap_or(0.0);
            let rest: Vec<f64> = (0..6)
                .map(|at| {
                    y[at] - start - found.coefficients[0] * X[at] - found.coefficients[1] * Z[at]
                })
                .collect();
            let along = |values: &[f64]| values.iter().zip(&rest).map(|(a, b)| a * b).sum::<f64>();
            close(along(&X), 0.0);
            close(along(&Z), 0.0);
            if with_intercept {
                close(rest.iter().sum(), 0.0);
            }
        }
    }

    #[test]
    fn dependent_predictors_have_no_coefficients() {
        let double: Vec<f64> = X.iter().map(|x| 2.0 * x + 1.0).collect();
        assert_eq!(fit(&[X.to_vec(), double.clone()], &Z, true), None);
        let found = fit(&[X.to_vec(), double], &Z, false).unwrap();
        assert!(found.independence < 0.1, "{}", found.independence);
        assert_eq!(fit(&[vec![7.0; 6]], &Z, true), None, "a constant");
    }
}
