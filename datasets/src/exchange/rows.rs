//! Our rows as conversations.

use pybench::agent::{Act, Format, Part, Talk, format_named};
use pybench::trajectory::{Message, Role};
use serde_json::{Map, Value, json};

use super::{Call, Conversation, Said, Speaker};
use crate::Row;
use crate::row::{category_name, language_code};

/// The tool that runs cells.
const TOOL: &str = "execute_python";

/// A row with its provenance. With `calls`, cells become calls of a tool and observations its answers,
/// wherever the reply can be had back from them exactly and each call is answered; other replies stay
/// as they are, and what answers them is said by the user.
pub fn of_row(row: &Row, calls: bool) -> Conversation {
    let mut messages: Vec<Said> = Vec::with_capacity(row.messages.len());
    let format = format_named(&row.format).filter(|_| calls);
    let mut any = false;
    let mut rest = row.messages.as_slice();
    while let Some((message, after)) = rest.split_first() {
        let number = row.messages.len() - rest.len();
        let step = format.and_then(|format| step(format, message, after));
        rest = match step {
            Some(step) => {
                let answered = &after[step.heard.len()..];
                messages.extend(step.said(number));
                any = true;
                answered
            }
            None => {
                messages.push(plain(message, calls));
                after
            }
        };
    }
    Conversation {
        id: Some(row.trajectory_id.to_string()),
        messages,
        tools: if any { tools() } else { Value::Null },
        beside: beside(row),
    }
}

/// A reply with cells, and what each of them gave.
struct Step {
    thought: String,
    cells: Vec<String>,
    heard: Vec<String>,
}

/// The message as a step, if the format writes exactly this for it and all its cells are answered.
fn step(format: &dyn Format, message: &Message, after: &[Message]) -> Option<Step> {
    let mut talk = Talk::read(std::slice::from_ref(message), format).ok()?;
    let again = talk.write(format).ok()?;
    let Some(Part::Reply(said)) = talk.parts.pop() else {
        return None;
    };
    let Act::Cells(cells) = said.act else {
        return None;
    };
    let heard = after.iter().map_while(|next| format.heard(next));
    let heard: Vec<_> = heard.map(str::to_owned).take(cells.len()).collect();
    (again[..] == [message.clone()] && heard.len() == cells.len()).then_some(Step {
        thought: said.thought,
        cells,
        heard,
    })
}

impl Step {
    /// The reply and the tool's answers. A call is named after its message, parallel ones also after
    /// their place.
    fn said(self, number: usize) -> Vec<Said> {
        let id = |place: usize| match self.cells.len() {
            1 => format!("call_{number}"),
            _ => format!("call_{number}_{place}"),
        };
        let mut reply = Said::new(Speaker::Assistant, &self.thought);
        let calls = self.cells.iter().enumerate().map(|(place, cell)| Call {
            id: id(place),
            name: TOOL.to_owned(),
            arguments: json!({"code": cell}),
        });
        reply.calls = calls.collect();
        let mut said = vec![reply];
        for (place, text) in self.heard.iter().enumerate() {
            let mut answer = Said::new(Speaker::Tool, text);
            answer.answers = Some(id(place));
            said.push(answer);
        }
        said
    }
}

/// A message as it is. Where tools answer calls, a tool that answers none is the user.
fn plain(message: &Message, calls: bool) -> Said {
    let speaker = match message.role {
        Role::System => Speaker::System,
        Role::Assistant => Speaker::Assistant,
        Role::Tool if !calls => Speaker::Tool,
        Role::User | Role::Tool => Speaker::User,
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
