//! Tasks that end with a fitted model. The checker never loads what a solver saved: a sandbox without the reference does,
//! and predicts rows whose answers only the checker has.

use polars::prelude::{Column, DataFrame, IdxCa, IdxSize};
use pybench_types::task::FileKind;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

use crate::alike::same;
use crate::frame::{Frame, same_everywhere};
use crate::graph::Graph;
use crate::inputs;
use crate::least_squares::floats;
use crate::operation::PREDICTORS;
use crate::prove::mutations;
use crate::rename;

/// The smallest share of the variance of the expected predictions that a right model explains.
pub(crate) const MIN_R2: f64 = 1.0 - 1e-9;
/// A wrong model leaves more than this share unexplained.
const MAX_UNEXPLAINED: f64 = 1e-7;
/// Rows that are predicted.
const ROWS: usize = 40;

/// A model as it is read from the result of its operation.
struct Model {
    intercept: f64,
    coefficients: Vec<f64>,
}

/// The terms of a model, as the rows of a result have them, as the JSON object that a query asks for.
pub(crate) fn terms(rows: Vec<Map<String, Value>>) -> Value {
    let (mut model, mut coefficients) = (Map::new(), Map::new());
    for mut row in rows {
        let value = row.remove("value").unwrap_or_default();
        match row.get("term").and_then(Value::as_str) {
            Some(name) => coefficients.insert(name.to_owned(), value),
            None => model.insert("intercept".to_owned(), value),
        };
    }
    model.insert("coefficients".to_owned(), Value::Object(coefficients));
    Value::Object(model)
}

/// A csv file with rows that no file has, made of the values of the predictors, and what the model of a graph predicts for
/// them; `None` if a graph with one changed step predicts nearly the same.
pub(crate) fn held_out(graph: &Graph, start: &Frame, rng: &mut ChaCha8Rng) -> Option<Vec<u8>> {
    let (ending, before) = graph.0.split_last()?;
    let known = Graph(before.to_vec()).evaluate(start).ok()?;
    let names = ending.arguments.names(PREDICTORS);
    let rows = mixed_rows(&known.data, names, rng)?;
    let predictors: Option<Vec<Vec<f64>>> = names.iter().map(|name| floats(&rows, name)).collect();
    let predictors = predictors?;
    let expected = Model::of(&graph.evaluate(start).ok()?)?.predict(&predictors)?;
    let is_noticed = |graph: &Graph| {
        let found = graph.evaluate(start).ok();
        let found = found.and_then(|found| Model::of(&found)?.predict(&predictors));
        // One that cannot predict is noticed.
        found.is_none_or(|found| unexplained(&found, &expected) > MAX_UNEXPLAINED)
    };
    let changed = mutations(graph, start, rng);
    if !changed.iter().all(|mutation| is_noticed(&mutation.graph)) {
        return None;
    }
    let mut columns = rows.columns().to_vec();
    let target = ending.arguments.name("column");
    columns.push(Column::new(target.into(), expected));
    written(&DataFrame::new(rows.height(), columns).ok()?)
}

/// As a csv file, if it reads back as the same table.
fn written(table: &DataFrame) -> Option<Vec<u8>> {
    let bytes = rename::csv(table, ',').into_bytes();
    let read = inputs::read(FileKind::Csv, &bytes)?;
    same(&read.data, table, true).then_some(bytes)
}

/// Rows in which each column has some of its values, in an order of its own, so that each of them counts.
fn mixed_rows(data: &DataFrame, names: &[String], rng: &mut ChaCha8Rng) -> Option<DataFrame> {
    let count = data.height().min(ROWS);
    let mut columns = Vec::with_capacity(names.len() + 1);
    for name in names {
        let mut places: Vec<IdxSize> = (0..IdxSize::try_from(data.height()).ok()?).collect();
        places.shuffle(rng);
        places.truncate(count);
        let places = IdxCa::from_vec("place".into(), places);
        columns.push(data.column(name).ok()?.take(&places).ok()?);
    }
    DataFrame::new(count, columns).ok()
}

/// The share of the variance of the expected values that the ones found do not explain.
fn unexplained(found: &[f64], expected: &[f64]) -> f64 {
    let mean = expected.iter().sum::<f64>() / expected.len() as f64;
    let spread: f64 = expected.iter().map(|x| (x - mean).powi(2)).sum();
    let pairs = found.iter().zip(expected);
    pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>() / spread
}

impl Model {
    /// That of the result of an operation, in which the intercept has no name.
    fn of(result: &Frame) -> Option<Self> {
        let terms = result.data.column("term").ok()?;
        let values = floats(&result.data, "value")?;
        let values: Vec<f64> = values.into_iter().map(same_everywhere).collect();
        Some(match terms.null_count() {
            0 => Self {
                intercept: 0.0,
                coefficients: values,
            },
            _ => {
                let (intercept, coefficients) = values.split_first()?;
                Self {
                    intercept: *intercept,
                    coefficients: coefficients.to_vec(),
                }
            }
        })
    }

    /// What it predicts, whatever the columns are called; `None` if it has another number of predictors.
    fn predict(&self, predictors: &[Vec<f64>]) -> Option<Vec<f64>> {
        if predictors.len() != self.coefficients.len() {
            return None;
        }
        let row = |at: usize| {
            let terms = self.coefficients.iter().zip(predictors);
            self.intercept + terms.map(|(b, values)| b * values[at]).sum::<f64>()
        };
        Some((0..predictors.first()?.len()).map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::argument::{Argument, Arguments};
    use crate::graph::Step;
    use crate::tests::related::related;

    fn start() -> Frame {
        Frame::new(related(60).select(["x", "z", "w", "y"]).unwrap())
    }

    fn graph(operation: &str, filter: f64) -> Graph {
        let name = |name: &str| Argument::Column(name.to_owned());
        let filter = Step {
            operation: "filter_above".into(),
            arguments: Arguments::new([("column", name("x")), ("value", Argument::Number(filter))]),
        };
        let model = Step {
            operation: operation.into(),
            arguments: Arguments::new([
                ("column", name("y")),
                (PREDICTORS, Argument::Columns(vec!["x".into(), "z".into()])),
            ]),
        };
        Graph(vec![filter, model])
    }

    #[test]
    fn a_model_is_checked_by_rows_that_it_was_not_fitted_to() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let bytes = held_out(&graph("linear_model_pkl", 9.0), &start(), &mut rng).unwrap();
        let table = inputs::read(FileKind::Csv, &bytes).unwrap().data;
        assert_eq!(table.height(), ROWS);
        let names = table.get_column_names_owned();
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        assert_eq!(names, ["x", "z", "y"]);
        let pairs = |data: &DataFrame| {
            let (x, z) = (floats(data, "x").unwrap(), floats(data, "z").unwrap());
            x.into_iter().zip(z).collect::<Vec<_>>()
        };
        let known = pairs(&start().data);
        let new = pairs(&table).into_iter().filter(|row| !known.contains(row));
        assert!(
            new.count() > ROWS / 2,
            "the rows of the file are given away"
        );
    }

    #[test]
    fn a_step_that_hardly_changes_the_model_gives_no_task() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        // It keeps all rows.
        let graph = graph("linear_model_pkl", 0.0);
        assert_eq!(held_out(&graph, &start(), &mut rng), None);
    }

    #[test]
    fn the_mistakes_of_a_model_are_its_intercept_its_target_and_its_predictors() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let graph = graph("origin_model_joblib", 9.0);
        let changed = mutations(&graph, &start(), &mut rng);
        let count = |what: &str| {
            let same = changed.iter().filter(|mutation| mutation.what == what);
            same.count()
        };
        assert_eq!(count("origin_model_joblib: linear_model_joblib"), 1);
        // Another one in place of each, and one fewer.
        assert_eq!(count("origin_model_joblib: another predictors"), 3);
        assert_eq!(count("origin_model_joblib: another column"), 3);
    }

    #[test]
    fn a_model_in_json_has_its_coefficients_by_name() {
        let result = graph("linear_model_json", 9.0).evaluate(&start()).unwrap();
        let found = terms(crate::frame::records(&result.data));
        assert_eq!(found.as_object().unwrap().len(), 2);
        let coefficient = |name: &str| found["coefficients"][name].as_f64().unwrap();
        assert!((coefficient("x") - 2.0).abs() < 0.2, "{found}");
        assert!((coefficient("z") + 4.0).abs() < 0.3, "{found}");
        let result = graph("origin_model_json", 9.0).evaluate(&start()).unwrap();
        let found = terms(crate::frame::records(&result.data));
        assert!(found.get("intercept").is_none(), "{found}");
    }
}
