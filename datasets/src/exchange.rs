//! Conversations in the schemas of others: what each can say, reading, writing.
//!
//! Every schema is read into and written from a [`Conversation`]. What a schema cannot say is put into
//! words that it has (a call of a tool becomes a block of code) or left out, and named: [`Schema::fit`]
//! gives the conversation as the schema can say it, and the names of what was lost. Reading what was
//! written gives exactly that back.

mod read;
mod rows;
mod write;

use serde_json::{Map, Value};

pub use read::{ExchangeError, TraceReader};
pub use rows::of_row;
pub use write::Lost;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Speaker {
    System,
    User,
    Assistant,
    /// A tool, answering a call.
    Tool,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// By which its answer is found; empty where a schema has none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: an object in most cases.
    pub arguments: Value,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Who speaks.
    pub speaker: Speaker,
    /// What is said; may be empty where there are calls.
    pub content: String,
    /// What was thought before, where it is kept apart.
    pub reasoning: Option<String>,
    /// Calls of tools.
    pub calls: Vec<Call>,
    /// The call that this answers.
    pub answers: Option<String>,
}

impl Said {
    /// Plain words.
    pub fn new(speaker: Speaker, content: impl Into<String>) -> Self {
        Self {
            speaker,
            content: content.into(),
            reasoning: None,
            calls: Vec::new(),
            answers: None,
        }
    }
}

/// A conversation, and what stands beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Its name.
    pub id: Option<String>,
    /// The messages.
    pub messages: Vec<Said>,
    /// Descriptions of tools, as OpenAI has them; null without.
    pub tools: Value,
    /// Everything else that stood beside the messages, under its own name.
    pub beside: Map<String, Value>,
}

/// A schema.
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
    /// and columns about the question.
    JupyterAgent,
    /// Upstream's `trajectory.jsonl`: the fields of `task.json`, and `messages`.
    Upstream,
    /// ShareGPT: `conversations` of `{from, value}`.
    Conversations,
    /// OpenAI: `messages` with `tool_calls` whose arguments are texts, `tools`.
    Openai,
    /// The Hub's session traces: a header, and a line for each message.
    Traces,
}

/// What a schema can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) system: bool,
    pub(crate) tool: bool,
    pub(crate) calls: bool,
    /// Calls have names by which answers find them.
    pub(crate) call_ids: bool,
    /// Arguments may be anything; otherwise objects and texts.
    pub(crate) reasoning: bool,
    pub(crate) id: bool,
    pub(crate) tools: bool,
    pub(crate) beside: bool,
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

    /// Its name on a command line.
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

    /// The schema of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|schema| schema.name() == name)
    }

    pub(crate) fn abilities(self) -> Abilities {
        let plain = Abilities {
            system: true,
            tool: false,
            calls: false,
            call_ids: false,
            reasoning: false,
            id: true,
            tools: false,
            beside: false,
        };
        let calling = Abilities {
            tool: true,
            calls: true,
            call_ids: true,
            ..plain
        };
        match self {
            Self::Pyinstruct => Abilities {
                id: false,
                tools: true,
                ..plain
            },
            Self::CodeAct | Self::CodeFeedback => plain,
            Self::Ultrachat => Abilities {
                system: false,
                ..plain
            },
            Self::JupyterAgent => Abilities {
                tools: true,
                beside: true,
                ..calling
            },
            Self::Upstream => Abilities {
                tool: true,
                beside: true,
                ..plain
            },
            Self::Conversations => Abilities {
                call_ids: false,
                tools: true,
                ..calling
            },
            Self::Openai => Abilities {
                reasoning: true,
                tools: true,
                ..calling
            },
            Self::Traces => Abilities {
                reasoning: true,
                beside: true,
                ..calling
            },
        }
    }
}
