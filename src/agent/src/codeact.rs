//! The format of CodeAct: a thought, then a cell between `<execute>` and `</execute>`, or the answer between
//! `<solution>` and `</solution>`. Observations are user messages.

use super::pybench::{EMPTY, FENCE, NEVER_CLOSES, unfence};
use super::{Format, Parsed};
use pybench_types::trajectory::{Message, Role};

const START: &str = "<execute>";
const END: &str = "</execute>";
const SOLUTION: &str = "<solution>";
const SOLVED: &str = "</solution>";
/// Prefix of an observation, as in CodeActInstruct.
const OBSERVATION_PREFIX: &str = "Observation:\n";
const SYSTEM: &str = include_str!("../prompts/codeact.jinja");

/// The format of CodeAct and CodeActInstruct, with the task messages of PyBench.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeActFormat;

impl Format for CodeActFormat {
    fn name(&self) -> &'static str {
        "codeact"
    }

    fn system(&self) -> &'static str {
        SYSTEM.trim_end()
    }

    fn stop(&self) -> Vec<String> {
        vec![END.to_owned()]
    }

    fn openings(&self) -> &'static [&'static str] {
        &[START, SOLUTION]
    }

    fn format_hint(&self) -> &'static str {
        "Reply with one cell between <execute> and </execute>, or with the answer between <solution> and </solution>."
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        match locate(reply) {
            Located::Cell { cell, .. } => Parsed::Cell(cell),
            Located::Answer { answer, .. } => Parsed::Answer(answer),
            Located::Open => Parsed::Malformed(NEVER_CLOSES),
            Located::Nothing if reply.trim().is_empty() => Parsed::Malformed(EMPTY),
            Located::Nothing => Parsed::Unfinished(reply),
        }
    }

    fn truncate(&self, reply: &str, truncated: bool) -> String {
        match locate(reply) {
            Located::Cell { end, .. } | Located::Answer { end, .. } => reply[..end].to_owned(),
            Located::Open if !truncated => format!("{}\n{END}", reply.trim_end()),
            _ => reply.to_owned(),
        }
    }

    fn write_observation(&self, text: &str) -> Message {
        Message::new(Role::User, format!("{OBSERVATION_PREFIX}{text}"))
    }

    fn parse_observation<'a>(&self, message: &'a Message) -> Option<&'a str> {
        match message.role {
            Role::User => message.content.strip_prefix(OBSERVATION_PREFIX),
            _ => None,
        }
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        format!("{thought}\n{START}\n{cell}\n{END}")
    }

    fn write_answer(&self, answer: &str) -> String {
        format!("{SOLUTION}\n{answer}\n{SOLVED}")
    }
}

/// Content of a reply; the relevant part ends at byte `end`.
enum Located<'a> {
    Cell {
        cell: &'a str,
        end: usize,
    },
    Answer {
        answer: &'a str,
        end: usize,
    },
    /// A cell that is not closed.
    Open,
    Nothing,
}

/// Finds the first cell or answer.
fn locate(reply: &str) -> Located<'_> {
    let (cell, answer) = (reply.find(START), reply.find(SOLUTION));
    match (cell, answer) {
        (Some(at), answer) if answer.is_none_or(|answer| at < answer) => {
            let body = at + START.len();
            match reply[body..].find(END) {
                Some(length) => Located::Cell {
                    cell: cell_of(&reply[body..body + length]),
                    end: body + length + END.len(),
                },
                None => Located::Open,
            }
        }
        (_, Some(at)) => {
            let body = at + SOLUTION.len();
            // An answer may contain the tag itself, and it counts even if the end tag was cut off.
            let (inner, end) = match reply[body..].rfind(SOLVED) {
                Some(length) => (&reply[body..body + length], body + length + SOLVED.len()),
                None => (&reply[body..], reply.len()),
            };
            Located::Answer {
                answer: text_between(inner),
                end,
            }
        }
        _ => Located::Nothing,
    }
}

fn cell_of(body: &str) -> &str {
    match body.trim_start().starts_with(FENCE) {
        true => unfence(body),
        false => text_between(body),
    }
}

/// The text between two tags: verbatim if it is on separate lines, otherwise trimmed.
fn text_between(body: &str) -> &str {
    let own = body.strip_prefix('\n').or(body.strip_prefix("\r\n"));
    match own {
        Some(inner) => inner.strip_suffix('\n').unwrap_or(inner),
        None => body.trim(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const F: CodeActFormat = CodeActFormat;

    #[test]
    fn the_prompts_example_is_in_the_format() {
        assert_eq!(F.parse(SYSTEM), Parsed::Cell("# the code of this step"));
        assert!(SYSTEM.contains(SOLUTION) && SYSTEM.contains(SOLVED));
    }

    #[test]
    fn the_usual_forms_are_parsed() {
        for reply in [
            "<thought> I print. </thought>\n<execute> print(1) </execute>",
            "I print.\n<execute>\nprint(1)\n</execute>\nand more",
            "<execute>\n```python\nprint(1)\n```\n</execute>",
            "<execute>print(1)</execute> then <solution>1</solution>",
        ] {
            assert_eq!(F.parse(reply), Parsed::Cell("print(1)"), "{reply:?}");
        }
        for reply in [
            "The answer is <solution> 4 </solution>",
            "<solution>4",
            "<solution>\n4\n</solution>",
        ] {
            assert_eq!(F.parse(reply), Parsed::Answer("4"), "{reply:?}");
        }
        assert_eq!(F.parse("It is 4."), Parsed::Unfinished("It is 4."));
        assert_eq!(F.parse(" "), Parsed::Malformed(EMPTY));
        assert_eq!(F.parse("<execute>\nx"), Parsed::Malformed(NEVER_CLOSES));
    }

    #[test]
    fn truncation_removes_invented_text_and_restores_the_end() {
        let step = F.write_step("a", "x = 1");
        assert_eq!(F.truncate(&format!("{step}\nObservation:\n1"), false), step);
        let stopped = step.strip_suffix(END).unwrap();
        assert_eq!(F.truncate(stopped, false), step);
        assert_eq!(F.truncate(stopped, true), stopped);
    }

    proptest! {
        #[test]
        fn written_replies_parse_back(thought in "[^<]{0,60}", cell in "(?s)[^`]{0,200}", answer in "(?s).{0,200}") {
            prop_assume!(!cell.contains(END));
            let step = F.write_step(&thought, &cell);
            prop_assert_eq!(F.parse(&step), Parsed::Cell(&cell));
            prop_assert_eq!(F.truncate(&step, false), step);
            let said = F.write_answer(&answer);
            prop_assume!(!answer.contains(START));
            prop_assert_eq!(F.parse(&said), Parsed::Answer(&answer));
        }
    }

    #[test]
    fn fuzz_any_reply_is_parsed_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let reply = String::from_utf8_lossy(bytes);
            let truncated = F.truncate(&reply, false);
            if let Parsed::Cell(cell) = F.parse(&reply) {
                assert_eq!(F.parse(&truncated), Parsed::Cell(cell));
            }
        });
    }
}
