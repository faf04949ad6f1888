//! GSM8K: grade school word problems whose answer is a number.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use pybench_run::RunError;
use pybench_types::task::Category;
use regex::Regex;
use serde::Deserialize;

use super::Entry;
use super::answers::{AnswerSuite, Question, frequent, json_lines};
use crate::suite::Origin;

/// The repository.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/openai/grade-school-math.git",
    commit: "3101c7d5072418e28b9008a6636bde82a006892c",
    files: &[
        "LICENSE",
        "grade_school_math/data/test.jsonl",
        "grade_school_math/dataset.py",
    ],
    license: "MIT",
    cache: "suites/gsm8k",
};

/// GSM8K in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "gsm8k",
    origin: &ORIGIN,
    open: |place| {
        let suite = open(&ENTRY.checkout(place)?).map_err(RunError::BadInput)?;
        Ok(Arc::new(suite))
    },
};

const QUESTIONS: &str = "grade_school_math/data/test.jsonl";
/// What stands before the answer.
const MARK: &str = "####";

const NOTES: &[&str] = &[
    "`upstream` is the authors' comparison: the digits after the first `#### `, without commas, are the text of the expected number. `#### 18.0` and `#### $18` are wrong, and `#### 18` followed by `#### 19` is correct.",
    "`strict` compares numbers, and every answer after `####` in the reply must be correct. A reply without `####` is wrong in both scores, so a model that ignores the form of the answer loses points without being worse at arithmetic.",
    "The authors have models continue the question. Here the prompt asks for the form `#### NUMBER`, and no example is shown.",
];

static UPSTREAM: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"#### (-?[0-9.,]+)").unwrap()
});

static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"^(-?)\$?([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(\.[0-9]+)?(.*)$").unwrap()
});

/// A line of the questions.
#[derive(Debug, Deserialize)]
struct Row {
    question: String,
    /// A solution that ends with `#### NUMBER`.
    answer: String,
}

/// A question with the expected number.
struct MathQuestion {
    /// Position in the file.
    index: usize,
    question: String,
    /// As the authors extract it.
    expected: String,
    number: f64,
}

/// Opens a checkout.
///
/// # Errors
/// Files are missing or invalid.
fn open(root: &Path) -> Result<AnswerSuite, String> {
    let rows = json_lines::<Row>(root, QUESTIONS)?.into_iter().enumerate();
    let question = |(index, row)| {
        let question = MathQuestion::new(index, row);
        let question = question.map_err(|problem| {
            let file = root.join(QUESTIONS);
            format!("{}: question {index}: {problem}", file.display())
        })?;
        Ok(Arc::new(question) as Arc<dyn Question>)
    };
    Ok(AnswerSuite {
        name: ENTRY.name,
        title: "GSM8K",
        origin: &ORIGIN,
        notes: NOTES,
        version: 1,
        category: Category::Math,
        questions: rows.map(question).collect::<Result<_, String>>()?,
        constants: frequent,
    })
}

/// The authors' `extract_answer`.
fn extracted(reply: &str) -> Option<String> {
    let found = UPSTREAM.captures(reply).and_then(|found| found.get(1));
    found.map(|found| found.as_str().replace(',', ""))
}

/// The number at the start of a line, unless more digits follow.
fn number(line: &str) -> Option<f64> {
    let found = NUMBER.captures(line.trim_start_matches([' ', '\t', '*', '`', '\\', '$']))?;
    let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
    let more = part(4).contains(char::is_numeric);
    let number = format!("{}{}{}", part(1), part(2).replace(',', ""), part(3));
    (!more).then(|| number.parse().ok()).flatten()
}

impl MathQuestion {
    fn new(index: usize, row: Row) -> Result<Self, String> {
        let expected = extracted(&row.answer);
        let number = expected.as_ref().and_then(|expected| number(expected));
        match expected.zip(number) {
            Some((expected, number)) => Ok(Self {
                index,
                question: row.question,
                expected,
                number,
            }),
            None => Err("`answer` does not end with `#### NUMBER`".to_owned()),
        }
    }

    /// The expected number with `change`.
    fn changed(&self, change: impl Fn(f64) -> f64) -> String {
        marked(&change(self.number).to_string())
    }
}

fn marked(answer: &str) -> String {
    format!("{MARK} {answer}")
}

impl Question for MathQuestion {
    fn name(&self) -> String {
        self.index.to_string()
    }

    fn category(&self) -> String {
        "word problems".to_owned()
    }

    fn prompt(&self) -> String {
        format!(
            "{}\n\nThink step by step. End your reply with the answer alone on a line of its own, in the form {MARK} NUMBER",
            self.question
        )
    }

    fn texts(&self) -> Vec<String> {
        vec![self.question.clone()]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(Vec::new())
    }

    fn reference(&self) -> String {
        marked(&self.expected)
    }

    fn expected(&self) -> String {
        self.expected.clone()
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        Some(extracted(reply).as_ref() == Some(&self.expected))
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        let mut answers = reply.split(MARK).skip(1).peekable();
        if answers.peek().is_none() {
            return Err(format!("the reply has no `{MARK} NUMBER`"));
        }
        for answer in answers {
            let line = answer.lines().next().unwrap_or_default();
            match number(line) {
                Some(number) if number == self.number => {}
                Some(_) => return Err("an answer differs from the expected number".to_owned()),
                None => return Err(format!("no single number follows a `{MARK}`")),
            }
        }
        Ok(())
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let expected = &self.expected;
        vec![
            ("no mark", expected.clone()),
            ("an empty answer", marked("")),
            ("one more", self.changed(|number| number + 1.0)),
            (
                "ten times as much",
                self.changed(|number| number * 10.0 + 1.0),
            ),
            ("the other sign", self.changed(|number| -number - 1.0)),
            ("a digit more", marked(&format!("{expected}1"))),
            (
                "two candidates",
                marked(&format!("{expected} or {expected}1")),
            ),
            (
                "another answer after the correct one",
                self.reference() + "\n" + &self.changed(|number| number + 1.0),
            ),
            (
                "another answer before the correct one",
                self.changed(|number| number + 1.0) + "\n" + &self.reference(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
