//! The audit proves the strict score; a run that was stopped anywhere ends alike.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use pybench::grade::Checker;
use pybench::run::{ExecutorOptions, Interrupt, LocalExecutor, Progress, RunError, RunFolder};
use pybench_pipelines::eval::agent::Script;
use pybench_pipelines::eval::audit::{Audit, audit, markdown, summary};
use pybench_pipelines::eval::bench::prepare::Changes;
use pybench_pipelines::eval::bench::upstream::Upstream;
use pybench_pipelines::eval::bench::{Bench, Ready};
use pybench_pipelines::eval::record::Evaluation;
use pybench_pipelines::eval::run::run;
use serde_json::json;

use crate::place::{ALONE, Place, recipe, script, setup, tools};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_strict_score_proves_itself() {
    let Some(interpreter) = tools() else { return };
    let place = Place::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": format!("a prompt for task {index}"), "file_paths": []}))
        .collect();
    fs::write(
        place.path("bench/data/meta/task.json"),
        json!(rows).to_string(),
    )
    .unwrap();
    let bench = Bench::new(Upstream::open(&place.path("bench")).unwrap()).unwrap();
    let specs: Vec<_> = ALONE
        .iter()
        .map(|index| bench.specs[index].clone())
        .collect();
    assert!(specs.iter().all(|spec| bench.ready(spec) == Ready::Yes));
    let folder = Arc::new(RunFolder::open(&place.path("audit"), "").unwrap());
    let options = ExecutorOptions {
        concurrency: 2,
        ..ExecutorOptions::default()
    };
    let executor = LocalExecutor::new(
        folder.clone(),
        options,
        Progress::hidden(),
        Interrupt::new(),
    );
    let work = || Audit {
        bench: bench.clone(),
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
    let rows = audit(work(), &specs, &executor, |_| ()).await.unwrap();
    assert!(
        rows.iter().all(|row| row.holds()),
        "{}\n{}",
        summary(&rows),
        markdown(&rows)
    );
    let nulls = rows.iter().map(|row| row.proof.as_ref().unwrap().nulls);
    assert!(
        nulls.min() >= Some(8),
        "the checker's own and the five agents"
    );
    let again = audit(work(), &specs, &executor, |_| {
        panic!("nothing is done twice")
    })
    .await
    .unwrap();
    assert_eq!(again, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_anywhere_the_records_are_equal() {
    let Some(interpreter) = tools() else { return };
    let place = Place::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": "q", "file_paths": []}))
        .collect();
    fs::write(
        place.path("bench/data/meta/task.json"),
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
    fs::write(place.path("bench/data/unit_test/tests.py"), tests).unwrap();
    let bench = Bench::new(Upstream::open(&place.path("bench")).unwrap()).unwrap();
    let mut recipe = recipe(
        "t",
        &[
            ("reference", script(Script::Reference)),
            ("echo", script(Script::Echo)),
        ],
    );
    recipe.tasks = Some("115,134-136,138".to_owned());
    let setup = |folder: &str| setup(&place, folder, bench.clone(), recipe.clone(), &interpreter);
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

/// Wall time is the one thing that differs.
fn untimed(mut evaluation: Evaluation) -> Evaluation {
    evaluation
        .attempts
        .iter_mut()
        .for_each(|attempt| attempt.seconds = 0.0);
    evaluation
}
