//! Rows of others as conversations. They may be anything: what does not fit is named.

use serde_json::{Map, Value};

use super::write::TAKEN;
use super::{Call, Conversation, Said, Schema, Speaker};

/// Most messages of a conversation.
const MESSAGES: usize = 100_000;

/// Why a row is none of its schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ExchangeError {
    /// The field, with the number of a message from 1.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

fn wrong(field: impl Into<String>, reason: impl Into<String>) -> ExchangeError {
    ExchangeError {
        field: field.into(),
        reason: reason.into(),
    }
}

type Read<T> = Result<T, ExchangeError>;

impl Schema {
    /// A row as a conversation. Session traces have several lines for one: see [`TraceReader`].
    ///
    /// # Errors
    /// [`ExchangeError`] with the field that is missing or of another type.
    pub fn read(self, row: &Value) -> Read<Conversation> {
        let row = row.as_object().ok_or_else(|| wrong("row", "no object"))?;
        let messages = match self {
            Self::CodeAct | Self::Conversations => "conversations",
            _ => "messages",
        };
        let found = row.get(messages).and_then(Value::as_array);
        let found = found.ok_or_else(|| wrong(messages, "missing, or no list"))?;
        if found.len() > MESSAGES {
            return Err(wrong(messages, format!("more than {MESSAGES} messages")));
        }
        let mut said = Vec::with_capacity(found.len());
        for (number, value) in found.iter().enumerate() {
            let message = message(value).map_err(|error| {
                let field = format!("{messages}, message {}: {}", number + 1, error.field);
                wrong(field, error.reason)
            })?;
            match (self, message) {
                // Calls stand in messages of their own, and belong to the words before them.
                (Self::Conversations, (said_now, true)) => join(&mut said, said_now),
                (_, (said_now, _)) => said.push(said_now),
            }
        }
        let can = self.abilities();
        let id = match self {
            Self::Ultrachat => text(row, "prompt_id"),
            Self::Upstream => text(row, "id").or_else(|| text(row, "index")),
            _ => text(row, "id"),
        };
        let mut beside = Map::new();
        if can.beside {
            let others = row
                .iter()
                .filter(|(name, _)| !TAKEN.contains(&name.as_str()));
            beside.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        }
        Ok(Conversation {
            id: can.id.then(|| id.unwrap_or_default()),
            messages: said,
            tools: match can.tools {
                true => parsed(row.get("tools").unwrap_or(&Value::Null)),
                false => Value::Null,
            },
            beside,
        })
    }
}

/// A text or a number.
fn text(row: &Map<String, Value>, name: &str) -> Option<String> {
    match row.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What a text holds as JSON, where it does.
fn parsed(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        other => other.clone(),
    }
}

fn speaker(name: &str) -> Option<Speaker> {
    Some(match name {
        "system" | "developer" => Speaker::System,
        "user" | "human" => Speaker::User,
        "assistant" | "gpt" | "model" => Speaker::Assistant,
        "tool" | "function" | "ipython" | "observation" => Speaker::Tool,
        _ => return None,
    })
}

/// A message, and whether it is nothing but a call of the message before it.
fn message(value: &Value) -> Read<(Said, bool)> {
    let fields = value
        .as_object()
        .ok_or_else(|| wrong("message", "no object"))?;
    let get = |names: [&str; 2]| names.into_iter().find_map(|name| fields.get(name));
    let role = get(["role", "from"]).and_then(Value::as_str);
    let role = role.ok_or_else(|| wrong("role", "missing, or no text"))?;
    let content = words(get(["content", "value"]).unwrap_or(&Value::Null))?;
    if role == "function_call" {
        let mut said = Said::new(Speaker::Assistant, "");
        let call: Value = serde_json::from_str(&content)
            .map_err(|error| wrong("value", format!("a call that is no JSON: {error}")))?;
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        said.calls.push(Call {
            id: String::new(),
            name: name.to_owned(),
            arguments: parsed(call.get("arguments").unwrap_or(&Value::Null)),
        });
        return Ok((said, true));
    }
    let known = || wrong("role", format!("{:?} is nobody", shown(role)));
    let mut said = Said::new(speaker(role).ok_or_else(known)?, content);
    let reasoning = get(["reasoning_content", "reasoningContent"]).and_then(Value::as_str);
    said.reasoning = reasoning.map(str::to_owned);
    let answers = get(["tool_call_id", "toolCallId"]).and_then(Value::as_str);
    said.answers = answers.map(str::to_owned);
    if let Some(calls) = get(["tool_calls", "toolCalls"]).and_then(Value::as_array) {
        said.calls = calls.iter().map(call).collect::<Read<_>>()?;
    }
    Ok((said, false))
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A text, the texts of a list of parts, or nothing.
fn words(value: &Value) -> Read<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let part = |part: &Value| {
                let text = part.get("text").and_then(Value::as_str);
                let what = || wrong("content", "a part that is no text");
                text.map(str::to_owned).ok_or_else(what)
            };
            parts.iter().map(part).collect()
        }
        _ => Err(wrong("content", "no text")),
    }
}

fn call(value: &Value) -> Read<Call> {
    let function = value.get("function").unwrap_or(value);
    let name = function.get("name").and_then(Value::as_str);
    let id = value.get("id").and_then(Value::as_str);
    Ok(Call {
        id: id.unwrap_or_default().to_owned(),
        name: name
            .ok_or_else(|| wrong("tool_calls", "a call without a name"))?
            .to_owned(),
        arguments: parsed(function.get("arguments").unwrap_or(&Value::Null)),
    })
}

fn join(said: &mut Vec<Said>, call: Said) {
    match said.last_mut() {
        Some(last) if last.speaker == Speaker::Assistant => last.calls.extend(call.calls),
        _ => said.push(call),
    }
}

/// Reads session traces, line by line.
#[derive(Debug, Default)]
pub struct TraceReader {
    open: Option<Conversation>,
}

impl TraceReader {
    /// The next line; a header gives the conversation before it.
    ///
    /// # Errors
    /// [`ExchangeError`] for a line that is no trace's.
    pub fn line(&mut self, line: &Value) -> Read<Option<Conversation>> {
        let kind = line.get("type").and_then(Value::as_str);
        match kind {
            Some("session") => {
                let fields = line.as_object().cloned().unwrap_or_default();
                let id = text(&fields, "id").unwrap_or_default();
                let others = fields
                    .into_iter()
                    .filter(|(name, _)| !TAKEN.contains(&name.as_str()));
                let begun = Conversation {
                    id: Some(id),
                    beside: others.collect(),
                    ..Conversation::default()
                };
                Ok(self.open.replace(begun))
            }
            Some("message") => {
                let open = self.open.as_mut();
                let open = open.ok_or_else(|| wrong("type", "a message before any session"))?;
                if open.messages.len() >= MESSAGES {
                    return Err(wrong("message", format!("more than {MESSAGES} messages")));
                }
                let found = line.get("message").unwrap_or(&Value::Null);
                open.messages.push(message(found)?.0);
                Ok(None)
            }
            // Other lines are allowed, and say nothing of the conversation.
            Some(_) => Ok(None),
            None => Err(wrong("type", "missing")),
        }
    }

    /// The last conversation.
    pub fn finish(self) -> Option<Conversation> {
        self.open
    }
}
