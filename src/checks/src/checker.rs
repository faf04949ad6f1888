//! The checker: evaluates the checks of a task on a candidate, in a separate session.
//!
//! The session contains the task's files, the reference, the checker's Python code and the candidate's files.
//! It runs no code of the candidate. The host reads the result as a file.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::sources::SOURCES;
use pybench_interpreter::{Collected, Interpreter, InterpreterError, Limits, SessionSpec};
use pybench_run::{ContentStore, RunError};
use pybench_types::figure::Figure;
use pybench_types::id::Digest;
use pybench_types::observation::{Observation, Output};
use pybench_types::task::{FileFormat, Task, TaskFile};
use pybench_types::trajectory::{Finding, Trajectory};

const CELL: &str = "import sys\nsys.path.insert(0, 'checker')\nimport checker\nchecker.main()\n";

/// The folder of the files that only the checker sees.
const HELD_OUT: &str = "held_out";

/// As `WALL_SECONDS` in `evaluate.py`.
const SECONDS_PER_CANDIDATE: u64 = 240;

/// The result of an agent: its final answer, its output files and its chart records.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// The final answer.
    pub answer: String,
    /// Path relative to the workspace (`output/…`) → host file.
    pub outputs: Vec<(String, PathBuf)>,
    /// Chart records, in the order in which they were created.
    pub claims: Vec<Claim>,
}

/// A chart record: what the agent's process claims that a figure shows. The checker verifies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The file of the figure, relative to the workspace; `None` if it was only displayed.
    pub path: Option<String>,
    /// The recorded figure.
    pub figure: Figure,
}

impl Candidate {
    /// The candidate of a trajectory whose outputs are in `store`.
    ///
    /// # Errors
    /// An output is missing or damaged.
    pub fn of(trajectory: &Trajectory, store: &ContentStore) -> Result<Self, RunError> {
        let observations = trajectory.turns.iter().flat_map(|turn| turn.observations());
        let outputs = trajectory.outputs.iter();
        let outputs = outputs.map(|file| Ok((file.path.clone(), store.checked_path(&file.id)?)));
        Ok(Self {
            answer: trajectory.answer().to_owned(),
            outputs: outputs.collect::<Result<_, RunError>>()?,
            claims: observations.flat_map(Claim::all_of).collect(),
        })
    }
}

impl Claim {
    /// The chart records of an observation.
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

/// The checker could not judge the candidate. This is not a verdict.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The session failed.
    #[error("the checker's session failed: {0}")]
    Interpreter(#[from] InterpreterError),
    /// The reference raised an error, or the checks do not match it.
    #[error("the task is wrong: {0}")]
    Task(String),
    /// The reference says that the task's files do not suit it.
    #[error("the files do not suit the task: {0}")]
    Unfit(String),
    /// The checker produced no valid result.
    #[error("the checker did not finish: {0}")]
    Checker(String),
    /// A file for the checker could not be written.
    #[error("{context}: {source}")]
    Io {
        /// The operation or path.
        context: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An input or output file is missing or damaged.
    #[error(transparent)]
    File(#[from] RunError),
}

impl CheckError {
    pub(super) fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }
}

/// Evaluates checks in fresh sessions.
#[derive(Clone)]
pub struct Checker {
    pub(super) interpreter: Arc<dyn Interpreter>,
    /// Folder with the checker's Python sources, which sessions mount.
    pub(super) sources: Arc<TempDir>,
}

/// The work of one checker session.
pub(super) struct CheckerJob<'a> {
    pub(super) mode: &'a str,
    pub(super) seconds: u64,
    /// Additional files: path in the workspace → bytes.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Additional files: path in the workspace → host file.
    pub(super) host_files: BTreeMap<String, PathBuf>,
    /// Number of candidates in `candidates/`.
    pub(super) candidates: usize,
}

impl<'a> CheckerJob<'a> {
    /// A job for the single candidate in `candidate/`.
    pub(super) fn new(mode: &'a str, seconds: u64, files: Vec<(String, Vec<u8>)>) -> Self {
        Self {
            mode,
            seconds,
            files,
            host_files: BTreeMap::new(),
            candidates: 0,
        }
    }
}

impl Checker {
    /// Creates a checker that runs in sessions of `interpreter`.
    ///
    /// # Errors
    /// [`CheckError::Io`] if the sources cannot be written.
    pub fn new(interpreter: Arc<dyn Interpreter>) -> Result<Self, CheckError> {
        let folder = TempDir::with_prefix("pybench-checker-")
            .map_err(CheckError::io("creating the folder of the checker"))?;
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

    /// Runs the reference alone, which may say that the files do not suit the task.
    ///
    /// # Errors
    /// [`CheckError::Unfit`] if it says so; otherwise as [`Checker::check`].
    pub async fn check_fit(&self, task: &Task, store: &ContentStore) -> Result<(), CheckError> {
        let job = CheckerJob::new("fit", 600, Vec::new());
        self.run(task, store, &Candidate::default(), job).await?;
        Ok(())
    }

    /// Returns a finding for every expected output (filter `outputs`) and every check (filter `check`).
    ///
    /// # Errors
    /// The checker could not judge the candidate.
    pub async fn check(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<Finding>, CheckError> {
        let files = self.run_untrusted(task, store, candidate).await?;
        let job = CheckerJob::new("check", 600, files);
        let (result, _) = self.run(task, store, candidate, job).await?;
        parse(&result["findings"])
    }

    /// Like [`Checker::check`] for several candidates, in their order. The reference runs once.
    ///
    /// # Errors
    /// As [`Checker::check`].
    pub async fn check_many(
        &self,
        task: &Task,
        store: &ContentStore,
        candidates: &[Candidate],
    ) -> Result<Vec<Vec<Finding>>, CheckError> {
        let untrusted = self.run_untrusted_many(task, store, candidates).await?;
        let mut host_files = BTreeMap::new();
        let mut files = Vec::new();
        for (number, (candidate, untrusted)) in candidates.iter().zip(untrusted).enumerate() {
            let folder = format!("candidates/{number}");
            add_outputs_below(&mut host_files, candidate, &folder);
            files.extend(answer_files(candidate, &folder)?);
            files.extend(untrusted.into_iter().map(|(path, bytes)| {
                let name = path.trim_start_matches("candidate/");
                (format!("{folder}/{name}"), bytes)
            }));
        }
        let nothing = Candidate::default();
        // Each candidate may take as long as the checker allows for its files.
        let seconds = 600 + SECONDS_PER_CANDIDATE * candidates.len() as u64;
        let job = CheckerJob {
            mode: "many",
            seconds,
            files,
            host_files,
            candidates: candidates.len(),
        };
        let (result, _) = self.run(task, store, &nothing, job).await?;
        let found: Vec<Vec<Finding>> = parse(&result["many"])?;
        match found.len() == candidates.len() {
            true => Ok(found),
            false => Err(CheckError::Checker(
                "its result does not cover all candidates".to_owned(),
            )),
        }
    }

    /// Returns findings for the candidate itself (`original`), for every mutant of it, and for null agents
    /// (`null: …`).
    ///
    /// # Errors
    /// As [`Checker::check`].
    pub async fn audit(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<(String, Vec<Finding>)>, CheckError> {
        let files = self.run_untrusted(task, store, candidate).await?;
        let job = CheckerJob::new("audit", 3600, files);
        let (result, _) = self.run(task, store, candidate, job).await?;
        let mut rows: Vec<(String, Vec<Finding>)> = parse(&result["mutants"])?;
        rows.extend(self.audit_untrusted(task, store, candidate).await?);
        Ok(rows)
    }

    /// Runs one checker session; returns its result and the files it wrote.
    pub(super) async fn run(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
        job: CheckerJob<'_>,
    ) -> Result<(Value, Collected), CheckError> {
        let folder = TempDir::with_prefix("pybench-check-")
            .map_err(CheckError::io("creating a temporary folder for the check"))?;
        let mut inputs = task_files(task, store, true)?;
        for (path, _) in SOURCES {
            inputs.insert(format!("checker/{path}"), self.sources.path().join(path));
        }
        for (path, bytes) in job_files(task, candidate, &job)?
            .into_iter()
            .chain(job.files)
        {
            let file = folder.path().join(inputs.len().to_string());
            write(&file, &bytes)?;
            inputs.insert(path, file);
        }
        add_outputs(&mut inputs, candidate);
        inputs.extend(job.host_files);
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

    /// Runs one cell in a fresh session and collects the output files.
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

/// The task's files as session inputs; includes held-out files only if `held_out` is set.
pub(super) fn task_files(
    task: &Task,
    store: &ContentStore,
    held_out: bool,
) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let files = folders(task).filter(|(folder, _)| held_out || *folder != HELD_OUT);
    files
        .map(|(folder, file)| {
            let path = store.checked_path(&file.id)?;
            Ok((format!("{folder}/{}", file.name), path))
        })
        .collect()
}

/// Adds the candidate's files under `candidate/`. A path outside `output/` is skipped, so the check finds no
/// file.
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

/// The checker's Python sources: path in its folder → source. `checker.py` documents its input and output
/// files, so it can also run without this crate.
pub fn checker_sources() -> &'static [(&'static str, &'static str)] {
    SOURCES
}

/// The content of `task.json`, which the checker reads, for a mode and a number of candidates.
pub fn checker_task(task: &Task, mode: &str, candidates: usize) -> Value {
    json!({
        "mode": mode,
        "checks": task.checks,
        "reference": task.reference,
        "query": task.query,
        "outputs": task.outputs,
        "formats": formats(task),
        "candidates": candidates,
    })
}

/// How the task's files are read: path in the workspace → format.
fn formats(task: &Task) -> BTreeMap<String, &FileFormat> {
    let formats = folders(task).filter_map(|(folder, file)| {
        let format = file.format.as_ref()?;
        Some((format!("{folder}/{}", file.name), format))
    });
    formats.collect()
}

/// The task's files, with the folders where the checker finds them.
fn folders(task: &Task) -> impl Iterator<Item = (&'static str, &TaskFile)> {
    let data = task.files.iter().map(|file| ("data", file));
    data.chain(task.held_out.iter().map(|file| (HELD_OUT, file)))
}

fn job_files(
    task: &Task,
    candidate: &Candidate,
    job: &CheckerJob<'_>,
) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
    let task = checker_task(task, job.mode, job.candidates);
    let mut files = answer_files(candidate, "candidate")?;
    files.push(("task.json".into(), task.to_string().into_bytes()));
    Ok(files)
}

/// The candidate's answer and chart records as files in its folder.
fn answer_files(candidate: &Candidate, folder: &str) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
    let claims = serde_json::to_vec(&candidate.claims).map_err(|error| {
        CheckError::Checker(format!("cannot serialize the chart records: {error}"))
    })?;
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
        return Err(CheckError::Checker(failure_reason(observation)));
    };
    let bytes = collected.files.swap_remove(at).bytes;
    let result: Value = serde_json::from_slice(&bytes)
        .map_err(|error| CheckError::Checker(format!("its result is not valid JSON: {error}")))?;
    let text = |key: &str| result.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("unfit"), text("error")) {
        (Some(reason), _) => Err(CheckError::Unfit(reason)),
        (None, Some(error)) if result["stalled"] == true => Err(CheckError::Checker(error)),
        (None, Some(error)) => Err(CheckError::Task(error)),
        (None, None) => Ok((result, collected)),
    }
}

fn failure_reason(observation: &Observation) -> String {
    match (&observation.error, observation.stopped) {
        (_, Some(stopped)) => format!("its session was stopped ({stopped:?})"),
        (Some(error), _) => format!("{}: {}\n{}", error.ename, error.evalue, error.traceback),
        (None, None) => "it wrote no result".into(),
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, CheckError> {
    T::deserialize(value).map_err(|error| {
        CheckError::Checker(format!("its result has an unexpected format: {error}"))
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckError> {
    let wrap = || CheckError::io(path.display().to_string());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(wrap())?;
    }
    std::fs::write(path, bytes).map_err(wrap())
}
