//! The tables in the files of content stores.

use std::collections::HashMap;
use std::path::PathBuf;

use pybench_datasets::decontaminate::Table;
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;

use super::benchmark;

/// Tables by digest of their file. Each file is read once.
pub struct TableCache {
    stores: Vec<ContentStore>,
    /// The files that were asked for. `None`: the file was not found, or is too large; `Some(None)`: it is no table.
    known: HashMap<Digest, Option<Option<Table>>>,
}

impl TableCache {
    /// Searches these folders of files that are named by their digests. Folders that do not exist are ignored.
    ///
    /// # Errors
    /// A folder cannot be opened.
    pub fn new(stores: &[PathBuf]) -> Result<Self, RunError> {
        let existing = stores.iter().filter(|store| store.is_dir());
        Ok(Self {
            stores: existing
                .map(|store| ContentStore::open(store))
                .collect::<Result<_, _>>()?,
            known: HashMap::new(),
        })
    }

    /// The table in a file, whose kind follows from `name`.
    pub fn get(&mut self, id: &Digest, name: &str) -> Option<&Table> {
        if !self.known.contains_key(id) {
            let small = |store: &&ContentStore| {
                std::fs::metadata(store.path(id))
                    .is_ok_and(|found| found.is_file() && found.len() <= benchmark::MAX_FILE_BYTES)
            };
            let stores = self.stores.iter().filter(small);
            let bytes = stores.flat_map(|store| store.get(id)).next();
            let read = bytes.map(|bytes| benchmark::table(name, &bytes));
            self.known.insert(id.clone(), read);
        }
        self.known.get(id)?.as_ref()?.as_ref()
    }

    /// Whether a file was asked for and not found.
    pub fn is_missing(&self, id: &Digest) -> bool {
        matches!(self.known.get(id), Some(None))
    }

    /// Number of files that were asked for and not found.
    pub fn missing(&self) -> usize {
        self.known.values().filter(|read| read.is_none()).count()
    }
}
