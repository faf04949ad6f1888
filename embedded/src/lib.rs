//! A GGUF model in a process of its own.
//!
//! The process is given a file and nothing else: no environment, hence no keys. It reads questions from
//! its standard input and writes answers to its standard output, a line of JSON each; the first line
//! it writes is a [`Hello`]. This crate is that protocol; with the feature `embedded` it is also the
//! program, on llama.cpp.

#[cfg(any(feature = "embedded", test))]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod chat;
#[cfg(feature = "embedded")]
pub mod engine;
#[cfg(feature = "embedded")]
mod prompt;
#[cfg(feature = "embedded")]
mod slots;

use serde::{Deserialize, Serialize};

/// Longest line of either side, bytes.
pub const MOST_LINE: u64 = 64 << 20;

/// What the process says once the model is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// `general.name` of the file, or its architecture.
    pub model: String,
    /// Most tokens of prompt and reply together.
    pub context: u32,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
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
}

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus mass.
    pub top_p: f32,
    /// Most tokens of the reply.
    pub max_tokens: u32,
    /// Seed of the draws.
    pub seed: u32,
    /// Sequences at which the reply ends; they are no part of it.
    pub stop: Vec<String>,
}

/// An answer: a reply, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What the model said.
    Reply(Reply),
    /// The question cannot be answered, however often it is asked.
    Refused(String),
    /// This attempt failed.
    Failed(String),
}

/// What the model said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The text.
    pub content: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Those of them that an earlier question had computed.
    pub reused_tokens: u64,
    /// Tokens of the reply.
    pub completion_tokens: u64,
    /// Whether it was cut at `max_tokens` or at the end of the context.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let ask = Ask {
            messages: vec![Message::new("user", "a\n\"b\"\u{1b}")],
            temperature: 0.2,
            top_p: 0.85,
            max_tokens: 5,
            seed: u32::MAX,
            stop: vec!["</s>".into()],
        };
        let line = serde_json::to_string(&ask).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), ask);
        for answer in [
            Answer::Reply(Reply::default()),
            Answer::Refused("too long".into()),
            Answer::Failed("no memory".into()),
        ] {
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }
}
