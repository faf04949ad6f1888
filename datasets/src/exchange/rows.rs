//! Our rows as conversations.

use pybench::agent::Parsed;
use pybench::trajectory::{Message, Role};
use serde_json::{Map, Value, json};

use super::{Call, Conversation, Said, Speaker};
use crate::Row;
use crate::row::{category_name, format_named, language_code};

/// How observations begin in PyBench's format.
const OBSERVATION: &str = "[INFO]This is a Code Interpreter Message:\n";
/// The tool that runs cells.
const TOOL: &str = "execute_python";

/// A row with its provenance. With `calls`, cells become calls of a tool and observations its answers,
/// wherever the reply can be had back from them exactly; other replies stay as they are.
pub fn of_row(row: &Row, calls: bool) -> Conversation {
    let mut messages: Vec<Said> = Vec::with_capacity(row.messages.len());
    let format = format_named(&row.format).filter(|_| calls);
    let mut called: Option<String> = None;
    let mut any = false;
    for (number, message) in row.messages.iter().enumerate() {
        if let Some(call) = called.take()
            && let Some(text) = message.content.strip_prefix(OBSERVATION)
        {
            let mut answer = Said::new(Speaker::Tool, text);
            answer.answers = Some(call);
            messages.push(answer);
            continue;
        }
        let mut said = plain(message);
        let cell = format.and_then(|format| {
            let Parsed::Cell(cell) = format.parse(&message.content) else {
                return None;
            };
            let thought = message.content.split("\n<|execute_start|>").next()?;
            let whole = format.write_step(thought, cell);
            (whole == message.content).then(|| (thought.to_owned(), cell.to_owned()))
        });
        let observed = row.messages.get(number + 1);
        let observed = observed.is_some_and(|next| next.content.starts_with(OBSERVATION));
        if let (Role::Assistant, Some((thought, cell)), true) = (message.role, cell, observed) {
            let id = format!("call_{number}");
            said.content = thought;
            said.calls.push(Call {
                id: id.clone(),
                name: TOOL.to_owned(),
                arguments: json!({"code": cell}),
            });
            called = Some(id);
            any = true;
        }
        messages.push(said);
    }
    Conversation {
        id: Some(row.trajectory_id.to_string()),
        messages,
        tools: if any { tools() } else { Value::Null },
        beside: beside(row),
    }
}

fn plain(message: &Message) -> Said {
    let speaker = match message.role {
        Role::System => Speaker::System,
        Role::User => Speaker::User,
        Role::Assistant => Speaker::Assistant,
    };
    Said::new(speaker, message.content.clone())
}

fn tools() -> Value {
    json!([{
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Run a cell of Python in a notebook that keeps its variables",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "The cell"}},
                "required": ["code"],
            },
        },
    }])
}

/// Where the row is from, in words that need no schema of ours.
fn beside(row: &Row) -> Map<String, Value> {
    let files = row.files.iter();
    let licences: std::collections::BTreeSet<_> = files
        .clone()
        .filter_map(|file| file.licence.as_deref())
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
        ("licences", json!(licences)),
        ("environment", json!(row.environment)),
    ];
    pairs
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
