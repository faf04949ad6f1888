//! What sources hold: conversations and plain texts.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// How observations begin where they come as messages of the user: PyBench's and CodeActInstruct's.
const OBSERVATIONS: [&str; 3] = [
    "[INFO]This is a Code Interpreter Message:",
    "There are some errors in the code.",
    "Observation:",
];

/// One message. Roles are the template's affair; `assistant` is the one that is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    #[serde(alias = "from")]
    pub role: String,
    /// What is said.
    #[serde(alias = "value")]
    pub content: String,
    /// Calls of tools, as the chat template expects them: the assistant writes them after the content.
    #[serde(
        default,
        rename = "tool_calls",
        deserialize_with = "calls",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub calls: Vec<Value>,
}

/// A list, or null where there are none.
fn calls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Message {
    /// A message of that role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            calls: vec![],
        }
    }

    /// Whether the model is to write such messages.
    pub fn is_trained(&self) -> bool {
        self.role == "assistant"
    }

    /// Whether a tool or the interpreter speaks.
    pub fn is_observation(&self) -> bool {
        let roles = ["tool", "function", "ipython", "observation"];
        let begins = |start: &&str| self.content.trim_start().starts_with(*start);
        roles.contains(&self.role.as_str())
            || self.role == "user" && OBSERVATIONS.iter().any(begins)
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

/// A row of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Messages, of which the assistant's are trained.
    Conversation(Conversation),
    /// Plain text, all of which is trained.
    Text {
        /// The text.
        text: String,
        /// `file:row`, for messages to the user.
        place: String,
    },
}

impl Record {
    /// Where it stands.
    pub fn place(&self) -> &str {
        match self {
            Self::Conversation(conversation) => &conversation.place,
            Self::Text { place, .. } => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_told_from_questions() {
        let seen = |role, text| Message::new(role, text).is_observation();
        assert!(seen("tool", "2"));
        assert!(seen("user", "[INFO]This is a Code Interpreter Message:\n2"));
        assert!(seen("user", "Observation:\n2"));
        assert!(!seen("user", "[INFO]The data is uploaded to ./a.csv"));
        assert!(!seen("assistant", "Observation: none"));
    }
}
