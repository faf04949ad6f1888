//! What a schema can say of a conversation, and how it says it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Call, Conversation, Said, Schema, Speaker};

/// Names of what a schema could not say.
pub type Lost = BTreeSet<&'static str>;

/// Names of what schemas write beside the messages themselves.
pub(super) const TAKEN: [&str; 8] = [
    "messages",
    "conversations",
    "tools",
    "tool_choices",
    "id",
    "type",
    "harness",
    "prompt_id",
];

impl Schema {
    /// The conversation as this schema can say it, and names of what it cannot.
    pub fn fit(self, conversation: &Conversation) -> (Conversation, Lost) {
        let can = self.abilities();
        let mut lost = Lost::new();
        let mut fitted = conversation.clone();
        if !can.id && fitted.id.take().is_some() {
            lost.insert("id");
        }
        if fitted.id.is_none() && can.id {
            // A schema with a name for each conversation has to have one.
            fitted.id = Some(String::new());
        }
        if !can.tools && !fitted.tools.is_null() {
            fitted.tools = Value::Null;
            lost.insert("tools");
        }
        let keep = |name: &String| can.beside && !TAKEN.contains(&name.as_str());
        let before = fitted.beside.len();
        fitted.beside.retain(|name, _| keep(name));
        if fitted.beside.len() < before {
            lost.insert("columns beside the messages");
        }
        fitted.messages = self.messages(fitted.messages, &mut lost);
        (fitted, lost)
    }

    fn messages(self, messages: Vec<Said>, lost: &mut Lost) -> Vec<Said> {
        let can = self.abilities();
        let mut fitted: Vec<Said> = Vec::with_capacity(messages.len());
        let mut system: Option<String> = None;
        for mut said in messages {
            if !can.reasoning && said.reasoning.take().is_some() {
                lost.insert("reasoning");
            }
            if !can.calls && !said.calls.is_empty() {
                said.content = in_words(&said);
                said.calls.clear();
                lost.insert("calls of tools (written as text)");
            }
            if !can.call_ids {
                let named = said.calls.iter_mut().filter(|call| !call.id.is_empty());
                let named = named.map(|call| call.id.clear()).count();
                if said.answers.take().is_some() || named > 0 {
                    lost.insert("names of calls");
                }
            }
            if !can.tool && said.speaker == Speaker::Tool {
                said.speaker = Speaker::User;
                said.answers = None;
                lost.insert("the speaker of observations (written as the user's)");
            }
            if !can.system && said.speaker == Speaker::System {
                lost.insert("the system prompt (written before the user's first words)");
                let before = system.take().map_or(String::new(), |text| text + "\n\n");
                system = Some(before + &said.content);
                continue;
            }
            if said.speaker == Speaker::User
                && let Some(prompt) = system.take()
            {
                said.content = format!("{prompt}\n\n{}", said.content);
            }
            fitted.push(said);
        }
        if let Some(prompt) = system {
            fitted.push(Said::new(Speaker::User, prompt));
        }
        fitted
    }

    /// The conversation as rows of this schema (one; for traces a line each), and names of what it
    /// cannot say.
    pub fn write(self, conversation: &Conversation) -> (Vec<Value>, Lost) {
        let (fitted, lost) = self.fit(conversation);
        let id = fitted.id.clone().unwrap_or_default();
        let messages = |message: fn(&Said) -> Value| -> Vec<Value> {
            fitted.messages.iter().map(message).collect()
        };
        let rows = match self {
            Self::Pyinstruct => vec![json!({
                "messages": messages(plain),
                "tools": as_text(&fitted.tools),
                "tool_choices": "auto",
            })],
            Self::CodeAct => vec![json!({"id": id, "conversations": messages(plain)})],
            Self::CodeFeedback => vec![json!({"id": id, "messages": messages(plain)})],
            Self::Ultrachat => {
                let first = fitted.messages.iter().find(|m| m.speaker == Speaker::User);
                let prompt = first.map_or("", |said| said.content.as_str());
                vec![json!({"prompt": prompt, "prompt_id": id, "messages": messages(plain)})]
            }
            Self::JupyterAgent => {
                let mut row = fitted.beside.clone();
                row.insert("id".into(), id.into());
                row.insert("messages".into(), messages(with_objects).into());
                row.insert("tools".into(), fitted.tools.clone());
                vec![row.into()]
            }
            Self::Upstream => {
                let mut row = fitted.beside.clone();
                row.entry("index").or_insert_with(|| id.clone().into());
                row.insert("id".into(), id.into());
                row.insert("messages".into(), messages(plain).into());
                vec![row.into()]
            }
            Self::Conversations => {
                let mut before = None;
                let said = fitted.messages.iter().flat_map(|said| {
                    let follows = before.replace(said.speaker) == Some(said.speaker);
                    shared(said, follows)
                });
                let mut row = Map::new();
                row.insert("id".into(), id.into());
                row.insert("conversations".into(), said.collect::<Vec<_>>().into());
                if !fitted.tools.is_null() {
                    row.insert("tools".into(), as_text(&fitted.tools));
                }
                vec![row.into()]
            }
            Self::Openai => {
                let mut row = Map::new();
                row.insert("id".into(), id.into());
                row.insert("messages".into(), messages(with_texts).into());
                if !fitted.tools.is_null() {
                    row.insert("tools".into(), fitted.tools.clone());
                }
                vec![row.into()]
            }
            Self::Traces => traces(&fitted, id),
        };
        (rows, lost)
    }
}

fn as_text(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        other => other.to_string().into(),
    }
}

pub(super) fn role(speaker: Speaker) -> &'static str {
    match speaker {
        Speaker::System => "system",
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
        Speaker::Tool => "tool",
    }
}

fn plain(said: &Said) -> Value {
    json!({"role": role(said.speaker), "content": said.content})
}

/// A call as a block of code, or as JSON where it is no code.
fn in_words(said: &Said) -> String {
    let mut text = said.content.clone();
    for call in &said.calls {
        if !text.is_empty() {
            text.push('\n');
        }
        let code = call.arguments.get("code").and_then(Value::as_str);
        text += &match code {
            Some(code) => format!("```python\n{code}\n```"),
            None => format!("{}({})", call.name, call.arguments),
        };
    }
    text
}

fn calling(said: &Said, arguments: fn(&Call) -> Value) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), role(said.speaker).into());
    message.insert("content".into(), said.content.clone().into());
    if let Some(reasoning) = &said.reasoning {
        message.insert("reasoning_content".into(), reasoning.clone().into());
    }
    if !said.calls.is_empty() {
        let call = |call: &Call| {
            json!({
                "id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": arguments(call)},
            })
        };
        let calls: Vec<Value> = said.calls.iter().map(call).collect();
        message.insert("tool_calls".into(), calls.into());
    }
    if let Some(answers) = &said.answers {
        message.insert("tool_call_id".into(), answers.clone().into());
    }
    message.into()
}

fn with_objects(said: &Said) -> Value {
    calling(said, |call| call.arguments.clone())
}

fn with_texts(said: &Said) -> Value {
    calling(said, |call| call.arguments.to_string().into())
}

/// Words first, then each call in a message of its own. Calls belong to the words before them: where the
/// same speaker spoke before, there are words even if they are none.
fn shared(said: &Said, follows: bool) -> Vec<Value> {
    let from = match said.speaker {
        Speaker::System => "system",
        Speaker::User => "human",
        Speaker::Assistant => "gpt",
        Speaker::Tool => "observation",
    };
    let mut messages = Vec::new();
    if !said.content.is_empty() || said.calls.is_empty() || follows {
        messages.push(json!({"from": from, "value": said.content}));
    }
    for call in &said.calls {
        let value = json!({"name": call.name, "arguments": call.arguments});
        messages.push(json!({"from": "function_call", "value": value.to_string()}));
    }
    messages
}

fn traces(fitted: &Conversation, id: String) -> Vec<Value> {
    let mut header = Map::new();
    header.insert("type".into(), "session".into());
    header.insert("harness".into(), "pybench".into());
    header.insert("id".into(), id.into());
    header.extend(fitted.beside.clone());
    let mut lines = vec![Value::Object(header)];
    for said in &fitted.messages {
        let mut message = Map::new();
        message.insert("role".into(), role(said.speaker).into());
        message.insert("content".into(), said.content.clone().into());
        if let Some(reasoning) = &said.reasoning {
            message.insert("reasoningContent".into(), reasoning.clone().into());
        }
        if !said.calls.is_empty() {
            let call = |call: &Call| {
                let arguments = call.arguments.to_string();
                json!({"id": call.id, "function": {"name": call.name, "arguments": arguments}})
            };
            let calls: Vec<Value> = said.calls.iter().map(call).collect();
            message.insert("toolCalls".into(), calls.into());
        }
        if let Some(answers) = &said.answers {
            message.insert("toolCallId".into(), answers.clone().into());
        }
        lines.push(json!({"type": "message", "message": message}));
    }
    lines
}
