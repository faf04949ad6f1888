//! The notebook of an attempt.

use pybench::trajectory::Trajectory;
use serde_json::json;

use crate::eval::record::Attempt;
use crate::notebook::{Notebook, Style};

/// The notebook as text.
pub(super) fn notebook(attempt: &Attempt, trajectory: &Trajectory) -> String {
    let about = json!({
        "agent": attempt.agent, "suite": attempt.suite, "task": attempt.task, "seed": attempt.seed,
    });
    let whole = Notebook::of(trajectory, Style::Typed).end(about);
    format!("{whole:#}\n")
}
