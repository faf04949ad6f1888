//! What tests of suites share: an environment with real sessions, and evaluators of fetched benchmarks, run with Python.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_interpreter::default_cache_dir;
use pybench_run::{ExecutorOptions, Interrupt, LocalExecutor, Progress, RunFolder};
use pybench_testing::sessions::default_interpreter;
use pybench_testing::skip;
use serde_json::Value;

use super::{Entry, Place};
use crate::suite::SuiteEnv;

/// What a suite works with, if sessions run here; its run folder is `folder`.
pub(super) fn env(folder: &Path) -> Option<SuiteEnv> {
    let interpreter = default_interpreter()?;
    let folder = Arc::new(RunFolder::open(folder, "").unwrap());
    Some(SuiteEnv {
        checker: Checker::new(interpreter.clone()).unwrap(),
        executor: LocalExecutor::new(
            folder.clone(),
            ExecutorOptions::default(),
            Progress::hidden(),
            Interrupt::new(),
        ),
        interpreter,
        folder,
    })
}

/// The checkout of a benchmark; if it is not here, the test is skipped.
pub(super) fn checkout(entry: &Entry) -> Option<PathBuf> {
    let place = Place {
        cache: &default_cache_dir(),
        project: None,
        pybench: None,
        pybench_tasks: None,
    };
    entry.checkout(&place).map_err(skip::unavailable).ok()
}

/// Runs a program with `python3`: JSON in, JSON out.
pub(super) fn ask(program: &str, evaluator: &Path, question: &Value) -> Value {
    ask_python(Path::new("python3"), program, evaluator, question)
}

/// As [`ask`], with another interpreter of Python.
pub(super) fn ask_python(
    python: &Path,
    program: &str,
    evaluator: &Path,
    question: &Value,
) -> Value {
    let mut child = Command::new(python)
        .args(["-W", "ignore", "-c", program])
        .arg(evaluator)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = question.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}
