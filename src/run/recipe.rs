//! Recipes: one TOML file describes a run.
//!
//! Bounds stand beside the fields as `schemars` attributes, so that the JSON Schema, editors and the
//! messages of [`Recipe::parse`] agree.

mod conform;
mod crawl;
mod document;
mod load;
#[cfg(test)]
mod tests;
mod validate;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crawl::{ArxivFormat, Crawl, PypiArchive, PypiPackage, Search, SourceChoice};
pub use load::RecipeError;
pub use writer::{Balance, EmbeddingChoice, ProposedChecks, WriterChoice};

use crate::interpreter::Limits;
use crate::llm::Price;
use crate::task::{Category, Language};
use crate::trajectory::Sampling;

/// What a run is asked to do. Frozen into the run folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run folder unless `--run` gives another; letters, digits, `-` and `_`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    #[schemars(extend("x-expected" = "1 to 64 letters, digits, `-` or `_`"))]
    pub name: String,
    /// Seed of every choice.
    #[serde(default)]
    pub seed: u64,
    /// Where files come from.
    pub crawl: Crawl,
    /// Which tasks are written.
    pub query: Query,
    /// Who solves them.
    pub teacher: TeacherChoice,
    /// More teachers: each task is given to one of all, drawn by weight from seed and task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub mix: Vec<Mixed>,
    /// Tasks of which every sample is rejected go on to these, one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub stronger: Vec<TeacherChoice>,
    /// How.
    #[serde(default)]
    pub rollout: Rollout,
    /// What may be spent.
    #[serde(default)]
    pub budget: Budget,
    /// The sandbox.
    #[serde(default)]
    pub interpreter: InterpreterChoice,
    /// Which filters decide.
    #[serde(default)]
    pub grade: Grade,
    /// What the run works towards.
    #[serde(default, skip_serializing_if = "Goal::is_default")]
    pub goal: Goal,
    /// How shards are written.
    #[serde(default)]
    pub shard: Shard,
}

impl Recipe {
    /// Every teacher and its place in the recipe: `teacher`, those of the mix, the stronger ones.
    pub fn teachers(&self) -> Vec<(String, &TeacherChoice)> {
        let mixed = self.mix.iter().enumerate();
        let mixed = mixed.map(|(at, mixed)| (format!("mix.{at}.teacher"), &mixed.teacher));
        let stronger = self.stronger.iter().enumerate();
        let stronger = stronger.map(|(at, teacher)| (format!("stronger.{at}"), teacher));
        let first = std::iter::once(("teacher".to_owned(), &self.teacher));
        first.chain(mixed).chain(stronger).collect()
    }

    /// Every model that is asked for something, and its place: the teachers, the judge, who writes tasks.
    pub fn models(&self) -> Vec<(String, &TeacherChoice)> {
        let judge = self.grade.judge.as_ref();
        let judge = judge.map(|judge| ("grade.judge.teacher".to_owned(), &judge.teacher));
        let writer = self.query.writer.iter().flat_map(WriterChoice::models);
        let writer = writer.map(|(name, choice)| (format!("query.writer.{name}"), choice));
        let teachers = self.teachers().into_iter();
        teachers.chain(judge).chain(writer).collect()
    }

    /// The same to change them.
    pub fn models_mut(&mut self) -> impl Iterator<Item = &mut TeacherChoice> {
        let mixed = self.mix.iter_mut().map(|mixed| &mut mixed.teacher);
        let judge = self.grade.judge.as_mut().map(|judge| &mut judge.teacher);
        let first = std::iter::once(&mut self.teacher);
        let writer = self.query.writer.iter_mut();
        let writer = writer.flat_map(WriterChoice::models_mut);
        let teachers = first.chain(mixed).chain(&mut self.stronger);
        teachers.chain(judge).chain(writer)
    }
}

/// One teacher of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// How often it is drawn; `teacher` itself weighs 1.
    #[schemars(range(max = 1_000_000), extend("exclusiveMinimum" = 0))]
    pub weight: f64,
    /// Who it is.
    pub teacher: TeacherChoice,
}

/// What the run works towards. Rollout and grading take turns until it is reached or no task is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Goal {
    /// Rows: exactly so many, and no more tries once there are as many. Absent: every task is tried.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub accept: Option<usize>,
    /// Accepted samples of a task after which no more of its samples are made; 0 makes all.
    #[schemars(range(max = 1000))]
    pub enough: u32,
    /// Which accepted samples of a task become rows.
    pub keep: Keep,
    /// Share of the rows for which, of a task's accepted samples, one with an error that was fixed is
    /// kept before the others; with `keep` other than `all`.
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
    /// The one with the fewest turns; of equal ones the one with the fewest tokens.
    Turns,
    /// The one with the fewest tokens written; of equal ones the one with the fewest turns.
    Tokens,
}

/// Which tasks are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Tasks to write.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tasks: usize,
    /// Largest share of the tasks that one template may have, above 0 to 1.
    #[serde(default = "Query::default_share")]
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub template_share: f64,
    /// Share of each language; they add up to 1.
    #[serde(default = "Query::default_languages")]
    pub languages: BTreeMap<Language, f64>,
    /// Categories to use; empty uses all.
    #[serde(default)]
    pub categories: Vec<Category>,
    /// Keywords to use; empty uses all.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Models that write the tasks, in place of the task library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<WriterChoice>,
}

impl Query {
    fn default_share() -> f64 {
        0.1
    }
    fn default_languages() -> BTreeMap<Language, f64> {
        BTreeMap::from([(Language::En, 0.6), (Language::Zh, 0.4)])
    }
}

/// Who solves the tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum TeacherChoice {
    /// The library's own solutions: deterministic, no network, no key.
    Expert {
        /// Share of samples that go wrong on purpose, 0 to 1.
        #[serde(default)]
        #[schemars(range(min = 0, max = 1))]
        faults: f64,
    },
    /// Any endpoint that speaks OpenAI's chat completions.
    Openai {
        /// Model name as the endpoint knows it.
        model: String,
        /// For instance `https://api.openai.com/v1`.
        #[schemars(regex(pattern = r"^https?://[^/]+"))]
        #[schemars(extend("x-expected" = "a URL that begins with http:// or https://"))]
        base_url: String,
        /// Name of the environment variable that holds the key; without it no key is sent.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
        #[schemars(extend("x-expected" = "the name of an environment variable, never the key itself"))]
        key_env: Option<String>,
        /// Extra headers; a value `$NAME` is read from the environment.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// Price of the model; required when `budget.usd` is set and the price table lacks it.
        #[serde(default)]
        price: Option<Price>,
        /// Seconds to wait for an answer.
        #[serde(default = "default_endpoint_timeout")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: u64,
        /// Names of environment variables with more keys; requests take all keys in turn.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(
            length(max = 1000),
            inner(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))
        )]
        more_keys_env: Vec<String>,
        /// Requests per minute that each key allows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000_000))]
        requests_per_minute: Option<u32>,
        /// Tokens per minute, prompt and completion, that each key allows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        tokens_per_minute: Option<u64>,
        /// Ask in batches (OpenAI's Batch API): half the price, and answers within a day. Teachers only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        batch: bool,
    },
    /// A GGUF model on this machine, in a process of its own that holds no keys (`just embedded`).
    Embedded {
        /// A name of the catalogue (`embedded/models.toml`), or a file.
        model: String,
        /// SHA-256 that a file must have; the catalogue's models are pinned there.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
        #[schemars(extend("x-expected" = "64 lower-case hexadecimal digits"))]
        sha256: Option<String>,
        /// Most tokens of a conversation; the model's own, at most 8,192, otherwise.
        #[serde(default)]
        #[schemars(range(min = 1, max = 1_000_000))]
        context: Option<u32>,
    },
}

impl TeacherChoice {
    /// The same, answering at once.
    pub fn live(&self) -> Self {
        let mut live = self.clone();
        if let Self::Openai { batch, .. } = &mut live {
            *batch = false;
        }
        live
    }
}

fn default_endpoint_timeout() -> u64 {
    120
}

/// How tasks are solved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rollout {
    /// Samples per task.
    #[schemars(range(min = 1, max = 1000))]
    pub samples: u32,
    /// Message format.
    pub format: FormatChoice,
    /// Most turns of one trajectory.
    #[schemars(range(min = 1, max = 100))]
    pub max_turns: u32,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Trajectories at a time; 0 is one per core.
    #[schemars(range(max = 1024))]
    pub concurrency: usize,
    /// Attempts at a unit before it counts as failed.
    #[schemars(range(min = 1, max = 100))]
    pub attempts: u32,
    /// Whether replies that another run of this project paid for are taken from `data/cache`.
    pub reuse: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            samples: 1,
            format: FormatChoice::Pybench,
            max_turns: 10,
            sampling: Sampling::default(),
            concurrency: 0,
            attempts: 4,
            reuse: true,
        }
    }
}

/// Message formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FormatChoice {
    /// PyBench's prompt mode.
    #[default]
    Pybench,
    /// CodeAct's: cells between `<execute>` and `</execute>`, the answer between `<solution>` and
    /// `</solution>`.
    Codeact,
    /// Calls of the function `execute_python`, as OpenAI's endpoints have them, several at once too.
    Tools,
}

/// What may be spent. Absent is unlimited, except that an endpoint with a price needs `usd`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// US dollars.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub usd: Option<f64>,
    /// Tokens, prompt and completion.
    #[schemars(range(min = 0))]
    pub tokens: Option<u64>,
    /// Minutes of the whole run, over all restarts.
    #[schemars(range(max = 525_600), extend("exclusiveMinimum" = 0))]
    pub minutes: Option<f64>,
}

/// The sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterpreterChoice {
    /// Tier of isolation.
    pub tier: Tier,
    /// Bounds of a session.
    pub limits: Limits,
    /// A local folder of wheels from which cells may `pip install`.
    pub wheelhouse: Option<PathBuf>,
    /// Hosts that cells may reach, through a proxy that logs each request: `packages.example:443`,
    /// `*.example.org` (names below it), `192.0.2.7:8080`. Addresses that are not public have to be named
    /// themselves. Empty: no network.
    #[schemars(length(max = 1000))]
    pub network: Vec<String>,
}

impl Default for InterpreterChoice {
    fn default() -> Self {
        Self {
            tier: Tier::Jail,
            limits: Limits::default(),
            wheelhouse: None,
            network: Vec::new(),
        }
    }
}

/// Tiers of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Forks of a warm Python that jail themselves; bubblewrap where that is refused.
    Jail,
    /// A cold Python per session in bubblewrap.
    Bwrap,
    /// A cold Python per session in gVisor, rootless: slower, and a kernel of its own.
    Gvisor,
    /// A container per session, made by docker.
    Docker,
    /// A container per session, made by podman.
    Podman,
    /// A pod per session in a cluster.
    Kubernetes,
    /// No isolation at all, for debugging: cells can do whatever this user can.
    None,
}

impl Tier {
    /// Whether its sessions can be given a list of hosts to reach, and nothing else.
    pub fn holds_to_hosts(self) -> bool {
        !matches!(self, Self::Kubernetes | Self::None)
    }

    /// What to say of those that cannot.
    pub const NO_HOSTS: &str = "sessions of the tiers `kubernetes` (a pod's network is the cluster's) and `none` \
                                cannot be held to a list of hosts: leave the list empty, or choose another tier";
}

/// Which filters decide, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Grade {
    /// The filters.
    pub filters: Vec<Filter>,
    /// Accepted rows below which the run counts as incomplete.
    pub at_least: usize,
    /// A language model that is asked for its opinion of every trajectory, at temperature 0. It decides
    /// only where `judge` stands among the filters; how far it agrees with the checks is always told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeChoice>,
}

/// A language model that judges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeChoice {
    /// Who it is.
    pub teacher: TeacherChoice,
    /// Whether it is shown pictures.
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

/// The filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Every reply follows the message format.
    Format,
    /// The model said that it is finished.
    Finished,
    /// Every output file asked for exists, is regular, is not empty and can be opened as its type.
    Outputs,
    /// The task's checks hold.
    Check,
    /// Numbers in the answer occur in the observations or the query.
    Consistent,
    /// The judge of `grade.judge` says that it holds; where it abstains, it decides nothing, and a task
    /// without checks is not accepted.
    Judge,
    /// No earlier accepted trajectory is the same.
    Duplicate,
}

/// How shards are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shard {
    /// Share of rows in the test split, 0 to below 1.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub test_fraction: f64,
    /// Templates held out of training altogether.
    pub held_out_templates: usize,
    /// Most rows of one shard.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub shard_rows: usize,
    /// Most rows of one row group.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub row_group_rows: usize,
    /// zstd level.
    #[schemars(range(min = 1, max = 22))]
    pub zstd_level: i32,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            test_fraction: 0.15,
            held_out_templates: 3,
            shard_rows: 10_000,
            row_group_rows: 100,
            zstd_level: 9,
        }
    }
}
