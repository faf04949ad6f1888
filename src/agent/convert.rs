//! Conversations from one message format into another.
//!
//! A conversation is read into a [`Talk`], which says who did what and nothing of tags, and written in
//! the other format. What was written is read back and compared: what the other format cannot say is an
//! error with its place, and what would come back in other words is named.

use super::{Format, Parsed};
use crate::trajectory::{Message, Role};

/// A conversation without its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talk {
    /// Its messages.
    pub parts: Vec<Part>,
}

/// A message without its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A system prompt.
    System(System),
    /// The user speaks.
    User(String),
    /// The model replies.
    Reply(Said),
    /// The text of an observation.
    Heard(String),
}

/// Which system prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// The format's own: the other format's own stands for it.
    Own,
    /// Another one, which stays as it is.
    Other(String),
}

/// A reply without its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What comes before the act.
    pub thought: String,
    /// What the reply does.
    pub act: Act,
}

/// What a reply does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Runs cells, at least one; several at once only in the format `tools`.
    Cells(Vec<String>),
    /// Answers.
    Answer(String),
    /// Neither; the thought is all of it.
    Words,
}

/// Something that a format cannot say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {message}: {format} cannot say this: {what}")]
pub struct Unsayable {
    /// Number of the message, from 1.
    pub message: usize,
    /// The format.
    pub format: &'static str,
    /// What it cannot say.
    pub what: String,
}

/// A conversation in another format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The conversation.
    pub messages: Vec<Message>,
    /// What will come back in other words, by the number of its message. Empty: converting back gives
    /// the same messages.
    pub reworded: Vec<(usize, &'static str)>,
}

/// A conversation of the format `from` in the format `to`.
///
/// # Errors
/// The first message that one of the two cannot say.
pub fn convert(
    messages: &[Message],
    from: &dyn Format,
    to: &dyn Format,
) -> Result<Converted, Unsayable> {
    let talk = Talk::read(messages, from)?;
    let converted = talk.write(to)?;
    let mut reworded = Vec::new();
    for (index, (part, message)) in talk.parts.iter().zip(messages).enumerate() {
        // What one message was read as, the format writes in one way only.
        if part.write(from).as_ref() != Some(message) {
            reworded.push((index + 1, part.what()));
        }
    }
    Ok(Converted {
        messages: converted,
        reworded,
    })
}

impl Talk {
    /// Reads a conversation of that format.
    ///
    /// # Errors
    /// A message that breaks the format, and so has no meaning in any.
    pub fn read(messages: &[Message], format: &dyn Format) -> Result<Self, Unsayable> {
        let part = |(index, message): (usize, &Message)| {
            Part::read(message, format).map_err(|what| Unsayable {
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

    /// The conversation in that format.
    ///
    /// # Errors
    /// The first part that the format cannot say: it would be read as something else.
    pub fn write(&self, format: &dyn Format) -> Result<Vec<Message>, Unsayable> {
        let message = |(index, part): (usize, &Part)| {
            let message = part.write(format);
            let back = message.as_ref().map(|message| Part::read(message, format));
            let what = match (message, back) {
                (Some(message), Some(Ok(back))) if back == *part => return Ok(message),
                (None, _) => "several cells in one reply".to_owned(),
                (_, Some(Ok(back))) => {
                    format!("{}; it would be read as {}", part.what(), back.what())
                }
                (_, Some(Err(why))) => format!("{}: {why}", part.what()),
                (_, None) => part.what().to_owned(),
            };
            Err(Unsayable {
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
        if let Some(text) = format.heard(message) {
            return Ok(Self::Heard(text.to_owned()));
        }
        Ok(match message.role {
            Role::System if message.content == format.system() => Self::System(System::Own),
            Role::System => Self::System(System::Other(message.content.clone())),
            Role::User => Self::User(message.content.clone()),
            Role::Tool => return Err("a message of a tool".to_owned()),
            Role::Assistant => Self::Reply(Said::read(&message.content, format)?),
        })
    }

    fn write(&self, format: &dyn Format) -> Option<Message> {
        let (role, text) = match self {
            Self::System(System::Own) => (Role::System, format.system().to_owned()),
            Self::System(System::Other(text)) => (Role::System, text.clone()),
            Self::User(text) => (Role::User, text.clone()),
            Self::Heard(text) => return Some(format.write_heard(text)),
            Self::Reply(said) => (Role::Assistant, said.write(format)?),
        };
        Some(Message::new(role, text))
    }

    fn what(&self) -> &'static str {
        match self {
            Self::System(_) => "a system prompt",
            Self::User(_) => "words of the user",
            Self::Heard(_) => "an observation",
            Self::Reply(said) => match said.act {
                Act::Cells(_) => "a reply with code",
                Act::Answer(_) => "an answer",
                Act::Words => "a reply without code or answer",
            },
        }
    }
}

impl Said {
    fn read(reply: &str, format: &dyn Format) -> Result<Self, String> {
        let act = match format.parse(reply) {
            Parsed::Cell(cell) => Act::Cells(vec![cell.to_owned()]),
            Parsed::Calls(calls) => Act::Cells(calls.into_iter().collect::<Result<_, _>>()?),
            Parsed::Answer(answer) => Act::Answer(answer.to_owned()),
            Parsed::Unfinished(_) => Act::Words,
            // An empty reply says nothing in every format; other breaks are those of one alone.
            Parsed::Malformed(_) if reply.trim().is_empty() => Act::Words,
            Parsed::Malformed(why) => return Err(format!("a broken reply ({why})")),
        };
        let mut said = Self {
            thought: String::new(),
            act,
        };
        said.thought = said.before(reply, format);
        Ok(said)
    }

    /// The words before the act. In the format's own writing they stand before a tail that is known;
    /// otherwise they end where the act's text, or the tag before it, begins.
    fn before(&self, reply: &str, format: &dyn Format) -> String {
        if self.act == Act::Words {
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
            "```",
            "inished",
        ];
        let text = match &self.act {
            Act::Cells(cells) => cells.first().map_or("", String::as_str),
            Act::Answer(answer) => answer,
            Act::Words => "",
        };
        let places = tags.iter().filter_map(|tag| reply.find(tag));
        let end = places.min().or_else(|| reply.find(text)).unwrap_or(0);
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
            Act::Words => Some(self.thought.clone()),
        }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
