//! The rollout stage with its real parts: budgets, Ctrl-C, dry run, preview.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::support::endpoint::Endpoint;
use crate::support::fixture::{
    ExpertServer, FREE, RunFixture, code, expert_endpoint, interpreter_is_here, openai, recipe,
};
use pybench_run::ExitCode;
use pybench_types::task::Task;
use pybench_types::trajectory::End;
use rustix::process::{Pid, Signal, kill_process};

const EXPERT: &str = "{ kind = 'expert' }";

/// A run whose teacher is the expert behind HTTP.
async fn behind_http(tasks: usize, more: &str, rest: &str) -> (RunFixture, Endpoint) {
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let server = expert_endpoint(known.clone(), Duration::ZERO).await;
    let fixture = RunFixture::new(&recipe(tasks, &openai(&server.base_url(), more), rest)).await;
    known.set(fixture.tasks.clone()).unwrap();
    (fixture, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_damaged_run_is_not_believed() {
    let fixture = RunFixture::new(&recipe(4, EXPERT, "")).await;
    let refused = |command: &mut std::process::Command, words: &str| {
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(ExitCode::BadInput as i32), "{error}");
        assert!(error.contains(words), "{words} is missing in {error}");
    };
    let mut show = crate::support::pybench("show");
    refused(show.arg(fixture.folder()), "has no trajectories");
    let path = fixture.folder().join("tasks.jsonl");
    let tasks = std::fs::read_to_string(&path).unwrap();
    let cut = tasks.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&path, &tasks[..cut]).unwrap();
    refused(
        &mut fixture.rollout(&["--dry-run"]),
        "tasks.jsonl has 3 lines, but 4 were written",
    );
    std::fs::write(&path, tasks).unwrap();
    assert_eq!(
        code(&fixture.rollout(&["--dry-run"]).output().unwrap()),
        Some(0)
    );
    for file in ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"] {
        let _ = std::fs::remove_file(fixture.folder().join(file));
    }
    refused(
        &mut fixture.rollout(&[]),
        "journal.sqlite is missing or empty",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expert_solves_tasks_for_real() {
    if !interpreter_is_here() {
        return;
    }
    let fixture = RunFixture::new(&recipe(4, EXPERT, "[rollout]\nsamples = 2\n")).await;
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{stderr}");
    let trajectories = fixture.trajectories();
    let asked: Vec<_> = trajectories
        .iter()
        .map(|t| (t.task.clone(), t.sample))
        .collect();
    let expected: Vec<_> = fixture
        .tasks
        .iter()
        .flat_map(|task| [(task.id.clone(), 0), (task.id.clone(), 1)])
        .collect();
    assert_eq!(
        asked, expected,
        "tasks in their order, samples within a task"
    );
    for (trajectory, task) in trajectories
        .iter()
        .zip(fixture.tasks.iter().flat_map(|t| [t, t]))
    {
        assert_eq!(trajectory.end, End::Finished);
        assert!(!trajectory.environment.is_empty());
        let paths: Vec<_> = trajectory.outputs.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, task.outputs);
        for file in &trajectory.outputs {
            let context = fixture.context();
            let bytes = context.folder.store().get(&file.id).unwrap();
            assert_eq!(bytes.len() as u64, file.size);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_a_preview_say_what_to_expect() {
    let (fixture, server) = behind_http(
        4,
        ", price = { prompt = 1.0, completion = 2.0 }",
        "[budget]\nusd = 5.0\n",
    )
    .await;
    let output = fixture.rollout(&["--dry-run"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for line in [
        "model              openai:m",
        "calls              about 16 (4 to 40)",
        "budget             $5.00",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(server.call_count(), 0);

    let unbounded = fixture.rollout(&["--set", "budget={}"]).output().unwrap();
    assert_eq!(code(&unbounded), Some(ExitCode::BadInput as i32));
    assert!(String::from_utf8_lossy(&unbounded.stderr).contains("--set budget.usd"));
    assert_eq!(server.call_count(), 0);

    if !interpreter_is_here() {
        return;
    }
    let output = fixture.rollout(&["--preview", "1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("━━ trajectory").count(), 1, "{text}");
    assert!(
        text.contains(&fixture.tasks[0].query)
            && text.contains("Finished after")
            && text.contains("cost $0.0"),
        "{text}"
    );
    let paid = server.call_count();
    assert_eq!(fixture.units().len(), 1);
    let output = fixture.rollout(&[]).output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert_eq!(fixture.trajectories().len(), 4);
    assert!(
        server.calls().values().all(|count| *count == 1),
        "the preview is not paid again"
    );
    assert!(server.call_count() > paid);
}

/// Many trajectories are in flight when the time is used up: none is lost, and none is paid twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_budget_holds_under_load_and_can_be_raised() {
    if !interpreter_is_here() {
        return;
    }
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let server = expert_endpoint(known.clone(), Duration::from_millis(400)).await;
    let rest = "[rollout]\nconcurrency = 8\n";
    let text = recipe(12, &openai(&server.base_url(), FREE), rest);
    let begun = Instant::now();
    let fixture = RunFixture::new(&text).await;
    known.set(fixture.tasks.clone()).unwrap();
    let seconds = begun.elapsed().as_secs_f64() + 1.0;
    let budget = format!("budget.minutes={}", seconds / 60.0);
    let mut calls = 0;
    for restart in 0..2 {
        let output = fixture.rollout(&["--set", &budget]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(ExitCode::Budget as i32), "{stderr}");
        assert!(stderr.contains("budget.minutes"), "{stderr}");
        assert!(
            restart == 0 || server.call_count() == calls,
            "used-up time allows no further call"
        );
        calls = server.call_count();
        assert_eq!(fixture.spent().uncertain, 0, "calls in flight were awaited");
    }
    let mut raised = fixture.rollout(&["--set", "budget.minutes=60"]);
    let output = raised.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), Some(0), "{stderr}");
    assert_eq!(fixture.trajectories().len(), 12);
    assert!(server.calls().values().all(|count| *count == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_over_restarts_and_can_be_raised() {
    if !interpreter_is_here() {
        return;
    }
    // 110 tokens a call at 1000 dollars per million: 0.11 dollars; reservations are far higher.
    let price = ", price = { prompt = 1000.0, completion = 1000.0 }";
    let rest = "[budget]\nusd = 5.0\n[rollout]\nconcurrency = 1\n[rollout.sampling]\ntemperature = 0.0\ntop_p = 1.0\nmax_tokens = 50\n";
    let (fixture, server) = behind_http(8, price, rest).await;
    let cap = 5_000_000;
    let mut calls = 0;
    for attempt in 0..3 {
        let output = fixture.rollout(&[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(ExitCode::Budget as i32), "{stderr}");
        assert!(fixture.spent().micro_usd <= cap, "{:?}", fixture.spent());
        assert_eq!(
            fixture.spent().micro_usd,
            110_000 * u64::from(server.call_count())
        );
        if attempt > 0 {
            assert_eq!(
                server.call_count(),
                calls,
                "a used-up budget allows no further call"
            );
        }
        calls = server.call_count();
        assert!(calls > 0);
    }
    let raised = fixture
        .rollout(&["--set", "budget.usd=100"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&raised.stderr).into_owned();
    assert_eq!(code(&raised), Some(0), "{stderr}");
    assert_eq!(fixture.trajectories().len(), 8);
    assert!(
        server.calls().values().all(|count| *count == 1),
        "nothing is paid twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_ctrl_c_finishes_what_is_in_flight() {
    if !interpreter_is_here() {
        return;
    }
    let rest = "[rollout]\nconcurrency = 2\n";
    let (expert, tasks) = (Arc::new(ExpertServer::new()), Arc::new(OnceLock::new()));
    let caught = Arc::new(AtomicBool::new(false));
    let (known, told) = (tasks.clone(), caught.clone());
    let server = Endpoint::start(move |request| {
        let (expert, known, told) = (expert.clone(), known.clone(), told.clone());
        async move {
            // No reply before the program knows of the Ctrl-C: a third try could begin.
            while !told.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let tasks: &Vec<Task> = known.get().unwrap();
            expert.answer(tasks, &request)
        }
    })
    .await;
    let fixture = RunFixture::new(&recipe(6, &openai(&server.base_url(), FREE), rest)).await;
    tasks.set(fixture.tasks.clone()).unwrap();
    let mut child = fixture.rollout(&[]).stderr(Stdio::piped()).spawn().unwrap();
    while server.call_count() == 0 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before a call"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("finishing work in flight")));
    caught.store(true, Ordering::SeqCst);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(ExitCode::Interrupted as i32));
    let ended = fixture
        .units()
        .iter()
        .filter(|u| u.output.is_some())
        .count();
    assert!((1..=2).contains(&ended), "{ended} were in flight");
    assert_eq!(fixture.spent().uncertain, 0, "every call was waited for");

    let output = fixture.rollout(&[]).output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert_eq!(fixture.trajectories().len(), 6);
    assert!(server.calls().values().all(|count| *count == 1));
}
