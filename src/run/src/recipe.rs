//! Recipes: one TOML file describes a run.
//!
//! Bounds are `schemars` attributes of the fields, so that the JSON Schema, editors and the messages of
//! [`Recipe::parse`] agree. The doc comments become the descriptions in the JSON Schema.

mod conform;
mod crawl;
mod document;
mod load;
mod task_sets;
#[cfg(test)]
mod tests;
mod validate;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crawl::{ArxivFormat, Crawl, PypiArchive, PypiPackage, Search, SourceChoice};
pub use load::{RecipeError, apply_sets};
pub use task_sets::{AnswerCheck, TaskSetChoice, TaskSetFields};
pub use writer::{Balance, EmbeddingChoice, ProposedChecks, WriterChoice};

use crate::Price;
use pybench_interpreter::InterpreterChoice;
use pybench_types::held_out::HeldOutRule;
use pybench_types::task::{Category, Language};
use pybench_types::trajectory::Sampling;

/// A recipe: everything that defines a run. The resolved recipe is frozen into the run folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run folder, unless `--run` gives another; letters, digits, `-` and `_`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    #[schemars(extend("x-expected" = "1 to 64 letters, digits, `-` or `_`"))]
    pub name: String,
    /// Seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// Where the files come from. A recipe whose tasks all come from `query.task_sets` needs none.
    #[serde(default)]
    pub crawl: Crawl,
    /// Which tasks to write.
    pub query: Query,
    /// The model that solves the tasks.
    pub teacher: ModelChoice,
    /// Additional teachers. Each task gets one teacher, drawn by weight from `seed` and the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub teacher_mix: Vec<WeightedTeacher>,
    /// Models that get the tasks of which every sample was rejected, tried one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub escalation: Vec<ModelChoice>,
    /// How tasks are solved.
    #[serde(default)]
    pub rollout: Rollout,
    /// Limits on money, tokens and time.
    #[serde(default)]
    pub budget: Budget,
    /// The sandbox that runs the code.
    #[serde(default)]
    pub interpreter: InterpreterChoice,
    /// Which filters decide whether a trajectory becomes a row.
    #[serde(default)]
    pub grade: Grade,
    /// When to stop, and which accepted samples become rows.
    #[serde(default, skip_serializing_if = "Goal::is_default")]
    pub goal: Goal,
    /// How the dataset is split and written.
    #[serde(default)]
    pub shard: Shard,
    /// Rounds in which `teacher`, the student, learns from its own attempts; only `pybench loop` reads it.
    #[serde(rename = "loop", default, skip_serializing_if = "Option::is_none")]
    pub learning: Option<LoopChoice>,
}

/// Rounds of a student that learns from its own attempts. The student is `teacher`; its tasks are those of `query`, a
/// part of them in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopChoice {
    /// Number of rounds.
    #[schemars(range(min = 1, max = 100))]
    pub rounds: u32,
    /// Training recipe of each round: a file, or a name in `training/recipes`. The round sets `name` and `model`, and
    /// adds its rows to `data`. Absent: the rounds make data and train nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// Share of the tasks that no round plays and every student is measured on.
    #[serde(default = "LoopChoice::default_held_out")]
    #[schemars(range(max = 0.9), extend("exclusiveMinimum" = 0))]
    pub held_out: f64,
    /// Direct preference optimization after the training of each round, on the preference pairs of all rounds so far.
    /// Absent: pairs are written and not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceChoice>,
}

impl LoopChoice {
    fn default_held_out() -> f64 {
        0.2
    }
}

/// Direct preference optimization (DPO): a second stage of the training recipe, whose other keys it keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PreferenceChoice {
    /// How strongly the student is held to what the round has trained before; higher values allow less distance.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub beta: f64,
    /// Peak learning rate; much lower than that of supervised training.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub learning_rate: f64,
    /// How often every pair is seen; may be a fraction.
    #[schemars(range(max = 10000), extend("exclusiveMinimum" = 0))]
    pub num_epochs: f64,
}

impl Default for PreferenceChoice {
    /// TRL's values, for one pass.
    fn default() -> Self {
        Self {
            beta: 0.1,
            learning_rate: 1e-6,
            num_epochs: 1.0,
        }
    }
}

impl Recipe {
    /// All teachers with their paths in the recipe: `teacher`, those of `teacher_mix`, those of `escalation`.
    pub fn teachers(&self) -> Vec<(String, &ModelChoice)> {
        let mixed = self.teacher_mix.iter().enumerate();
        let mixed = mixed.map(|(at, mixed)| (format!("teacher_mix.{at}.teacher"), &mixed.teacher));
        let escalation = self.escalation.iter().enumerate();
        let escalation = escalation.map(|(at, teacher)| (format!("escalation.{at}"), teacher));
        let first = std::iter::once(("teacher".to_owned(), &self.teacher));
        first.chain(mixed).chain(escalation).collect()
    }

    /// All models with their paths in the recipe: the teachers, the judge, and the models that write tasks.
    pub fn models(&self) -> Vec<(String, &ModelChoice)> {
        let judge = self.grade.judge.as_ref();
        let judge = judge.map(|judge| ("grade.judge.teacher".to_owned(), &judge.teacher));
        let writer = self.query.writer.iter().flat_map(WriterChoice::models);
        let writer = writer.map(|(name, choice)| (format!("query.writer.{name}"), choice));
        let teachers = self.teachers().into_iter();
        teachers.chain(judge).chain(writer).collect()
    }

    /// All models, mutable, in the order of [`Recipe::models`].
    pub fn models_mut(&mut self) -> impl Iterator<Item = &mut ModelChoice> {
        let mixed = self.teacher_mix.iter_mut().map(|mixed| &mut mixed.teacher);
        let judge = self.grade.judge.as_mut().map(|judge| &mut judge.teacher);
        let first = std::iter::once(&mut self.teacher);
        let writer = self.query.writer.iter_mut();
        let writer = writer.flat_map(WriterChoice::models_mut);
        let teachers = first.chain(mixed).chain(&mut self.escalation);
        teachers.chain(judge).chain(writer)
    }
}

/// One teacher of `teacher_mix`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedTeacher {
    /// Relative weight of this teacher; `teacher` itself has weight 1.
    #[schemars(range(max = 1_000_000), extend("exclusiveMinimum" = 0))]
    pub weight: f64,
    /// The model.
    pub teacher: ModelChoice,
}

/// When to stop, and which accepted samples become rows. Rollout and grading alternate until the goal is
/// reached or no task is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Goal {
    /// Exact number of rows; no further attempts start once it is reached. Absent: every task is attempted.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub accept: Option<usize>,
    /// Accepted samples of a task after which its remaining samples are skipped; 0 runs all samples.
    #[schemars(range(max = 1000))]
    pub enough: u32,
    /// Which accepted samples of a task become rows.
    pub keep: Keep,
    /// Share of the rows, 0 to 1, for which a sample that hit an error and fixed it is preferred over the
    /// task's other accepted samples. Requires `keep` other than `all`.
    #[schemars(range(min = 0, max = 1))]
    pub repairs: f64,
}

impl Goal {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which accepted samples of a task become rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// All of them.
    #[default]
    All,
    /// The one with the fewest turns; ties go to the one with the fewest tokens.
    Turns,
    /// The one with the fewest completion tokens; ties go to the one with the fewest turns.
    Tokens,
}

/// Which tasks to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Number of tasks to write.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tasks: usize,
    /// Largest share of the tasks that may come from one template, above 0 and at most 1.
    #[serde(default = "Query::default_share")]
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub template_share: f64,
    /// Share of each language; the shares must add up to 1.
    #[serde(default = "Query::default_languages")]
    pub languages: BTreeMap<Language, f64>,
    /// Categories to use; an empty list uses all.
    #[serde(default)]
    pub categories: Vec<Category>,
    /// Keywords to use; an empty list uses all.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Share of the tasks that are composed of operations on the crawled files, from 0 to 1; the others are from
    /// templates.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub composed: f64,
    /// Share of the composed tasks whose file gets invented names and values, from 0 to 1.
    #[serde(
        default = "Query::default_renamed",
        skip_serializing_if = "Query::is_default_renamed"
    )]
    #[schemars(range(min = 0, max = 1))]
    pub renamed: f64,
    /// Share of the composed tasks on tables whose file is written as people hand tables on, from 0 to 1: with numbers,
    /// dates, units and headers that have to be understood first.
    #[serde(
        default = "Query::default_messy",
        skip_serializing_if = "Query::is_default_messy"
    )]
    #[schemars(range(min = 0, max = 1))]
    pub messy: f64,
    /// Whether every task must use a crawled file.
    #[serde(default, skip_serializing_if = "FileUse::is_default")]
    pub files: FileUse,
    /// Lists of questions with answers, from which tasks are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub task_sets: Vec<TaskSetChoice>,
    /// Models that write the tasks, instead of the templates of the task library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<WriterChoice>,
}

impl Query {
    /// The number of tasks from each of `task_sets`.
    pub fn set_tasks(&self) -> Vec<usize> {
        let shares = self.task_sets.iter().map(TaskSetChoice::share);
        // Rounded on the sum, so that all of them together are not more than `tasks`.
        let mut sum = 0.0;
        let at = |sum: f64| (self.tasks as f64 * sum.min(1.0)).round() as usize;
        let counts = shares.map(|share| {
            let before = at(sum);
            sum += share;
            at(sum) - before
        });
        counts.collect()
    }

    /// The number of tasks that are composed.
    pub fn composed_tasks(&self) -> usize {
        (self.tasks as f64 * self.composed).round() as usize
    }

    fn default_share() -> f64 {
        0.1
    }
    fn default_renamed() -> f64 {
        0.8
    }
    fn is_default_renamed(share: &f64) -> bool {
        *share == Self::default_renamed()
    }
    fn default_messy() -> f64 {
        0.25
    }
    fn is_default_messy(share: &f64) -> bool {
        *share == Self::default_messy()
    }
    fn default_languages() -> BTreeMap<Language, f64> {
        BTreeMap::from([(Language::En, 0.6), (Language::Zh, 0.4)])
    }
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Whether tasks use crawled files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileUse {
    /// Some tasks use none, such as tasks of mathematics.
    #[default]
    Any,
    /// Every task uses at least one.
    Required,
}

impl FileUse {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn default_recoveries() -> f64 {
    0.15
}

fn is_default_recoveries(share: &f64) -> bool {
    *share == default_recoveries()
}

/// A way to work on a table in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeIdiom {
    /// Data frames of pandas.
    Pandas,
    /// Lists of dicts and the standard library.
    Plain,
    /// SQLite in memory.
    Sqlite,
}

/// A model: a teacher, a judge, or a model that writes tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ModelChoice {
    /// The reference solutions of the task library: deterministic, without network or API key.
    Expert {
        /// Share of samples that contain a deliberate fault, 0 to 1.
        #[serde(default)]
        #[schemars(range(min = 0, max = 1))]
        faults: f64,
        /// Share of the samples of composed tasks in which the expert first makes a mistake (a misspelled column or file,
        /// a wrong separator, a text used as a date) and repairs it after the interpreter's message, 0 to 1.
        #[serde(
            default = "default_recoveries",
            skip_serializing_if = "is_default_recoveries"
        )]
        #[schemars(range(min = 0, max = 1))]
        recoveries: f64,
        /// Idioms in which composed tasks are solved; an empty list allows all. A task that has none of them is solved
        /// with pandas.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        idioms: Vec<CodeIdiom>,
    },
    /// In `escalation`: the expert continues the rejected attempts of the level before, from their first failing turn
    /// on. Their turns are context in the row and are not trained.
    Correction {},
    /// An endpoint with the OpenAI chat completions API.
    Openai {
        /// Model name, as the endpoint expects it.
        model: String,
        /// Base URL of the API, such as `https://api.openai.com/v1`.
        #[schemars(regex(pattern = r"^https?://[^/]+"))]
        #[schemars(extend("x-expected" = "a URL that begins with http:// or https://"))]
        base_url: String,
        /// Name of the environment variable that holds the API key; if absent, no key is sent.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
        #[schemars(extend("x-expected" = "the name of an environment variable, never the key itself"))]
        key_env: Option<String>,
        /// Extra HTTP headers; a value `$NAME` is read from the environment variable NAME.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// Price of the model; required if `budget.usd` is set and the built-in price table lacks the model.
        #[serde(default)]
        price: Option<Price>,
        /// Seconds to wait for a reply.
        #[serde(default = "default_endpoint_timeout")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: u64,
        /// Names of environment variables with additional API keys; requests rotate over all keys.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(
            length(max = 1000),
            inner(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))
        )]
        more_keys_env: Vec<String>,
        /// Rate limit of each key, requests per minute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000_000))]
        requests_per_minute: Option<u32>,
        /// Rate limit of each key, prompt and completion tokens per minute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        tokens_per_minute: Option<u64>,
        /// Use OpenAI's Batch API: half the price, replies within 24 hours. Only for teachers.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        batch: bool,
    },
    /// A model folder, served by `pybench serve` while the run asks it.
    Checkpoint {
        /// The folder, relative to the project root, or the name of a model in the trainer's catalog.
        model: String,
        /// The numbers that it is served with. Default: float32 on a CPU, bfloat16 on a GPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dtype: Option<ServedDtype>,
        /// What computes the replies.
        #[serde(default, skip_serializing_if = "ServeEngine::is_own")]
        engine: ServeEngine,
    },
    /// A GGUF model on this machine, run by `pybench-embedded` in a process without API keys (see `just embedded`).
    Embedded {
        /// A name from the catalog (`embedded/models.toml`) or the path of a GGUF file.
        model: String,
        /// Expected SHA-256 of the file; models from the catalog are already pinned there.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
        #[schemars(extend("x-expected" = "64 lowercase hexadecimal digits"))]
        sha256: Option<String>,
        /// Context length in tokens; the default is that of the model, but at most 8,192.
        #[serde(default)]
        #[schemars(range(min = 1, max = 1_000_000))]
        context: Option<u32>,
    },
}

impl ModelChoice {
    /// Whether only the process that began a run can use it: its requests are collected in batches, or it runs on this
    /// machine and takes most of its memory.
    pub fn needs_this_process(&self) -> bool {
        matches!(
            self,
            Self::Openai { batch: true, .. } | Self::Embedded { .. } | Self::Checkpoint { .. }
        )
    }

    /// Whether it has limits of requests or tokens per minute.
    pub fn has_rate_limits(&self) -> bool {
        matches!(
            self,
            Self::Openai {
                requests_per_minute: Some(_),
                ..
            } | Self::Openai {
                tokens_per_minute: Some(_),
                ..
            }
        )
    }

    /// Whether a script writes the replies, without network or cost.
    pub fn is_script(&self) -> bool {
        matches!(self, Self::Expert { .. } | Self::Correction {})
    }

    /// The name of a checkpoint in ids and rows; `model` is as the recipe has it.
    pub fn checkpoint_name(model: &str, dtype: Option<ServedDtype>, engine: ServeEngine) -> String {
        let dtype = dtype.map(ServedDtype::name);
        let engine = (!engine.is_own()).then(|| engine.name());
        let parts = [dtype, engine].into_iter().flatten();
        parts.fold(format!("checkpoint:{model}"), |name, part| {
            format!("{name}-{part}")
        })
    }

    /// The same model without `batch`: replies come immediately.
    pub fn live(&self) -> Self {
        let mut live = self.clone();
        if let Self::Openai { batch, .. } = &mut live {
            *batch = false;
        }
        live
    }
}

/// The numbers that a checkpoint is served with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServedDtype {
    Float32,
    Bf16,
    /// On a CPU only.
    Int8,
}

impl ServedDtype {
    /// Its name in recipes and as an option of the server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }
}

/// What computes the replies of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServeEngine {
    /// The server of `pybench-train`.
    #[default]
    Own,
    /// vLLM, which must be on the PATH.
    Vllm,
    /// vLLM where it is installed and can serve the model, otherwise the server of `pybench-train`.
    Auto,
}

impl ServeEngine {
    /// Its name in recipes and as an option of the server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Vllm => "vllm",
            Self::Auto => "auto",
        }
    }

    /// Whether it is the default.
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

fn default_endpoint_timeout() -> u64 {
    120
}

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
            sampling: Sampling::default(),
            concurrency: 0,
            attempts: 4,
            unit_minutes: None,
            reuse: true,
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

/// Limits on money, tokens and time. An absent limit means unlimited, but a paid endpoint requires `usd`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Maximum cost in US dollars.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub usd: Option<f64>,
    /// Maximum number of tokens, prompt and completion.
    #[schemars(range(min = 0))]
    pub tokens: Option<u64>,
    /// Maximum duration of the whole run in minutes, summed over all restarts.
    #[schemars(range(max = 525_600), extend("exclusiveMinimum" = 0))]
    pub minutes: Option<f64>,
}

impl Budget {
    /// The limit on time.
    pub fn time(&self) -> Option<Duration> {
        let minutes = self.minutes?;
        Duration::try_from_secs_f64(minutes * 60.0).ok()
    }
}

/// How trajectories are graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Grade {
    /// Filters that every accepted trajectory must pass, applied in this order.
    pub filters: Vec<Filter>,
    /// Minimum number of accepted rows; with fewer, the run counts as incomplete.
    pub at_least: usize,
    /// Language model that judges every trajectory, at temperature 0. Its verdict counts only if `filters`
    /// contains `judge`; its agreement with the checks is always reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeChoice>,
}

/// A language model that judges trajectories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeChoice {
    /// The model.
    pub teacher: ModelChoice,
    /// Whether the judge receives the images that a trajectory produced.
    #[serde(default)]
    pub sees: bool,
}

impl Default for Grade {
    fn default() -> Self {
        use Filter::*;
        Self {
            filters: vec![Format, Finished, Outputs, Check, Consistent, Duplicate],
            at_least: 0,
            judge: None,
        }
    }
}

/// A filter of trajectories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Every reply follows the message format.
    Format,
    /// The model declared that it is finished.
    Finished,
    /// Every requested output file exists, is a regular file, is not empty, and opens as its type.
    Outputs,
    /// All checks of the task pass.
    Check,
    /// The numbers in the answer occur in the observations or in the query.
    Consistent,
    /// The judge of `grade.judge` accepts the trajectory. If the judge abstains, it has no effect, and a task
    /// without checks is not accepted.
    Judge,
    /// No earlier accepted trajectory is identical.
    Duplicate,
}

/// How the dataset is split and written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shard {
    /// Share of the rows in the test split, at least 0 and below 1.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub test_fraction: f64,
    /// Number of templates that are kept out of the training split entirely.
    pub held_out_templates: usize,
    /// Share of the operations of composed tasks that no training row has, from 0 to 1. Only files that are likely to
    /// become test rows get tasks with them.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub held_out_operations: f64,
    /// Share of the pairs of operations that never follow each other in a training row.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub held_out_pairs: f64,
    /// Share of the wordings of composed tasks that no training row has.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub held_out_wordings: f64,
    /// Further operations (`rank_dense`), pairs (`filter_above>answer_mean`) and wordings (`filter_above/en/1`) that no
    /// training row has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_out_names: Vec<String>,
    /// Whether rows that match tasks or files of the known benchmarks stay in the dataset. Otherwise they are dropped.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_contaminated: bool,
    /// Maximum number of rows per shard.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub shard_rows: usize,
    /// Maximum number of rows per Parquet row group.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub row_group_rows: usize,
    /// zstd compression level.
    #[schemars(range(min = 1, max = 22))]
    pub zstd_level: i32,
}

impl Shard {
    /// Which parts of composed tasks are held out, in a run with this seed.
    pub fn held_out(&self, seed: u64) -> HeldOutRule {
        HeldOutRule {
            seed,
            operations: self.held_out_operations,
            pairs: self.held_out_pairs,
            wordings: self.held_out_wordings,
            names: self.held_out_names.iter().cloned().collect(),
        }
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            test_fraction: 0.15,
            held_out_templates: 3,
            held_out_operations: 0.0,
            held_out_pairs: 0.0,
            held_out_wordings: 0.0,
            held_out_names: Vec::new(),
            allow_contaminated: false,
            shard_rows: 10_000,
            row_group_rows: 100,
            zstd_level: 9,
        }
    }
}
