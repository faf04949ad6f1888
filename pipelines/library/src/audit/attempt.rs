//! Runs a script on a task in a session of its own.

use std::collections::BTreeMap;

use pybench_agent::PybenchFormat;
use pybench_agent::{Format, observation_text};
use pybench_checks::{Candidate, Claim};
use pybench_interpreter::{InterpreterError, Limits, Session, SessionSpec};
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::observation::Observation;
use pybench_types::task::Task;

use super::AuditEnv;
use crate::{ExpertAction, Script, ScriptError};
use pybench_interpreter::Interpreter;
use pybench_run::ContentStore;

/// A script with more turns is stopped.
const MAX_TURNS: usize = 20;
/// The seed of every session, so that all sessions of an audit start alike.
const SEED: u64 = 0;

/// What a script did, for the checker.
pub struct AttemptResult {
    pub cells: Vec<String>,
    pub observations: Vec<Observation>,
    /// Path and digest of the files under `./output`.
    pub outputs: Vec<(String, Digest)>,
    /// The answer, without the frame of the message format.
    pub answer: String,
    pub candidate: Candidate,
}

/// Why an attempt has no result. None of these is a failure of the candidate.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the script did not end within {MAX_TURNS} turns")]
    Endless,
}

/// Runs the script of a template to its answer.
pub(crate) async fn attempt(
    env: &AuditEnv,
    task: &Task,
    script: &Script<'_>,
) -> Result<AttemptResult, AttemptError> {
    let next = |observations: &[&str]| script.next(observations);
    play(env.interpreter.as_ref(), &env.fixtures.store, task, next).await
}

/// Runs a script to its answer: `next` gives the next action after the texts of the observations so far. The output
/// files are added to the store.
///
/// # Errors
/// [`AttemptError`].
pub async fn play(
    interpreter: &dyn Interpreter,
    store: &ContentStore,
    task: &Task,
    next: impl Fn(&[&str]) -> Result<ExpertAction, ScriptError>,
) -> Result<AttemptResult, AttemptError> {
    let files = task.files.iter();
    let inputs = files.map(|file| (format!("data/{}", file.name), store.path(&file.id)));
    let spec = SessionSpec {
        inputs: inputs.collect::<BTreeMap<_, _>>(),
        seed: SEED,
        limits: Limits::default(),
        ..SessionSpec::default()
    };
    let mut session = interpreter.start(spec).await?;
    let execution = execute(session.as_mut(), next).await;
    let collected = session.read_outputs().await;
    session.close().await?;
    let Execution {
        cells,
        observations,
        answer,
    } = execution?;
    let mut outputs = Vec::new();
    for file in collected?.files {
        outputs.push((file.path, store.put(&file.bytes)?));
    }
    let paths = outputs
        .iter()
        .map(|(path, id)| (path.clone(), store.path(id)));
    let candidate = Candidate {
        answer: PybenchFormat.write_answer(&answer),
        outputs: paths.collect(),
        claims: observations.iter().flat_map(Claim::all_of).collect(),
    };
    Ok(AttemptResult {
        cells,
        observations,
        outputs,
        answer,
        candidate,
    })
}

/// The course of a session.
#[derive(Default)]
struct Execution {
    cells: Vec<String>,
    observations: Vec<Observation>,
    answer: String,
}

async fn execute(
    session: &mut dyn Session,
    next: impl Fn(&[&str]) -> Result<ExpertAction, ScriptError>,
) -> Result<Execution, AttemptError> {
    let mut execution = Execution::default();
    let mut texts: Vec<String> = Vec::new();
    while execution.cells.len() < MAX_TURNS {
        let seen: Vec<&str> = texts.iter().map(String::as_str).collect();
        match next(&seen)? {
            ExpertAction::Answer(answer) => {
                return Ok(Execution {
                    answer,
                    ..execution
                });
            }
            ExpertAction::Step { cell, .. } => {
                let observation = session.execute(&cell).await?;
                texts.push(observation_text(&observation));
                execution.observations.push(observation);
                execution.cells.push(cell);
            }
        }
    }
    Err(AttemptError::Endless)
}

/// Describes the first difference between two runs of the same script.
pub(super) fn difference(one: &AttemptResult, other: &AttemptResult) -> String {
    let pairs = one.observations.iter().zip(&other.observations);
    for (turn, (a, b)) in pairs.enumerate() {
        if a != b {
            let (a, b) = (observation_text(a), observation_text(b));
            let lines = a.lines().zip(b.lines()).find(|(a, b)| a != b);
            return match lines {
                Some((a, b)) => format!("turn {turn}: `{a}` and `{b}`"),
                None => format!("turn {turn}: the parts that are not text"),
            };
        }
    }
    let outputs = one.outputs.iter().zip(&other.outputs);
    let file = outputs
        .filter(|(a, b)| a != b)
        .map(|(a, _)| a.0.as_str())
        .next();
    match file {
        Some(path) => format!("the file {path}"),
        None => "a file that only one of the runs wrote".to_owned(),
    }
}
