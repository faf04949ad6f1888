//! Rollout: a teacher solves tasks as a ReAct agent in the interpreter.

mod estimate;
pub(crate) mod money;
mod preview;
mod stage;
pub(crate) mod teacher;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use pybench::interpreter::Interpreter;
use pybench::llm::Teacher;
use pybench::run::{
    Executor, Failure, FailureKind, Mode, RunContext, RunError, StageSummary, UnitState,
};
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

/// Solves every task of the run, with the teacher and the interpreter of its recipe, and writes
/// `trajectories.jsonl` in item order (tasks in their order, samples within a task).
///
/// A try that failed for good is counted in the journal and has no line; the same command tries it
/// again. Errors: [`RunError::Budget`] when a budget is used up, [`RunError::Endpoint`] when the key
/// is refused or the endpoint never answered, [`RunError::Environment`] when no session could be
/// had, [`RunError::Interrupted`] on Ctrl-C, [`RunError::BadInput`] when there are no tasks or when
/// money could be spent without a bound.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let tasks = read_tasks(context)?;
    if context.mode == Mode::DryRun {
        return dry_run(context, &tasks);
    }
    money::check(&context.recipe)?;
    let teacher = teacher::of(context)?;
    let mut choice = context.recipe.interpreter.clone();
    choice.wheelhouse = choice.wheelhouse.map(|path| context.resolve(&path));
    let interpreter = pybench::interpreter::interpreter(&choice)
        .map_err(|error| RunError::Environment(error.to_string()))?;
    run_with(context, tasks, teacher, interpreter).await
}

/// The same with another teacher and interpreter.
pub async fn run_with(
    context: &RunContext,
    tasks: Vec<Task>,
    teacher: Arc<dyn Teacher>,
    interpreter: Arc<dyn Interpreter>,
) -> Result<(), RunError> {
    warn_of(context, interpreter.as_ref())?;
    let stage = Arc::new(RolloutStage::new(context, tasks, teacher, interpreter));
    let items = match context.mode {
        Mode::Preview(count) => stage.first_tries(count),
        _ => stage.items(),
    };
    let summary = context.executor().run(stage.clone(), &items).await?;
    let done = trajectories(context, &items)?;
    if done.is_empty() && !items.is_empty() {
        return Err(nothing_done(context)?);
    }
    if let Mode::Preview(_) = context.mode {
        return print(context, &preview::render(&stage, &done));
    }
    warn_of_failures(&summary);
    write_trajectories(context, &done)
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

fn dry_run(context: &RunContext, tasks: &[Task]) -> Result<(), RunError> {
    let estimate = estimate::of(context, tasks)?;
    print(context, &estimate.to_string())?;
    // What would be refused is said after the figures, which help to choose a budget.
    money::check(&context.recipe)
}

fn print(context: &RunContext, text: &str) -> Result<(), RunError> {
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
