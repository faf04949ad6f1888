//! Protocol of the helper program [`PROGRAM`], which makes one commit on the Hub and uploads large files with Xet.
//!
//! The program reads one [`CommitJob`] as a line of JSON from standard input. It exits when standard input is closed.
//! It writes one [`Event`] per line, as JSON, to standard output; the last event is the result. Token and address of
//! the Hub are in the environment variables `HF_TOKEN` and `HF_ENDPOINT`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the program.
pub const PROGRAM: &str = "pybench-xet";

/// A commit to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitJob {
    /// Whether the repository is a dataset; otherwise it is a model.
    pub dataset: bool,
    /// Owner of the repository.
    pub owner: String,
    /// Name of the repository, without its owner.
    pub name: String,
    /// The parent commit. The commit fails if it is no longer the newest one.
    pub parent: String,
    /// First line of the commit message.
    pub message: String,
    /// New and changed files.
    pub put: Vec<FileUpload>,
    /// Paths of files to delete.
    pub delete: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUpload {
    /// Path in the repository.
    pub path: String,
    /// Absolute path of the local file.
    pub file: PathBuf,
}

/// A message from the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Progress of uploading large files.
    Sending {
        /// Bytes that the Hub has.
        done: u64,
        /// Total bytes.
        total: u64,
        /// Bytes sent over the network. Chunks that the Hub already has are not sent.
        sent: u64,
    },
    /// All large files are uploaded; the commit is being created.
    Committing,
    /// The commit was created.
    Committed {
        /// Hash of the commit, if the Hub returned it.
        commit: Option<String>,
    },
    /// The commit failed. After [`Event::Committing`] it may exist nevertheless.
    Refused {
        /// HTTP status of the error; `None` if there was no response.
        status: Option<u16>,
        /// Value of `Retry-After` in seconds, if any.
        after: Option<u64>,
        /// The error message.
        said: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_as_one_line() {
        let events = [
            Event::Sending {
                done: 1,
                total: 2,
                sent: 0,
            },
            Event::Committing,
            Event::Committed {
                commit: Some("abc".into()),
            },
            Event::Refused {
                status: Some(409),
                after: None,
                said: "no\nno".into(),
            },
        ];
        for event in events {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }
}
