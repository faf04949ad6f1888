//! What an evaluation is asked to do: one TOML file, frozen into the run folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pybench::llm::Price;
use pybench::run::{Budget, InterpreterChoice, Rollout, RunError, TeacherChoice};
use serde::{Deserialize, Serialize};

use crate::eval::agent::Script;
use crate::library::problem::Source;

/// Largest recipe, bytes.
const MOST_BYTES: u64 = 1 << 20;

/// What an evaluation is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalRecipe {
    /// Name of the run folder unless `--run` gives another.
    pub name: String,
    /// Seed of changed inputs.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Tasks of the benchmark by number: `2-51,60`; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<String>,
    /// Whether the benchmark's tasks are asked; without its files they are left out.
    #[serde(default = "yes")]
    pub pybench: bool,
    /// A run whose held-out tasks of the library are asked as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<PathBuf>,
    /// Whether the newest checkpoint of `just train` and its base are evaluated as well.
    #[serde(default)]
    pub checkpoints: bool,
    /// Whether tasks whose inputs need no work get inputs that do. Without, `upstream` is upstream's own.
    #[serde(default = "yes")]
    pub perturb: bool,
    /// Seed of other variants of the inputs. `upstream` and `fixed` know only the published ones and say
    /// nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<u64>,
    /// Who is evaluated, by label.
    pub agents: BTreeMap<String, AgentChoice>,
    /// How models are sampled; `samples` is the number of tries at each task.
    #[serde(default)]
    pub rollout: Rollout,
    /// What may be spent.
    #[serde(default)]
    pub budget: Budget,
    /// The sandbox.
    #[serde(default)]
    pub interpreter: InterpreterChoice,
}

/// Who is evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AgentChoice {
    /// A script without a model.
    Script {
        /// Which.
        script: Script,
    },
    /// A person at the terminal.
    Human {},
    /// Any endpoint that speaks OpenAI's chat completions.
    Openai {
        /// Model name as the endpoint knows it.
        model: String,
        /// For instance `https://api.openai.com/v1`.
        base_url: String,
        /// Environment variable that holds the key.
        #[serde(default)]
        key_env: Option<String>,
        /// Extra headers; a value `$NAME` is read from the environment.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// US dollars per million tokens.
        #[serde(default)]
        price: Option<Price>,
        /// Seconds to wait for an answer.
        #[serde(default = "default_timeout")]
        timeout_seconds: u64,
        /// What it is, in a sentence.
        #[serde(default)]
        about: Option<String>,
    },
    /// A checkpoint, served by `pybench-train serve` while it is evaluated.
    Checkpoint {
        /// A model directory, or a name of the trainer's catalogue.
        model: String,
        /// Whether it is a base model, without a chat template of its own.
        #[serde(default)]
        base: bool,
        /// What it is, in a sentence.
        #[serde(default)]
        about: Option<String>,
    },
    /// A GGUF file, run in a process of its own while it is evaluated.
    Gguf {
        /// The file, or a name of the catalogue (`embedded/models.toml`).
        model: String,
        /// SHA-256 that the file must have.
        #[serde(default)]
        sha256: Option<String>,
        /// Most tokens of a conversation; the model's own, at most 8,192, otherwise.
        #[serde(default)]
        context: Option<u32>,
        /// What it is, in a sentence.
        #[serde(default)]
        about: Option<String>,
    },
    /// Upstream's YAML configuration.
    Config {
        /// The file.
        path: PathBuf,
        /// US dollars per million tokens.
        #[serde(default)]
        price: Option<Price>,
    },
    /// Trajectories that another system made: upstream's `trajectory.jsonl`, or a run folder.
    Trajectories {
        /// The file or folder.
        path: PathBuf,
        /// The folder that holds `output/`; beside the file where it is not given.
        #[serde(default)]
        outputs: Option<PathBuf>,
    },
}

impl AgentChoice {
    /// The same as a teacher of rollouts.
    pub fn teacher(&self) -> Option<TeacherChoice> {
        match self.clone() {
            Self::Openai {
                model,
                base_url,
                key_env,
                headers,
                price,
                timeout_seconds,
                about: _,
            } => Some(TeacherChoice::Openai {
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

fn default_seed() -> u64 {
    7
}

fn yes() -> bool {
    true
}

fn default_timeout() -> u64 {
    120
}

impl EvalRecipe {
    /// A recipe of that name for those agents; everything else is the default.
    pub fn new(name: &str, agents: BTreeMap<String, AgentChoice>) -> Self {
        Self {
            name: name.to_owned(),
            seed: default_seed(),
            tasks: None,
            pybench: true,
            library: None,
            checkpoints: false,
            perturb: true,
            regenerate: None,
            agents,
            rollout: Rollout::default(),
            budget: Budget::default(),
            interpreter: InterpreterChoice::default(),
        }
    }

    /// Read a recipe file.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with file, line and the way out.
    pub fn load(path: &Path) -> Result<Self, RunError> {
        let shown = path.display().to_string();
        let wrong =
            |error: std::io::Error| RunError::BadInput(format!("{shown}: cannot be read: {error}"));
        if std::fs::metadata(path).map_err(wrong)?.len() > MOST_BYTES {
            return Err(RunError::BadInput(format!("{shown}: larger than a recipe")));
        }
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        Self::parse(&shown, &text)
    }

    /// The same from text; `origin` names it in messages.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with file, line and the way out.
    pub fn parse(origin: &str, text: &str) -> Result<Self, RunError> {
        let source = Source { file: origin, text };
        let recipe: Self = toml::from_str(text)
            .map_err(|error| RunError::BadInput(source.toml(&error).to_string()))?;
        recipe
            .validate()
            .map_err(|problem| RunError::BadInput(format!("{origin}: {problem}")))?;
        Ok(recipe)
    }

    /// The resolved recipe: equal recipes give equal text.
    ///
    /// # Errors
    /// [`RunError::Internal`]: never seen.
    pub fn to_toml(&self) -> Result<String, RunError> {
        toml::to_string(self).map_err(|error| RunError::Internal(error.to_string()))
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
                    "the name `{name}`: expected 1 to 64 letters, digits, `-`, `_` or `.`"
                ));
            }
        }
        if self.agents.is_empty() {
            return Err("no agents: add [agents.NAME] with a `kind`".to_owned());
        }
        if let Some(tasks) = &self.tasks {
            ranges(tasks)?;
        }
        if self.rollout.samples == 0 || self.rollout.max_turns == 0 {
            return Err("rollout.samples and rollout.max_turns are at least 1".to_owned());
        }
        Ok(())
    }
}

/// `2-51,60` as numbers.
///
/// # Errors
/// What is no such list.
pub fn ranges(text: &str) -> Result<std::collections::BTreeSet<u32>, String> {
    let mut found = std::collections::BTreeSet::new();
    for part in text.split(',') {
        let (low, high) = part
            .trim()
            .split_once('-')
            .unwrap_or((part.trim(), part.trim()));
        match (low.trim().parse::<u32>(), high.trim().parse::<u32>()) {
            (Ok(low), Ok(high)) if low <= high && high <= 10_000 => found.extend(low..=high),
            _ => {
                return Err(format!(
                    "`{part}` is no number or range of tasks, such as `2-51,60`"
                ));
            }
        }
    }
    Ok(found)
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
            recipe.agents["m"].teacher(),
            Some(TeacherChoice::Openai { .. })
        ));
        let again = EvalRecipe::parse("again", &recipe.to_toml().unwrap()).unwrap();
        assert_eq!(again, recipe);
    }

    #[test]
    fn problems_name_file_and_line() {
        for (from, to, problem) in [
            ("name = 't'", "nam = 't'", "t.toml:1: unknown field `nam`"),
            ("name = 't'", "name = '../x'", "`../x`"),
            ("name = 't'", "name = 't'\ntasks = '3-2'", "`3-2`"),
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

    #[test]
    fn ranges_are_sets() {
        assert_eq!(
            ranges("2-4, 3,9").unwrap().into_iter().collect::<Vec<_>>(),
            [2, 3, 4, 9]
        );
        for text in ["", "a", "5-", "1-99999999", "-"] {
            assert!(ranges(text).is_err(), "{text}");
        }
    }
}
