//! Runs solutions and null agents for the audit, each in its own session.

use std::sync::Arc;

use pybench_agent as agent;
use pybench_agent::PybenchFormat;
use pybench_agent::{AttemptSpec, Format, Solver, Step, TurnLog, observation_text};
use pybench_checks::{Candidate, Claim};
use pybench_interpreter::{Interpreter, Limits, Session, SessionSpec};
use pybench_run::interpreter_failure;
use pybench_run::{ContentStore, Failure, FailureKind, RunError};
use pybench_types::observation::Observation;
use pybench_types::task::Task;
use pybench_types::trajectory::{Role, Sampling};

use crate::agent::{Script, ScriptedAgent, answer, lenient_answer};
use crate::suite::Solution;
use pybench_library::Library;

/// Seed of every session of an audit.
const SEED: u64 = 0;
/// Turn limit of null agents.
const MAX_TURNS: u32 = 3;

/// Runs solutions and null agents on one task.
pub(super) struct SolutionRunner<'a> {
    pub(super) interpreter: &'a dyn Interpreter,
    pub(super) store: &'a ContentStore,
    pub(super) task: &'a Task,
}

/// A log that keeps nothing; an audit stores only its rows.
struct NoLog;

impl TurnLog for NoLog {
    fn steps(&self) -> Result<Vec<Step>, Failure> {
        Ok(Vec::new())
    }

    fn append(&self, _: u64, _: &Step) -> Result<(), Failure> {
        Ok(())
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl SolutionRunner<'_> {
    /// Runs a solution. Cells that raise and patterns that do not match are tolerated if `lenient` is set;
    /// otherwise they are errors of the task file.
    pub(super) async fn run(
        &self,
        solution: &Solution,
        lenient: bool,
    ) -> Result<Candidate, Failure> {
        let mut session = self.start().await?;
        let result = run_cells(session.as_mut(), solution, lenient).await;
        let outputs = self.collect(session).await?;
        let observations = result?;
        let texts: Vec<String> = observations.iter().map(observation_text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let text = match lenient {
            true => lenient_answer(solution, &texts),
            false => answer(solution, &texts)
                .map_err(|text| Failure::new(FailureKind::Internal, text))?,
        };
        Ok(Candidate {
            answer: PybenchFormat.write_answer(&text),
            outputs,
            claims: observations.iter().flat_map(Claim::all_of).collect(),
        })
    }

    pub(super) async fn run_null_agent(&self, script: Script) -> Result<Candidate, Failure> {
        let library = Library::embedded()
            .map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
        let agent = ScriptedAgent::new(script, Vec::new(), Arc::new(library), &PybenchFormat);
        let sampling = Sampling::default();
        let attempt = AttemptSpec {
            task: self.task,
            sample: 0,
            solver: &Solver::Script(Arc::new(agent)),
            format: &PybenchFormat,
            sampling: &sampling,
            max_turns: MAX_TURNS,
            max_identical_turns: None,
            code_within_tokens: None,
            feedback: None,
        };
        let mut session = self.start().await?;
        let solved = agent::solve(&attempt, session.as_mut(), &NoLog).await;
        let outputs = self.collect(session).await?;
        let solved = solved?;
        let last_reply = solved
            .messages
            .iter()
            .rev()
            .find(|message| message.role == Role::Assistant);
        Ok(Candidate {
            answer: last_reply
                .map(|message| message.content.clone())
                .unwrap_or_default(),
            outputs,
            claims: Vec::new(),
        })
    }

    async fn start(&self) -> Result<Box<dyn Session>, Failure> {
        let files = self.task.files.iter();
        let inputs = files.map(|file| {
            Ok((
                format!("data/{}", file.name),
                self.store.checked_path(&file.id)?,
            ))
        });
        let spec = SessionSpec {
            inputs: inputs.collect::<Result<_, RunError>>()?,
            seed: SEED,
            limits: Limits {
                cell_seconds: 300,
                output_chars: 200_000,
                ..Limits::default()
            },
            ..SessionSpec::default()
        };
        self.interpreter
            .start(spec)
            .await
            .map_err(interpreter_failure)
    }

    async fn collect(
        &self,
        mut session: Box<dyn Session>,
    ) -> Result<Vec<(String, std::path::PathBuf)>, Failure> {
        let collected = session.read_outputs().await.map_err(interpreter_failure)?;
        session.close().await.map_err(interpreter_failure)?;
        let kept = collected.files.into_iter().map(|file| {
            let id = self.store.put(&file.bytes)?;
            Ok::<_, RunError>((file.path, self.store.path(&id)))
        });
        Ok(kept.collect::<Result<_, _>>()?)
    }
}

async fn run_cells(
    session: &mut dyn Session,
    solution: &Solution,
    lenient: bool,
) -> Result<Vec<Observation>, Failure> {
    let mut observations = Vec::new();
    for turn in &solution.turns {
        let observation = session
            .execute(&turn.cell)
            .await
            .map_err(interpreter_failure)?;
        if let (false, Some(error)) = (lenient, &observation.error) {
            let text = format!(
                "a cell of the solution raised an exception: {}",
                error.traceback
            );
            return Err(Failure::new(FailureKind::Internal, text));
        }
        observations.push(observation);
    }
    Ok(observations)
}
