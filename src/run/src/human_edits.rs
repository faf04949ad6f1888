//! Edited trajectories in the metadata of a run's journal: `human-edit/<recorded trajectory>/<edited trajectory>`.

use std::collections::BTreeSet;
use std::path::Path;

use pybench_types::human_edit::HumanEdit;
use pybench_types::id::Digest;

use crate::{Journal, RunError};

/// Start of the keys. [`Journal`] counts them as work of people.
pub(crate) const PREFIX: &str = "human-edit/";

/// Maximum size of an edited trajectory, bytes of JSON.
const MAX_BYTES: usize = 32 << 20;

/// Writes the edit to the journal of the run in `folder`, while another process may work on the run. It is on the disk when
/// this returns.
///
/// # Errors
/// [`RunError::BadInput`] if it is too large; [`RunError::Conflict`] if the journal was replaced meanwhile.
pub fn save(folder: &Path, edit: &HumanEdit) -> Result<(), RunError> {
    let key = key(&edit.lineage.trajectory, &edit.trajectory.id);
    let value = serde_json::to_value(edit)?;
    let size = value.to_string().len();
    if size > MAX_BYTES {
        return Err(RunError::BadInput(format!(
            "the edited trajectory has {} MiB, and at most {} MiB can be saved; print or plot less in the edited turns",
            size >> 20,
            MAX_BYTES >> 20
        )));
    }
    Journal::join_run(folder)?.set_metadata_synced(&key, &value)?;
    // A run that is started over has another journal, and one that is being moved is refused: its copy may lack the edit.
    let (recorded, edited) = (&edit.lineage.trajectory, &edit.trajectory.id);
    match read_one(&Journal::join_run(folder)?, recorded, edited)? {
        Some(saved) if saved.lineage == edit.lineage => Ok(()),
        _ => Err(RunError::Conflict(
            "the edit was not saved: the run was started over at this moment; reload the page and edit again".to_owned(),
        )),
    }
}

/// The edits of all trajectories of the run, in the order of their keys.
///
/// # Errors
/// The journal cannot be read.
pub fn read_all(journal: &Journal) -> Result<Vec<HumanEdit>, RunError> {
    read(journal, "")
}

/// The edits of one recorded trajectory.
///
/// # Errors
/// The journal cannot be read.
pub fn read_of(journal: &Journal, recorded: &Digest) -> Result<Vec<HumanEdit>, RunError> {
    read(journal, &format!("{recorded}/"))
}

/// The ids of the recorded trajectories that have edits.
///
/// # Errors
/// The journal cannot be read.
pub fn recorded_ids(journal: &Journal) -> Result<BTreeSet<String>, RunError> {
    let found = journal.metadata_with_prefix(PREFIX)?;
    let recorded = |key: &str| Some(key.split_once('/')?.0.to_owned());
    Ok(found.iter().filter_map(|(key, _)| recorded(key)).collect())
}

/// One edit; `None` if there is none with these ids.
///
/// # Errors
/// The journal cannot be read.
pub fn read_one(
    journal: &Journal,
    recorded: &Digest,
    edited: &Digest,
) -> Result<Option<HumanEdit>, RunError> {
    let found = journal.metadata(&key(recorded, edited))?;
    Ok(found.map(serde_json::from_value).transpose()?)
}

fn key(recorded: &Digest, edited: &Digest) -> String {
    format!("{PREFIX}{recorded}/{edited}")
}

fn read(journal: &Journal, below: &str) -> Result<Vec<HumanEdit>, RunError> {
    let found = journal.metadata_with_prefix(&format!("{PREFIX}{below}"))?;
    let edits = found.into_iter();
    edits
        .map(|(_, value)| Ok(serde_json::from_value(value)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edit(recorded: &str, edited: &str, text: &str) -> HumanEdit {
        let id = |name: &str| Digest::of_bytes(name.as_bytes());
        let edit = json!({
            "trajectory": {
                "id": id(edited), "task": id("task"), "teacher": "human-edited:0", "sampling": {}, "sample": 0, "seed": 1,
                "environment": "e", "format": "pybench", "messages": [{"role": "assistant", "content": text}],
                "turns": [], "outputs": [], "end": {"end": "finished"},
            },
            "verdict": {"trajectory": id(edited), "accepted": true, "findings": [], "checker": "c"},
            "lineage": {"trajectory": id(recorded), "turn": 1, "editor": "ann", "saved_at": 9},
            "repair": true, "pair": false, "rejected": "r",
        });
        serde_json::from_value(edit).unwrap()
    }

    #[test]
    fn edits_are_found_by_the_trajectory_that_they_were_made_of() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal.sqlite")).unwrap();
        let edits = [
            edit("a", "1", "x"),
            edit("a", "2", "x"),
            edit("b", "3", "x"),
        ];
        for edit in &edits {
            save(folder.path(), edit).unwrap();
        }
        assert_eq!(read_all(&journal).unwrap().len(), 3);
        let ids = edits.iter().map(|one| one.lineage.trajectory.to_string());
        let ids: BTreeSet<String> = ids.collect();
        assert_eq!(ids.len(), 2);
        assert_eq!(recorded_ids(&journal).unwrap(), ids);
        let recorded = &edits[2].lineage.trajectory;
        assert_eq!(read_of(&journal, recorded).unwrap(), edits[2..]);
        let id = &edits[2].trajectory.id;
        assert_eq!(
            read_one(&journal, recorded, id).unwrap().as_ref(),
            Some(&edits[2])
        );
        assert_eq!(read_one(&journal, id, id).unwrap(), None);
        // Saved again, it replaces the former one.
        let both = HumanEdit {
            pair: true,
            ..edits[2].clone()
        };
        save(folder.path(), &both).unwrap();
        assert_eq!(read_of(&journal, recorded).unwrap(), [both]);
        assert_eq!(journal.work_by_hand().unwrap(), 3);
    }

    #[test]
    fn an_edit_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal.sqlite")).unwrap();
        let error = save(folder.path(), &edit("a", "1", &"x".repeat(MAX_BYTES))).unwrap_err();
        assert!(error.to_string().contains("at most 32 MiB"), "{error}");
        assert!(read_all(&journal).unwrap().is_empty());
        assert!(save(&folder.path().join("none"), &edit("a", "1", "x")).is_err());
    }
}
