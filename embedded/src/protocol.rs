//! The lines of JSON that the program and its client exchange.

use serde::{Deserialize, Serialize};

/// The longest line that either side accepts.
pub const MAX_LINE_BYTES: u64 = 64 << 20;

/// The line with which the client withdraws its request. The program ends the reply at the next token and answers; if it
/// has answered already, the line means nothing.
pub const STOP_LINE: &[u8] = b"stop";

/// The first line of the program, once the model is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// `general.name` of the GGUF file, or its architecture.
    pub model: String,
    /// Maximum number of tokens of prompt and reply together.
    pub context: u32,
    /// Whether the program streams replies and knows [`STOP_LINE`].
    #[serde(default)]
    pub streams: bool,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    pub content: String,
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// A request: one conversation to continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    pub messages: Vec<Message>,
    /// 0 is greedy decoding.
    pub temperature: f32,
    pub top_p: f32,
    pub max_tokens: u32,
    pub seed: u32,
    /// Strings that end the reply; they are not part of it.
    pub stop: Vec<String>,
    /// Whether the reply comes as [`Answer::Text`] too, while it is generated.
    #[serde(default)]
    pub stream: bool,
}

/// A reply, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The next piece of a reply that is streamed. More pieces follow, then another answer.
    Text(String),
    Reply(Reply),
    /// The request can never be answered: it is wrong, or too long for the context.
    Refused(String),
    /// This attempt failed; another may succeed.
    Failed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub content: String,
    pub prompt_tokens: u64,
    /// Prompt tokens whose keys and values were cached.
    pub reused_tokens: u64,
    pub completion_tokens: u64,
    /// Whether the reply ended at `max_tokens` or at the end of the context.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_a_round_trip() {
        let ask = Ask {
            messages: vec![Message::new("user", "a\n\"b\"\u{1b}")],
            temperature: 0.2,
            top_p: 0.85,
            max_tokens: 5,
            seed: u32::MAX,
            stop: vec!["</s>".into()],
            stream: true,
        };
        let line = serde_json::to_string(&ask).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), ask);
        for answer in [
            Answer::Text("a\n".into()),
            Answer::Reply(Reply::default()),
            Answer::Refused("too long".into()),
            Answer::Failed("no memory".into()),
        ] {
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }
}
