//! Client for the Hugging Face Hub: downloads single files and datasets at a commit, and writes repositories.
//!
//! Downloads use `pybench_net`: they are bounded, verified and resumable. Uploads of large files and the
//! commit use Xet through the program `pybench-xet` (crate hf-hub) if it is built and the Hub supports Xet;
//! otherwise they use the Hub's documented HTTP routes.

mod client;
mod commit;
mod content;
mod download;
mod error;
mod file;
mod lfs;
mod licensed;
mod path;
mod remote;
mod repository;
mod snapshot;
mod tree;
mod xet;

use std::io::Read;
use std::path::Path;

use pybench_files::open_regular;
use pybench_run::cli::Process;
use pybench_run::{RunError, Urgency};
use sha2::{Digest as _, Sha256};

pub use client::Hub;
pub use commit::Change;
pub use content::{ContentSource, UploadFile};
pub use error::{HubError, HubErrorKind};
pub use file::HubFile;
pub use lfs::UploadStats;
pub use licensed::LicenseInfo;
pub use path::HubPath;
pub use remote::{
    fetch_any, fetch_files, fetch_from_bucket, fetch_input, fetch_source, is_address,
};
pub use repository::{BRANCH, Mode, Repository, RepositoryInfo};
pub use snapshot::{DatasetRef, Snapshot};
pub use tree::RemoteFile;
pub use tree::TreeEntry;
pub use xet::{PendingCommit, xet_program};

/// The type of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Model,
    Dataset,
}

impl Kind {
    /// The prefix of repository names, as people write them.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
        }
    }

    /// The part of a URL path before repository names.
    fn folder(self) -> Option<&'static str> {
        match self {
            Self::Model => None,
            Self::Dataset => Some("datasets"),
        }
    }

    /// The name of the type in the Hub's API.
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

/// The SHA-256 of a regular file, in hexadecimal.
///
/// # Errors
/// The file cannot be read, or is a folder or a named pipe, for example.
pub fn sha256(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (open_regular(path)?, Sha256::new());
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

/// Runs `work` until it ends or Ctrl-C is pressed once. Data that was already transferred is kept.
pub async fn until_interrupted<T>(
    process: &Process,
    work: impl Future<Output = T>,
) -> Result<T, RunError> {
    tokio::select! {
        biased;
        () = process.interrupt.wait(Urgency::Finish) => Err(RunError::Interrupted),
        done = work => Ok(done),
    }
}
