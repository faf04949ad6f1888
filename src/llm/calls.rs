//! Calls of functions as text, and as OpenAI's endpoints have them.
//!
//! Messages are text in every format, so that rows of every format can be rendered and trained on. A
//! call stands in it as `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>`, one block per call,
//! after what was said. On its way to an endpoint it becomes one of the message's `tool_calls`, and the
//! messages of the tool that follow get its id. Ids say nothing but the place of a call: they are made
//! here and never kept.

use serde_json::{Value, json};

use crate::trajectory::{Message, Role};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// The end of a block inside a string of its JSON.
const ESCAPED: &str = "\\u003c/tool_call>";

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub name: String,
    /// JSON, if the model kept to the protocol.
    pub arguments: String,
}

/// What a reply in text holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken<'a> {
    /// What is said before the first call.
    pub said: &'a str,
    /// The calls; `None` for a block that is none.
    pub calls: Vec<Option<Call>>,
    /// Byte after the last block.
    pub end: usize,
    /// Whether the last block never closes; it is not among the calls.
    pub open: bool,
}

impl Call {
    /// The call as a block of text.
    pub fn write(&self) -> String {
        let arguments = match serde_json::from_str::<Value>(&self.arguments) {
            Ok(arguments @ Value::Object(_)) => arguments,
            // Kept as it came.
            _ => Value::String(self.arguments.clone()),
        };
        let call = json!({"name": self.name, "arguments": arguments}).to_string();
        format!("{OPEN}\n{}\n{CLOSE}", call.replace(CLOSE, ESCAPED))
    }

    fn read(block: &str) -> Option<Self> {
        let call: Value = serde_json::from_str(block).ok()?;
        let name = call.get("name")?.as_str()?.to_owned();
        let arguments = match call.get("arguments")? {
            Value::String(text) => text.clone(),
            object @ Value::Object(_) => object.to_string(),
            _ => return None,
        };
        Some(Self { name, arguments })
    }
}

/// The blocks of a reply, at most `most` of them.
pub fn read(reply: &str, most: usize) -> Spoken<'_> {
    let first = reply.find(OPEN).unwrap_or(reply.len());
    let said = &reply[..first];
    let mut spoken = Spoken {
        said: said.strip_suffix('\n').unwrap_or(said),
        calls: Vec::new(),
        end: first,
        open: false,
    };
    while let Some(at) = reply[spoken.end..].find(OPEN) {
        let body = spoken.end + at + OPEN.len();
        let Some(length) = reply[body..].find(CLOSE) else {
            spoken.open = true;
            break;
        };
        if spoken.calls.len() >= most {
            break;
        }
        spoken.calls.push(Call::read(&reply[body..body + length]));
        spoken.end = body + length + CLOSE.len();
    }
    spoken
}

/// A reply in text: what is said, then the calls.
pub fn write(said: &str, calls: &[Call]) -> String {
    let blocks: Vec<_> = calls.iter().map(Call::write).collect();
    match blocks.is_empty() {
        true => said.to_owned(),
        false => format!("{said}\n{}", blocks.join("\n")),
    }
}

/// Most calls of one message that are sent as such.
const MOST: usize = 64;

/// Messages as an endpoint takes them. Calls are sent as calls where every one of them is answered;
/// otherwise they stay text, and what answers them is said by the user: endpoints refuse anything else.
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
            Some((said, calls)) => {
                let id = |n: usize| format!("call{:03}{n:02}", wire.len() % 1000);
                let ids: Vec<_> = (0..calls.len()).map(id).collect();
                wire.push(with_calls(said, &calls, &ids));
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

fn calls_of(message: &Message, answers: usize) -> Option<(&str, Vec<Call>)> {
    let spoken = read(&message.content, MOST);
    let calls: Vec<Call> = spoken.calls.into_iter().collect::<Option<_>>()?;
    (!calls.is_empty() && !spoken.open && calls.len() == answers).then_some((spoken.said, calls))
}

fn with_calls(said: &str, calls: &[Call], ids: &[String]) -> Value {
    let calls = ids.iter().zip(calls).map(|(id, call)| {
        let function = json!({"name": call.name, "arguments": call.arguments});
        json!({"id": id, "type": "function", "function": function})
    });
    let content = (!said.is_empty()).then_some(said);
    json!({"role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(arguments: &str) -> Call {
        Call {
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
            "some endpoints insist"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            said in "(?s)[^<]{0,40}",
            codes in proptest::collection::vec("(?s).{0,60}|(</?tool_call>|[\\n\"\\\\<]){0,4}", 1..4),
        ) {
            prop_assume!(!said.ends_with('\n'));
            let call = |code: &String| call(&json!({"code": code}).to_string());
            let calls: Vec<_> = codes.iter().map(call).collect();
            let text = write(&said, &calls);
            let spoken = read(&text, 64);
            prop_assert_eq!(spoken.said, &said);
            prop_assert_eq!(spoken.calls, calls.into_iter().map(Some).collect::<Vec<_>>());
            prop_assert!(!spoken.open && spoken.end == text.len());
        }
    }

    #[test]
    fn fuzz_blocks_are_read_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let spoken = read(&text, 4);
            assert!(spoken.calls.len() <= 4 && text.is_char_boundary(spoken.end));
            to_wire(&[
                Message::new(Role::Assistant, text),
                Message::new(Role::Tool, ""),
            ]);
        });
    }
}
