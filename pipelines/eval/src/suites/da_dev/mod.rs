//! InfiAgent's DA-Dev: questions on csv files with named answers, and the subset that others verified.

mod files;
mod verified;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use pybench_run::RunError;
use pybench_types::task::Category;
use regex::Regex;
use serde::Deserialize;

use super::Entry;
use super::answers::{AnswerSuite, Question, frequent, json_lines, read};
use super::python_number::float_with_underscores;
use crate::suite::Origin;
use verified::VERIFIED_IDS;

/// The repository.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/InfiAgent/InfiAgent.git",
    commit: "d02d18a64da23f9dcc8f5a529f6203e0010c2072",
    files: files::FILES,
    license: "CC BY-NC 4.0 (data), Apache-2.0 (code)",
    cache: "suites/da-dev",
};

/// All questions, in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "da-dev",
    origin: &ORIGIN,
    open: |place| open(&ENTRY.checkout(place)?, false),
};

/// The verified subset, in the list of suites.
pub const VERIFIED: Entry = Entry {
    name: "da-dev-verified",
    origin: &ORIGIN,
    open: |place| open(&ENTRY.checkout(place)?, true),
};

const QUESTIONS: &str = "examples/DA-Agent/data/da-dev-questions.jsonl";
const LABELS: &str = "examples/DA-Agent/data/da-dev-labels.jsonl";
const TABLES: &str = "examples/DA-Agent/data/da-dev-tables";
/// Numbers closer than this are equal.
const TOLERANCE: f64 = 1e-6;

const NOTES: &[&str] = &[
    "`upstream` is the authors' accuracy by question: every `@name[value]` equals its label as text or within 1e-6. Their scorer leaves out questions without a response, so one correct answer of 257 scores 100 %; the number of tasks beside the rate is the number of responses.",
    "`strict` counts every question except one that a copy of its prompt solves (741): no response is a wrong answer. A name with two different values is wrong, and so is a reply with names that the question does not ask for: one that states every name of the benchmark passes `upstream` often.",
];

static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"@([\p{L}\p{N}_]+)\[(.*?)\]").unwrap()
});

/// A line of upstream's questions.
#[derive(Debug, Deserialize)]
struct QuestionLine {
    id: u32,
    question: String,
    constraints: String,
    format: String,
    file_name: String,
    level: String,
}

/// A line of upstream's labels.
#[derive(Debug, Deserialize)]
struct LabelLine {
    id: u32,
    common_answers: Vec<(String, String)>,
}

/// A question with its labels.
struct TableQuestion {
    root: Arc<PathBuf>,
    line: QuestionLine,
    /// Value by name. Of two labels with one name upstream keeps the last.
    labels: BTreeMap<String, String>,
}

fn open(root: &Path, verified: bool) -> Result<Arc<dyn crate::suite::Suite>, RunError> {
    let suite = suite(root, verified).map_err(RunError::BadInput)?;
    Ok(Arc::new(suite))
}

fn suite(root: &Path, verified: bool) -> Result<AnswerSuite, String> {
    let labels = json_lines::<LabelLine>(root, LABELS)?.into_iter();
    let mut labels: HashMap<u32, Vec<(String, String)>> =
        labels.map(|line| (line.id, line.common_answers)).collect();
    let shared = Arc::new(root.to_owned());
    let mut questions: Vec<Arc<dyn Question>> = Vec::new();
    for line in json_lines::<QuestionLine>(root, QUESTIONS)? {
        let found = labels.remove(&line.id);
        let found = found.ok_or_else(|| format!("{LABELS}: question {} has no labels", line.id))?;
        if !verified || VERIFIED_IDS.contains(&line.id) {
            questions.push(Arc::new(TableQuestion {
                root: shared.clone(),
                line,
                labels: found.into_iter().collect(),
            }));
        }
    }
    let (name, title) = match verified {
        false => (ENTRY.name, "InfiAgent DA-Dev"),
        true => (VERIFIED.name, "InfiAgent DA-Dev, verified subset"),
    };
    Ok(AnswerSuite {
        name,
        title,
        origin: &ORIGIN,
        notes: NOTES,
        version: 1,
        category: Category::Chart,
        questions,
        constants,
    })
}

/// Upstream's `is_equal`.
fn equal(response: &str, label: &str) -> bool {
    let numbers = || {
        let (a, b) = (
            float_with_underscores(response)?,
            float_with_underscores(label)?,
        );
        Some((a - b).abs() < TOLERANCE)
    };
    response == label || numbers().unwrap_or(false)
}

/// The values of each name in a reply, in order. As upstream has it, a value ends at the first bracket: labels with
/// brackets were cut off there too.
fn named_values(reply: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for captures in NAMED.captures_iter(reply) {
        if let (Some(name), Some(value)) = (captures.get(1), captures.get(2)) {
            found.entry(name.as_str()).or_default().push(value.as_str());
        }
    }
    found
}

/// Every name with its most frequent value: names that a question does not ask for do no harm.
fn constants(questions: &[&dyn Question]) -> Vec<String> {
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for question in questions {
        for (name, values) in named_values(&question.reference()) {
            let values = values.into_iter().map(str::to_owned);
            for value in values {
                *counts
                    .entry(name.to_owned())
                    .or_default()
                    .entry(value)
                    .or_default() += 1;
            }
        }
    }
    let best = |values: &BTreeMap<String, usize>| {
        let most = values.iter().max_by_key(|(_, count)| **count);
        most.map_or(String::new(), |(value, _)| value.clone())
    };
    let all = counts
        .iter()
        .map(|(name, values)| format!("@{name}[{}]", best(values)));
    let all = all.collect::<Vec<_>>().join("\n");
    std::iter::once(all).chain(frequent(questions)).collect()
}

impl TableQuestion {
    fn answer(&self, value: impl Fn(usize, &str) -> Option<String>) -> String {
        let labels = self.labels.iter().enumerate();
        let named = labels
            .filter_map(|(at, (name, label))| Some(format!("@{name}[{}]", value(at, label)?)));
        named.collect::<Vec<_>>().join("\n")
    }

    /// The correct answer with another first value.
    fn with_first(&self, change: impl Fn(&str) -> Option<String>) -> String {
        self.answer(|at, label| match at {
            0 => change(label),
            _ => Some(label.to_owned()),
        })
    }
}

impl Question for TableQuestion {
    fn name(&self) -> String {
        self.line.id.to_string()
    }

    fn category(&self) -> String {
        self.line.level.clone()
    }

    fn prompt(&self) -> String {
        let QuestionLine {
            question,
            constraints,
            format,
            file_name,
            ..
        } = &self.line;
        format!(
            "{question}\n\nConstraints: {constraints}\n\nThe data is in data/{file_name}. State the answer in this format: {format}"
        )
    }

    fn texts(&self) -> Vec<String> {
        let QuestionLine {
            question,
            constraints,
            format,
            ..
        } = &self.line;
        vec![
            question.clone(),
            format!("{question}\n\n{constraints}\n\n{format}"),
        ]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let name = &self.line.file_name;
        let bytes = read(&self.root, &format!("{TABLES}/{name}"))?;
        Ok(vec![(name.clone(), bytes)])
    }

    fn reference(&self) -> String {
        self.answer(|_, label| Some(label.to_owned()))
    }

    fn expected(&self) -> String {
        self.reference()
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        if reply.is_empty() {
            return None;
        }
        let answers = named_values(reply);
        let right = |(name, label): (&String, &String)| {
            let last = answers.get(name.as_str()).and_then(|values| values.last());
            last.is_some_and(|answer| equal(answer, label))
        };
        Some(self.labels.iter().all(right))
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        let answers = named_values(reply);
        for (name, label) in &self.labels {
            let values = answers.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            match values {
                [] => return Err(format!("the reply has no `@{name}[…]`")),
                values if values.iter().all(|value| equal(value, label)) => {}
                [_] => return Err(format!("`{name}` differs from the expected value")),
                _ => {
                    return Err(format!(
                        "`{name}` has several values, not all of them correct"
                    ));
                }
            }
        }
        let format = &self.line.format;
        let asked =
            |name: &str| self.labels.contains_key(name) || format.contains(&format!("@{name}["));
        match answers.keys().find(|name| !asked(name)) {
            None => Ok(()),
            Some(name) => Err(format!("the question does not ask for `@{name}[…]`")),
        }
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let mut mutants = vec![
            ("one name less", self.with_first(|_| None)),
            ("an empty value", self.with_first(|_| Some(String::new()))),
            (
                "a letter more",
                self.with_first(|label| Some(format!("{label}x"))),
            ),
            (
                "the values without their names",
                self.labels.values().cloned().collect::<Vec<_>>().join(", "),
            ),
            (
                "another value beside the correct one",
                self.with_first(|_| Some("?".to_owned())) + "\n" + &self.reference(),
            ),
        ];
        let first = self.labels.values().next().map_or("", |label| label);
        if let Some(number) = float_with_underscores(first).filter(|number| number.is_finite()) {
            let decimals = first
                .split_once('.')
                .map_or(0, |(_, decimals)| decimals.len());
            let changed = |number: f64| self.with_first(|_| Some(format!("{number:.decimals$}")));
            let unit = 0.1_f64.powi(i32::try_from(decimals).unwrap_or(0));
            mutants.push(("the last digit is one higher", changed(number + unit)));
            mutants.push((
                "ten times the number plus one",
                changed(number * 10.0 + 1.0),
            ));
        }
        mutants
    }
}

#[cfg(test)]
mod tests;
