//! Runs evaluators of fetched benchmarks with Python.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use pybench_interpreter::default_cache_dir;
use pybench_testing::skip;
use serde_json::Value;

use super::{Entry, Place};

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
pub(super) fn ask(program: &str, evaluator: &std::path::Path, question: &Value) -> Value {
    let mut child = Command::new("python3")
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
