//! A question and one reply, without tools and without a system prompt.

use pybench_agent::{Format, Parsed, initial_messages};
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Role};

/// The first reply of a model is its answer; code in it is not run. There is no system prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleReplyFormat;

impl Format for SingleReplyFormat {
    fn name(&self) -> &'static str {
        "single_reply"
    }

    fn system(&self) -> &'static str {
        ""
    }

    fn initial_messages(&self, task: &Task) -> Vec<Message> {
        let files: Vec<_> = task.files.iter().map(|file| file.name.as_str()).collect();
        let mut messages = initial_messages(self.system(), &task.query, &files);
        messages.retain(|message| message.role != Role::System);
        messages
    }

    fn stop(&self) -> Vec<String> {
        Vec::new()
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        Parsed::Answer(reply)
    }

    fn truncate(&self, reply: &str, _: bool) -> String {
        reply.to_owned()
    }

    fn write_observation(&self, text: &str) -> Message {
        Message::new(Role::User, text)
    }

    fn parse_observation<'a>(&self, _: &'a Message) -> Option<&'a str> {
        None
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        format!("{thought}\n{cell}")
    }

    fn write_answer(&self, answer: &str) -> String {
        answer.to_owned()
    }
}
