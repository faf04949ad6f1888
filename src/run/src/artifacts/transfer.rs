//! Artifacts of a run that moves to a store or from one.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use pybench_types::id::Digest;

use super::checksum::Checksum;
use crate::store::{ExpectedFile, Store};
use crate::{Journal, RunError, RunFolder};

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
        let digest = digest(&path)?;
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
            let expected = ExpectedFile::with_digest(checksum.digest());
            store.fetch_expected(&checksum.key(&name), &path, &expected)?;
        }
    }
    Ok(())
}

/// Deletes the files of a worker that are no longer the artifacts which the journal names, so that those are read from the
/// store. Does nothing in the folder of the coordinator.
///
/// # Errors
/// A file cannot be read or deleted; the journal cannot be read.
pub fn remove_stale_artifacts(folder: &RunFolder) -> Result<(), RunError> {
    if !folder.is_elsewhere()? {
        return Ok(());
    }
    for (name, written) in Checksum::all(folder.journal())? {
        let path = folder.root().join(&name);
        if !path.is_file() {
            continue;
        }
        let digest = digest(&path)?;
        if written.iter().all(|checksum| *checksum.digest() != digest) {
            std::fs::remove_file(&path).map_err(RunError::io(path.display().to_string()))?;
        }
    }
    Ok(())
}

/// Whether files, by their paths in the run folder, are the artifacts that a journal names. Missing ones do not matter.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn are_artifacts_of(
    journal: &Journal,
    files: &BTreeMap<String, Digest>,
) -> Result<bool, RunError> {
    let artifacts = Checksum::all(journal)?;
    let is_named = |(name, written): &(String, Vec<Checksum>)| {
        let found = files.get(name);
        found.is_none_or(|found| written.iter().any(|checksum| checksum.digest() == found))
    };
    Ok(artifacts.iter().all(is_named))
}

fn digest(path: &Path) -> Result<Digest, RunError> {
    let digest = File::open(path).and_then(Digest::of_reader);
    digest.map_err(RunError::io(path.display().to_string()))
}
