//! Tool calls as text, and in the wire format of OpenAI endpoints.
//!
//! Messages are plain text in every format, so that rows of every format can be rendered and trained on. A
//! tool call is a block `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>` after the text of the
//! message. For an endpoint it becomes an entry of the message's `tool_calls`, and the tool messages that
//! follow get its id. The ids only encode positions; they are generated here and not stored.

use serde_json::{Value, json};

use pybench_chat_template::{CallBlock, call_fields};
use pybench_types::trajectory::{Message, Role};

pub use pybench_chat_template::PYTHON_TAG;

/// Begins a call.
pub const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// The closing tag, escaped for use inside a JSON string of the block.
const ESCAPED: &str = "\\u003c/tool_call>";

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Arguments; JSON, if the model followed the protocol.
    pub arguments: String,
}

/// The parsed text of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedReply<'a> {
    /// Text before the first call.
    pub text: &'a str,
    /// The calls; `None` for a malformed block.
    pub calls: Vec<Option<ToolCall>>,
    /// Byte offset after the last block.
    pub end: usize,
    /// Whether the last block is not closed; such a block is not among the calls.
    pub unclosed: bool,
}

impl ToolCall {
    /// Formats the call as a block.
    pub fn write(&self) -> String {
        let arguments = match serde_json::from_str::<Value>(&self.arguments) {
            Ok(arguments @ Value::Object(_)) => arguments,
            // Kept verbatim.
            _ => Value::String(self.arguments.clone()),
        };
        let call = json!({"name": self.name, "arguments": arguments}).to_string();
        format!("{OPEN}\n{}\n{CLOSE}", call.replace(CLOSE, ESCAPED))
    }

    fn read(block: &str) -> Option<Self> {
        let call: Value = serde_json::from_str(block).ok()?;
        let (name, arguments) = call_fields(&call)?;
        let arguments = match arguments {
            None => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            Some(_) => return None,
        };
        let name = name.to_owned();
        Some(Self { name, arguments })
    }
}

/// Parses the blocks of a reply, at most `most` of them.
pub fn read(reply: &str, most: usize) -> ParsedReply<'_> {
    let first = reply.find(OPEN).unwrap_or(reply.len());
    let text = &reply[..first];
    let mut parsed = ParsedReply {
        text: text.strip_suffix('\n').unwrap_or(text),
        calls: Vec::new(),
        end: first,
        unclosed: false,
    };
    while let Some(block) = CallBlock::find(reply, parsed.end) {
        let Some(end) = block.end else {
            parsed.unclosed = true;
            break;
        };
        if parsed.calls.len() >= most {
            break;
        }
        parsed.calls.push(ToolCall::read(&reply[block.body]));
        parsed.end = end;
    }
    parsed
}

/// Formats a reply: the text, then the calls.
pub fn write(text: &str, calls: &[ToolCall]) -> String {
    let blocks: Vec<_> = calls.iter().map(ToolCall::write).collect();
    match blocks.is_empty() {
        true => text.to_owned(),
        false => format!("{text}\n{}", blocks.join("\n")),
    }
}

/// Maximum number of calls of a message that are sent as tool calls.
const MAX_CALLS: usize = 64;

/// Converts messages to the wire format. Calls are sent as tool calls if every one of them is answered.
/// Otherwise they stay text and their answers become user messages, because endpoints reject anything else.
pub(super) fn to_wire(messages: &[Message]) -> Vec<Value> {
    let mut wire = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((message, after)) = rest.split_first() {
        let answers = after.iter().take_while(|m| m.role == Role::Tool).count();
        let (answers, next) = after.split_at(answers);
        rest = next;
        let calls = match message.role {
            Role::Assistant => calls_of(message, answers.len()),
            _ => None,
        };
        match calls {
            Some((text, calls)) => {
                let id = |n: usize| format!("call{:03}{n:02}", wire.len() % 1000);
                let ids: Vec<_> = (0..calls.len()).map(id).collect();
                wire.push(with_calls(text, &calls, &ids));
                wire.extend(ids.iter().zip(answers).map(|(id, answer)| {
                    json!({"role": "tool", "tool_call_id": id, "content": answer.content})
                }));
            }
            None => {
                let role = match message.role {
                    Role::Tool => Role::User,
                    role => role,
                };
                wire.push(json!({"role": role, "content": message.content}));
                let plain = |m: &Message| json!({"role": Role::User, "content": m.content});
                wire.extend(answers.iter().map(plain));
            }
        }
    }
    wire
}

fn calls_of(message: &Message, answers: usize) -> Option<(&str, Vec<ToolCall>)> {
    let parsed = read(&message.content, MAX_CALLS);
    let calls: Vec<ToolCall> = parsed.calls.into_iter().collect::<Option<_>>()?;
    (!calls.is_empty() && !parsed.unclosed && calls.len() == answers)
        .then_some((parsed.text, calls))
}

fn with_calls(text: &str, calls: &[ToolCall], ids: &[String]) -> Value {
    let calls = ids.iter().zip(calls).map(|(id, call)| {
        let function = json!({"name": call.name, "arguments": call.arguments});
        json!({"id": id, "type": "function", "function": function})
    });
    let content = (!text.is_empty()).then_some(text);
    json!({"role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall {
            name: "f".into(),
            arguments: arguments.into(),
        }
    }

    #[test]
    fn answered_calls_are_sent_as_calls_and_others_as_text() {
        let reply = write("I look.", &[call(r#"{"code":"a"}"#), call("not JSON")]);
        let tool = |text: &str| Message::new(Role::Tool, text);
        let messages = [
            Message::new(Role::User, "Do it."),
            Message::new(Role::Assistant, reply.clone()),
            tool("1"),
            tool("2"),
            Message::new(Role::Assistant, reply),
            tool("3"),
        ];
        let wire = to_wire(&messages);
        let calls = wire[1]["tool_calls"].as_array().unwrap();
        assert_eq!(wire[1]["content"], "I look.");
        assert_eq!(calls[0]["function"]["arguments"], r#"{"code":"a"}"#);
        assert_eq!(calls[1]["function"]["arguments"], "not JSON");
        for (call, answer, text) in [(0, 2, "1"), (1, 3, "2")] {
            assert_eq!(wire[answer]["tool_call_id"], calls[call]["id"]);
            assert_eq!(wire[answer]["content"], text);
            assert_eq!(wire[answer]["role"], "tool");
        }
        assert!(
            wire[4].get("tool_calls").is_none(),
            "one of two is answered"
        );
        assert_eq!(wire[5]["role"], "user");
        assert_ne!(calls[0]["id"], calls[1]["id"]);
        assert_eq!(
            calls[0]["id"].as_str().unwrap().len(),
            9,
            "some endpoints require nine characters"
        );
    }

    proptest! {
        #[test]
        fn written_replies_parse_back(
            thought in "(?s)[^<]{0,40}",
            codes in proptest::collection::vec("(?s).{0,60}|(</?tool_call>|[\\n\"\\\\<]){0,4}", 1..4),
        ) {
            prop_assume!(!thought.ends_with('\n'));
            let call = |code: &String| call(&json!({"code": code}).to_string());
            let calls: Vec<_> = codes.iter().map(call).collect();
            let text = write(&thought, &calls);
            let parsed = read(&text, 64);
            prop_assert_eq!(parsed.text, &thought);
            prop_assert_eq!(parsed.calls, calls.into_iter().map(Some).collect::<Vec<_>>());
            prop_assert!(!parsed.unclosed && parsed.end == text.len());
        }
    }

    #[test]
    fn fuzz_parsing_blocks_does_not_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let parsed = read(&text, 4);
            assert!(parsed.calls.len() <= 4 && text.is_char_boundary(parsed.end));
            to_wire(&[
                Message::new(Role::Assistant, text),
                Message::new(Role::Tool, ""),
            ]);
        });
    }
}
