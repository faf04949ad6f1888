//! One row of a task set: a question, its answer and its files. The text is from outside.

use std::path::{Component, Path, PathBuf};

use pybench_run::{AnswerCheck, TaskSetFields};
use pybench_types::task::MAX_QUERY;
use serde_json::Value;

/// Maximum length of ids, licenses, sources, paths and values, in characters.
const MAX_NAME: usize = 500;
/// Maximum number of files of a row.
const MAX_FILES: usize = 20;
/// Maximum number of values of a denotation.
const MAX_VALUES: usize = 200;
/// Maximum number of runs of a program; further tests of a row are not used.
const MAX_RUNS: usize = 20;
/// Maximum length of the inputs and outputs of a row, in bytes.
const MAX_RUN_BYTES: usize = 200_000;
/// What Markdown adds around an answer; the checker does not see it.
const MARKS: &[char] = &['*', '_', '`', '#', '>', ' ', '\t'];

/// Characters that a query has beside its question: names of files, and how to answer.
const MARGIN: usize = 600;

/// A row that can become a task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Its id, if the set has ids.
    pub id: Option<String>,
    pub question: String,
    pub answer: Answer,
    /// Paths relative to the folder of the set; none leaves it.
    pub files: Vec<PathBuf>,
    pub license: Option<String>,
    pub source: Option<String>,
}

/// What the final answer is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// Texts with their canonical forms, where these are known.
    Values(Vec<(String, Option<String>)>),
    /// A number in Python's syntax.
    Number(String),
    Text(String),
    Runs(Vec<Run>),
    /// A judge decides.
    Judged,
}

/// An input of a program and the expected output.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct Run {
    pub args: Vec<String>,
    pub stdin: String,
    pub stdout: String,
}

impl Row {
    /// Why the question is no query: there must be room for names of files, and how to answer.
    pub(super) fn length_problem(&self) -> Option<String> {
        let (length, most) = (self.question.chars().count(), MAX_QUERY - MARGIN);
        (length > most)
            .then(|| format!("the question has {length} characters; at most {most} are allowed"))
    }

    /// Reads a line of a JSONL file.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub(super) fn of_json(
        line: &[u8],
        fields: &TaskSetFields,
        check: AnswerCheck,
    ) -> Result<Self, String> {
        let row: Value = serde_json::from_slice(line)
            .map_err(|error| format!("column {}: it is no JSON object: {error}", error.column()))?;
        if !row.is_object() {
            return Err("it is no JSON object; write `{\"question\": …, \"answer\": …}`".into());
        }
        let question = text(&row, &fields.question)?;
        let answer = match check {
            AnswerCheck::Judge => Answer::Judged,
            check => {
                let value = found(&row, &fields.answer)?;
                Answer::of_json(value, check)
                    .map_err(|reason| format!("`{}`: {reason}", fields.answer))?
            }
        };
        let named = |field: &Option<String>| match field {
            None => Ok(None),
            Some(field) => name(&row, field).map(Some),
        };
        Ok(Self {
            id: named(&fields.id)?,
            question,
            answer,
            files: match &fields.files {
                None => Vec::new(),
                Some(field) => {
                    files(found(&row, field)?).map_err(|reason| format!("`{field}`: {reason}"))?
                }
            },
            license: named(&fields.license)?,
            source: named(&fields.source)?,
        })
    }
}

/// The value of a field, which is a key or a JSON pointer.
fn found<'a>(row: &'a Value, field: &str) -> Result<&'a Value, String> {
    let value = match field.starts_with('/') {
        true => row.pointer(field),
        false => row.get(field),
    };
    value.filter(|value| !value.is_null()).ok_or_else(|| {
        let keys = row.as_object().into_iter().flat_map(|row| row.keys());
        let keys: Vec<&str> = keys.take(20).map(String::as_str).collect();
        format!(
            "the field `{field}` is missing (the row has {}); name the right one in `fields`",
            keys.join(", ")
        )
    })
}

/// A text that is not blank.
fn text(row: &Value, field: &str) -> Result<String, String> {
    let text = found(row, field)?.as_str().map(str::trim);
    let text = text.ok_or_else(|| format!("`{field}` is no text"))?;
    match text.is_empty() {
        true => Err(format!("`{field}` is blank")),
        false => Ok(text.to_owned()),
    }
}

/// A short text or an integer, without control characters.
fn name(row: &Value, field: &str) -> Result<String, String> {
    let name = match found(row, field)? {
        Value::Number(number) => number.to_string(),
        _ => text(row, field)?,
    };
    match name.chars().count() > MAX_NAME || name.contains(char::is_control) {
        true => Err(format!(
            "`{field}` has control characters or more than {MAX_NAME} characters"
        )),
        false => Ok(name),
    }
}

fn files(value: &Value) -> Result<Vec<PathBuf>, String> {
    let listed = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    if listed.len() > MAX_FILES {
        return Err(format!("more than {MAX_FILES} files"));
    }
    listed.iter().map(file).collect()
}

fn file(value: &Value) -> Result<PathBuf, String> {
    let path = value.as_str();
    relative_path(path.ok_or("it is neither a path nor a list of paths")?)
}

/// A path that stays in its folder.
///
/// # Errors
/// It does not.
pub(super) fn relative_path(path: &str) -> Result<PathBuf, String> {
    let safe = path.chars().count() <= MAX_NAME && !path.contains(char::is_control);
    let parts = Path::new(path).components();
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    match safe && !path.is_empty() && parts.into_iter().all(stays) {
        true => Ok(path.into()),
        false => Err(format!(
            "the path {path:?} leaves the folder of the set; write it relative to `folder`"
        )),
    }
}

impl Answer {
    /// # Errors
    /// Why no check can be made of the value.
    fn of_json(value: &Value, check: AnswerCheck) -> Result<Self, String> {
        match check {
            AnswerCheck::Denotation => {
                let listed = match value {
                    Value::Array(items) => items.as_slice(),
                    one => std::slice::from_ref(one),
                };
                let values = listed.iter().map(|value| match plain(value) {
                    Some(text) => Ok((text, None)),
                    None => Err("a value is neither a text nor a number".to_owned()),
                });
                Self::of_values(values.collect::<Result<_, _>>()?)
            }
            AnswerCheck::Numeric => match value {
                Value::Number(number) => Self::of_number(&number.to_string()),
                Value::String(text) => Self::of_number(text),
                _ => Err("it is neither a number nor a text".into()),
            },
            AnswerCheck::Text => Self::of_text(plain(value).ok_or("it is no text")?),
            AnswerCheck::Tests => runs(value),
            AnswerCheck::Judge => Ok(Self::Judged),
        }
    }

    /// # Errors
    /// A value cannot be stated on a line, separated by `|`.
    pub(super) fn of_values(values: Vec<(String, Option<String>)>) -> Result<Self, String> {
        if values.is_empty() {
            return Err("it has no value".into());
        }
        if values.len() > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values"));
        }
        for (text, _) in &values {
            line(text)?;
            if text.contains('|') {
                return Err(format!(
                    "the value {text:?} contains `|`, which separates values"
                ));
            }
        }
        Ok(Self::Values(values))
    }

    /// A number, or a text that is one or ends with `#### 42`.
    fn of_number(text: &str) -> Result<Self, String> {
        let last = text.rsplit("####").next().unwrap_or(text).trim();
        let bare = last.strip_prefix('$').unwrap_or(last);
        let digits = without_separators(bare);
        // Words such as `inf` and `NaN` are no numbers here.
        let numeric = |c: char| c.is_ascii_digit() || ".+-eE".contains(c);
        let number = digits.as_deref().filter(|text| text.chars().all(numeric));
        let number = number.and_then(|text| text.parse::<f64>().ok());
        match number.filter(|number| number.is_finite()) {
            Some(number) => Ok(Self::Number(format!("{number:?}"))),
            None => {
                let shown: String = last.chars().take(60).collect();
                Err(format!(
                    "{shown:?} is no number; write a number, such as 42 or \"#### 42\", or use another `check`"
                ))
            }
        }
    }

    fn of_text(text: String) -> Result<Self, String> {
        line(&text)?;
        Ok(Self::Text(text))
    }
}

/// A text, number or truth value as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A value must fit on a line, and must not be all Markdown.
fn line(text: &str) -> Result<(), String> {
    let shown: String = text.chars().take(60).collect();
    if text.trim_matches(MARKS).trim().is_empty() {
        return Err(format!(
            "the value {shown:?} has no character that an answer can state"
        ));
    }
    match text.contains(char::is_control) || text.chars().count() > MAX_NAME {
        true => Err(format!(
            "the value {shown:?} has line breaks, or more than {MAX_NAME} characters; an answer is one line"
        )),
        false => Ok(()),
    }
}

/// A number without commas between groups of three digits; `None` if commas are elsewhere.
fn without_separators(text: &str) -> Option<String> {
    let whole = text.split('.').next().unwrap_or(text);
    let mut groups = whole.trim_start_matches(['+', '-']).split(',');
    let first = groups.next().unwrap_or_default();
    let mut rest = groups.peekable();
    if rest.peek().is_some() && !(1..=3).contains(&first.len()) {
        return None;
    }
    let plain = rest.all(|group| group.len() == 3) && text[whole.len()..].find(',').is_none();
    plain.then(|| text.replace(',', ""))
}

/// Tests of a program: APPS's object, also as JSON text, or a list of runs.
fn runs(value: &Value) -> Result<Answer, String> {
    let parsed: Value;
    let value = match value {
        Value::String(text) => {
            parsed = serde_json::from_str(text)
                .map_err(|error| format!("the text is no JSON: {error}"))?;
            &parsed
        }
        other => other,
    };
    let mut runs = match value {
        Value::Object(tests) if tests.contains_key("fn_name") => {
            return Err(
                "tests that call a function (`fn_name`) are not supported, only programs with input and output"
                    .into(),
            );
        }
        Value::Object(tests) => paired(tests.get("inputs"), tests.get("outputs"))?,
        Value::Array(items) => items.iter().map(run).collect::<Result<_, _>>()?,
        _ => return Err("write {\"inputs\": […], \"outputs\": […]}, or a list of runs".into()),
    };
    if runs.is_empty() {
        return Err("it has no test".into());
    }
    runs.truncate(MAX_RUNS);
    let bytes: usize = runs
        .iter()
        .map(|run| run.stdin.len() + run.stdout.len())
        .sum();
    match bytes > MAX_RUN_BYTES {
        true => Err(format!(
            "inputs and outputs have {bytes} bytes; at most {MAX_RUN_BYTES} are allowed"
        )),
        false => Ok(Answer::Runs(runs)),
    }
}

fn paired(inputs: Option<&Value>, outputs: Option<&Value>) -> Result<Vec<Run>, String> {
    let (Some(Value::Array(inputs)), Some(Value::Array(outputs))) = (inputs, outputs) else {
        return Err("`inputs` and `outputs` must be lists".into());
    };
    if inputs.len() != outputs.len() {
        return Err(format!(
            "there are {} inputs and {} outputs; each input needs its output",
            inputs.len(),
            outputs.len()
        ));
    }
    let pairs = inputs.iter().zip(outputs);
    let runs = pairs.map(|(stdin, stdout)| {
        let run = Run {
            args: Vec::new(),
            stdin: stream(stdin)?,
            stdout: stream(stdout)?,
        };
        Some(run)
    });
    let runs: Option<Vec<_>> = runs.collect();
    runs.ok_or_else(|| "an input or output is neither a text nor a list of lines".into())
}

/// A text, or a list of lines as some rows of APPS have it.
fn stream(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => {
            let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
            Some(lines?.join("\n"))
        }
        _ => None,
    }
}

fn run(value: &Value) -> Result<Run, String> {
    if value.is_string() {
        return Err(
            "tests that are statements of Python, such as MBPP's, are not supported; write runs with `stdin` and `stdout`"
                .into(),
        );
    }
    let text = |key: &str| match value.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` of a run is no text")),
    };
    let args = value
        .get("args")
        .and_then(Value::as_array)
        .map(Vec::as_slice);
    let args = args.unwrap_or_default().iter().map(plain);
    Ok(Run {
        args: args
            .collect::<Option<_>>()
            .ok_or("`args` of a run is no list of texts")?,
        stdin: text("stdin")?.unwrap_or_default(),
        stdout: text("stdout")?.ok_or("a run has no `stdout`")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const CHECKS: [AnswerCheck; 5] = [
        AnswerCheck::Denotation,
        AnswerCheck::Numeric,
        AnswerCheck::Text,
        AnswerCheck::Tests,
        AnswerCheck::Judge,
    ];

    fn fields() -> TaskSetFields {
        TaskSetFields {
            files: Some("tables".into()),
            id: Some("/meta/id".into()),
            ..TaskSetFields::default()
        }
    }

    fn row(row: &Value, check: AnswerCheck) -> Result<Row, String> {
        Row::of_json(row.to_string().as_bytes(), &fields(), check)
    }

    fn answer(value: Value, check: AnswerCheck) -> Result<Answer, String> {
        Answer::of_json(&value, check)
    }

    #[test]
    fn fields_are_keys_or_pointers() {
        let value = json!({
            "question": " Who? ", "answer": ["Ada", 3], "tables": "t/1.csv", "meta": {"id": 12}
        });
        let found = row(&value, AnswerCheck::Denotation).unwrap();
        assert_eq!(found.question, "Who?");
        assert_eq!(found.id.as_deref(), Some("12"));
        assert_eq!(found.files, [PathBuf::from("t/1.csv")]);
        let values = vec![("Ada".to_owned(), None), ("3".to_owned(), None)];
        assert_eq!(found.answer, Answer::Values(values));
    }

    #[test]
    fn a_bad_row_says_what_to_do() {
        let good = json!({"question": "q", "answer": "a", "tables": [], "meta": {"id": "x"}});
        let with = |key: &str, value: Value| {
            let mut changed = good.clone();
            changed[key] = value;
            row(&changed, AnswerCheck::Text).unwrap_err()
        };
        assert!(row(&good, AnswerCheck::Text).is_ok());
        for (error, part) in [
            (
                with("question", json!(null)),
                "the field `question` is missing (the row has question, answer",
            ),
            (with("question", json!(" ")), "`question` is blank"),
            (with("question", json!(3)), "`question` is no text"),
            (with("meta", json!({})), "the field `/meta/id` is missing"),
            (
                with("tables", json!("../x")),
                "leaves the folder of the set",
            ),
            (with("tables", json!("/etc/passwd")), "leaves the folder"),
            (with("tables", json!([1])), "neither a path nor a list"),
            (with("answer", json!("a\nb")), "an answer is one line"),
            (with("answer", json!("**")), "no character that an answer"),
            (
                Row::of_json(b"{\"question\": \"q", &fields(), AnswerCheck::Text).unwrap_err(),
                "column 15: it is no JSON object",
            ),
            (
                Row::of_json(b"[]", &fields(), AnswerCheck::Text).unwrap_err(),
                "it is no JSON object; write",
            ),
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn numbers_are_read_as_gsm8k_writes_them() {
        for (value, number) in [
            (json!(42), "42.0"),
            (json!("42"), "42.0"),
            (json!("She has 2 + 2 = 4.\n#### 1,234"), "1234.0"),
            (json!("#### -$5"), ""),
            (json!("$1,000.50"), "1000.5"),
            (json!(" -0.25 "), "-0.25"),
            (json!("1e3"), "1000.0"),
            (json!("abc"), ""),
            (json!("1,23"), ""),
            (json!("1234,567"), ""),
            (json!("1.5,000"), ""),
            (json!("nan"), ""),
            (json!("inf"), ""),
            (json!("####"), ""),
            (json!([1]), ""),
        ] {
            let found = answer(value.clone(), AnswerCheck::Numeric);
            match number {
                "" => assert!(found.is_err(), "{value}: {found:?}"),
                number => assert_eq!(found, Ok(Answer::Number(number.into())), "{value}"),
            }
        }
    }

    #[test]
    fn tests_are_inputs_with_outputs() {
        let apps = json!({"inputs": ["1\n", ["2", "3"]], "outputs": ["2\n", "5"]});
        let run = |stdin: &str, stdout: &str| Run {
            args: vec![],
            stdin: stdin.into(),
            stdout: stdout.into(),
        };
        let expected = Answer::Runs(vec![run("1\n", "2\n"), run("2\n3", "5")]);
        assert_eq!(
            answer(apps.clone(), AnswerCheck::Tests),
            Ok(expected.clone())
        );
        let text = Value::String(apps.to_string());
        assert_eq!(answer(text, AnswerCheck::Tests), Ok(expected));
        let listed = json!([{"args": [1], "stdout": "2"}]);
        let Ok(Answer::Runs(runs)) = answer(listed, AnswerCheck::Tests) else {
            panic!()
        };
        assert_eq!((runs[0].args.len(), runs[0].stdin.as_str()), (1, ""));
        for (bad, part) in [
            (
                json!({"inputs": [1], "outputs": []}),
                "1 inputs and 0 outputs",
            ),
            (json!({"inputs": [1], "outputs": [1]}), "neither a text nor"),
            (json!({"fn_name": "f"}), "call a function"),
            (json!(["assert f(1) == 2"]), "statements of Python"),
            (json!([{"stdin": "1"}]), "no `stdout`"),
            (json!([]), "no test"),
            (json!("x"), "no JSON"),
        ] {
            let error = answer(bad, AnswerCheck::Tests).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_question_that_leaves_no_room_is_refused() {
        let of = |length: usize| {
            let value = json!({"question": "x".repeat(length), "tables": [], "meta": {"id": 1}});
            row(&value, AnswerCheck::Judge).unwrap().length_problem()
        };
        assert_eq!(of(MAX_QUERY - MARGIN), None);
        assert!(
            of(MAX_QUERY - MARGIN + 1)
                .unwrap()
                .contains("3401 characters")
        );
    }

    #[test]
    fn fuzz_rows() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for check in CHECKS {
                if let Ok(row) = Row::of_json(bytes, &TaskSetFields::default(), check) {
                    assert!(!row.question.is_empty());
                }
            }
        });
    }

    proptest! {
        /// Every number that Rust prints is read back.
        #[test]
        fn numbers_survive(number in proptest::num::f64::NORMAL) {
            let found = answer(json!(format!("#### {number:?}")), AnswerCheck::Numeric);
            prop_assert_eq!(found, Ok(Answer::Number(format!("{number:?}"))));
        }

        /// No path leaves the folder.
        #[test]
        fn paths_stay(path in "[./a]{0,12}") {
            if let Ok(path) = file(&json!(path)) {
                let leaves = |part| matches!(part, Component::ParentDir | Component::RootDir);
                prop_assert!(!path.components().any(leaves));
            }
        }

        /// Values of any JSON are refused or fit on a line.
        #[test]
        fn values_fit_on_a_line(texts in proptest::collection::vec(".{0,8}", 0..4)) {
            if let Ok(Answer::Values(values)) = answer(json!(texts), AnswerCheck::Denotation) {
                prop_assert!(values.iter().all(|(text, _)| !text.contains(['|', '\n'])));
            }
        }
    }
}
