//! What pages of tasks and of trajectories share: where they are, and trajectories as the studio shows them.

use pybench_run::RunError;
use pybench_types::text::slug;

use crate::sources::Opened;
use crate::view::View;

/// The path of the page of a task, from the top of the site.
pub(super) fn task_path(suite: &str, task: &str) -> String {
    format!("tasks/{}/{}.html", slug(suite), slug(task))
}

/// The path of the page of a trajectory, from the top of the site.
pub(super) fn trajectory_path(name: &str, number: u64) -> String {
    format!("trajectories/{}/{number}.html", slug(name))
}

/// A trajectory as the studio shows it.
///
/// # Errors
/// The index cannot be read.
pub(super) fn view(opened: &Opened, number: u64) -> Result<Option<View>, RunError> {
    let Some((row, json)) = opened.index.record(number)? else {
        return Ok(None);
    };
    let mut view = View::new(row, serde_json::from_str(&json)?);
    view.mark_missing(|id| opened.has(id));
    Ok(Some(view))
}

/// A result in a word.
pub(super) fn word(passed: bool) -> &'static str {
    match passed {
        true => "passed",
        false => "failed",
    }
}
