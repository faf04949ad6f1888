//! `rollout`: how tasks are solved.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pybench_types::trajectory::Sampling;

/// How tasks are solved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rollout {
    /// Number of samples per task.
    #[schemars(range(min = 1, max = 1000))]
    pub samples: u32,
    /// Message format.
    pub format: FormatChoice,
    /// Maximum number of turns of a trajectory.
    #[schemars(range(min = 1, max = 100))]
    pub max_turns: u32,
    /// An attempt ends when a model has sent the same reply this many times in a row [default: it goes on].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 100))]
    pub max_identical_turns: Option<u32>,
    /// A reply that repeats itself ends, and the attempt with it. For servers that know vLLM's parameter of this name:
    /// vLLM, and `pybench serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_detection: Option<RepetitionDetection>,
    /// A reply that has begun neither code nor an answer after this many tokens ends, and the attempt with it
    /// [default: it goes on]. `kind = "checkpoint"` stops writing there; other models complete the reply first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub code_within_tokens: Option<u32>,
    /// Sampling parameters of the teachers.
    pub sampling: Sampling,
    /// Number of trajectories in flight; 0: as many as the endpoint, the cores, the memory and the budget allow.
    #[schemars(range(max = 1024))]
    pub concurrency: usize,
    /// Number of attempts at a unit of work, counted for each call of a model, before it counts as failed.
    #[schemars(range(min = 1, max = 100))]
    pub attempts: u32,
    /// Maximum duration of an attempt at a unit of work, in minutes; then it ends as failed, and the next one continues
    /// from the last turn [default: 360].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 525_600), extend("exclusiveMinimum" = 0))]
    pub unit_minutes: Option<f64>,
    /// Reuse replies that another run of this project already paid for, from `data/cache`.
    pub reuse: bool,
    /// The first model of `escalation` continues the rejected attempts of `teacher` from their first failing turn on, as
    /// `kind = "correction"` does with the expert. Otherwise it begins the task from its beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub corrections: bool,
}

/// Longer than a trajectory of slow replies takes; a unit that takes longer hangs.
const DEFAULT_UNIT_MINUTES: f64 = 360.0;

impl Rollout {
    /// The number of trajectories in flight, if the recipe gives one.
    pub fn fixed_concurrency(&self) -> Option<usize> {
        (self.concurrency > 0).then_some(self.concurrency)
    }

    /// Maximum duration of an attempt at a unit of work.
    pub fn unit_limit(&self) -> Duration {
        let minutes = self.unit_minutes.unwrap_or(DEFAULT_UNIT_MINUTES);
        Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(Duration::MAX)
    }
}

/// When a reply counts as repeating itself, as vLLM defines it: it ends with a pattern that follows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepetitionDetection {
    /// Tokens of the longest pattern.
    #[schemars(range(min = 1, max = 4096))]
    pub max_pattern_size: u32,
    /// Tokens of the shortest pattern.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4096))]
    pub min_pattern_size: u32,
    /// How often the pattern occurs in a row.
    #[schemars(range(min = 2, max = 4096))]
    pub min_count: u32,
}

fn one() -> u32 {
    1
}

impl RepetitionDetection {
    /// Why no pattern can have these sizes.
    pub fn problem(&self) -> Option<String> {
        let (min, max) = (self.min_pattern_size, self.max_pattern_size);
        (min > max).then(|| {
            format!("min_pattern_size: {min} is more than max_pattern_size, {max}; lower it")
        })
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            samples: 1,
            format: FormatChoice::Pybench,
            max_turns: 10,
            max_identical_turns: None,
            repetition_detection: None,
            code_within_tokens: None,
            sampling: Sampling::default(),
            concurrency: 0,
            attempts: 4,
            unit_minutes: None,
            reuse: true,
            corrections: false,
        }
    }
}

/// Message format of the trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FormatChoice {
    /// The prompt format of PyBench: cells between `<|execute_start|>` and `<|execute_end|>`.
    #[default]
    Pybench,
    /// The format of CodeAct: cells between `<execute>` and `</execute>`, the answer between `<solution>` and
    /// `</solution>`.
    Codeact,
    /// OpenAI function calling with the function `execute_python`; parallel calls are supported.
    Tools,
    /// Llama 3.1's built-in code interpreter: cells after `<|python_tag|>`, observations of the role `ipython`.
    #[serde(rename = "code_interpreter")]
    CodeInterpreter,
    /// `pybench` with a system prompt of about 90 tokens instead of 300, for small models.
    #[serde(rename = "pybench_short")]
    PybenchShort,
}

impl FormatChoice {
    /// All formats.
    pub const ALL: [Self; 5] = [
        Self::Pybench,
        Self::PybenchShort,
        Self::Codeact,
        Self::Tools,
        Self::CodeInterpreter,
    ];
}
