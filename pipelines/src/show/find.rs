//! Where trajectories lie: run folders and datasets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pybench::id::Digest;
use pybench::run::project::find_run;
use pybench::run::{ContentStore, Journal, RunError};
use pybench::task::Task;
use pybench::text::line;
use pybench::trajectory::{Message, Trajectory, Verdict};
use pybench_datasets::samples::{self, ReadError, Sample};

use crate::{grade, rollout};

/// Characters of a query in a list.
const SHOWN: usize = 60;

/// A place with trajectories.
pub enum Shelf {
    /// A run folder, its journal open to look at.
    Run {
        /// The folder.
        folder: PathBuf,
        /// Its trajectories, in item order.
        found: Vec<Found>,
    },
    /// A dataset.
    Dataset(PathBuf),
}

/// A trajectory, or what a row says of one.
#[derive(Clone)]
pub enum Found {
    /// Of a run.
    Trajectory {
        /// The try.
        trajectory: Box<Trajectory>,
        /// What was asked.
        task: Option<Box<Task>>,
        /// What `grade` says of it.
        verdict: Option<Verdict>,
    },
    /// Of a dataset.
    Row {
        /// The row.
        sample: Sample,
    },
}

impl Shelf {
    /// A dataset's file or folder, or a run.
    ///
    /// # Errors
    /// [`RunError::BadInput`] where it is neither.
    pub fn open(place: &Path, runs_dir: &Path) -> Result<Self, RunError> {
        let is_run = place.join("journal.sqlite").is_file();
        if place.exists() && !is_run {
            return Ok(Self::Dataset(place.to_owned()));
        }
        let folder = find_run(place, runs_dir)?;
        Ok(Self::Run {
            found: of_run(&folder)?,
            folder,
        })
    }

    /// Files of the run.
    pub(super) fn store(&self) -> Option<ContentStore> {
        match self {
            Self::Run { folder, .. } => ContentStore::open(&folder.join("files")).ok(),
            Self::Dataset(_) => None,
        }
    }

    /// Hands everything to `visit`, in order.
    ///
    /// # Errors
    /// What cannot be read; what `visit` returns.
    pub fn each(
        &self,
        visit: &mut dyn FnMut(Found) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        match self {
            Self::Run { found, .. } => found.iter().cloned().try_for_each(visit),
            Self::Dataset(path) => {
                let mut failed = None;
                let read = samples::read(path, &mut |sample| {
                    visit(Found::Row { sample }).map_err(|error| {
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
        }
    }

    /// The one whose id begins so, or of that number.
    ///
    /// # Errors
    /// [`RunError::BadInput`] where there is none, or several.
    pub fn find(&self, which: &str) -> Result<Found, RunError> {
        let number: Option<usize> = which.trim_start_matches('#').parse().ok();
        let (mut by_id, mut by_number, mut place) = (Vec::new(), None, 0_usize);
        self.each(&mut |found| {
            place += 1;
            if found.id().is_some_and(|id| id.starts_with(which)) && by_id.len() < 2 {
                by_id.push(found);
            } else if number == Some(place) {
                by_number = Some(found);
            }
            Ok(())
        })?;
        let refuse = |text: String| Err(RunError::BadInput(text));
        match (by_id.len(), by_number) {
            (1, _) => by_id.pop().map_or_else(|| refuse(String::new()), Ok),
            (0, Some(found)) => Ok(found),
            (0, None) => refuse(format!(
                "no trajectory's id begins with `{which}`, and there is no row of that number: \
                 {place} there are; without WHICH they are listed"
            )),
            _ => refuse(format!("several ids begin with `{which}`: give more of it")),
        }
    }

    /// A line for each.
    ///
    /// # Errors
    /// What cannot be read.
    pub(super) fn list(&self) -> Result<String, RunError> {
        let (mut text, mut number) = (String::new(), 0_usize);
        self.each(&mut |found| {
            number += 1;
            text += &format!("{number:>5}  {}\n", found.line());
            Ok(())
        })?;
        Ok(text)
    }
}

fn of_run(folder: &Path) -> Result<Vec<Found>, RunError> {
    let journal = Journal::open_read_only(&folder.join("journal.sqlite"))?;
    let tasks: Vec<Task> = lines(&folder.join("tasks.jsonl"))?;
    let mut verdicts: Vec<Verdict> = lines(&folder.join(grade::VERDICTS))?;
    if verdicts.is_empty() {
        verdicts = journal.outputs(grade::STAGE)?;
    }
    let tasks: HashMap<Digest, Task> = tasks.into_iter().map(|t| (t.id.clone(), t)).collect();
    let verdicts: HashMap<Digest, Verdict> = verdicts
        .into_iter()
        .map(|v| (v.trajectory.clone(), v))
        .collect();
    let trajectories: Vec<Trajectory> = journal.outputs(rollout::STAGE)?;
    let found = trajectories
        .into_iter()
        .map(|trajectory| Found::Trajectory {
            task: tasks.get(&trajectory.task).cloned().map(Box::new),
            verdict: verdicts.get(&trajectory.id).cloned(),
            trajectory: Box::new(trajectory),
        });
    Ok(found.collect())
}

/// An artefact, where it is there.
fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RunError::io(path.display().to_string())(error)),
    };
    let values = text.lines().map(serde_json::from_str);
    Ok(values.collect::<Result<_, _>>()?)
}

impl Found {
    /// Its id, where it has one.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Trajectory { trajectory, .. } => Some(trajectory.id.as_str()),
            Self::Row { sample } => sample.id(),
        }
    }

    /// What was said.
    pub fn messages(&self) -> &[Message] {
        match self {
            Self::Trajectory { trajectory, .. } => &trajectory.messages,
            Self::Row { sample } => &sample.messages,
        }
    }

    /// The message format.
    pub(super) fn format(&self) -> String {
        match self {
            Self::Trajectory { trajectory, .. } => trajectory.format.clone(),
            Self::Row { sample } => sample.format().to_owned(),
        }
    }

    /// A name for its folder.
    pub(super) fn name(&self) -> String {
        let name = match self {
            Self::Trajectory { trajectory, .. } => trajectory.id.short().to_owned(),
            Self::Row { sample } => {
                let file = sample.place.rsplit('/').next().unwrap_or_default();
                sample.id().unwrap_or(file).to_owned()
            }
        };
        pybench::text::slug(&name)
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
                let query = line(&pybench::text::cut(query, SHOWN));
                let id = trajectory.id.short();
                format!("{id}  {verdict:<10}  {turns:>2} turns  {end:?}  {query}")
            }
            Self::Row { sample } => {
                let user = |m: &&Message| {
                    m.role == pybench::trajectory::Role::User && !m.content.starts_with("[INFO]")
                };
                let query = sample.messages.iter().find(user).map_or("", |m| &m.content);
                let query = line(&pybench::text::cut(query, SHOWN));
                let id = line(&pybench::text::cut(sample.id().unwrap_or("-"), 12));
                format!("{id}  {:>2} turns  {query}", sample.turns())
            }
        }
    }

    /// What is known of it.
    pub(crate) fn head(&self) -> String {
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
                let mut text = sample.place.clone();
                for column in ["trajectory_id", "category", "keyword", "teacher", "format"] {
                    if let Some(value) = sample.fact(column) {
                        text += &format!(" · {}", pybench::text::cut(value, 40));
                    }
                }
                text
            }
        }
    }

    /// How it ended, and what was said of it.
    pub(crate) fn tail(&self) -> String {
        let Self::Trajectory {
            trajectory,
            verdict,
            ..
        } = self
        else {
            return String::new();
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
