//! Conversations.

use serde::{Deserialize, Serialize};

/// One message. Roles are the template's affair; `assistant` is the one that is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    #[serde(alias = "from")]
    pub role: String,
    /// What is said.
    #[serde(alias = "value")]
    pub content: String,
}

impl Message {
    /// A message of that role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }

    /// Whether the model is to write such messages.
    pub fn is_trained(&self) -> bool {
        self.role == "assistant"
    }
}

/// A conversation and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The messages in order.
    pub messages: Vec<Message>,
    /// `file:row`, for messages to the user.
    pub place: String,
    /// Whether its task template was left out of training; only our own shards say so.
    pub held_out_template: bool,
}
