//! The checksum of an artifact that the journal keeps.

use std::path::Path;

use pybench_types::id::{Digest, DigestBuilder};
use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::journal::JournalPlace;

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
