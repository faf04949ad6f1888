//! Cache of paid replies, shared by the runs of a project, so that a run with another budget, filter or number
//! of tasks does not pay for them again.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::ChatRequest;
use super::settled::PaidReply;
use pybench_run::{RunError, write_atomically};
use pybench_types::id::Digest;

/// Maximum size of a cached reply, bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A folder of replies, keyed by endpoint and request.
#[derive(Clone, Debug)]
pub struct ResponseCache {
    root: PathBuf,
    endpoint: String,
}

impl ResponseCache {
    /// `endpoint` identifies address and model.
    pub fn new(root: &Path, endpoint: &str) -> Self {
        Self {
            root: root.to_owned(),
            endpoint: endpoint.to_owned(),
        }
    }

    /// The file of the reply to a request. The key contains the sample number, because each sample is a separate
    /// draw.
    pub(super) fn entry(&self, request: &ChatRequest<'_>) -> CacheEntry {
        let key = match request.pictures {
            [] => Digest::of_json(&(
                &self.endpoint,
                request.messages,
                request.sampling,
                request.stop,
                request.sample,
            )),
            _ => Digest::of_json(&(&self.endpoint, request.digest(), request.sample)),
        };
        let folder = self.root.join(&key.as_str()[..2]);
        CacheEntry(folder.join(format!("{key}.json")))
    }
}

/// The file of one reply.
#[derive(Debug)]
pub(super) struct CacheEntry(PathBuf);

impl CacheEntry {
    /// Reads the reply; an unreadable file counts as absent.
    pub(super) fn get<R: PaidReply>(&self) -> Option<R> {
        let mut bytes = Vec::new();
        let file = File::open(&self.0).ok()?;
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether there is a file, readable or not.
    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Stores the reply.
    pub(super) fn put<R: PaidReply>(&self, reply: &R) -> Result<(), RunError> {
        write_atomically(&self.0, &serde_json::to_vec(reply)?)
    }
}
