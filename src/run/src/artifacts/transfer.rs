//! Artifacts of a run that moves to a store or from one.

use std::fs::File;
use std::path::Path;

use pybench_types::id::Digest;

use super::checksum::Checksum;
use crate::store::Store;
use crate::{Journal, RunError};

/// Stores the artifacts of the run folder `root`.
///
/// # Errors
/// A file cannot be read, or the store cannot be written.
pub(crate) fn store_artifacts(
    root: &Path,
    journal: &Journal,
    store: &dyn Store,
) -> Result<(), RunError> {
    for (name, written) in Checksum::all(journal)? {
        let path = root.join(&name);
        if !path.is_file() {
            continue;
        }
        let digest = File::open(&path).and_then(Digest::of_reader);
        let digest = digest.map_err(RunError::io(path.display().to_string()))?;
        // A file that somebody has changed is not the artifact.
        if let Some(checksum) = written.iter().find(|checksum| *checksum.digest() == digest) {
            store.put(&checksum.key(&name), &path)?;
        }
    }
    Ok(())
}

/// Reads the artifacts that the run folder `root` lacks.
///
/// # Errors
/// The store cannot be read, or a file cannot be written.
pub(crate) fn fetch_artifacts(
    root: &Path,
    journal: &Journal,
    store: &dyn Store,
) -> Result<(), RunError> {
    for (name, written) in Checksum::all(journal)? {
        let path = root.join(&name);
        let mut newest = written.iter().rev();
        while !path.exists()
            && let Some(checksum) = newest.next()
        {
            store.fetch(&checksum.key(&name), &path)?;
        }
    }
    Ok(())
}
