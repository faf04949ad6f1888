//! Function calling: cells are calls of `execute_python`, with parallel calls in one reply; observations are tool
//! messages. [`pybench_llm::tool_calls`] describes calls as text.

use serde_json::{Value, json};

use super::pybench::{EMPTY, FINISHED, finished};
use super::{Format, Parsed};
use pybench_llm::tool_calls;
use pybench_llm::tool_calls::ToolCall;
use pybench_types::trajectory::{Message, Role};

const FUNCTION: &str = "execute_python";
/// Maximum number of calls of one reply that are run.
const MAX_CALLS: usize = 16;
const SYSTEM: &str = include_str!("../prompts/tools.jinja");

/// OpenAI's function calling with the one function `execute_python`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolsFormat;

impl Format for ToolsFormat {
    fn name(&self) -> &'static str {
        "tools"
    }

    fn system(&self) -> &'static str {
        SYSTEM.trim_end()
    }

    fn tools(&self) -> Option<Value> {
        Some(json!([{
            "type": "function",
            "function": {
                "name": FUNCTION,
                "description": "Run Python in a notebook that keeps its variables; returns what it printed and its last value.",
                "parameters": {
                    "type": "object",
                    "properties": {"code": {"type": "string", "description": "The code of a cell."}},
                    "required": ["code"],
                    "additionalProperties": false,
                },
            },
        }]))
    }

    fn max_cells(&self) -> usize {
        MAX_CALLS
    }

    fn stop(&self) -> Vec<String> {
        Vec::new()
    }

    fn openings(&self) -> &'static [&'static str] {
        &[tool_calls::OPEN, FINISHED]
    }

    fn format_hint(&self) -> &'static str {
        "Call execute_python with {\"code\": …}, or reply with Finished: and the answer."
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        let parsed = tool_calls::read(reply, MAX_CALLS + 1);
        if parsed.unclosed {
            return Parsed::Malformed("a call never closes");
        }
        if parsed.calls.len() > MAX_CALLS {
            return Parsed::Malformed("too many calls in one reply");
        }
        if !parsed.calls.is_empty() {
            return Parsed::Calls(parsed.calls.iter().map(Option::as_ref).map(cell).collect());
        }
        match finished(reply) {
            Some((_, answer)) => Parsed::Answer(answer),
            None if reply.trim().is_empty() => Parsed::Malformed(EMPTY),
            None => Parsed::Unfinished(reply),
        }
    }

    fn truncate(&self, reply: &str, _truncated: bool) -> String {
        let parsed = tool_calls::read(reply, usize::MAX);
        match parsed.calls.is_empty() || parsed.unclosed {
            true => reply.to_owned(),
            false => reply[..parsed.end].to_owned(),
        }
    }

    fn write_observation(&self, text: &str) -> Message {
        Message::new(Role::Tool, text)
    }

    fn parse_observation<'a>(&self, message: &'a Message) -> Option<&'a str> {
        (message.role == Role::Tool).then_some(&*message.content)
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        tool_calls::write(thought, &[call(cell)])
    }

    fn write_steps(&self, thought: &str, cells: &[String]) -> Option<String> {
        let calls: Vec<_> = cells.iter().map(|cell| call(cell)).collect();
        (1..=MAX_CALLS)
            .contains(&calls.len())
            .then(|| tool_calls::write(thought, &calls))
    }

    fn write_answer(&self, answer: &str) -> String {
        format!("Finished:\n{answer}")
    }
}

fn call(cell: &str) -> ToolCall {
    ToolCall {
        name: FUNCTION.to_owned(),
        arguments: json!({"code": cell}).to_string(),
    }
}

/// The cell of a call.
fn cell(call: Option<&ToolCall>) -> Result<String, &'static str> {
    let call = call.ok_or("the call is not {\"name\": …, \"arguments\": {…}}")?;
    if call.name != FUNCTION {
        return Err("there is no such function");
    }
    let arguments: Value = serde_json::from_str(&call.arguments)
        .map_err(|_| "the arguments of the call are not JSON")?;
    let code = arguments.get("code").and_then(Value::as_str);
    code.map(str::to_owned)
        .ok_or("the arguments of the call hold no text `code`")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const F: ToolsFormat = ToolsFormat;

    #[test]
    fn parallel_calls_are_parsed_in_order() {
        let reply = F.write_steps("I look.", &["a".into(), "b".into()]).unwrap();
        assert_eq!(
            F.parse(&reply),
            Parsed::Calls(vec![Ok("a".into()), Ok("b".into())])
        );
        let broken = [
            ToolCall {
                name: "rm".into(),
                arguments: "{}".into(),
            },
            ToolCall {
                name: FUNCTION.into(),
                arguments: "{\"code\": 1".into(),
            },
            ToolCall {
                name: FUNCTION.into(),
                arguments: "{\"code\": 1}".into(),
            },
        ];
        let Parsed::Calls(asked) = F.parse(&tool_calls::write("", &broken)).to_owned() else {
            panic!("calls");
        };
        let why: Vec<_> = asked.into_iter().map(Result::unwrap_err).collect();
        assert!(why[0].contains("no such") && why[1].contains("JSON") && why[2].contains("`code`"));
        let flood = F.write_step("", "x").repeat(MAX_CALLS + 1);
        assert!(matches!(F.parse(&flood), Parsed::Malformed(_)));
        assert_eq!(F.write_steps("", &vec![String::new(); MAX_CALLS + 1]), None);
    }

    #[test]
    fn answers_and_malformed_replies_are_distinguished() {
        assert_eq!(F.parse("Finished: 4"), Parsed::Answer("4"));
        assert_eq!(F.parse("It is 4."), Parsed::Unfinished("It is 4."));
        assert_eq!(F.parse(""), Parsed::Malformed(EMPTY));
        let cut = "I look.\n<tool_call>\n{\"name\": \"exe";
        assert!(matches!(F.parse(cut), Parsed::Malformed(_)));
        let step = F.write_step("I look.", "x");
        assert_eq!(F.truncate(&format!("{step}\nIt printed 4."), false), step);
    }

    proptest! {
        #[test]
        fn written_replies_parse_back(thought in "[^<]{0,60}", cell in "(?s).{0,200}|</tool_call>") {
            let step = F.write_step(&thought, &cell);
            prop_assert_eq!(F.parse(&step), Parsed::Calls(vec![Ok(cell)]));
            prop_assert_eq!(F.truncate(&step, false), step);
        }
    }

    #[test]
    fn fuzz_any_reply_is_parsed_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let reply = String::from_utf8_lossy(bytes);
            let tidy = F.truncate(&reply, false);
            if let Parsed::Calls(calls) = F.parse(&reply) {
                assert_eq!(F.parse(&tidy), Parsed::Calls(calls));
            }
        });
    }
}
