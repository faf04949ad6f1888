//! What is saved of a conversation. Entries are only added; what a person takes back stays in the history.

use pybench_llm::Reply;
use pybench_types::id::Digest;
use pybench_types::trajectory::CellRun;
use serde::{Deserialize, Serialize};

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A file that the person put into `./data`.
    File(InputFile),
    /// A message of the person.
    Message { text: String },
    /// A reply of the model, verbatim.
    Reply { reply: Reply },
    /// The beginning of a reply that the person stopped.
    PartialReply { text: String },
    /// A cell of the last reply that was run, or what the model was told instead.
    Run {
        run: CellRun,
        /// Whether the person stopped the cell.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped_by_person: bool,
    },
    /// The person took back all entries but the first `keep` of those that counted.
    Rewind { keep: u64 },
}

/// A file that was put into a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Name in `./data`.
    pub name: String,
    /// Digest of the bytes, which are in the history's content store.
    pub id: Digest,
    /// Size in bytes.
    pub size: u64,
}

/// The entries that count, of all that were saved.
pub fn current(saved: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for entry in saved {
        match entry {
            Entry::Rewind { keep } => entries.truncate(usize::try_from(keep).unwrap_or(usize::MAX)),
            entry => entries.push(entry),
        }
    }
    entries
}

/// Positions of the person's messages.
pub fn message_positions(entries: &[Entry]) -> Vec<usize> {
    let numbered = entries.iter().enumerate();
    let messages = numbered.filter(|(_, entry)| matches!(entry, Entry::Message { .. }));
    messages.map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Entry {
        Entry::Message {
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_was_taken_back_does_not_count() {
        let saved = [
            message("a"),
            message("b"),
            Entry::Rewind { keep: 1 },
            message("c"),
            Entry::Rewind { keep: 9 },
        ];
        let entries = current(saved);
        assert_eq!(entries, [message("a"), message("c")]);
        assert_eq!(message_positions(&entries), [0, 1]);
        assert_eq!(current([message("a"), Entry::Rewind { keep: 0 }]), []);
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let file = InputFile {
            name: "a.csv".to_owned(),
            id: Digest::of_bytes(b"a"),
            size: 1,
        };
        let run = Entry::Run {
            run: CellRun {
                cell: None,
                observation: Default::default(),
            },
            stopped_by_person: true,
        };
        for entry in [
            Entry::File(file),
            message("a"),
            run,
            Entry::Rewind { keep: 3 },
        ] {
            let text = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
        }
    }
}
