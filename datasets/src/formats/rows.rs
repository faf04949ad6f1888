//! Converts our rows to conversations.

use pybench_agent::{Act, Dialogue, Format, Part, ToolsFormat, format_named};
use pybench_types::trajectory::{Message, Role};
use serde_json::{Map, Value, json};

use super::{Call, ChatMessage, Conversation, MessageRole};
use crate::Row;
use crate::row::{category_name, language_code};

/// Name of the tool that executes cells, as in [`ToolsFormat`].
const TOOL: &str = "execute_python";

/// Convert a row, including its provenance. With `calls`, cells become tool calls and observations become their
/// results, if the reply can be reconstructed exactly and every call has a result; the system prompt then says how to
/// call the tool instead of how to write a cell. Other replies stay text, and their observations become user messages.
pub fn of_row(row: &Row, calls: bool) -> Conversation {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(row.messages.len());
    let format = format_named(&row.format).filter(|_| calls);
    let mut has_calls = false;
    let mut rest = row.messages.as_slice();
    while let Some((message, after)) = rest.split_first() {
        let number = row.messages.len() - rest.len();
        let step = format.and_then(|format| step(format, message, after));
        rest = match step {
            Some(step) => {
                let remaining = &after[step.observations.len()..];
                messages.extend(step.into_messages(number));
                has_calls = true;
                remaining
            }
            None => {
                messages.push(plain(message, calls));
                after
            }
        };
    }
    if let Some(format) = format.filter(|_| has_calls) {
        teach_calls(&mut messages, format);
    }
    Conversation {
        id: Some(row.trajectory_id.to_string()),
        messages,
        tools: match has_calls {
            true => ToolsFormat.tools().unwrap_or_default(),
            false => Value::Null,
        },
        extra: provenance(row),
    }
}

/// Replace the system prompt of the row's format by that of function calls. Another prompt stays.
fn teach_calls(messages: &mut [ChatMessage], format: &dyn Format) {
    let own = |message: &&mut ChatMessage| {
        message.role == MessageRole::System && message.content == format.system()
    };
    for message in messages.iter_mut().filter(own) {
        message.content = ToolsFormat.system().to_owned();
    }
}

/// A reply with cells, and their observations.
struct Step {
    thought: String,
    cells: Vec<String>,
    observations: Vec<String>,
    trained: bool,
}

/// Parse a message as a step. `None` if the format would write it differently, or if an observation is missing.
fn step(format: &dyn Format, message: &Message, after: &[Message]) -> Option<Step> {
    let mut dialogue = Dialogue::read(std::slice::from_ref(message), format).ok()?;
    let rewritten = dialogue.write(format).ok()?;
    let Some(Part::Reply(reply)) = dialogue.parts.pop() else {
        return None;
    };
    let Act::Cells(cells) = reply.act else {
        return None;
    };
    let observations = after
        .iter()
        .map_while(|next| format.parse_observation(next));
    let observations: Vec<_> = observations.map(str::to_owned).take(cells.len()).collect();
    let same = rewritten
        .iter()
        .map(|m| &m.content)
        .eq(std::iter::once(&message.content));
    (same && observations.len() == cells.len()).then_some(Step {
        thought: reply.thought,
        cells,
        observations,
        trained: message.trained,
    })
}

impl Step {
    /// The reply and the tool results. Call ids contain the number of the message, and the index of the call if
    /// there are several.
    fn into_messages(self, number: usize) -> Vec<ChatMessage> {
        let id = |index: usize| match self.cells.len() {
            1 => format!("call_{number}"),
            _ => format!("call_{number}_{index}"),
        };
        let mut reply = ChatMessage::new(MessageRole::Assistant, &self.thought);
        let calls = self.cells.iter().enumerate().map(|(index, cell)| Call {
            id: id(index),
            name: TOOL.to_owned(),
            arguments: json!({"code": cell}),
        });
        reply.calls = calls.collect();
        reply.trained = self.trained;
        let mut messages = vec![reply];
        for (index, text) in self.observations.iter().enumerate() {
            let mut result = ChatMessage::new(MessageRole::Tool, text);
            result.call_id = Some(id(index));
            messages.push(result);
        }
        messages
    }
}

/// Convert a message unchanged. With `calls`, a tool message without a call becomes a user message.
fn plain(message: &Message, calls: bool) -> ChatMessage {
    let role = match message.role {
        Role::System => MessageRole::System,
        Role::Assistant => MessageRole::Assistant,
        Role::Tool if !calls => MessageRole::Tool,
        Role::User | Role::Tool => MessageRole::User,
    };
    ChatMessage {
        trained: message.trained,
        ..ChatMessage::new(role, message.content.clone())
    }
}

/// Provenance of the row, as columns that do not depend on our schema.
fn provenance(row: &Row) -> Map<String, Value> {
    let files = row.files.iter();
    let licenses: std::collections::BTreeSet<_> = files
        .clone()
        .filter_map(|file| file.license.as_deref())
        .chain(row.task_license.as_deref())
        .collect();
    let pairs = [
        ("question", json!(row.query)),
        ("task_id", json!(row.task_id)),
        ("category", json!(category_name(row.category))),
        ("keyword", json!(row.keyword)),
        ("language", json!(language_code(row.language))),
        ("teacher", json!(row.teacher)),
        (
            "files_used",
            json!(files.map(|f| &f.name).collect::<Vec<_>>()),
        ),
        ("licenses", json!(licenses)),
        ("environment", json!(row.environment)),
    ];
    pairs
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
