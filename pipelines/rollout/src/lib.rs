//! The rollout stage: a teacher solves the tasks of a run as a ReAct agent in the interpreter.

mod preview;

use std::sync::Arc;

use pybench_attempts::plan::{Plan, plan_run};
use pybench_attempts::{AttemptStage, batches, estimate, money, teacher};
use pybench_interpreter::Interpreter;
use pybench_run::artifacts::stage::ROLLOUT;
use pybench_run::artifacts::{TASKS, TRAJECTORIES};
use pybench_run::cli::print_beside;
use pybench_run::{Failure, FailureKind, Mode, RunContext, RunError, StageSummary, UnitState};
use pybench_types::task::MAX_QUERY;
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
    let stage = open(context).await?;
    retry(context)?;
    let plan = plan_run(context, &stage)?;
    run_round(context, &stage, &plan).await.map(|_| ())
}

/// Opens the stage with the teachers and the interpreter of the recipe.
///
/// # Errors
/// As [`run`], before the first attempt.
pub async fn open(context: &RunContext) -> Result<Arc<AttemptStage>, RunError> {
    let tasks = TASKS.read_all(context.folder.root())?;
    money::check(&context.recipe)?;
    let teachers = teacher::teachers(context)?;
    let mut choice = context.recipe.interpreter.clone();
    choice.wheelhouse = choice.wheelhouse.map(|path| context.resolve(&path));
    let interpreter = pybench_interpreter_containers::interpreter(&choice)
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
    let (items, all) = match context.mode {
        Mode::Preview(count) => (stage.first_attempts(count), stage.first_attempts(count)),
        _ => (stage.items_of(&plan.round), stage.items_of(&plan.attempts)),
    };
    let summary = batches::run(context, stage, &items).await?;
    let journal = context.folder.journal();
    if !items.is_empty() && !any_done(context, &items)? {
        return Err(nothing_done(context)?);
    }
    if let Mode::Preview(_) = context.mode {
        let done: Vec<Trajectory> = journal
            .outputs_of(ROLLOUT, &all)
            .collect::<Result<_, _>>()?;
        print_beside(&context.progress, &preview::render_all(stage, &done))?;
        return Ok(false);
    }
    warn_about_failures(&summary);
    let done = journal.outputs_of::<Trajectory>(ROLLOUT, &all);
    TRAJECTORIES.write(&context.folder, done)?;
    Ok(!items.is_empty())
}

/// Whether any of these attempts is done.
fn any_done(context: &RunContext, items: &[String]) -> Result<bool, RunError> {
    let states = context.folder.journal().states(ROLLOUT)?;
    let done: std::collections::HashSet<_> = states
        .into_iter()
        .filter_map(|(item, state)| (state == UnitState::Done).then_some(item))
        .collect();
    Ok(items.iter().any(|item| done.contains(item)))
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
    let units = context.folder.journal().units(ROLLOUT)?;
    let failures: Vec<Failure> = units.into_iter().filter_map(|unit| unit.failure).collect();
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
