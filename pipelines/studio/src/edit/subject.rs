//! What is edited, found with its task and its files: a trajectory of a run, the one that a row of a dataset was made from, or
//! an attempt of an evaluation.

use std::path::{Path, PathBuf};

use pybench_eval::run::EvalRecipe;
use pybench_run::artifacts::{HELD_OUT, TASKS, stage};
use pybench_run::{ContentStore, Journal, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::Trajectory;

use crate::editable::{edit_problem, row_trajectory};
use crate::record::Record;
use crate::sources::{Opened, is_local_run};

/// Maximum number of runs in which the trajectory of a row is looked for.
const MAX_RUNS: usize = 1_000;

/// A recorded trajectory with what its session and its checks need.
pub(crate) struct Subject {
    pub(crate) recorded: Trajectory,
    pub(crate) task: Task,
    /// Whether its verdict or score rejects it.
    pub(crate) is_rejected: bool,
    /// Folder of the run or evaluation, whose recipe has the limits.
    pub(crate) folder: PathBuf,
    pub(crate) store: ContentStore,
    pub(crate) saved_in: SavePlace,
}

/// Where an edit is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SavePlace {
    /// The run that is shown.
    Source,
    /// The run in this folder, which made the row that is shown.
    Run(PathBuf),
    /// Nowhere: it is of an evaluation, whose tasks are not for training.
    Nowhere,
}

impl Subject {
    /// Finds what a record needs. `runs_dir` has runs that may have made the row of a dataset.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it cannot be edited, with the reason in one sentence.
    pub(crate) fn find(opened: &Opened, record: Record, runs_dir: &Path) -> Result<Self, RunError> {
        if let Some(problem) = edit_problem(&record) {
            return Err(RunError::BadInput(problem));
        }
        match row_trajectory(&record) {
            Some(id) => of_row(&id, opened.runs_above(), runs_dir),
            None => of_source(record, opened),
        }
    }
}

/// A trajectory of the run or evaluation that is shown.
fn of_source(record: Record, opened: &Opened) -> Result<Subject, RunError> {
    let folder = opened.run()?.to_owned();
    let store = opened.store().cloned();
    let store = store.ok_or_else(|| RunError::Internal("a run without files".to_owned()))?;
    match record {
        Record::Run {
            trajectory,
            task: Some(task),
            verdict,
        } => {
            fetch_inputs(opened, &task)?;
            Ok(Subject {
                recorded: *trajectory,
                task: *task,
                is_rejected: verdict.is_some_and(|verdict| !verdict.accepted),
                folder,
                store,
                saved_in: SavePlace::Source,
            })
        }
        Record::Evaluation {
            attempt,
            trajectory: Some(trajectory),
            ..
        } => {
            let task = library_task(&folder, &trajectory.task)?;
            fetch_inputs(opened, &task)?;
            Ok(Subject {
                recorded: *trajectory,
                task,
                is_rejected: attempt.scores.strict == Some(false),
                folder,
                store,
                saved_in: SavePlace::Nowhere,
            })
        }
        _ => Err(RunError::Internal(
            "a trajectory without a task was taken for an editable one".to_owned(),
        )),
    }
}

/// Fetches what the session and the checks of a task need, if the source is in a bucket.
fn fetch_inputs(opened: &Opened, task: &Task) -> Result<(), RunError> {
    let files = task.files.iter().chain(&task.held_out);
    opened.fetch_all(files.map(|file| &file.id))
}

/// The trajectory with this id in the run that made it: one of those above the dataset, or one of the project.
fn of_row(id: &Digest, above: Vec<PathBuf>, runs_dir: &Path) -> Result<Subject, RunError> {
    let entries = std::fs::read_dir(runs_dir).into_iter().flatten().flatten();
    let own = entries.map(|entry| entry.path());
    let own = own.filter(|folder| is_local_run(folder)).take(MAX_RUNS);
    let mut runs = above.into_iter().chain(own);
    let (folder, recorded) = runs
        .find_map(|folder| {
            let recorded = trajectory_of_run(&folder, id)?;
            Some((folder, recorded))
        })
        .ok_or_else(|| {
            RunError::BadInput(format!(
                "no run above the dataset or in {} has the recorded trajectory of this row, so its task and its checks are not \
                 known; start the studio with `--runs-dir` and the folder that contains the run that made the dataset",
                runs_dir.display()
            ))
        })?;
    let task = task_of_run(&folder, &recorded.task)?;
    let record = Record::Run {
        trajectory: Box::new(recorded.clone()),
        task: task.clone().map(Box::new),
        verdict: None,
    };
    match (task, edit_problem(&record)) {
        (Some(task), None) => Ok(Subject {
            recorded,
            task,
            // Rows are accepted.
            is_rejected: false,
            store: ContentStore::open(&folder.join("files"))?,
            saved_in: SavePlace::Run(folder.clone()),
            folder,
        }),
        (_, problem) => Err(RunError::BadInput(problem.unwrap_or_default())),
    }
}

/// `None` if the run does not have it, or cannot be read.
fn trajectory_of_run(folder: &Path, id: &Digest) -> Option<Trajectory> {
    let journal = Journal::read_run(folder).ok()?;
    journal.output(stage::ROLLOUT, id.as_str()).ok()?
}

fn task_of_run(folder: &Path, id: &Digest) -> Result<Option<Task>, RunError> {
    if !TASKS.exists(folder) {
        return Ok(None);
    }
    for task in TASKS.read(folder)? {
        let task = task?;
        if task.id == *id {
            return Ok(Some(task));
        }
    }
    Ok(None)
}

/// A task of the library of an evaluation. An evaluation that has ended has its tasks; before, they are in the run that the recipe
/// names, which is beside the evaluation.
fn library_task(evaluation: &Path, id: &Digest) -> Result<Task, RunError> {
    if let Some(task) = task_of_run(evaluation, id)? {
        return Ok(task);
    }
    let recipe = EvalRecipe::load(&evaluation.join("recipe.toml"))?;
    let name = recipe.library.as_deref().and_then(Path::file_name);
    let runs_dir = evaluation.parent().unwrap_or(Path::new("."));
    let run = name.map(|name| runs_dir.join(name));
    let run = run.filter(|run| is_local_run(run));
    let found = match &run {
        Some(run) if HELD_OUT.exists(run) => held_out_task(run, id)?,
        Some(run) => task_of_run(run, id)?,
        None => None,
    };
    found.ok_or_else(|| {
        RunError::BadInput(format!(
            "neither the evaluation, which has its tasks when it has ended, nor the run that its recipe names (`library`), in {}, \
             has this task, so its checks are not known; continue the evaluation, or copy that run there",
            runs_dir.display()
        ))
    })
}

fn held_out_task(run: &Path, id: &Digest) -> Result<Option<Task>, RunError> {
    for held_out in HELD_OUT.read(run)? {
        let task = held_out?.task;
        if task.id == *id {
            return Ok(Some(task));
        }
    }
    Ok(None)
}
