//! Renders the first attempts of a run as text.

use pybench_run::artifacts::stage::GRADE;
use pybench_run::{Recipe, RunContext, RunError};
use pybench_types::text::{count, dollars};
use pybench_types::trajectory::Trajectory;

use pybench_attempts::estimate::teacher_name;
use pybench_attempts::{AttemptStage, money};
use pybench_show::{RenderOptions, TrajectoryRecord, render};

/// Shows the start of each message, and no system prompt.
const PREVIEW: RenderOptions = RenderOptions {
    system: false,
    color: false,
    max_chars: 1500,
};

/// Renders each attempt: task, messages, how it ended, its verdict if it is graded, and its cost.
///
/// # Errors
/// A task or a verdict cannot be read.
pub(super) fn render_all(
    context: &RunContext,
    stage: &AttemptStage,
    trajectories: &[Trajectory],
) -> Result<String, RunError> {
    let journal = context.folder.journal();
    let one = |trajectory: &Trajectory| -> Result<String, RunError> {
        let attempt = stage.get(trajectory.id.as_str())?;
        let record = TrajectoryRecord::Trajectory {
            task: attempt.map(|attempt| Box::new((*attempt.task).clone())),
            trajectory: Box::new(trajectory.clone()),
            verdict: journal.output(GRADE, trajectory.id.as_str())?,
        };
        let tail = record.tail() + &cost(&context.recipe, trajectory);
        Ok(render(&record.head(), record.messages(), &tail, &PREVIEW) + "\n")
    };
    trajectories.iter().map(one).collect()
}

/// What the replies of an attempt cost.
fn cost(recipe: &Recipe, trajectory: &Trajectory) -> String {
    let usage = trajectory.usage();
    let mut models = recipe.teachers().into_iter();
    let model = models.find(|(_, model)| teacher_name(model) == trajectory.teacher);
    let price = model.and_then(|(_, model)| money::price(model));
    let cost = price.map_or_else(
        || "an unknown amount (no `price`)".to_owned(),
        |price| dollars(price.micro_usd(usage)),
    );
    format!(
        "cost {cost}: {} prompt tokens and {} completion tokens",
        count(usage.prompt_tokens),
        count(usage.completion_tokens)
    )
}
