//! The artifacts of a run: JSON Lines files in the run folder.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pybench_types::id::{CompactDigest, Digest, DigestBuilder};
use pybench_types::task::{SourceFile, Task};
use pybench_types::trajectory::{Trajectory, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::replace::{finish_file, new_file};
use crate::{Journal, RunError, RunFolder, artifact_names};

/// Written by `crawl`: one source file per line, sorted by type and origin.
pub const FILES: Artifact<SourceFile> =
    Artifact::new(artifact_names::FILES, "a source file", "crawl");
/// Written by `query`: one task per line.
pub const TASKS: Artifact<Task> = Artifact::new(artifact_names::TASKS, "a task", "query");
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
    /// Reads every item once, passes it to `visit`, which returns its name, and records the offset of its line.
    ///
    /// # Errors
    /// As [`Artifact::read`], and errors of `visit`.
    pub fn index(
        &self,
        root: &Path,
        mut visit: impl FnMut(&T) -> Result<String, RunError>,
    ) -> Result<Index<T>, RunError> {
        let mut lines = self.lines(root)?;
        let (mut names, mut lines_of_items) = (Vec::new(), Vec::new());
        while let Some(()) = lines.next_line()? {
            names.push(name_key(&visit(&self.parse(&lines)?)?));
            lines_of_items.push(Line {
                // A line that is longer does not parse when it is read.
                length: u32::try_from(lines.text.len()).unwrap_or(u32::MAX),
                at: lines.end - lines.text.len() as u64,
            });
        }
        let path = self.path(root);
        let mut by_name: Vec<u32> = (0..names.len() as u32).collect();
        by_name.sort_unstable_by_key(|at| (names[*at as usize], *at));
        Ok(Index {
            names,
            by_name,
            items: ItemReader {
                file: self.open(&path)?,
                path,
                lines: lines_of_items,
                item: PhantomData,
            },
        })
    }

    fn lines(&self, root: &Path) -> Result<Lines, RunError> {
        let path = self.path(root);
        let file = self.open(&path)?;
        Ok(Lines {
            reader: BufReader::with_capacity(1 << 16, file),
            checksum: ChecksumBuilder::default(),
            written: Checksum::recorded(root, self.name)?,
            remedy: format!(
                "restore it from a backup, or delete it and run `pybench {}` to write it again",
                self.stage
            ),
            text: String::new(),
            number: 0,
            end: 0,
            path,
        })
    }

    fn open(&self, path: &Path) -> Result<File, RunError> {
        File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => RunError::BadInput(format!(
                "{} is missing; run `pybench {}` to create it",
                path.display(),
                self.stage
            )),
            _ => RunError::io(path.display().to_string())(error),
        })
    }

    fn parse(&self, lines: &Lines) -> Result<T, RunError> {
        serde_json::from_str(&lines.text).map_err(|error| {
            let (path, number) = (lines.path.display(), lines.number);
            RunError::BadInput(format!("{path}:{number}: not {}: {error}", self.what))
        })
    }
}

/// The lines of an artifact, which are compared at the end with what was written.
struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    checksum: ChecksumBuilder,
    /// Empty if an older version wrote the file.
    written: Vec<Checksum>,
    remedy: String,
    /// The current line, with its end.
    text: String,
    /// Number of the current line, from 1.
    number: usize,
    /// Offset of the end of the current line.
    end: u64,
}

impl Lines {
    /// Reads the next line that is not empty.
    fn next_line(&mut self) -> Result<Option<()>, RunError> {
        loop {
            self.text.clear();
            let read = self.reader.read_line(&mut self.text);
            let read = read.map_err(RunError::io(self.path.display().to_string()))?;
            if read == 0 {
                return self.check().map(|()| None);
            }
            self.number += 1;
            self.end += read as u64;
            self.checksum.add(self.text.as_bytes());
            if !self.text.trim().is_empty() {
                return Ok(Some(()));
            }
        }
    }

    fn check(&mut self) -> Result<(), RunError> {
        let found = std::mem::take(&mut self.checksum).finish();
        let Some(written) = self.written.last() else {
            return Ok(());
        };
        if self.written.contains(&found) {
            return Ok(());
        }
        let (path, remedy) = (self.path.display(), &self.remedy);
        Err(RunError::BadInput(match found.lines == written.lines {
            true => format!("{path} is not as it was written: its digest differs; {remedy}"),
            false => format!(
                "{path} has {} lines, but {} were written; {remedy}",
                found.lines, written.lines
            ),
        }))
    }
}

/// Number of lines and digest of an artifact, as the journal records them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Checksum {
    lines: u64,
    blake3: Digest,
}

impl Checksum {
    /// What the journal says of an artifact: one checksum, or more if a process ended while it was replaced.
    fn recorded(root: &Path, name: &str) -> Result<Vec<Self>, RunError> {
        let journal = root.join("journal.sqlite");
        if std::fs::metadata(&journal).map_or(0, |file| file.len()) == 0 {
            return Ok(Vec::new());
        }
        let recorded = Journal::open_read_only(&journal)?.metadata(&checksum_key(name))?;
        Ok(recorded
            .map(serde_json::from_value)
            .transpose()?
            .unwrap_or_default())
    }
}

fn checksum_key(name: &str) -> String {
    format!("checksum.{name}")
}

#[derive(Default)]
struct ChecksumBuilder {
    lines: u64,
    hasher: DigestBuilder,
}

impl ChecksumBuilder {
    fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.hasher.add(line);
    }

    fn finish(self) -> Checksum {
        Checksum {
            lines: self.lines,
            blake3: self.hasher.finish(),
        }
    }
}

/// The items of an artifact by number, read on demand. An item takes 16 bytes of memory.
pub struct ItemReader<T> {
    file: File,
    path: PathBuf,
    lines: Vec<Line>,
    item: PhantomData<fn() -> T>,
}

/// One line of an artifact.
struct Line {
    /// Bytes of the line.
    length: u32,
    /// Offset of the line in the file.
    at: u64,
}

/// The items of an artifact by name and by number, read on demand. An item takes 52 bytes of memory.
pub struct Index<T> {
    names: Vec<CompactDigest>,
    /// Numbers of the items, by name.
    by_name: Vec<u32>,
    items: ItemReader<T>,
}

fn name_key(name: &str) -> CompactDigest {
    // Most names are digests; others are hashed.
    let digest = Digest::try_from(name.to_owned());
    CompactDigest::from(&digest.unwrap_or_else(|_| Digest::of_bytes(name.as_bytes())))
}

impl<T> Index<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names of the items in order, if they are digests.
    pub fn digests(&self) -> impl Iterator<Item = CompactDigest> {
        self.names.iter().copied()
    }

    /// The number of the item `name` in the artifact, from 0. Of several items with this name, the last counts.
    pub fn position(&self, name: &str) -> Option<usize> {
        let name = name_key(name);
        let name_at = |at: &u32| self.names[*at as usize];
        let after = self.by_name.partition_point(|at| name_at(at) <= name);
        let last = self.by_name[..after].last();
        let last = last.filter(|at| name_at(at) == name);
        last.map(|at| *at as usize)
    }

    /// Forgets the names.
    pub fn into_items(self) -> ItemReader<T> {
        self.items
    }
}

impl<T: DeserializeOwned> Index<T> {
    /// Reads the item `name`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn get(&self, name: &str) -> Result<Option<T>, RunError> {
        let position = self.position(name);
        position.map(|position| self.read(position)).transpose()
    }

    /// Reads the item with this number, which is below [`Index::len`].
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(&self, position: usize) -> Result<T, RunError> {
        self.items.read(position)
    }
}

impl<T: DeserializeOwned> ItemReader<T> {
    /// Reads the item with this number in the artifact, from 0.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(&self, position: usize) -> Result<T, RunError> {
        let line = &self.lines[position];
        let mut text = vec![0; line.length as usize];
        let read = self.file.read_exact_at(&mut text, line.at);
        read.map_err(RunError::io(self.path.display().to_string()))?;
        serde_json::from_slice(&text).map_err(|error| {
            let path = self.path.display();
            RunError::BadInput(format!("{path}: item {}: {error}", position + 1))
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
        let (key, journal) = (checksum_key(self.name), folder.journal());
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
        assert!(
            missing.contains("run `pybench count` to create it"),
            "{missing}"
        );
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
