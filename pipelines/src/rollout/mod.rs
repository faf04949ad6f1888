//! Rollout: a teacher solves tasks as a ReAct agent in the interpreter.

mod batches;
pub(crate) mod estimate;
pub(crate) mod money;
mod preview;
mod stage;
pub(crate) mod teacher;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use pybench::interpreter::Interpreter;
use pybench::run::{Failure, FailureKind, Mode, RunContext, RunError, StageSummary, UnitState};
use pybench::task::Task;
use pybench::trajectory::Trajectory;

pub use estimate::{Estimate, Range};
pub use stage::{Crew, RolloutStage, Try};

/// For `--help`.
pub const ABOUT: &str = "Let a teacher solve the tasks of a run, step by step, in the interpreter";

/// Name of the stage in the journal.
pub const STAGE: &str = "rollout";
/// What a try came to, by item: its trajectory or why there is none.
///
/// # Errors
/// Failures of the journal.
pub fn results(
    journal: &pybench::run::Journal,
) -> Result<HashMap<String, Result<Trajectory, Failure>>, RunError> {
    let mut results = HashMap::new();
    for unit in journal.units(STAGE)? {
        let result = match (unit.state, unit.output, unit.failure) {
            (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
            (_, _, Some(failure)) => Err(failure),
            _ => continue,
        };
        results.insert(unit.item, result);
    }
    Ok(results)
}

/// What `query` wrote.
const TASKS: &str = "tasks.jsonl";
/// What this stage writes.
const TRAJECTORIES: &str = "trajectories.jsonl";

/// Makes the tries that come next, with the teachers and the interpreter of the recipe, and writes
/// `trajectories.jsonl` in item order (tasks in their order, teachers and samples within a task). Without
/// a goal these are all of them; with one, `grade` says of each wave what comes of it, and the same
/// command makes the next one.
///
/// A try that failed for good is counted in the journal and has no line; the same command tries it
/// again. Errors: [`RunError::Budget`] when a budget is used up, [`RunError::Endpoint`] when the key
/// is refused or the endpoint never answered, [`RunError::Environment`] when no session could be
/// had, [`RunError::Interrupted`] on Ctrl-C, [`RunError::BadInput`] when there are no tasks or when
/// money could be spent without a bound.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    if context.mode == Mode::DryRun {
        return dry_run(context);
    }
    let stage = open(context).await?;
    wave(context, &stage).await.map(|_| ())
}

/// The stage with the teachers and the interpreter of the recipe.
///
/// # Errors
/// As [`run`], before the first try.
pub async fn open(context: &RunContext) -> Result<Arc<RolloutStage>, RunError> {
    let tasks = read_tasks(context)?;
    money::check(&context.recipe)?;
    let teachers = teacher::all(context)?;
    let mut choice = context.recipe.interpreter.clone();
    choice.wheelhouse = choice.wheelhouse.map(|path| context.resolve(&path));
    let interpreter = pybench::interpreter::interpreter(&choice)
        .map_err(|error| RunError::Environment(error.to_string()))?;
    warn_of(context, interpreter.as_ref())?;
    let stage = RolloutStage::new(context, tasks, teachers, interpreter)?;
    Ok(Arc::new(stage))
}

/// The next wave of tries; whether there was one.
///
/// # Errors
/// As [`run`].
pub async fn wave(context: &RunContext, stage: &Arc<RolloutStage>) -> Result<bool, RunError> {
    // What failed in an earlier process is part of its wave again, before that is looked for.
    let journal = context.folder.journal();
    journal.retry_failed(STAGE, context.options.retry_failed)?;
    let plan = crate::goal::plan_of(context, stage)?;
    let (items, all) = match context.mode {
        Mode::Preview(count) => (stage.first_tries(count), stage.first_tries(count)),
        _ => (stage.items_of(&plan.wave), stage.items_of(&plan.tries)),
    };
    let summary = batches::run(context, stage, &items).await?;
    let done = trajectories(context, &all)?;
    let made = |item: &String| done.iter().any(|trajectory| trajectory.id.as_str() == item);
    if !items.is_empty() && !items.iter().any(made) {
        return Err(nothing_done(context)?);
    }
    if let Mode::Preview(_) = context.mode {
        print(context, &preview::render_all(stage, &done))?;
        return Ok(false);
    }
    warn_of_failures(&summary);
    write_trajectories(context, &done)?;
    Ok(!items.is_empty())
}

/// Whether every try came to an end; [`RunError::Incomplete`] names how many did not.
pub fn check_complete(context: &RunContext) -> Result<(), RunError> {
    let summary = context.folder.journal().summary(STAGE)?;
    if context.mode != Mode::Full || summary.failed == 0 {
        return Ok(());
    }
    Err(RunError::Incomplete(format!(
        "{} of {} tries failed; the same command tries them again",
        summary.failed,
        summary.done + summary.failed + summary.pending,
    )))
}

fn read_tasks(context: &RunContext) -> Result<Vec<Task>, RunError> {
    let path = context.folder.root().join(TASKS);
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => RunError::BadInput(format!(
            "{} is not there: `pybench query` writes it",
            path.display()
        )),
        _ => RunError::io(path.display().to_string())(error),
    })?;
    let read = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let (path, line) = (path.display(), number + 1);
            RunError::BadInput(format!("{path}:{line}: not a task: {error}"))
        })
    };
    text.lines().enumerate().map(read).collect()
}

fn dry_run(context: &RunContext) -> Result<(), RunError> {
    let unwritten = !context.folder.root().join(TASKS).exists();
    let estimate = match context.recipe.query.writer.is_some() && unwritten {
        // Models write the tasks, and were not paid for it yet.
        true => estimate::ahead(&context.recipe, 4 * crate::query::writer::MOST_QUERY),
        false => estimate::of(context, &read_tasks(context)?)?,
    };
    print(context, &estimate.to_string())?;
    // What would be refused is said after the figures, which help to choose a budget.
    money::check(&context.recipe)
}

pub(crate) fn print(context: &RunContext, text: &str) -> Result<(), RunError> {
    let written = context
        .progress
        .suspend(|| std::io::stdout().write_all(text.as_bytes()));
    match written {
        // A reader that leaves early (`| head`) is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(RunError::io("standard output")(error))
        }
        _ => Ok(()),
    }
}

fn warn_of(context: &RunContext, interpreter: &dyn Interpreter) -> Result<(), RunError> {
    let warnings = interpreter.warnings();
    for warning in &warnings {
        tracing::warn!("interpreter: {warning}");
    }
    let journal = context.folder.journal();
    journal.set_fact("warnings/interpreter", &warnings.into())
}

fn warn_of_failures(summary: &StageSummary) {
    if summary.failed > 0 {
        let failed = summary.failed;
        tracing::warn!("{failed} tries failed; the same command tries them again");
    }
}

/// The trajectories of these items that came to an end, in this order.
fn trajectories(context: &RunContext, items: &[String]) -> Result<Vec<Trajectory>, RunError> {
    let units = context.folder.journal().units(STAGE)?.into_iter();
    let mut outputs: HashMap<_, _> = units
        .filter(|unit| unit.state == UnitState::Done)
        .filter_map(|unit| Some((unit.item, unit.output?)))
        .collect();
    let ended = items.iter().filter_map(|item| outputs.remove(item));
    Ok(ended
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()?)
}

fn write_trajectories(context: &RunContext, done: &[Trajectory]) -> Result<(), RunError> {
    let mut lines = String::new();
    for trajectory in done {
        lines += &serde_json::to_string(trajectory)?;
        lines.push('\n');
    }
    context.folder.write(TRAJECTORIES, lines.as_bytes())?;
    Ok(())
}

/// Not one try came to an end: the error that says why, when all failed alike.
fn nothing_done(context: &RunContext) -> Result<RunError, RunError> {
    let units = context.folder.journal().units(STAGE)?;
    let failures: Vec<Failure> = units.into_iter().filter_map(|unit| unit.failure).collect();
    let all = |kind| failures.iter().all(|failure| failure.kind == kind);
    let Some(first) = failures.first() else {
        return Ok(RunError::Incomplete("no try was made".to_owned()));
    };
    let text = format!("no try came to an end; the first failure: {first}");
    Ok(match first.kind {
        FailureKind::Endpoint if all(FailureKind::Endpoint) => RunError::Endpoint(text),
        FailureKind::Interpreter if all(FailureKind::Interpreter) => RunError::Environment(text),
        _ => RunError::Incomplete(text),
    })
}
