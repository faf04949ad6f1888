//! One attempt at a task by a script, in a session of its own.

use std::collections::BTreeMap;

use pybench::agent::{Format, PybenchFormat, observation_text};
use pybench::grade::{Candidate, Claim};
use pybench::id::Digest;
use pybench::interpreter::{InterpreterError, Limits, Observation, Session, SessionSpec};
use pybench::run::RunError;
use pybench::task::Task;

use super::Bench;
use crate::library::{Move, Script, ScriptError};

/// Scripts have fewer turns than this.
const MOST_TURNS: usize = 20;
/// Every session of an audit starts alike.
const SEED: u64 = 0;

/// What an attempt came to.
pub(in crate::library) struct Trial {
    /// What was run.
    pub(in crate::library) cells: Vec<String>,
    pub(in crate::library) observations: Vec<Observation>,
    /// Path and digest of what was left under `./output`.
    pub(in crate::library) outputs: Vec<(String, Digest)>,
    /// The answer, without the format's own frame.
    pub(in crate::library) answer: String,
    pub(in crate::library) candidate: Candidate,
}

/// Why there is no candidate: never the candidate's own doing.
#[derive(Debug, thiserror::Error)]
pub(in crate::library) enum TrialError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the script has no end")]
    Endless,
}

/// Runs a script to its answer.
pub(in crate::library) async fn attempt(
    bench: &Bench,
    task: &Task,
    script: &Script<'_>,
) -> Result<Trial, TrialError> {
    let store = &bench.fixtures.store;
    let files = task.files.iter();
    let inputs = files.map(|file| (format!("data/{}", file.name), store.path(&file.id)));
    let spec = SessionSpec {
        inputs: inputs.collect::<BTreeMap<_, _>>(),
        seed: SEED,
        limits: Limits::default(),
        ..SessionSpec::default()
    };
    let mut session = bench.interpreter.start(spec).await?;
    let played = play(session.as_mut(), script).await;
    let collected = session.read_outputs().await;
    session.close().await?;
    let Played {
        cells,
        observations,
        answer,
    } = played?;
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
    Ok(Trial {
        cells,
        observations,
        outputs,
        answer,
        candidate,
    })
}

/// What happened in the session.
#[derive(Default)]
struct Played {
    cells: Vec<String>,
    observations: Vec<Observation>,
    answer: String,
}

async fn play(session: &mut dyn Session, script: &Script<'_>) -> Result<Played, TrialError> {
    let mut played = Played::default();
    let mut texts: Vec<String> = Vec::new();
    while played.cells.len() < MOST_TURNS {
        let seen: Vec<&str> = texts.iter().map(String::as_str).collect();
        match script.next(&seen)? {
            Move::Answer(answer) => return Ok(Played { answer, ..played }),
            Move::Step { cell, .. } => {
                let observation = session.execute(&cell).await?;
                texts.push(observation_text(&observation));
                played.observations.push(observation);
                played.cells.push(cell);
            }
        }
    }
    Err(TrialError::Endless)
}

/// Where two runs of the same script part.
pub(super) fn difference(one: &Trial, other: &Trial) -> String {
    let pairs = one.observations.iter().zip(&other.observations);
    for (turn, (a, b)) in pairs.enumerate() {
        if a != b {
            let (a, b) = (observation_text(a), observation_text(b));
            let lines = a.lines().zip(b.lines()).find(|(a, b)| a != b);
            return match lines {
                Some((a, b)) => format!("turn {turn}: `{a}` and `{b}`"),
                None => format!("turn {turn}: in what is not text"),
            };
        }
    }
    let outputs = one.outputs.iter().zip(&other.outputs);
    let file = outputs
        .filter(|(a, b)| a != b)
        .map(|(a, _)| a.0.as_str())
        .next();
    format!("the file {}", file.unwrap_or("that only one of them left"))
}
