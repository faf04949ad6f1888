//! A run against an endpoint that does everything wrong: it ends, every failure has its own kind, and
//! none becomes a verdict on the model.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::support::endpoint::{Answer, Endpoint, completion};
use crate::support::fixture::{
    FREE, RunFixture, code, find_task, interpreter_is_here, openai, recipe,
};
use pybench_rollout as rollout;
use pybench_run::{ExitCode, FailureKind, UnitState};
use pybench_types::observation::Stopped;
use pybench_types::task::Task;
use pybench_types::trajectory::{End, Message};
use serde_json::{Value, json};

const FOREVER: &str = "<|execute_start|>\n```python\nwhile True: pass\n```\n<|execute_end|>";
const GOOD: &str = "<|execute_start|>\n```python\nprint(40 + 2)\n```\n<|execute_end|>";
const DONE: &str = "Finished:\nSize: 1, 1";

/// What a task meets. `Once` is followed by good answers.
#[derive(Clone)]
enum Mode {
    Always(Answer),
    Once(Answer),
    Says(&'static [&'static str]),
}

type Case = (&'static str, Mode);

/// Those that meet no limit.
fn modes() -> Vec<Case> {
    let half = "{\"choices\": [{\"message\": {\"content\": \"\u{6570}".as_bytes();
    let half = half[..half.len() - 1].to_vec();
    let status = |status| Answer::Status(status, None, "{\"error\": {}}".into());
    let busy = Answer::Status(429, Some("1".into()), String::new());
    vec![
        ("rate_limited", Mode::Always(busy.clone())),
        ("rate_limited once", Mode::Once(busy)),
        ("server", Mode::Always(status(500))),
        ("server once", Mode::Once(status(503))),
        (
            "malformed",
            Mode::Always(Answer::Bytes(b"{\"choices\": [".to_vec())),
        ),
        (
            "malformed",
            Mode::Always(Answer::Bytes(b"{\"choices\": []}".to_vec())),
        ),
        ("malformed", Mode::Always(Answer::Bytes(half))),
        ("too_large", Mode::Always(Answer::Huge(20_000_000))),
        ("broken", Mode::Always(Answer::CloseMidway)),
        ("rejected", Mode::Always(status(422))),
        ("no code", Mode::Says(&["It is probably 42."])),
        ("never closes", Mode::Says(&["```python\nprint(1)", DONE])),
        ("nothing", Mode::Says(&["", DONE])),
        ("good", Mode::Says(&[GOOD, DONE])),
    ]
}

/// The tasks, and the number of the case of each task id.
type CaseNumbers = Arc<OnceLock<(Vec<Task>, HashMap<String, usize>)>>;

async fn misbehaving(modes: Vec<Case>, numbers: CaseNumbers) -> Endpoint {
    let seen: Arc<Mutex<HashMap<usize, u32>>> = Arc::default();
    Endpoint::start(move |request: Value| {
        let (tasks, case_of) = numbers.get().unwrap();
        let messages: Vec<Message> = serde_json::from_value(request["messages"].clone()).unwrap();
        let case = case_of[find_task(tasks, &messages).id.as_str()];
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(case).or_default();
        *times += 1;
        let replies = messages
            .iter()
            .filter(|m| m.role == pybench_types::trajectory::Role::Assistant);
        let turn = replies.count();
        let line = |lines: &[&str]| Answer::Content(lines[turn.min(lines.len() - 1)].to_owned());
        let answer = match &modes[case].1 {
            Mode::Always(answer) => answer.clone(),
            Mode::Once(answer) if *times == 1 => answer.clone(),
            Mode::Once(_) => line(&[GOOD, DONE]),
            Mode::Says(lines) => line(lines),
        };
        std::future::ready(answer)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_is_classified_and_none_is_a_verdict() {
    if !interpreter_is_here() {
        return;
    }
    assert_eq!(meet(modes(), 60, 60).await, Err(ExitCode::Incomplete));
    // Apart: on a busy machine healthy work meets a short limit too.
    let silent = vec![("timeout", Mode::Always(Answer::Hang))];
    assert_eq!(meet(silent, 3, 60).await, Err(ExitCode::Endpoint));
    let endless = vec![("never ends", Mode::Says(&[FOREVER, DONE]))];
    assert_eq!(meet(endless, 60, 2).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_hangs_for_ever_fails_and_the_rest_of_the_run_ends() {
    if !interpreter_is_here() {
        return;
    }
    let modes = vec![
        ("hangs", Mode::Always(Answer::Hang)),
        ("good", Mode::Says(&[GOOD, DONE])),
    ];
    let numbers: CaseNumbers = Arc::default();
    let server = misbehaving(modes, numbers.clone()).await;
    // The request alone may take longer than the unit.
    let teacher = openai(
        &server.base_url(),
        &format!("{FREE}, timeout_seconds = 3600"),
    );
    let rest = "[rollout]\nattempts = 2\nunit_minutes = 0.25\nconcurrency = 2\n";
    let fixture = RunFixture::new(&recipe(2, &teacher, rest)).await;
    let case_of = fixture.tasks.iter().enumerate();
    let case_of = case_of
        .map(|(at, task)| (task.id.to_string(), at))
        .collect();
    numbers.set((fixture.tasks.clone(), case_of)).unwrap();

    rollout::run(&fixture.context()).await.unwrap();
    let [hangs, good] = <[_; 2]>::try_from(fixture.units()).unwrap();
    assert_eq!((hangs.state, hangs.attempts), (UnitState::Failed, 2));
    let failure = hangs.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Internal);
    assert!(
        failure.detail.contains("did not end within 0.25 minutes"),
        "{failure}"
    );
    assert_eq!(good.state, UnitState::Done, "{:?}", good.failure);
}

/// A run with these cases and limits in seconds; what it came to.
async fn meet(modes: Vec<Case>, answer: u32, cell: u32) -> Result<(), ExitCode> {
    let numbers: CaseNumbers = Arc::default();
    let server = misbehaving(modes.clone(), numbers.clone()).await;
    let more = format!("{FREE}, timeout_seconds = {answer}");
    let teacher = openai(&server.base_url(), &more);
    let rest = format!(
        "[rollout]\nattempts = 2\nconcurrency = 4\n\n[interpreter.limits]\ncell_seconds = {cell}\n"
    );
    let fixture = RunFixture::new(&recipe(modes.len(), &teacher, &rest)).await;
    assert_eq!(fixture.tasks.len(), modes.len());
    let case_of = fixture.tasks.iter().enumerate();
    let case_of = case_of
        .map(|(at, task)| (task.id.to_string(), at))
        .collect();
    numbers.set((fixture.tasks.clone(), case_of)).unwrap();

    let context = fixture.context();
    let ran = rollout::run(&context).await;
    let ran = ran.and_then(|()| rollout::check_complete(&context));

    // Where no try came to an end, no file is written.
    let trajectories = match fixture.folder().join("trajectories.jsonl").exists() {
        true => fixture.trajectories(),
        false => Vec::new(),
    };
    let by_task: BTreeMap<_, _> = trajectories.iter().map(|t| (t.task.as_str(), t)).collect();
    for (at, unit) in fixture.units().into_iter().enumerate() {
        let (name, mode) = &modes[at];
        let trajectory = by_task.get(fixture.tasks[at].id.as_str());
        if let Mode::Always(_) = mode {
            assert_eq!(unit.state, UnitState::Failed, "{name}");
            let failure = unit.failure.unwrap();
            assert_eq!(failure.kind, FailureKind::Endpoint, "{name}");
            assert!(
                failure.detail.starts_with(&format!("{name}: ")),
                "{name}: {failure}"
            );
            assert!(trajectory.is_none(), "{name}: nothing to judge");
            let attempts = if *name == "rejected" { 1 } else { 2 };
            assert_eq!(unit.attempts, attempts, "{name}");
            continue;
        }
        assert_eq!(unit.state, UnitState::Done, "{name}: {:?}", unit.failure);
        let trajectory = trajectory.unwrap();
        let first = trajectory.turns[0].observation.as_ref();
        let end = if *name == "no code" {
            End::NoAnswer
        } else {
            End::Finished
        };
        assert_eq!(trajectory.end, end, "{name}");
        let stopped = first.and_then(|seen| seen.stopped);
        let expected = (*name == "never ends").then_some(Stopped::Interrupted);
        assert_eq!(stopped, expected, "{name}");
        let told = ["never closes", "nothing"].contains(name);
        assert_eq!(
            told,
            trajectory.turns[0].cell.is_none() && first.is_some(),
            "{name}"
        );
    }
    assert_eq!(
        trajectories.len(),
        modes
            .iter()
            .filter(|(_, m)| !matches!(m, Mode::Always(_)))
            .count()
    );
    ran.map_err(|error| error.exit_code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_stops_the_run_and_is_never_written_down() {
    if !interpreter_is_here() {
        return;
    }
    let body = r#"{"error": {"message": "no such key: sk-test-very-secret"}}"#;
    let server = Endpoint::always(Answer::Status(401, None, body.into())).await;
    let more = format!("{FREE}, key_env = 'PYBENCH_TEST_KEY'");
    let rest = "[rollout]\nconcurrency = 4\n";
    let fixture = RunFixture::new(&recipe(6, &openai(&server.base_url(), &more), rest)).await;

    let mut command = fixture.rollout(&["-vv"]);
    let without = command.env_remove("PYBENCH_TEST_KEY").output().unwrap();
    assert_eq!(code(&without), Some(ExitCode::Endpoint as i32));
    assert!(String::from_utf8_lossy(&without.stderr).contains("PYBENCH_TEST_KEY"));
    assert_eq!(
        server.call_count(),
        0,
        "nothing is sent without the key that the recipe names"
    );

    let output = command
        .env("PYBENCH_TEST_KEY", "sk-test-very-secret")
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(ExitCode::Endpoint as i32));
    assert!(
        server.call_count() <= 4,
        "no other try is made once the key is refused"
    );
    assert_eq!(
        server.keys()[0].as_deref(),
        Some("Bearer sk-test-very-secret")
    );
    let said = [output.stderr, output.stdout].concat();
    assert!(!String::from_utf8_lossy(&said).contains("very-secret"));
    for entry in std::fs::read_dir(fixture.folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(11).any(|window| window == b"very-secret");
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_token_counts_neither_end_nor_stop_a_run() {
    if !interpreter_is_here() {
        return;
    }
    let claims = [
        5_000_000_000_000_000_000,
        1 << 63,
        u64::MAX,
        1_000_000_000_000,
    ];
    let answered = AtomicUsize::new(0);
    let server = Endpoint::start(move |_| {
        let claimed = claims[answered.fetch_add(1, Ordering::SeqCst) % claims.len()];
        let mut reply = completion(DONE);
        reply["usage"] = json!({"prompt_tokens": claimed, "completion_tokens": 10});
        std::future::ready(Answer::Bytes(reply.to_string().into_bytes()))
    })
    .await;
    let more = format!("{FREE}, tokens_per_minute = 60000");
    let fixture = RunFixture::new(&recipe(8, &openai(&server.base_url(), &more), "")).await;
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), Some(0), "{stderr}");
    let warnings = stderr.matches("tokens that were reserved (-v logs every such call)");
    assert_eq!(warnings.count(), 1, "{stderr}");
    assert_eq!(server.call_count(), 8, "nothing is paid twice");
    assert!((8..8_000_000).contains(&fixture.spent().tokens));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_concerns_all_calls_stops_the_run() {
    if !interpreter_is_here() {
        return;
    }
    for status in [401, 403, 404] {
        let refusal = r#"{"error": {"message": "no such model"}}"#;
        let server = Endpoint::always(Answer::Status(status, None, refusal.into())).await;
        let rest = "[rollout]\nconcurrency = 1\n";
        let fixture = RunFixture::new(&recipe(4, &openai(&server.base_url(), FREE), rest)).await;
        let output = fixture.rollout(&[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(ExitCode::Endpoint as i32), "{stderr}");
        assert!(
            stderr.contains(&format!("{status}: no such model")),
            "{stderr}"
        );
        assert_eq!(server.call_count(), 1, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trajectory_survives_an_overload_at_each_of_its_calls() {
    if !interpreter_is_here() {
        return;
    }
    let seen: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    let server = Endpoint::start(move |request: Value| {
        let messages = request["messages"].as_array().unwrap();
        let turn = messages.iter().filter(|m| m["role"] == "assistant").count();
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(request["messages"].to_string()).or_default();
        *times += 1;
        std::future::ready(match (*times, turn) {
            (1, _) => Answer::Status(429, Some("0.01".into()), String::new()),
            (_, 0..3) => Answer::Content(GOOD.to_owned()),
            _ => Answer::Content(DONE.to_owned()),
        })
    })
    .await;
    let rest = "[rollout]\nattempts = 2\n";
    let fixture = RunFixture::new(&recipe(2, &openai(&server.base_url(), FREE), rest)).await;
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), Some(0), "{stderr}");
    let turns: Vec<_> = fixture
        .trajectories()
        .iter()
        .map(|t| t.turns.len())
        .collect();
    assert_eq!(turns, [4, 4]);
    assert_eq!(server.call_count(), 2 * 4 * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_after_a_storm_of_errors() {
    if !interpreter_is_here() {
        return;
    }
    let storm = Arc::new(AtomicBool::new(true));
    let (raging, asked) = (storm.clone(), AtomicUsize::new(0));
    let server = Endpoint::start(move |_| {
        // One answer in twenty comes through.
        let through = asked.fetch_add(1, Ordering::SeqCst) % 20 == 19;
        std::future::ready(match raging.load(Ordering::SeqCst) && !through {
            true => Answer::Status(500, Some("0.01".into()), "{}".into()),
            false => Answer::Content(DONE.to_owned()),
        })
    })
    .await;
    let rest = "[rollout]\nattempts = 2\nconcurrency = 8\n";
    let fixture = RunFixture::new(&recipe(12, &openai(&server.base_url(), FREE), rest)).await;
    let stormed = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&stormed.stderr);
    let ended = [ExitCode::Endpoint as i32, ExitCode::Incomplete as i32];
    assert!(ended.contains(&code(&stormed).unwrap()), "{stderr}");
    let done = |unit: &pybench_run::Unit| unit.state == UnitState::Done;
    let before = fixture.units().iter().filter(|unit| done(unit)).count();
    assert!(before < 12, "the storm failed something");

    storm.store(false, Ordering::SeqCst);
    let calls = server.call_count() as usize;
    let resumed = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(code(&resumed), Some(0), "{stderr}");
    assert_eq!(fixture.trajectories().len(), 12);
    let again = server.call_count() as usize - calls;
    assert_eq!(
        again,
        12 - before,
        "what came through is not asked for again"
    );
}

#[test]
fn a_missing_key_is_found_before_the_crawl() {
    for (model, path) in [
        ("teacher", "`teacher`"),
        ("judge", "`grade.judge.teacher`"),
        ("more", "`teacher`"),
    ] {
        let keyed = |key: &str| openai("http://127.0.0.1:1/v1", &format!("{FREE}, {key}"));
        let absent = "key_env = 'PYBENCH_ABSENT_KEY'";
        let (teacher, judge) = match model {
            "teacher" => (keyed(absent), keyed("timeout_seconds = 9")),
            "judge" => (keyed("timeout_seconds = 9"), keyed(absent)),
            _ => (
                keyed("key_env = 'PATH', more_keys_env = ['PYBENCH_ABSENT_KEY']"),
                keyed("timeout_seconds = 9"),
            ),
        };
        let text = recipe(2, &teacher, &format!("[grade.judge]\nteacher = {judge}\n"));
        let fixture = RunFixture::bare(&text);
        let mut synthesize = fixture.program("synthesize", &[]);
        let output = synthesize
            .env_remove("PYBENCH_ABSENT_KEY")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(ExitCode::Endpoint as i32), "{stderr}");
        let named = stderr.contains(path) && stderr.contains("PYBENCH_ABSENT_KEY");
        assert!(named, "{model}: {stderr}");
        assert!(!fixture.folder().join("files.jsonl").exists(), "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_endpoint_is_an_endpoint_failure() {
    if !interpreter_is_here() {
        return;
    }
    // Not a port that was freed: another program may take it.
    let url = "http://127.0.0.1:1/v1";
    let rest = "[rollout]\nattempts = 2\nconcurrency = 1\n";
    let fixture = RunFixture::new(&recipe(4, &openai(url, FREE), rest)).await;
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(ExitCode::Endpoint as i32), "{stderr}");
    let address =
        "cannot connect to the endpoint: http://127.0.0.1:1: Connection refused (os error 111)";
    assert!(stderr.contains(address), "{stderr}");
    assert_eq!(fixture.spent().calls, 0, "nothing was paid");
    // The first unit had its attempts; the other units, which would fail in the same way, were not started.
    let units = fixture.units();
    let attempts: Vec<_> = units.iter().map(|unit| unit.attempts).collect();
    assert_eq!(attempts, [2, 0, 0, 0]);
    assert_eq!(units[0].state, UnitState::Failed);
}
