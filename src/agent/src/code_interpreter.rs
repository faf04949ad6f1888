//! Llama 3.1's built-in code interpreter: a step is `<|python_tag|>` and a cell, observations are messages of the role
//! `ipython`. Meta's `ChatFormat` (PyPI `llama-models`) is the reference.
//!
//! Messages are text here. The chat template of the model writes the control tokens: `<|eom_id|>` after a cell,
//! `<|eot_id|>` after an answer, and the role `ipython` for tool messages.

use serde_json::Value;

use super::pybench::{EMPTY, FENCE, FINISHED, finished, unfence};
use super::text::is_failure;
use super::{Format, Parsed};
use pybench_llm::tool_calls::{self, PYTHON_TAG, ToolCall};
use pybench_types::trajectory::{Message, Role};

/// Names under which endpoints return the built-in interpreter as a tool call: llama-stack, llama.cpp and vLLM.
const INTERPRETERS: [&str; 3] = ["code_interpreter", "python", "ipython"];
/// Ends of a message, which some endpoints leave in the reply.
const ENDS: [&str; 2] = ["<|eom_id|>", "<|eot_id|>"];
const SYSTEM: &str = include_str!("../prompts/code_interpreter.jinja");

/// The format of Llama 3.1's built-in code interpreter. A reply with code has no other text: thoughts are comments.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeInterpreterFormat;

impl Format for CodeInterpreterFormat {
    fn name(&self) -> &'static str {
        "code_interpreter"
    }

    fn system(&self) -> &'static str {
        SYSTEM.trim_end()
    }

    fn stop(&self) -> Vec<String> {
        Vec::new()
    }

    fn openings(&self) -> &'static [&'static str] {
        &[PYTHON_TAG, tool_calls::OPEN, FINISHED]
    }

    fn has_thoughts(&self) -> bool {
        false
    }

    fn format_hint(&self) -> &'static str {
        "Reply with one cell of Python, or with Finished: and the answer."
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        if let Some((_, body)) = split(reply) {
            let cell = match body.trim_start().starts_with(FENCE) {
                true => unfence(body),
                false => body,
            };
            return match cell.trim().is_empty() {
                true => Parsed::Malformed("the cell is empty"),
                false => Parsed::Cell(cell),
            };
        }
        let called = tool_calls::read(reply, 1);
        if called.unclosed {
            return Parsed::Malformed("a call never closes");
        }
        if let Some(call) = called.calls.first() {
            return Parsed::Calls(vec![code(call.as_ref())]);
        }
        match finished(reply) {
            Some((_, answer)) => Parsed::Answer(answer),
            None if reply.trim().is_empty() => Parsed::Malformed(EMPTY),
            None => Parsed::Unfinished(reply),
        }
    }

    /// A cell that an endpoint returned as a tool call, or after other text, is written as the format has it.
    fn truncate(&self, reply: &str, _truncated: bool) -> String {
        let reply = without_ends(reply);
        if let Some((thought, body)) = split(reply) {
            return self.write_step(thought, body);
        }
        let called = tool_calls::read(reply, 1);
        match called.calls.first().map(|call| code(call.as_ref())) {
            Some(Ok(cell)) => self.write_step(called.text, &cell),
            Some(Err(_)) => reply[..called.end].to_owned(),
            None => reply.to_owned(),
        }
    }

    /// As Meta's agents write it: whether the cell ran, and its output between `[stdout]` and `[/stdout]`.
    fn write_observation(&self, text: &str) -> Message {
        let content = match (text.is_empty(), is_failure(text)) {
            (true, _) => COMPLETED.to_owned(),
            (_, false) => format!("{COMPLETED}{STDOUT}{text}{END_STDOUT}"),
            (_, true) => format!("{FAILED}{STDERR}{text}{END_STDERR}"),
        };
        Message::new(Role::Tool, content)
    }

    fn parse_observation<'a>(&self, message: &'a Message) -> Option<&'a str> {
        let content = (message.role == Role::Tool).then_some(&*message.content)?;
        let between = |status, start, end| {
            let rest: &str = content.strip_prefix(status)?;
            rest.strip_prefix(start)?.strip_suffix(end)
        };
        let plain = match content == COMPLETED {
            true => "",
            false => content,
        };
        between(COMPLETED, STDOUT, END_STDOUT)
            .or_else(|| between(FAILED, STDERR, END_STDERR))
            .or(Some(plain))
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        format!("{PYTHON_TAG}{}", with_comment(thought, cell))
    }

    fn write_answer(&self, answer: &str) -> String {
        format!("Finished:\n{answer}")
    }
}

const COMPLETED: &str = "completed";
const FAILED: &str = "error";
const STDOUT: &str = "\n[stdout]\n";
const END_STDOUT: &str = "\n[/stdout]";
const STDERR: &str = "\n[stderr]\n";
const END_STDERR: &str = "\n[/stderr]";

/// The text before a cell, and the cell. The text of an answer may contain the tag.
fn split(reply: &str) -> Option<(&str, &str)> {
    let parts = reply.split_once(PYTHON_TAG)?;
    finished(parts.0).is_none().then_some(parts)
}

/// The reply without ends of a message after it.
fn without_ends(mut reply: &str) -> &str {
    let end = |reply: &str| {
        let reply = reply.trim_end();
        let ended = ENDS.iter().find(|end| reply.ends_with(**end))?;
        Some(reply.len() - ended.len())
    };
    while let Some(end) = end(reply) {
        reply = &reply[..end];
    }
    reply
}

/// The cell with a thought as a comment at its top. A cell magic must stay at the top; there the thought is dropped.
pub(super) fn with_comment(thought: &str, cell: &str) -> String {
    let thought = thought.trim();
    if thought.is_empty() || cell.trim_start().starts_with("%%") {
        return cell.to_owned();
    }
    let comment = thought
        .split(['\n', '\r'])
        .map(|line| format!("# {line}").trim_end().to_owned() + "\n");
    comment.collect::<String>() + cell
}

/// The code of a tool call.
fn code(call: Option<&ToolCall>) -> Result<String, &'static str> {
    let call = call.ok_or("the call is not {\"name\": …, \"arguments\": {…}}")?;
    if !INTERPRETERS.contains(&&*call.name) {
        return Err("there is no such tool");
    }
    let arguments: Option<Value> = serde_json::from_str(&call.arguments).ok();
    let code = arguments.as_ref().and_then(|all| all["code"].as_str());
    code.map(str::to_owned)
        .ok_or("the arguments of the call hold no text `code`")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const F: CodeInterpreterFormat = CodeInterpreterFormat;

    fn call(name: &str, arguments: Value) -> String {
        let call = ToolCall {
            name: name.into(),
            arguments: arguments.to_string(),
        };
        tool_calls::write("", &[call])
    }

    #[test]
    fn replies_of_every_endpoint_become_one_form() {
        let canonical = "<|python_tag|>print(1)";
        for reply in [
            canonical.to_owned(),
            format!("{canonical}<|eom_id|>"),
            format!("{canonical}<|eot_id|>\n"),
            call("code_interpreter", json!({"code": "print(1)"})),
            call("python", json!({"code": "print(1)"})),
        ] {
            assert_eq!(F.truncate(&reply, false), canonical, "{reply}");
        }
        assert_eq!(F.parse(canonical), Parsed::Cell("print(1)"));
        let fenced = "<|python_tag|>\n```python\nprint(1)\n```";
        assert_eq!(F.parse(fenced), Parsed::Cell("print(1)"));
        assert_eq!(
            F.truncate("I look.\n\nThen I print.<|python_tag|>print(1)", false),
            "<|python_tag|># I look.\n#\n# Then I print.\nprint(1)"
        );
        assert_eq!(
            F.write_step("I time it.", "%%time\nx"),
            "<|python_tag|>%%time\nx"
        );
    }

    #[test]
    fn answers_and_malformed_replies_are_distinguished() {
        assert_eq!(F.parse("Finished: 4"), Parsed::Answer("4"));
        assert_eq!(F.truncate("Finished: 4<|eot_id|>", false), "Finished: 4");
        let spelled = "Finished: code starts with <|python_tag|>.";
        assert_eq!(F.truncate(spelled, false), spelled);
        assert!(matches!(F.parse(spelled), Parsed::Answer(_)));
        assert_eq!(F.parse("It is 4."), Parsed::Unfinished("It is 4."));
        assert_eq!(F.parse(" "), Parsed::Malformed(EMPTY));
        for bad in [
            "<|python_tag|> \n".to_owned(),
            "<tool_call>\n{\"name\"".into(),
        ] {
            assert!(matches!(F.parse(&bad), Parsed::Malformed(_)), "{bad}");
        }
        for bad in [
            call("brave_search", json!({"query": "pi"})),
            call("python", json!({"query": "pi"})),
        ] {
            let Parsed::Calls(calls) = F.parse(&bad) else {
                panic!("{bad}");
            };
            assert!(calls[0].is_err(), "{bad}");
        }
    }

    #[test]
    fn observations_say_whether_the_cell_ran() {
        let written = |text: &str| F.write_observation(text).content;
        assert_eq!(written("4\n"), "completed\n[stdout]\n4\n\n[/stdout]");
        assert_eq!(written(""), "completed");
        let error = "1\nThere are some errors in the code. All variables in this cell should be redefined. Please Debug:\nError: KeyError\n'x'\n";
        assert_eq!(
            written(error),
            format!("error\n[stderr]\n{error}\n[/stderr]")
        );
        let other = Message::new(Role::Tool, "{\"result\": 4}");
        assert_eq!(F.parse_observation(&other), Some("{\"result\": 4}"));
    }

    proptest! {
        #[test]
        fn written_messages_parse_back(cell in "(?s).{0,200}", answer in "(?s).{0,100}", text in "(?s).{0,100}") {
            prop_assume!(!cell.trim().is_empty() && !cell.contains(FENCE));
            let (step, said) = (F.write_step("", &cell), F.write_answer(&answer));
            prop_assert_eq!(F.parse(&step), Parsed::Cell(&cell));
            prop_assert_eq!(F.parse(&said), Parsed::Answer(&answer));
            let seen = F.write_observation(&text);
            prop_assert_eq!(F.parse_observation(&seen), Some(&*text));
        }

        #[test]
        fn a_thought_is_a_comment(thought in "(?s).{0,60}", cell in "[a-z]{1,9}") {
            let step = F.write_step(&thought, &cell);
            let Parsed::Cell(found) = F.parse(&step) else { panic!("{step}") };
            let code: Vec<_> = found.split(['\n', '\r']).filter(|line| !line.starts_with('#')).collect();
            prop_assert_eq!(code, [cell]);
        }
    }

    #[test]
    fn fuzz_any_reply_is_parsed_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let reply = String::from_utf8_lossy(bytes);
            let kept = F.truncate(&reply, false);
            F.parse(&reply).cells();
            if let Parsed::Cell(cell) = F.parse(&kept) {
                assert!(kept.starts_with(PYTHON_TAG) && kept.contains(cell));
            }
        });
    }
}
