use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pybench_run::Price;
use pybench_types::trajectory::Usage;

use std::path::Path;

use super::*;
use crate::file_error::FileError;
use crate::record::tests::fingerprint;
use crate::record::{AgentKind, Evaluation};
use crate::stats::{Measure, summarize};

type Say = dyn Fn(&str) -> Result<String, ChatError> + Send + Sync;

/// A model whose reply is a function of the prompt.
struct ScriptedModel(Box<Say>, AtomicUsize);

#[async_trait]
impl ChatModel for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(Reply {
            content: (self.0)(&request.messages[0].content)?,
            usage: Usage::default(),
            truncated: false,
            repetition: false,
        })
    }
}

/// Small files in the formats of the benchmarks.
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
    pybench_testing::sessions::default_interpreter()
}

fn config(
    interpreter: Arc<dyn Interpreter>,
    say: impl Fn(&str) -> Result<String, ChatError> + Send + Sync + 'static,
) -> GeneralEval {
    GeneralEval {
        agent: "m".into(),
        model: Arc::new(ScriptedModel(Box::new(say), AtomicUsize::new(0))),
        interpreter,
        sampling: Sampling::default(),
        concurrency: 2,
        interrupt: Interrupt::new(),
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
async fn correct_programs_pass_and_incorrect_ones_fail() {
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
    let attempts = run_set(&set, &config(interpreter.clone(), right)).await;
    assert_eq!(
        passed(&attempts, "humaneval"),
        [Some(true); 3],
        "{attempts:?}"
    );
    assert_eq!(passed(&attempts, "humaneval+"), [Some(true); 3]);
    // Correct on the original tests only; incorrect; never finishes.
    let half = |prompt: &str| {
        let body = match prompt {
            p if p.contains("double") => "def double(x):\n    return int(x) * 2",
            p if p.contains("largest") => "import os\ndef largest(xs):\n    os._exit(0)",
            _ => "def spin(x):\n    while True: pass",
        };
        Ok(format!("```python\n{body}\n```"))
    };
    let attempts = run_set(&set, &config(interpreter, half)).await;
    assert_eq!(
        passed(&attempts, "humaneval"),
        [Some(true), Some(false), Some(false)],
        "{attempts:?}"
    );
    assert_eq!(passed(&attempts, "humaneval+"), [Some(false); 3]);
    let evaluation = Evaluation::new(fingerprint(&[("m", AgentKind::Model)]), attempts);
    let summaries = summarize(&evaluation);
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
        _ => Err(ChatError::Rejected("too long".into())),
    };
    let config = config(interpreter, say);
    let gsm8k = run_set(
        &load(&folder.path().join("gsm8k_test.jsonl")).unwrap(),
        &config,
    )
    .await;
    assert_eq!(passed(&gsm8k, "gsm8k"), [Some(true), Some(false)]);
    let mmlu = run_set(&load(&folder.path().join("mmlu")).unwrap(), &config).await;
    assert_eq!(passed(&mmlu, "mmlu"), [Some(true), None]);
    assert!(
        matches!(mmlu[1].outcome, Outcome::Infrastructure { .. }) && mmlu[0].category == "logic"
    );
}

#[test]
fn benchmarks_are_recognized_by_file_name() {
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

/// The Parquet files of the Hub give the same questions.
#[test]
fn parquet_holds_the_same_questions() {
    use arrow_array::builder::{ListBuilder, StringBuilder};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    let folder = files();
    let write = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let path = folder.path().join(name);
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        path
    };
    let texts = |texts: [&str; 2]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let questions = ["What is 3 + 4?", "1000 + 1?"];
    let answers = ["3+4=7\n#### 7", "#### 1,001"];
    let columns = vec![("question", texts(questions)), ("answer", texts(answers))];
    let theirs = load(&write("gsm8k-test.parquet", columns)).unwrap();
    let ours = load(&folder.path().join("gsm8k_test.jsonl")).unwrap();
    let shape = |set: &QuestionSet| format!("{:?}", set.items);
    assert_eq!(shape(&theirs), shape(&ours));
    let mut choices = ListBuilder::new(StringBuilder::new());
    for row in [["no", "yes", "maybe", "never"], ["1", "2", "3", "4"]] {
        choices.append_value(row.map(Some));
    }
    let choices = Arc::new(choices.finish()) as ArrayRef;
    let columns = |right: [i64; 2]| {
        vec![
            ("question", texts(["Is it, then?", "Twice?"])),
            ("subject", texts(["logic"; 2])),
            ("choices", choices.clone()),
            (
                "answer",
                Arc::new(Int64Array::from(right.to_vec())) as ArrayRef,
            ),
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

/// In the Hub's EvalPlus datasets, inputs are part of a test program and may be values that JSON lacks.
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
    let attempts = run_set(&set, &config(interpreter.clone(), right)).await;
    assert_eq!(
        passed(&attempts, "humaneval+"),
        [Some(true); 3],
        "{attempts:?}"
    );
    let base = passed(&attempts, "humaneval");
    assert!(
        base.is_empty(),
        "these files do not distinguish the original tests"
    );
    let wrong = |prompt: &str| {
        let code = match prompt {
            p if p.contains("pair") => "def pair(x):\n    return list(x) + [1]",
            p if p.contains("large") => "def large(x):\n    return 6",
            _ => "def items(x):\n    return 2",
        };
        Ok(code.to_owned())
    };
    let attempts = run_set(&set, &config(interpreter, wrong)).await;
    assert_eq!(
        passed(&attempts, "humaneval+"),
        [Some(false); 3],
        "{attempts:?}"
    );
}
