use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pybench::llm::Price;
use pybench::trajectory::Usage;

use std::path::Path;

use super::*;
use crate::eval::lines::FileError;
use crate::eval::record::tests::frozen;
use crate::eval::record::{AgentKind, Evaluation};
use crate::eval::stats::{Measure, summarise};

type Say = dyn Fn(&str) -> Result<String, TeacherError> + Send + Sync;

/// Answers by a function of the prompt.
struct Scripted(Box<Say>, AtomicUsize);

#[async_trait]
impl Teacher for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(Reply {
            content: (self.0)(&request.messages[0].content)?,
            usage: Usage::default(),
            truncated: false,
            fault: None,
        })
    }
}

/// Files in the format of the sets, made by us.
fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let code = |id: &str, entry: &str, arguments: &str, body: &str, base: &str, plus: &str| {
        format!(
            "{{\"task_id\":\"{id}\",\"prompt\":\"def {entry}({arguments}):\\n\",\"entry_point\":\"{entry}\",\"canonical_solution\":\"    return {body}\\n\",\"base_input\":{base},\"plus_input\":{plus},\"atol\":0}}\n"
        )
    };
    let humaneval = [
        code(
            "HumanEval/0",
            "double",
            "x",
            "x * 2",
            "[[1],[2]]",
            "[[0.5],[-3]]",
        ),
        code(
            "HumanEval/1",
            "largest",
            "xs",
            "max(xs)",
            "[[[3,1]]]",
            "[[[-1,-2]],[[]]]",
        ),
        code("HumanEval/2", "spin", "x", "x", "[[1]]", "[]"),
    ];
    std::fs::write(
        folder.path().join("HumanEvalPlus.jsonl"),
        humaneval.concat(),
    )
    .unwrap();
    let gsm8k = "{\"question\":\"What is 3 + 4?\",\"answer\":\"3+4=7\\n#### 7\"}\n{\"question\":\"1000 + 1?\",\"answer\":\"#### 1,001\"}\n";
    std::fs::write(folder.path().join("gsm8k_test.jsonl"), gsm8k).unwrap();
    std::fs::create_dir(folder.path().join("mmlu")).unwrap();
    std::fs::write(
        folder.path().join("mmlu/logic_test.csv"),
        "\"Is it, then?\",no,yes,maybe,never,B\nTwice?,1,2,3,4,C\n",
    )
    .unwrap();
    folder
}

fn interpreter() -> Option<Arc<dyn Interpreter>> {
    match pybench::interpreter::interpreter(&Default::default()) {
        Ok(interpreter) => Some(interpreter),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn examination(
    interpreter: Arc<dyn Interpreter>,
    say: impl Fn(&str) -> Result<String, TeacherError> + Send + Sync + 'static,
) -> Examination {
    Examination {
        agent: "m".into(),
        teacher: Arc::new(Scripted(Box::new(say), AtomicUsize::new(0))),
        interpreter,
        sampling: Sampling::default(),
        concurrency: 2,
    }
}

fn passed(attempts: &[Attempt], suite: &str) -> Vec<Option<bool>> {
    attempts
        .iter()
        .filter(|a| a.suite == suite)
        .map(|a| a.scores.upstream)
        .collect()
}

#[tokio::test]
async fn programs_are_scored_as_their_known_solutions() {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let folder = files();
    let set = load(&folder.path().join("HumanEvalPlus.jsonl")).unwrap();
    let right = |prompt: &str| {
        let body = match prompt {
            p if p.contains("double") => "def double(x):\n    return x + x",
            p if p.contains("largest") => "def largest(xs):\n    return sorted(xs)[-1]",
            _ => "def spin(x):\n    return x",
        };
        Ok(format!("```python\n{body}\n```"))
    };
    let attempts = examine(&set, &examination(interpreter.clone(), right)).await;
    assert_eq!(
        passed(&attempts, "humaneval"),
        [Some(true); 3],
        "{attempts:?}"
    );
    assert_eq!(passed(&attempts, "humaneval+"), [Some(true); 3]);
    // Right on the base tests alone; wrong; without end.
    let half = |prompt: &str| {
        let body = match prompt {
            p if p.contains("double") => "def double(x):\n    return int(x) * 2",
            p if p.contains("largest") => "import os\ndef largest(xs):\n    os._exit(0)",
            _ => "def spin(x):\n    while True: pass",
        };
        Ok(format!("```python\n{body}\n```"))
    };
    let attempts = examine(&set, &examination(interpreter, half)).await;
    assert_eq!(
        passed(&attempts, "humaneval"),
        [Some(true), Some(false), Some(false)],
        "{attempts:?}"
    );
    assert_eq!(passed(&attempts, "humaneval+"), [Some(false); 3]);
    let evaluation = Evaluation::new(frozen(&[("m", AgentKind::Model)]), attempts);
    let summaries = summarise(&evaluation);
    let rate = |suite: &str| {
        summaries
            .iter()
            .find(|s| s.suite == suite)
            .unwrap()
            .measure(Measure::Upstream)
            .unwrap()
            .overall
            .rate
    };
    assert!((rate("humaneval") - 1.0 / 3.0).abs() < 1e-12 && rate("humaneval+") == 0.0);
}

#[tokio::test]
async fn numbers_and_letters_are_scored() {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let folder = files();
    let say = |prompt: &str| match prompt {
        p if p.contains("3 + 4") => Ok("It is 7.\n#### 7".to_owned()),
        p if p.contains("1000 + 1") => Ok("#### 1002".to_owned()),
        p if p.contains("Is it") => Ok("Surely.\nAnswer: B".to_owned()),
        _ => Err(TeacherError::Rejected("too long".into())),
    };
    let by = examination(interpreter, say);
    let gsm8k = examine(&load(&folder.path().join("gsm8k_test.jsonl")).unwrap(), &by).await;
    assert_eq!(passed(&gsm8k, "gsm8k"), [Some(true), Some(false)]);
    let mmlu = examine(&load(&folder.path().join("mmlu")).unwrap(), &by).await;
    assert_eq!(passed(&mmlu, "mmlu"), [Some(true), None]);
    assert!(
        matches!(mmlu[1].outcome, Outcome::Infrastructure { .. }) && mmlu[0].category == "logic"
    );
}

#[test]
fn files_are_known_by_their_names() {
    for (path, name) in [
        ("a/HumanEvalPlus-v0.1.10.jsonl.gz", Some("humaneval")),
        ("MbppPlus.jsonl", Some("mbpp")),
        ("x.jsonl", None),
    ] {
        assert_eq!(name_of(path), name);
    }
    assert!(matches!(
        load(Path::new("x.jsonl")),
        Err(FileError::Whole { .. })
    ));
}

/// The same questions as Parquet, as the Hub has them: the same items.
#[test]
fn parquet_holds_the_same_questions() {
    use polars::prelude::{DataFrame, IntoColumn, NamedFrom, ParquetWriter, Series};
    let folder = files();
    let write = |name: &str, columns: Vec<Series>| {
        let path = folder.path().join(name);
        let height = columns[0].len();
        let columns = columns.into_iter().map(IntoColumn::into_column).collect();
        let mut frame = DataFrame::new(height, columns).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        ParquetWriter::new(file).finish(&mut frame).unwrap();
        path
    };
    let questions = ["What is 3 + 4?", "1000 + 1?"];
    let answers = ["3+4=7\n#### 7", "#### 1,001"];
    let columns = vec![
        Series::new("question".into(), questions),
        Series::new("answer".into(), answers),
    ];
    let theirs = load(&write("gsm8k-test.parquet", columns)).unwrap();
    let ours = load(&folder.path().join("gsm8k_test.jsonl")).unwrap();
    let shape = |set: &Set| format!("{:?}", set.items);
    assert_eq!(shape(&theirs), shape(&ours));
    let choices = [["no", "yes", "maybe", "never"], ["1", "2", "3", "4"]];
    let choices = choices.map(|row| Series::new("".into(), row));
    let columns = |right: [i64; 2]| {
        vec![
            Series::new("question".into(), ["Is it, then?", "Twice?"]),
            Series::new("subject".into(), ["logic"; 2]),
            Series::new("choices".into(), choices.clone()),
            Series::new("answer".into(), right),
        ]
    };
    let theirs = load(&write("mmlu.parquet", columns([1, 2]))).unwrap();
    let ours = load(&folder.path().join("mmlu")).unwrap();
    assert_eq!(shape(&theirs), shape(&ours));
    let error = load(&write("mmlu-broken.parquet", columns([1, 4]))).unwrap_err();
    assert!(matches!(error, FileError::Line { line: 2, .. }), "{error}");
    std::fs::write(folder.path().join("mmlu.parquet"), b"PAR1 no").unwrap();
    assert!(matches!(
        load(&folder.path().join("mmlu.parquet")),
        Err(FileError::Whole { .. })
    ));
}

/// As the Hub has EvalPlus' sets: inputs stand in a program of tests, and may be what JSON has not.
#[tokio::test]
async fn programs_of_the_hub_are_scored() {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let row = |id: &str, entry: &str, body: &str, inputs: &str| {
        let prompt = format!("def {entry}(x):\n");
        let test = format!("def check(f):\n    inputs = {inputs}\n    results = [None]\n");
        serde_json::json!({
            "task_id": id, "prompt": prompt, "entry_point": entry,
            "canonical_solution": format!("    return {body}\n"), "test": test,
        })
    };
    let rows = [
        row("HumanEval/0", "pair", "x + (1,)", "[[(1, 2)], [()]]"),
        row("HumanEval/1", "large", "x * 2", "[[inf], [3]]"),
        row(
            "HumanEval/2",
            "items",
            "len(x)",
            "[[{1, 2, 2}], [{'a': ']'}]]",
        ),
    ];
    let path = folder.path().join("humanevalplus.jsonl");
    std::fs::write(&path, rows.map(|row| row.to_string() + "\n").concat()).unwrap();
    let set = load(&path).unwrap();
    let right = |prompt: &str| {
        let code = match prompt {
            p if p.contains("pair") => "def pair(x):\n    return tuple(list(x) + [1])",
            p if p.contains("large") => "def large(x):\n    return x + x",
            _ => "def items(x):\n    return sum(1 for _ in x)",
        };
        Ok(code.to_owned())
    };
    let attempts = examine(&set, &examination(interpreter.clone(), right)).await;
    assert_eq!(
        passed(&attempts, "humaneval+"),
        [Some(true); 3],
        "{attempts:?}"
    );
    let base = passed(&attempts, "humaneval");
    assert!(base.is_empty(), "nobody can tell which tests are the base");
    let wrong = |prompt: &str| {
        let code = match prompt {
            p if p.contains("pair") => "def pair(x):\n    return list(x) + [1]",
            p if p.contains("large") => "def large(x):\n    return 6",
            _ => "def items(x):\n    return 2",
        };
        Ok(code.to_owned())
    };
    let attempts = examine(&set, &examination(interpreter, wrong)).await;
    assert_eq!(
        passed(&attempts, "humaneval+"),
        [Some(false); 3],
        "{attempts:?}"
    );
}
