//! The messages that the model reads, and what comes next in a conversation.

use pybench_agent::{Format, observation_text};
use pybench_types::observation::{Observation, Stopped};
use pybench_types::trajectory::{Message, Role};

use crate::entry::Entry;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The person writes.
    Person,
    /// The model is asked for a reply.
    Reply,
    /// Cells of the last reply are run; one that cannot be run carries the reason.
    Cells(Vec<Result<String, &'static str>>),
}

/// What comes next after these entries.
pub fn next(entries: &[Entry], format: &dyn Format) -> Next {
    let last = entries.iter().rposition(|entry| {
        matches!(
            entry,
            Entry::Message { .. } | Entry::Reply { .. } | Entry::PartialReply { .. }
        )
    });
    let Some(at) = last else { return Next::Person };
    let reply = match &entries[at] {
        Entry::Message { .. } => return Next::Reply,
        Entry::Reply { reply } if !reply.repetition => reply,
        _ => return Next::Person,
    };
    let text = format.truncate(&reply.content, reply.truncated);
    let mut cells = format.parse(&text).cells();
    let after = entries[at..].iter();
    let done = after.filter(|entry| matches!(entry, Entry::Run { .. }));
    let done = done.count().min(cells.len());
    match (cells.len(), done) {
        (0, _) => Next::Person,
        (all, done) if done == all => Next::Reply,
        (_, done) => Next::Cells(cells.split_off(done)),
    }
}

/// The messages of a conversation in the format of its model.
pub fn messages(entries: &[Entry], format: &dyn Format) -> Vec<Message> {
    let mut messages = vec![Message::new(Role::System, format.system())];
    let mut files: Vec<String> = Vec::new();
    for entry in entries {
        match entry {
            Entry::File(file) => files.push(format!("./data/{}", file.name)),
            Entry::Message { text } => {
                // As in the messages of a task.
                if !files.is_empty() {
                    let notice = format!("[INFO]The data is uploaded to {}", files.join(","));
                    messages.push(Message::new(Role::User, notice));
                    files.clear();
                }
                messages.push(Message::new(Role::User, text));
            }
            Entry::Reply { reply } => {
                let text = format.truncate(&reply.content, reply.truncated);
                messages.push(Message::new(Role::Assistant, text));
            }
            Entry::PartialReply { text } => messages.push(Message::new(Role::Assistant, text)),
            Entry::Run {
                run,
                stopped_by_person,
            } => messages.push(match stopped_by_person {
                false => format.observe(&run.observation),
                true => format.write_observation(&stopped_text(&run.observation)),
            }),
            Entry::Rewind { .. } => {}
        }
    }
    messages
}

/// The text of an observation of a cell that the person stopped.
fn stopped_text(observation: &Observation) -> String {
    let seen = Observation {
        stopped: None,
        ..observation.clone()
    };
    let mut text = observation_text(&seen);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(match observation.stopped {
        None | Some(Stopped::Interrupted) => "[The user stopped the cell. Variables are kept.]",
        Some(Stopped::Restarted | Stopped::Died) => {
            "[The user stopped the cell. The interpreter was restarted: all variables are lost.]"
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::InputFile;
    use pybench_agent::{PybenchFormat, ToolsFormat};
    use pybench_llm::Reply;
    use pybench_types::id::Digest;
    use pybench_types::observation::Output;
    use pybench_types::trajectory::{CellRun, Usage};

    fn message(text: &str) -> Entry {
        Entry::Message {
            text: text.to_owned(),
        }
    }

    fn reply(content: &str) -> Entry {
        Entry::Reply {
            reply: Reply {
                content: content.to_owned(),
                usage: Usage::default(),
                truncated: false,
                repetition: false,
            },
        }
    }

    fn run(cell: &str, text: &str, stopped_by_person: bool) -> Entry {
        let output = Output::Stream {
            name: "stdout".to_owned(),
            text: text.to_owned(),
        };
        Entry::Run {
            run: CellRun {
                cell: Some(cell.to_owned()),
                observation: Observation {
                    outputs: vec![output],
                    stopped: stopped_by_person.then_some(Stopped::Interrupted),
                    error: None,
                },
            },
            stopped_by_person,
        }
    }

    #[test]
    fn the_next_step_follows_from_the_entries() {
        let format = ToolsFormat;
        let both = format
            .write_steps("Both.", &["a".into(), "b".into()])
            .unwrap();
        let mut entries = Vec::new();
        assert_eq!(next(&entries, &format), Next::Person);
        entries.push(message("Do it."));
        assert_eq!(next(&entries, &format), Next::Reply);
        entries.push(reply(&both));
        let cells = |names: &[&str]| Next::Cells(names.iter().map(|n| Ok((*n).into())).collect());
        assert_eq!(next(&entries, &format), cells(&["a", "b"]));
        entries.push(run("a", "1", false));
        assert_eq!(next(&entries, &format), cells(&["b"]));
        entries.push(run("b", "2", false));
        assert_eq!(next(&entries, &format), Next::Reply);
        entries.push(reply("Finished: 3"));
        assert_eq!(next(&entries, &format), Next::Person);
        // A reply without a mark is an answer too, and one that was stopped waits for the person.
        for last in [
            reply("It is 3."),
            Entry::PartialReply {
                text: "It".to_owned(),
            },
        ] {
            *entries.last_mut().unwrap() = last;
            assert_eq!(next(&entries, &format), Next::Person);
        }
        // A new message is answered even if cells have not run.
        let entries = [message("a"), reply(&both), message("b")];
        assert_eq!(next(&entries, &format), Next::Reply);
        let malformed = [message("a"), reply("```python\nnever closed")];
        let Next::Cells(cells) = next(&malformed, &PybenchFormat) else {
            panic!("the model is told");
        };
        assert!(cells[0].is_err());
    }

    #[test]
    fn the_model_reads_files_cells_and_stops() {
        let format = PybenchFormat;
        let file = |name: &str| {
            Entry::File(InputFile {
                name: name.to_owned(),
                id: Digest::of_bytes(b""),
                size: 0,
            })
        };
        let step = format.write_step("I look.", "look()");
        let entries = [
            file("a.csv"),
            file("b.csv"),
            message("Look."),
            reply(&step),
            run("look()", "half", true),
            Entry::PartialReply {
                text: "It".to_owned(),
            },
            file("c.csv"),
        ];
        let messages = messages(&entries, &format);
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        use Role::{Assistant, System, User};
        assert_eq!(roles, [System, User, User, Assistant, User, Assistant]);
        let notice = "[INFO]The data is uploaded to ./data/a.csv,./data/b.csv";
        assert_eq!(messages[1].content, notice);
        assert_eq!(messages[3].content, step);
        let seen = &messages[4].content;
        assert!(seen.contains("half\n[The user stopped the cell. Variables are kept.]"));
        assert!(!seen.contains("longer than allowed"), "{seen}");
    }
}
