//! Upstream's prompt mode with a system prompt of the user's own.

use pybench::agent::{END, Format, Parsed, PybenchFormat};
use pybench::id::Digest;
use pybench::trajectory::Message;

/// PyBench's framing around the system prompt of a configuration. Its name tells prompts apart.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamFormat {
    name: &'static str,
    system: &'static str,
}

impl UpstreamFormat {
    /// With that system prompt. One format is made per configuration and lives as long as the process.
    pub fn new(system: &str) -> &'static Self {
        let name = format!("pybench:{}", Digest::of_bytes(system.as_bytes()).short());
        Box::leak(Box::new(Self {
            name: name.leak(),
            system: system.to_owned().leak(),
        }))
    }
}

impl Format for UpstreamFormat {
    fn name(&self) -> &'static str {
        self.name
    }

    fn system(&self) -> &'static str {
        self.system
    }

    fn stop(&self) -> Vec<String> {
        match self.system.contains(END) {
            true => PybenchFormat.stop(),
            false => Vec::new(),
        }
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        PybenchFormat.parse(reply)
    }

    fn tidy(&self, reply: &str, truncated: bool) -> String {
        PybenchFormat.tidy(reply, truncated)
    }

    fn write_heard(&self, text: &str) -> Message {
        PybenchFormat.write_heard(text)
    }

    fn heard<'a>(&self, message: &'a Message) -> Option<&'a str> {
        PybenchFormat.heard(message)
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        PybenchFormat.write_step(thought, cell)
    }

    fn write_answer(&self, answer: &str) -> String {
        PybenchFormat.write_answer(answer)
    }
}
