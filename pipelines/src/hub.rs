//! The Hugging Face Hub: single files, whole datasets at a commit, and repositories to write.
//!
//! What is read comes as every download of the project does, bounded, checked, and going on where it broke
//! off (`crawl::source::web`). Large files and the commit go by Xet and the crate hf-hub, in the program
//! `pybench-xet`, where it is built and the Hub has Xet; by the Hub's documented HTTP routes otherwise.

mod client;
mod commit;
mod content;
mod download;
mod file;
mod lfs;
mod licensed;
mod refusal;
mod repository;
mod snapshot;
mod tree;
mod xet;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use pybench::run::cli::Process;
use pybench::run::{RunError, Urgency};
use sha2::{Digest as _, Sha256};

pub use client::Hub;
pub use commit::Change;
pub use content::{Content, Source};
pub use file::HubFile;
pub use lfs::Sent;
pub(crate) use licensed::Licensed;
pub use refusal::{Refusal, Why};
pub use repository::{About, BRANCH, Mode, Repository};
pub use snapshot::{Pin, Snapshot};
pub(crate) use tree::Entry;
pub use tree::Kept;
pub use xet::{Committing, xet_program};

/// What a repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A model.
    Model,
    /// A dataset.
    Dataset,
}

impl Kind {
    /// Before the names of its repositories.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
        }
    }

    /// The part of a path before those names.
    fn folder(self) -> Option<&'static str> {
        match self {
            Self::Model => None,
            Self::Dataset => Some("datasets"),
        }
    }

    /// What one is called.
    pub fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Dataset => "dataset",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
        }
    }
}

/// The SHA-256 of a file.
pub(crate) fn sha256(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first Ctrl-C ends what is under way with the Hub: all of it stays where it is.
pub(crate) async fn until_asked_to_stop<T>(
    process: &Process,
    work: impl Future<Output = T>,
) -> Result<T, RunError> {
    tokio::select! {
        biased;
        () = process.interrupt.wait(Urgency::Finish) => Err(RunError::Interrupted),
        done = work => Ok(done),
    }
}
