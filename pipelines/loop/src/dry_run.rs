//! What a loop would do and cost.

use std::fmt::Write as _;

use pybench_attempts::estimate;
use pybench_run::{LoopChoice, Recipe, RunContext, RunError};
use pybench_types::task::Task;

use crate::round;
use crate::tasks::LoopTasks;

/// The rounds, and the estimate of what their attempts and the evaluations cost.
pub(crate) fn text(
    context: &RunContext,
    looped: &LoopChoice,
    tasks: &LoopTasks,
) -> Result<String, RunError> {
    let student = &context.recipe.teacher;
    let mut text = format!(
        "{} rounds; {} held-out tasks, attempted once before the first round{}\n",
        looped.rounds,
        tasks.held_out.len(),
        match looped.train {
            Some(_) => " and after each",
            None => "",
        }
    );
    for (number, of_round) in (1..).zip(&tasks.rounds) {
        let recipe = round::recipe(context, number, student);
        let _ = writeln!(text, "\nround {number}: {} tasks", of_round.len());
        text += &estimate_of(context, recipe, of_round)?;
        if let Some(train) = &looped.train {
            let _ = writeln!(text, "training           {}", train.display());
        }
        if let Some(preference) = &looped.preference {
            let _ = writeln!(
                text,
                "then DPO           on the preference pairs of all rounds so far: beta {}, learning rate {:e}, {} epochs",
                preference.beta, preference.learning_rate, preference.num_epochs
            );
        }
    }
    let mut recipe = round::recipe(context, 0, student);
    recipe.escalation.clear();
    recipe.rollout.samples = 1;
    text += "\neach evaluation:\n";
    text += &estimate_of(context, recipe, &tasks.held_out)?;
    Ok(text)
}

fn estimate_of(context: &RunContext, recipe: Recipe, tasks: &[Task]) -> Result<String, RunError> {
    let context = RunContext {
        recipe,
        ..context.clone()
    };
    Ok(estimate::remaining(&context, tasks)?.to_string())
}
