//! Turns the agents of a recipe into agents that can run.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use pybench_agent as agent;
use pybench_agent::{Format, PybenchFormat, Solver};
use pybench_interpreter::SessionSpec;
use pybench_interpreter::default_cache_dir;
use pybench_llm::{ChatModel, OpenAiOptions};
use pybench_run::Price;
use pybench_run::{Rollout, RunError};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role};

use super::{AgentChoice, Setup};
use crate::agent::config::UpstreamConfig;
use crate::agent::model_server::{self, ModelServer};
use crate::agent::{HumanAgent, Script, ScriptedAgent, UpstreamFormat};
use crate::record::{Agent, AgentKind};
use crate::suite::spec;
use pybench_attempts::teacher::{RESPONSE_CACHE, metered, setup_error};
use pybench_attempts::{RolloutConfig, money};
use pybench_embedded_client::{Embedded, Model};
use pybench_library::Library;

/// Request timeout for local servers, where a model may run on few CPU cores.
const LOCAL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1800);

/// An agent and how to run it.
pub(super) struct AgentSpec {
    pub(super) label: String,
    pub(super) backend: AgentBackend,
    kind: AgentKind,
    about: String,
    pub(super) format: &'static dyn Format,
    pub(super) rollout: Rollout,
    pub(super) price: Option<Price>,
    /// Range of concurrent attempts. The lower bound applies if the recipe sets no concurrency.
    pub(super) concurrency: RangeInclusive<usize>,
}

/// Where the replies of an agent come from.
pub(super) enum AgentBackend {
    /// A model or a script, run in our sandbox sessions.
    Solver(Solver),
    /// A chat model behind a local server that has to be started.
    Checkpoint(Checkpoint),
    /// Trajectories that already exist.
    Trajectories {
        path: PathBuf,
        outputs: Option<PathBuf>,
    },
}

/// Opens every agent of the recipe, in the order of their labels.
pub(super) async fn load(setup: &Setup) -> Result<Vec<AgentSpec>, RunError> {
    let mut specs = Vec::new();
    for (label, choice) in &setup.recipe.agents {
        specs.push(match choice {
            AgentChoice::Checkpoint { model, base, about } => {
                let about = about
                    .clone()
                    .unwrap_or_else(|| format!("`{model}`, served on this machine"));
                checkpoint(setup, label, model, *base, about).await?
            }
            AgentChoice::Gguf {
                model,
                sha256,
                context,
                about,
            } => {
                let source = Model {
                    model: model.clone(),
                    sha256: sha256.clone(),
                    context: *context,
                    root: setup.project_root.clone(),
                    cache: default_cache_dir(),
                };
                gguf(setup, label, source, about.clone()).await?
            }
            other => agent_spec(setup, label, other)?,
        });
    }
    Ok(specs)
}

/// A checkpoint whose server runs only during its attempts, because memory may not suffice for two models.
pub(super) struct Checkpoint {
    program: PathBuf,
    model: String,
    /// Model name that the server reports.
    name: String,
    base: bool,
}

/// Base URL of a checkpoint that is not being served; no request is sent to it.
const UNSERVED_URL: &str = "http://127.0.0.1:0/v1";

impl Checkpoint {
    /// Starts the server. It is stopped when the returned value is dropped.
    pub(super) async fn serve(&self) -> Result<ModelServer, RunError> {
        ModelServer::start(&self.program, &self.model, &self.name, self.base).await
    }

    /// The chat model behind `server`. Without a server it can identify attempts but not answer requests. Its
    /// price is zero.
    pub(super) fn chat_model(
        &self,
        setup: &Setup,
        format: &'static dyn Format,
        server: Option<&ModelServer>,
    ) -> Result<Arc<dyn ChatModel>, RunError> {
        let options = OpenAiOptions {
            model: self.name.clone(),
            base_url: server
                .map_or(UNSERVED_URL, |server| &server.base_url)
                .to_owned(),
            key: None,
            headers: std::collections::BTreeMap::new(),
            price: Some(Price::default()),
            timeout: LOCAL_TIMEOUT,
            extra: serde_json::Map::new(),
        };
        // The port differs between runs, so replies are not shared with other runs.
        let (folder, options) = (setup.folder.clone(), options.with_tools(format.tools()));
        metered(options, folder, &setup.recipe.budget, format.name(), None)
    }
}

/// Describes a checkpoint. Checks now that it can be served, so that errors appear before any agent runs.
async fn checkpoint(
    setup: &Setup,
    label: &str,
    model: &str,
    base: bool,
    about: String,
) -> Result<AgentSpec, RunError> {
    let program = model_server::program().ok_or_else(|| {
        RunError::Environment(
            "`pybench-train` was not found next to this program or on the PATH: run `just train` to build it".to_owned(),
        )
    })?;
    model_server::check(&program, model, base).await?;
    // A new model in the same folder is another agent.
    let made = std::fs::metadata(std::path::Path::new(model).join("config.json"));
    let made = made.and_then(|metadata| metadata.modified()).ok();
    let made = made.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let digest = Digest::of_json(&(model, made.map(|time| time.as_secs())));
    Ok(AgentSpec {
        label: label.to_owned(),
        backend: AgentBackend::Checkpoint(Checkpoint {
            program,
            model: model.to_owned(),
            name: format!("{label}-{}", digest.short()),
            base,
        }),
        kind: AgentKind::Model,
        about,
        format: agent::format(setup.recipe.rollout.format),
        rollout: setup.recipe.rollout.clone(),
        price: Some(Price::default()),
        concurrency: model_server::SLOTS..=usize::MAX,
    })
}

/// Opens a GGUF file, which runs in a local process without API keys. Its price is zero.
async fn gguf(
    setup: &Setup,
    label: &str,
    model: Model,
    about: Option<String>,
) -> Result<AgentSpec, RunError> {
    let cap = money::cap(&setup.recipe.budget);
    let format = agent::format(setup.recipe.rollout.format);
    let model = Embedded::open(model).await?;
    let about = about.unwrap_or_else(|| format!("`{}`, run on this machine", model.name()));
    let model = model.metered(setup.folder.clone(), cap, format.name());
    Ok(AgentSpec {
        label: label.to_owned(),
        backend: AgentBackend::Solver(Solver::Model(model)),
        kind: AgentKind::Model,
        about,
        format,
        rollout: setup.recipe.rollout.clone(),
        price: Some(Price::default()),
        concurrency: 1..=usize::MAX,
    })
}

fn agent_spec(setup: &Setup, label: &str, choice: &AgentChoice) -> Result<AgentSpec, RunError> {
    let variable = |name: &str| std::env::var(name).ok();
    let new = |kind, about: String, backend| AgentSpec {
        label: label.to_owned(),
        backend,
        kind,
        about,
        format: &PybenchFormat,
        rollout: setup.recipe.rollout.clone(),
        price: None,
        concurrency: 1..=usize::MAX,
    };
    match choice {
        AgentChoice::Script { script } => {
            let kind = match script {
                Script::Reference => AgentKind::Reference,
                _ => AgentKind::Null,
            };
            let mut spec = new(
                kind,
                script.about().to_owned(),
                AgentBackend::Solver(scripted(setup, *script)?),
            );
            // Reference solutions may need more turns, and scripts are deterministic.
            spec.rollout.max_turns = spec.rollout.max_turns.max(20);
            spec.rollout.samples = 1;
            Ok(spec)
        }
        AgentChoice::Human {} => {
            let human = Solver::Model(Arc::new(HumanAgent::new(&PybenchFormat)));
            let backend = AgentBackend::Solver(human);
            let about = "a person at the terminal".to_owned();
            Ok(AgentSpec {
                concurrency: 1..=1,
                ..new(AgentKind::Human, about, backend)
            })
        }
        AgentChoice::Openai {
            model,
            base_url,
            about,
            ..
        } => {
            let model_choice = choice
                .model_choice()
                .ok_or_else(|| RunError::Internal("the agent has no model".to_owned()))?;
            let options =
                OpenAiOptions::from_recipe(&model_choice, variable).map_err(setup_error)?;
            let options = options
                .ok_or_else(|| RunError::Internal("the model has no endpoint".to_owned()))?;
            let about = about
                .clone()
                .unwrap_or_else(|| format!("`{model}` at {}", host(base_url)));
            let format = agent::format(setup.recipe.rollout.format);
            endpoint(setup, options.with_tools(format.tools()), |backend| {
                AgentSpec {
                    format,
                    ..new(AgentKind::Model, about, backend)
                }
            })
        }
        AgentChoice::Checkpoint { .. } | AgentChoice::Gguf { .. } => Err(RunError::Internal(
            "local models are opened by `load`".to_owned(),
        )),
        AgentChoice::Config { path, price } => {
            let mut config = UpstreamConfig::read(&setup.project_root.join(path), variable)?;
            config.endpoint.price = price.or(config.endpoint.price);
            let about = format!(
                "`{}` at {}",
                config.endpoint.model,
                host(&config.endpoint.base_url)
            );
            let format: &'static dyn Format =
                UpstreamFormat::new(&config.system, config.call.as_deref());
            let rollout = Rollout {
                max_turns: config.max_turns,
                sampling: config.sampling,
                ..setup.recipe.rollout.clone()
            };
            endpoint(setup, config.endpoint, |backend| AgentSpec {
                format,
                rollout,
                ..new(AgentKind::Model, about, backend)
            })
        }
        AgentChoice::Trajectories { path, outputs } => {
            let at = |path: &PathBuf| setup.project_root.join(path);
            let backend = AgentBackend::Trajectories {
                path: at(path),
                outputs: outputs.as_ref().map(at),
            };
            Ok(new(
                AgentKind::Foreign,
                "trajectories of another system".to_owned(),
                backend,
            ))
        }
    }
}

fn scripted(setup: &Setup, script: Script) -> Result<Solver, RunError> {
    let wrong = |error: String| RunError::BadInput(error);
    let library = Library::embedded().map_err(|error| wrong(error.to_string()))?;
    let specs = match &setup.suite {
        Some(suite) => suite.specs.clone(),
        None => Arc::new(spec::embedded().map_err(|error| wrong(error.to_string()))?),
    };
    let agent = ScriptedAgent::new(script, specs, Arc::new(library), &PybenchFormat);
    Ok(Solver::Script(Arc::new(agent)))
}

/// Opens a model behind an endpoint; its calls are journaled and limited by the budget.
fn endpoint(
    setup: &Setup,
    options: OpenAiOptions,
    make: impl FnOnce(AgentBackend) -> AgentSpec,
) -> Result<AgentSpec, RunError> {
    let recipe = &setup.recipe;
    let price = options.price;
    money::bounded(&options.model, price, &recipe.budget).map_err(|error| {
        RunError::BadInput(format!("{error} (command line: --usd or --tokens)"))
    })?;
    // The backend is created below, because it needs the format of the spec.
    let mut spec = make(AgentBackend::Trajectories {
        path: PathBuf::new(),
        outputs: None,
    });
    let shared = recipe
        .rollout
        .reuse
        .then(|| setup.project_root.join(RESPONSE_CACHE));
    let format = spec.format.name();
    let model = metered(
        options,
        setup.folder.clone(),
        &recipe.budget,
        format,
        shared.as_deref(),
    )?;
    spec.backend = AgentBackend::Solver(Solver::Model(model));
    spec.price = price;
    Ok(spec)
}

/// Host and port of a URL, without credentials, path and query, which may contain secrets.
fn host(base_url: &str) -> String {
    let rest = base_url
        .split_once("://")
        .map_or(base_url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

impl AgentSpec {
    /// The rollout configuration of this agent with `teacher`.
    pub(super) fn rollout_config(&self, setup: &Setup, teacher: Solver) -> RolloutConfig {
        RolloutConfig {
            rollout: self.rollout.clone(),
            session: SessionSpec {
                limits: setup.recipe.interpreter.limits.clone(),
                ..SessionSpec::default()
            },
            format: self.format,
            teacher,
            teacher_mix: Vec::new(),
            escalation: Vec::new(),
            seed: 0,
            interpreter: setup.interpreter.clone(),
        }
    }

    /// Digest of the system prompt.
    pub(super) fn prompt_digest(&self) -> Digest {
        let system = Message::new(Role::System, self.format.system());
        Digest::of_json(&(system, self.format.stop()))
    }

    /// Description of the agent in the header of the records.
    pub(super) fn description(&self) -> Agent {
        let sampled = self.kind == AgentKind::Model;
        Agent {
            kind: self.kind,
            about: self.about.clone(),
            format: self.format.name().to_owned(),
            sampling: sampled.then(|| self.rollout.sampling.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn hosts_contain_no_secrets() {
        assert_eq!(
            super::host("https://user:key@h.example:8/v1?k=s"),
            "h.example:8"
        );
        assert_eq!(super::host("http://localhost:1/v1"), "localhost:1");
    }
}
