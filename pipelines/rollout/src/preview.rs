//! Renders the first attempts of a run as text.

use pybench_run::RunError;
use pybench_types::trajectory::Trajectory;

use pybench_attempts::AttemptStage;
use pybench_show::{RenderOptions, TrajectoryRecord, render};

/// Shows the start of each message, and no system prompt.
const PREVIEW: RenderOptions = RenderOptions {
    system: false,
    color: false,
    max_chars: 1500,
};

/// Renders each attempt: task, messages and how it ended.
///
/// # Errors
/// A task cannot be read.
pub(super) fn render_all(
    stage: &AttemptStage,
    trajectories: &[Trajectory],
) -> Result<String, RunError> {
    let one = |trajectory: &Trajectory| -> Result<String, RunError> {
        let attempt = stage.get(trajectory.id.as_str())?;
        let record = TrajectoryRecord::Trajectory {
            task: attempt.map(|attempt| Box::new((*attempt.task).clone())),
            trajectory: Box::new(trajectory.clone()),
            verdict: None,
        };
        Ok(render(&record.head(), record.messages(), &record.tail(), &PREVIEW) + "\n")
    };
    trajectories.iter().map(one).collect()
}
