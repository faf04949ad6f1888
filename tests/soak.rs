//! Many sessions at once while processes are killed at random: nothing leaks, every failure is known.
//!
//! `SESSIONS`, `IN_FLIGHT` and `KILL_MS` (between two kills) make it larger: `just soak`. Where servers are
//! killed faster than they warm up, sessions that could not be started are many, as they should be.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pybench::interpreter::{Interpreter, InterpreterError, LocalInterpreter, SessionSpec, Stopped};
use support::*;
use tokio::sync::Semaphore;

const CELLS: [&str; 5] = [
    "import numpy as np, pandas as pd\ndf = pd.DataFrame({'a': range(10)})",
    "df['b'] = df.a ** 2\ndf.b.sum()",
    "import matplotlib.pyplot as plt\ndf.plot(); plt.savefig('output/a.png')",
    "import subprocess; subprocess.run(['echo', 'child'], check=True)",
    "int(df.b.sum()), len(open('output/a.png', 'rb').read()) > 1000",
];

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// What became of one session.
async fn one(interpreter: &LocalInterpreter, seed: u64) -> &'static str {
    let spec = SessionSpec {
        seed,
        ..SessionSpec::default()
    };
    let mut session = match interpreter.start(spec).await {
        Ok(session) => session,
        Err(InterpreterError::Start(why)) => {
            println!("not started: {why}");
            return "could not be started";
        }
        Err(error) => panic!("{error}"),
    };
    let mut outcome = "done";
    for cell in CELLS {
        match session.execute(cell).await {
            Ok(seen) if seen.stopped == Some(Stopped::Died) => outcome = "died in a cell",
            Ok(seen) if seen.error.is_some() && outcome == "done" => panic!("{cell}: {seen:?}"),
            Ok(_) => {}
            Err(InterpreterError::Start(_)) => outcome = "could not be started again",
            Err(error) => panic!("{error}"),
        }
    }
    session.close().await.unwrap();
    outcome
}

/// Kills a process below this one from time to time: a session's, or the server. Returns how many.
fn chaos(stop: &AtomicBool, every: Duration) -> usize {
    let (mut killed, mut state) = (0, 0x2545_f491_4f6c_dd1d_u64);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(every);
        let all = below(std::process::id());
        let Some(processes) = all.get(2..).filter(|rest| !rest.is_empty()) else {
            continue; // the two that hold the namespace stay: with them everything goes
        };
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (pid, _) = processes[(state % processes.len() as u64) as usize];
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        if rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok() {
            killed += 1;
        }
    }
    killed
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        >> 10
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaks() {
    let interpreter = match LocalInterpreter::jail() {
        Ok(interpreter) => Arc::new(interpreter),
        Err(InterpreterError::Unavailable(reason)) => return eprintln!("skipped: {reason}"),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(one(&interpreter, 0).await, "done");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = (descriptors(), resident_mib());

    let (sessions, in_flight) = (number("SESSIONS", 24), number("IN_FLIGHT", 6));
    let permits = Arc::new(Semaphore::new(in_flight));
    let stop = Arc::new(AtomicBool::new(false));
    let killer = {
        let (stop, every) = (
            stop.clone(),
            Duration::from_millis(number("KILL_MS", 2000) as u64),
        );
        std::thread::spawn(move || chaos(&stop, every))
    };
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..sessions {
        let permit = permits.clone().acquire_owned().await.unwrap();
        let interpreter = interpreter.clone();
        tasks.spawn(async move {
            let outcome = one(&interpreter, seed as u64).await;
            drop(permit);
            outcome
        });
    }
    let mut outcomes = BTreeMap::new();
    while let Some(outcome) = tasks.join_next().await {
        *outcomes.entry(outcome.unwrap()).or_insert(0) += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let killed = killer.join().unwrap();
    println!("{sessions} sessions, {killed} processes killed: {outcomes:?}");
    assert_eq!(outcomes.values().sum::<usize>(), sessions);
    assert!(outcomes.contains_key("done"));

    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = (descriptors(), resident_mib());
    println!(
        "descriptors {} → {}, memory {} → {} MiB",
        before.0, after.0, before.1, after.1
    );
    assert!(
        after.0 <= before.0 + 8,
        "descriptors: {before:?} → {after:?}"
    );
    assert!(after.1 <= before.1 + 200, "memory: {before:?} → {after:?}");
    drop(interpreter);
    for _ in 0..200 {
        if left(std::process::id()).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(left(std::process::id()), Vec::<String>::new());
}
