//! Converts conversations from one message format to another.
//!
//! A conversation is parsed into a [`Dialogue`], which is independent of the format, and written in the other
//! format. The result is parsed back and compared. Content that the other format cannot express is an error with
//! the number of the message; messages that would not convert back verbatim are listed.

use std::borrow::Cow;

use super::code_interpreter::with_comment;
use super::{Format, Parsed};
use pybench_llm::tool_calls::PYTHON_TAG;
use pybench_types::trajectory::{Message, Role};

/// A format-independent conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialogue {
    pub parts: Vec<Part>,
}

/// A format-independent message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A system prompt.
    System(System),
    User(String),
    Reply(DialogueMessage),
    /// The text of an observation.
    Observation(String),
}

/// A system prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// The default prompt of the format, which is replaced by that of the other format.
    Own,
    /// Another prompt, which is kept verbatim.
    Other(String),
}

/// A format-independent reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialogueMessage {
    /// Text before the action.
    pub thought: String,
    pub act: Act,
}

/// The action of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Runs cells, at least one; several only in the format `tools`.
    Cells(Vec<String>),
    Answer(String),
    /// Neither cells nor answer; the reply is only `thought`.
    Text,
}

/// Content that a format cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {message}: the format {format} cannot express {what}")]
pub struct Unsupported {
    /// Number of the message, from 1.
    pub message: usize,
    /// Name of the format.
    pub format: &'static str,
    /// The unsupported content.
    pub what: String,
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    pub messages: Vec<Message>,
    /// Messages that do not convert back verbatim: number of the message and kind of content. If empty,
    /// converting back gives identical messages.
    pub reworded: Vec<(usize, &'static str)>,
}

/// Converts a conversation from the format `from` to the format `to`.
///
/// # Errors
/// The first message that one of the formats cannot express.
pub fn convert(
    messages: &[Message],
    from: &dyn Format,
    to: &dyn Format,
) -> Result<Converted, Unsupported> {
    let dialogue = Dialogue::read(messages, from)?;
    let mut converted = dialogue.write(to)?;
    for (message, original) in converted.iter_mut().zip(messages) {
        message.trained = original.trained;
    }
    let mut reworded = Vec::new();
    for (index, (part, message)) in dialogue.parts.iter().zip(messages).enumerate() {
        // A format writes each part in exactly one way, so a different message does not convert back.
        let same = |back: &Message| (back.role, &back.content) == (message.role, &message.content);
        let kept = *part.adapted(to) == *part;
        if !kept || !part.write(from).as_ref().is_some_and(same) {
            reworded.push((index + 1, part.describe()));
        }
    }
    Ok(Converted {
        messages: converted,
        reworded,
    })
}

impl Dialogue {
    /// Parses a conversation.
    ///
    /// # Errors
    /// A message that violates the format.
    pub fn read(messages: &[Message], format: &dyn Format) -> Result<Self, Unsupported> {
        let part = |(index, message): (usize, &Message)| {
            Part::read(message, format).map_err(|what| Unsupported {
                message: index + 1,
                format: format.name(),
                what,
            })
        };
        let parts = messages.iter().enumerate().map(part);
        Ok(Self {
            parts: parts.collect::<Result<_, _>>()?,
        })
    }

    /// Writes the conversation in a format. Where a reply with code may have no other text, its thought becomes a
    /// comment.
    ///
    /// # Errors
    /// The first part that the format cannot express, because it would be parsed as something else.
    pub fn write(&self, format: &dyn Format) -> Result<Vec<Message>, Unsupported> {
        let message = |(index, part): (usize, &Part)| {
            let part = &*part.adapted(format);
            let message = part.write(format);
            let back = message.as_ref().map(|message| Part::read(message, format));
            let what = match (message, back) {
                (Some(message), Some(Ok(back))) if back == *part => return Ok(message),
                (None, _) => "several cells in one reply".to_owned(),
                (_, Some(Ok(back))) => {
                    format!(
                        "{}; it would be read as {}",
                        part.describe(),
                        back.describe()
                    )
                }
                (_, Some(Err(why))) => format!("{}: {why}", part.describe()),
                (_, None) => part.describe().to_owned(),
            };
            Err(Unsupported {
                message: index + 1,
                format: format.name(),
                what,
            })
        };
        self.parts.iter().enumerate().map(message).collect()
    }
}

impl Part {
    fn read(message: &Message, format: &dyn Format) -> Result<Self, String> {
        if let Some(text) = format.parse_observation(message) {
            return Ok(Self::Observation(text.to_owned()));
        }
        Ok(match message.role {
            Role::System if message.content == format.system() => Self::System(System::Own),
            Role::System => Self::System(System::Other(message.content.clone())),
            Role::User => Self::User(message.content.clone()),
            Role::Tool => return Err("a tool message".to_owned()),
            Role::Assistant => Self::Reply(DialogueMessage::read(&message.content, format)?),
        })
    }

    fn write(&self, format: &dyn Format) -> Option<Message> {
        let (role, text) = match self {
            Self::System(System::Own) => (Role::System, format.system().to_owned()),
            Self::System(System::Other(text)) => (Role::System, text.clone()),
            Self::User(text) => (Role::User, text.clone()),
            Self::Observation(text) => return Some(format.write_observation(text)),
            Self::Reply(message) => (Role::Assistant, message.write(format)?),
        };
        Some(Message::new(role, text))
    }

    /// The part as a format can express it.
    fn adapted(&self, format: &dyn Format) -> Cow<'_, Self> {
        match self {
            Self::Reply(DialogueMessage {
                thought,
                act: Act::Cells(cells),
            }) if !format.has_thoughts() && !thought.is_empty() => {
                let comment = |cell: (usize, &String)| match cell {
                    (0, cell) => with_comment(thought, cell),
                    (_, cell) => cell.clone(),
                };
                Cow::Owned(Self::Reply(DialogueMessage {
                    thought: String::new(),
                    act: Act::Cells(cells.iter().enumerate().map(comment).collect()),
                }))
            }
            _ => Cow::Borrowed(self),
        }
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::System(_) => "a system prompt",
            Self::User(_) => "a user message",
            Self::Observation(_) => "an observation",
            Self::Reply(message) => match message.act {
                Act::Cells(_) => "a reply with code",
                Act::Answer(_) => "an answer",
                Act::Text => "a reply without code or answer",
            },
        }
    }
}

impl DialogueMessage {
    fn read(reply: &str, format: &dyn Format) -> Result<Self, String> {
        let act = match format.parse(reply) {
            Parsed::Cell(cell) => Act::Cells(vec![cell.to_owned()]),
            Parsed::Calls(calls) => Act::Cells(calls.into_iter().collect::<Result<_, _>>()?),
            Parsed::Answer(answer) => Act::Answer(answer.to_owned()),
            Parsed::Unfinished(_) => Act::Text,
            // An empty reply is malformed in every format; other violations depend on the format.
            Parsed::Malformed(_) if reply.trim().is_empty() => Act::Text,
            Parsed::Malformed(why) => return Err(format!("a malformed reply ({why})")),
        };
        let mut message = Self {
            thought: String::new(),
            act,
        };
        message.thought = message.text_before(reply, format);
        Ok(message)
    }

    /// The text before the action. If the reply is written exactly as the format writes it, the text precedes a
    /// known suffix; otherwise it ends at the first tag, or at the text of the action.
    fn text_before(&self, reply: &str, format: &dyn Format) -> String {
        if self.act == Act::Text {
            return reply.to_owned();
        }
        let tail = self.write(format).unwrap_or_default();
        if let Some(before) = reply.strip_suffix(&tail) {
            return match self.act {
                Act::Answer(_) => before.strip_suffix('\n').unwrap_or(before).to_owned(),
                _ => before.to_owned(),
            };
        }
        let tags = [
            "<|execute_start|>",
            "<execute>",
            "<solution>",
            "<tool_call>",
            PYTHON_TAG,
            "```",
            "inished",
        ];
        let text = match &self.act {
            Act::Cells(cells) => cells.first().map_or("", String::as_str),
            Act::Answer(answer) => answer,
            Act::Text => "",
        };
        let positions = tags.iter().filter_map(|tag| reply.find(tag));
        let end = positions.min().or_else(|| reply.find(text)).unwrap_or(0);
        let words = reply[..end].trim_end_matches(['F', 'f', '*', '#', ' ', '\n', '\r']);
        words.to_owned()
    }

    fn write(&self, format: &dyn Format) -> Option<String> {
        match &self.act {
            Act::Cells(cells) => format.write_steps(&self.thought, cells),
            Act::Answer(answer) if self.thought.is_empty() => Some(format.write_answer(answer)),
            Act::Answer(answer) => {
                Some(format!("{}\n{}", self.thought, format.write_answer(answer)))
            }
            Act::Text => Some(self.thought.clone()),
        }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
