//! Solutions and idle agents, each played in a session of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use pybench::agent::{
    self, Format, Job, PybenchFormat, Step, TurnLog, interpreter_failure, observation_text,
};
use pybench::grade::{Candidate, Claim};
use pybench::interpreter::{Interpreter, Limits, Observation, Session, SessionSpec};
use pybench::run::{ContentStore, Failure, FailureKind, RunError};
use pybench::task::Task;
use pybench::trajectory::{Role, Sampling};

use crate::eval::agent::{Script, Scripted, answer, lenient_answer};
use crate::eval::bench::spec::Solution;
use crate::library::Library;

/// Every session of an audit starts alike.
const SEED: u64 = 0;
/// Idle agents need fewer.
const MOST_TURNS: u32 = 3;

/// Plays at one task.
pub(super) struct Player<'a> {
    pub(super) interpreter: &'a dyn Interpreter,
    pub(super) store: &'a ContentStore,
    pub(super) task: &'a Task,
}

/// A log that forgets: nothing of an audit's session is worth more than its row.
struct Forgetful;

impl TurnLog for Forgetful {
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

impl Player<'_> {
    /// What a solution leaves. Where it may go wrong (`lenient`), cells that raise and patterns that are
    /// not there are its own doing; otherwise they are a mistake of the task file.
    pub(super) async fn play(
        &self,
        solution: &Solution,
        lenient: bool,
    ) -> Result<Candidate, Failure> {
        let mut session = self.start().await?;
        let played = run_cells(session.as_mut(), solution, lenient).await;
        let left = self.collect(session).await?;
        let seen = played?;
        let texts: Vec<String> = seen.iter().map(observation_text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let said = match lenient {
            true => lenient_answer(solution, &texts),
            false => answer(solution, &texts)
                .map_err(|text| Failure::new(FailureKind::Internal, text))?,
        };
        Ok(Candidate {
            answer: PybenchFormat.write_answer(&said),
            outputs: left,
            claims: seen.iter().flat_map(Claim::all_of).collect(),
        })
    }

    /// What an agent that does no work leaves.
    pub(super) async fn idle(&self, script: Script) -> Result<Candidate, Failure> {
        let library = Library::embedded()
            .map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
        let teacher = Scripted::new(
            script,
            Arc::new(BTreeMap::new()),
            Arc::new(library),
            &PybenchFormat,
        );
        let sampling = Sampling::default();
        let job = Job {
            task: self.task,
            sample: 0,
            teacher: &teacher,
            format: &PybenchFormat,
            sampling: &sampling,
            max_turns: MOST_TURNS,
        };
        let mut session = self.start().await?;
        let solved = agent::solve(&job, session.as_mut(), &Forgetful).await;
        let left = self.collect(session).await?;
        let solved = solved?;
        let said = solved
            .messages
            .iter()
            .rev()
            .find(|message| message.role == Role::Assistant);
        Ok(Candidate {
            answer: said
                .map(|message| message.content.clone())
                .unwrap_or_default(),
            outputs: left,
            claims: Vec::new(),
        })
    }

    async fn start(&self) -> Result<Box<dyn Session>, Failure> {
        let files = self.task.files.iter();
        let spec = SessionSpec {
            inputs: files
                .map(|file| (format!("data/{}", file.name), self.store.path(&file.id)))
                .collect(),
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
    let mut seen = Vec::new();
    for turn in &solution.turns {
        let observation = session
            .execute(&turn.cell)
            .await
            .map_err(interpreter_failure)?;
        if let (false, Some(error)) = (lenient, &observation.error) {
            let text = format!("a cell of the solution raised: {}", error.traceback);
            return Err(Failure::new(FailureKind::Internal, text));
        }
        seen.push(observation);
    }
    Ok(seen)
}
