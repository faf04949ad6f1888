//! The audit of the strict score, and runs that continue after interruptions.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_eval::agent::Script;
use pybench_eval::record::Evaluation;
use pybench_eval::run::run;
use pybench_eval::suites::pybench::audit::{AuditEnv, audit, markdown, summary};
use pybench_eval::suites::pybench::prepare::Changes;
use pybench_eval::suites::pybench::upstream::Upstream;
use pybench_eval::suites::pybench::{Availability, PyBench};
use pybench_run::{ExecutorOptions, Interrupt, LocalExecutor, Progress, RunError, RunFolder};
use serde_json::json;

use crate::fixture::{ALONE, SuiteFixture, recipe, script, setup, tools};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_of_the_strict_score_passes() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": format!("a prompt for task {index}"), "file_paths": []}))
        .collect();
    fs::write(
        fixture.path("bench/data/meta/task.json"),
        json!(rows).to_string(),
    )
    .unwrap();
    let bench = PyBench::new(Upstream::open(&fixture.path("bench")).unwrap()).unwrap();
    let specs: Vec<_> = ALONE
        .iter()
        .map(|index| bench.specs[index].clone())
        .collect();
    assert!(
        specs
            .iter()
            .all(|spec| bench.availability(spec) == Availability::Available)
    );
    let folder = Arc::new(RunFolder::open(&fixture.path("audit"), "").unwrap());
    let options = ExecutorOptions {
        concurrency: Some(2),
        ..ExecutorOptions::default()
    };
    let executor = LocalExecutor::new(
        folder.clone(),
        options,
        Progress::hidden(),
        Interrupt::new(),
    );
    let env = || AuditEnv {
        suite: bench.clone(),
        folder: folder.clone(),
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter: interpreter.clone(),
        changes: Changes {
            seed: 7,
            perturb: true,
            regenerate: false,
        },
        quick: false,
    };
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
