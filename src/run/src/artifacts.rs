//! The artifacts of a run: JSON Lines files in the run folder.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::{SourceFile, Task};
use pybench_types::trajectory::{Trajectory, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::replace::{finish_file, new_file};
use crate::{RunError, RunFolder};

/// Written by `crawl`: one source file per line, sorted by type and origin.
pub const FILES: Artifact<SourceFile> = Artifact::new("files.jsonl", "a source file", "crawl");
/// Written by `query`: one task per line.
pub const TASKS: Artifact<Task> = Artifact::new("tasks.jsonl", "a task", "query");
/// Written by `rollout`: one trajectory per line, in item order.
pub const TRAJECTORIES: Artifact<Trajectory> =
    Artifact::new("trajectories.jsonl", "a trajectory", "rollout");
/// Written by `grade`: one verdict per line, in item order.
pub const VERDICTS: Artifact<Verdict> = Artifact::new("verdicts.jsonl", "a verdict", "grade");

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
        let path = self.path(root);
        let file = self.open(&path)?;
        let reader = Self { ..*self };
        let lines = BufReader::with_capacity(1 << 16, file).lines().enumerate();
        Ok(lines.filter_map(move |(number, line)| match line {
            Ok(line) if line.trim().is_empty() => None,
            Ok(line) => Some(reader.parse(&path, number + 1, &line)),
            Err(error) => Some(Err(RunError::io(path.display().to_string())(error))),
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
        let path = self.path(root);
        let (mut names, mut lines_of_items) = (Vec::new(), Vec::new());
        let mut at = 0;
        let mut lines = BufReader::with_capacity(1 << 16, self.open(&path)?);
        let mut line = String::new();
        for number in 1.. {
            line.clear();
            let read = lines.read_line(&mut line);
            let read = read.map_err(RunError::io(path.display().to_string()))?;
            if read == 0 {
                break;
            }
            if !line.trim().is_empty() {
                let item = self.parse(&path, number, &line)?;
                names.push(name_key(&visit(&item)?));
                // A line that is longer does not parse when it is read.
                let length = u32::try_from(read).unwrap_or(u32::MAX);
                lines_of_items.push(Line { length, at });
            }
            at += read as u64;
        }
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

    fn parse(&self, path: &Path, number: usize, line: &str) -> Result<T, RunError> {
        serde_json::from_str(line).map_err(|error| {
            let path = path.display();
            RunError::BadInput(format!("{path}:{number}: not {}: {error}", self.what))
        })
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
        for item in items {
            serde_json::to_writer(&mut writer, item?.borrow())?;
            writer.write_all(b"\n").map_err(wrap())?;
        }
        finish_file(writer, &path).map_err(wrap())?;
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
