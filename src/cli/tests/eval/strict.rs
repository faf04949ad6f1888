//! The audit of the strict score, and runs that continue after interruptions.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_eval::agent::Script;
use pybench_eval::record::Evaluation;
use pybench_eval::run::run;
use pybench_eval::suites::pybench::audit::{AuditEnv, audit, markdown, summary};
use pybench_eval::suites::pybench::prepare::{Changes, PrepareStage};
use pybench_eval::suites::pybench::upstream::Upstream;
use pybench_eval::suites::pybench::{Availability, PyBench, spec};
use pybench_interpreter::Interpreter;
use pybench_run::{
    Executor as _, ExecutorOptions, Interrupt, LocalExecutor, Progress, RunError, RunFolder,
};
use serde_json::json;

use crate::fixture::{ALONE, SuiteFixture, recipe, script, setup, tools};

/// A task without inputs that only a person or a vision model can judge; its checks decide what is decidable.
const DRAWING: u32 = 116;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_of_the_strict_score_passes() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    let audited = [&ALONE[..], &[DRAWING]].concat();
    let rows: Vec<_> = audited
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": format!("a prompt for task {index}"), "file_paths": []}))
        .collect();
    fs::write(
        fixture.path("bench/data/meta/task.json"),
        json!(rows).to_string(),
    )
    .unwrap();
    let bench = PyBench::new(Upstream::open(&fixture.path("bench")).unwrap()).unwrap();
    let specs: Vec<_> = audited
        .iter()
        .map(|index| bench.specs[index].clone())
        .collect();
    assert!(
        specs
            .iter()
            .all(|spec| bench.availability(spec) == Availability::Available)
    );
    let changes = Changes {
        seed: 7,
        perturb: true,
        regenerate: false,
    };
    let (env, executor) = audit_env(&fixture, &bench, &interpreter, changes);
    let rows = audit(env(), &specs, &executor, |_| ()).await.unwrap();
    assert!(
        rows.iter().all(|row| row.passed()),
        "{}\n{}",
        summary(&rows),
        markdown(&rows)
    );
    let nulls = rows
        .iter()
        .map(|row| row.validation.as_ref().unwrap().nulls);
    assert!(
        nulls.min() >= Some(8),
        "the checker's own null agents and the five scripted ones"
    );
    let again = audit(env(), &specs, &executor, |_| {
        panic!("nothing is done twice")
    })
    .await
    .unwrap();
    assert_eq!(again, rows);
}

/// What an audit needs, and an executor of two workers.
fn audit_env(
    fixture: &SuiteFixture,
    bench: &PyBench,
    interpreter: &Arc<dyn Interpreter>,
    changes: Changes,
) -> (impl Fn() -> AuditEnv, LocalExecutor) {
    let folder = Arc::new(RunFolder::open(&fixture.path("audit"), "").unwrap());
    let options = ExecutorOptions {
        concurrency: Some(2),
        ..ExecutorOptions::default()
    };
    let hidden = (Progress::hidden(), Interrupt::new());
    let executor = LocalExecutor::new(folder.clone(), options, hidden.0, hidden.1);
    let (bench, interpreter) = (bench.clone(), interpreter.clone());
    let env = move || AuditEnv {
        suite: bench.clone(),
        folder: folder.clone(),
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter: interpreter.clone(),
        changes,
        quick: false,
    };
    (env, executor)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_pass_with_made_inputs() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    let rows = [34, 149].map(|index| json!({"index": index.to_string(), "user": "a prompt"}));
    let list = fixture.path("bench/data/meta/task.json");
    fs::write(list, json!(rows).to_string()).unwrap();
    let bench = PyBench::new(Upstream::open(&fixture.path("bench")).unwrap()).unwrap();
    let bench = bench.regenerated().unwrap();
    let specs = [34, 149].map(|index| bench.specs[&index].clone());
    let changes = Changes {
        seed: 8,
        perturb: true,
        regenerate: true,
    };
    let (env, executor) = audit_env(&fixture, &bench, &interpreter, changes);
    let quick = AuditEnv {
        quick: true,
        ..env()
    };
    let rows = audit(quick, &specs, &executor, |_| ()).await.unwrap();
    let passed = rows
        .iter()
        .all(|row| row.validation.as_ref().is_some_and(|found| found.reference));
    assert!(passed, "{}", markdown(&rows));
}

const VARIED: &str = r"index = 2
category = 'chart'
status = 'judge'
reason = 'a test of its inputs'
vary = ['rows', 'columns', 'sentences', 'picture', 'pages']
outputs = []

[inputs]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variants_differ_by_seed_and_keep_the_kind_of_file() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    let table: String = (0..50).fold("a,b\n".to_owned(), |text, n| {
        text + &format!("{n},{}\n", n * n)
    });
    let story: String = (0..200).map(|n| format!("Sentence {n}. ")).collect();
    let story = format!("A title\n{}", story.replace(". ", "!\n"));
    let (mut text, inputs) = (
        VARIED.to_owned(),
        [("data/t.csv", &table), ("data/s.txt", &story)],
    );
    for (path, content) in inputs {
        fs::write(fixture.path("bench").join(path), content).unwrap();
        let digest = blake3::hash(content.as_bytes()).to_hex();
        let _ = writeln!(text, "'{path}' = '{digest}'");
    }
    let specs = spec::load([("002.toml", &*text)]).unwrap();
    let bench = PyBench {
        specs: Arc::new(specs.clone()),
        ..fixture.bench()
    };
    let mut seen = Vec::new();
    for seed in [1, 2] {
        let changes = Changes {
            seed,
            perturb: true,
            regenerate: true,
        };
        let (env, executor) = audit_env(&fixture, &bench, &interpreter, changes);
        let folder = env().folder;
        let specs: Vec<_> = specs.values().collect();
        let stage = PrepareStage::new(
            bench.clone(),
            folder.clone(),
            interpreter.clone(),
            changes,
            &specs,
        );
        let stage = Arc::new(stage);
        executor.run(stage.clone(), &stage.items()).await.unwrap();
        let prepared = stage.results().unwrap().remove(&2).unwrap().unwrap();
        let read = |name: &str| {
            let file = prepared
                .files
                .iter()
                .find(|file| file.name == name)
                .unwrap();
            fs::read_to_string(folder.store().checked_path(&file.id).unwrap()).unwrap()
        };
        let varied = read("t.csv");
        let mut columns: Vec<_> = varied.lines().next().unwrap().split(',').collect();
        columns.sort_unstable();
        assert_eq!(columns, ["Ref. code", "a", "b"]);
        assert!((40..49).contains(&varied.lines().count()), "{varied}");
        let sentences = read("s.txt");
        assert!(sentences.starts_with("A title\n"));
        assert!(
            (150..200).contains(&sentences.lines().count()),
            "{sentences}"
        );
        assert!(sentences.lines().all(|line| story.contains(line)));
        seen.push((varied, sentences));
    }
    assert!(seen[0].0 != seen[1].0 && seen[0].1 != seen[1].1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_runs_give_the_same_records() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": "q", "file_paths": []}))
        .collect();
    fs::write(
        fixture.path("bench/data/meta/task.json"),
        json!(rows).to_string(),
    )
    .unwrap();
    let tests: String = ALONE.iter().fold(String::new(), |mut text, index| {
        let _ = writeln!(
            text,
            "def test_task_{index}(trajectory):\n    assert trajectory[-1]['content']\n"
        );
        text
    });
    fs::write(fixture.path("bench/data/unit_test/tests.py"), tests).unwrap();
    let bench = PyBench::new(Upstream::open(&fixture.path("bench")).unwrap()).unwrap();
    let mut recipe = recipe(
        "t",
        &[
            ("reference", script(Script::Reference)),
            ("echo", script(Script::Echo)),
        ],
    );
    recipe.tasks = Some("115,134-136,138".to_owned());
    let setup = |folder: &str| {
        setup(
            &fixture,
            folder,
            bench.clone(),
            recipe.clone(),
            &interpreter,
        )
    };
    let whole = untimed(run(&setup("whole")).await.unwrap());
    assert_eq!(
        whole
            .attempts
            .iter()
            .filter(|a| a.agent == "reference" && a.scores.strict == Some(true))
            .count(),
        5
    );
    assert!(
        whole
            .attempts
            .iter()
            .filter(|a| a.agent == "echo")
            .all(|a| a.scores.strict == Some(false))
    );
    let mut interrupted = 0;
    for delay in [50, 200, 400, 800, 1600] {
        let setup = setup("parts");
        let interrupt = setup.interrupt.clone();
        let alarm = tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
            interrupt.raise();
            interrupt.raise();
        });
        match run(&setup).await {
            Err(RunError::Interrupted) => interrupted += 1,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
        alarm.abort();
    }
    assert!(interrupted > 0, "nothing was interrupted");
    assert_eq!(untimed(run(&setup("parts")).await.unwrap()), whole);
}

/// Removes wall times, the only difference between identical runs.
fn untimed(mut evaluation: Evaluation) -> Evaluation {
    evaluation
        .attempts
        .iter_mut()
        .for_each(|attempt| attempt.seconds = 0.0);
    evaluation
}
