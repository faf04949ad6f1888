//! The command `pybench synthesize`: runs every stage in order, then writes a report.

pub mod drain;
pub mod scheduler;
pub mod stats;
pub mod status;
pub mod worker;

/// Decisions of people on tasks.
pub use pybench_query::review as task_review;

use std::path::Path;
use std::time::Duration;

use pybench_interpreter::environment::Environment;
use pybench_interpreter::make_environment;
use pybench_net::pypi::find_uv;
use pybench_run::project::invocation;
use pybench_run::run_selection::{RunSelection, recommend, run_argument, stage_command};
use pybench_run::{Journal, Mode, ModelChoice, RunContext, RunError, RunFolder, left_out_tasks};
use serde_json::json;

use crate::status::{Funnel, StageStatus};
use pybench_attempts::outcomes::{is_wrong_task, wrong_tasks};
use pybench_attempts::teacher::check_keys;
use pybench_crawl as crawl;
use pybench_grade as grade;
use pybench_query as query;
use pybench_rollout as rollout;
use pybench_shard as shard;

/// Time to clear the queue when the command ends.
const MAX_CLEAR: Duration = Duration::from_secs(10);

/// For `--help`.
pub const ABOUT: &str = "Crawl files, write tasks, solve them with a teacher model, grade the trajectories, write a dataset";

/// Runs all stages, from files to a dataset. Each stage reads the artifacts of the previous one from the run
/// folder and skips finished work.
///
/// # Errors
/// [`RunError::Endpoint`] if an API key is missing; errors of the stages; [`RunError::Incomplete`] if units failed or
/// too few rows were accepted.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let context = &with_queue(context).await?;
    clear_queue(context, run_stages(context).await).await
}

async fn run_stages(context: &RunContext) -> Result<(), RunError> {
    if context.mode == Mode::DryRun {
        crawl::run(context).await?;
    } else {
        check_keys(&context.recipe)?;
        tokio::try_join!(crawl::run(context), environment(context))?;
    }
    let journal = context.folder.journal();
    loop {
        query::run(context).await?;
        match context.mode {
            Mode::DryRun => return rollout::run(context).await,
            Mode::Preview(count) => return preview(context, count).await,
            Mode::Full => {}
        }
        let dropped = wrong_tasks(journal)?.len();
        scheduler::run(context).await?;
        let wrong = wrong_tasks(journal)?.len() - dropped;
        if wrong > 0 {
            tracing::warn!(
                "{wrong} tasks are dropped, since their references fail; others take their places"
            );
        } else if write_dataset(context).await? {
            return Ok(());
        }
    }
}

/// Makes and grades attempts at the tasks of a run, and writes the dataset and the report.
///
/// # Errors
/// As [`run`], for a run whose tasks are written.
pub async fn solve(context: &RunContext) -> Result<(), RunError> {
    let context = &with_queue(context).await?;
    clear_queue(context, solve_tasks(context).await).await
}

async fn solve_tasks(context: &RunContext) -> Result<(), RunError> {
    loop {
        scheduler::run(context).await?;
        if write_dataset(context).await? {
            return Ok(());
        }
    }
}

/// Removes what a run that is given up has left in its queue.
pub async fn clear_left_queue(folder: &RunFolder) {
    if let Some(queue) = folder.left_queue()
        && let Err(error) = pybench_temporal::clear(queue).await
    {
        tracing::warn!("activities of the run that is given up may be left: {error}");
    }
}

/// The context with the queue that the profile names.
async fn with_queue(context: &RunContext) -> Result<RunContext, RunError> {
    clear_left_queue(&context.folder).await;
    let queue = match context.mode {
        Mode::DryRun => None,
        Mode::Full | Mode::Preview(_) => pybench_temporal::connect(context.folder.queue()).await?,
    };
    Ok(RunContext {
        queue,
        ..context.clone()
    })
}

/// Removes what rounds that were stopped have left in the queue, and returns how the command has ended. What stays there does no
/// harm: the journal does not offer it.
async fn clear_queue(context: &RunContext, ended: Result<(), RunError>) -> Result<(), RunError> {
    // After a conflict, another process may coordinate the run.
    let is_own = !matches!(ended, Err(RunError::Conflict(_)));
    let Some(queue) = context.queue.as_ref().filter(|_| is_own) else {
        return ended;
    };
    match tokio::time::timeout(MAX_CLEAR, queue.clear()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("activities of the run may be left: {error}"),
        Err(_) => tracing::warn!(
            "activities of the run may be left: ending them takes longer than {} s",
            MAX_CLEAR.as_secs()
        ),
    }
    ended
}

/// Writes the dataset and the report. Returns `false`, without a report, if the goal is missed because rows that match
/// benchmarks, or that the split drops, are not in the dataset: other attempts are to be made.
///
/// # Errors
/// As [`run`].
async fn write_dataset(context: &RunContext) -> Result<bool, RunError> {
    let journal = context.folder.journal();
    let left_out = || -> Result<[usize; 2], RunError> {
        let matching = left_out_tasks::matching(journal)?;
        let dropped = left_out_tasks::dropped(journal, &context.recipe)?;
        Ok([matching.len(), dropped.len()])
    };
    let known = left_out()?;
    let sharded = shard::run(context).await;
    let [matching, dropped] = left_out()?;
    let (matching, dropped) = (matching - known[0], dropped - known[1]);
    let is_short = matches!(sharded, Err(RunError::Incomplete(_)));
    if is_short && matching + dropped > 0 && context.recipe.goal.accept.is_some() {
        tracing::info!(
            "{matching} more tasks match benchmarks, and the split drops the rows of {dropped} more; attempts at other \
             tasks replace the rows that are left out"
        );
        return Ok(false);
    }
    // Write the report even if there are fewer rows than requested.
    if let Ok(()) | Err(RunError::Incomplete(_)) = sharded {
        finish(context)?;
        context.folder.copy_to_bucket()?;
    }
    context.folder.end_uploads();
    sharded.map(|()| true)
}

/// Makes the Python environment of sessions if it is missing.
///
/// # Errors
/// [`RunError::Environment`] says what is missing.
pub async fn environment(context: &RunContext) -> Result<(), RunError> {
    if Environment::find().is_ok() {
        return Ok(());
    }
    let uv = find_uv(&context.project_root);
    let made = make_environment(&uv, |line| tracing::info!("{line}")).await;
    made.map_err(|error| RunError::Environment(error.to_string()))
}

/// Makes, grades and shows the first attempts.
async fn preview(context: &RunContext, count: usize) -> Result<(), RunError> {
    let tasks = rollout::tasks(context)?;
    let stage = rollout::open(context, tasks.clone()).await?;
    let attempts = rollout::preview(context, &stage, count).await?;
    let checker = grade::checker(context)?;
    grade::run_round(context, checker, tasks, stage.items_of(&attempts)).await?;
    rollout::show_preview(context, &stage, &attempts)
}

/// Writes the report, prints the funnel, and checks that the requested rows are there.
fn finish(context: &RunContext) -> Result<(), RunError> {
    let funnel = status::funnel(context.folder.journal())?;
    let summary = summary(context, &funnel);
    let name = &context.recipe.name;
    let markdown = format!("# Run of the recipe `{name}`\n\n```text\n{summary}```\n");
    let json = json!({
        "recipe": name,
        "teacher": shard::teacher_name(&context.recipe),
        "funnel": funnel,
    });
    context.folder.write("report.md", markdown.as_bytes())?;
    let json = serde_json::to_string_pretty(&json)? + "\n";
    context.folder.write("report.json", json.as_bytes())?;
    context.progress.suspend(|| status::print(&summary))?;
    // Failed attempts do not matter if the requested number of rows is reached.
    match context.recipe.goal.accept {
        Some(goal) if funnel.accepted.saturating_sub(funnel.left_out()) >= goal as u64 => Ok(()),
        _ => check_complete(context.folder.journal(), &funnel),
    }
}

fn summary(context: &RunContext, funnel: &Funnel) -> String {
    let dataset = context.folder.root().join(shard::DATASET);
    let teacher = shard::teacher_name(&context.recipe);
    let mut text = format!(
        "{funnel}\ndataset: {}\nteacher: {teacher}\n",
        dataset.display()
    );
    if funnel.accepted > 0 {
        text += &next_steps(context.folder.root());
    }
    if let ModelChoice::Expert { .. } = context.recipe.teacher {
        let command = endpoint_command(context.folder.root(), &context.recipe.name);
        text += &format!("to use a model behind an endpoint:\n{command}\n");
    }
    text
}

/// What one does with a dataset that has just been made.
fn next_steps(root: &Path) -> String {
    let (run, pybench) = (run_argument(root), invocation());
    let steps = [
        (format!("{pybench} show {run} 1"), "read a trajectory"),
        (
            stage_command(root, "query") + " --export review.jsonl",
            "review the tasks",
        ),
        (
            format!("{pybench} dataset export {run} --to openai --out rows.jsonl"),
            "rows for another trainer, per split",
        ),
        (
            format!("{pybench} verify {run}"),
            "execute a sample of the rows again",
        ),
        (
            format!("{pybench} publish {run}"),
            "see what would go to the Hub",
        ),
    ];
    recommend(&steps)
}

/// The command that makes the dataset of this run with a model behind an endpoint, in a run of its own.
fn endpoint_command(root: &Path, name: &str) -> String {
    let selection = RunSelection::of(root).unwrap_or_default();
    let selection = RunSelection {
        recipe: Some(selection.recipe.unwrap_or_else(|| name.into())),
        run: None,
        ..selection
    };
    shard::endpoint_command(&selection.command("synthesize"), name)
}

/// An error if rollout or grading units failed. Failures of other stages, such as a broken source file, and of
/// tasks that were dropped cost no rows.
fn check_complete(journal: &Journal, funnel: &Funnel) -> Result<(), RunError> {
    let costs_rows = |stage: &&StageStatus| matches!(stage.stage.as_str(), "rollout" | "grade");
    let stages = funnel.stages.iter().filter(costs_rows);
    let failed: u64 = stages.map(|stage| stage.failed).sum();
    let failures = journal.failures()?;
    let dropped = failures.iter().filter(|unit| is_wrong_task(unit)).count();
    match failed.saturating_sub(dropped as u64) {
        0 => Ok(()),
        failed => Err(RunError::Incomplete(format!(
            "{failed} units failed; run the same command again to retry them"
        ))),
    }
}
