//! The columns of a table that is read from a text or a document.

use polars::prelude::{Column, DataFrame};
use rand::seq::IndexedRandom;

use crate::argument::{Argument, Arguments};
use crate::content::Medium;
use crate::draw::Draw;
use crate::operation::{Operation, Role};

/// Names of the columns of a table that is read, each one of these.
pub(super) type Names = &'static [(&'static str, &'static [&'static str])];

pub(super) const NUMBER: (&str, &[&str]) = ("number", &["number", "no", "position", "index", "nr"]);
pub(super) const TEXT: (&str, &[&str]) = ("text", &["text", "content", "body", "raw"]);
pub(super) const WORDS: (&str, &[&str]) = ("words", &["words", "word_count", "n_words"]);
pub(super) const SIZE: (&str, &[&str]) = ("size", &["characters", "length", "chars", "size"]);
pub(super) const WORD: (&str, &[&str]) = ("word", &["word", "token", "term"]);
pub(super) const LETTERS: (&str, &[&str]) = ("letters", &["letters", "word_length", "n_letters"]);
pub(super) const COUNT: (&str, &[&str]) =
    ("count", &["count", "occurrences", "frequency", "times"]);
pub(super) const LINE: (&str, &[&str]) = ("line", &["line", "line_no", "row"]);
pub(super) const LETTER: (&str, &[&str]) = ("letter", &["letter", "initial", "first_letter"]);
pub(super) const LINES: (&str, &[&str]) = ("lines", &["lines", "n_lines", "line_count"]);
pub(super) const TITLE: (&str, &[&str]) = ("heading", &["title", "heading", "section"]);
pub(super) const LEVEL: (&str, &[&str]) = ("level", &["level", "depth"]);

/// Draws a name for each column.
pub(super) fn named(names: Names, draw: &mut Draw<'_>) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    for (key, choices) in names {
        let name = (*choices.choose(draw.rng)?).to_owned();
        arguments.0.insert((*key).to_owned(), Argument::New(name));
    }
    Some(arguments)
}

/// A table of columns of the same length.
pub(super) fn table(columns: Vec<Column>) -> Option<DataFrame> {
    DataFrame::new(columns.first().map_or(0, Column::len), columns).ok()
}

/// An operation that reads a text into columns which have one of these names each.
pub(super) fn read(
    name: impl Into<String>,
    names: Names,
    meaning: impl Fn(&Arguments, &str) -> Vec<Column> + Send + Sync + 'static,
) -> Operation {
    let draw = move |draw: &mut Draw<'_>| named(names, draw);
    Operation::read(Medium::Text, name, Role::Read, draw, move |a, content| {
        table(meaning(a, content.text()?))
    })
}

/// A column with the name of an argument.
pub(super) fn column<T>(a: &Arguments, key: &str, values: impl IntoIterator<Item = T>) -> Column
where
    Column: FromValues<T>,
{
    Column::from_values(a.name(key), values.into_iter().collect())
}

pub(super) trait FromValues<T>: Sized {
    fn from_values(name: &str, values: Vec<T>) -> Self;
}

impl FromValues<String> for Column {
    fn from_values(name: &str, values: Vec<String>) -> Self {
        Column::new(name.into(), values)
    }
}

impl FromValues<usize> for Column {
    fn from_values(name: &str, values: Vec<usize>) -> Self {
        let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
        Column::new(name.into(), values)
    }
}

impl FromValues<f64> for Column {
    fn from_values(name: &str, values: Vec<f64>) -> Self {
        Column::new(name.into(), values)
    }
}
