//! A coordinator and workers that share a run in PostgreSQL and take its units from Temporal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pybench_run::shared::{Member, Round, WorkEnd, WorkerSession};
use pybench_run::{
    Executor, ExecutorOptions, Interrupt, Profile, Progress, RunFolder, SharedExecutor,
    WhenChanged, WorkerSettings,
};
use pybench_testing::named_stage::NamedStage;
use pybench_testing::{postgres, temporal};
use serde_json::json;

use crate::numbered;

/// How long a unit takes, in milliseconds.
const UNIT: u64 = 50;

/// A profile with both servers.
fn profile(root: &Path) -> Option<PathBuf> {
    let profile = Profile {
        postgres: postgres::address()?,
        store: None,
        temporal: Some(temporal::server()?),
        workers: WorkerSettings {
            lease_seconds: 5,
            ..WorkerSettings::default()
        },
    };
    let path = root.join("profile.toml");
    std::fs::write(&path, toml::to_string(&profile).unwrap()).unwrap();
    Some(path)
}

async fn work(run: PathBuf, profile: PathBuf, name: &'static str) -> WorkEnd {
    let folder = Arc::new(RunFolder::join(&run, &profile).unwrap());
    let queue = pybench_temporal::connect(folder.queue()).await.unwrap();
    let member = Member::new(name.to_owned(), vec!["s".to_owned()]);
    let options = options();
    let session = WorkerSession::start(folder.clone(), member, options.lease).unwrap();
    let session = session.with_queue(queue);
    let round = loop {
        match Round::announced(folder.journal()).unwrap() {
            Some(round) => break round,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert!(round.is_queued);
    let interrupt = Interrupt::new();
    let how = (&options, &interrupt);
    let end = session
        .work_on(how, Arc::new(NamedStage::new(name, UNIT)), &round)
        .await;
    session.leave().await.unwrap();
    end.unwrap()
}

fn options() -> ExecutorOptions {
    ExecutorOptions {
        concurrency: Some(2),
        lease: Duration::from_secs(5),
        ..ExecutorOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_take_units_from_temporal() {
    let root = tempfile::tempdir().unwrap();
    let Some(profile) = profile(root.path()) else {
        return;
    };
    let run = root.path().join("queued");
    let open = || {
        let changed = WhenChanged::default();
        RunFolder::open_in_profile(&run, "seed = 1\n", &changed, Some(&profile)).unwrap()
    };
    let folder = Arc::new(open());
    let items = numbered(120);
    let executor = |folder: &Arc<RunFolder>| {
        let (progress, interrupt) = (Progress::hidden(), Interrupt::new());
        SharedExecutor::new(folder.clone(), options(), progress, interrupt)
    };
    let queue = pybench_temporal::connect(folder.queue()).await.unwrap();
    assert!(queue.is_some());
    let workers =
        ["first", "second"].map(|name| tokio::spawn(work(run.clone(), profile.clone(), name)));
    while Member::all(folder.journal()).unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let coordinator = executor(&folder).with_queue(queue.clone());
    let all = items.clone();
    let coordinator = tokio::spawn(async move {
        let all: &[String] = &all;
        coordinator
            .run(Arc::new(NamedStage::new("coordinator", UNIT)), &all)
            .await
    });
    let summary = coordinator.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (120, 0, 0));
    for worker in workers {
        assert_eq!(worker.await.unwrap(), WorkEnd::RoundEnded);
    }
    let units = folder.journal().units("s").unwrap();
    assert!(
        units.iter().all(|unit| unit.attempts == 1),
        "each unit once"
    );
    for name in ["coordinator", "first", "second"] {
        let made = units.iter().filter(|unit| unit.output == Some(json!(name)));
        assert!(made.count() > 5, "{name} has made few");
    }
    // The same command makes nothing again.
    let again = executor(&folder).with_queue(queue);
    let all: &[String] = &items;
    assert_eq!(
        again
            .run(Arc::new(NamedStage::new("later", UNIT)), &all)
            .await
            .unwrap()
            .done,
        120
    );
    let units = folder.journal().units("s").unwrap();
    assert!(units.iter().all(|unit| unit.attempts == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_the_queue_says_so() {
    let root = tempfile::tempdir().unwrap();
    let folder = Arc::new(RunFolder::open(root.path(), "").unwrap());
    let round = Round {
        stage: "s".to_owned(),
        ..crate::round("1", "environment")
    };
    let member = Member::new("worker".to_owned(), vec!["s".to_owned()]);
    let (options, interrupt) = (options(), Interrupt::new());
    let session = WorkerSession::start(folder, member, options.lease).unwrap();
    let how = (&options, &interrupt);
    let error = session
        .work_on(how, Arc::new(NamedStage::new("worker", UNIT)), &round)
        .await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("has no section [temporal]"), "{error}");
}
