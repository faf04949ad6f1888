//! CodeAct's format: thoughts, then a cell between `<execute>` and `</execute>`; the answer between
//! `<solution>` and `</solution>`; observations as messages of the user.

use super::pybench::{EMPTY, FENCE, NEVER_CLOSES, unfence};
use super::{Format, Parsed};
use crate::trajectory::{Message, Role};

const START: &str = "<execute>";
const END: &str = "</execute>";
const SOLUTION: &str = "<solution>";
const SOLVED: &str = "</solution>";
/// How an observation begins, as CodeActInstruct has it.
const HEARD: &str = "Observation:\n";
const SYSTEM: &str = include_str!("../../pipelines/prompts/codeact.jinja");

/// The format of CodeAct and CodeActInstruct, around PyBench's framing of tasks.
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

    fn rule(&self) -> &'static str {
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

    fn tidy(&self, reply: &str, truncated: bool) -> String {
        match locate(reply) {
            Located::Cell { end, .. } | Located::Answer { end, .. } => reply[..end].to_owned(),
            Located::Open if !truncated => format!("{}\n{END}", reply.trim_end()),
            _ => reply.to_owned(),
        }
    }

    fn write_heard(&self, text: &str) -> Message {
        Message::new(Role::User, format!("{HEARD}{text}"))
    }

    fn heard<'a>(&self, message: &'a Message) -> Option<&'a str> {
        match message.role {
            Role::User => message.content.strip_prefix(HEARD),
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

/// What a reply holds; the part of it that counts ends at byte `end`.
enum Located<'a> {
    Cell {
        cell: &'a str,
        end: usize,
    },
    Answer {
        answer: &'a str,
        end: usize,
    },
    /// A cell that never closes.
    Open,
    Nothing,
}

/// Of a cell and an answer, the earlier.
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
            // An answer may speak of the tag itself. One that was cut at its end is one all the same.
            let (inner, end) = match reply[body..].rfind(SOLVED) {
                Some(length) => (&reply[body..body + length], body + length + SOLVED.len()),
                None => (&reply[body..], reply.len()),
            };
            Located::Answer {
                answer: lines_of(inner),
                end,
            }
        }
        _ => Located::Nothing,
    }
}

fn cell_of(body: &str) -> &str {
    match body.trim_start().starts_with(FENCE) {
        true => unfence(body),
        false => lines_of(body),
    }
}

/// What stands on lines of its own between two tags, as it is; what stands beside them, trimmed.
fn lines_of(body: &str) -> &str {
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
    fn the_usual_forms_are_read() {
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
    fn tidying_cuts_what_was_made_up_and_restores_the_end() {
        let step = F.write_step("a", "x = 1");
        assert_eq!(F.tidy(&format!("{step}\nObservation:\n1"), false), step);
        let stopped = step.strip_suffix(END).unwrap();
        assert_eq!(F.tidy(stopped, false), step);
        assert_eq!(F.tidy(stopped, true), stopped);
    }

    proptest! {
        #[test]
        fn what_is_written_parses_back(thought in "[^<]{0,60}", cell in "(?s)[^`]{0,200}", answer in "(?s).{0,200}") {
            prop_assume!(!cell.contains(END));
            let step = F.write_step(&thought, &cell);
            prop_assert_eq!(F.parse(&step), Parsed::Cell(&cell));
            prop_assert_eq!(F.tidy(&step, false), step);
            let said = F.write_answer(&answer);
            prop_assume!(!answer.contains(START));
            prop_assert_eq!(F.parse(&said), Parsed::Answer(&answer));
        }
    }

    #[test]
    fn fuzz_any_reply_is_parsed_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let reply = String::from_utf8_lossy(bytes);
            let tidy = F.tidy(&reply, false);
            if let Parsed::Cell(cell) = F.parse(&reply) {
                assert_eq!(F.parse(&tidy), Parsed::Cell(cell));
            }
        });
    }
}
