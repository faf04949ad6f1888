//! Renders an attempt as a Jupyter notebook.

use pybench_types::trajectory::Trajectory;
use serde_json::json;

use crate::record::Attempt;
use pybench_agent::notebook::{Notebook, Style};

/// The notebook as JSON text.
pub(super) fn notebook(attempt: &Attempt, trajectory: &Trajectory) -> String {
    let about = json!({
        "agent": attempt.agent, "suite": attempt.suite, "task": attempt.task, "seed": attempt.seed,
    });
    let whole = Notebook::of(trajectory, Style::Typed).end(about);
    format!("{whole:#}\n")
}
