//! What is edited: a turn of a recorded trajectory, its task, and how its session and its checks are made.

use std::path::Path;
use std::sync::Arc;

use pybench_agent::{Format, format_named};
use pybench_attempts::input_files;
use pybench_chat::sandbox::ForeignCells;
use pybench_eval::run::EvalRecipe;
use pybench_grade::{TrajectoryChecker, checker_in};
use pybench_interpreter::{Interpreter, InterpreterChoice, SessionSpec};
use pybench_run::{ContentStore, Filter, Recipe, RunError};
use pybench_types::human_edit::Lineage;
use pybench_types::task::Task;
use pybench_types::trajectory::{Trajectory, Turn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model_replies::ModelReplies;
use super::subject::{SavePlace, Subject};
use super::written::WrittenTurn;
use crate::record::Record;
use crate::review::name_problem;
use crate::sources::Opened;

/// Maximum number of turns that a person, or a model by order of the person, adds.
pub(crate) const MAX_TURNS: u32 = 64;

/// Filters that every edited trajectory must pass, whatever the recipe says: what is saved is verified.
const REQUIRED: [Filter; 4] = [
    Filter::Format,
    Filter::Finished,
    Filter::Outputs,
    Filter::Check,
];

/// Why edits of evaluations are not saved.
const NOT_FOR_TRAINING: &str = "this attempt is part of an evaluation, whose tasks are held out from training, so the edit is checked and not saved";

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
    pub(crate) saved_in: SavePlace,
}

impl Plan {
    /// Reads what a request names. `runs_dir` is as in [`Subject::find`]; `interpreter` makes or finds the interpreter of a
    /// tier.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the turn cannot be edited; [`RunError::Environment`] if the interpreter cannot run.
    pub(crate) fn new(
        opened: &Opened,
        record: Record,
        request: &ForkRequest,
        runs_dir: &Path,
        interpreter: impl FnOnce(&InterpreterChoice) -> Result<Arc<dyn Interpreter>, RunError>,
    ) -> Result<Self, RunError> {
        if let Some(problem) = name_problem("editor", &request.editor) {
            return Err(RunError::BadInput(problem));
        }
        let Subject {
            recorded,
            task,
            is_rejected,
            folder,
            store,
            saved_in,
        } = Subject::find(opened, record, runs_dir)?;
        check_turn(&recorded, request.turn)?;
        let format = format_named(&recorded.format).ok_or_else(|| {
            let name = &recorded.format;
            RunError::BadInput(format!(
                "this version of pybench does not know the message format `{name}`"
            ))
        })?;
        let (choice, filters) = rules(&folder, saved_in == SavePlace::Nowhere)?;
        for file in &task.held_out {
            store.checked_path(&file.id)?;
        }
        let session = SessionSpec {
            inputs: input_files(&task, &store)?,
            seed: recorded.seed,
            limits: choice.limits.clone(),
            ..SessionSpec::default()
        };
        let interpreter = interpreter(&choice)?;
        Ok(Self {
            lineage: Lineage {
                trajectory: recorded.id.clone(),
                turn: request.turn,
                editor: request.editor.clone(),
                saved_at: 0,
                authors: Vec::new(),
            },
            checker: checker_in(interpreter.clone(), store.clone())?,
            filters,
            store,
            saved_in,
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

    /// Name of the run that keeps what is saved, if it is not the one that is shown.
    pub(crate) fn other_run(&self) -> Option<String> {
        match &self.saved_in {
            SavePlace::Run(folder) => Some(folder.file_name()?.to_string_lossy().into_owned()),
            SavePlace::Source | SavePlace::Nowhere => None,
        }
    }

    /// Why an edit cannot be saved; empty if it can.
    pub(crate) fn unsaved(&self) -> &'static str {
        match self.saved_in {
            SavePlace::Nowhere => NOT_FOR_TRAINING,
            SavePlace::Source | SavePlace::Run(_) => "",
        }
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

    /// The recorded turns from the edited one on, for the person to change or to send, at most as many as can be sent.
    pub(crate) fn recorded_rest(&self) -> Vec<WrittenTurn> {
        let turns = self.recorded.turns.iter().enumerate().skip(self.kept());
        let written = |(at, turn): (usize, &Turn)| WrittenTurn::of(at + 1, turn, self.format);
        turns.take(MAX_TURNS as usize).map(written).collect()
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

/// The sandbox of a run or evaluation, if cells of it may run here, and the filters that an edit of it must pass.
fn rules(folder: &Path, is_evaluation: bool) -> Result<(InterpreterChoice, Vec<Filter>), RunError> {
    let path = folder.join("recipe.toml");
    let (choice, own) = match is_evaluation {
        true => (EvalRecipe::load(&path)?.interpreter, Vec::new()),
        false => {
            let recipe = Recipe::load(&path, &[])?;
            (recipe.interpreter, recipe.grade.filters)
        }
    };
    let of_run = ForeignCells {
        origin: &path.display().to_string(),
        advice: "edit trajectories of runs whose sandbox has neither `network` nor `wheelhouse`",
    };
    of_run.check(&choice, &[])?;
    Ok((choice, filters(&own)))
}

/// The filters of the recipe and the required ones. Duplicates are among accepted trajectories, and no judge is asked.
fn filters(own: &[Filter]) -> Vec<Filter> {
    let required = REQUIRED.into_iter();
    let required = required.filter(|filter| !own.contains(filter));
    required.chain(own.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use pybench_interpreter::Tier;

    use super::*;

    #[test]
    fn cells_of_a_run_reach_neither_hosts_nor_folders_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let read = |interpreter: &str| {
            let rest = "[crawl]\nsources = []\n\n[query]\ntasks = 1\n\n[interpreter]";
            let text =
                format!("name = 't'\nteacher = {{ kind = 'expert' }}\n\n{rest}\n{interpreter}\n");
            std::fs::write(folder.path().join("recipe.toml"), text).unwrap();
            rules(folder.path(), false)
        };
        assert_eq!(read("tier = 'bwrap'").unwrap().0.tier, Tier::Bwrap);
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
