//! Cache of paid replies, shared by the runs of a project, so that a run with another budget, filter or number
//! of tasks does not pay for them again.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{ChatRequest, Reply};
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

    /// The key contains the sample number, because each sample is a separate draw.
    fn path(&self, request: &ChatRequest<'_>) -> PathBuf {
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
        self.root
            .join(&key.as_str()[..2])
            .join(format!("{key}.json"))
    }

    /// Reads the reply to this request; an unreadable file counts as absent.
    pub(super) fn get(&self, request: &ChatRequest<'_>) -> Option<Reply> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(request)).ok()?;
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether there is a file for this request, readable or not.
    pub(super) fn contains(&self, request: &ChatRequest<'_>) -> bool {
        self.path(request).exists()
    }

    /// Stores a reply.
    pub(super) fn put(&self, request: &ChatRequest<'_>, reply: &Reply) -> Result<(), RunError> {
        write_atomically(&self.path(request), &serde_json::to_vec(reply)?)
    }
}
