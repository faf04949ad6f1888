//! What a round plays: a run of the student on tasks of its own, with corrections, up to a dataset.

use std::sync::Arc;

use pybench_datasets::read;
use pybench_run::artifacts::{FILES, TASKS, TRAJECTORIES};
use pybench_run::{
    ContentStore, ExecutorOptions, ModelChoice, Recipe, RunContext, RunError, RunFolder,
    WhenChanged,
};
use pybench_types::task::Task;
use serde::{Deserialize, Serialize};

use crate::budget::SharedBudget;
use crate::tasks::LoopTasks;
use crate::{preferences, round_dir, round_name};

/// What came of the attempts of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Played {
    /// The student, as rows name it.
    pub(crate) student: String,
    pub(crate) tasks: usize,
    /// Attempts, those of corrections included.
    pub(crate) attempts: usize,
    /// Rows that the student made.
    pub(crate) solved: usize,
    /// Rows that continue an attempt of the student.
    pub(crate) corrected: usize,
    /// Rows that another teacher made.
    pub(crate) taught: usize,
    /// Preference pairs of a student's reply and a correction.
    pub(crate) preferences: usize,
}

/// The student plays the tasks of round `number`; the accepted attempts and corrections become its dataset.
///
/// # Errors
/// Errors of the run; [`RunError::Incomplete`] if not a single row was accepted.
pub(crate) async fn play(
    context: &RunContext,
    number: u32,
    student: &ModelChoice,
    tasks: &LoopTasks,
) -> Result<Played, RunError> {
    let tasks = &tasks.rounds[number as usize - 1];
    let recipe = recipe(context, number, student);
    let root = round_dir(context, number);
    let budget = SharedBudget::of(context, &root)?;
    tracing::info!("round {number}: {} tasks, run {}", tasks.len(), recipe.name);
    let profile = context.folder.profile()?;
    let changed = WhenChanged::Refuse(None);
    let text = recipe.to_toml()?;
    let folder = RunFolder::open_in_profile(&root, &text, &changed, profile.as_deref())?;
    write_inputs(context, &folder, tasks)?;
    let own = RunContext {
        folder: Arc::new(folder),
        options: budget.limit(ExecutorOptions {
            retry_failed: context.options.retry_failed,
            lease: context.options.lease,
            ..ExecutorOptions::of(&recipe)
        }),
        recipe,
        ..context.clone()
    };
    let solved = pybench_synthesize::solve(&own).await;
    solved.map_err(|error| budget.explain(error))?;
    let mut played = count(&own, student, tasks.len())?;
    played.preferences = preferences::write(&own)?;
    match played.solved + played.corrected + played.taught {
        0 => Err(RunError::Incomplete(format!(
            "round {number} made no row: the student solved no task, and nothing corrected it; `pybench status {}` shows \
             why, and `escalation = [{{ kind = \"correction\" }}]` in the recipe lets the expert correct it",
            own.recipe.name
        ))),
        _ => Ok(played),
    }
}

/// The recipe of a round. Nothing of its dataset is held out: the loop has done that.
pub(crate) fn recipe(context: &RunContext, number: u32, student: &ModelChoice) -> Recipe {
    let mut recipe = context.recipe.clone();
    recipe.name = round_name(context, number);
    recipe.learning = None;
    recipe.teacher = student.clone();
    recipe.goal.accept = None;
    recipe.grade.at_least = 0;
    recipe.shard.test_fraction = 0.0;
    recipe.shard.test_shares = None;
    recipe.shard.held_out_templates = 0;
    recipe
}

/// Gives a round's run its tasks and files.
fn write_inputs(context: &RunContext, folder: &RunFolder, tasks: &[Task]) -> Result<(), RunError> {
    let source: &ContentStore = context.folder.store();
    for task in tasks {
        for file in task.files.iter().chain(&task.held_out) {
            if !folder.store().path(&file.id).exists() {
                folder.store().put(&source.get(&file.id)?)?;
            }
        }
    }
    FILES.write(folder, FILES.read(context.folder.root())?)?;
    TASKS.write(folder, tasks.iter().map(Ok))?;
    Ok(())
}

/// Counts the attempts and rows of a round's run.
fn count(context: &RunContext, student: &ModelChoice, tasks: usize) -> Result<Played, RunError> {
    let root = context.folder.root();
    let mut played = Played {
        student: pybench_attempts::estimate::teacher_name(student),
        tasks,
        attempts: 0,
        solved: 0,
        corrected: 0,
        taught: 0,
        preferences: 0,
    };
    for trajectory in TRAJECTORIES.read(root)? {
        trajectory?;
        played.attempts += 1;
    }
    let bad = |error: pybench_datasets::DatasetError| RunError::BadInput(error.to_string());
    for row in read::dataset(&root.join(pybench_shard::DATASET)).map_err(bad)? {
        let (_, row) = row.map_err(bad)?;
        match (&row.student, row.teacher == played.student) {
            (Some(_), _) => played.corrected += 1,
            (None, true) => played.solved += 1,
            (None, false) => played.taught += 1,
        }
    }
    Ok(played)
}
