//! Runs a script on a task in a separate session.

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

/// A script with more turns is stopped.
const MAX_TURNS: usize = 20;
/// The seed of every session, so that all sessions of an audit start alike.
const SEED: u64 = 0;

pub(crate) struct AttemptResult {
    pub(crate) cells: Vec<String>,
    pub(crate) observations: Vec<Observation>,
    /// Path and digest of the files under `./output`.
    pub(crate) outputs: Vec<(String, Digest)>,
    /// The answer, without the frame of the message format.
    pub(crate) answer: String,
    pub(crate) candidate: Candidate,
}

/// Why an attempt has no result. None of these is a failure of the candidate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the script did not end within {MAX_TURNS} turns")]
    Endless,
}

/// Runs a script to its answer.
pub(crate) async fn attempt(
    env: &AuditEnv,
    task: &Task,
    script: &Script<'_>,
) -> Result<AttemptResult, AttemptError> {
    let store = &env.fixtures.store;
    let files = task.files.iter();
    let inputs = files.map(|file| (format!("data/{}", file.name), store.path(&file.id)));
    let spec = SessionSpec {
        inputs: inputs.collect::<BTreeMap<_, _>>(),
        seed: SEED,
        limits: Limits::default(),
        ..SessionSpec::default()
    };
    let mut session = env.interpreter.start(spec).await?;
    let execution = execute(session.as_mut(), script).await;
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
    script: &Script<'_>,
) -> Result<Execution, AttemptError> {
    let mut execution = Execution::default();
    let mut texts: Vec<String> = Vec::new();
    while execution.cells.len() < MAX_TURNS {
        let seen: Vec<&str> = texts.iter().map(String::as_str).collect();
        match script.next(&seen)? {
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
