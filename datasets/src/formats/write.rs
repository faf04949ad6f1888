//! Adapts conversations to a schema and writes them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Call, ChatMessage, Conversation, MessageRole, Schema};

/// Names of what a schema could not represent.
pub type LostFields = BTreeSet<String>;

/// Columns that the schemas themselves use.
pub(super) const RESERVED_COLUMNS: [&str; 8] = [
    "messages",
    "conversations",
    "tools",
    "tool_choices",
    "id",
    "type",
    "harness",
    "prompt_id",
];

/// What is lost where a schema has no weights: its readers train every reply.
const UNTRAINED: &str = "which replies are not trained (\"weight\": 0)";

impl Schema {
    /// The conversation as this schema can represent it, and the names of what was lost.
    pub fn fit(self, conversation: &Conversation) -> (Conversation, LostFields) {
        let can = self.capabilities();
        let mut lost = LostFields::new();
        let mut fitted = conversation.clone();
        if !can.id && fitted.id.take().is_some() {
            lost.insert("id".into());
        }
        if fitted.id.is_none() && can.id {
            // The schema requires an id.
            fitted.id = Some(String::new());
        }
        if !can.tools && !fitted.tools.is_null() {
            fitted.tools = Value::Null;
            lost.insert("tools".into());
        }
        fitted.extra.retain(|name, _| {
            let kept = can.extra && !RESERVED_COLUMNS.contains(&name.as_str());
            if !kept {
                lost.insert(format!("column {name:?}"));
            }
            kept
        });
        fitted.messages = self.messages(fitted.messages, &mut lost);
        (fitted, lost)
    }

    fn messages(self, messages: Vec<ChatMessage>, lost: &mut LostFields) -> Vec<ChatMessage> {
        let can = self.capabilities();
        let mut fitted: Vec<ChatMessage> = Vec::with_capacity(messages.len());
        let mut system: Option<String> = None;
        for mut message in messages {
            if !can.reasoning && message.reasoning.take().is_some() {
                lost.insert("reasoning".into());
            }
            if !can.weights && !message.trained {
                message.trained = true;
                lost.insert(UNTRAINED.into());
            }
            if !can.calls && !message.calls.is_empty() {
                message.content = calls_as_text(&message);
                message.calls.clear();
                lost.insert("tool calls (written as text)".into());
            }
            if !can.call_ids {
                let named = message.calls.iter_mut().filter(|call| !call.id.is_empty());
                let named = named.map(|call| call.id.clear()).count();
                if message.call_id.take().is_some() || named > 0 {
                    lost.insert("call ids".into());
                }
            }
            if !can.tool && message.role == MessageRole::Tool {
                message.role = MessageRole::User;
                message.call_id = None;
                lost.insert("the role of observations (written as user messages)".into());
            }
            if !can.system && message.role == MessageRole::System {
                lost.insert("the system prompt (written into the first user message)".into());
                let before = system.take().map_or(String::new(), |text| text + "\n\n");
                system = Some(before + &message.content);
                continue;
            }
            if message.role == MessageRole::User
                && let Some(prompt) = system.take()
            {
                message.content = format!("{prompt}\n\n{}", message.content);
            }
            fitted.push(message);
        }
        if let Some(prompt) = system {
            fitted.push(ChatMessage::new(MessageRole::User, prompt));
        }
        fitted
    }

    /// Write the conversation as rows of this schema, and return the names of what was lost. All schemas write one
    /// row, except traces, which write one row per line.
    pub fn write(self, conversation: &Conversation) -> (Vec<Value>, LostFields) {
        let (fitted, lost) = self.fit(conversation);
        let id = fitted.id.clone().unwrap_or_default();
        let messages = |convert: fn(&ChatMessage) -> Value| -> Vec<Value> {
            fitted.messages.iter().map(convert).collect()
        };
        let rows = match self {
            Self::Pyinstruct => vec![json!({
                "messages": messages(plain),
                "tools": as_json_string(&fitted.tools),
                "tool_choices": "auto",
            })],
            Self::CodeAct => vec![json!({"id": id, "conversations": messages(plain)})],
            Self::CodeFeedback => vec![json!({"id": id, "messages": messages(plain)})],
            Self::Ultrachat => {
                let first = fitted.messages.iter().find(|m| m.role == MessageRole::User);
                let prompt = first.map_or("", |message| message.content.as_str());
                vec![json!({"prompt": prompt, "prompt_id": id, "messages": messages(plain)})]
            }
            Self::JupyterAgent => {
                let mut row = fitted.extra.clone();
                row.insert("id".into(), id.into());
                row.insert("messages".into(), messages(with_object_arguments).into());
                row.insert("tools".into(), fitted.tools.clone());
                vec![row.into()]
            }
            Self::Upstream => {
                let mut row = fitted.extra.clone();
                row.entry("index").or_insert_with(|| id.clone().into());
                row.insert("id".into(), id.into());
                row.insert("messages".into(), messages(plain).into());
                vec![row.into()]
            }
            Self::Conversations => {
                let mut before = None;
                let messages = fitted.messages.iter().flat_map(|message| {
                    let same_role = before.replace(message.role) == Some(message.role);
                    sharegpt(message, same_role)
                });
                let mut row = Map::new();
                row.insert("id".into(), id.into());
                row.insert("conversations".into(), messages.collect::<Vec<_>>().into());
                if !fitted.tools.is_null() {
                    row.insert("tools".into(), as_json_string(&fitted.tools));
                }
                vec![row.into()]
            }
            Self::Openai => {
                let mut row = Map::new();
                row.insert("id".into(), id.into());
                row.insert("messages".into(), messages(with_string_arguments).into());
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

fn as_json_string(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        other => other.to_string().into(),
    }
}

fn role_name(role: MessageRole) -> &'static str {
    match role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
    }
}

fn plain(message: &ChatMessage) -> Value {
    json!({"role": role_name(message.role), "content": message.content})
}

/// The text of a message followed by its tool calls, each as a code block, or as JSON if it is not code.
fn calls_as_text(message: &ChatMessage) -> String {
    let mut text = message.content.clone();
    for call in &message.calls {
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

fn with_calls(message: &ChatMessage, arguments: fn(&Call) -> Value) -> Value {
    let mut fields = Map::new();
    fields.insert("role".into(), role_name(message.role).into());
    fields.insert("content".into(), message.content.clone().into());
    if let Some(reasoning) = &message.reasoning {
        fields.insert("reasoning_content".into(), reasoning.clone().into());
    }
    if !message.calls.is_empty() {
        let call = |call: &Call| {
            json!({
                "id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": arguments(call)},
            })
        };
        let calls: Vec<Value> = message.calls.iter().map(call).collect();
        fields.insert("tool_calls".into(), calls.into());
    }
    if let Some(call_id) = &message.call_id {
        fields.insert("tool_call_id".into(), call_id.clone().into());
    }
    if !message.trained {
        fields.insert("weight".into(), 0.into());
    }
    fields.into()
}

fn with_object_arguments(message: &ChatMessage) -> Value {
    with_calls(message, |call| call.arguments.clone())
}

fn with_string_arguments(message: &ChatMessage) -> Value {
    with_calls(message, |call| call.arguments.to_string().into())
}

/// Write a message in ShareGPT's format: the text first, then each call as a separate message. A call belongs to the
/// message before it, so an empty text message is written if the previous message has the same role.
fn sharegpt(message: &ChatMessage, same_role: bool) -> Vec<Value> {
    let from = match message.role {
        MessageRole::System => "system",
        MessageRole::User => "human",
        MessageRole::Assistant => "gpt",
        MessageRole::Tool => "observation",
    };
    let mut messages = Vec::new();
    if !message.content.is_empty() || message.calls.is_empty() || same_role {
        messages.push(json!({"from": from, "value": message.content}));
    }
    for call in &message.calls {
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
    header.extend(fitted.extra.clone());
    let mut lines = vec![Value::Object(header)];
    for message in &fitted.messages {
        let mut fields = Map::new();
        fields.insert("role".into(), role_name(message.role).into());
        fields.insert("content".into(), message.content.clone().into());
        if let Some(reasoning) = &message.reasoning {
            fields.insert("reasoningContent".into(), reasoning.clone().into());
        }
        if !message.calls.is_empty() {
            let call = |call: &Call| {
                let arguments = call.arguments.to_string();
                json!({"id": call.id, "function": {"name": call.name, "arguments": arguments}})
            };
            let calls: Vec<Value> = message.calls.iter().map(call).collect();
            fields.insert("toolCalls".into(), calls.into());
        }
        if let Some(call_id) = &message.call_id {
            fields.insert("toolCallId".into(), call_id.clone().into());
        }
        lines.push(json!({"type": "message", "message": fields}));
    }
    lines
}
