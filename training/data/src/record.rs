//! The rows of a source: conversations and plain texts.

use pybench_chat_template::{Chat, Message};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub messages: Vec<Message>,
    /// The tools that the assistant may call, as in OpenAI's API.
    pub tools: Vec<Value>,
    /// `file:row`, for messages to the user.
    pub location: String,
    /// Whether the task template was held out of training; only our own shards have this column.
    pub held_out_template: bool,
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
}

impl Record {
    pub fn location(&self) -> &str {
        match self {
            Self::Conversation(conversation) => &conversation.location,
            Self::Text { location, .. } => location,
        }
    }
}
