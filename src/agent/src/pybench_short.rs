//! The prompt format of PyBench with a short system prompt, for models to which every token of a prompt counts.

use pybench_types::trajectory::Message;

use super::{Format, Parsed, PybenchFormat};

const SYSTEM: &str = include_str!("../prompts/pybench-short.jinja");

/// [`PybenchFormat`] with a system prompt that only says where files are and how a reply looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct PybenchShortFormat;

impl Format for PybenchShortFormat {
    fn name(&self) -> &'static str {
        "pybench_short"
    }

    fn system(&self) -> &'static str {
        SYSTEM.trim_end()
    }

    fn stop(&self) -> Vec<String> {
        PybenchFormat.stop()
    }

    fn openings(&self) -> &'static [&'static str] {
        PybenchFormat.openings()
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        PybenchFormat.parse(reply)
    }

    fn truncate(&self, reply: &str, truncated: bool) -> String {
        PybenchFormat.truncate(reply, truncated)
    }

    fn write_observation(&self, text: &str) -> Message {
        PybenchFormat.write_observation(text)
    }

    fn parse_observation<'a>(&self, message: &'a Message) -> Option<&'a str> {
        PybenchFormat.parse_observation(message)
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        PybenchFormat.write_step(thought, cell)
    }

    fn write_answer(&self, answer: &str) -> String {
        PybenchFormat.write_answer(answer)
    }
}
