//! The prompt format of PyBench: one assistant message with a thought and a cell between two tokens.

use super::{Format, Parsed};
use pybench_types::trajectory::{Message, Role};

/// Opens a cell.
pub const START: &str = "<|execute_start|>";
/// Closes a cell; also the stop sequence.
pub const END: &str = "<|execute_end|>";
pub(super) const FENCE: &str = "```";
/// The word before an answer.
pub(super) const FINISHED: &str = "finished";
/// Names of the language of a Python block.
const PYTHON: [&str; 4] = ["python", "py", "python3", "ipython"];
const SYSTEM: &str = include_str!("../prompts/pybench.jinja");
/// Prefix of an observation.
const OBSERVATION_PREFIX: &str = "[INFO]This is a Code Interpreter Message:\n";
pub(super) const EMPTY: &str = "the reply is empty";
pub(super) const NEVER_CLOSES: &str = "the code block never closes";

/// The prompt format of PyBench, with exactly the messages of the original benchmark. Code is between [`START`]
/// and [`END`]; a reply without these tokens may contain a fenced ```` ```python ```` block instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct PybenchFormat;

impl Format for PybenchFormat {
    fn name(&self) -> &'static str {
        "pybench"
    }

    fn system(&self) -> &'static str {
        SYSTEM.trim_end()
    }

    fn stop(&self) -> Vec<String> {
        vec![END.to_owned()]
    }

    fn openings(&self) -> &'static [&'static str] {
        &[START, FENCE, FINISHED]
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        match locate(reply) {
            Located::Cell { cell, .. } => Parsed::Cell(cell),
            Located::Answer(answer) => Parsed::Answer(answer),
            Located::Open(_) => Parsed::Malformed(NEVER_CLOSES),
            Located::Nothing if reply.trim().is_empty() => Parsed::Malformed(EMPTY),
            Located::Nothing => Parsed::Unfinished(reply),
        }
    }

    fn truncate(&self, reply: &str, truncated: bool) -> String {
        match locate(reply) {
            Located::Cell { end, .. } => reply[..end].to_owned(),
            Located::Open(Opened::Token) if !truncated => {
                format!("{}\n{END}", reply.trim_end())
            }
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
        format!("{thought}\n{START}\n{FENCE}python\n{cell}\n{FENCE}\n{END}")
    }

    fn write_answer(&self, answer: &str) -> String {
        format!("Finished:\n{answer}")
    }
}

/// Content of a reply, with positions.
enum Located<'a> {
    /// A closed cell; the relevant part of the reply ends at byte `end`.
    Cell {
        cell: &'a str,
        end: usize,
    },
    /// A cell that is not closed.
    Open(Opened),
    /// The text after `Finished:`.
    Answer(&'a str),
    Nothing,
}

enum Opened {
    Token,
    Fence,
}

/// Finds the cell between tokens, or else the first of `Finished:` and a fenced block.
fn locate(reply: &str) -> Located<'_> {
    if let Some(at) = reply.find(START) {
        let body = at + START.len();
        let Some(length) = reply[body..].find(END) else {
            return Located::Open(Opened::Token);
        };
        return Located::Cell {
            cell: unfence(&reply[body..body + length]),
            end: body + length + END.len(),
        };
    }
    let (finished, block) = (finished(reply), fenced(reply));
    match (finished, block) {
        (Some((at, answer)), Some(block)) if at < block.start => Located::Answer(answer),
        (_, Some(block)) => match block.closed {
            Some((cell, end)) => Located::Cell { cell, end },
            None => Located::Open(Opened::Fence),
        },
        (Some((_, answer)), None) => Located::Answer(answer),
        (None, None) => Located::Nothing,
    }
}

/// The code between the tokens, without a fence.
pub(super) fn unfence(body: &str) -> &str {
    let Some(rest) = body.trim_start().strip_prefix(FENCE) else {
        let inner = fenced(body).and_then(|block| block.closed);
        return inner.map_or(body.trim_matches(['\r', '\n']), |(cell, _)| cell);
    };
    let code = match rest.split_once('\n') {
        Some((_info, code)) => code,
        None => rest.strip_prefix("python ").unwrap_or(rest),
    };
    match code.trim_end().strip_suffix(FENCE) {
        Some(code) => code.strip_suffix('\n').unwrap_or(code),
        None => code.trim_end(),
    }
}

struct Block<'a> {
    start: usize,
    /// The cell, and the byte after the closing fence.
    closed: Option<(&'a str, usize)>,
}

/// The first fenced block marked as Python. It is closed by the first line that is only a fence, or else by the
/// next fence anywhere.
fn fenced(text: &str) -> Option<Block<'_>> {
    let (start, body) = opening(text)?;
    let mut line_start = body;
    for line in text[body..].split_inclusive('\n') {
        if line.trim() == FENCE {
            let cell = &text[body..line_start];
            let end = line_start + line.trim_end().len();
            let closed = Some((cell.strip_suffix('\n').unwrap_or(cell), end));
            return Some(Block { start, closed });
        }
        line_start += line.len();
    }
    let inline = text[body..].find(FENCE);
    let closed = inline.map(|n| (&text[body..body + n], body + n + FENCE.len()));
    Some(Block { start, closed })
}

/// The first fence that opens a Python block: its position and that of the following line. Only the last fence of
/// a line can, because nothing but the name of the language may follow it; each byte is read a fixed number of times.
fn opening(text: &str) -> Option<(usize, usize)> {
    let mut next = 0;
    for line in text.split_inclusive('\n') {
        let from = next;
        next += line.len();
        let last = line.match_indices(FENCE).last();
        let Some((at, _)) = last.filter(|_| line.ends_with('\n')) else {
            continue;
        };
        let name = line[at + FENCE.len()..].trim();
        if PYTHON
            .iter()
            .any(|language| name.eq_ignore_ascii_case(language))
        {
            return Some((from + at, next));
        }
    }
    None
}

/// The first line with `Finished:`, possibly bold or a heading: its position and the text after it.
pub(super) fn finished(reply: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    for line in reply.split_inclusive('\n') {
        let words = line.trim_start_matches(['#', '*', '_', '>', ' ', '\t']);
        let is_finished = words
            .get(..8)
            .is_some_and(|w| w.eq_ignore_ascii_case(FINISHED));
        if is_finished {
            let tail = words[8..].trim_start_matches(['*', '_', ' ']);
            if let Some(tail) = tail.strip_prefix([':', '：']) {
                let tail = tail.trim_start_matches(['*', '_']);
                let from = at + line.len() - tail.len();
                let answer = &reply[from..];
                return Some((at, answer.strip_prefix(['\n', ' ']).unwrap_or(answer)));
            }
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const F: PybenchFormat = PybenchFormat;

    #[test]
    fn the_prompt_names_the_tokens_and_words() {
        for word in [START, END, "Finished:"] {
            assert!(SYSTEM.contains(word), "{word}");
        }
        assert_eq!(
            F.parse(SYSTEM),
            Parsed::Cell("# the code of this step"),
            "the prompt's own example is in the format"
        );
    }

    #[test]
    fn cells_are_found_in_every_usual_form() {
        for reply in [
            "Analyse: x\n<|execute_start|>\n```python\nprint(1)\n```\n<|execute_end|>",
            "<|execute_start|>```python\nprint(1)\n```<|execute_end|> and more",
            "<|execute_start|>\nprint(1)\n<|execute_end|>",
            "<|execute_start|>\n```python\nprint(1)\n<|execute_end|>",
            "<|execute_start|>```print(1)```<|execute_end|>",
            "<|execute_start|>```python print(1)```<|execute_end|>",
            "<|execute_start|>\nHere:\n```py\nprint(1)\n```\n<|execute_end|>",
            "Let me see.\n```python\nprint(1)\n```\nThis prints 1.",
            "Let me see: ```Python\nprint(1)```",
            "```text\nno code\n```\n```python\nprint(1)\n```\n```python\nprint(2)\n```",
        ] {
            let parsed = F.parse(reply);
            let cell = match parsed {
                Parsed::Cell(cell) => cell,
                other => panic!("{reply:?}: {other:?}"),
            };
            assert_eq!(cell.trim(), "print(1)", "{reply:?}");
        }
    }

    #[test]
    fn answers_are_distinguished_from_mere_endings() {
        for reply in [
            "Finished: Mean: 3",
            "Analyse: done\n**Finished:** Mean: 3",
            "## Finished\u{ff1a}Mean: 3",
            "finished :\nMean: 3",
        ] {
            assert_eq!(F.parse(reply), Parsed::Answer("Mean: 3"), "{reply:?}");
        }
        assert_eq!(
            F.parse("Finished: run\n```python\nx\n```"),
            Parsed::Answer("run\n```python\nx\n```"),
        );
        assert_eq!(F.parse("I am done."), Parsed::Unfinished("I am done."));
        assert_eq!(
            F.parse("It is finished: yes"),
            Parsed::Unfinished("It is finished: yes")
        );
    }

    #[test]
    fn malformed_replies_say_what_is_wrong() {
        assert_eq!(F.parse(" \n"), Parsed::Malformed(EMPTY));
        for reply in [
            "<|execute_start|>\n```python\nprint(1)",
            "```python\nprint(1)",
        ] {
            assert_eq!(F.parse(reply), Parsed::Malformed(NEVER_CLOSES), "{reply:?}");
        }
    }

    #[test]
    fn tidying_cuts_what_was_made_up_and_restores_the_stop_token() {
        let step = F.write_step("Analyse: a", "x = 1");
        let invented = format!("{step}\n[INFO]This is a Code Interpreter Message:\n1");
        assert_eq!(F.truncate(&invented, false), step);
        let stopped = step.strip_suffix(END).unwrap();
        assert_eq!(F.truncate(stopped, false), step);
        assert_eq!(F.truncate(stopped, true), stopped, "cut by the token limit");
        assert_eq!(
            F.truncate("```python\nx\n```\nIt is 5.", false),
            "```python\nx\n```"
        );
        assert_eq!(F.truncate("Finished: a", false), "Finished: a");
    }

    /// The definition of [`opening`], which reads the rest of the text for each fence.
    fn opening_by_definition(text: &str) -> Option<(usize, usize)> {
        text.match_indices(FENCE).find_map(|(at, _)| {
            let info = &text[at + FENCE.len()..];
            let line = info.find('\n')?;
            let name = info[..line].trim();
            let is_python = PYTHON.iter().any(|p| name.eq_ignore_ascii_case(p));
            is_python.then_some((at, at + FENCE.len() + line + 1))
        })
    }

    proptest! {
        #[test]
        fn the_opening_fence_is_found_as_defined(parts in proptest::collection::vec(prop_oneof![
            Just("`"), Just("```"), Just("````"), Just("python"), Just("PY"), Just(" "), Just("\n"), Just("\r\n"),
            Just("\u{2028}"), Just("x"),
        ], 0..12)) {
            let text = parts.concat();
            prop_assert_eq!(opening(&text), opening_by_definition(&text), "{:?}", text);
        }

        #[test]
        fn a_written_step_parses_back(thought in "[^<`]{0,80}", cell in "(?s).{0,200}") {
            prop_assume!(!cell.contains(END));
            let step = F.write_step(&thought, &cell);
            prop_assert_eq!(F.parse(&step), Parsed::Cell(&cell));
            prop_assert_eq!(F.truncate(&step, false), step);
        }

        #[test]
        fn fences_inside_a_cell_survive(lines in proptest::collection::vec(
            prop_oneof![Just("```"), Just("```python"), Just("x = '''```'''"), Just(""), Just("Finished: no")], 0..8)
        ) {
            let cell = lines.join("\n");
            let step = F.write_step("t", &cell);
            prop_assert_eq!(F.parse(&step), Parsed::Cell(&cell));
        }

        #[test]
        fn a_written_answer_parses_back(answer in "(?s).{0,200}") {
            prop_assume!(!answer.contains(START));
            let reply = F.write_answer(&answer);
            prop_assert_eq!(F.parse(&reply), Parsed::Answer(&answer));
        }

        #[test]
        fn truncation_is_idempotent(parts in proptest::collection::vec(prop_oneof![
            Just(START.to_owned()), Just(END.to_owned()), Just("```python\n".to_owned()), Just("\n```\n".to_owned()),
            Just("Finished:".to_owned()), ".{0,6}",
        ], 0..8), truncated: bool) {
            let once = F.truncate(&parts.concat(), truncated);
            prop_assert_eq!(F.truncate(&once, truncated), once);
        }
    }

    #[test]
    fn fuzz_any_reply_is_parsed_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let reply = String::from_utf8_lossy(bytes);
            let truncated = F.truncate(&reply, false);
            // The truncated reply asks for the same cell.
            if let Parsed::Cell(cell) = F.parse(&reply) {
                assert_eq!(F.parse(&truncated), Parsed::Cell(cell));
            }
        });
    }
}
