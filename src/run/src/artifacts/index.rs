//! Items of an artifact that are read on demand.

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pybench_types::id::{CompactDigest, Digest};
use serde::de::DeserializeOwned;

use super::Artifact;
use crate::RunError;

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
                length: u32::try_from(lines.text().len()).unwrap_or(u32::MAX),
                at: lines.start(),
            });
        }
        let path = self.path(root);
        let mut by_name: Vec<u32> = (0..names.len() as u32).collect();
        by_name.sort_unstable_by_key(|at| (names[*at as usize], *at));
        Ok(Index {
            names,
            by_name,
            items: ItemReader {
                file: self.open(root)?,
                path,
                lines: lines_of_items,
                item: PhantomData,
            },
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
