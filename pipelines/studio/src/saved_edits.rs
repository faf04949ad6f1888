//! Edited trajectories in the journal of the run.

use std::path::Path;

use pybench_datasets::preference::{Preference, to_jsonl};
use pybench_datasets::scrub::Scrubber;
use pybench_run::{Journal, RunError, human_edits};
use pybench_types::human_edit::HumanEdit;
use pybench_types::id::Digest;
use pybench_types::text::line;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an edit is saved as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SaveRequest {
    /// Whether it becomes a row of the dataset.
    pub(crate) repair: bool,
    /// Whether the replies at the edited turn become a preference pair.
    pub(crate) pair: bool,
}

/// An edited trajectory that is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EditInfo {
    /// Id of the edited trajectory.
    pub(crate) id: String,
    /// Id of the recorded one.
    pub(crate) trajectory: String,
    /// The edited turn, from 1.
    pub(crate) turn: u32,
    pub(crate) editor: String,
    /// Seconds since 1970-01-01 UTC.
    pub(crate) saved_at: u64,
    pub(crate) repair: bool,
    pub(crate) pair: bool,
    /// The models that wrote turns of it.
    pub(crate) models: Vec<String>,
}

impl From<&HumanEdit> for EditInfo {
    fn from(edit: &HumanEdit) -> Self {
        Self {
            id: edit.trajectory.id.to_string(),
            trajectory: edit.lineage.trajectory.to_string(),
            turn: edit.lineage.turn,
            editor: edit.lineage.editor.clone(),
            saved_at: edit.lineage.saved_at,
            repair: edit.repair,
            pair: edit.pair,
            models: edit.lineage.models().into_iter().map(line).collect(),
        }
    }
}

/// What people made of the trajectory with this id; nothing if it is no id.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn edits_of(folder: &Path, trajectory: &str) -> Result<Vec<EditInfo>, RunError> {
    let Ok(id) = Digest::try_from(trajectory.to_owned()) else {
        return Ok(Vec::new());
    };
    let edits = human_edits::read_of(&Journal::read_run(folder)?, &id)?;
    Ok(edits.iter().map(EditInfo::from).collect())
}

/// All edited trajectories of the run.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn all_edits(folder: &Path) -> Result<Vec<EditInfo>, RunError> {
    let edits = human_edits::read_all(&Journal::read_run(folder)?)?;
    Ok(edits.iter().map(EditInfo::from).collect())
}

/// One edited trajectory, made of a recorded one; `None` if there is none with these ids.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn edit(
    folder: &Path,
    recorded: &str,
    edited: &str,
) -> Result<Option<HumanEdit>, RunError> {
    let id = |text: &str| Digest::try_from(text.to_owned()).ok();
    match id(recorded).zip(id(edited)) {
        Some((recorded, edited)) => {
            human_edits::read_one(&Journal::read_run(folder)?, &recorded, &edited)
        }
        None => Ok(None),
    }
}

/// The preference pairs of the run in the columns of TRL, one JSON object in each line, without secrets.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn preferences(folder: &Path) -> Result<String, RunError> {
    let edits = human_edits::read_all(&Journal::read_run(folder)?)?;
    let scrubber = Scrubber::of_machine();
    let pairs = edits.iter().filter(|edit| edit.pair);
    let pairs = pairs.filter_map(Preference::of_edit);
    let pairs: Vec<Preference> = pairs.map(|pair| pair.scrubbed(&scrubber)).collect();
    to_jsonl(&pairs)
}
