//! A task of M3ToolEval and its two comparisons.

use std::sync::Arc;

use super::super::answers::Question;
use super::super::python_literal::Literal;
use super::super::python_number::{float_with_underscores, int, is_space};
use super::Row;

/// Files of a task, by name.
pub(super) type Files = Arc<Vec<(String, Vec<u8>)>>;

/// A task with its functions.
pub(super) struct ToolQuestion {
    row: Row,
    expected: Literal,
    files: Files,
}

/// What upstream's conversion makes of a value.
#[derive(PartialEq)]
enum Converted {
    Int(String),
    Float(f64),
    Text(String),
}

/// Upstream's conversion of an answer.
fn converted(text: &str) -> Converted {
    let digits = |text: &str| {
        let number = float_with_underscores(text).is_some();
        number.then(|| int(&text.replace('_', ""))).flatten()
    };
    match (digits(text), float_with_underscores(text)) {
        (Some(digits), _) => Converted::Int(digits),
        (None, Some(number)) => Converted::Float(number),
        (None, None) => Converted::Text(text.to_owned()),
    }
}

impl Converted {
    /// Upstream's conversion of an expected value, which cuts off the fraction of a number. Containers have none.
    fn of(expected: &Literal) -> Option<Self> {
        Some(match expected {
            Literal::Bool(value) => Self::Int(u8::from(*value).to_string()),
            Literal::Int(digits) => Self::Int(digits.clone()),
            Literal::Float(number) => Self::Int(format!("{:.0}", number.trunc())),
            Literal::Str(text) => converted(text),
            Literal::None | Literal::Sequence(_) | Literal::Dict(_) => return None,
        })
    }

    fn equals(&self, other: &Self) -> bool {
        let number = |value: &Self| match value {
            Self::Int(digits) => digits.parse().ok(),
            Self::Float(number) => Some(*number),
            Self::Text(_) => None,
        };
        match (self, other) {
            (Self::Int(_), Self::Int(_)) | (Self::Text(_), Self::Text(_)) => self == other,
            _ => matches!((number(self), number(other)), (Some(a), Some(b)) if a == b),
        }
    }
}

/// The answers of a reply. Upstream scores the first, and none of a reply that also calls a function in its own
/// notation.
fn answers(reply: &str) -> Vec<&str> {
    if reply.contains("Action:") {
        return Vec::new();
    }
    let answers = reply.split("Answer:").skip(1);
    answers.map(|one| one.trim_matches(is_space)).collect()
}

/// Whether two values are equal; numbers within `tolerance`.
fn equal(found: &Literal, expected: &Literal, tolerance: f64) -> bool {
    match (found, expected) {
        (Literal::Sequence(found), Literal::Sequence(expected)) => {
            let mut pairs = found.iter().zip(expected);
            found.len() == expected.len() && pairs.all(|(a, b)| equal(a, b, tolerance))
        }
        (Literal::Dict(found), Literal::Dict(expected)) => {
            let has = |(key, value): &(Literal, Literal)| {
                let mut found = found.iter();
                found.any(|(k, v)| k == key && equal(v, value, tolerance))
            };
            found.len() == expected.len() && expected.iter().all(has)
        }
        _ => match (found.number(), expected.number()) {
            (Some(found), Some(expected)) => {
                (found - expected).abs() <= tolerance.max(expected.abs() * 1e-9)
            }
            _ => found == expected,
        },
    }
}

impl ToolQuestion {
    /// Reads a row of the list.
    ///
    /// # Errors
    /// The expected answer is not a literal.
    pub(super) fn new(row: Row, files: Files) -> Result<Self, String> {
        let expected = Literal::parse(&row.expected);
        let expected = expected.ok_or_else(|| {
            format!(
                "{}: the expected answer is not a literal: {}",
                row.name, row.expected
            )
        })?;
        Ok(Self {
            row,
            expected,
            files,
        })
    }

    /// Upstream's `check_answer`.
    pub(super) fn check_answer(&self, answer: &str) -> bool {
        let expected = &self.row.expected_text;
        let Some(value) = Converted::of(&self.expected) else {
            return answer == expected;
        };
        if value.equals(&converted(answer)) {
            return true;
        }
        // The comparison of values raises an exception, after which the texts of values are compared.
        match Literal::parse(answer).map(|literal| literal.str()) {
            Some(text) => text.as_deref() == Some(expected),
            None => answer == expected,
        }
    }

    /// Whether an answer has the expected value.
    fn accepts(&self, answer: &str) -> bool {
        let cents = self.row.instruction.contains("'xx.xx'");
        let tolerance = if cents { 0.005 + 1e-9 } else { 0.0 };
        let literal = Literal::parse(answer);
        let text = Literal::Str(answer.to_owned());
        equal(literal.as_ref().unwrap_or(&text), &self.expected, tolerance) || text == self.expected
    }

    /// The expected answer with another number.
    fn changed(&self, change: impl Fn(f64) -> f64) -> Option<String> {
        Some(change(self.expected.number()?).to_string())
    }
}

fn stated(answer: &str) -> String {
    format!("Answer: {answer}")
}

impl Question for ToolQuestion {
    fn name(&self) -> String {
        self.row.name.clone()
    }

    fn category(&self) -> String {
        let module = self.row.name.split_once('/');
        module.map_or("", |(module, _)| module).replace('_', " ")
    }

    fn prompt(&self) -> String {
        let tools = self.row.tools.iter();
        let tools: Vec<_> = tools
            .map(|(signature, description)| format!("- {signature}: {description}"))
            .collect();
        format!(
            "{}\n\nUse these Python functions, which `from data.tools import *` makes available:\n{}\n\nWhen you are done, \
             end your reply with `Answer:` and the answer alone (for example a single number), without any other text.",
            self.row.instruction.trim(),
            tools.join("\n")
        )
    }

    fn texts(&self) -> Vec<String> {
        vec![self.row.instruction.clone()]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(self.files.to_vec())
    }

    fn reference(&self) -> String {
        stated(&self.row.expected_text)
    }

    fn expected(&self) -> String {
        self.row.expected_text.clone()
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        let answer = answers(reply).first().copied();
        Some(answer.is_some_and(|answer| self.check_answer(answer)))
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        let answers = answers(reply);
        if answers.is_empty() {
            return Err("the reply has no `Answer:`, or also an `Action:`".to_owned());
        }
        match answers.iter().find(|answer| !self.accepts(answer)) {
            None => Ok(()),
            Some(_) => Err("the answer differs from the expected value".to_owned()),
        }
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let expected = &self.row.expected_text;
        let mut mutants = vec![
            ("no marker", expected.clone()),
            ("an empty answer", stated("")),
            ("a letter more", stated(&format!("{expected}x"))),
            ("a sentence", stated(&format!("It is {expected}."))),
            (
                "two candidates",
                stated(&format!("{expected} or something else")),
            ),
            (
                "another answer after the correct one",
                self.reference() + "\n" + &stated("something else"),
            ),
            (
                "an action beside the answer",
                format!("Action: view() End Action\n{}", self.reference()),
            ),
        ];
        let numbers = [
            ("the number plus one", self.changed(|n| n + 1.0)),
            ("the other sign", self.changed(|n| -n)),
            ("without its fraction", self.changed(f64::trunc)),
        ];
        for (name, number) in numbers {
            let number = number.filter(|number| !self.accepts(number));
            mutants.extend(number.map(|number| (name, stated(&number))));
        }
        match &self.expected {
            Literal::Bool(value) => {
                mutants.push(("a number", stated(&u8::from(*value).to_string())));
                mutants.push((
                    "the other value",
                    stated(if *value { "False" } else { "True" }),
                ));
            }
            Literal::Sequence(items) if items.len() > 1 => {
                let cut = expected.rfind(',').unwrap_or_default();
                let end = expected.chars().last().unwrap_or_default();
                let shorter = format!("{},{end}", &expected[..cut]);
                mutants.push(("one item less", stated(&shorter)));
            }
            _ => {}
        }
        mutants
    }
}
