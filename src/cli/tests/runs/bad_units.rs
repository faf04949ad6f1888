//! A unit that hangs for ever, one whose request ends its worker and one that always fails: each fails with its reason, and the
//! others end.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pybench_run::shared::Member;
use pybench_run::{ExitCode, Journal};
use pybench_testing::postgres;
use pybench_types::task::Task;
use pybench_types::trajectory::Message;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{
    ExpertServer, FREE, RunFixture, find_task, interpreter_is_here, openai,
};
use crate::support::pybench;
use crate::workers::{coordinator, drain, is_soak, profile, recipe, schema_of};

/// Numbers of the bad units; the others are those of the expert.
const HANGS: usize = 0;
const KILLS: usize = 1;
const FAILS: usize = 2;

/// Time in which something has to begin.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the endpoint has to know of the run.
#[derive(Default)]
struct SharedRun {
    tasks: OnceLock<Vec<Task>>,
    /// The run folder, and the process of the coordinator.
    coordinated: OnceLock<(PathBuf, u32)>,
    /// Whether the first bad unit has asked.
    hangs: AtomicBool,
}

/// An endpoint that kills the worker which asks about the second bad unit.
async fn endpoint(run: Arc<SharedRun>) -> Endpoint {
    let expert = ExpertServer::new();
    let answer = move |request: Value| {
        let tasks = run.tasks.get().unwrap();
        let messages: Vec<Message> = serde_json::from_value(request["messages"].clone()).unwrap();
        let asked = &find_task(tasks, &messages).id;
        let number = tasks.iter().position(|task| task.id == *asked).unwrap();
        let answer = match number {
            HANGS => {
                run.hangs.store(true, Ordering::SeqCst);
                Answer::Hang
            }
            KILLS => Answer::Hang,
            FAILS => Answer::Status(500, None, "{\"error\": {}}".to_owned()),
            _ => expert.answer(tasks, &request),
        };
        let run = run.clone();
        async move {
            if number == KILLS {
                let killed = tokio::task::spawn_blocking(move || run.kill_worker());
                killed.await.unwrap();
            }
            answer
        }
    };
    Endpoint::start(answer).await
}

/// A worker with one unit at a time, so that its end costs no other unit an attempt.
fn worker(fixture: &RunFixture, profile: &Path) -> Child {
    let mut command = pybench("worker");
    command
        .args(["--run", "t", "--runs-dir", "data/runs", "--slots", "1"])
        .arg("--profile")
        .arg(profile)
        .current_dir(fixture.path("."))
        .env_remove("PYBENCH_ROOT")
        .process_group(0);
    command.spawn().unwrap()
}

impl SharedRun {
    /// Kills the worker that has leased the unit that kills; it has just asked.
    fn kill_worker(&self) {
        let (folder, coordinator) = self.coordinated.get().unwrap();
        let asks = leased_by(folder).filter(|pid| pid != coordinator);
        if let Some(pid) = asks.and_then(|pid| Pid::from_raw(pid.try_into().unwrap())) {
            kill_process_group(pid, Signal::KILL).unwrap();
        }
    }
}

/// The process that has leased the unit that kills, in the journal of a run folder.
fn leased_by(folder: &Path) -> Option<u32> {
    let schema = schema_of(folder);
    let about = postgres::sql(&format!(
        "SELECT member.about FROM \"{schema}\".unit JOIN \"{schema}\".member ON member.holder = unit.holder
         WHERE unit.stage = 'rollout' AND unit.position = {KILLS} AND unit.state = 'pending' AND unit.lease_until > 0"
    ));
    let member: Member = serde_json::from_str(&about).ok()?;
    member.name.rsplit_once(':')?.1.parse().ok()
}

/// Waits for something, while the coordinator goes on.
fn wait_for<T>(coordinator: &mut Child, mut ready: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(ready) = ready() {
            return ready;
        }
        assert!(since.elapsed() < PATIENCE, "nothing begins");
        let ended = coordinator.try_wait().unwrap();
        assert!(ended.is_none(), "the run is over: {ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_units_fail_with_their_reasons_and_the_others_end() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let run = Arc::new(SharedRun::default());
    let server = endpoint(run.clone()).await;
    // The request alone may take longer than the unit.
    let more = format!("{FREE}, timeout_seconds = 3600");
    let text = recipe(&openai(&server.base_url(), &more), "");
    let local = RunFixture::bare(&text);
    for stage in ["crawl", "query"] {
        let written = local.program(stage, &[]).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
    let written: Vec<Task> = local.lines("tasks.jsonl");
    let good = written.len() as u64 - 3;
    run.tasks.set(written).unwrap();

    let shared = RunFixture::bare(&text);
    let mut command = coordinator(&shared, &profile);
    let attempts = if is_soak() { 3 } else { 1 };
    command.args(["--set", &format!("rollout.attempts={attempts}")]);
    command.args(["--set", "rollout.unit_minutes=0.4"]);
    let mut coordinating = command.spawn().unwrap();
    let coordinated = (shared.folder(), coordinating.id());
    run.coordinated.set(coordinated).unwrap();
    // The coordinator works on one unit at a time: on the one that hangs.
    wait_for(&mut coordinating, || {
        run.hangs.load(Ordering::SeqCst).then_some(())
    });
    let mut workers: Vec<Child> = (0..2).map(|_| worker(&shared, &profile)).collect();
    for _ in 0..attempts {
        let (number, status) = wait_for(&mut coordinating, || {
            let mut all = workers.iter_mut();
            let number = all.position(|worker| worker.try_wait().unwrap().is_some())?;
            Some((number, workers[number].wait().unwrap()))
        });
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        workers[number] = worker(&shared, &profile);
    }

    let status = coordinating.wait().unwrap();
    assert_eq!(status.code(), Some(ExitCode::Incomplete as i32));
    for worker in &mut workers {
        drain(worker);
    }
    let journal = Journal::read_run(&shared.folder()).unwrap();
    let failures = journal.failures().unwrap();
    let details: Vec<&str> = failures
        .iter()
        .map(|unit| unit.failure.detail.as_str())
        .collect();
    let killed = format!("{attempts} attempts ended without a result");
    let expected = [
        "did not end within 0.4 minutes",
        killed.as_str(),
        "server: ",
    ];
    assert_eq!(details.len(), expected.len(), "{details:?}");
    for (detail, expected) in details.iter().zip(expected) {
        assert!(detail.contains(expected), "{detail}: {expected}");
    }
    assert!(failures.iter().all(|unit| unit.last));
    for stage in ["rollout", "grade"] {
        let summary = journal.summary(stage).unwrap();
        assert_eq!((summary.done, summary.pending), (good, 0), "{stage}");
    }
}
