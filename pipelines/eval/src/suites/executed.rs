//! Answers that are executed in sandbox sessions to be scored: their verdicts, and the sessions.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use pybench_interpreter::{Interpreter, Limits, SessionSpec};
use pybench_run::{Failure, interpreter_failure};
use pybench_types::id::Digest;
use serde::{Deserialize, Serialize};

/// The verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) upstream: bool,
    /// Meaningful for programs only.
    pub(super) strict: bool,
}

/// The verdicts that are known, by task and answer.
#[derive(Debug, Default)]
pub(super) struct Verdicts(RwLock<HashMap<(String, Digest), Verdict>>);

fn key(task: &str, answer: &str) -> (String, Digest) {
    (task.to_owned(), Digest::of_bytes(answer.as_bytes()))
}

impl Verdicts {
    /// The verdict on an answer, if it is known.
    pub(super) fn get(&self, task: &str, answer: &str) -> Option<Verdict> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&key(task, answer)).copied()
    }

    /// Remembers a verdict.
    pub(super) fn insert(&self, task: &str, answer: &str, verdict: Verdict) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(key(task, answer), verdict);
    }
}

/// Runs a script in a session without network, with these inputs and this limit. The result is what it wrote to
/// `output/verdicts.json`; `None` if it did not end by itself.
///
/// # Errors
/// Failures of the sandbox.
pub(super) async fn run_script<T: for<'a> Deserialize<'a>>(
    interpreter: &dyn Interpreter,
    script: &str,
    inputs: BTreeMap<String, PathBuf>,
    cell_seconds: u64,
) -> Result<Option<Vec<T>>, Failure> {
    let spec = SessionSpec {
        inputs,
        limits: Limits {
            cell_seconds,
            output_files: 1,
            output_mib: 64,
            ..Limits::default()
        },
        ..SessionSpec::default()
    };
    let session = interpreter.start(spec).await;
    let mut session = session.map_err(interpreter_failure)?;
    let seen = session.execute(script).await;
    let collected = session.read_outputs().await;
    session.close().await.map_err(interpreter_failure)?;
    if let Some(error) = &seen.map_err(interpreter_failure)?.error {
        tracing::debug!("executing answers failed: {}", error.traceback);
    }
    let files = collected.map_err(interpreter_failure)?.files;
    let file = files
        .iter()
        .find(|file| file.path == "output/verdicts.json");
    Ok(file.and_then(|file| serde_json::from_slice(&file.bytes).ok()))
}
