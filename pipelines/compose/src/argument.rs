//! Arguments of an operation, and how a text says them.

use std::collections::BTreeMap;

use polars::prelude::{Expr, col};
use serde::{Deserialize, Serialize};

/// One argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// A column of the table.
    Column(String),
    /// Several columns of the table.
    Columns(Vec<String>),
    /// The name of a column that the operation adds.
    New(String),
    Number(f64),
    /// A whole number that counts something: rows, digits, places.
    Count(i64),
    /// A value of a text column, or a part of one.
    Text(String),
    Texts(Vec<String>),
    /// A gray level, or red, green and blue.
    Color(Vec<u8>),
    /// The path of another file of the task, such as `./data/plants.csv`.
    File(String),
}

/// The arguments of one step, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arguments(pub BTreeMap<String, Argument>);

impl Arguments {
    pub fn new<const N: usize>(arguments: [(&str, Argument); N]) -> Self {
        let named = arguments.map(|(name, argument)| (name.to_owned(), argument));
        Self(named.into_iter().collect())
    }

    /// The name of a column, new or not. An argument that is not there has the name "", which no table has.
    pub fn name(&self, key: &str) -> &str {
        match self.0.get(key) {
            Some(Argument::Column(name) | Argument::New(name)) => name,
            _ => "",
        }
    }

    /// The column as an expression.
    pub fn col(&self, key: &str) -> Expr {
        col(self.name(key))
    }

    pub fn names(&self, key: &str) -> &[String] {
        match self.0.get(key) {
            Some(Argument::Columns(names)) => names,
            _ => &[],
        }
    }

    pub fn number(&self, key: &str) -> f64 {
        match self.0.get(key) {
            Some(Argument::Number(number)) => *number,
            Some(Argument::Count(count)) => *count as f64,
            _ => f64::NAN,
        }
    }

    pub fn count(&self, key: &str) -> i64 {
        match self.0.get(key) {
            Some(Argument::Count(count)) => *count,
            _ => 0,
        }
    }

    pub fn text(&self, key: &str) -> &str {
        match self.0.get(key) {
            Some(Argument::Text(text)) => text,
            _ => "",
        }
    }

    /// The path of another file.
    pub fn file(&self, key: &str) -> &str {
        match self.0.get(key) {
            Some(Argument::File(path)) => path,
            _ => "",
        }
    }

    /// The values of a color.
    pub fn color(&self, key: &str) -> &[u8] {
        match self.0.get(key) {
            Some(Argument::Color(color)) => color,
            _ => &[],
        }
    }

    pub fn texts(&self, key: &str) -> &[String] {
        match self.0.get(key) {
            Some(Argument::Texts(texts)) => texts,
            _ => &[],
        }
    }
}

/// How an argument is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    Python,
    Sql,
    English,
    Chinese,
}

/// Replaces each `$name` or `${name}` of a pattern by the argument of this name, in this notation. `extra` has further
/// names, as they are. A name that is neither stays, so that a test finds it.
pub fn fill(
    pattern: &str,
    arguments: &Arguments,
    notation: Notation,
    extra: &[(&str, &str)],
) -> String {
    let mut filled = String::with_capacity(pattern.len() * 2);
    let mut rest = pattern;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        let (name, tail) = placeholder(&rest[at + 1..]);
        match (
            extra.iter().find(|(key, _)| *key == name),
            arguments.0.get(name),
        ) {
            (Some((_, text)), _) => filled.push_str(text),
            (None, Some(argument)) => filled.push_str(&write(argument, notation)),
            (None, None) => filled.push_str(&rest[at..rest.len() - tail.len()]),
        }
        rest = tail;
    }
    filled + rest
}

/// The name after a `$`, and the text after it.
fn placeholder(after: &str) -> (&str, &str) {
    if let Some((name, tail)) = after
        .strip_prefix('{')
        .and_then(|text| text.split_once('}'))
    {
        return (name, tail);
    }
    let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '_');
    after.split_at(end.unwrap_or(after.len()))
}

fn write(argument: &Argument, notation: Notation) -> String {
    match argument {
        Argument::Column(name) | Argument::New(name) => column(name, notation),
        Argument::Columns(names) => list(names.iter().map(|name| column(name, notation)), notation),
        Argument::Number(number) => self::number(*number),
        Argument::Count(count) => count.to_string(),
        Argument::Text(text) => value(text, notation),
        Argument::Color(color) => self::color(color, notation),
        // Code names its table instead.
        Argument::File(path) => path.clone(),
        Argument::Texts(texts) => list(texts.iter().map(|text| value(text, notation)), notation),
    }
}

/// A number as Python, SQL and people write it: without a point where it is whole.
pub fn number(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => format!("{number:.0}"),
        false => number.to_string(),
    }
}

fn color(color: &[u8], notation: Notation) -> String {
    let values: Vec<String> = color.iter().map(u8::to_string).collect();
    let values = values.join(", ");
    match (notation, color.len()) {
        (Notation::English, 1) => format!("gray level {values}"),
        (Notation::Chinese, 1) => format!("灰度值 {values}"),
        (_, 1) => values,
        (Notation::English | Notation::Chinese, _) => format!("RGB ({values})"),
        _ => format!("({values})"),
    }
}

fn column(name: &str, notation: Notation) -> String {
    match notation {
        Notation::Python => python_string(name),
        Notation::Sql => format!("\"{}\"", name.replace('"', "\"\"")),
        Notation::English => format!("\"{name}\""),
        Notation::Chinese => format!("“{name}”"),
    }
}

fn value(text: &str, notation: Notation) -> String {
    match notation {
        Notation::Python => python_string(text),
        Notation::Sql => format!("'{}'", text.replace('\'', "''")),
        Notation::English => format!("\"{text}\""),
        Notation::Chinese => format!("“{text}”"),
    }
}

fn list(items: impl Iterator<Item = String>, notation: Notation) -> String {
    let items: Vec<String> = items.collect();
    match notation {
        Notation::Python => format!("[{}]", items.join(", ")),
        Notation::Sql => items.join(", "),
        Notation::Chinese => items.join("、"),
        Notation::English => match items.as_slice() {
            [start @ .., last] if !start.is_empty() => format!("{} and {last}", start.join(", ")),
            _ => items.concat(),
        },
    }
}

/// The Python literal of a text, in double quotes as most people write it.
pub fn python_string(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                literal.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_filled_in_each_notation() {
        let arguments = Arguments::new([
            ("column", Argument::Column("the \"price\"".into())),
            ("values", Argument::Texts(vec!["it's".into(), "b".into()])),
            ("value", Argument::Number(2.0)),
        ]);
        let pattern = "$column in $values, ${value}th, $t, $unknown";
        let fill = |notation| fill(pattern, &arguments, notation, &[("t", "df")]);
        assert_eq!(
            fill(Notation::Python),
            r#""the \"price\"" in ["it's", "b"], 2th, df, $unknown"#
        );
        assert_eq!(
            fill(Notation::Sql),
            r#""the ""price""" in 'it''s', 'b', 2th, df, $unknown"#
        );
        assert_eq!(
            fill(Notation::English),
            r#""the "price"" in "it's" and "b", 2th, df, $unknown"#
        );
    }

    #[test]
    fn numbers_are_written_as_people_do() {
        assert_eq!(number(3.0), "3");
        assert_eq!(number(-0.25), "-0.25");
        assert_eq!(number(1e300).len(), 301);
    }
}
