//! A conversation as its page shows it.

use pybench_agent::Format;
use pybench_chat::entry::Entry;
use pybench_run::{FormatChoice, RunError};
use pybench_types::trajectory::{Turn, Usage, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file_types::Preview;
use crate::model_choice::{ModelChoice, ModelEndpoint};
use crate::view::{CellView, TurnView};

/// What the page of all conversations shows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ChatList {
    /// Names of the agents that a conversation can begin with.
    pub(crate) agents: Vec<String>,
    /// Why there are no agents, or fewer than expected.
    pub(crate) problem: String,
    /// The conversations, the last one first.
    pub(crate) conversations: Vec<SavedChat>,
    /// The endpoints that people named, the last one first; null if neither endpoints nor files can be named.
    pub(crate) endpoints: Option<Vec<ModelEndpoint>>,
}

/// A conversation that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SavedChat {
    pub(crate) id: String,
    /// The beginning of its first message.
    pub(crate) title: String,
    /// Time of the last change, seconds since 1970.
    pub(crate) changed: u64,
}

/// A request to open a conversation: a new one with an agent, at an endpoint or with a model in a file, or one that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    #[serde(default)]
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) conversation: Option<String>,
    /// What a new one is about.
    #[serde(default)]
    pub(crate) about: Option<ChatTopic>,
    /// Message format of a new one, unless it is that of the agent's recipe (`tools` at an endpoint): `tools` has function
    /// calls, the others prompts.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) format: Option<FormatChoice>,
    /// With which model a new one is, instead of an agent.
    #[serde(default)]
    pub(crate) endpoint: Option<ModelEndpoint>,
    /// A checkpoint or GGUF file with which a new one is instead, by its path in the project.
    #[serde(default)]
    pub(crate) file: Option<String>,
}

impl ChatRequest {
    /// The model of a new conversation; `None` if a saved one is asked for.
    ///
    /// # Errors
    /// As [`ModelChoice::of`].
    pub(crate) fn model(&self) -> Result<Option<ModelChoice<'_>>, RunError> {
        let (agent, file) = (self.agent.as_deref(), self.file.as_deref());
        ModelChoice::of(agent, self.endpoint.as_ref(), file)
    }
}

/// The task of a trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatTopic {
    /// Name of the run or dataset.
    pub(crate) name: String,
    /// Number of the trajectory.
    pub(crate) number: u64,
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ChatItem {
    pub(crate) kind: ChatItemKind,
    /// Number of a message, from 1; otherwise 0.
    pub(crate) number: u32,
    /// The message, or the name of the file.
    pub(crate) text: String,
    /// The reply with its cells.
    pub(crate) turn: Option<TurnView>,
}

/// What a part of a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChatItemKind {
    File,
    Message,
    Reply,
    /// The beginning of a reply that the person stopped.
    Stopped,
}

/// A file of the session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ChatFile {
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) preview: Preview,
}

/// A conversation that is open.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ChatView {
    pub(crate) id: String,
    /// Name of the agent.
    pub(crate) agent: String,
    pub(crate) model: String,
    pub(crate) format: String,
    /// Grows with each change.
    pub(crate) version: u64,
    /// Grows when entries are taken back.
    pub(crate) generation: u64,
    /// Number of the parts before `items`.
    pub(crate) from: usize,
    pub(crate) items: Vec<ChatItem>,
    /// Whether the model works.
    pub(crate) working: bool,
    /// The text of the reply that arrives. It is not saved.
    pub(crate) reply: String,
    /// The cell that runs.
    pub(crate) running: Option<CellView>,
    /// Whether the model can go on without a message.
    pub(crate) unfinished: bool,
    /// Why the last work failed.
    pub(crate) problem: String,
    /// What a person should know of the session.
    pub(crate) notes: Vec<String>,
    /// The files of the session, while it runs.
    pub(crate) files: Vec<ChatFile>,
    /// Limits, one sentence each.
    pub(crate) limits: Vec<String>,
    pub(crate) tokens: u64,
    /// Millionths of a US dollar; `None` if the price is unknown.
    pub(crate) micro_usd: Option<u64>,
    /// Whether the conversation is about a task, so that it can be checked.
    pub(crate) gradable: bool,
    pub(crate) verdict: Option<Verdict>,
}

/// The parts of a conversation from number `from` on. A reply comes with its cells.
pub(crate) fn items(entries: &[Entry], format: &dyn Format, from: usize) -> Vec<ChatItem> {
    let (mut items, mut turns, mut number) = (Vec::new(), Vec::<(usize, Turn)>::new(), 0);
    let item = |kind, number, text: &str| ChatItem {
        kind,
        number,
        text: text.to_owned(),
        turn: None,
    };
    for entry in entries {
        match entry {
            Entry::File(file) => items.push(item(ChatItemKind::File, 0, &file.name)),
            Entry::Message { text } => {
                number += 1;
                items.push(item(ChatItemKind::Message, number, text));
            }
            Entry::Reply { reply } => {
                let text = format.truncate(&reply.content, reply.truncated);
                turns.push((items.len(), turn(text, reply.usage)));
                items.push(item(ChatItemKind::Reply, 0, ""));
            }
            Entry::PartialReply { text } => {
                turns.push((items.len(), turn(text.clone(), Usage::default())));
                items.push(item(ChatItemKind::Stopped, 0, ""));
            }
            Entry::Run { run, .. } => {
                let Some((_, turn)) = turns.last_mut() else {
                    continue;
                };
                match turn.observation {
                    None => {
                        turn.cell.clone_from(&run.cell);
                        turn.observation = Some(run.observation.clone());
                    }
                    Some(_) => turn.more.push(run.clone()),
                }
            }
            Entry::Rewind { .. } => {}
        }
    }
    for (at, turn) in turns.iter().filter(|(at, _)| *at >= from) {
        items[*at].turn = Some(TurnView::new(turn, true));
    }
    items.split_off(from.min(items.len()))
}

fn turn(reply: String, usage: Usage) -> Turn {
    Turn {
        reply,
        cell: None,
        observation: None,
        more: Vec::new(),
        usage,
    }
}
