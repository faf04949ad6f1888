//! The turns of edits that are not saved, on the disk, so that a page that is loaded again goes on with them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pybench_run::{RunError, write_atomically};
use pybench_types::id::Digest;

use super::old_files::delete_older;
use super::plan::Plan;
use super::written::WrittenTurn;

/// Turns that were not changed for this time are deleted.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The turns of all edits, by what is edited and who edits it.
#[derive(Clone, Debug)]
pub(crate) struct Drafts {
    folder: PathBuf,
}

impl Drafts {
    /// Those in a folder. Old ones are deleted.
    pub(crate) fn new(folder: PathBuf) -> Self {
        delete_older(&folder, MAX_AGE);
        Self { folder }
    }

    /// The turns of this edit.
    pub(crate) fn of(&self, plan: &Plan) -> Draft {
        let lineage = &plan.lineage;
        // The same trajectory may be in two runs.
        let place = plan.store.path(&lineage.trajectory);
        let place = std::path::absolute(&place).unwrap_or(place);
        let place = place.to_string_lossy();
        let name = Digest::of_json(&(place, lineage.turn, &lineage.editor));
        Draft {
            path: self.folder.join(name.as_str()),
        }
    }
}

/// The turns of one edit.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    path: PathBuf,
}

impl Draft {
    /// Keeps these turns in the place of those that are there; none are no draft.
    pub(crate) fn keep(&self, turns: &[WrittenTurn]) {
        if turns.is_empty() {
            return self.forget();
        }
        // The edit goes on; its page has the turns too.
        if let Err(error) = self.write(turns) {
            tracing::warn!("the turns of an edit are only in its page: {error}");
        }
    }

    fn write(&self, turns: &[WrittenTurn]) -> Result<(), RunError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let io = RunError::io(folder.display().to_string());
        std::fs::create_dir_all(folder).map_err(io)?;
        write_atomically(&self.path, &serde_json::to_vec(turns)?)
    }

    /// The turns that were kept; none if there are none, or they cannot be read.
    pub(crate) fn turns(&self) -> Vec<WrittenTurn> {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Forgets the turns, because they are saved or taken back.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_kept_until_they_are_taken_back_or_old() {
        let folder = tempfile::tempdir().unwrap();
        let draft = Draft {
            path: folder.path().join("drafts/a"),
        };
        assert_eq!(draft.turns(), []);
        let turns = [WrittenTurn {
            text: "2".to_owned(),
            ..WrittenTurn::default()
        }];
        draft.keep(&turns);
        assert_eq!(draft.turns(), turns);
        delete_older(&folder.path().join("drafts"), MAX_AGE);
        assert_eq!(draft.turns(), turns);
        std::fs::write(&draft.path, "{").unwrap();
        assert_eq!(draft.turns(), []);
        draft.keep(&turns);
        draft.keep(&[]);
        assert!(!draft.path.exists());
        draft.keep(&turns);
        std::thread::sleep(Duration::from_millis(20));
        delete_older(&folder.path().join("drafts"), Duration::from_millis(1));
        assert_eq!(draft.turns(), []);
    }
}
