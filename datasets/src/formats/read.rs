//! Reads rows of other schemas as conversations. Input is untrusted: errors name the invalid field.

use serde_json::{Map, Value};

use super::{Call, ChatMessage, Conversation, LostFields, MessageRole, Schema};

/// Maximum number of messages in a conversation.
const MAX_MESSAGES: usize = 100_000;

/// Fields of a message that are read.
const MESSAGE_FIELDS: [&str; 11] = [
    "role",
    "from",
    "content",
    "value",
    "reasoning_content",
    "reasoningContent",
    "tool_call_id",
    "toolCallId",
    "tool_calls",
    "toolCalls",
    "weight",
];

/// Error: a row does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FormatError {
    /// The invalid field, with the number of the message from 1.
    pub field: String,
    pub reason: String,
}

fn invalid(field: impl Into<String>, reason: impl Into<String>) -> FormatError {
    FormatError {
        field: field.into(),
        reason: reason.into(),
    }
}

type Read<T> = Result<T, FormatError>;

impl Schema {
    /// Read a row as a conversation. Session traces use several lines per conversation; read them with
    /// [`TraceReader`].
    ///
    /// # Errors
    /// [`FormatError`] with the field that is missing or has another type.
    pub fn read(self, row: &Value) -> Read<Conversation> {
        let row = row
            .as_object()
            .ok_or_else(|| invalid("row", "not an object"))?;
        let column = self.messages_column();
        let found = row.get(column).and_then(Value::as_array);
        let found = found.ok_or_else(|| invalid(column, "missing, or not a list"))?;
        if found.len() > MAX_MESSAGES {
            return Err(invalid(
                column,
                format!("more than {MAX_MESSAGES} messages"),
            ));
        }
        let mut messages = Vec::with_capacity(found.len());
        for (number, value) in found.iter().enumerate() {
            let message = message(value).map_err(|error| {
                let field = format!("{column}, message {}: {}", number + 1, error.field);
                invalid(field, error.reason)
            })?;
            match (self, message) {
                // Calls are separate messages and belong to the assistant message before them.
                (Self::Conversations, (message, true)) => append_call(&mut messages, message),
                (_, (message, _)) => messages.push(message),
            }
        }
        let id = match self {
            Self::Upstream => text(row, "id").or_else(|| text(row, "index")),
            _ => text(row, self.id_column()),
        };
        let others = row
            .iter()
            .filter(|(name, value)| !self.reads_column(name, value));
        Ok(Conversation {
            id: match self.capabilities().id {
                true => Some(id.unwrap_or_default()),
                false => id,
            },
            messages,
            tools: parsed(row.get("tools").unwrap_or(&Value::Null)),
            extra: others
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }

    fn messages_column(self) -> &'static str {
        match self {
            Self::CodeAct | Self::Conversations => "conversations",
            _ => "messages",
        }
    }

    fn id_column(self) -> &'static str {
        match self {
            Self::Ultrachat => "prompt_id",
            _ => "id",
        }
    }

    /// Whether the value of a column is part of the conversation apart from its additional columns, or follows from it.
    fn reads_column(self, name: &str, value: &Value) -> bool {
        match name {
            "tools" => true,
            "tool_choices" => value.is_null() || value == "auto",
            "type" | "harness" => self == Self::Traces,
            "prompt" => self == Self::Ultrachat,
            _ => name == self.messages_column() || name == self.id_column(),
        }
    }

    /// Names of what [`Schema::read`], or [`TraceReader::line`], does not read from a row.
    pub fn unread(self, row: &Value) -> LostFields {
        let kind = row.get("type").and_then(Value::as_str).unwrap_or_default();
        let messages = match (self, kind) {
            (Self::Traces, "message") => row.get("message").into_iter().collect(),
            (Self::Traces, "session") => Vec::new(),
            (Self::Traces, other) => return LostFields::from([format!("lines of type {other:?}")]),
            _ => {
                let list = row.get(self.messages_column()).and_then(Value::as_array);
                list.into_iter().flatten().collect()
            }
        };
        let fields = messages.into_iter().filter_map(Value::as_object).flatten();
        let unread = fields
            .filter(|(name, value)| !value.is_null() && !MESSAGE_FIELDS.contains(&name.as_str()));
        unread
            .map(|(name, _)| format!("field {name:?} of messages"))
            .collect()
    }
}

/// The value of a field that is a string or a number.
fn text(row: &Map<String, Value>, name: &str) -> Option<String> {
    match row.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Parse a string as JSON if it is JSON; otherwise return the value unchanged.
fn parsed(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        other => other.clone(),
    }
}

fn parse_role(name: &str) -> Option<MessageRole> {
    Some(match name {
        "system" | "developer" => MessageRole::System,
        "user" | "human" => MessageRole::User,
        "assistant" | "gpt" | "model" => MessageRole::Assistant,
        "tool" | "function" | "ipython" | "observation" => MessageRole::Tool,
        _ => return None,
    })
}

/// Parse a message. The flag is true if it is only a tool call that belongs to the message before it.
fn message(value: &Value) -> Read<(ChatMessage, bool)> {
    let fields = value
        .as_object()
        .ok_or_else(|| invalid("message", "not an object"))?;
    let get = |names: [&str; 2]| names.into_iter().find_map(|name| fields.get(name));
    let role = get(["role", "from"]).and_then(Value::as_str);
    let role = role.ok_or_else(|| invalid("role", "missing, or not a string"))?;
    let content = parse_content(get(["content", "value"]).unwrap_or(&Value::Null))?;
    if role == "function_call" {
        let mut message = ChatMessage::new(MessageRole::Assistant, "");
        let call: Value = serde_json::from_str(&content)
            .map_err(|error| invalid("value", format!("the call is not valid JSON: {error}")))?;
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        message.calls.push(Call {
            id: String::new(),
            name: name.to_owned(),
            arguments: parsed(call.get("arguments").unwrap_or(&Value::Null)),
        });
        return Ok((message, true));
    }
    let unknown = || invalid("role", format!("unknown role {:?}", shown(role)));
    let mut message = ChatMessage::new(parse_role(role).ok_or_else(unknown)?, content);
    let reasoning = get(["reasoning_content", "reasoningContent"]).and_then(Value::as_str);
    message.reasoning = reasoning.map(str::to_owned);
    let call_id = get(["tool_call_id", "toolCallId"]).and_then(Value::as_str);
    message.call_id = call_id.map(str::to_owned);
    message.trained = is_trained(fields.get("weight"), message.role)?;
    if let Some(calls) = get(["tool_calls", "toolCalls"]).and_then(Value::as_array) {
        message.calls = calls.iter().map(call).collect::<Read<_>>()?;
    }
    Ok((message, false))
}

/// Whether a message is trained, from its weight.
fn is_trained(weight: Option<&Value>, role: MessageRole) -> Read<bool> {
    let weight = weight.filter(|weight| !weight.is_null());
    match (weight, weight.and_then(Value::as_f64)) {
        (None, _) | (_, Some(1.0)) => Ok(true),
        (_, Some(0.0)) => Ok(role != MessageRole::Assistant),
        (Some(other), _) => Err(invalid("weight", format!("{other} is neither 0 nor 1"))),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The content of a message: a string, a list of text parts, or null.
fn parse_content(value: &Value) -> Read<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let part = |part: &Value| {
                let text = part.get("text").and_then(Value::as_str);
                let what = || invalid("content", "a part without text");
                text.map(str::to_owned).ok_or_else(what)
            };
            parts.iter().map(part).collect()
        }
        _ => Err(invalid("content", "not a string")),
    }
}

fn call(value: &Value) -> Read<Call> {
    let function = value.get("function").unwrap_or(value);
    let name = function.get("name").and_then(Value::as_str);
    let id = value.get("id").and_then(Value::as_str);
    Ok(Call {
        id: id.unwrap_or_default().to_owned(),
        name: name
            .ok_or_else(|| invalid("tool_calls", "a call without a name"))?
            .to_owned(),
        arguments: parsed(function.get("arguments").unwrap_or(&Value::Null)),
    })
}

fn append_call(messages: &mut Vec<ChatMessage>, call: ChatMessage) {
    match messages.last_mut() {
        Some(last) if last.role == MessageRole::Assistant => last.calls.extend(call.calls),
        _ => messages.push(call),
    }
}

/// Reads session traces line by line.
#[derive(Debug, Default)]
pub struct TraceReader {
    current: Option<Conversation>,
}

impl TraceReader {
    /// Read the next line. A header line completes the previous conversation and returns it.
    ///
    /// # Errors
    /// [`FormatError`] if the line is not part of a trace.
    pub fn line(&mut self, line: &Value) -> Read<Option<Conversation>> {
        let kind = line.get("type").and_then(Value::as_str);
        match kind {
            Some("session") => {
                let fields = line.as_object().cloned().unwrap_or_default();
                let id = text(&fields, "id").unwrap_or_default();
                let others = fields
                    .into_iter()
                    .filter(|(name, value)| !Schema::Traces.reads_column(name, value));
                let conversation = Conversation {
                    id: Some(id),
                    extra: others.collect(),
                    ..Conversation::default()
                };
                Ok(self.current.replace(conversation))
            }
            Some("message") => {
                let current = self.current.as_mut();
                let current = current
                    .ok_or_else(|| invalid("type", "a message before the first session header"))?;
                if current.messages.len() >= MAX_MESSAGES {
                    return Err(invalid(
                        "message",
                        format!("more than {MAX_MESSAGES} messages"),
                    ));
                }
                let found = line.get("message").unwrap_or(&Value::Null);
                current.messages.push(message(found)?.0);
                Ok(None)
            }
            // Other types of lines are ignored.
            Some(_) => Ok(None),
            None => Err(invalid("type", "missing")),
        }
    }

    /// The last conversation, if any.
    pub fn finish(self) -> Option<Conversation> {
        self.current
    }
}
