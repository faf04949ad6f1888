//! WikiTableQuestions: questions on tables of Wikipedia, the test split on unseen tables.

mod denotation;
mod normalize;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use pybench_files::wiki_tables;
use pybench_run::RunError;
use pybench_types::task::Category;
use regex::Regex;

use super::Entry;
use super::answers::{AnswerSuite, Question, frequent, read, read_text};
use crate::suite::Origin;
use denotation::{Value, check, denotation, one_to_one};
use normalize::{Details, normalize};

/// The repository.
pub const ORIGIN: Origin = Origin {
    repository: wiki_tables::REPOSITORY,
    commit: wiki_tables::COMMIT,
    files: &[
        QUESTIONS,
        "csv/*/*.csv",
        "evaluator.py",
        "LICENSE",
        "README.md",
    ],
    license: "CC BY-SA 4.0 (data)",
    cache: "suites/wikitablequestions",
};

/// WikiTableQuestions in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "wikitablequestions",
    origin: &ORIGIN,
    open: |place| {
        let suite = open(&ENTRY.checkout(place)?).map_err(RunError::BadInput)?;
        Ok(Arc::new(suite))
    },
};

/// The test split, with the canonical forms of numbers and dates.
const QUESTIONS: &str = "tagged/data/pristine-unseen-tables.tagged";
/// Name of the table in the workspace.
const TABLE: &str = "table.csv";

const NOTES: &[&str] = &[
    "`upstream` is the authors' comparison of denotations (evaluator 1.0.2) on the values after the last `Answer:`; a reply without one counts as an empty answer.",
    "`strict` also asks for a value of its own for each expected one, and accepts bracketed details only if they are in the expected value or in a cell of the table; `upstream` ignores whatever stands in trailing brackets.",
    "The tables are rewritten as standard CSV: the published files escape quotes with backslashes, which pandas does not read by default.",
];

static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"(?m)^(?:Finished:)?[ \t]*\**Answer:\**[ \t]*(.*?)[ \t]*$").unwrap()
});

/// A question with its table.
struct TableQuestion {
    root: Arc<PathBuf>,
    id: String,
    utterance: String,
    /// Path of the table in the repository.
    context: String,
    targets: Vec<String>,
    denotation: Vec<Value>,
    /// `number`, `date`, `string` or `mixed`.
    kind: String,
}

/// Opens a checkout.
///
/// # Errors
/// Files are missing or invalid.
fn open(root: &Path) -> Result<AnswerSuite, String> {
    let text = read_text(root, QUESTIONS)?;
    let shared = Arc::new(root.to_owned());
    let questions = parse(&text, &shared);
    let questions =
        questions.map_err(|problem| format!("{}: {problem}", root.join(QUESTIONS).display()))?;
    Ok(AnswerSuite {
        name: ENTRY.name,
        title: "WikiTableQuestions, unseen tables",
        origin: &ORIGIN,
        notes: NOTES,
        version: 1,
        category: Category::Chart,
        questions,
        constants: frequent,
    })
}

fn parse(text: &str, root: &Arc<PathBuf>) -> Result<Vec<Arc<dyn Question>>, String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let columns = [
        "id",
        "utterance",
        "context",
        "targetValue",
        "targetCanon",
        "targetCanonType",
    ];
    let columns = wiki_tables::columns(header, columns);
    let columns = columns.map_err(|problem| format!("line 1: {problem}"))?;
    let mut questions: Vec<Arc<dyn Question>> = Vec::new();
    for (number, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |at: usize| fields.get(columns[at]).copied();
        let field = |at| field(at).ok_or_else(|| format!("line {}: too few columns", number + 2));
        let (values, canons) = (wiki_tables::list(field(3)?), wiki_tables::list(field(4)?));
        if values.len() != canons.len() {
            return Err(format!(
                "line {}: the values and their canonical forms differ in number",
                number + 2
            ));
        }
        let pairs = values.iter().zip(&canons);
        let pairs = pairs.map(|(value, canon)| Value::new(value, Some(canon)));
        questions.push(Arc::new(TableQuestion {
            root: root.clone(),
            id: field(0)?.to_owned(),
            utterance: wiki_tables::unescape(field(1)?),
            context: field(2)?.to_owned(),
            denotation: denotation(pairs),
            targets: values,
            kind: field(5)?.to_owned(),
        }));
    }
    Ok(questions)
}

/// The values after the last `Answer:` of a reply.
fn values(reply: &str) -> Vec<&str> {
    let answer = ANSWER
        .captures_iter(reply)
        .last()
        .and_then(|found| found.get(1));
    let values = answer.iter().flat_map(|answer| answer.as_str().split('|'));
    values.map(str::trim).collect()
}

impl TableQuestion {
    fn table(&self) -> Result<Vec<Vec<String>>, String> {
        let table = wiki_tables::parse(&read_text(&self.root, &self.context)?);
        table.map_err(|problem| format!("{}: {problem}", self.root.join(&self.context).display()))
    }

    /// A value with details that neither an expected value nor a cell has.
    fn invented_details<'a>(&self, values: &[&'a str]) -> Result<Option<&'a str>, String> {
        let kept = |text: &str| normalize(text, Details::Kept);
        let removes = |value: &&&str| kept(value) != normalize(value, Details::Removed);
        let detailed: Vec<_> = values.iter().filter(removes).collect();
        if detailed.is_empty() {
            return Ok(None);
        }
        let table = self.table()?;
        let known = table.iter().flatten().chain(&self.targets);
        let known: std::collections::HashSet<_> = known.map(|text| kept(text)).collect();
        let invented = detailed
            .into_iter()
            .find(|value| !known.contains(&kept(value)));
        Ok(invented.copied())
    }
}

impl Question for TableQuestion {
    fn name(&self) -> String {
        self.id.clone()
    }

    fn category(&self) -> String {
        self.kind.clone()
    }

    fn prompt(&self) -> String {
        format!(
            "{}\n\nThe table is in data/{TABLE}; its first row is the header. End your reply with a line that consists of \
             `Answer:` and the answer alone: a value as it stands in the table, or a number. Separate several values with `|`.",
            self.utterance
        )
    }

    fn texts(&self) -> Vec<String> {
        vec![self.utterance.clone()]
    }

    fn published_files(&self) -> Result<Vec<Vec<u8>>, String> {
        Ok(vec![read(&self.root, &self.context)?])
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let table = wiki_tables::write(&self.table()?);
        Ok(vec![(TABLE.to_owned(), table.into_bytes())])
    }

    fn reference(&self) -> String {
        format!("Answer: {}", self.targets.join("|"))
    }

    fn expected(&self) -> String {
        self.targets.join(" | ")
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        let values = values(reply);
        let predicted = denotation(values.iter().map(|value| Value::new(value, None)));
        Some(check(&self.denotation, &predicted))
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        let values = values(reply);
        if values.is_empty() {
            return Err("the reply has no line that starts with `Answer:`".to_owned());
        }
        let predicted = denotation(values.iter().map(|value| Value::new(value, None)));
        if !check(&self.denotation, &predicted) {
            return Err("the values differ from the expected ones".to_owned());
        }
        if !one_to_one(&self.denotation, &predicted) {
            return Err("one value stands for two expected ones".to_owned());
        }
        match self.invented_details(&values)? {
            None => Ok(()),
            Some(value) => Err(format!(
                "neither the table nor the answer has the details of `{value}`"
            )),
        }
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let targets = &self.targets;
        let answer = |values: &[String]| format!("Answer: {}", values.join("|"));
        let with_first = |value: String| {
            let rest = targets.iter().skip(1).cloned();
            answer(&std::iter::once(value).chain(rest).collect::<Vec<_>>())
        };
        let first = targets.first().cloned().unwrap_or_default();
        let mut mutants = vec![
            ("no value", "Answer:".to_owned()),
            ("the value in a sentence only", format!("It is {first}.")),
            (
                "one value more",
                answer(&[targets.clone(), vec!["something else".to_owned()]].concat()),
            ),
            (
                "two candidates in brackets",
                with_first(format!("{first} (or something else)")),
            ),
            (
                "other words around the value",
                with_first(format!("not {first}")),
            ),
            ("a letter more", with_first(format!("{first}x"))),
        ];
        if targets.len() > 1 {
            mutants.push(("one value less", answer(&targets[1..])));
        }
        if let Some(number) = super::python_number::float(&first.replace(',', "")) {
            mutants.push((
                "the number plus one",
                with_first(format!("{}", number + 1.0)),
            ));
            mutants.push((
                "the number times ten plus one",
                with_first(format!("{}", number * 10.0 + 1.0)),
            ));
        }
        mutants
    }
}

#[cfg(test)]
mod tests;
