//! The command `pybench loop`: rounds in which a student plays tasks, trains on accepted attempts and corrections, and is
//! measured.
//!
//! A round is made of runs of their own, beside that of the loop: `NAME-round-1` plays tasks and writes a dataset,
//! `NAME-round-1-train` is the training run, `NAME-round-1-eval` measures the trained student on held-out tasks. Each of
//! them resumes by itself, so the loop keeps no state but the tasks: the same command goes on where it was killed.

mod budget;
mod curriculum;
mod dry_run;
mod measure;
mod misnamed;
mod preferences;
mod report;
mod round;
mod tasks;
mod train;
mod trainer;

use std::path::{Path, PathBuf};

use pybench_run::cli::{Process, print_beside};
use pybench_run::{LoopChoice, Mode, ModelChoice, RunContext, RunError};

use measure::Measurement;
pub use report::headline;
use report::{Report, RoundReport};
use tasks::LoopTasks;

/// Runs all rounds of a recipe with `[loop]`.
///
/// # Errors
/// [`RunError::BadInput`] without `[loop]`, or if no task is left to train or to measure on; errors of the runs that a
/// round is made of.
pub async fn run(context: &RunContext, process: &Process) -> Result<(), RunError> {
    let looped = looped(context)?;
    if let Some(recipe) = &looped.train {
        train::check(context, (looped, recipe)).await?;
    }
    write_tasks(context).await?;
    let mut tasks = LoopTasks::split(context, looped)?;
    curriculum::restore(context, &mut tasks)?;
    if context.mode == Mode::DryRun {
        return print_beside(&context.progress, &dry_run::text(context, looped, &tasks)?);
    }
    tasks.write_held_out(context)?;
    let mut student = context.recipe.teacher.clone();
    let mut report = Report::new(context, &tasks);
    report.before = Some(measure::measure(context, process, 0, &student).await?);
    for number in 1..=looped.rounds {
        let again = curriculum::draw(context, number, looped, (&mut tasks, &report))?;
        let played = round::play(context, number, &student, &tasks).await?;
        if let Some(recipe) = &looped.train {
            student = train::train(context, number, (looped, recipe), &student).await?;
        }
        let measured = after(context, process, looped, (number, &student)).await?;
        report.rounds.push(RoundReport {
            round: number,
            again,
            played,
            trained_tokens: train::trained_tokens(context, number),
            lost_tokens: train::lost_tokens(context, number),
            measured,
        });
        report.write(context)?;
    }
    print_beside(&context.progress, &report.to_string())
}

/// Measures what a round has trained. Without training the student is the one that was measured before.
async fn after(
    context: &RunContext,
    process: &Process,
    looped: &LoopChoice,
    (number, student): (u32, &ModelChoice),
) -> Result<Option<Measurement>, RunError> {
    match looped.train {
        None => Ok(None),
        Some(_) => {
            let measured = measure::measure(context, process, number, student).await?;
            Ok(Some(measured))
        }
    }
}

/// The section `[loop]`.
fn looped(context: &RunContext) -> Result<&LoopChoice, RunError> {
    if let Mode::Preview(_) = context.mode {
        return Err(RunError::BadInput(
            "a loop has no preview; `pybench synthesize --preview N` shows attempts of the student"
                .into(),
        ));
    }
    context.recipe.learning.as_ref().ok_or_else(|| {
        RunError::BadInput(format!(
            "the recipe {} has no section [loop]; `rounds = 2` in it is enough to begin (docs/loop.md)",
            context.recipe.name
        ))
    })
}

/// Crawls the files and writes the tasks of all rounds.
async fn write_tasks(context: &RunContext) -> Result<(), RunError> {
    pybench_attempts::teacher::check_keys(&context.recipe)?;
    match context.mode {
        Mode::DryRun => pybench_crawl::run(context).await?,
        _ => {
            let (files, environment) = (
                pybench_crawl::run(context),
                pybench_synthesize::environment(context),
            );
            tokio::try_join!(files, environment)?;
        }
    }
    pybench_query::run(context).await
}

/// The folder with the runs of the loop.
fn runs_dir(context: &RunContext) -> &Path {
    let root = context.folder.root();
    root.parent().unwrap_or(root)
}

/// The folder of what round `number` plays.
fn round_dir(context: &RunContext, number: u32) -> PathBuf {
    runs_dir(context).join(round_name(context, number))
}

/// The folder of the evaluation after round `number`; round 0 is before the first.
fn eval_dir(context: &RunContext, number: u32) -> PathBuf {
    runs_dir(context).join(round_name(context, number) + "-eval")
}

fn round_name(context: &RunContext, number: u32) -> String {
    format!("{}-round-{number}", run_name(context))
}

/// The name of the loop's run, with which those of its rounds begin.
fn run_name(context: &RunContext) -> String {
    let name = context.folder.root().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
