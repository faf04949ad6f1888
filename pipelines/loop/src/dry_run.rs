//! What a loop would still do and cost.

use std::fmt::Write as _;
use std::sync::Arc;

use pybench_attempts::estimate::{self, Estimate};
use pybench_run::{LoopChoice, ModelChoice, Recipe, RunContext, RunError, RunFolder};
use pybench_types::task::Task;

use crate::report::Report;
use crate::tasks::LoopTasks;
use crate::{measure, round, round_dir, train};

/// The rounds that are left, and the estimate of what their attempts and the evaluations cost.
///
/// # Errors
/// What was done already cannot be read.
pub(crate) fn text(
    context: &RunContext,
    looped: &LoopChoice,
    tasks: &LoopTasks,
) -> Result<String, RunError> {
    let report = Report::read(context.folder.root())?;
    let ended = report.map_or(0, |report| report.rounds.len());
    let mut text = headline(context, looped, (tasks, ended))?;
    let mut student = context.recipe.teacher.clone();
    for (number, of_round) in (1..).zip(&tasks.rounds) {
        let trained = train::done(context, number, &student)?;
        let _ = write!(text, "\nround {number}: {} tasks", of_round.len());
        match number as usize <= ended {
            true => text += ", done\n",
            false => {
                let left = of_round_left(context, number, (&student, of_round))?;
                let _ = write!(text, "\n{left}");
                text += &training(looped, trained.is_some());
            }
        }
        student = trained.unwrap_or(student);
    }
    let mut recipe = round::recipe(context, 0, &context.recipe.teacher);
    recipe.escalation.clear();
    recipe.rollout.samples = 1;
    let held_out = tasks.held_out.iter().map(|held_out| held_out.task.clone());
    let held_out: Vec<Task> = held_out.collect();
    text += "\neach evaluation:\n";
    text += &estimate_in(context, recipe, &held_out)?.to_string();
    Ok(text)
}

/// How many rounds and evaluations there are, and how many of them are done.
fn headline(
    context: &RunContext,
    looped: &LoopChoice,
    (tasks, ended): (&LoopTasks, usize),
) -> Result<String, RunError> {
    let last = looped.train.as_ref().map_or(0, |_| looped.rounds);
    let mut measured = 0;
    for number in 0..=last {
        measured += u32::from(measure::is_done(context, number)?);
    }
    let done = |done: u32| match done {
        0 => String::new(),
        done => format!(" ({done} done)"),
    };
    Ok(format!(
        "{} rounds{}; {} held-out tasks, attempted once before the first round{}: {} evaluations{}\n",
        looped.rounds,
        done(u32::try_from(ended).unwrap_or(u32::MAX)),
        tasks.held_out.len(),
        match last {
            0 => "",
            _ => " and after each",
        },
        last + 1,
        done(measured),
    ))
}

fn training(looped: &LoopChoice, is_done: bool) -> String {
    let Some(train) = &looped.train else {
        return String::new();
    };
    let done = if is_done { ", done" } else { "" };
    let mut text = format!("training           {}{done}\n", train.display());
    if let Some(preference) = looped.preference.as_ref().filter(|_| !is_done) {
        let _ = writeln!(
            text,
            "then DPO           on the preference pairs of all rounds so far: beta {}, learning rate {:e}, {} epochs",
            preference.beta, preference.learning_rate, preference.num_epochs
        );
    }
    text
}

/// The estimate of a round that has not ended: what its own run has made already is done.
fn of_round_left(
    context: &RunContext,
    number: u32,
    (student, tasks): (&ModelChoice, &[Task]),
) -> Result<Estimate, RunError> {
    let recipe = round::recipe(context, number, student);
    let root = round_dir(context, number);
    if !root.is_dir() {
        return estimate_in(context, recipe, tasks);
    }
    let (profile, text) = (context.folder.profile()?, recipe.to_toml()?);
    let folder = RunFolder::open_for_dry_run_in_profile(&root, &text, profile.as_deref())?;
    let own = RunContext {
        folder: Arc::new(folder),
        ..context.clone()
    };
    estimate_in(&own, recipe, tasks)
}

fn estimate_in(context: &RunContext, recipe: Recipe, tasks: &[Task]) -> Result<Estimate, RunError> {
    let context = RunContext {
        recipe,
        ..context.clone()
    };
    estimate::remaining(&context, tasks)
}
