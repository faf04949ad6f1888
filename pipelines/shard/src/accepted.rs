//! The rows of a run: its accepted trajectories, read from the artifacts one at a time.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use pybench_checks::count_rejection;
use pybench_checks::faults::FaultReport;
use pybench_checks::selection::holds;
use pybench_datasets::decontaminate::{BenchmarkMatches, BenchmarkSearch, FileSearch, RowPrint};
use pybench_datasets::dedup::RowTexts;
use pybench_datasets::row_source::{RowSource, SplitFacts};
use pybench_datasets::{Attempts, DatasetError, Row, parallel};
use pybench_interpreter::InterpreterChoice;
use pybench_profile::PictureIndex;
use pybench_run::artifacts::{ItemReader, TASKS, TRAJECTORIES, VERDICTS};
use pybench_run::{ContentStore, Recipe, RunError, RunFolder};
use pybench_types::held_out::{HeldOutRule, Unseen};
use pybench_types::task::Task;
use pybench_types::trajectory::{Trajectory, Turn, Verdict};

/// Number of rows that are compared with benchmarks in parallel.
const BATCH: usize = 512;

/// The rows of a run, in item order. Memory holds numbers and offsets of the artifacts' items.
pub(crate) struct AcceptedRows {
    tasks: ItemReader<Task>,
    trajectories: ItemReader<Trajectory>,
    verdicts: ItemReader<Verdict>,
    rows: Vec<AcceptedRow>,
    /// By the number of the task.
    attempts: Vec<Attempts>,
    counts: Counts,
    interpreter: InterpreterChoice,
    store: ContentStore,
    /// The parts of composed tasks that no training row has.
    held_out: HeldOutRule,
    /// Rows with pictures that look the same belong to one split.
    pictures: Mutex<PictureIndex>,
}

/// The numbers of a row's items in their artifacts.
#[derive(Clone, Copy)]
struct AcceptedRow {
    task: u32,
    trajectory: u32,
    verdict: u32,
}

/// What the dataset card says of the run.
pub(crate) struct Counts {
    pub(crate) tasks: usize,
    pub(crate) trajectories: usize,
    pub(crate) graded: usize,
    pub(crate) accepted: usize,
    pub(crate) rejected: BTreeMap<String, u64>,
    pub(crate) faults: FaultReport,
}

/// The task of a trajectory, and whether the expert planted a fault.
struct Origin {
    /// `None` if the task is not in the run.
    task: Option<u32>,
    planted: bool,
}

impl AcceptedRows {
    /// Reads the artifacts once.
    ///
    /// # Errors
    /// An artifact is missing or invalid.
    pub(crate) fn read(folder: &RunFolder, recipe: &Recipe) -> Result<Self, RunError> {
        let root = folder.root();
        let tasks = TASKS.index(root, |task| Ok(task.id.to_string()))?;
        let mut origins = Vec::new();
        let trajectories = TRAJECTORIES.index(root, |trajectory| {
            origins.push(Origin {
                task: tasks.position(trajectory.task.as_str()).map(|at| at as u32),
                planted: trajectory.fault.is_some(),
            });
            Ok(trajectory.id.to_string())
        })?;
        let (mut graded, mut accepted) = (0, 0);
        let (mut rejected, mut faults) = (BTreeMap::new(), FaultReport::default());
        let mut attempts = vec![Attempts::default(); tasks.len()];
        let mut rows = Vec::new();
        let verdicts = VERDICTS.index(root, |verdict| {
            let number = graded;
            graded += 1;
            accepted += usize::from(verdict.accepted);
            count_rejection(&mut rejected, verdict);
            let name = verdict.trajectory.to_string();
            let Some(trajectory) = trajectories.position(&name) else {
                return Ok(name);
            };
            let origin = &origins[trajectory];
            faults.count(origin.planted, verdict);
            if let Some(task) = origin.task {
                count_attempt(&mut attempts[task as usize], origin, verdict);
                rows.extend(verdict.accepted.then_some(AcceptedRow {
                    task,
                    trajectory: trajectory as u32,
                    verdict: number as u32,
                }));
            }
            Ok(name)
        })?;
        let counts = Counts {
            tasks: tasks.len(),
            trajectories: trajectories.len(),
            graded,
            accepted,
            rejected,
            faults,
        };
        Ok(Self {
            tasks: tasks.into_items(),
            trajectories: trajectories.into_items(),
            verdicts: verdicts.into_items(),
            rows,
            attempts,
            counts,
            interpreter: recipe.interpreter.clone(),
            store: folder.store().clone(),
            held_out: recipe.shard.held_out(recipe.seed),
            pictures: Mutex::default(),
        })
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Compares queries and input files with the known benchmarks.
    ///
    /// # Errors
    /// An artifact is invalid.
    pub(crate) fn compare(&self, files: &FileSearch) -> Result<BenchmarkMatches, RunError> {
        let mut search = BenchmarkSearch::default();
        for rows in self.rows.chunks(BATCH) {
            for print in parallel::map(rows, |row| self.print(*row, files)) {
                search.add(print?);
            }
        }
        Ok(search.finish(files))
    }

    fn print(&self, row: AcceptedRow, files: &FileSearch) -> Result<RowPrint, RunError> {
        let task = self.tasks.read(row.task as usize)?;
        let verdict = self.verdicts.read(row.verdict as usize)?;
        let inputs = task.files.into_iter().chain(task.held_out);
        Ok(RowPrint::new(
            &verdict.trajectory,
            &task.query,
            inputs,
            files,
        ))
    }

    /// Leaves out the rows that match.
    pub(crate) fn drop_matching(&mut self, matches: &BenchmarkMatches) {
        let matching: HashSet<usize> = matches.matches.iter().map(|found| found.row).collect();
        let mut number = 0..;
        self.rows.retain(|_| {
            number
                .next()
                .is_none_or(|number| !matching.contains(&number))
        });
    }

    fn check_inputs(&self, task: &Task) -> Result<(), RunError> {
        let mut files = task.files.iter().chain(&task.held_out);
        files.try_for_each(|file| self.store.checked_path(&file.id).map(drop))
    }

    fn make(&self, row: AcceptedRow) -> Result<Row, RunError> {
        let task = self.tasks.read(row.task as usize)?;
        let trajectory = self.trajectories.read(row.trajectory as usize)?;
        let verdict = self.verdicts.read(row.verdict as usize)?;
        let mut made = Row::new(&task, &trajectory, &verdict);
        made.attempts = self.attempts[row.task as usize];
        let unseen = self.held_out.of_task(&task);
        made.unseen = unseen.map_or("", Unseen::name).to_owned();
        self.check_inputs(&task)?;
        let made = made.in_interpreter(&self.interpreter);
        made.with_contents(|id| self.store.get(id))
    }

    fn facts(&self, row: AcceptedRow) -> Result<SplitFacts, RunError> {
        let task = self.tasks.read(row.task as usize)?;
        let trajectory = self.trajectories.read(row.trajectory as usize)?;
        let cells: Vec<&str> = trajectory.turns.iter().flat_map(Turn::cells).collect();
        let texts = RowTexts::new(&task.query, &cells, &trajectory.messages);
        let mut index = self.pictures.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = task.files.iter().filter_map(|file| {
            index.key(file, |id| self.store.get(id).ok()) // a missing file is reported when the row is made
        });
        let pictures = keys.collect();
        let held_out = self.held_out.of_task(&task);
        Ok(SplitFacts::of_task(&task, texts, pictures, held_out))
    }
}

/// Counts attempts and solutions of a task. Solutions that did not become rows count too. Planted faults do not
/// count, because they say nothing about the task.
fn count_attempt(of_task: &mut Attempts, origin: &Origin, verdict: &Verdict) {
    if !origin.planted {
        of_task.tried += 1;
        of_task.solved += u32::from(holds(verdict));
    }
}

impl RowSource for AcceptedRows {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn row(&self, number: usize) -> Result<Row, DatasetError> {
        self.make(self.rows[number]).map_err(dataset_error)
    }

    fn split_facts(&self, number: usize) -> Result<SplitFacts, DatasetError> {
        self.facts(self.rows[number]).map_err(dataset_error)
    }
}

fn dataset_error(error: RunError) -> DatasetError {
    match error {
        RunError::Io { context, source } => DatasetError::Io { context, source },
        RunError::BadInput(text) => DatasetError::Setting(text),
        other => DatasetError::Io {
            context: "a row".to_owned(),
            source: std::io::Error::other(other),
        },
    }
}
