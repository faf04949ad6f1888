//! Answers that are read off a file without solving the task. A task that one of them solves is not made.

use std::collections::BTreeMap;

use pybench_types::task::Task;

use crate::argument::Argument;
use crate::draw::Draw;
use crate::frame::{Class, Frame};
use crate::graph::Step;
use crate::inputs;
use crate::operation::Role;
use crate::plan::{Plan, PlanError};

/// Numbers that one answers without looking.
pub(crate) const GUESSED: [f64; 6] = [0.0, 1.0, 2.0, 10.0, 50.0, 100.0];
/// The color that one answers without looking; the other one, black, is `000000`, which a check takes for 0.
const WHITE: &str = "ffffff";
/// A name that is asked for is one of so many, at least.
const MIN_NAMES: usize = 4;

/// Guesses at the answer of a task, each with what it is; `bytes` are those of the task's files, in their order.
///
/// # Errors
/// The task was not composed.
pub fn guesses(task: &Task, bytes: &[Vec<u8>]) -> Result<Vec<(&'static str, String)>, PlanError> {
    let graph = Plan::of(task)?.graph;
    let Some(start) = inputs::start(&task.files, bytes) else {
        return Ok(Vec::new());
    };
    let rows = heights(&start).into_iter();
    let rows = rows.map(|rows| ("the number of rows", rows.to_string()));
    let asked = graph.ending().and_then(asked_column);
    let values = asked.map_or_else(Vec::new, |name| obvious_values(&start, name));
    Ok(rows.chain(values).collect())
}

/// Whether the answer of a chain is one of the guesses, or one of few names. `before` is what its last step works on.
pub(crate) fn is_guessable(ending: &Step, start: &Frame, before: &Frame, result: &Frame) -> bool {
    let (Ok(operation), Ok(answer)) = (ending.operation(), result.data.column("answer")) else {
        return false;
    };
    if operation.role != Role::Answer || operation.is_list() || operation.is_several_numbers() {
        return false;
    }
    match result.class("answer") {
        Some(Class::Number) => {
            let numbers = Draw::numbers_of(answer);
            let mut rows = heights(start).into_iter();
            rows.any(|rows| numbers.contains(&(rows as f64)))
        }
        Some(Class::Text | Class::Date) => {
            let texts = answer.str().ok();
            let text = texts.and_then(|texts| texts.iter().flatten().next());
            let asked = asked_column(ending);
            asked.is_some_and(|name| has_few_names(before, name))
                || text.is_some_and(|text| is_obvious(text, start, asked))
        }
        Some(Class::Boolean) | None => false,
    }
}

/// Whether a text is answered without looking, or is an obvious value of the column that is asked for.
fn is_obvious(text: &str, start: &Frame, asked: Option<&str>) -> bool {
    // The check of an answer ignores case.
    let text = text.to_lowercase();
    let values = asked.map_or_else(Vec::new, |name| obvious_values(start, name));
    text == WHITE
        || text.parse().is_ok_and(|number| GUESSED.contains(&number))
        || values.iter().any(|(_, value)| value.to_lowercase() == text)
}

/// The rows of each table of the files.
fn heights(start: &Frame) -> Vec<usize> {
    let others = start.others.iter().map(|other| other.frame.height());
    let all = std::iter::once(start.height()).chain(others);
    all.filter(|rows| *rows > 0).collect()
}

/// The column whose value is asked for.
fn asked_column(ending: &Step) -> Option<&str> {
    let mut names = ["key", "name", "column"].into_iter();
    names.find_map(|name| match ending.arguments.0.get(name) {
        Some(Argument::Column(column)) => Some(column.as_str()),
        _ => None,
    })
}

fn has_few_names(frame: &Frame, name: &str) -> bool {
    let column = frame.data.column(name);
    column.is_ok_and(|column| column.n_unique().is_ok_and(|count| count < MIN_NAMES))
}

/// The first and the most frequent value of a column of texts, if the file has it.
fn obvious_values(start: &Frame, name: &str) -> Vec<(&'static str, String)> {
    let Some(texts) = start.data.column(name).ok().and_then(|c| c.str().ok()) else {
        return Vec::new();
    };
    let texts: Vec<&str> = texts.iter().flatten().collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for text in texts.iter().copied() {
        *counts.entry(text).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let frequent = counts.iter();
    let frequent = frequent.filter(|(_, count)| most > 1 && **count == most);
    let frequent = frequent.map(|(text, _)| ("the most frequent value", (*text).to_owned()));
    let first = texts.first();
    let first = first.map(|text| ("the first value", (*text).to_owned()));
    first.into_iter().chain(frequent).collect()
}

#[cfg(test)]
mod tests {
    use polars::prelude::{Column, DataFrame};

    use super::*;
    use crate::argument::Arguments;

    fn frame(name: &str, values: &[&str]) -> Frame {
        let columns = vec![Column::new(name.into(), values.to_vec())];
        Frame::new(DataFrame::new(values.len(), columns).unwrap())
    }

    fn step(operation: &str, arguments: Arguments) -> Step {
        Step {
            operation: operation.to_owned(),
            arguments,
        }
    }

    #[test]
    fn the_first_the_most_frequent_and_one_of_few_names_are_guessed() {
        let key = Argument::Column("city".to_owned());
        let ending = step("answer_most_frequent", Arguments::new([("key", key)]));
        let start = frame("city", &["Bern", "Oslo", "Oslo", "Riga", "Turin"]);
        let few = frame("city", &["Riga", "Turin", "Riga"]);
        let guessed = |before: &Frame, answer: &str| {
            is_guessable(&ending, &start, before, &frame("answer", &[answer]))
        };
        assert!(guessed(&start, "Bern"));
        assert!(guessed(&start, "Oslo"));
        assert!(!guessed(&start, "Riga"));
        assert!(guessed(&few, "Riga"));
    }

    #[test]
    fn black_white_and_round_numbers_as_texts_are_guessed() {
        let ending = step("answer_common_color", Arguments::default());
        let start = frame("color", &[]);
        let guessed =
            |answer: &str| is_guessable(&ending, &start, &start, &frame("answer", &[answer]));
        assert!(guessed("000000"));
        assert!(guessed("ffffff"));
        assert!(guessed("10"));
        assert!(!guessed("00000a"));
        assert!(!guessed("17"));
    }

    #[test]
    fn the_number_of_rows_is_guessed() {
        let ending = step("answer_rows", Arguments::default());
        let start = frame("city", &["Bern", "Oslo", "Riga"]);
        let guessed = |answer: i64| {
            let columns = vec![Column::new("answer".into(), vec![answer])];
            let result = Frame::new(DataFrame::new(1, columns).unwrap());
            is_guessable(&ending, &start, &start, &result)
        };
        assert!(guessed(3));
        assert!(!guessed(7));
    }
}
