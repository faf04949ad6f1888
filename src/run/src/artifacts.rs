//! The artifacts of a run: JSON Lines files in the run folder.

mod checksum;
mod index;
mod lines;
mod transfer;

use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use pybench_types::held_out::HeldOutTask;
use pybench_types::task::{SourceFile, Task};
use pybench_types::trajectory::{Trajectory, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;

use checksum::{Checksum, ChecksumBuilder};
pub use index::{Index, ItemReader};
use lines::Lines;
pub use transfer::remove_stale_artifacts;
pub(crate) use transfer::{are_artifacts_of, fetch_artifacts, store_artifacts};

use crate::journal::JournalPlace;
use crate::replace::{finish_file, new_file};
use crate::run_selection::stage_command;
use crate::store::ExpectedFile;
use crate::{RunError, RunFolder, artifact_names};

/// Written by `crawl`: one source file per line, sorted by type and origin.
pub const FILES: Artifact<SourceFile> =
    Artifact::new(artifact_names::FILES, "a source file", "crawl");
/// Written by `query`: one task per line.
pub const TASKS: Artifact<Task> = Artifact::new(artifact_names::TASKS, "a task", "query");
/// Written by `loop`: the tasks that no round plays, one per line.
pub const HELD_OUT: Artifact<HeldOutTask> =
    Artifact::new(artifact_names::HELD_OUT, "a held-out task", "loop");
/// Written by `rollout`: one trajectory per line, in item order.
pub const TRAJECTORIES: Artifact<Trajectory> =
    Artifact::new(artifact_names::TRAJECTORIES, "a trajectory", "rollout");
/// Written by `grade`: one verdict per line, in item order.
pub const VERDICTS: Artifact<Verdict> =
    Artifact::new(artifact_names::VERDICTS, "a verdict", "grade");

/// Names of the stages in the journal.
pub mod stage {
    /// Attempts at tasks.
    pub const ROLLOUT: &str = "rollout";
    /// Verdicts on trajectories.
    pub const GRADE: &str = "grade";
    /// The dataset.
    pub const SHARD: &str = "shard";
}

/// A JSON Lines file that one stage writes and later stages read.
pub struct Artifact<T> {
    /// File name in the run folder.
    pub name: &'static str,
    what: &'static str,
    stage: &'static str,
    item: PhantomData<fn() -> T>,
}

impl<T> Artifact<T> {
    /// An artifact in the file `name`, written by `pybench <stage>`; messages call an item `what`.
    pub const fn new(name: &'static str, what: &'static str, stage: &'static str) -> Self {
        Self {
            name,
            what,
            stage,
            item: PhantomData,
        }
    }

    /// Path of the file in the run folder `root`.
    pub fn path(&self, root: &Path) -> PathBuf {
        root.join(self.name)
    }

    /// Whether the stage has written the file.
    pub fn exists(&self, root: &Path) -> bool {
        self.path(root).exists()
    }
}

impl<T: DeserializeOwned> Artifact<T> {
    /// Reads the items, one line at a time.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file is missing (the text names the command that writes it) or an item
    /// cannot be parsed (the text names file and line).
    pub fn read(
        &self,
        root: &Path,
    ) -> Result<impl Iterator<Item = Result<T, RunError>> + use<T>, RunError> {
        let mut lines = self.lines(root)?;
        let reader = Self { ..*self };
        let mut ended = false;
        Ok(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let line = lines.next_line().transpose();
            ended = !matches!(line, Some(Ok(())));
            line.map(|line| line.and_then(|()| reader.parse(&lines)))
        }))
    }

    /// Reads all items; for small artifacts.
    ///
    /// # Errors
    /// As [`Artifact::read`].
    pub fn read_all(&self, root: &Path) -> Result<Vec<T>, RunError> {
        self.read(root)?.collect()
    }

    /// Reads all items; none if the file is missing.
    ///
    /// # Errors
    /// As [`Artifact::read`], except for a missing file.
    pub fn read_or_none(&self, root: &Path) -> Result<Vec<T>, RunError> {
        match self.exists(root) {
            true => self.read_all(root),
            false => Ok(Vec::new()),
        }
    }
}

impl<T: DeserializeOwned> Artifact<T> {
    fn lines(&self, root: &Path) -> Result<Lines, RunError> {
        let path = self.path(root);
        let remedy = format!(
            "restore it from a backup, or delete it and run `{}` to write it again",
            stage_command(root, self.stage)
        );
        let written = Checksum::recorded(root, self.name)?;
        Ok(Lines::new(self.open(root)?, &path, written, remedy))
    }

    fn open(&self, root: &Path) -> Result<File, RunError> {
        let path = self.path(root);
        if !path.exists() {
            self.fetch(root, &path)?;
        }
        File::open(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => RunError::BadInput(format!(
                "{} is missing; run `{}` to create it",
                path.display(),
                stage_command(root, self.stage)
            )),
            _ => RunError::io(path.display().to_string())(error),
        })
    }

    /// Reads the artifact that the journal names from the store of the run, if that has it.
    fn fetch(&self, root: &Path, path: &Path) -> Result<(), RunError> {
        let Some(store) = JournalPlace::of(root)?.store()? else {
            return Ok(());
        };
        // While it is replaced, there are two; the new one is there before the journal names it.
        for written in Checksum::recorded(root, self.name)?.iter().rev() {
            let expected = ExpectedFile::with_digest(written.digest());
            if store.fetch_expected(&written.key(self.name), path, &expected)? {
                break;
            }
        }
        Ok(())
    }

    fn parse(&self, lines: &Lines) -> Result<T, RunError> {
        serde_json::from_str(lines.text()).map_err(|error| {
            RunError::BadInput(format!("{}: not {}: {error}", lines.place(), self.what))
        })
    }
}

impl<T: Serialize> Artifact<T> {
    /// Writes the items in order. The file is replaced atomically.
    ///
    /// # Errors
    /// Errors of the items, and I/O errors.
    pub fn write<I: std::borrow::Borrow<T>>(
        &self,
        folder: &RunFolder,
        items: impl IntoIterator<Item = Result<I, RunError>>,
    ) -> Result<PathBuf, RunError> {
        let path = self.path(folder.root());
        let wrap = || RunError::io(path.display().to_string());
        let mut writer = new_file(&path).map_err(wrap())?;
        let (mut checksum, mut line) = (ChecksumBuilder::default(), Vec::new());
        for item in items {
            line.clear();
            serde_json::to_writer(&mut line, item?.borrow())?;
            line.push(b'\n');
            checksum.add(&line);
            writer.write_all(&line).map_err(wrap())?;
        }
        let new = checksum.finish();
        if let Some(remote) = folder.store().remote() {
            writer.flush().map_err(wrap())?;
            remote.put(&new.key(self.name), writer.get_ref().path())?;
        }
        let (key, journal) = (checksum::key(self.name), folder.journal());
        // Until the file is replaced, the old one counts too.
        let mut valid = Checksum::recorded(folder.root(), self.name)?;
        valid.retain(|old| *old != new);
        valid.push(new.clone());
        journal.set_metadata_synced(&key, &serde_json::to_value(valid)?)?;
        finish_file(writer, &path).map_err(wrap())?;
        journal.set_metadata(&key, &serde_json::to_value([new])?)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_a_bad_line_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "a = 1").unwrap();
        let numbers: Artifact<u32> = Artifact::new("numbers.jsonl", "a number", "count");
        let missing = numbers.read(folder.root()).err().unwrap().to_string();
        assert!(missing.contains("pybench count` to create it"), "{missing}");
        assert!(numbers.read_or_none(folder.root()).unwrap().is_empty());
        numbers.write(&folder, [1, 2].map(Ok)).unwrap();
        assert_eq!(numbers.read_all(folder.root()).unwrap(), [1, 2]);
        std::fs::write(numbers.path(folder.root()), "1\n\nx\n").unwrap();
        let items: Vec<_> = numbers.read(folder.root()).unwrap().collect();
        assert_eq!(*items[0].as_ref().unwrap(), 1);
        let error = items[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("numbers.jsonl:3: not a number"), "{error}");
    }

    #[test]
    fn an_index_finds_items_by_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "a = 1").unwrap();
        let texts: Artifact<String> = Artifact::new("texts.jsonl", "a text", "write");
        let long = "long ".repeat(1000);
        let all = [&long, "b", "a", "b"].map(str::to_owned);
        texts.write(&folder, all.iter().map(Ok)).unwrap();
        let index = texts.index(root.path(), |text| Ok(text.clone())).unwrap();
        assert_eq!(index.get(&long).unwrap().as_ref(), Some(&long));
        assert_eq!(index.get("a").unwrap().as_deref(), Some("a"));
        assert_eq!(
            (index.position("a"), index.position("b")),
            (Some(2), Some(3))
        );
        assert_eq!((index.get("c").unwrap(), index.position("c")), (None, None));
    }

    #[test]
    fn an_artifact_that_was_cut_or_changed_is_not_believed() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "a = 1").unwrap();
        let numbers: Artifact<u32> = Artifact::new("numbers.jsonl", "a number", "count");
        numbers.write(&folder, [1, 2].map(Ok)).unwrap();
        numbers.write(&folder, [1, 2, 3].map(Ok)).unwrap();
        let path = numbers.path(folder.root());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
        let refused = |text: &str, words: &str| {
            std::fs::write(&path, text).unwrap();
            let read = numbers.read_all(folder.root()).unwrap_err();
            let index = numbers.index(folder.root(), |n| Ok(n.to_string()));
            for error in [read, index.err().unwrap()] {
                assert_eq!(error.exit_code(), crate::ExitCode::BadInput);
                assert!(error.to_string().contains(words), "{error}");
            }
        };
        // Also as an earlier version of itself.
        refused("1\n2\n", "has 2 lines, but 3 were written; restore it");
        refused("", "has 0 lines");
        refused("1\n2\n3\n4\n", "has 4 lines");
        refused("1\n2\n4\n", "its digest differs");
        refused("1\n2\n3", "its digest differs");
        numbers.write(&folder, [1].map(Ok)).unwrap();
        assert_eq!(numbers.read_all(folder.root()).unwrap(), [1]);
    }

    /// A process that ends between the journal and the file leaves the old one, which stays readable.
    #[test]
    fn an_artifact_whose_replacement_was_killed_is_the_old_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "a = 1").unwrap();
        let numbers: Artifact<u32> = Artifact::new("numbers.jsonl", "a number", "count");
        let old = numbers.write(&folder, [1, 2].map(Ok)).unwrap();
        let bytes = std::fs::read(&old).unwrap();
        std::fs::remove_file(&old).unwrap();
        std::fs::create_dir(&old).unwrap();
        assert!(numbers.write(&folder, [3].map(Ok)).is_err());
        std::fs::remove_dir(&old).unwrap();
        std::fs::write(&old, bytes).unwrap();
        assert_eq!(numbers.read_all(folder.root()).unwrap(), [1, 2]);
    }

    #[test]
    fn a_failing_item_keeps_the_old_file() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "a = 1").unwrap();
        let numbers: Artifact<u32> = Artifact::new("numbers.jsonl", "a number", "count");
        numbers.write(&folder, [Ok(1)]).unwrap();
        let failing = [Ok(2), Err(RunError::Internal("no".into()))];
        assert!(numbers.write(&folder, failing).is_err());
        assert_eq!(numbers.read_all(folder.root()).unwrap(), [1]);
    }
}
