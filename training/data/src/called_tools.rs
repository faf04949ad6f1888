//! Tool calls as text of a message, and as its `tool_calls`.
//!
//! Our own shards and datasets in Hermes' format have calls as `<tool_call>` blocks in the content, so that any
//! template can render them. A template that has a syntax of its own for calls gets them as `tool_calls`: the model
//! learns the words that it will write when a server offers it the tools. A template without one gets text.

use pybench_chat_template::{CallParser, CallSyntax, CallableTools, Chat, Message, ReplyPart};
use serde_json::{Value, json};

/// The messages with `tool_calls`. `None` if no message writes a call as text. A call that is malformed or has no
/// result stays text, and its results become messages of the user, because templates refuse anything else.
pub(crate) fn with_tool_calls(chat: Chat<'_>) -> Option<Vec<Message>> {
    let writes_call = |m: &Message| m.is_assistant() && m.content.contains("<tool_call>");
    let structured = chat.messages.iter().any(|m| !m.tool_calls.is_empty());
    if chat.tools.is_empty() || structured || !chat.messages.iter().any(writes_call) {
        return None;
    }
    let mut messages = Vec::with_capacity(chat.messages.len());
    let mut rest = chat.messages;
    while let Some((message, after)) = rest.split_first() {
        let results = after.iter().take_while(|m| m.role == "tool").count();
        let (results, next) = after.split_at(results);
        rest = next;
        let calls = match message.is_assistant() {
            true => calls_of(message, results.len(), messages.len()),
            false => None,
        };
        match calls {
            Some(calling) => {
                let ids: Vec<Value> = calling.tool_calls.iter().map(|c| c["id"].clone()).collect();
                messages.push(calling);
                messages.extend(results.iter().zip(ids).map(|(result, id)| Message {
                    tool_call_id: id.as_str().map(str::to_owned),
                    ..result.clone()
                }));
            }
            None => {
                messages.push(as_user(message));
                messages.extend(results.iter().map(as_user));
            }
        }
    }
    Some(messages)
}

fn as_user(message: &Message) -> Message {
    let role = match message.role.as_str() {
        "tool" => "user",
        role => role,
    };
    Message {
        role: role.to_owned(),
        ..message.clone()
    }
}

/// The message `number` with its calls, if there is a result for each.
fn calls_of(message: &Message, results: usize, number: usize) -> Option<Message> {
    let parts = CallParser::split(CallSyntax::Tags, CallableTools::Any, &message.content);
    let (mut content, mut calls) = (String::new(), vec![]);
    for part in parts {
        match part {
            ReplyPart::Text(text) if calls.is_empty() => content = text,
            ReplyPart::Text(_) => return None,
            ReplyPart::Call(call) => {
                // Some templates require nine characters.
                let id = format!("call{:03}{:02}", number % 1000, calls.len() % 100);
                let function = json!({"name": call.name, "arguments": call.arguments});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
        }
    }
    let complete = !calls.is_empty() && calls.len() == results;
    (complete && !content.contains("<tool_call>")).then(|| Message {
        tool_calls: calls,
        weight: message.weight,
        ..Message::new(&message.role, content)
    })
}

/// The messages with their calls as text, for templates that do not write calls.
pub fn with_calls_as_text(messages: &[Message]) -> Vec<Message> {
    let block = |call: &Value| {
        let call = call.get("function").unwrap_or(call);
        let call = json!({"name": call["name"], "arguments": call["arguments"]}).to_string();
        // The closing tag inside of a JSON string.
        let call = call.replace("</tool_call>", "\\u003c/tool_call>");
        format!("\n<tool_call>\n{call}\n</tool_call>")
    };
    let message = |message: &Message| Message {
        content: message
            .tool_calls
            .iter()
            .map(block)
            .fold(message.content.clone(), |a, b| a + &b),
        tool_calls: vec![],
        ..message.clone()
    };
    messages.iter().map(message).collect()
}

/// What a reply with a call as text starts with.
pub fn opening_of_text_call(name: Option<&str>) -> String {
    let arguments = name.map(|name| format!("{name}\",\"arguments\":"));
    "\n<tool_call>\n{\"name\":\"".to_owned() + &arguments.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(contents: &[(&str, &str)]) -> Vec<Message> {
        let message = |&(role, content): &(&str, &str)| Message::new(role, content);
        contents.iter().map(message).collect()
    }

    const CALL: &str = "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"code\":\"a\"}}\n</tool_call>";

    #[test]
    fn answered_calls_become_tool_calls_and_others_stay_text() {
        let two = format!("I look.\n{CALL}\n{CALL}");
        let malformed = "<tool_call>\nf\n</tool_call>";
        let given = messages(&[
            ("user", "Do it."),
            ("assistant", &two),
            ("tool", "1"),
            ("tool", "2"),
            ("assistant", malformed),
            ("tool", "no JSON"),
            ("assistant", &two),
        ]);
        let tools = [json!({})];
        let found = with_tool_calls(Chat::new(&given, &tools)).unwrap();
        assert_eq!(found.len(), given.len());
        assert_eq!(found[1].content, "I look.");
        let call = &found[1].tool_calls[1];
        assert_eq!(
            call["function"],
            json!({"name": "f", "arguments": {"code": "a"}})
        );
        assert_eq!(found[3].tool_call_id.as_deref(), call["id"].as_str());
        assert_eq!(call["id"].as_str().map(str::len), Some(9));
        assert_eq!(found[4], given[4]);
        assert_eq!(found[5], Message::new("user", "no JSON"));
        assert_eq!(found[6], given[6], "nobody answers these calls");
    }

    #[test]
    fn calls_become_text_again() {
        let two = format!("I look.\n{CALL}\n{CALL}");
        let alone = format!("\n{}", CALL.replace("\"a\"", "\"'\\u003c/tool_call>'\""));
        let given = messages(&[
            ("assistant", &two),
            ("tool", "1"),
            ("tool", "2"),
            ("assistant", &alone),
            ("tool", "3"),
        ]);
        let tools = [json!({})];
        let structured = with_tool_calls(Chat::new(&given, &tools)).unwrap();
        let text = with_calls_as_text(&structured);
        for (given, text) in given.iter().zip(&text) {
            assert_eq!(given.content, text.content);
        }
        assert!(alone.starts_with(&opening_of_text_call(Some("f"))));
        assert!(alone.starts_with(&opening_of_text_call(None)));
    }

    #[test]
    fn rows_without_tools_or_with_tool_calls_stay_as_they_are() {
        let given = messages(&[("assistant", CALL), ("tool", "1")]);
        assert_eq!(with_tool_calls(Chat::from(&given)), None);
        let tools = [json!({})];
        let mut structured = given.clone();
        structured[0].tool_calls = vec![json!({"name": "f"})];
        assert_eq!(with_tool_calls(Chat::new(&structured, &tools)), None);
        let text = messages(&[("assistant", "a"), ("tool", CALL)]);
        assert_eq!(with_tool_calls(Chat::new(&text, &tools)), None);
    }
}
