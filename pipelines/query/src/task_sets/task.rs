//! A task made of a row: its query asks for a final answer on a line of its own, its check compares that line.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use pybench_files::name::{safe_name, with_tag};
use pybench_files::read_regular;
use pybench_files::sniff::{Sniffed, sniff};
use pybench_profile::profile_bounded;
use pybench_run::{ContentStore, Failure, FailureKind};
use pybench_types::check::CheckSpec;
use pybench_types::id::Digest;
use pybench_types::task::{Language, MAX_QUERY, Profile, Task, TaskFile, TaskOrigin};
use serde_json::Value;

use super::program_tests::ProgramTests;
use super::row::{Answer, Row};
use super::spec::SetSpec;

/// Label of the answer.
const MARKER: &str = "Answer";
/// The program that tests run.
const PROGRAM: &str = "output/solution.py";
/// Reference variable.
const EXPECTED: &str = "expected";

/// What tasks of all sets share.
pub(super) struct Places {
    pub store: ContentStore,
    /// Largest file.
    pub max_bytes: u64,
    /// Tables that no task may have.
    pub test_tables: HashSet<Digest>,
}

/// The task of a row. Its files are put into the store.
///
/// # Errors
/// A file cannot be read, or is too large.
pub(super) async fn make(
    row: &Row,
    spec: &SetSpec,
    name: String,
    places: &Places,
) -> Result<Task, Failure> {
    let mut files: Vec<TaskFile> = Vec::new();
    for path in &row.files {
        let mut file = add_file(path, row, spec, places).await?;
        if files.iter().any(|other| other.name == file.name) {
            file.name = with_tag(&file.name, &(files.len() + 1).to_string());
        }
        files.push(file);
    }
    let language = language(&row.question);
    let (check, reference) = check(&row.answer, spec.tolerance);
    let outputs = match row.answer {
        Answer::Tests(_) => vec![PROGRAM.to_owned()],
        _ => Vec::new(),
    };
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: spec.category(row),
        subcategory: "task set".into(),
        keyword: spec.name.clone(),
        language,
        query: query(row, &files, language),
        files,
        held_out: Vec::new(),
        outputs,
        reference,
        checks: check.into_iter().collect(),
        origin: TaskOrigin::TaskSet {
            set: spec.name.clone(),
            row: name,
            license: spec.license(row),
            source: spec.source(row).to_owned(),
        },
    };
    let length = task.query.chars().count();
    if length > MAX_QUERY {
        let text = format!("the query has {length} characters; at most {MAX_QUERY} are allowed");
        return Err(Failure::new(FailureKind::Item, text));
    }
    task.id = task.compute_id();
    Ok(task)
}

async fn add_file(
    path: &Path,
    row: &Row,
    spec: &SetSpec,
    places: &Places,
) -> Result<TaskFile, Failure> {
    let shown = path.display().to_string();
    let bad = |reason: String| Failure::new(FailureKind::Item, format!("{shown}: {reason}"));
    let bytes = read_regular(&spec.folder.join(path), places.max_bytes)
        .map_err(|error| bad(format!("{error}; `crawl.file_mib` bounds files")))?;
    let original = Digest::of_bytes(&bytes);
    let rewritten = spec.rewritten(&bytes).map_err(bad)?;
    let derived_from = rewritten.is_some().then(|| original.clone());
    let bytes = rewritten.unwrap_or(bytes);
    let kind = match sniff(&shown, &bytes) {
        Sniffed::File(kind) => kind,
        Sniffed::Broken(_, reason) | Sniffed::Unknown(reason) => return Err(bad(reason)),
        Sniffed::Archive(_) => return Err(bad("it is an archive; unpack it".into())),
    };
    let id = places.store.put(&bytes)?;
    if places.test_tables.contains(&id) || places.test_tables.contains(&original) {
        return Err(bad(
            "it is a table of the test split of WikiTableQuestions, on which models are measured"
                .into(),
        ));
    }
    let profile = profile_bounded(kind, Arc::new(bytes)).await;
    if let Profile::Broken { reason } = profile {
        return Err(bad(reason));
    }
    Ok(TaskFile {
        name: safe_name(&shown, kind),
        id,
        kind,
        origin: format!("{}#{shown}", spec.source(row)),
        license: Some(spec.license(row)),
        derived_from,
        format: profile.format(),
    })
}

/// The language of a question, by its characters.
fn language(question: &str) -> Language {
    let chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    match question.contains(chinese) {
        true => Language::Zh,
        false => Language::En,
    }
}

/// The question, where its files are, and how to answer.
fn query(row: &Row, files: &[TaskFile], language: Language) -> String {
    let chinese = language == Language::Zh;
    let names: Vec<String> = files
        .iter()
        .map(|file| format!("./data/{}", file.name))
        .collect();
    let place = match (names.len(), chinese) {
        (0, _) => String::new(),
        (1, false) => format!("The file is {}. ", names[0]),
        (_, false) => format!("The files are {}. ", names.join(", ")),
        (_, true) => format!("文件：{}。", names.join("、")),
    };
    let form = match (&row.answer, chinese) {
        (Answer::Values(_), false) => {
            "End your final message with a line `Answer: VALUE`: a value as it stands in the data, or a number. Separate \
             several values with ` | `."
        }
        (Answer::Values(_), true) => {
            "最后一条消息以一行 `Answer: 值` 结束：数据中的原值，或一个数字。多个值用 ` | ` 分隔。"
        }
        (Answer::Number(_), false) => {
            "End your final message with a line `Answer: NUMBER`, the number alone."
        }
        (Answer::Number(_), true) => "最后一条消息以一行 `Answer: 数字` 结束，只写这个数字。",
        (Answer::Text(_), false) => {
            "End your final message with a line `Answer: TEXT`, the answer alone."
        }
        (Answer::Text(_), true) => "最后一条消息以一行 `Answer: 文本` 结束，只写答案。",
        (Answer::Formula(_), false) => {
            "End your final message with a line `Answer: FORMULA`, the answer alone, in LaTeX or plain notation."
        }
        (Answer::Formula(_), true) => {
            "最后一条消息以一行 `Answer: 公式` 结束，只写答案，用 LaTeX 或普通写法。"
        }
        (Answer::Tests(tests), _) => &program_form(tests, chinese),
        (Answer::Judged, _) => "",
    };
    format!("{}\n\n{place}{form}", row.question)
        .trim_end()
        .to_owned()
}

/// What the program must be like for its tests.
fn program_form(tests: &ProgramTests, chinese: bool) -> String {
    match (tests, chinese) {
        (ProgramTests::Runs(_), false) => {
            "Write the program to ./output/solution.py. It reads standard input and writes to standard output.".into()
        }
        (ProgramTests::Runs(_), true) => {
            "把程序写入 ./output/solution.py。它从标准输入读取，并写到标准输出。".into()
        }
        (ProgramTests::Asserts { tests, .. }, false) => format!(
            "Write the code to ./output/solution.py. Tests use what it defines, such as:\n\n{}",
            tests[0]
        ),
        (ProgramTests::Asserts { tests, .. }, true) => format!(
            "把代码写入 ./output/solution.py。测试会使用其中的定义，例如：\n\n{}",
            tests[0]
        ),
        (ProgramTests::Results { function, .. }, false) => format!(
            "Write the code to ./output/solution.py. Tests call its function `{function}`, or the method of this name of a \
             class `Solution`."
        ),
        (ProgramTests::Results { function, .. }, true) => format!(
            "把代码写入 ./output/solution.py。测试会调用函数 `{function}`，或类 `Solution` 的同名方法。"
        ),
    }
}

/// The check of an answer, and the reference that defines what it expects.
fn check(answer: &Answer, tolerance: f64) -> (Option<CheckSpec>, String) {
    let (marker, expected) = (MARKER.to_owned(), EXPECTED.to_owned());
    let (check, value) = match answer {
        Answer::Values(values) => {
            let pairs = values.iter().map(|(text, canon)| match canon {
                Some(canon) => Value::from(vec![text.as_str(), canon]),
                None => Value::from(text.as_str()),
            });
            let value = Value::Array(pairs.collect()).to_string();
            (CheckSpec::Denotation { marker, expected }, value)
        }
        Answer::Number(number) => {
            let check = CheckSpec::Number {
                marker,
                expected,
                rtol: tolerance,
                atol: 0.0,
                digits: None,
                decimals: None,
            };
            (check, number.clone())
        }
        Answer::Text(text) => {
            let check = CheckSpec::Values {
                marker,
                expected,
                ordered: false,
                rtol: tolerance,
                digits: None,
                decimals: None,
            };
            (check, Value::from(text.as_str()).to_string())
        }
        Answer::Formula(formula) => {
            let value = Value::from(formula.as_str()).to_string();
            (CheckSpec::Symbolic { marker, expected }, value)
        }
        Answer::Tests(tests) => {
            let path = PROGRAM.to_owned();
            let check = match tests.call_functions() {
                true => CheckSpec::Calls { path, expected },
                false => CheckSpec::Program {
                    path,
                    expected,
                    contains: false,
                    standard_library: false,
                },
            };
            (check, tests_reference(tests))
        }
        Answer::Judged => return (None, String::new()),
    };
    // Texts, numbers, lists and objects of JSON are literals of Python.
    (Some(check), format!("{EXPECTED} = {value}\n"))
}

/// The tests in Python.
fn tests_reference(tests: &ProgramTests) -> String {
    match tests {
        ProgramTests::Runs(runs) => serde_json::json!(runs).to_string(),
        ProgramTests::Asserts { setup, tests } => {
            let (setup, tests) = (serde_json::json!(setup), serde_json::json!(tests));
            format!("ref.assertions({setup}, {tests})")
        }
        ProgramTests::Results {
            function,
            arguments,
            results,
        } => {
            // As a text, because JSON's `true` and `null` are no literals of Python.
            let tests = serde_json::json!({"inputs": arguments, "outputs": results}).to_string();
            let (function, tests) = (serde_json::json!(function), serde_json::json!(tests));
            format!("ref.calls_of({function}, {tests})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(question: &str, answer: Answer) -> Row {
        Row {
            id: None,
            question: question.into(),
            answer,
            files: Vec::new(),
            license: None,
            source: None,
        }
    }

    #[test]
    fn queries_say_how_to_answer_in_their_language() {
        let number = || Answer::Number("2.0".into());
        let text = query(&row("How many?", number()), &[], Language::En);
        assert_eq!(
            text,
            "How many?\n\nEnd your final message with a line `Answer: NUMBER`, the number alone."
        );
        let text = query(&row("有多少？", number()), &[], language("有多少？"));
        assert!(text.ends_with("只写这个数字。"), "{text}");
        let text = query(&row("Write it.", Answer::Judged), &[], Language::En);
        assert_eq!(text, "Write it.");
    }

    #[test]
    fn references_are_python() {
        let values = vec![
            ("a \"b\"".to_owned(), None),
            ("17 years".to_owned(), Some("17".to_owned())),
        ];
        let (_, reference) = check(&Answer::Values(values), 0.0);
        assert_eq!(
            reference,
            "expected = [\"a \\\"b\\\"\",[\"17 years\",\"17\"]]\n"
        );
        let (_, reference) = check(&Answer::Number("-2.5".into()), 0.0);
        assert_eq!(reference, "expected = -2.5\n");
    }
}
