//! The sessions of a worker end with it, and before the leases of its units when it is suspended.

use std::collections::HashMap;
use std::process::Child;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pybench_interpreter::session_guard::CHILDREN;
use pybench_testing::skip;
use rustix::process::Signal;

use crate::kill::dataset;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::workers::{
    LEASE, coordinator, drain, local_run, profile, recipe, requests, signal, start_workers,
};

/// A process: number and start time, so that another process of the same number is told apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    pid: u32,
    started: u64,
    parent: u32,
    is_zombie: bool,
}

impl Process {
    /// From `/proc/<pid>/stat`; `None` if there is no such process.
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the last parenthesis may contain anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            pid,
            started: fields.get(19)?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            is_zombie: fields.first() == Some(&"Z"),
        })
    }

    fn is_alive(self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started && !now.is_zombie)
    }

    fn is_guard(self) -> bool {
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid));
        line.is_ok_and(|line| line.contains("guard-sessions"))
    }
}

/// All processes below `root`.
pub(crate) fn descendants(root: &Child) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    for process in pids.filter_map(Process::read) {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut parents) = (Vec::new(), vec![root.id()]);
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            found.push(process);
        }
    }
    found
}

/// Waits until a worker has a guard and processes of sessions; returns the latter.
fn sessions(worker: &Child) -> Vec<Process> {
    let since = Instant::now();
    loop {
        let all = descendants(worker);
        let (guards, sessions): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|process| process.is_guard());
        if guards.len() == 1 && sessions.len() > 1 {
            return sessions;
        }
        assert!(
            since.elapsed() < Duration::from_secs(120),
            "{guards:?}, {sessions:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that processes end within the time.
pub(crate) fn wait_for_end(processes: &[Process], limit: Duration) {
    let since = Instant::now();
    while processes.iter().any(|process| process.is_alive()) {
        assert!(since.elapsed() < limit, "{processes:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_killed_and_suspended_workers_end() {
    if !std::path::Path::new(CHILDREN).exists() {
        return skip::unavailable(format!("{CHILDREN}: the kernel does not list children"));
    }
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(1_000)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let (expected, _) = local_run(&server, &tasks, &text).await;

    let shared = RunFixture::bare(&text);
    let mut coordinating = coordinator(&shared, &profile).spawn().unwrap();
    let mut workers = start_workers(&shared, &profile, 2);
    let working = Instant::now();
    while requests(&server) == 0 {
        assert!(
            working.elapsed() < Duration::from_secs(120),
            "nothing begins"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let of_killed = sessions(&workers[0]);
    let of_suspended = sessions(&workers[1]);
    signal(&workers[0], Signal::KILL);
    signal(&workers[1], Signal::STOP);
    // A lease is renewed after a third of its duration.
    wait_for_end(&of_suspended, Duration::from_secs(u64::from(LEASE)));
    wait_for_end(&of_killed, Duration::from_secs(u64::from(LEASE)));
    workers[0].wait().unwrap();
    assert!(
        coordinating.try_wait().unwrap().is_none(),
        "the run was over before the signals"
    );
    std::thread::sleep(Duration::from_secs(u64::from(LEASE)));
    signal(&workers[1], Signal::CONT);
    let status = coordinating.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(dataset(&shared) == expected, "another dataset");
    drain(&mut workers[1]);
}
