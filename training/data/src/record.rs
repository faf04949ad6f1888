//! The rows of a source: conversations and plain texts.

use pybench_chat_template::{Chat, Message};
use pybench_types::held_out::Unseen;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub messages: Vec<Message>,
    /// The tools that the assistant may call, as in OpenAI's API.
    pub tools: Vec<Value>,
    /// `file:row`, for messages to the user.
    pub location: String,
    /// For held-out conversations, what training rows lack of this one: the columns `unseen` and `held_out_template` of
    /// our own shards. Without these columns, only its files.
    pub unseen: Unseen,
    /// The column `difficulty` of our own shards; 0 without it.
    pub difficulty: u32,
}

impl<'a> From<&'a Conversation> for Chat<'a> {
    fn from(conversation: &'a Conversation) -> Self {
        Self::new(&conversation.messages, &conversation.tools)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The assistant's messages are trained, except those with the weight 0.
    Conversation(Conversation),
    /// All of the text is trained.
    Text { text: String, location: String },
    /// Two replies to the same messages.
    Preference(Box<Preference>),
}

/// A row of a preference dataset: two conversations that begin with the same messages, of which only what follows is
/// trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Number of messages that both begin with.
    pub prompt: usize,
    pub chosen: Conversation,
    pub rejected: Conversation,
}

impl Record {
    pub fn location(&self) -> &str {
        match self {
            Self::Conversation(conversation) => &conversation.location,
            Self::Text { location, .. } => location,
            Self::Preference(pair) => &pair.chosen.location,
        }
    }
}
