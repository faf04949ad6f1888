//! What `rollout` makes: messages, turns, trajectories; and what `grade` says of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Digest;
use crate::interpreter::Observation;

/// Who speaks. Observations come back as user messages, as PyBench and CodeAct have them; in the
/// format `tools` as messages of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Role {
    System,
    User,
    Assistant,
    /// The interpreter, in the format `tools`.
    Tool,
}

impl Role {
    /// `system`, `user`, `assistant`, `tool`.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message of a conversation, as PyInstruct stores it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of that role.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
        }
    }
}

/// How replies are sampled; upstream's defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Softmax temperature, 0 to 2.
    #[schemars(range(min = 0, max = 2))]
    pub temperature: f64,
    /// Nucleus mass, above 0 to 1.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub top_p: f64,
    /// Most tokens of one reply.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.2,
            top_p: 0.85,
            max_tokens: 1000,
        }
    }
}

/// Tokens of one call or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
}

/// One turn: the model's reply, and what its code did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The reply in full.
    pub reply: String,
    /// The cell found in it.
    pub cell: Option<String>,
    /// What the interpreter answered; without a cell, what the model was told of its broken reply.
    /// `None` ends the run.
    pub observation: Option<Observation>,
    /// The other cells of the same reply, in order: parallel calls of the format `tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Ran>,
    /// Tokens of the call.
    pub usage: Usage,
}

impl Turn {
    /// Every cell of the reply with what it did; calls that could not be run have none.
    pub fn ran(&self) -> impl Iterator<Item = (Option<&str>, Option<&Observation>)> {
        let first = (self.cell.as_deref(), self.observation.as_ref());
        let more = self.more.iter();
        std::iter::once(first).chain(more.map(|ran| (ran.cell.as_deref(), Some(&ran.observation))))
    }

    /// The cells that were run, in order.
    pub fn cells(&self) -> impl Iterator<Item = &str> {
        self.ran().filter_map(|(cell, _)| cell)
    }

    /// What came back, in order.
    pub fn observations(&self) -> impl Iterator<Item = &Observation> {
        self.ran().filter_map(|(_, seen)| seen)
    }
}

/// One more cell of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ran {
    /// The cell; `None` for a call that could not be run.
    pub cell: Option<String>,
    /// What the interpreter answered, or why there was nothing to run.
    pub observation: Observation,
}

/// How a trajectory ended. Only `Finished` and `MaxTurns` and `NoAnswer` are the model's own doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// The model replied without code and said that it is finished.
    Finished,
    /// The model replied without code but did not say that it is finished.
    NoAnswer,
    /// The limit of turns was reached.
    MaxTurns,
}

/// A file the agent left under `./output`, as the host collected it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// Path relative to the workspace, `output/…`.
    pub path: String,
    /// BLAKE3 of the bytes, which lie in the run folder's content store.
    pub id: Digest,
    /// Bytes.
    pub size: u64,
}

/// One complete try at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trajectory {
    /// Content id of what was asked; see [`Trajectory::compute_id`].
    pub id: Digest,
    /// The task.
    pub task: Digest,
    /// Teacher, for instance `expert` or `openai:gpt-4o`.
    pub teacher: String,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Sample number, from 0.
    pub sample: u32,
    /// Seed of the session's random state, derived from the id.
    pub seed: u64,
    /// Digest of the Python environment.
    pub environment: String,
    /// Message format (`pybench`, `codeact`, `tools`).
    pub format: String,
    /// The conversation in full, system prompt included.
    pub messages: Vec<Message>,
    /// The turns; `messages` follow from them.
    pub turns: Vec<Turn>,
    /// Files left under `./output`, sorted by path.
    pub outputs: Vec<OutputFile>,
    /// How it ended.
    pub end: End,
    /// Expert only: the fault put in on purpose, `None` for an honest one. The grader never sees it.
    #[serde(default)]
    pub fault: Option<String>,
}

impl Trajectory {
    /// The id of a try: BLAKE3 over task, teacher, sampling, format and sample number.
    pub fn compute_id(
        task: &Digest,
        teacher: &str,
        sampling: &Sampling,
        format: &str,
        sample: u32,
    ) -> Digest {
        Digest::of_json(&(task, teacher, sampling, format, sample))
    }

    /// The last assistant message: the answer.
    pub fn answer(&self) -> &str {
        let last = self
            .messages
            .iter()
            .rev()
            .find(|m| m.role == Role::Assistant);
        last.map_or("", |m| &m.content)
    }

    /// Tokens of all turns.
    pub fn usage(&self) -> Usage {
        self.turns.iter().fold(Usage::default(), |sum, turn| Usage {
            prompt_tokens: sum.prompt_tokens + turn.usage.prompt_tokens,
            completion_tokens: sum.completion_tokens + turn.usage.completion_tokens,
        })
    }
}

/// One reason of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The filter (`format`, `finished`, `outputs`, `check`, `consistent`, `duplicate`).
    pub filter: String,
    /// What it looked at, for instance the check as `table output/result.csv`.
    pub subject: String,
    /// What it found.
    pub outcome: Outcome,
    /// In words: what was expected and what was there.
    pub detail: String,
}

/// What a filter found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// A claim that no independent look supports; no pass.
    Unproven,
}

/// What a language model that judges says of a trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Opinion {
    /// Who judged, for instance `openai:gpt-4o`.
    pub judge: String,
    /// Whether it holds; `None`: it abstained, or its answer could not be read. Never a verdict then.
    pub passed: Option<bool>,
    /// In its words, cut.
    pub reason: String,
}

/// What `grade` says of a trajectory. A failure of ours is never a verdict: it is a failed unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The trajectory.
    pub trajectory: Digest,
    /// Every finding, in the order of the filters.
    pub findings: Vec<Finding>,
    /// Whether all findings pass.
    pub accepted: bool,
    /// What a language model says of it, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opinion: Option<Opinion>,
    /// Digest of the checker's source and environment.
    pub checker: String,
}
