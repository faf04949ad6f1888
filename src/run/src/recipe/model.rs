//! The models that solve, judge and write tasks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Price;

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
        /// a wrong separator, a text used as a date) and repairs it after the interpreter's message, 0 to 1. The reply
        /// with the mistake is not trained.
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
        /// How the solutions of composed tasks look.
        #[serde(default, skip_serializing_if = "SolutionStyle::is_varied")]
        style: SolutionStyle,
    },
    /// In `escalation`: the expert continues the rejected attempts of the level before, from their first failing turn
    /// on. Their turns are context in the row and are not trained.
    Correction {
        /// Idioms in which composed tasks are corrected; an empty list means those of the recipe's teacher `expert`, or
        /// all if it has no such teacher.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        idioms: Vec<CodeIdiom>,
        /// How the corrections of composed tasks look. Default: the style of the recipe's teacher `expert`, or
        /// `varied` if it has no such teacher.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        style: Option<SolutionStyle>,
    },
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
        /// A name from the catalog (`embedded/models.toml`), or the path or address of a GGUF file.
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
        matches!(self, Self::Expert { .. } | Self::Correction { .. })
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

/// How the expert's solutions of composed tasks look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SolutionStyle {
    /// Samples differ in names, idioms, comments and steps per cell.
    #[default]
    Varied,
    /// All look alike, which small students learn with fewer rows.
    Uniform,
    /// All look alike and are short: one cell for all steps, few words, little output. More rows fit into the same tokens.
    Brief,
}

impl SolutionStyle {
    /// Whether it is the default.
    pub fn is_varied(&self) -> bool {
        *self == Self::Varied
    }
}

fn default_recoveries() -> f64 {
    0.15
}

fn is_default_recoveries(share: &f64) -> bool {
    *share == default_recoveries()
}

fn default_endpoint_timeout() -> u64 {
    120
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
