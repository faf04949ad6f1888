//! The checksum of an artifact that the journal keeps.

use std::path::Path;

use pybench_types::id::{Digest, DigestBuilder};
use serde::{Deserialize, Serialize};

use crate::journal::JournalPlace;
use crate::{Journal, RunError};

/// Number of lines and digest of an artifact, as the journal records them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checksum {
    pub(super) lines: u64,
    blake3: Digest,
}

impl Checksum {
    /// The key of the artifact `name` with this content in a store.
    pub(super) fn key(&self, name: &str) -> String {
        format!("artifacts/{name}/{}", self.blake3)
    }

    pub(super) fn digest(&self) -> &Digest {
        &self.blake3
    }

    /// All artifacts that a journal knows: name and checksums, as [`Self::recorded`].
    pub(super) fn all(journal: &Journal) -> Result<Vec<(String, Vec<Self>)>, RunError> {
        let recorded = journal.metadata_with_prefix(&key(""))?.into_iter();
        let recorded = recorded.map(|(name, value)| Ok((name, serde_json::from_value(value)?)));
        recorded.collect()
    }

    /// What the journal says of an artifact: one checksum, or more if a process ended while it was replaced.
    pub(super) fn recorded(root: &Path, name: &str) -> Result<Vec<Self>, RunError> {
        let place = JournalPlace::of(root)?;
        if place.is_blank()? {
            return Ok(Vec::new());
        }
        let Some(journal) = place.read()? else {
            return Ok(Vec::new());
        };
        let recorded = journal.metadata(&key(name))?;
        Ok(recorded
            .map(serde_json::from_value)
            .transpose()?
            .unwrap_or_default())
    }
}

/// The key of an artifact's checksums in the journal.
pub(super) fn key(name: &str) -> String {
    format!("checksum.{name}")
}

#[derive(Default)]
pub(super) struct ChecksumBuilder {
    lines: u64,
    hasher: DigestBuilder,
}

impl ChecksumBuilder {
    pub(super) fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.hasher.add(line);
    }

    pub(super) fn finish(self) -> Checksum {
        Checksum {
            lines: self.lines,
            blake3: self.hasher.finish(),
        }
    }
}
