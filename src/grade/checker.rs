//! The checker: evaluates a task's checks on a candidate in a session of its own.
//!
//! The session holds the task's files, the reference, the checker's Python and the candidate's files,
//! and runs no code of the candidate. Its result is read by the host as a file.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::sources::SOURCES;
use crate::id::Digest;
use crate::interpreter::{
    Collected, Interpreter, InterpreterError, Limits, Observation, Output, SessionSpec,
};
use crate::run::ContentStore;
use crate::task::{Task, TaskFile};
use crate::trajectory::{Finding, Trajectory};

const CELL: &str = "import sys\nsys.path.insert(0, 'checker')\nimport checker\nchecker.main()\n";

/// What an agent left: judged by its files and its words, never by what its process said.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// The final message.
    pub answer: String,
    /// Path relative to the workspace (`output/…`) → host file.
    pub outputs: Vec<(String, PathBuf)>,
    /// Chart records, in the order in which they were made.
    pub claims: Vec<Claim>,
}

/// A chart record: what the agent's process said a figure shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The file it was saved to, relative to the workspace; `None` when displayed.
    pub path: Option<String>,
    /// The record.
    pub figure: Value,
}

impl Candidate {
    /// The candidate of a trajectory whose outputs lie in `store`.
    pub fn of(trajectory: &Trajectory, store: &ContentStore) -> Self {
        let observations = trajectory.turns.iter().flat_map(|turn| turn.observations());
        let outputs = trajectory.outputs.iter();
        Self {
            answer: trajectory.answer().to_owned(),
            outputs: outputs
                .map(|file| (file.path.clone(), store.path(&file.id)))
                .collect(),
            claims: observations.flat_map(Claim::all_of).collect(),
        }
    }
}

impl Claim {
    /// What the figures of an observation are said to show.
    pub fn all_of(observation: &Observation) -> impl Iterator<Item = Self> + '_ {
        let charts = observation.outputs.iter();
        charts.filter_map(|output| match output {
            Output::Chart { path, figure } => Some(Self {
                path: path.clone(),
                figure: figure.clone(),
            }),
            _ => None,
        })
    }
}

/// A failure of ours: no verdict on the candidate.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The session could not do its work.
    #[error("the checker's session failed: {0}")]
    Interpreter(#[from] InterpreterError),
    /// The reference raised, or the task's checks do not fit it.
    #[error("the task is wrong: {0}")]
    Task(String),
    /// The checker did not come to a result.
    #[error("the checker did not finish: {0}")]
    Checker(String),
    /// Writing what the checker reads failed.
    #[error("{context}: {source}")]
    Io {
        /// What was tried.
        context: String,
        /// The system's word.
        source: std::io::Error,
    },
}

impl CheckError {
    pub(super) fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }
}

/// Evaluates checks, each candidate in a fresh session.
#[derive(Clone)]
pub struct Checker {
    pub(super) interpreter: Arc<dyn Interpreter>,
    /// The sources as files, for sessions to see.
    pub(super) sources: Arc<TempDir>,
}

/// What one session is to do.
pub(super) struct Job<'a> {
    pub(super) mode: &'a str,
    pub(super) seconds: u64,
    /// More files: path in the workspace → bytes.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// More files: path in the workspace → host file.
    pub(super) given: BTreeMap<String, PathBuf>,
    /// How many candidates lie in `candidates/`.
    pub(super) candidates: usize,
}

impl<'a> Job<'a> {
    /// A job on the one candidate.
    pub(super) fn new(mode: &'a str, seconds: u64, files: Vec<(String, Vec<u8>)>) -> Self {
        Self {
            mode,
            seconds,
            files,
            given: BTreeMap::new(),
            candidates: 0,
        }
    }
}

impl Checker {
    /// A checker whose sessions `interpreter` starts.
    pub fn new(interpreter: Arc<dyn Interpreter>) -> Result<Self, CheckError> {
        let folder = TempDir::with_prefix("pybench-checker-")
            .map_err(CheckError::io("the checker's folder"))?;
        for (path, source) in SOURCES {
            write(&folder.path().join(path), source.as_bytes())?;
        }
        Ok(Self {
            interpreter,
            sources: Arc::new(folder),
        })
    }

    /// Digest of the checker's sources and of the environment that runs them.
    pub fn digest(&self) -> String {
        Digest::of_json(&(SOURCES, self.interpreter.environment())).to_string()
    }

    /// Findings for every expected output (filter `outputs`) and every check (filter `check`).
    pub async fn check(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<Finding>, CheckError> {
        let files = self.foreign(task, store, candidate).await?;
        let job = Job::new("check", 600, files);
        let (result, _) = self.run(task, store, candidate, job).await?;
        parse(&result["findings"])
    }

    /// As [`Checker::check`] for several candidates, in their order; the reference runs once.
    pub async fn check_many(
        &self,
        task: &Task,
        store: &ContentStore,
        candidates: &[Candidate],
    ) -> Result<Vec<Vec<Finding>>, CheckError> {
        let made = self.foreign_many(task, store, candidates).await?;
        let mut given = BTreeMap::new();
        let mut files = Vec::new();
        for (number, (candidate, made)) in candidates.iter().zip(made).enumerate() {
            let folder = format!("candidates/{number}");
            add_outputs_below(&mut given, candidate, &folder);
            files.extend(said(candidate, &folder)?);
            files.extend(made.into_iter().map(|(path, bytes)| {
                let name = path.trim_start_matches("candidate/");
                (format!("{folder}/{name}"), bytes)
            }));
        }
        let nothing = Candidate::default();
        let seconds = 600 + 60 * candidates.len() as u64;
        let job = Job {
            mode: "many",
            seconds,
            files,
            given,
            candidates: candidates.len(),
        };
        let (result, _) = self.run(task, store, &nothing, job).await?;
        let found: Vec<Vec<Finding>> = parse(&result["many"])?;
        match found.len() == candidates.len() {
            true => Ok(found),
            false => Err(CheckError::Checker("it left candidates out".to_owned())),
        }
    }

    /// Findings for the candidate itself (`original`), for every wrong candidate made from it, and for
    /// candidates that did nothing (`null: …`).
    pub async fn audit(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<(String, Vec<Finding>)>, CheckError> {
        let files = self.foreign(task, store, candidate).await?;
        let job = Job::new("audit", 3600, files);
        let (result, _) = self.run(task, store, candidate, job).await?;
        let mut rows: Vec<(String, Vec<Finding>)> = parse(&result["mutants"])?;
        rows.extend(self.audit_foreign(task, store, candidate).await?);
        Ok(rows)
    }

    /// One session of the checker: its result and the files it wrote.
    pub(super) async fn run(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
        job: Job<'_>,
    ) -> Result<(Value, Collected), CheckError> {
        let folder = TempDir::with_prefix("pybench-check-")
            .map_err(CheckError::io("a folder for the check"))?;
        let mut inputs = task_files(task, store, true);
        for (path, _) in SOURCES {
            inputs.insert(format!("checker/{path}"), self.sources.path().join(path));
        }
        for (path, bytes) in described(task, candidate, &job)?
            .into_iter()
            .chain(job.files)
        {
            let file = folder.path().join(inputs.len().to_string());
            write(&file, &bytes)?;
            inputs.insert(path, file);
        }
        add_outputs(&mut inputs, candidate);
        inputs.extend(job.given);
        let limits = Limits {
            cell_seconds: job.seconds,
            memory_mib: 4096,
            output_files: 1000,
            output_mib: 1024,
            ..Limits::default()
        };
        let (observation, collected) = self.session(inputs, limits, CELL).await?;
        read_result(&observation, collected)
    }

    /// Run one cell in a fresh session and collect what it wrote.
    pub(super) async fn session(
        &self,
        inputs: BTreeMap<String, PathBuf>,
        limits: Limits,
        cell: &str,
    ) -> Result<(Observation, Collected), CheckError> {
        let spec = SessionSpec {
            inputs,
            limits,
            ..SessionSpec::default()
        };
        let mut session = self.interpreter.start(spec).await?;
        let observation = session.execute(cell).await?;
        let collected = session.read_outputs().await?;
        session.close().await?;
        Ok((observation, collected))
    }
}

/// The task's files as a session sees them; held-out ones only where `held_out`.
pub(super) fn task_files(
    task: &Task,
    store: &ContentStore,
    held_out: bool,
) -> BTreeMap<String, PathBuf> {
    let place =
        |folder: &str, file: &TaskFile| (format!("{folder}/{}", file.name), store.path(&file.id));
    let mut files: BTreeMap<_, _> = task.files.iter().map(|f| place("data", f)).collect();
    if held_out {
        files.extend(task.held_out.iter().map(|f| place("held_out", f)));
    }
    files
}

/// The candidate's files under `candidate/`; a path that leaves `output/` is left out, so that the
/// check finds no file.
pub(super) fn add_outputs(inputs: &mut BTreeMap<String, PathBuf>, candidate: &Candidate) {
    add_outputs_below(inputs, candidate, "candidate");
}

fn add_outputs_below(inputs: &mut BTreeMap<String, PathBuf>, candidate: &Candidate, folder: &str) {
    for (path, file) in &candidate.outputs {
        let plain = |c| matches!(c, Component::Normal(_));
        if path.starts_with("output/") && Path::new(path).components().all(plain) {
            inputs.insert(format!("{folder}/{path}"), file.clone());
        }
    }
}

/// The checker's Python: path within its folder → source. `checker.py` says what it reads and writes, so
/// that others may run it elsewhere.
pub fn checker_sources() -> &'static [(&'static str, &'static str)] {
    SOURCES
}

/// `task.json` as the checker reads it, in that mode and for so many candidates.
pub fn checker_task(task: &Task, mode: &str, candidates: usize) -> Value {
    json!({
        "mode": mode,
        "checks": task.checks,
        "reference": task.reference,
        "query": task.query,
        "outputs": task.outputs,
        "candidates": candidates,
    })
}

fn described(
    task: &Task,
    candidate: &Candidate,
    job: &Job<'_>,
) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
    let task = checker_task(task, job.mode, job.candidates);
    let mut files = said(candidate, "candidate")?;
    files.push(("task.json".into(), task.to_string().into_bytes()));
    Ok(files)
}

/// The candidate's answer and claims as files of its folder.
fn said(candidate: &Candidate, folder: &str) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
    let claims = serde_json::to_vec(&candidate.claims)
        .map_err(|error| CheckError::Checker(format!("the claims cannot be written: {error}")))?;
    let answer = candidate.answer.clone().into_bytes();
    Ok(vec![
        (format!("{folder}/answer.txt"), answer),
        (format!("{folder}/claims.json"), claims),
    ])
}

fn read_result(
    observation: &Observation,
    mut collected: Collected,
) -> Result<(Value, Collected), CheckError> {
    let at = collected
        .files
        .iter()
        .position(|f| f.path == "output/result.json");
    let Some(at) = at else {
        return Err(CheckError::Checker(why(observation)));
    };
    let bytes = collected.files.swap_remove(at).bytes;
    let result: Value = serde_json::from_slice(&bytes)
        .map_err(|error| CheckError::Checker(format!("its result is no JSON: {error}")))?;
    match result.get("error").and_then(Value::as_str) {
        Some(error) => Err(CheckError::Task(error.to_owned())),
        None => Ok((result, collected)),
    }
}

fn why(observation: &Observation) -> String {
    match (&observation.error, observation.stopped) {
        (_, Some(stopped)) => format!("its session was stopped ({stopped:?})"),
        (Some(error), _) => format!("{}: {}\n{}", error.ename, error.evalue, error.traceback),
        (None, None) => "it wrote no result".into(),
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, CheckError> {
    T::deserialize(value)
        .map_err(|error| CheckError::Checker(format!("its result has another shape: {error}")))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckError> {
    let wrap = || CheckError::io(path.display().to_string());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(wrap())?;
    }
    std::fs::write(path, bytes).map_err(wrap())
}
