//! A run that workers share, beside a local run of the same recipe.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pybench_run::ExitCode;

use crate::support::PYBENCH;
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, openai};
use crate::workers::{
    assert_nothing_is_left, assert_same, coordinator, drain, local_run, recipe, start_workers,
    worker_of,
};

/// A run with three workers, and with one of another version of pybench, which takes no units.
pub(crate) struct SharedRun {
    pub(crate) fixture: RunFixture,
    pub(crate) server: Endpoint,
    pub(crate) workers: Vec<Child>,
    stranger: Child,
    coordinating: Child,
    /// The dataset of the local run, and the number of its requests.
    local: (BTreeMap<PathBuf, Vec<u8>>, usize),
}

impl SharedRun {
    /// Makes a local run, and begins one with a profile, at an endpoint that answers after `delay`. The other version of
    /// pybench is put into the folder `settings`.
    pub(crate) async fn begin(settings: &Path, profile: &Path, delay: Duration) -> Self {
        let tasks = Arc::new(OnceLock::new());
        let server = expert_endpoint(tasks.clone(), delay).await;
        let text = recipe(&openai(&server.base_url(), FREE), "");
        let local = local_run(&server, &tasks, &text).await;
        let fixture = RunFixture::bare(&text);
        Self {
            workers: start_workers(&fixture, profile, 3),
            stranger: start_stranger(settings, &fixture, profile),
            coordinating: coordinator(&fixture, profile).spawn().unwrap(),
            fixture,
            server,
            local,
        }
    }

    /// Waits until the coordinator ends well, and does something again and again meanwhile.
    pub(crate) fn follow(&mut self, mut meanwhile: impl FnMut(&mut Self)) {
        let status = loop {
            if let Some(status) = self.coordinating.try_wait().unwrap() {
                break status;
            }
            meanwhile(self);
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(status.success(), "{status}");
    }

    /// Checks that the run which has ended has the bytes of the local run, ends the workers, and checks that nothing is left.
    pub(crate) fn end(mut self) {
        assert_same(&self.fixture, &self.server, &self.local);
        for worker in &mut self.workers {
            drain(worker);
        }
        assert_refused(self.stranger);
        assert_nothing_is_left(&self.fixture);
    }
}

/// Starts a worker of another version: a copy of the program with one more byte.
fn start_stranger(settings: &Path, fixture: &RunFixture, profile: &Path) -> Child {
    // A child makes the copy, so that no file that is to be executed is open for writing here.
    let other = settings.join("pybench");
    let copied = Command::new("sh")
        .args(["-c", "cp \"$1\" \"$2\" && printf x >>\"$2\"", "sh", PYBENCH])
        .arg(&other)
        .status()
        .unwrap();
    assert!(copied.success());
    let mut program = Command::new(&other);
    program.arg("worker");
    let mut stranger = worker_of(program, fixture, profile);
    stranger.stderr(Stdio::piped()).spawn().unwrap()
}

/// Checks that a worker of another version has taken nothing, and has said why.
fn assert_refused(stranger: Child) {
    let output = stranger.wait_with_output().unwrap();
    let code = output.status.code();
    assert_eq!(code, Some(ExitCode::Conflict as i32), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("takes no units") && errors.contains("another version of pybench"),
        "{errors}"
    );
}
