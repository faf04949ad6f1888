//! QRData: statistical and causal questions on csv files, as DSGym publishes and scores them.

mod files;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use pybench_run::RunError;
use pybench_types::task::Category;
use regex::Regex;
use serde::Deserialize;

use super::Entry;
use super::answers::{AnswerSuite, Question, frequent, read, read_text};
use super::python_number::{float_with_underscores, is_space};
use crate::suite::Origin;

/// The repository.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/fannie1208/DSGym.git",
    commit: "88ddc4878901c41e71f6364ed4b639b9ddd7a240",
    files: files::FILES,
    license: "CC BY-NC 4.0 (QRData); none stated in the repository",
    cache: "suites/qrdata",
};

/// QRData in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "qrdata",
    origin: &ORIGIN,
    open: |place| {
        let suite = open(&ENTRY.checkout(place)?).map_err(RunError::BadInput)?;
        Ok(Arc::new(suite))
    },
};

const QUESTIONS: &str = "data/task/QRData/qrdata.json";
/// What the paths of upstream's questions start with, and the folder in the repository.
const PATHS: (&str, &str) = ("/data/qrdata/data/", "data/data/qrdata/data/");
/// Relative error below which upstream accepts a number.
const TOLERANCE: f64 = 0.03;

const NOTES: &[&str] = &[
    "`upstream` is DSGym's `exact_match` on the text between the first `<answer>` and `</answer>`: the same text in any case, or a number less than 3 % off. A reply without these tags is a wrong answer.",
    "`strict` also asks that every answer in the reply is correct and that a number has the digits of the expected one. Of an estimated causal effect it accepts what `upstream` accepts, because the expected value is not what every sound estimator finds.",
    "The prompt leaves out the keywords and the source of the exercise, which DSGym's own prompt shows.",
];

static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"(?s)<answer>(.*?)</answer>").unwrap()
});

static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?").unwrap()
});

/// A row of upstream's questions.
#[derive(Debug, Deserialize)]
struct Row {
    context: String,
    question: String,
    answer: String,
    data: Vec<String>,
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    keywords: Vec<String>,
    question_type: String,
    /// In lower case.
    #[serde(default)]
    multiple_choices: Vec<String>,
}

/// A question with its tables.
struct DataQuestion {
    root: Arc<PathBuf>,
    /// Position in upstream's list.
    index: usize,
    row: Row,
}

/// Opens a checkout.
///
/// # Errors
/// Files are missing or invalid.
fn open(root: &Path) -> Result<AnswerSuite, String> {
    let text = read_text(root, QUESTIONS)?;
    let rows: Vec<Row> = serde_json::from_str(&text)
        .map_err(|error| format!("{}: {error}", root.join(QUESTIONS).display()))?;
    let shared = Arc::new(root.to_owned());
    let question = |(index, row)| {
        let root = shared.clone();
        Arc::new(DataQuestion { root, index, row }) as Arc<dyn Question>
    };
    Ok(AnswerSuite {
        name: ENTRY.name,
        title: "QRData",
        origin: &ORIGIN,
        notes: NOTES,
        version: 1,
        category: Category::Chart,
        questions: rows.into_iter().enumerate().map(question).collect(),
        constants: frequent,
    })
}

/// The answer that upstream reads from a reply, or an empty text.
fn answer(reply: &str) -> &str {
    let kept = match (reply.split_once("</python>"), reply.find("</answer>")) {
        (Some((before, _)), _) => before,
        (None, Some(at)) => &reply[..at + "</answer>".len()],
        (None, None) => "",
    };
    let found = ANSWER.captures(kept).and_then(|found| found.get(1));
    found.map_or("", |found| found.as_str().trim_matches(is_space))
}

fn normalized(text: &str) -> String {
    text.trim_matches(is_space).to_lowercase()
}

/// Upstream's first number in a text that is a number as a whole.
fn number(text: &str) -> Option<f64> {
    float_with_underscores(text)?;
    NUMBER.find(text)?.as_str().parse().ok()
}

/// Upstream's `exact_match`. Its comparison of lists never applies: no expected answer is a list.
fn matches(answer: &str, expected: &str) -> bool {
    let close = || {
        let (found, expected) = (number(answer)?, number(expected)?);
        let error = match expected {
            0.0 => found.abs(),
            expected => (found - expected).abs() / expected.abs(),
        };
        Some(error < TOLERANCE)
    };
    normalized(answer) == normalized(expected) || close().unwrap_or(false)
}

/// Digits after the point.
fn decimals(number: &str) -> usize {
    let fraction = number.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.bytes().take_while(u8::is_ascii_digit).count()
}

/// Whether a number rounds to the expected one, which has so many digits as were asked for.
fn rounds_to(found: f64, expected: f64, decimals: usize) -> bool {
    let unit = 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX));
    (found - expected).abs() <= unit * 0.500_001
}

fn tagged(answer: &str) -> String {
    format!("<answer>{answer}</answer>")
}

impl DataQuestion {
    fn is_causal(&self) -> bool {
        self.row.metadata.keywords.iter().any(|k| k == "Causality")
    }

    /// Whether one answer is correct by the strict comparison.
    fn accepts(&self, answer: &str) -> bool {
        let expected = &self.row.answer;
        if normalized(answer) == normalized(expected) {
            return true;
        }
        let close = || {
            // Upstream reads `2_00` as 2.
            let (found, number) = (float_with_underscores(answer)?, number(expected)?);
            Some(
                matches(&found.to_string(), expected)
                    && (self.is_causal() || rounds_to(found, number, decimals(expected))),
            )
        };
        matches(answer, expected) && close().unwrap_or(false)
    }

    /// The expected number with `change`, in as many digits.
    fn changed(&self, change: impl Fn(f64, f64) -> f64) -> Option<String> {
        let expected = &self.row.answer;
        let decimals = decimals(expected);
        let unit = 0.1_f64.powi(i32::try_from(decimals).ok()?);
        let digits = expected.trim_end_matches('%');
        let value = change(digits.parse().ok()?, unit);
        Some(format!("{value:.decimals$}{}", &expected[digits.len()..]))
    }
}

impl Question for DataQuestion {
    fn name(&self) -> String {
        self.index.to_string()
    }

    fn category(&self) -> String {
        let field = if self.is_causal() {
            "causal"
        } else {
            "statistical"
        };
        let kind = self.row.metadata.question_type.replace('_', " ");
        format!("{field}, {kind}")
    }

    fn prompt(&self) -> String {
        let Row {
            context,
            question,
            data,
            ..
        } = &self.row;
        let names = data.iter().map(|path| format!("data/{}", base(path)));
        let names = names.collect::<Vec<_>>().join(", ");
        format!(
            "{question}\n\n{context}\n\nThe data is in {names}. End your reply with the answer alone in this form: \
             <answer>your answer</answer>"
        )
    }

    fn texts(&self) -> Vec<String> {
        let Row {
            context, question, ..
        } = &self.row;
        vec![question.clone(), format!("{question}\n\n{context}")]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let file = |path: &String| {
            let below = path.strip_prefix(PATHS.0);
            let below = below.ok_or_else(|| format!("`{path}` is not below {}", PATHS.0))?;
            let bytes = read(&self.root, &format!("{}{below}", PATHS.1))?;
            Ok((base(path).to_owned(), bytes))
        };
        self.row.data.iter().map(file).collect()
    }

    fn reference(&self) -> String {
        tagged(&self.row.answer)
    }

    fn expected(&self) -> String {
        self.row.answer.clone()
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        Some(matches(answer(reply), &self.row.answer))
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        if !reply.contains("<answer>") {
            return Err("the reply has no `<answer>…</answer>`".to_owned());
        }
        if !self.accepts(answer(reply)) {
            return Err("the answer differs from the expected one".to_owned());
        }
        let all = ANSWER.captures_iter(reply).filter_map(|found| found.get(1));
        let mut all = all.map(|found| found.as_str().trim_matches(is_space));
        match all.find(|one| !self.accepts(one)) {
            None => Ok(()),
            Some(other) => Err(format!("the reply has another answer, `{other}`")),
        }
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let expected = &self.row.answer;
        let mut mutants = vec![
            ("no tags", expected.clone()),
            ("an empty answer", tagged("")),
            ("a letter more", tagged(&format!("{expected}x"))),
            (
                "two candidates in one answer",
                tagged(&format!("{expected} or something else")),
            ),
            (
                "another answer after the correct one",
                self.reference() + "\n" + &tagged("something else"),
            ),
            (
                "another answer before the correct one",
                tagged("something else") + "\n" + &self.reference(),
            ),
        ];
        let other = |choice: &&String| !matches(choice, expected);
        for choice in self.row.metadata.multiple_choices.iter().filter(other) {
            mutants.push(("another choice", tagged(choice)));
        }
        let numbers = [
            (
                "5 % more",
                self.changed(|n, unit| n + (n.abs() * 0.05).max(unit)),
            ),
            ("the other sign", self.changed(|n, _| -n)),
            (
                "ten times the number plus one",
                self.changed(|n, _| n * 10.0 + 1.0),
            ),
            (
                "the last digit is one higher",
                self.changed(|n, unit| n + unit)
                    .filter(|_| !self.is_causal()),
            ),
        ];
        for (name, number) in numbers {
            mutants.extend(number.map(|number| (name, tagged(&number))));
        }
        mutants
    }
}

fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

#[cfg(test)]
mod tests;
