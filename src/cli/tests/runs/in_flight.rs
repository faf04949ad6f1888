//! Trajectories in flight without a given number: many at an endpoint that takes long, few at one that is overloaded
//! or where the budget is small.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pybench_run::{Bottleneck, ExitCode, InFlight, UnitState};
use pybench_types::task::Task;
use serde_json::Value;

use crate::pace::narrow;
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{
    ExpertServer, FREE, RunFixture, code, expert_endpoint, interpreter_is_here, openai, recipe,
};

/// Requests in flight before the first reply of an endpoint (`pybench_llm`).
const FIRST: usize = 16;
/// Tasks in flight before the first one is done and shows what a task costs (`pybench_run`).
const OF_UNKNOWN_COST: usize = 8;

/// Requests at the same time at an endpoint.
#[derive(Default)]
struct Load {
    now: AtomicUsize,
    most: AtomicUsize,
    arrived: AtomicUsize,
}

/// Waits for a condition, a minute at most.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An expert that answers its first requests once `seen` is set, and the others once `wanted` are in flight.
async fn slow(
    tasks: Arc<OnceLock<Vec<Task>>>,
    seen: Arc<AtomicBool>,
    wanted: usize,
) -> (Endpoint, Arc<Load>) {
    let (expert, load) = (Arc::new(ExpertServer::new()), Arc::<Load>::default());
    let shared = load.clone();
    let server = Endpoint::start(move |request| {
        let (tasks, seen, expert) = (tasks.clone(), seen.clone(), expert.clone());
        let load = shared.clone();
        async move {
            let now = load.now.fetch_add(1, Ordering::SeqCst) + 1;
            load.most.fetch_max(now, Ordering::SeqCst);
            match load.arrived.fetch_add(1, Ordering::SeqCst) < FIRST {
                true => until(|| seen.load(Ordering::SeqCst)).await,
                false => until(|| load.most.load(Ordering::SeqCst) >= wanted).await,
            }
            load.now.fetch_sub(1, Ordering::SeqCst);
            expert.answer(tasks.get().unwrap(), &request)
        }
    })
    .await;
    (server, load)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_endpoint_gets_more_requests_than_there_are_cores() {
    if !interpreter_is_here() {
        return;
    }
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let seen = Arc::<AtomicBool>::default();
    let wanted = FIRST + 4;
    let (server, load) = slow(known.clone(), seen.clone(), wanted).await;
    let fixture = RunFixture::new(&recipe(24, &openai(&server.base_url(), FREE), "")).await;
    known.set(fixture.tasks.clone()).unwrap();
    let mut rollout = fixture.rollout(&[]);
    let mut child = rollout.stderr(Stdio::null()).spawn().unwrap();
    let state = || InFlight::of(&fixture.journal()).ok().flatten();
    until(|| state().is_some_and(|state| state.requests == FIRST)).await;
    let state = state().expect("a running process");
    assert_eq!(state.limited_by, Some(Bottleneck::Endpoint));
    assert!(state.units > FIRST, "the next requests are ready");
    let mut status = crate::support::pybench("status");
    status.arg(fixture.folder());
    let shown = String::from_utf8(status.output().unwrap().stdout).unwrap();
    let line = format!("requests in flight: {FIRST}, limited by the endpoint");
    assert!(shown.contains(&line), "{shown}");
    seen.store(true, Ordering::SeqCst);
    let ended = tokio::task::spawn_blocking(move || child.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
    assert!(load.most.load(Ordering::SeqCst) >= wanted);
    let ids: Vec<_> = fixture.trajectories().into_iter().map(|t| t.task).collect();
    let tasks: Vec<_> = fixture.tasks.iter().map(|task| task.id.clone()).collect();
    assert_eq!(ids, tasks, "in the order of the tasks");
    assert_eq!(InFlight::of(&fixture.journal()).unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_turns_requests_away_loses_no_task() {
    if !interpreter_is_here() {
        return;
    }
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let (server, turned_away) = narrow(known.clone(), FIRST - 2, None).await;
    let fixture = RunFixture::new(&recipe(24, &openai(&server.base_url(), FREE), "")).await;
    known.set(fixture.tasks.clone()).unwrap();
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), Some(0), "{stderr}");
    assert_eq!(fixture.trajectories().len(), fixture.tasks.len());
    let turned_away = turned_away.load(Ordering::SeqCst);
    let calls = server.call_count() as usize;
    eprintln!("{calls} requests, {turned_away} turned away");
    assert!((1..calls / 2).contains(&turned_away), "{turned_away}");
}

/// First requests of conversations.
fn conversations(server: &Endpoint) -> usize {
    let is_first = |body: &&String| {
        let request: Value = serde_json::from_str(body).unwrap();
        let messages = request["messages"].as_array().unwrap();
        messages.iter().all(|m| m["role"] != "assistant")
    };
    server.calls().keys().filter(is_first).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_budget_finishes_what_it_starts() {
    if !interpreter_is_here() {
        return;
    }
    // A call costs a cent, and five cents are reserved for it.
    let price = ", price = { prompt = 0.0, completion = 1000.0 }";
    let rest = "[budget]\nusd = 0.4\n[rollout.sampling]\ntemperature = 0.0\ntop_p = 1.0\nmax_tokens = 50\n";
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let server = expert_endpoint(known.clone(), Duration::from_millis(200)).await;
    let fixture = RunFixture::new(&recipe(24, &openai(&server.base_url(), price), rest)).await;
    known.set(fixture.tasks.clone()).unwrap();
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(ExitCode::Budget as i32), "{stderr}");
    let spent = fixture.spent().micro_usd;
    assert!(spent <= 400_000, "{spent}");
    assert_eq!(spent, 10_000 * u64::from(server.call_count()));
    let units = fixture.units();
    let done = units.iter().filter(|unit| unit.state == UnitState::Done);
    let (started, done) = (conversations(&server), done.count());
    eprintln!("{started} trajectories started, {done} done");
    let cores = pybench_run::cores();
    assert!(done > 0 && started - done <= OF_UNKNOWN_COST.max(2 * cores + 1));
    let mut raised = fixture.rollout(&["--set", "budget.usd=100"]);
    let output = raised.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{stderr}");
    assert_eq!(fixture.trajectories().len(), fixture.tasks.len());
    let calls = server.calls();
    assert!(
        calls.values().all(|count| *count == 1),
        "nothing is paid twice"
    );
}
