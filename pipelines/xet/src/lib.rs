//! A commit to a repository of the Hub whose large files go by Xet, made by a process of its own.
//!
//! The process is [`PROGRAM`]. It reads one [`Job`], a line of JSON, from its standard input, and ends where that
//! ends. It writes what happens, an [`Event`] in a line of JSON each, to its standard output; the last one says how
//! it ended. The token and the Hub's address are in its environment, `HF_TOKEN` and `HF_ENDPOINT`. This crate is
//! that protocol; with the feature `program` it is also the program, on the crate hf-hub.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the program is called.
pub const PROGRAM: &str = "pybench-xet";

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Whether the repository is one of datasets, else of a model.
    pub dataset: bool,
    /// `owner`.
    pub owner: String,
    /// `name`.
    pub name: String,
    /// The commit that this one follows. Nothing is committed where it is no longer the newest.
    pub parent: String,
    /// The commit's first line.
    pub message: String,
    /// Files that are new or others.
    pub put: Vec<Put>,
    /// Paths of files that go.
    pub delete: Vec<String>,
}

/// A file of the commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The path inside the repository.
    pub path: String,
    /// Where its bytes are on this machine, absolute.
    pub file: PathBuf,
}

/// What the program says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Large files are on their way.
    Sending {
        /// Bytes of them that the Hub has now.
        done: u64,
        /// Bytes of all.
        total: u64,
        /// Bytes that went over the network for that: chunks that the Hub has are not sent.
        sent: u64,
    },
    /// All large files are there; the commit is being made.
    Committing,
    /// It is made.
    Committed {
        /// Its hash, where the Hub said it.
        commit: Option<String>,
    },
    /// It is not made; or, after [`Event::Committing`], nobody knows.
    Refused {
        /// The HTTP status of the refusal; none where there was no answer.
        status: Option<u16>,
        /// Seconds after which to come again, where the Hub said so.
        after: Option<u64>,
        /// In words.
        said: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line() {
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
