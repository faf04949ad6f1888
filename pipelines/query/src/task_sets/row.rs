//! One row of a task set: a question, its answer and its files. The text is from outside.

use std::path::{Component, Path, PathBuf};

use pybench_run::{AnswerCheck, TaskSetFields};
use pybench_types::task::MAX_QUERY;
use serde_json::Value;

use super::program_tests::{ProgramTests, lines, plain};

/// Maximum length of ids, licenses, sources, paths and values, in characters.
const MAX_NAME: usize = 500;
/// Maximum number of files of a row.
const MAX_FILES: usize = 20;
/// Maximum number of values of a denotation.
const MAX_VALUES: usize = 200;
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
    /// A mathematical answer, in LaTeX or plain notation.
    Formula(String),
    Tests(ProgramTests),
    /// A judge decides.
    Judged,
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
        let question = match &fields.conversation {
            None => text(&row, &fields.question)?,
            Some(field) => first_user_turn(found(&row, field)?)
                .map_err(|reason| format!("`{field}`: {reason}"))?,
        };
        let mut answer = match check {
            AnswerCheck::Judge => Answer::Judged,
            check => {
                let value = found(&row, &fields.answer)?;
                Answer::of_json(value, check)
                    .map_err(|reason| format!("`{}`: {reason}", fields.answer))?
            }
        };
        if let (Answer::Tests(ProgramTests::Asserts { setup, .. }), Some(field)) =
            (&mut answer, &fields.setup)
        {
            *setup = lines(found(&row, field)?)
                .ok_or_else(|| format!("`{field}` is neither a text nor a list of texts"))?;
        }
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

/// The first turn of the user in a conversation.
fn first_user_turn(conversation: &Value) -> Result<String, String> {
    let messages = conversation.as_array().ok_or("it is no list of messages")?;
    for (number, message) in messages.iter().enumerate() {
        let either = |keys: [&str; 2]| keys.iter().find_map(|key| message.get(*key));
        let role = either(["role", "from"]).and_then(Value::as_str);
        let role = role.ok_or_else(|| format!("message {} has no `role`", number + 1))?;
        match role {
            "system" | "tool" => continue,
            "user" | "human" => {}
            other => {
                return Err(format!(
                    "message {} is by `{other}`, before any of the user",
                    number + 1
                ));
            }
        }
        let text = either(["content", "value"])
            .and_then(Value::as_str)
            .map(str::trim);
        let text = text.ok_or_else(|| format!("message {} has no text", number + 1))?;
        return match text.is_empty() {
            true => Err(format!("message {} is blank", number + 1)),
            false => Ok(text.to_owned()),
        };
    }
    Err("it has no message of the user".into())
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
            AnswerCheck::Symbolic => Self::of_formula(&plain(value).ok_or("it is no text")?),
            AnswerCheck::Tests => ProgramTests::of_json(value).map(Self::Tests),
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

    /// A formula, or a text whose last `\boxed{…}` holds it.
    fn of_formula(text: &str) -> Result<Self, String> {
        let formula = last_boxed(text)?.unwrap_or(text);
        let formula = formula.split_whitespace().collect::<Vec<_>>().join(" ");
        line(&formula)?;
        Ok(Self::Formula(formula))
    }

    fn of_text(text: String) -> Result<Self, String> {
        line(&text)?;
        Ok(Self::Text(text))
    }
}

/// What the last `\boxed{…}` of a text holds, if there is one.
fn last_boxed(text: &str) -> Result<Option<&str>, String> {
    const START: &str = "\\boxed{";
    let Some(at) = text.rfind(START) else {
        return Ok(None);
    };
    let inner = &text[at + START.len()..];
    let mut depth = 1;
    for (end, c) in inner.char_indices() {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Ok(Some(&inner[..end]));
        }
    }
    Err("the last `\\boxed{` is not closed".into())
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const CHECKS: [AnswerCheck; 6] = [
        AnswerCheck::Denotation,
        AnswerCheck::Numeric,
        AnswerCheck::Text,
        AnswerCheck::Symbolic,
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
    fn assertions_have_a_setup() {
        let value = json!({
            "text": "Double a number.", "test_list": ["assert f(1) == 2"], "test_imports": ["import math", "x = 1"]
        });
        let fields = TaskSetFields {
            question: "text".into(),
            answer: "test_list".into(),
            setup: Some("test_imports".into()),
            ..TaskSetFields::default()
        };
        let row =
            |value: &Value| Row::of_json(value.to_string().as_bytes(), &fields, AnswerCheck::Tests);
        let expected = Answer::Tests(ProgramTests::Asserts {
            setup: "import math\nx = 1".into(),
            tests: vec!["assert f(1) == 2".into()],
        });
        assert_eq!(row(&value).unwrap().answer, expected);
        let mut changed = value.clone();
        changed["test_imports"] = json!(3);
        let error = row(&changed).unwrap_err();
        assert!(
            error.contains("`test_imports` is neither a text nor"),
            "{error}"
        );
    }

    #[test]
    fn formulas_are_those_of_the_last_box() {
        for (value, formula) in [
            (json!("\\frac{3}{4}"), "\\frac{3}{4}"),
            (json!(12), "12"),
            (
                json!("So \\boxed{1}, hence $\\boxed{\\frac{3}\n  {4}}$."),
                "\\frac{3} {4}",
            ),
            (json!("\\boxed{\\frac{1}{2}"), ""),
            (json!("\\boxed{}"), ""),
            (json!([1]), ""),
        ] {
            let found = answer(value.clone(), AnswerCheck::Symbolic);
            match formula {
                "" => assert!(found.is_err(), "{value}: {found:?}"),
                formula => assert_eq!(found, Ok(Answer::Formula(formula.into())), "{value}"),
            }
        }
    }

    #[test]
    fn the_first_turn_of_the_user_is_the_question() {
        let turn = |messages: Value| {
            let fields = TaskSetFields {
                conversation: Some("c".into()),
                ..TaskSetFields::default()
            };
            let line = json!({"c": messages}).to_string();
            Row::of_json(line.as_bytes(), &fields, AnswerCheck::Judge).map(|row| row.question)
        };
        let messages = json!([
            {"role": "system", "content": "Be exact."}, {"role": "user", "content": " Sort it. "},
            {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Faster."}
        ]);
        assert_eq!(turn(messages), Ok("Sort it.".into()));
        let sharegpt =
            json!([{"from": "human", "value": "Sort it."}, {"from": "gpt", "value": "Done."}]);
        assert_eq!(turn(sharegpt), Ok("Sort it.".into()));
        for (messages, part) in [
            (json!("Sort it."), "`c`: it is no list of messages"),
            (json!([]), "no message of the user"),
            (json!([{"content": "x"}]), "message 1 has no `role`"),
            (
                json!([{"role": "user", "content": " "}]),
                "message 1 is blank",
            ),
            (
                json!([{"role": "user", "content": [1]}]),
                "message 1 has no text",
            ),
            (
                json!([{"from": "gpt", "value": "x"}, {"from": "human", "value": "y"}]),
                "message 1 is by `gpt`, before any of the user",
            ),
        ] {
            let error = turn(messages).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
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
