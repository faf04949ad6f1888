//! Reads trajectories from run folders, datasets and logs of inspect_ai.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pybench_datasets::inspect_log::{self, LogHead, LogSample};
use pybench_datasets::samples::{self, ReadError, Sample};
use pybench_run::artifacts::{Index, TASKS, VERDICTS, stage};
use pybench_run::project::find_run;
use pybench_run::run_selection::stage_command;
use pybench_run::{ContentStore, Journal, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::text::line;
use pybench_types::trajectory::{Message, Role, Trajectory, Verdict};

/// Shortest prefix of an id that is taken for one, so that no number of a row is.
const SHORTEST_ID: usize = 8;

/// Maximum characters of a query in a list.
const MAX_QUERY: usize = 60;

/// A run, a dataset or a log to read trajectories from.
#[derive(Clone, Debug)]
pub enum TrajectorySource {
    /// Folder of a run.
    Run(PathBuf),
    /// Path of a dataset file or folder.
    Dataset(PathBuf),
    /// Path of a log of inspect_ai, or of a folder of logs.
    InspectLog(PathBuf),
}

/// A trajectory of a run, a row of a dataset, or a sample of a log.
#[derive(Clone)]
pub enum TrajectoryRecord {
    Trajectory {
        trajectory: Box<Trajectory>,
        task: Option<Box<Task>>,
        /// The verdict of `grade`, if it is graded.
        verdict: Option<Verdict>,
    },
    Row {
        sample: Sample,
    },
    Log {
        head: Box<LogHead>,
        sample: Box<LogSample>,
        /// The messages of the sample in the format `tools`.
        messages: Vec<Message>,
    },
}

impl TrajectorySource {
    /// Opens a run (name or folder), a dataset (file or folder), or a log of inspect_ai (file or folder of logs).
    ///
    /// # Errors
    /// [`RunError::BadInput`] if `path` is none of them.
    pub fn open(path: &Path, runs_dir: &Path) -> Result<Self, RunError> {
        let is_run = Journal::exists(path);
        if !is_run && inspect_log::is_log(path) {
            return Ok(Self::InspectLog(path.to_owned()));
        }
        if path.exists() && !is_run {
            return Ok(Self::Dataset(path.to_owned()));
        }
        Ok(Self::Run(find_run(path, runs_dir)?))
    }

    /// The folder of the run, or the path of the dataset or log.
    pub fn path(&self) -> &Path {
        match self {
            Self::Run(path) | Self::Dataset(path) | Self::InspectLog(path) => path,
        }
    }

    /// The content store of a run; `None` for a dataset or log.
    pub fn store(&self) -> Option<ContentStore> {
        match self {
            Self::Run(folder) => ContentStore::open(&folder.join("files")).ok(),
            Self::Dataset(_) | Self::InspectLog(_) => None,
        }
    }

    /// Calls `visit` with every trajectory, in order.
    ///
    /// # Errors
    /// The source cannot be read or is empty, or `visit` returns an error.
    pub fn each(
        &self,
        visit: &mut dyn FnMut(TrajectoryRecord) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        match self {
            Self::Run(folder) => each_of_run(folder, visit),
            Self::Dataset(path) => stopping(visit, |visit| {
                samples::read_rows(path, &mut |sample| visit(TrajectoryRecord::Row { sample }))
            }),
            Self::InspectLog(path) => stopping(visit, |visit| {
                inspect_log::each_sample(path, &mut |head, sample| {
                    visit(TrajectoryRecord::Log {
                        head: Box::new(head.clone()),
                        messages: sample.as_messages(),
                        sample: Box::new(sample),
                    })
                })
            }),
        }
    }

    /// Finds the trajectory with that number, counted from 1, or the one whose id starts with `which`, which then has at
    /// least [`SHORTEST_ID`] characters.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none, or if several ids match.
    pub fn find(&self, which: &str) -> Result<TrajectoryRecord, RunError> {
        let is_id = which.len() >= SHORTEST_ID;
        let number: Option<usize> = which.trim_start_matches('#').parse().ok();
        let (mut found, mut count) = (Vec::new(), 0_usize);
        self.each(&mut |record| {
            count += 1;
            let matches = match is_id {
                true => record.id().is_some_and(|id| id.starts_with(which)),
                false => number == Some(count),
            };
            if matches && found.len() < 2 {
                found.push(record);
            }
            Ok(())
        })?;
        let text = match (found.len(), found.pop()) {
            (1, Some(record)) => return Ok(record),
            (0, _) => format!(
                "`{which}` is neither a row number from 1 to {count} nor the first {SHORTEST_ID} or more characters of a \
                 trajectory's id; omit WHICH to list all"
            ),
            _ => format!("several trajectory ids start with `{which}`: give more characters"),
        };
        Err(RunError::BadInput(text))
    }

    /// Lists all trajectories, one line each.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn list(&self) -> Result<String, RunError> {
        let (mut text, mut number) = (String::new(), 0_usize);
        self.each(&mut |record| {
            number += 1;
            text += &format!("{number:>5}  {}\n", record.line());
            Ok(())
        })?;
        Ok(text)
    }
}

/// Reads with a callback that fails with [`ReadError`], and returns the error of `visit` itself if there was one.
fn stopping(
    visit: &mut dyn FnMut(TrajectoryRecord) -> Result<(), RunError>,
    read: impl FnOnce(
        &mut dyn FnMut(TrajectoryRecord) -> Result<(), ReadError>,
    ) -> Result<(), ReadError>,
) -> Result<(), RunError> {
    let mut failed = None;
    let read = read(&mut |record| {
        visit(record).map_err(|error| {
            let text = error.to_string();
            failed = Some(error);
            ReadError::Stopped(text)
        })
    });
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, read) => read.map_err(|error| RunError::BadInput(error.to_string())),
    }
}

/// The verdicts of a run, by trajectory.
enum Verdicts {
    /// Read on demand.
    Artifact(Index<Verdict>),
    /// Those that the journal has before `grade` has written the artifact.
    Journal(HashMap<Digest, Verdict>),
}

impl Verdicts {
    fn read(folder: &Path, journal: &Journal) -> Result<Self, RunError> {
        if VERDICTS.exists(folder) {
            let index = VERDICTS.index(folder, |verdict| Ok(verdict.trajectory.to_string()))?;
            if !index.is_empty() {
                return Ok(Self::Artifact(index));
            }
        }
        let mut verdicts = HashMap::new();
        journal.each_output(stage::GRADE, |_, verdict: Verdict| {
            verdicts.insert(verdict.trajectory.clone(), verdict);
            Ok(())
        })?;
        Ok(Self::Journal(verdicts))
    }

    fn of(&self, trajectory: &Digest) -> Result<Option<Verdict>, RunError> {
        match self {
            Self::Artifact(verdicts) => verdicts.get(trajectory.as_str()),
            Self::Journal(verdicts) => Ok(verdicts.get(trajectory).cloned()),
        }
    }
}

/// Calls `visit` with every trajectory of a run, in item order.
fn each_of_run(
    folder: &Path,
    visit: &mut dyn FnMut(TrajectoryRecord) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let journal = Journal::read_run(folder)?;
    let has_tasks = TASKS.exists(folder);
    let tasks = has_tasks.then(|| TASKS.index(folder, |task| Ok(task.id.to_string())));
    let tasks = tasks.transpose()?;
    let verdicts = Verdicts::read(folder, &journal)?;
    let mut empty = true;
    journal.each_output(stage::ROLLOUT, |_, trajectory: Trajectory| {
        empty = false;
        let task = match &tasks {
            Some(tasks) => tasks.get(trajectory.task.as_str())?,
            None => None,
        };
        visit(TrajectoryRecord::Trajectory {
            task: task.map(Box::new),
            verdict: verdicts.of(&trajectory.id)?,
            trajectory: Box::new(trajectory),
        })
    })?;
    match empty {
        true => Err(RunError::BadInput(format!(
            "{} has no trajectories; `{}` makes them",
            folder.display(),
            stage_command(folder, "rollout")
        ))),
        false => Ok(()),
    }
}

impl TrajectoryRecord {
    /// The trajectory id, if the row has one.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Trajectory { trajectory, .. } => Some(trajectory.id.as_str()),
            Self::Row { sample } => sample.id(),
            Self::Log { sample, .. } => Some(&*sample.uuid).filter(|id| !id.is_empty()),
        }
    }

    pub fn messages(&self) -> &[Message] {
        match self {
            Self::Trajectory { trajectory, .. } => &trajectory.messages,
            Self::Row { sample } => &sample.messages,
            Self::Log { messages, .. } => messages,
        }
    }

    /// Name of the message format.
    pub fn format(&self) -> String {
        match self {
            Self::Trajectory { trajectory, .. } => trajectory.format.clone(),
            Self::Row { sample } => sample.format().to_owned(),
            Self::Log { .. } => "tools".to_owned(),
        }
    }

    /// A name for an export folder.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Trajectory { trajectory, .. } => trajectory.id.short().to_owned(),
            Self::Row { sample } => {
                let file = sample.location.rsplit('/').next().unwrap_or_default();
                sample.id().unwrap_or(file).to_owned()
            }
            Self::Log { head, sample, .. } => format!("{}-{}", head.task, sample.name()),
        };
        pybench_types::text::slug(&name)
    }

    fn line(&self) -> String {
        match self {
            Self::Trajectory {
                trajectory,
                task,
                verdict,
            } => {
                let verdict = match verdict.as_ref().map(|verdict| verdict.accepted) {
                    Some(true) => "accepted",
                    Some(false) => "rejected",
                    None => "not graded",
                };
                let (turns, end) = (trajectory.turns.len(), &trajectory.end);
                let query = task.as_ref().map_or("", |task| &task.query);
                let query = line(&pybench_types::text::cut(query, MAX_QUERY));
                let id = trajectory.id.short();
                format!("{id}  {verdict:<10}  {turns:>2} turns  {end:?}  {query}")
            }
            Self::Row { sample } => {
                let query = sample.messages.iter().find_map(query).unwrap_or("");
                let query = line(&pybench_types::text::cut(query, MAX_QUERY));
                let id = line(&pybench_types::text::cut(sample.id().unwrap_or("-"), 12));
                format!("{id}  {:>2} turns  {query}", sample.turns())
            }
            Self::Log {
                sample, messages, ..
            } => {
                let replies = messages.iter().filter(|m| m.role == Role::Assistant);
                let scores = sample.scores.iter();
                let scores = scores.map(|score| format!("{} {}", score.name, score.value));
                let scores = line(&pybench_types::text::cut(
                    &scores.collect::<Vec<_>>().join(", "),
                    MAX_QUERY,
                ));
                let query = messages.iter().find_map(query).unwrap_or("");
                let query = line(&pybench_types::text::cut(query, MAX_QUERY));
                let name = line(&pybench_types::text::cut(&sample.name(), 40));
                format!("{name}  {:>2} turns  {scores}  {query}", replies.count())
            }
        }
    }

    /// The header line: ids, category, keyword, teacher, format.
    pub fn head(&self) -> String {
        match self {
            Self::Trajectory {
                trajectory, task, ..
            } => {
                let mut text = format!("trajectory {}", trajectory.id.short());
                if let Some(task) = task {
                    let (id, category) = (task.id.short(), task.category);
                    text += &format!(" · task {id} · {category:?} · {}", task.keyword);
                }
                text + &format!(" · {} · {}", trajectory.teacher, trajectory.format)
            }
            Self::Row { sample } => {
                let mut text = sample.location.clone();
                for column in ["trajectory_id", "category", "keyword", "teacher", "format"] {
                    if let Some(value) = sample.metadata(column) {
                        text += &format!(" · {}", pybench_types::text::cut(value, 40));
                    }
                }
                text
            }
            Self::Log { head, sample, .. } => {
                format!("{} · {} · {}", head.task, sample.name(), head.model)
            }
        }
    }

    /// The footer: how the trajectory ended, its output files and its verdict; the scores of a sample of a log.
    pub fn tail(&self) -> String {
        let (trajectory, verdict) = match self {
            Self::Trajectory {
                trajectory,
                verdict,
                ..
            } => (trajectory, verdict),
            Self::Log { sample, .. } => return log_tail(sample),
            Self::Row { .. } => return String::new(),
        };
        let (end, turns) = (&trajectory.end, trajectory.turns.len());
        let mut text = format!("{end:?} after {turns} turns\n");
        for file in &trajectory.outputs {
            text += &format!("   {} ({} bytes)\n", file.path, file.size);
        }
        if let Some(verdict) = verdict {
            text += if verdict.accepted {
                "accepted\n"
            } else {
                "rejected\n"
            };
            for finding in &verdict.findings {
                let (filter, subject, outcome) =
                    (&finding.filter, &finding.subject, finding.outcome);
                text += &format!("   {filter} {subject}: {outcome:?} {}\n", finding.detail);
            }
        }
        text
    }
}

/// The scores of a sample, and why it ended.
fn log_tail(sample: &LogSample) -> String {
    let mut text = String::new();
    for score in &sample.scores {
        text += &format!("{}: {}  {}\n", score.name, score.value, score.explanation);
    }
    if let Some(limit) = &sample.limit {
        text += &format!("ended by its limit: {} {}\n", limit.kind, limit.value);
    }
    if !sample.error.is_empty() {
        text += &format!("no result: {}\n", sample.error);
    }
    text
}

/// The query in a user message. The list of files is a message before it, or a paragraph before it.
pub fn query(message: &Message) -> Option<&str> {
    let text = Some(&*message.content).filter(|_| message.role == Role::User)?;
    match text.starts_with("[INFO]") {
        true => text.split_once("\n\n").map(|(_, query)| query),
        false => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_is_found_behind_the_files() {
        let of = |role, text: &str| query(&Message::new(role, text)).map(str::to_owned);
        let files = "[INFO]The data is uploaded to ./data/a.csv";
        assert_eq!(of(Role::User, "Count."), Some("Count.".to_owned()));
        assert_eq!(of(Role::User, files), None);
        let merged = format!("{files}\n\nCount.\n\nSoon.");
        assert_eq!(of(Role::User, &merged), Some("Count.\n\nSoon.".to_owned()));
        assert_eq!(of(Role::Assistant, "Count."), None);
    }
}
