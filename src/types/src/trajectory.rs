//! Output of `rollout` (messages, turns, trajectories) and of `grade` (findings, verdicts).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Digest;
use crate::observation::Observation;

/// Role of a message. Observations are user messages, as in PyBench and CodeAct, or tool messages in the formats
/// `tools` and `code_interpreter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    /// The interpreter, in the formats `tools` and `code_interpreter`.
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
    pub role: Role,
    pub content: String,
    /// Whether a reply is trained. In JSON it is the key `weight` of OpenAI's fine-tuning format: 0 for a reply that is
    /// context only; 1, or no key, for one that is trained.
    #[serde(
        rename = "weight",
        default = "trained",
        with = "weight",
        skip_serializing_if = "is_trained"
    )]
    #[schemars(with = "Option<u8>", range(max = 1))]
    pub trained: bool,
}

fn trained() -> bool {
    true
}

fn is_trained(trained: &bool) -> bool {
    *trained
}

/// A flag as the weight 0 or 1.
mod weight {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(trained: &bool, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(u8::from(*trained))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        match Option::<u64>::deserialize(from)? {
            Some(0) => Ok(false),
            None | Some(1) => Ok(true),
            Some(other) => Err(D::Error::custom(format!(
                "the weight {other} is neither 0 nor 1"
            ))),
        }
    }
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            trained: true,
        }
    }

    /// The message as context that is not trained.
    #[must_use]
    pub fn as_context(self) -> Self {
        Self {
            trained: false,
            ..self
        }
    }
}

/// Sampling parameters of a model; the defaults are those of PyBench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Softmax temperature, 0 to 2.
    #[schemars(range(min = 0, max = 2))]
    pub temperature: f64,
    /// Nucleus sampling probability mass, above 0 and at most 1.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub top_p: f64,
    /// Maximum number of tokens per reply.
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

/// Token counts of one or more calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Completion tokens.
    pub completion_tokens: u64,
}

impl Usage {
    /// Prompt and completion tokens together, at most `u64::MAX`.
    pub fn total(self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// The counts of both, each at most `u64::MAX`.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: (self.completion_tokens).saturating_add(other.completion_tokens),
        }
    }
}

/// One turn: the model's reply and the results of its code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The full reply.
    pub reply: String,
    /// The cell in the reply, if any.
    pub cell: Option<String>,
    /// Result of the cell, or, without a cell, the message about the malformed reply. `None` in the last turn.
    pub observation: Option<Observation>,
    /// Further cells of the same reply, in order (parallel calls in the format `tools`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<CellRun>,
    /// Tokens of the model call.
    pub usage: Usage,
}

impl Turn {
    /// All cells of the reply with their observations; calls that could not be run have no cell.
    pub fn cell_runs(&self) -> impl Iterator<Item = (Option<&str>, Option<&Observation>)> {
        let first = (self.cell.as_deref(), self.observation.as_ref());
        let more = self.more.iter();
        std::iter::once(first).chain(more.map(|run| (run.cell.as_deref(), Some(&run.observation))))
    }

    /// The executed cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = &str> {
        self.cell_runs().filter_map(|(cell, _)| cell)
    }

    /// The observations, in order.
    pub fn observations(&self) -> impl Iterator<Item = &Observation> {
        self.cell_runs().filter_map(|(_, observation)| observation)
    }
}

/// A further cell of a reply and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellRun {
    /// The cell; `None` for a call that could not be run.
    pub cell: Option<String>,
    /// Result of the cell, or why it could not be run.
    pub observation: Observation,
}

/// How a trajectory ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// The model replied without code and declared that it is finished.
    Finished,
    /// The model replied without code but did not declare that it is finished.
    NoAnswer,
    /// The turn limit was reached.
    MaxTurns,
    /// The model repeated itself, within a reply or by sending the same reply again and again.
    Repetition,
    /// The last reply had begun neither code nor an answer when its limit for that was reached.
    NoCode,
}

impl End {
    /// Whether a rule of the recipe ended the attempt because it was hopeless.
    pub fn is_early(&self) -> bool {
        matches!(self, Self::Repetition | Self::NoCode)
    }
}

/// A file in the agent's `./output`, as collected by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// Path relative to the workspace, `output/…`.
    pub path: String,
    /// BLAKE3 of the bytes, which are in the run folder's content store.
    pub id: Digest,
    /// Size in bytes.
    pub size: u64,
}

/// One complete attempt at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trajectory {
    /// Content id of the attempt; see [`Trajectory::compute_id`].
    pub id: Digest,
    /// Id of the task.
    pub task: Digest,
    /// Name of the teacher, such as `expert` or `openai:gpt-4o`.
    pub teacher: String,
    pub sampling: Sampling,
    /// Sample number, from 0.
    pub sample: u32,
    /// Seed of the session's random number generators, derived from the id.
    pub seed: u64,
    /// Digest of the Python environment.
    pub environment: String,
    /// Message format (`pybench`, `codeact`, `tools`, `code_interpreter`).
    pub format: String,
    /// The full conversation, including the system prompt.
    pub messages: Vec<Message>,
    /// The turns, from which `messages` are derived.
    pub turns: Vec<Turn>,
    /// Files in `./output`, sorted by path.
    pub outputs: Vec<OutputFile>,
    pub end: End,
    /// Expert only: the deliberate fault, if any. The grader never sees it.
    #[serde(default)]
    pub fault: Option<String>,
    /// The attempt that this one corrects. Its turns come first and are not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<Corrected>,
}

/// The attempt of a student that a trajectory corrects: the same task and sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Corrected {
    /// Name of the model that made the attempt.
    pub student: String,
    /// Number of its turns that are kept as context.
    pub turns: u32,
}

impl Trajectory {
    /// The id of an attempt: BLAKE3 over task, teacher, sampling, format and sample number.
    pub fn compute_id(
        task: &Digest,
        teacher: &str,
        sampling: &Sampling,
        format: &str,
        sample: u32,
    ) -> Digest {
        Digest::of_json(&(task, teacher, sampling, format, sample))
    }

    /// The final answer: the last assistant message.
    pub fn answer(&self) -> &str {
        let last = self
            .messages
            .iter()
            .rev()
            .find(|m| m.role == Role::Assistant);
        last.map_or("", |m| &m.content)
    }

    /// Total tokens of all turns.
    pub fn usage(&self) -> Usage {
        let turns = self.turns.iter().map(|turn| turn.usage);
        turns.fold(Usage::default(), Usage::saturating_add)
    }
}

/// One reason of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The filter (`format`, `finished`, `outputs`, `check`, `consistent`, `duplicate`).
    pub filter: String,
    /// Subject of the finding, such as the check `table output/result.csv`.
    pub subject: String,
    pub outcome: Outcome,
    /// Explanation: what was expected and what was found.
    pub detail: String,
    /// The two values, if the check compared values and they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<Mismatch>,
}

/// An expected value and the value that a check found instead, both as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mismatch {
    /// Where the values differ: `output/a.csv: row 3, column "price"`.
    pub place: String,
    pub expected: String,
    pub found: String,
}

/// Outcome of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pass,
    Fail,
    /// A claim without independent confirmation; does not pass.
    Unproven,
}

/// Opinion of an LLM judge on a trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Opinion {
    /// Name of the judge, such as `openai:gpt-4o`.
    pub judge: String,
    /// Whether the judge accepts the trajectory; `None` if it abstained or its reply could not be parsed.
    pub passed: Option<bool>,
    /// Reason given by the judge, truncated.
    pub reason: String,
}

/// Verdict of `grade` on a trajectory. Infrastructure failures never lead to a verdict, but to a failed unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Id of the trajectory.
    pub trajectory: Digest,
    /// All findings, in the order of the filters.
    pub findings: Vec<Finding>,
    /// Whether all findings pass.
    pub accepted: bool,
    /// Opinion of the LLM judge, if one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opinion: Option<Opinion>,
    /// Digest of the checker's source and environment.
    pub checker: String,
}
