//! The checker as grading uses it: real sessions, real files; and the Python suites of `tests/grade`.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench::grade::{Candidate, CheckError, CheckSpec, Checker, Claim};
use pybench::id::Digest;
use pybench::interpreter::{Interpreter, Limits, Output, SessionSpec};
use pybench::run::ContentStore;
use pybench::task::{Category, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench::trajectory::{Finding, Outcome};
use serde_json::json;
use support::interpreter;
use tempfile::TempDir;

/// A checker, a store, and tasks made of files in it.
struct Bench {
    interpreter: Arc<dyn Interpreter>,
    checker: Checker,
    store: ContentStore,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        let interpreter = interpreter()?;
        let folder = TempDir::new().unwrap();
        Some(Self {
            checker: Checker::new(interpreter.clone()).unwrap(),
            interpreter,
            store: ContentStore::open(folder.path()).unwrap(),
            _folder: folder,
        })
    }

    fn file(&self, name: &str, text: &str) -> TaskFile {
        TaskFile {
            name: name.into(),
            id: self.store.put(text.as_bytes()).unwrap(),
            kind: FileKind::Csv,
            origin: "test".into(),
            licence: None,
        }
    }

    fn task(&self, files: Vec<TaskFile>, reference: &str, check: serde_json::Value) -> Task {
        let check: CheckSpec = serde_json::from_value(check).unwrap();
        let path = serde_json::to_value(&check).unwrap()["path"]
            .as_str()
            .map(str::to_owned);
        Task {
            id: Digest::of_bytes(reference.as_bytes()),
            category: Category::Text,
            subcategory: "test".into(),
            keyword: "test".into(),
            language: Language::En,
            query: "Please do it.".into(),
            files,
            held_out: Vec::new(),
            outputs: path.into_iter().collect(),
            reference: reference.into(),
            checks: vec![check],
            origin: TaskOrigin::Library {
                template: "test".into(),
                slots: Default::default(),
                phrasing: 0,
            },
        }
    }

    fn candidate(&self, path: &str, bytes: &[u8]) -> Candidate {
        let id = self.store.put(bytes).unwrap();
        Candidate {
            outputs: vec![(path.into(), self.store.path(&id))],
            ..Candidate::default()
        }
    }
}

fn outcome(findings: &[Finding]) -> Outcome {
    let worst = findings
        .iter()
        .map(|f| f.outcome)
        .find(|o| *o != Outcome::Pass);
    worst.unwrap_or(Outcome::Pass)
}

/// The original passes and none of the others does.
fn all_killed(rows: &[(String, Vec<Finding>)], least: usize) {
    for (name, findings) in rows {
        let passed = outcome(findings) == Outcome::Pass;
        assert_eq!(passed, name == "original", "{name}: {findings:#?}");
    }
    assert!(rows.len() > least, "only {} mutants", rows.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_table_passes_and_a_wrong_one_says_why() {
    let Some(bench) = Bench::new() else { return };
    let reference = "expected = [{'a': r['a'] * 2} for r in ref.rows('data/in.csv')]";
    let check = json!({"check": "table", "path": "output/out.csv", "expected": "expected"});
    let task = bench.task(vec![bench.file("in.csv", "a\n1\n2\n3\n")], reference, check);
    let right = bench.candidate("output/out.csv", b"a\n2\n4\n6.0\n");
    let findings = bench
        .checker
        .check(&task, &bench.store, &right)
        .await
        .unwrap();
    assert_eq!(outcome(&findings), Outcome::Pass, "{findings:#?}");
    assert_eq!(findings.len(), 2);
    let wrong = bench.candidate("output/out.csv", b"a\n2\n4\n7\n");
    let findings = bench
        .checker
        .check(&task, &bench.store, &wrong)
        .await
        .unwrap();
    assert_eq!(findings[1].outcome, Outcome::Fail);
    assert!(
        findings[1].detail.contains("expected 6, found 7"),
        "{findings:#?}"
    );
    let rows = bench
        .checker
        .audit(&task, &bench.store, &right)
        .await
        .unwrap();
    all_killed(&rows, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_reference_is_an_error_of_ours() {
    let Some(bench) = Bench::new() else { return };
    let candidate = bench.candidate("output/out.txt", b"x\n");
    let check = json!({"check": "text", "path": "output/out.txt", "expected": "expected"});
    for (reference, word) in [
        ("\n1 / 0", "line 2"),
        ("other = 'x'", "does not define"),
        ("expected = 3", "no string"),
    ] {
        let task = bench.task(Vec::new(), reference, check.clone());
        let found = bench.checker.check(&task, &bench.store, &candidate).await;
        let Err(CheckError::Task(why)) = found else {
            panic!("{reference}: {found:?}");
        };
        assert!(why.contains(word), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_run_apart_and_its_mutants_fail() {
    let Some(bench) = Bench::new() else { return };
    let reference =
        "expected = [{'stdin': f'{n}\\n', 'stdout': f'twice {2 * n}\\nend\\n'} for n in (3, 14)]";
    let check = json!({"check": "program", "path": "output/p.py", "expected": "expected"});
    let task = bench.task(Vec::new(), reference, check);
    let right = bench.candidate(
        "output/p.py",
        b"n = int(input())\nprint('twice', n + n)\nprint('end')\n",
    );
    let rows = bench
        .checker
        .audit(&task, &bench.store, &right)
        .await
        .unwrap();
    all_killed(&rows, 8);
    // It sees neither the checker nor what is expected.
    let spy = b"import os\nprint([f for _, _, fs in os.walk('..') for f in fs if f in ('task.json', 'checker.py')])\n";
    let findings = bench
        .checker
        .check(&task, &bench.store, &bench.candidate("output/p.py", spy))
        .await
        .unwrap();
    assert!(findings[1].detail.contains("found []"), "{findings:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_scored_on_rows_it_never_saw() {
    let Some(bench) = Bench::new() else { return };
    let rows = |from: usize, to: usize| -> String {
        let row = |i: usize| {
            format!(
                "{},{},{}\n",
                i % 7,
                (i * 5) % 11,
                if (i % 7) + (i * 5) % 11 > 8 {
                    "yes"
                } else {
                    "no"
                }
            )
        };
        (from..to)
            .map(row)
            .fold("x,y,label\n".into(), |text, row| text + &row)
    };
    let check = json!({"check": "model", "path": "output/m.pkl", "held_out": "t.csv", "target": "label", "metric": "accuracy", "least": "least"});
    let mut task = bench.task(
        vec![bench.file("t.csv", &rows(0, 200))],
        "least = 0.9",
        check,
    );
    task.held_out = vec![bench.file("t.csv", &rows(200, 280))];
    let train = "import pandas, pickle\nfrom sklearn.tree import DecisionTreeClassifier\nd = pandas.read_csv('data/t.csv')\n\
        m = DecisionTreeClassifier(random_state=0).fit(d[['x', 'y']], d['label'])\npickle.dump(m, open('output/m.pkl', 'wb'))";
    let right = agent(&bench, &task, train).await;
    let rows = bench
        .checker
        .audit(&task, &bench.store, &right)
        .await
        .unwrap();
    all_killed(&rows, 8);
    let spy = "import os\nclass Spy:\n    def __reduce__(self):\n        return (os._exit, (0,))\nimport pickle\npickle.dump(Spy(), open('output/m.pkl', 'wb'))";
    let spy = agent(&bench, &task, spy).await;
    let findings = bench
        .checker
        .check(&task, &bench.store, &spy)
        .await
        .unwrap();
    assert_eq!(outcome(&findings), Outcome::Fail, "{findings:#?}");
}

/// What an agent's session leaves after one cell.
async fn agent(bench: &Bench, task: &Task, cell: &str) -> Candidate {
    let inputs = task
        .files
        .iter()
        .map(|f| (format!("data/{}", f.name), bench.store.path(&f.id)));
    let spec = SessionSpec {
        inputs: inputs.collect(),
        ..SessionSpec::default()
    };
    let mut session = bench.interpreter.start(spec).await.unwrap();
    let seen = session.execute(cell).await.unwrap();
    assert!(seen.error.is_none(), "{seen:?}");
    let collected = session.read_outputs().await.unwrap();
    session.close().await.unwrap();
    let outputs = collected.files.iter().map(|file| {
        let id = bench.store.put(&file.bytes).unwrap();
        (file.path.clone(), bench.store.path(&id))
    });
    let charts = seen.outputs.into_iter().filter_map(|output| match output {
        // A figure left open is displayed as well; what counts is what was saved.
        Output::Chart {
            path: Some(path),
            figure,
        } => Some(Claim {
            path: Some(path),
            figure,
        }),
        _ => None,
    });
    Candidate {
        outputs: outputs.collect(),
        claims: charts.collect(),
        ..Candidate::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_session_is_proven_and_its_forgeries_are_not() {
    let Some(bench) = Bench::new() else { return };
    let reference = "expected = [{'name': None, 'x': ['a', 'b', 'c'], 'y': [3, 1, 2]}]";
    let check = json!({"check": "plot", "path": "output/c.png", "kind": "bar", "expected": "expected", "title": "Sales", "y_label": "euro"});
    let task = bench.task(Vec::new(), reference, check);
    let draw = |values: &str| {
        format!(
            "import matplotlib.pyplot as plt\nplt.bar(['a', 'b', 'c'], {values})\nplt.title('Sales 2024')\nplt.ylabel('Euro')\nplt.savefig('output/c.png', bbox_inches='tight')"
        )
    };
    let right = agent(&bench, &task, &draw("[3, 1, 2]")).await;
    assert_eq!(right.claims.len(), 1);
    let rows = bench
        .checker
        .audit(&task, &bench.store, &right)
        .await
        .unwrap();
    all_killed(&rows, 8);
    let other = agent(&bench, &task, &draw("[3, 1, 2.1]")).await;
    let findings = bench
        .checker
        .check(&task, &bench.store, &other)
        .await
        .unwrap();
    assert_eq!(findings[1].outcome, Outcome::Fail, "{findings:#?}");
    let forged = Candidate {
        claims: right.claims.clone(),
        ..other
    };
    let findings = bench
        .checker
        .check(&task, &bench.store, &forged)
        .await
        .unwrap();
    assert_eq!(findings[1].outcome, Outcome::Unproven, "{findings:#?}");
}

/// Run a suite of `tests/grade` inside a session, in a process of its own: it installs a recorder of
/// charts, and the session's would be a second one around it.
async fn suite(code: &str) {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut inputs = std::collections::BTreeMap::new();
    for folder in ["tests/grade", "src/grade/python", "src/interpreter/python"] {
        for file in python_files(&root.join(folder)) {
            let name = file
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            inputs.insert(name, file);
        }
    }
    let limits = Limits {
        cell_seconds: 3000,
        memory_mib: 6144,
        output_chars: 200_000,
        ..Limits::default()
    };
    let spec = SessionSpec {
        inputs,
        limits,
        ..SessionSpec::default()
    };
    let mut session = interpreter.start(spec).await.unwrap();
    let cell = format!(
        "import subprocess, sys\nassert subprocess.run([sys.executable, '-c', {}]).returncode == 0",
        json!(code)
    );
    let seen = session.execute(&cell).await.unwrap();
    session.close().await.unwrap();
    let text: String = seen
        .outputs
        .iter()
        .filter_map(|o| match o {
            Output::Stream { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    println!("{text}");
    assert!(seen.error.is_none() && seen.stopped.is_none(), "{seen:?}");
}

fn python_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(python_files(&path));
        } else if path.extension().is_some_and(|e| e == "py") {
            found.push(path);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_check_passes_right_answers_and_fails_wrong_ones() {
    suite("import sys\nsys.path.insert(0, 'tests/grade')\nimport checks_test\nassert checks_test.main([]) == 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn honest_charts_are_proven_and_forged_ones_are_not() {
    let cell = "import sys\nsys.path.insert(0, 'tests/grade')\nimport charts_measure\n\
        honest, through = charts_measure.main('all', 29)\nassert set(honest) == {'pass'} and not through, (honest, through)";
    suite(cell).await;
}
