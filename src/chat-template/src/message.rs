//! One message of a conversation.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Prefixes of observations that are sent as user messages (PyBench, CodeActInstruct).
const OBSERVATION_PREFIXES: [&str; 3] = [
    "[INFO]This is a Code Interpreter Message:",
    "There are some errors in the code.",
    "Observation:",
];

/// A message. The template interprets the role; `assistant` messages are trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    #[serde(alias = "from")]
    pub role: String,
    #[serde(alias = "value")]
    pub content: String,
    /// Passed to the chat template as they are; the assistant writes them after the content.
    #[serde(
        default,
        deserialize_with = "list_or_null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<Value>,
}

fn list_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            tool_calls: vec![],
        }
    }

    pub fn is_assistant(&self) -> bool {
        self.role == "assistant"
    }

    /// Whether the message is output of a tool or of the interpreter.
    pub fn is_observation(&self) -> bool {
        let roles = ["tool", "function", "ipython", "observation"];
        let begins = |start: &&str| self.content.trim_start().starts_with(*start);
        roles.contains(&self.role.as_str())
            || self.role == "user" && OBSERVATION_PREFIXES.iter().any(begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_told_from_questions() {
        let is_observation = |role, text| Message::new(role, text).is_observation();
        assert!(is_observation("tool", "2"));
        assert!(is_observation(
            "user",
            "[INFO]This is a Code Interpreter Message:\n2"
        ));
        assert!(is_observation("user", "Observation:\n2"));
        assert!(!is_observation(
            "user",
            "[INFO]The data is uploaded to ./a.csv"
        ));
        assert!(!is_observation("assistant", "Observation: none"));
    }
}
