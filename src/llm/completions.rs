//! Replies that were paid for once, shared by the runs of a project: a run with another budget, filter
//! or number of tasks does not pay for them again.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{ChatRequest, Reply};
use crate::id::Digest;
use crate::run::{RunError, write_atomically};

/// Largest reply that is read back, bytes.
const MOST_BYTES: u64 = 16 << 20;

/// A folder of replies, by what was asked of whom.
#[derive(Clone, Debug)]
pub struct Completions {
    root: PathBuf,
    endpoint: String,
}

impl Completions {
    /// `endpoint` names who answers: address and model.
    pub fn new(root: &Path, endpoint: &str) -> Self {
        Self {
            root: root.to_owned(),
            endpoint: endpoint.to_owned(),
        }
    }

    /// Samples are told apart by their number: two of them are two draws.
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

    /// The reply to this very request. One that cannot be read is none.
    pub(super) fn get(&self, request: &ChatRequest<'_>) -> Option<Reply> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(request)).ok()?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether there is a file for this very request, readable or not.
    pub(super) fn holds(&self, request: &ChatRequest<'_>) -> bool {
        self.path(request).exists()
    }

    /// Keep a reply.
    pub(super) fn put(&self, request: &ChatRequest<'_>, reply: &Reply) -> Result<(), RunError> {
        write_atomically(&self.path(request), &serde_json::to_vec(reply)?)
    }
}
