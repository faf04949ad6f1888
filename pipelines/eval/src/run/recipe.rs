//! The recipe of an evaluation: a TOML file, copied into the run folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pybench_interpreter::InterpreterChoice;
use pybench_run::{Budget, ModelChoice, Price, Rollout, RunError, ServeEngine, ServedDtype};
use serde::{Deserialize, Serialize};

use crate::agent::Script;
use crate::suite::{Selection, parse_task_ranges};
use crate::suites::{self, pybench};
use pybench_library::problem::TomlSource;

/// Maximum size of a recipe, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Recipe of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalRecipe {
    /// Name of the recipe, and of the run folder unless `--run` is given.
    pub name: String,
    /// Seed for perturbed inputs.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// PyBench tasks to run, for example `2-51,60`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<String>,
    /// Benchmarks to run, by name: `pybench`, `wikitablequestions`, `da-dev`, …. PyBench is skipped if its files are
    /// missing and `library` is set.
    #[serde(default = "default_suites")]
    pub suites: Vec<String>,
    /// At most so many tasks of each suite, drawn with `seed`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<usize>,
    /// Run folder of the data pipeline whose held-out library tasks are also run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<PathBuf>,
    /// Whether to also evaluate the newest checkpoint of `just train` and its base model.
    #[serde(default)]
    pub checkpoints: bool,
    /// Whether to perturb the inputs of tasks that could be passed without doing any work. Set it to `false` to
    /// reproduce upstream's own scores.
    #[serde(default = "default_true")]
    pub perturb: bool,
    /// Seed for new variants of the inputs. The scores `upstream` and `fixed` know only the published inputs and
    /// are omitted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<u64>,
    /// Agents to evaluate, by label.
    pub agents: BTreeMap<String, AgentChoice>,
    /// A model that comments on each turn in the role of a user, in suites that provide for it (MINT). Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<FeedbackChoice>,
    /// Whether a model gets the question alone and its first reply is its answer: no system prompt, no tools, no
    /// feedback; `rollout.format` and `rollout.max_turns` have no effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single_reply: bool,
    /// How models are run; `samples` is the number of attempts per task. `reuse` has no effect: an evaluation takes no
    /// replies of other runs.
    #[serde(default)]
    pub rollout: Rollout,
    /// Limits on cost and tokens.
    #[serde(default)]
    pub budget: Budget,
    /// The sandbox that runs the code.
    #[serde(default)]
    pub interpreter: InterpreterChoice,
}

/// An agent to evaluate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AgentChoice {
    /// A scripted agent without a model.
    Script {
        /// Name of the script.
        script: Script,
    },
    /// A person at the terminal.
    Human {},
    /// A model behind an OpenAI-compatible chat completions API.
    Openai {
        /// Model name, as the endpoint knows it.
        model: String,
        /// Base URL, for example `https://api.openai.com/v1`.
        base_url: String,
        /// Environment variable that holds the API key.
        #[serde(default)]
        key_env: Option<String>,
        /// Additional HTTP headers; a value `$NAME` is read from the environment.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// US dollars per million tokens.
        #[serde(default)]
        price: Option<Price>,
        /// Timeout of a request, in seconds.
        #[serde(default = "default_timeout")]
        timeout_seconds: u64,
        /// Description for the report.
        #[serde(default)]
        about: Option<String>,
    },
    /// A checkpoint, served by `pybench-train serve` while it is evaluated.
    Checkpoint {
        /// Model folder, or the name of a model in the trainer's catalog.
        model: String,
        /// Whether it is a base model without a chat template.
        #[serde(default)]
        base: bool,
        /// `float32`, `bf16` or `int8`. Default: float32 on a CPU, bfloat16 on a GPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dtype: Option<ServedDtype>,
        /// `own`, `vllm`, or `auto`: vLLM where it is installed. Default: `own`.
        #[serde(default, skip_serializing_if = "ServeEngine::is_own")]
        engine: ServeEngine,
        /// Description for the report.
        #[serde(default)]
        about: Option<String>,
    },
    /// A GGUF file, run by llama.cpp in a separate process.
    Gguf {
        /// Path of the file, or the name of a model in the catalog (`embedded/models.toml`).
        model: String,
        /// Expected SHA-256 of the file.
        #[serde(default)]
        sha256: Option<String>,
        /// Maximum context length in tokens. Default: that of the model, at most 8,192.
        #[serde(default)]
        context: Option<u32>,
        /// Description for the report.
        #[serde(default)]
        about: Option<String>,
    },
    /// An agent described by a YAML configuration of PyBench.
    Config {
        /// Path of the configuration.
        path: PathBuf,
        /// US dollars per million tokens.
        #[serde(default)]
        price: Option<Price>,
    },
    /// Trajectories from another system: upstream's `trajectory.jsonl`, a run folder or a Parquet shard.
    Trajectories {
        /// Path of the file or folder.
        path: PathBuf,
        /// Folder that contains `output/`. Default: the folder of the file.
        #[serde(default)]
        outputs: Option<PathBuf>,
    },
}

impl AgentChoice {
    /// The model choice of an `openai` agent, in the form that rollouts use.
    pub fn model_choice(&self) -> Option<ModelChoice> {
        match self.clone() {
            Self::Openai {
                model,
                base_url,
                key_env,
                headers,
                price,
                timeout_seconds,
                about: _,
            } => Some(ModelChoice::Openai {
                model,
                base_url,
                key_env,
                headers,
                price,
                timeout_seconds,
                more_keys_env: Vec::new(),
                requests_per_minute: None,
                tokens_per_minute: None,
                batch: false,
            }),
            _ => None,
        }
    }
}

/// A model behind an OpenAI-compatible chat completions API that comments on the turns of agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedbackChoice {
    /// Model name, as the endpoint knows it.
    pub model: String,
    /// Base URL, for example `https://api.openai.com/v1`.
    pub base_url: String,
    /// Environment variable that holds the API key.
    #[serde(default)]
    pub key_env: Option<String>,
    /// Additional HTTP headers; a value `$NAME` is read from the environment.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// US dollars per million tokens.
    #[serde(default)]
    pub price: Option<Price>,
    /// Timeout of a request, in seconds.
    #[serde(default = "default_timeout")]
    pub timeout_seconds: u64,
    /// Whether the model sees the correct solution. Agents never do.
    #[serde(default)]
    pub reference: bool,
}

impl FeedbackChoice {
    /// The model in the form that rollouts use.
    pub fn model_choice(&self) -> ModelChoice {
        let choice = self.clone();
        ModelChoice::Openai {
            model: choice.model,
            base_url: choice.base_url,
            key_env: choice.key_env,
            headers: choice.headers,
            price: choice.price,
            timeout_seconds: choice.timeout_seconds,
            more_keys_env: Vec::new(),
            requests_per_minute: None,
            tokens_per_minute: None,
            batch: false,
        }
    }
}

fn default_seed() -> u64 {
    7
}

fn default_suites() -> Vec<String> {
    vec![pybench::SUITE.to_owned()]
}

fn default_true() -> bool {
    true
}

fn default_timeout() -> u64 {
    120
}

impl EvalRecipe {
    /// Creates a recipe with defaults for everything but name and agents.
    pub fn new(name: &str, agents: BTreeMap<String, AgentChoice>) -> Self {
        Self {
            name: name.to_owned(),
            seed: default_seed(),
            tasks: None,
            suites: default_suites(),
            max_tasks: None,
            library: None,
            checkpoints: false,
            perturb: true,
            regenerate: None,
            agents,
            feedback: None,
            rollout: Rollout::default(),
            single_reply: false,
            budget: Budget::default(),
            interpreter: InterpreterChoice::default(),
        }
    }

    /// Reads a recipe file.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file cannot be read or is invalid, with file and line.
    pub fn load(path: &Path) -> Result<Self, RunError> {
        let shown = path.display().to_string();
        let wrong = |error: std::io::Error| {
            RunError::BadInput(format!("{shown}: the recipe cannot be read: {error}"))
        };
        if std::fs::metadata(path).map_err(wrong)?.len() > MAX_BYTES {
            return Err(RunError::BadInput(format!(
                "{shown}: the file is too large for a recipe"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        Self::parse(&shown, &text)
    }

    /// Parses a recipe; `origin` is the file name for error messages.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the recipe is invalid, with file and line.
    pub fn parse(origin: &str, text: &str) -> Result<Self, RunError> {
        let source = TomlSource { file: origin, text };
        let recipe: Self = toml::from_str(text)
            .map_err(|error| RunError::BadInput(source.toml(&error).to_string()))?;
        recipe
            .validate()
            .map_err(|problem| RunError::BadInput(format!("{origin}: {problem}")))?;
        Ok(recipe)
    }

    /// The recipe with all defaults filled in, as TOML. Equal recipes give equal text.
    ///
    /// # Errors
    /// [`RunError::Internal`] if serialization fails (a bug).
    pub fn to_toml(&self) -> Result<String, RunError> {
        toml::to_string(self).map_err(|error| RunError::Internal(error.to_string()))
    }

    /// Which tasks of the suites are run, and how their inputs are made.
    pub fn selection(&self) -> Selection {
        Selection {
            tasks: self.tasks.clone(),
            max_tasks: self.max_tasks,
            seed: self.seed,
            perturb: self.perturb,
            regenerate: self.regenerate,
        }
    }

    fn validate(&self) -> Result<(), String> {
        let plain = |text: &str| {
            (1..=64).contains(&text.len())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && !text.starts_with('.')
        };
        for name in self.agents.keys().chain([&self.name]) {
            if !plain(name) {
                return Err(format!(
                    "invalid name `{name}`: expected 1 to 64 letters, digits, `-`, `_` or `.`, not starting with `.`"
                ));
            }
        }
        if self.agents.is_empty() {
            return Err(
                "the recipe has no agents: add a table [agents.NAME] with a `kind`".to_owned(),
            );
        }
        if let Some(tasks) = &self.tasks {
            parse_task_ranges(tasks)?;
        }
        if self.max_tasks == Some(0) {
            return Err("max_tasks must be at least 1".to_owned());
        }
        let suites: BTreeSet<_> = self.suites.iter().collect();
        if suites.len() < self.suites.len() {
            return Err("a name occurs twice in `suites`".to_owned());
        }
        for name in suites {
            suites::entry(name)?;
        }
        if self.single_reply && self.feedback.is_some() {
            return Err(
                "[feedback] comments on turns, and with single_reply = true a model has only one: remove one of the two"
                    .to_owned(),
            );
        }
        if self.rollout.samples == 0 || self.rollout.max_turns == 0 {
            return Err("rollout.samples and rollout.max_turns must be at least 1".to_owned());
        }
        if self.rollout.code_within_tokens == Some(0) {
            return Err("rollout.code_within_tokens must be at least 1".to_owned());
        }
        if self.rollout.corrections {
            return Err(
                "rollout.corrections: an evaluation has no attempts that are continued; remove it"
                    .to_owned(),
            );
        }
        let minutes = self.rollout.unit_minutes;
        if minutes.is_some_and(|minutes| minutes <= 0.0 || minutes.is_nan()) {
            return Err("rollout.unit_minutes must be more than 0".to_owned());
        }
        let detection = self.rollout.repetition_detection;
        if let Some(problem) = detection.and_then(|detection| detection.problem()) {
            return Err(format!("rollout.repetition_detection.{problem}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: &str = "name = 't'\n[agents.reference]\nkind = 'script'\nscript = 'reference'\n[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = 'http://h/v1'\n";

    #[test]
    fn recipes_are_read_and_written() {
        let recipe = EvalRecipe::parse("t.toml", RECIPE).unwrap();
        assert_eq!(
            recipe.agents["reference"],
            AgentChoice::Script {
                script: Script::Reference
            }
        );
        assert!(matches!(
            recipe.agents["m"].model_choice(),
            Some(ModelChoice::Openai { .. })
        ));
        let again = EvalRecipe::parse("again", &recipe.to_toml().unwrap()).unwrap();
        assert_eq!(again, recipe);
    }

    #[test]
    fn problems_are_reported_with_file_and_line() {
        for (from, to, problem) in [
            ("name = 't'", "nam = 't'", "t.toml:1: unknown field `nam`"),
            ("name = 't'", "name = '../x'", "`../x`"),
            (
                "name = 't'",
                "name = 't'\nsuites = ['wikitables']",
                "`wikitables` is not a suite: use one of `pybench`, ",
            ),
            ("name = 't'", "name = 't'\nmax_tasks = 0", "max_tasks"),
            (
                "name = 't'",
                "name = 't'\nrollout.unit_minutes = 0.0",
                "rollout.unit_minutes",
            ),
            ("name = 't'", "name = 't'\ntasks = '3-2'", "`3-2`"),
            (
                "name = 't'",
                "name = 't'\nsingle_reply = true\n[feedback]\nmodel = 'f'\nbase_url = 'http://h/v1'",
                "single_reply",
            ),
            ("script = 'reference'", "script = 'refrence'", "reference"),
            ("[agents.m]", "[agents.'a/b']", "`a/b`"),
        ] {
            let error = EvalRecipe::parse("t.toml", &RECIPE.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("t.toml") && error.contains(problem),
                "{error}"
            );
        }
    }
}
