use std::fs;

use serde_json::json;

use super::super::evaluator_tests::{
    EvaluatorCase, assert_only_reference_passes, assert_upstream, audited_replies, checkout, env,
    score_all,
};
use super::*;

fn row(expected: &str, text: &str) -> Row {
    Row {
        name: "a/b".to_owned(),
        tools: vec![("f(x)".to_owned(), "Does f.".to_owned())],
        instruction: "q".to_owned(),
        expected: expected.to_owned(),
        expected_text: text.to_owned(),
    }
}

fn question(row: Row) -> ToolQuestion {
    ToolQuestion::new(row, Arc::default()).unwrap()
}

#[test]
fn replies_are_scored() {
    for (expected, text, answer, upstream, strict) in [
        ("161.25", "161.25", "161.25", true, true),
        ("161.25", "161.25", "1.6125e2", true, true),
        ("161.25", "161.25", "161", true, false),
        ("161.25", "161.25", "161.5", false, false),
        (
            "380.41999999999996",
            "380.41999999999996",
            "380.42",
            false,
            true,
        ),
        ("8100.0", "8100.0", "8100", true, true),
        ("False", "False", "0", true, false),
        ("False", "False", "False", true, true),
        ("False", "False", "false", false, false),
        ("'UUU'", "UUU", "UUU", true, true),
        ("'UUU'", "UUU", "'UUU'", true, true),
        ("'UUU'", "UUU", "uuu", false, false),
        ("('A', 3)", "('A', 3)", "('A', 3)", true, true),
        ("('A', 3)", "('A', 3)", "('A',3)", false, true),
        ("[1.0, 2.0]", "[1.0, 2.0]", "[1.0, 2.0]", true, true),
        ("[1.0, 2.0]", "[1.0, 2.0]", "1, 2", false, true),
        ("[1.0, 2.0]", "[1.0, 2.0]", "[2, 1]", false, false),
        ("{'T': 1}", "{'T': 1}", "{\"T\": 1}", false, true),
        ("3", "3", "3 nights", false, false),
        ("3", "3", "", false, false),
    ] {
        let question = question(row(expected, text));
        let reply = format!("So:\nAnswer: {answer}\n");
        assert_eq!(question.upstream(&reply), Some(upstream), "{text}: {reply}");
        let found = question.strict(&reply).is_ok();
        assert_eq!(found, strict, "{text}: {reply}");
    }
    let cents = Row {
        instruction: "in the format of 'xx.xx'".to_owned(),
        ..row("237.942", "237.942")
    };
    for (answer, right) in [("237.94", true), ("237.95", false), ("237", false)] {
        assert_eq!(
            question(cents.clone())
                .strict(&format!("Answer: {answer}"))
                .is_ok(),
            right
        );
    }
}

#[test]
fn references_pass_and_prompts_and_wrong_answers_fail() {
    for (expected, text) in [
        ("161.25", "161.25"),
        ("3", "3"),
        ("False", "False"),
        ("'a b'", "a b"),
        ("[1.0, 2.0]", "[1.0, 2.0]"),
        ("('A', 3)", "('A', 3)"),
    ] {
        let question = question(row(expected, text));
        assert_only_reference_passes(&question);
        assert_eq!(question.upstream(&question.reference()), Some(true));
    }
    assert!(ToolQuestion::new(row("<object>", ""), Arc::default()).is_err());
}

#[test]
fn fuzz_replies() {
    let questions = [("161.25", "161.25"), ("'a'", "a"), ("[1]", "[1]")];
    let questions = questions.map(|(expected, text)| Arc::new(question(row(expected, text))));
    bolero::check!().for_each(|bytes: &[u8]| {
        let reply = format!("Answer:{}", String::from_utf8_lossy(bytes));
        score_all(&questions, &reply);
    });
}

fn opened(root: &Path) -> M3ToolEval {
    M3ToolEval {
        root: root.to_owned(),
        listed: OnceLock::new(),
    }
}

/// Files in the layout of the benchmark.
fn small(root: &Path) {
    let module = "from ..base import Task, register_task_iterator, ToolType
LOW = 1
def f(x):
    return x + LOW
TOOLS = {'f': ToolType(name='f', description='Adds.', function=f, fn_signature='f(x)'),
         'sum': ToolType(name='sum', description='Sum.', function=lambda *args: sum(args), fn_signature='sum(*args)')}
CUR_TOOLS = TOOLS
TASKS = [Task(name='NAME/one', tools=TOOLS, instruction='What is f(1)?', expected_output=f(1), is_single_tool_task=False)]
register_task_iterator(TASKS, len(TASKS))
";
    let pages = "import json, os
with open(os.path.join(os.path.dirname(__file__), 'web_pages.jsonl')) as file:
    PAGES = file.read()
with open(os.path.join(os.path.dirname(__file__), 'metadata.json')) as file:
    METADATA = json.load(file)
def create_tools():
    return TOOLS
TASKS = [Task(name='NAME/one', tools=create_tools, instruction='q', expected_output=METADATA['answer'])]
";
    for path in MODULES {
        let text = match path {
            "impl/web_browsing/metadata.json" => "{\"answer\": \"secret\"}".to_owned(),
            "impl/web_browsing/web_pages.jsonl" => "{}\n".to_owned(),
            "impl/web_browsing/__init__.py" => {
                module
                    .replace("..base", "...base")
                    .split("TASKS")
                    .next()
                    .unwrap()
                    .to_owned()
                    + pages
            }
            _ => module.to_owned(),
        };
        let text = text.replace("NAME", path);
        let path = root.join(FOLDER).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[tokio::test]
async fn tasks_are_listed_in_the_sandbox_and_their_functions_are_a_file() {
    let root = tempfile::tempdir().unwrap();
    let Some(env) = env(&root.path().join("run")) else {
        return;
    };
    small(root.path());
    let suite = opened(root.path());
    let tasks = suite.tasks(&env, &Selection::default()).await.unwrap();
    assert_eq!((tasks.available.len(), tasks.unavailable.len()), (5, 0));
    let task = &tasks.available[4].task;
    assert_eq!(suite.solution(task).unwrap().answer, "Answer: secret");
    let store = env.folder.store();
    let inputs = task.files.iter().map(|file| {
        let path = store.checked_path(&file.id).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("secret") && !text.contains("TASKS"),
            "{text}"
        );
        (format!("data/{}", file.name), path)
    });
    let spec = SessionSpec {
        inputs: inputs.collect(),
        ..SessionSpec::default()
    };
    let mut session = env.interpreter.start(spec).await.unwrap();
    let cell = "from data.tools import *\nprint(f(1), sum(1, 2))";
    let seen = session.execute(cell).await.unwrap();
    session.close().await.unwrap();
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert!(
        format!("{:?}", seen.outputs).contains("2 3"),
        "{:?}",
        seen.outputs
    );
}

#[tokio::test]
async fn files_that_are_no_such_modules_are_reported() {
    let root = tempfile::tempdir().unwrap();
    let Some(env) = env(&root.path().join("run")) else {
        return;
    };
    small(root.path());
    let path = root.path().join(FOLDER).join("impl/dna_sequencer.py");
    fs::write(&path, "TASKS = [").unwrap();
    let error = opened(root.path()).list(&env).await.err().unwrap();
    let error = error.to_string();
    assert!(error.contains("listing the tasks failed"), "{error}");
    assert!(error.contains("dna_sequencer.py"), "{error}");
    fs::remove_file(path).unwrap();
    let error = opened(root.path()).list(&env).await.err().unwrap();
    assert!(error.to_string().contains("dna_sequencer.py"), "{error}");
}

/// Their reading of a reply and their check; the packages that only their agent needs are replaced.
const PROGRAM: &str = r#"
import ast, importlib, json, sys, types
for name in ("tqdm", "IPython", "IPython.core", "IPython.core.interactiveshell", "IPython.utils", "tasks.repl"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["tqdm"].tqdm = sys.modules["tasks.repl"].PythonREPL = None
package = types.ModuleType("tasks")
package.__path__ = [sys.argv[1]]
sys.modules["tasks"] = package
Task = importlib.import_module("tasks.base").Task
results = []
for reply, expected in json.load(sys.stdin):
    task = Task.__new__(Task)
    task.expected_output = ast.literal_eval(expected)
    parsed = task.parse_generation(reply)
    results.append(parsed["type"] == "answer" and task.check_answer(parsed["content"]))
print(json.dumps(results))
"#;

/// Right, wrong and malformed replies.
fn planted(question: &dyn Question) -> Vec<String> {
    let expected = question.expected();
    let mut replies = audited_replies(question);
    let number = expected.parse::<f64>().ok();
    let shifts = [0.0, 0.25, -0.25, 1e-9, 1.0];
    let shifted = shifts.iter().filter_map(|shift| number.map(|n| n + shift));
    let answers = shifted.flat_map(|n| [n.to_string(), format!("{n:.2}"), format!("{n:e}")]);
    let answers = answers.chain([
        expected.to_uppercase(),
        expected.to_lowercase(),
        format!("\u{a0}{expected}\u{1c}"),
        format!("+{expected}"),
        format!("-{expected}"),
        format!("({expected})"),
        format!("[{expected}]"),
        format!("{expected},"),
        format!("'{expected}'"),
        format!("\"\"\"{expected}\"\"\""),
        format!("'' u'{expected}'"),
        format!("r'{expected}'"),
        format!("b'{expected}'"),
        format!("{expected} # so"),
        format!("{expected}.0"),
        format!("{expected}0"),
        format!("{expected}e0"),
        format!("0{expected}"),
        format!("0_{expected}"),
        format!("${expected}"),
        format!("{expected}\nThat is all."),
        format!("**{expected}**"),
        expected.replace(", ", ","),
        expected.replace(".0", ""),
        expected.replace(['[', ']', '(', ')'], ""),
        expected.replace('\'', "\""),
        "0".to_owned(),
        "1".to_owned(),
        "nan".to_owned(),
        "inf".to_owned(),
        "True".to_owned(),
        "false".to_owned(),
        "None".to_owned(),
        "[".to_owned(),
        "{[]: 1}".to_owned(),
    ]);
    replies.extend(answers.map(|answer| format!("Answer: {answer}")));
    replies.extend([
        format!("Answer: x\nAnswer: {expected}"),
        format!("Answer:{expected}Answer: x"),
        format!("answer: {expected}"),
        format!("Answer:\n\n{expected}\n"),
    ]);
    replies
}

#[tokio::test]
async fn the_upstream_score_equals_the_authors_evaluator() {
    let Some(root) = checkout(&ENTRY) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(env) = env(folder.path()) else {
        return;
    };
    let modules = opened(&root).modules(&env).await.unwrap();
    let rows = modules.into_iter().flat_map(|module| module.tasks);
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), COUNT);
    let questions = rows.iter().map(|row| question(row.clone()));
    let questions: Vec<_> = questions.collect();
    let mut cases = Vec::new();
    for (question, row) in questions.iter().zip(&rows) {
        let replies = planted(question).into_iter();
        cases.extend(replies.map(|reply| EvaluatorCase {
            question,
            asked: json!([reply, row.expected]),
            reply,
        }));
    }
    let passed = assert_upstream(PROGRAM, &root.join(FOLDER), &cases);
    assert!(passed > 300, "{passed}");
}
