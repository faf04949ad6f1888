//! The rollout stage: a teacher solves the tasks of a run as a ReAct agent in the interpreter.

mod preview;

use std::sync::Arc;

use pybench_attempts::plan::{Plan, plan_run};
use pybench_attempts::{AttemptItems, AttemptStage, batches, estimate, money, teacher};
use pybench_interpreter::Interpreter;
use pybench_run::artifacts::stage::ROLLOUT;
use pybench_run::artifacts::{Index, TASKS, TRAJECTORIES};
use pybench_run::cli::print_beside;
use pybench_run::{
    Failure, FailureKind, Items, Mode, RunContext, RunError, StageSummary, UnitState,
};
use pybench_types::task::{MAX_QUERY, Task};
use pybench_types::trajectory::Trajectory;

/// For `--help`.
pub const ABOUT: &str =
    "Let a teacher model solve the tasks of a run step by step in the interpreter";

/// Makes the next round of attempts with the teachers and the interpreter of the recipe, and writes
/// `trajectories.jsonl` in item order (tasks in order, teachers and samples within a task). Without a goal,
/// one round contains all attempts. With a goal, `grade` each round, then run the same command for the next
/// one.
///
/// An attempt that failed permanently is recorded in the journal and has no line in the file; running the
/// command again retries it.
///
/// # Errors
/// [`RunError::Budget`] if a budget is used up, [`RunError::Endpoint`] if the key is refused or the endpoint
/// never answered, [`RunError::Environment`] if no session can start, [`RunError::Interrupted`] on Ctrl-C,
/// [`RunError::BadInput`] if there are no tasks or the recipe could spend money without a limit.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    if context.mode == Mode::DryRun {
        return dry_run(context);
    }
    let stage = open(context, tasks(context)?).await?;
    if let Mode::Preview(count) = context.mode {
        let attempts = preview(context, &stage, count).await?;
        return show_preview(context, &stage, &attempts);
    }
    retry(context)?;
    let plan = plan_run(context, &stage)?;
    run_round(context, &stage, &plan).await?;
    write(context, &stage, &plan.attempts)
}

/// Makes the first attempt at each of the first `count` tasks; returns the numbers of these attempts.
///
/// # Errors
/// As [`run`].
pub async fn preview(
    context: &RunContext,
    stage: &Arc<AttemptStage>,
    count: usize,
) -> Result<Vec<usize>, RunError> {
    retry(context)?;
    let attempts = stage.first_attempts(count);
    run_attempts(context, stage, &attempts).await?;
    Ok(attempts)
}

/// Prints attempts that are done: the conversation, the verdict if they are graded, and what they cost.
///
/// # Errors
/// The journal cannot be read.
pub fn show_preview(
    context: &RunContext,
    stage: &AttemptStage,
    attempts: &[usize],
) -> Result<(), RunError> {
    let done = done(context, stage, attempts).collect::<Result<Vec<_>, _>>()?;
    print_beside(
        &context.progress,
        &preview::render_all(context, stage, &done)?,
    )
}

/// The tasks of the run, which are read when they are needed.
///
/// # Errors
/// The artifact is missing or invalid.
pub fn tasks(context: &RunContext) -> Result<Arc<Index<Task>>, RunError> {
    let tasks = TASKS.index(context.folder.root(), |task| Ok(task.id.to_string()))?;
    Ok(Arc::new(tasks))
}

/// Opens the stage with the teachers and the interpreter of the recipe.
///
/// # Errors
/// As [`run`], before the first attempt.
pub async fn open(
    context: &RunContext,
    tasks: Arc<Index<Task>>,
) -> Result<Arc<AttemptStage>, RunError> {
    money::check(&context.recipe)?;
    let teachers = teacher::teachers(context)?;
    let mut choice = context.recipe.interpreter.clone();
    let wheelhouse = choice.wheelhouse.map(|path| context.fetch(&path));
    choice.wheelhouse = wheelhouse.transpose()?;
    let interpreter = pybench_interpreter_containers::paced(&choice)
        .map_err(|error| RunError::Environment(error.to_string()))?;
    record_warnings(context, interpreter.as_ref())?;
    let stage = AttemptStage::new(context, tasks, teachers, interpreter)?;
    Ok(Arc::new(stage))
}

/// Runs the stage as its own command; every attempt must finish.
///
/// # Errors
/// As [`run`]; [`RunError::Incomplete`] if attempts failed.
pub async fn run_alone(context: &RunContext) -> Result<(), RunError> {
    run(context).await?;
    check_complete(context)
}

/// Marks attempts that failed in an earlier process for retry. Call it before planning the next round.
///
/// # Errors
/// The journal cannot be written.
pub fn retry(context: &RunContext) -> Result<(), RunError> {
    let journal = context.folder.journal();
    journal.retry_failed(ROLLOUT, context.options.retry_failed)
}

/// Makes the next round of attempts. Returns `false` if no round was left.
///
/// # Errors
/// As [`run`].
pub async fn run_round(
    context: &RunContext,
    stage: &Arc<AttemptStage>,
    plan: &Plan,
) -> Result<bool, RunError> {
    let summary = run_attempts(context, stage, &plan.round).await?;
    warn_about_failures(&summary);
    Ok(!plan.round.is_empty())
}

/// Makes these attempts; an error if none of them is done.
async fn run_attempts(
    context: &RunContext,
    stage: &Arc<AttemptStage>,
    attempts: &[usize],
) -> Result<StageSummary, RunError> {
    let items = stage.items_of(attempts);
    let summary = batches::run(context, stage, items).await?;
    match !items.is_empty() && !any_done(context, items)? {
        true => Err(nothing_done(context)?),
        false => Ok(summary),
    }
}

/// Writes `trajectories.jsonl`: those of these attempts that are done, in this order.
///
/// # Errors
/// The journal cannot be read, or the file cannot be written.
pub fn write(
    context: &RunContext,
    stage: &AttemptStage,
    attempts: &[usize],
) -> Result<(), RunError> {
    TRAJECTORIES.write(&context.folder, done(context, stage, attempts))?;
    Ok(())
}

/// The trajectories of those of these attempts that are done, read one at a time.
fn done(
    context: &RunContext,
    stage: &AttemptStage,
    attempts: &[usize],
) -> impl Iterator<Item = Result<Trajectory, RunError>> {
    let journal = context.folder.journal();
    attempts.iter().filter_map(move |attempt| {
        let item = stage.id(*attempt);
        journal.output(ROLLOUT, item.as_str()).transpose()
    })
}

/// Whether any of these attempts is done.
fn any_done(context: &RunContext, items: AttemptItems<'_>) -> Result<bool, RunError> {
    for item in items.iter() {
        if context.folder.journal().state(ROLLOUT, &item)? == Some(UnitState::Done) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that every attempt is done.
///
/// # Errors
/// [`RunError::Incomplete`] says how many attempts failed.
pub fn check_complete(context: &RunContext) -> Result<(), RunError> {
    let summary = context.folder.journal().summary(ROLLOUT)?;
    if context.mode != Mode::Full || summary.failed == 0 {
        return Ok(());
    }
    Err(RunError::Incomplete(format!(
        "{} of {} attempts failed; run the same command again to retry them",
        summary.failed,
        summary.done + summary.failed + summary.pending,
    )))
}

fn dry_run(context: &RunContext) -> Result<(), RunError> {
    let unwritten = !TASKS.exists(context.folder.root());
    let estimate = match context.recipe.query.writer.is_some() && unwritten {
        // Models will write the tasks, so only an upper bound on their length is known.
        true => estimate::before_writing(&context.recipe, 4 * MAX_QUERY),
        false => estimate::remaining(context, &TASKS.read_all(context.folder.root())?)?,
    };
    print_beside(&context.progress, &estimate.to_string())?;
    // Report a missing budget after the estimate, which helps to choose one.
    money::check(&context.recipe)
}

fn record_warnings(context: &RunContext, interpreter: &dyn Interpreter) -> Result<(), RunError> {
    let warnings = interpreter.warnings();
    for warning in &warnings {
        tracing::warn!("interpreter: {warning}");
    }
    let journal = context.folder.journal();
    journal.set_metadata("warnings/interpreter", &warnings.into())
}

fn warn_about_failures(summary: &StageSummary) {
    if summary.failed > 0 {
        let failed = summary.failed;
        tracing::warn!("{failed} attempts failed; run the same command again to retry them");
    }
}

/// The error for a round without a single finished attempt. If all attempts failed the same way, it has that
/// kind.
fn nothing_done(context: &RunContext) -> Result<RunError, RunError> {
    let failures = context.folder.journal().failures()?.into_iter();
    let failures = failures.filter(|unit| unit.stage == ROLLOUT);
    let failures: Vec<Failure> = failures.map(|unit| unit.failure).collect();
    let all = |kind| failures.iter().all(|failure| failure.kind == kind);
    let Some(first) = failures.first() else {
        return Ok(RunError::Incomplete("no attempt was made".to_owned()));
    };
    let text = format!("no attempt finished; first failure: {first}");
    Ok(match first.kind {
        FailureKind::Endpoint if all(FailureKind::Endpoint) => RunError::Endpoint(text),
        FailureKind::Interpreter if all(FailureKind::Interpreter) => RunError::Environment(text),
        _ => RunError::Incomplete(text),
    })
}
