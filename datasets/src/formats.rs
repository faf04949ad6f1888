//! Reads and writes conversations in the schemas of other datasets.
//!
//! Every schema is converted to and from a [`Conversation`]. What a schema cannot represent is rewritten (a tool
//! call becomes a code block) or left out, and reported. [`Schema::fit`] returns the conversation as the schema can
//! represent it, and the names of what was lost. Reading a written row returns exactly that conversation.

mod read;
mod rows;
mod write;

use serde_json::{Map, Value};

pub use read::{FormatError, TraceReader};
pub use rows::of_row;
pub use write::LostFields;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageRole {
    System,
    User,
    Assistant,
    /// A tool, returning the result of a call.
    Tool,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Id that the result refers to; empty if the schema has no ids.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments, usually an object.
    pub arguments: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChatMessage {
    pub role: MessageRole,
    /// Text of the message. May be empty if there are tool calls.
    pub content: String,
    /// The model's reasoning, if the schema stores it separately.
    pub reasoning: Option<String>,
    /// Tool calls.
    pub calls: Vec<Call>,
    /// Id of the call whose result this message is.
    pub call_id: Option<String>,
    /// Whether a reply is trained. Always true for other messages.
    pub trained: bool,
}

impl ChatMessage {
    /// A message with text only.
    pub fn new(role: MessageRole, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning: None,
            calls: Vec::new(),
            call_id: None,
            trained: true,
        }
    }
}

/// A conversation and its other columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    pub id: Option<String>,
    pub messages: Vec<ChatMessage>,
    /// Tool definitions in OpenAI's format, or null.
    pub tools: Value,
    /// All other columns, by name.
    pub extra: Map<String, Value>,
}

impl Conversation {
    /// Merge user messages that follow each other, with an empty line between them. Chat templates such as those of
    /// Llama 2, Mistral and Gemma refuse two user messages in a row.
    pub fn merge_user_messages(&mut self) {
        self.messages.dedup_by(|next, first| {
            let adjacent = first.role == MessageRole::User && next.role == MessageRole::User;
            if adjacent {
                first.content = format!("{}\n\n{}", first.content, next.content);
            }
            adjacent
        });
    }
}

/// A dataset schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Schema {
    /// `messages` of `{role, content}`, `tools`, `tool_choices`.
    Pyinstruct,
    /// xingyaoww/code-act: `id`, `conversations` of `{role, content}`.
    CodeAct,
    /// m-a-p/Code-Feedback: `id`, `messages` of `{role, content}`.
    CodeFeedback,
    /// HuggingFaceH4/ultrachat_200k: `prompt`, `prompt_id`, `messages`.
    Ultrachat,
    /// jupyter-agent/jupyter-agent-dataset: `messages` with `tool_calls` whose arguments are objects,
    /// and additional columns about the question.
    JupyterAgent,
    /// `trajectory.jsonl` of the original PyBench: the fields of `task.json`, and `messages`.
    Upstream,
    /// ShareGPT: `conversations` of `{from, value}`.
    Conversations,
    /// OpenAI: `messages` with `tool_calls` whose arguments are JSON strings, and `weight` 0 for replies that are not
    /// trained; `tools`.
    Openai,
    /// The Hub's session traces: a header line, then one line for each message.
    Traces,
}

/// What a schema can represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) system: bool,
    pub(crate) tool: bool,
    pub(crate) calls: bool,
    /// Whether calls have ids that results refer to.
    pub(crate) call_ids: bool,
    pub(crate) reasoning: bool,
    pub(crate) id: bool,
    pub(crate) tools: bool,
    /// Whether a reply can be marked as not trained, with the weight 0.
    pub(crate) weights: bool,
    /// Whether rows can have additional columns.
    pub(crate) extra: bool,
}

impl Schema {
    /// Every schema.
    pub const ALL: [Self; 9] = [
        Self::Pyinstruct,
        Self::CodeAct,
        Self::CodeFeedback,
        Self::Ultrachat,
        Self::JupyterAgent,
        Self::Upstream,
        Self::Conversations,
        Self::Openai,
        Self::Traces,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyinstruct => "pyinstruct",
            Self::CodeAct => "code-act",
            Self::CodeFeedback => "code-feedback",
            Self::Ultrachat => "ultrachat",
            Self::JupyterAgent => "jupyter-agent",
            Self::Upstream => "upstream",
            Self::Conversations => "conversations",
            Self::Openai => "openai",
            Self::Traces => "traces",
        }
    }

    /// Look up a schema by its name, or by the name of a trainer that reads it.
    pub fn named(name: &str) -> Option<Self> {
        let name = match name {
            "sharegpt" => "conversations",
            "messages" | "trl" | "axolotl" => "openai",
            other => other,
        };
        Self::ALL.into_iter().find(|schema| schema.name() == name)
    }

    pub(crate) fn capabilities(self) -> Capabilities {
        let plain = Capabilities {
            system: true,
            tool: false,
            calls: false,
            call_ids: false,
            reasoning: false,
            id: true,
            tools: false,
            weights: false,
            extra: false,
        };
        let calling = Capabilities {
            tool: true,
            calls: true,
            call_ids: true,
            ..plain
        };
        match self {
            Self::Pyinstruct => Capabilities {
                id: false,
                tools: true,
                ..plain
            },
            Self::CodeAct | Self::CodeFeedback => plain,
            Self::Ultrachat => Capabilities {
                system: false,
                ..plain
            },
            Self::JupyterAgent => Capabilities {
                tools: true,
                extra: true,
                ..calling
            },
            Self::Upstream => Capabilities {
                tool: true,
                extra: true,
                ..plain
            },
            Self::Conversations => Capabilities {
                call_ids: false,
                tools: true,
                ..calling
            },
            Self::Openai => Capabilities {
                reasoning: true,
                tools: true,
                weights: true,
                ..calling
            },
            Self::Traces => Capabilities {
                reasoning: true,
                extra: true,
                ..calling
            },
        }
    }
}
