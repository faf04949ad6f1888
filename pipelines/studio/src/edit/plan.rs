//! What is edited: a turn of a recorded trajectory, its task, and how its session and its checks are made.

use std::path::Path;
use std::sync::Arc;

use pybench_agent::{Format, format_named};
use pybench_attempts::input_files;
use pybench_grade::{TrajectoryChecker, checker_in};
use pybench_interpreter::{Interpreter, SessionSpec, Tier};
use pybench_run::{ContentStore, Filter, Recipe, RunError};
use pybench_types::human_edit::Lineage;
use pybench_types::task::Task;
use pybench_types::trajectory::{Trajectory, Turn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model_replies::ModelReplies;
use super::written::WrittenTurn;
use crate::record::Record;
use crate::review::name_problem;
use crate::sources::Opened;

/// Filters that every edited trajectory must pass, whatever the recipe says: what is saved is verified.
const REQUIRED: [Filter; 4] = [
    Filter::Format,
    Filter::Finished,
    Filter::Outputs,
    Filter::Check,
];

/// A request to edit a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkRequest {
    /// Id of the recorded trajectory.
    pub(crate) trajectory: String,
    /// The turn to edit, from 1. Those before it are replayed.
    pub(crate) turn: u32,
    /// Name of the person.
    pub(crate) editor: String,
    /// Turns that are run after the replay without waiting, for example those of an edit that was lost.
    #[serde(default)]
    pub(crate) turns: Vec<WrittenTurn>,
    /// Whether, without `turns`, those are run that the studio has kept of this edit because they were not saved.
    #[serde(default)]
    pub(crate) resume: bool,
}

/// What is edited.
pub(crate) struct Plan {
    pub(crate) recorded: Trajectory,
    pub(crate) task: Task,
    pub(crate) format: &'static dyn Format,
    /// Without the time and the authors.
    pub(crate) lineage: Lineage,
    /// Whether the verdict rejects the recorded trajectory, so that it can be the worse side of a pair.
    pub(crate) is_rejected: bool,
    pub(crate) session: SessionSpec,
    pub(crate) interpreter: Arc<dyn Interpreter>,
    pub(crate) checker: Arc<dyn TrajectoryChecker>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) store: ContentStore,
}

impl Plan {
    /// Reads what a request names. `interpreter` makes or finds the interpreter of a tier.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the turn cannot be edited; [`RunError::Environment`] if the interpreter cannot run.
    pub(crate) fn new(
        opened: &Opened,
        record: Record,
        request: &ForkRequest,
        interpreter: impl FnOnce(&Recipe) -> Result<Arc<dyn Interpreter>, RunError>,
    ) -> Result<Self, RunError> {
        let (folder, store) = (opened.run()?, opened.store());
        let store = store.ok_or_else(|| RunError::Internal("a run without files".to_owned()))?;
        if let Some(problem) = name_problem("editor", &request.editor) {
            return Err(RunError::BadInput(problem));
        }
        let (recorded, task, is_rejected) = editable(record)?;
        check_turn(&recorded, request.turn)?;
        let format = format_named(&recorded.format).ok_or_else(|| {
            let name = &recorded.format;
            RunError::BadInput(format!(
                "this version of pybench does not know the message format `{name}`"
            ))
        })?;
        let recipe = recipe(folder)?;
        for file in &task.held_out {
            store.checked_path(&file.id)?;
        }
        let session = SessionSpec {
            inputs: input_files(&task, store)?,
            seed: recorded.seed,
            limits: recipe.interpreter.limits.clone(),
            ..SessionSpec::default()
        };
        let interpreter = interpreter(&recipe)?;
        Ok(Self {
            lineage: Lineage {
                trajectory: recorded.id.clone(),
                turn: request.turn,
                editor: request.editor.clone(),
                saved_at: 0,
                authors: Vec::new(),
            },
            checker: checker_in(interpreter.clone(), store.clone())?,
            filters: filters(&recipe),
            store: store.clone(),
            recorded,
            task,
            format,
            is_rejected,
            session,
            interpreter,
        })
    }

    /// Number of recorded turns before the edited one.
    pub(crate) fn kept(&self) -> usize {
        self.lineage.turn as usize - 1
    }

    /// These turns if an edit can begin with them, otherwise none: the reply of a model may be gone.
    pub(crate) fn sendable(
        &self,
        turns: Vec<WrittenTurn>,
        replies: &ModelReplies,
    ) -> Vec<WrittenTurn> {
        let is_sendable = |turn: &WrittenTurn| {
            let sent = turn.clone().sent(&self.recorded, self.format, replies);
            sent.is_ok()
        };
        match turns.iter().all(is_sendable) {
            true => turns,
            false => Vec::new(),
        }
    }

    /// The recorded turns from the edited one on, for the person to change or to send.
    pub(crate) fn recorded_rest(&self) -> Vec<WrittenTurn> {
        let turns = self.recorded.turns.iter().enumerate().skip(self.kept());
        let written = |(at, turn): (usize, &Turn)| WrittenTurn::of(at + 1, turn, self.format);
        turns.map(written).collect()
    }
}

/// The trajectory and the task of a record that can be edited, and whether its verdict rejects it.
fn editable(record: Record) -> Result<(Trajectory, Task, bool), RunError> {
    let bad = |text: &str| Err(RunError::BadInput(text.to_owned()));
    match record {
        Record::Run {
            trajectory,
            task: Some(task),
            verdict,
        } => match trajectory.corrects {
            None => Ok((
                *trajectory,
                *task,
                verdict.is_some_and(|verdict| !verdict.accepted),
            )),
            Some(_) => bad(
                "this trajectory continues another one, so its session cannot be restored from it alone; edit the \
                 trajectory that it continues",
            ),
        },
        Record::Run { task: None, .. } => {
            bad("the task of this trajectory is not in the run, so its checks cannot run")
        }
        Record::Evaluation { .. } | Record::Dataset { .. } | Record::Log { .. } => bad(
            "only trajectories of runs can be edited: evaluations and logs record what agents did, and rows of datasets have no \
             journal that could keep the edit",
        ),
    }
}

fn check_turn(recorded: &Trajectory, turn: u32) -> Result<(), RunError> {
    let count = recorded.turns.len();
    match (1..=count).contains(&(turn as usize)) {
        true => Ok(()),
        false => Err(RunError::BadInput(format!(
            "`turn` is {turn}, and the trajectory has turns 1 to {count}"
        ))),
    }
}

/// The recipe of the run, if cells of it may run here.
fn recipe(folder: &Path) -> Result<Recipe, RunError> {
    let path = folder.join("recipe.toml");
    let recipe = Recipe::load(&path, &[])?;
    let refused = |key: &str, why: &str| {
        Err(RunError::BadInput(format!(
            "{}: `interpreter.{key}`: {why}, and the studio runs cells only in a sandbox without network and without \
             folders of this machine, since a run may be hostile",
            path.display()
        )))
    };
    match &recipe.interpreter {
        choice if choice.tier == Tier::Unsandboxed => refused("tier", "the run has no sandbox"),
        choice if !choice.network.is_empty() => {
            refused("network", "the cells of the run could connect to hosts")
        }
        choice if choice.wheelhouse.is_some() => {
            refused("wheelhouse", "the cells of the run could read this folder")
        }
        _ => Ok(recipe),
    }
}

/// The filters of the recipe and the required ones. Duplicates are among accepted trajectories, and no judge is asked.
fn filters(recipe: &Recipe) -> Vec<Filter> {
    let own = recipe.grade.filters.iter().copied();
    let required = REQUIRED.into_iter();
    let required = required.filter(|filter| !recipe.grade.filters.contains(filter));
    required.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_run_reach_neither_hosts_nor_folders_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let read = |interpreter: &str| {
            let rest = "[crawl]\nsources = []\n\n[query]\ntasks = 1\n\n[interpreter]";
            let text =
                format!("name = 't'\nteacher = {{ kind = 'expert' }}\n\n{rest}\n{interpreter}\n");
            std::fs::write(folder.path().join("recipe.toml"), text).unwrap();
            recipe(folder.path())
        };
        assert_eq!(
            read("tier = 'bwrap'").unwrap().interpreter.tier,
            Tier::Bwrap
        );
        for (interpreter, key) in [
            ("tier = 'unsandboxed'", "tier"),
            ("network = ['a.example:443']", "network"),
            ("wheelhouse = '/root'", "wheelhouse"),
        ] {
            let error = read(interpreter).unwrap_err().to_string();
            let named = format!("recipe.toml: `interpreter.{key}`");
            assert!(error.contains(&named), "{error}");
        }
    }
}
