//! Limits of endpoints: several keys in turn, one of them refused; more requests than it bears at a time.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{
    ExpertServer, FREE, RunFixture, code, interpreter_is_here, openai, recipe,
};
use pybench_types::task::Task;

/// An expert that answers at most `most` at a time and turns others away, with what it then says of the time to wait.
pub(crate) async fn narrow(
    tasks: Arc<OnceLock<Vec<Task>>>,
    most: usize,
    retry_after: Option<&'static str>,
) -> (Endpoint, Arc<AtomicUsize>) {
    let expert = Arc::new(ExpertServer::new());
    let (at_once, turned_away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = turned_away.clone();
    let server = Endpoint::start(move |request| {
        let (tasks, expert) = (tasks.clone(), expert.clone());
        let (at_once, count) = (at_once.clone(), count.clone());
        async move {
            let before = at_once.fetch_add(1, Ordering::SeqCst);
            let answer = match before < most {
                true => {
                    // Until somebody was turned away, a minute at most: requests may come far apart.
                    for _ in 0..600 {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        if most == usize::MAX || count.load(Ordering::SeqCst) > 0 {
                            break;
                        }
                    }
                    expert.answer(tasks.get().unwrap(), &request)
                }
                false => {
                    count.fetch_add(1, Ordering::SeqCst);
                    Answer::Status(429, retry_after.map(Into::into), String::new())
                }
            };
            at_once.fetch_sub(1, Ordering::SeqCst);
            answer
        }
    })
    .await;
    (server, turned_away)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_asked_no_faster_than_it_bears() {
    if !interpreter_is_here() {
        return;
    }
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let (server, turned_away) = narrow(known.clone(), 2, Some("0.2")).await;
    let rest = "[rollout]\nconcurrency = 8\nattempts = 6\n";
    let fixture = RunFixture::new(&recipe(16, &openai(&server.base_url(), FREE), rest)).await;
    known.set(fixture.tasks.clone()).unwrap();
    let output = fixture.rollout(&[]).output().unwrap();
    assert_eq!(
        code(&output),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fixture.trajectories().len(), 16, "nobody was given up");
    let turned_away = turned_away.load(Ordering::SeqCst);
    let calls = server.call_count() as usize;
    eprintln!("{calls} requests, {turned_away} turned away");
    assert!(
        turned_away > 0 && turned_away < calls / 2,
        "{turned_away} of {calls}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_taken_in_turn_and_never_written_down() {
    if !interpreter_is_here() {
        return;
    }
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let (server, _) = narrow(known.clone(), usize::MAX, Some("0.2")).await;
    let keys =
        ", key_env = 'FIRST_KEY', more_keys_env = ['SECOND_KEY'], requests_per_minute = 60000";
    let teacher = openai(&server.base_url(), &format!("{FREE}{keys}"));
    let fixture = RunFixture::new(&recipe(4, &teacher, "")).await;
    known.set(fixture.tasks.clone()).unwrap();
    let output = fixture
        .rollout(&[])
        .env("FIRST_KEY", "sk-first-secret")
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(5), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("SECOND_KEY"));
    let mut both = fixture.rollout(&[]);
    both.env("FIRST_KEY", "sk-first-secret")
        .env("SECOND_KEY", "sk-second-secret");
    let output = both.output().unwrap();
    assert_eq!(code(&output), Some(0), "{output:?}");
    let used = server.keys();
    let of = |key: &str| {
        let bearer = format!("Bearer {key}");
        used.iter()
            .flatten()
            .filter(|header| **header == bearer)
            .count()
    };
    let (first, second) = (of("sk-first-secret"), of("sk-second-secret"));
    assert_eq!(first + second, used.len());
    assert!(first.abs_diff(second) <= 1, "{first} and {second}");
    for file in [
        "recipe.toml",
        "journal.sqlite",
        "journal.sqlite-wal",
        "trajectories.jsonl",
    ] {
        let bytes = std::fs::read(fixture.folder().join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("-secret"), "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_wait_is_shown_and_ends_at_the_first_interrupt() {
    if !interpreter_is_here() {
        return;
    }
    let busy = Answer::Status(429, Some("1000000000000".into()), String::new());
    let server = Endpoint::always(busy).await;
    let rest = "[rollout]\nconcurrency = 1\n";
    let fixture = RunFixture::new(&recipe(4, &openai(&server.base_url(), FREE), rest)).await;
    let mut rollout = fixture.rollout(&[]);
    let mut child = rollout.stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let pid = Pid::from_child(&child);
    let ended = tokio::task::spawn_blocking(move || {
        let mut lines = Vec::new();
        for line in stderr.lines().map_while(Result::ok) {
            if line.contains("rate limit reached; the next request starts in") {
                kill_process(pid, Signal::INT).unwrap();
            }
            lines.push(line);
        }
        (child.wait().unwrap(), lines.join("\n"))
    });
    let (status, log) = ended.await.unwrap();
    assert_eq!(status.code(), Some(130), "{log}");
    assert!(log.contains("asks to wait 1000000000000 s"), "{log}");
    assert!(log.contains("starts in 600 s"), "{log}");
    assert_eq!(server.call_count(), 1, "the others were never sent");
}
