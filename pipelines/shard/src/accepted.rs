//! The rows of a run: its accepted trajectories, read from the artifacts one at a time, and those that people edited.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use pybench_checks::count_rejection;
use pybench_checks::faults::FaultReport;
use pybench_checks::selection::holds;
use pybench_datasets::decontaminate::{BenchmarkMatches, BenchmarkSearch, FileSearch, RowPrint};
use pybench_datasets::dedup::RowTexts;
use pybench_datasets::preference::Preference;
use pybench_datasets::row_source::{RowSource, SplitFacts};
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::{Attempts, DatasetError, Row, parallel};
use pybench_interpreter::InterpreterChoice;
use pybench_profile::PictureIndex;
use pybench_run::artifacts::{ItemReader, TASKS, TRAJECTORIES, VERDICTS};
use pybench_run::{Recipe, RunError, RunFolder, human_edits};
use pybench_types::held_out::{HeldOutRule, Unseen};
use pybench_types::human_edit::{HUMAN_EDITED, HumanEdit};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Trajectory, Turn, Verdict};

/// Number of rows that are compared with benchmarks in parallel.
const BATCH: usize = 512;

/// The rows of a run, in item order, and after them those of people. Memory holds numbers and offsets of the artifacts'
/// items, and the ids of edited trajectories.
pub(crate) struct AcceptedRows {
    tasks: ItemReader<Task>,
    trajectories: ItemReader<Trajectory>,
    verdicts: ItemReader<Verdict>,
    rows: Vec<AcceptedRow>,
    /// Edited trajectories of which preference pairs are made.
    pairs: Vec<AcceptedRow>,
    /// Ids of the recorded and of the edited trajectory.
    edits: Vec<(Digest, Digest)>,
    /// By the number of the task.
    attempts: Vec<Attempts>,
    counts: Counts,
    interpreter: InterpreterChoice,
    folder: Arc<RunFolder>,
    /// The parts of composed tasks that no training row has.
    held_out: HeldOutRule,
    /// Rows with pictures that look the same belong to one split.
    pictures: Mutex<PictureIndex>,
}

/// A row, by numbers.
#[derive(Clone, Copy)]
struct AcceptedRow {
    task: u32,
    record: RowRecord,
}

/// Where the trajectory of a row and its verdict are.
#[derive(Clone, Copy)]
enum RowRecord {
    /// In the artifacts.
    Graded { trajectory: u32, verdict: u32 },
    /// Among the edits of people.
    Edited(u32),
}

impl RowRecord {
    /// The value of the column `provenance`.
    fn provenance(self) -> Option<&'static str> {
        match self {
            Self::Graded { .. } => None,
            Self::Edited(_) => Some(HUMAN_EDITED),
        }
    }
}

/// What the dataset card says of the run.
pub(crate) struct Counts {
    pub(crate) tasks: usize,
    pub(crate) trajectories: usize,
    pub(crate) graded: usize,
    pub(crate) accepted: usize,
    /// Edited trajectories that become rows.
    pub(crate) edited: usize,
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
    pub(crate) fn read(folder: &Arc<RunFolder>, recipe: &Recipe) -> Result<Self, RunError> {
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
                    record: RowRecord::Graded {
                        trajectory: trajectory as u32,
                        verdict: number as u32,
                    },
                }));
            }
            Ok(name)
        })?;
        let (mut edits, mut pairs, without_edits) = (Vec::new(), Vec::new(), rows.len());
        for edit in human_edits::read_all(folder.journal())? {
            let Some(task) = tasks.position(edit.trajectory.task.as_str()) else {
                continue;
            };
            let row = AcceptedRow {
                task: task as u32,
                record: RowRecord::Edited(edits.len() as u32),
            };
            rows.extend(edit.repair.then_some(row));
            pairs.extend(edit.pair.then_some(row));
            edits.push((edit.lineage.trajectory, edit.trajectory.id));
        }
        let counts = Counts {
            tasks: tasks.len(),
            trajectories: trajectories.len(),
            graded,
            accepted,
            edited: rows.len() - without_edits,
            rejected,
            faults,
        };
        Ok(Self {
            tasks: tasks.into_items(),
            trajectories: trajectories.into_items(),
            verdicts: verdicts.into_items(),
            rows,
            pairs,
            edits,
            attempts,
            counts,
            interpreter: recipe.interpreter.clone(),
            folder: folder.clone(),
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
        self.matches(&self.rows, files)
    }

    fn matches(
        &self,
        rows: &[AcceptedRow],
        files: &FileSearch,
    ) -> Result<BenchmarkMatches, RunError> {
        let mut search = BenchmarkSearch::default();
        for rows in rows.chunks(BATCH) {
            for print in parallel::map(rows, |row| self.print(*row, files)) {
                search.add(print?);
            }
        }
        Ok(search.finish(files))
    }

    fn print(&self, row: AcceptedRow, files: &FileSearch) -> Result<RowPrint, RunError> {
        let task = self.tasks.read(row.task as usize)?;
        let id = match row.record {
            RowRecord::Graded { verdict, .. } => self.verdicts.read(verdict as usize)?.trajectory,
            RowRecord::Edited(edit) => self.edits[edit as usize].1.clone(),
        };
        let inputs = task.files.into_iter().chain(task.held_out);
        Ok(RowPrint::new(&id, &task.query, inputs, files))
    }

    /// The preference pairs of people, without those that match benchmarks unless `allow` is set.
    ///
    /// # Errors
    /// An artifact or an edit is invalid.
    pub(crate) fn preferences(
        &self,
        files: &FileSearch,
        allow: bool,
        scrubber: &Scrubber,
    ) -> Result<Vec<Preference>, RunError> {
        let matching = match allow {
            true => Vec::new(),
            false => self.matches(&self.pairs, files)?.matches,
        };
        let matching: HashSet<usize> = matching.iter().map(|found| found.row).collect();
        let mut pairs = Vec::new();
        for (number, row) in self.pairs.iter().enumerate() {
            if let RowRecord::Edited(edit) = row.record
                && !matching.contains(&number)
            {
                let pair = Preference::of_edit(&self.edit(edit)?);
                pairs.extend(pair.map(|pair| pair.scrubbed(scrubber)));
            }
        }
        Ok(pairs)
    }

    fn edit(&self, number: u32) -> Result<HumanEdit, RunError> {
        let (recorded, edited) = &self.edits[number as usize];
        let edit = human_edits::read_one(self.folder.journal(), recorded, edited)?;
        edit.ok_or_else(|| {
            RunError::BadInput(format!(
                "the edited trajectory {edited} is not in the journal"
            ))
        })
    }

    /// The trajectory of a row and its verdict.
    fn graded(&self, row: AcceptedRow) -> Result<(Trajectory, Verdict), RunError> {
        Ok(match row.record {
            RowRecord::Graded {
                trajectory,
                verdict,
            } => (
                self.trajectories.read(trajectory as usize)?,
                self.verdicts.read(verdict as usize)?,
            ),
            RowRecord::Edited(edit) => {
                let edit = self.edit(edit)?;
                (edit.trajectory, edit.verdict)
            }
        })
    }

    /// The tasks of the rows that match.
    ///
    /// # Errors
    /// An artifact is invalid.
    pub(crate) fn matching_tasks(
        &self,
        matches: &BenchmarkMatches,
    ) -> Result<BTreeSet<Digest>, RunError> {
        self.tasks_of(matches.matches.iter().map(|found| found.row))
    }

    /// The tasks of the rows with these numbers.
    ///
    /// # Errors
    /// An artifact is invalid.
    pub(crate) fn tasks_of(
        &self,
        rows: impl Iterator<Item = usize>,
    ) -> Result<BTreeSet<Digest>, RunError> {
        rows.map(|row| Ok(self.tasks.read(self.rows[row].task as usize)?.id))
            .collect()
    }

    /// Leaves out the rows of these tasks, and returns how many there are.
    ///
    /// # Errors
    /// An artifact is invalid.
    pub(crate) fn drop_tasks(&mut self, tasks: &BTreeSet<Digest>) -> Result<usize, RunError> {
        if tasks.is_empty() {
            return Ok(0);
        }
        let mut kept = Vec::new();
        for row in &self.rows {
            let task = self.tasks.read(row.task as usize)?;
            if !tasks.contains(&task.id) {
                kept.push(*row);
            }
        }
        let left_out = self.rows.len() - kept.len();
        self.rows = kept;
        Ok(left_out)
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
        files.try_for_each(|file| self.folder.store().checked_path(&file.id).map(drop))
    }

    fn make(&self, row: AcceptedRow) -> Result<Row, RunError> {
        let task = self.tasks.read(row.task as usize)?;
        let (trajectory, verdict) = self.graded(row)?;
        let mut made = Row::new(&task, &trajectory, &verdict);
        made.attempts = self.attempts[row.task as usize];
        made.provenance = row.record.provenance().map(str::to_owned);
        let unseen = self.held_out.of_task(&task);
        made.unseen = unseen.map_or("", Unseen::name).to_owned();
        self.check_inputs(&task)?;
        let made = made.in_interpreter(&self.interpreter);
        made.with_contents(|id| self.folder.store().get(id))
    }

    fn facts(&self, row: AcceptedRow) -> Result<SplitFacts, RunError> {
        let task = self.tasks.read(row.task as usize)?;
        let (trajectory, _) = self.graded(row)?;
        let cells: Vec<&str> = trajectory.turns.iter().flat_map(Turn::cells).collect();
        let texts = RowTexts::new(&task.query, &cells, &trajectory.messages);
        let mut index = self.pictures.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = task.files.iter().filter_map(|file| {
            index.key(file, |id| self.folder.store().get(id).ok()) // a missing file is reported when the row is made
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

impl RowSource for &AcceptedRows {
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
