//! Where marks are placed in messages, so that the messages are found in the rendered text.

use std::ops::Range;

use serde_json::Value;

use crate::marks::Marks;
use crate::message::Message;
use crate::python::is_space;

/// Where marks are placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// In all messages, or only in those of the assistant.
    all: bool,
    start: bool,
    end: bool,
    calls: bool,
}

/// Tried in this order, because a template may decide by the text of a message. Without any marks, replies are found by
/// rendering each beginning of the conversation.
pub(crate) const PLACEMENTS: [Placement; 6] = {
    let all = Placement {
        all: true,
        start: true,
        end: true,
        calls: true,
    };
    [
        all,
        Placement { all: false, ..all },
        Placement {
            start: false,
            ..all
        },
        Placement {
            all: false,
            start: false,
            ..all
        },
        Placement {
            all: false,
            end: false,
            ..all
        },
        Placement {
            all: false,
            start: false,
            end: false,
            calls: false,
        },
    ]
};

/// The marks of one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageMarks {
    pub(crate) start: Option<char>,
    pub(crate) end: Option<char>,
    pub(crate) calls: Vec<char>,
}

impl MessageMarks {
    pub(crate) fn all(&self) -> impl Iterator<Item = char> {
        let calls = self.calls.iter().copied();
        self.start.into_iter().chain(self.end).chain(calls)
    }
}

pub(crate) struct MarkedMessages {
    pub(crate) messages: Vec<Message>,
    pub(crate) marks: Vec<MessageMarks>,
}

impl MarkedMessages {
    /// `None` if there are more messages than marks.
    pub(crate) fn new(
        messages: &[Message],
        placement: Placement,
        marks: &mut Marks,
    ) -> Option<Self> {
        let mut marked = Self {
            messages: messages.to_vec(),
            marks: vec![MessageMarks::default(); messages.len()],
        };
        let both = marked.messages.iter_mut().zip(&mut marked.marks);
        for (message, placed) in both.filter(|(m, _)| placement.all || m.is_assistant()) {
            let inside = content_inside(message);
            let has_content = message.tool_calls.is_empty() || !message.content.is_empty();
            if placement.end && !inside.is_empty() {
                let mark = *placed.end.insert(marks.take()?);
                message.content.insert(inside.end, mark);
            }
            if placement.start && has_content {
                let mark = *placed.start.insert(marks.take()?);
                message.content.insert(inside.start, mark);
            }
            if placement.calls {
                for name in message.tool_calls.iter_mut().filter_map(call_name) {
                    let mark = marks.take()?;
                    name.insert(0, mark);
                    placed.calls.push(mark);
                }
            }
        }
        Some(marked)
    }
}

/// The content without white space around it, which some templates remove.
pub(crate) fn content_inside(message: &Message) -> Range<usize> {
    let content = &message.content;
    let start = content.len() - content.trim_start_matches(is_space).len();
    start..content.trim_end_matches(is_space).len().max(start)
}

fn call_name(call: &mut Value) -> Option<&mut String> {
    let call = match call.get("function").is_some() {
        true => call.get_mut("function")?,
        false => call,
    };
    match call.get_mut("name")? {
        Value::String(name) => Some(name),
        _ => None,
    }
}
