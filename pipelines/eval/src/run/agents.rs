//! Turns the agents of a recipe into agents that can run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_agent as agent;
use pybench_agent::{Format, PybenchFormat, Solver};
use pybench_interpreter::SessionSpec;
use pybench_interpreter::default_cache_dir;
use pybench_llm::{ChatModel, OpenAi, OpenAiOptions};
use pybench_run::{BudgetCap, Price, Rollout, RunError, ServedDtype};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role};

use super::{AgentChoice, Setup};
use crate::agent::config::UpstreamConfig;
use crate::agent::{HumanAgent, Script, ScriptedAgent, SingleReplyFormat, UpstreamFormat};
use crate::record::{Agent, AgentKind};
use pybench_attempts::model_server::{self, ModelServer, ServeOptions};
use pybench_attempts::request_options::RequestOptions;
use pybench_attempts::teacher::{metered, setup_error};
use pybench_attempts::{RolloutConfig, money};
use pybench_embedded_client::{Embedded, Model};
use pybench_library::Library;

/// An agent and how to run it.
pub(super) struct AgentSpec {
    pub(super) label: String,
    pub(super) backend: AgentBackend,
    kind: AgentKind,
    about: String,
    pub(super) format: &'static dyn Format,
    pub(super) rollout: Rollout,
    /// `None` if it is unknown.
    pub(super) price: Option<Price>,
    /// The number of attempts in work, whatever the recipe gives.
    pub(super) concurrency: Option<usize>,
}

/// Where the replies of an agent come from.
pub(super) enum AgentBackend {
    /// A model or a script, run in our sandbox sessions.
    Solver(Solver),
    /// A chat model behind a local server, which runs only during its attempts.
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
        specs.push(agent_spec(setup, label, choice).await?);
    }
    Ok(specs)
}

/// A checkpoint that is not being served. Its server runs only during its attempts, because memory may not suffice
/// for two models.
pub(super) struct Checkpoint {
    program: PathBuf,
    model: String,
    /// Model name that the server reports.
    name: String,
    options: ServeOptions,
    by_vllm: bool,
}

impl Checkpoint {
    /// Name in the ids of attempts: that of its chat model.
    pub(super) fn teacher(&self) -> String {
        OpenAi::name_of(&self.name)
    }

    /// Starts the server. It is stopped when the returned value is dropped.
    pub(super) async fn serve(&self) -> Result<ModelServer, RunError> {
        ModelServer::start(&self.program, &self.model, &self.name, self.options).await
    }

    /// The chat model behind `server`. Its price is zero.
    pub(super) fn chat_model(
        &self,
        setup: &Setup,
        format: &'static dyn Format,
        server: &ModelServer,
    ) -> Result<Arc<dyn ChatModel>, RunError> {
        let options = server.client_options(&self.name);
        // The port differs between runs, so replies are not shared with other runs.
        let options = RequestOptions::of_rollout(format, &setup.recipe.rollout).apply(options);
        let folder = setup.folder.clone();
        metered(
            options,
            folder,
            &setup.recipe.budget,
            format.name(),
            None,
            &setup.interrupt,
        )
    }
}

/// Describes a checkpoint. Checks now that it can be served, so that errors appear before any agent runs.
async fn checkpoint(
    label: &str,
    model: &str,
    options: ServeOptions,
) -> Result<Checkpoint, RunError> {
    let program = model_server::required_program()?;
    let by_vllm = model_server::check(&program, model, options).await?;
    // A new model or adapter in the same folder is another agent.
    let made = ["config.json", "adapter_config.json"]
        .into_iter()
        .find_map(|name| {
            let metadata = std::fs::metadata(Path::new(model).join(name)).ok()?;
            let made = metadata.modified().ok()?;
            made.duration_since(std::time::UNIX_EPOCH).ok()
        });
    let digest = Digest::of_json(&(model, made.map(|time| time.as_secs())));
    Ok(Checkpoint {
        program,
        model: model.to_owned(),
        name: [
            options.dtype.map(ServedDtype::name),
            by_vllm.then_some("vllm"),
        ]
        .into_iter()
        .flatten()
        .fold(format!("{label}-{}", digest.short()), |name, part| {
            format!("{name}-{part}")
        }),
        options,
        by_vllm,
    })
}

async fn agent_spec(
    setup: &Setup,
    label: &str,
    choice: &AgentChoice,
) -> Result<AgentSpec, RunError> {
    let new = |kind, about, backend| AgentSpec::new(setup, label, kind, about, backend);
    match choice {
        AgentChoice::Script { script } => {
            let kind = match script {
                Script::Reference => AgentKind::Reference,
                _ => AgentKind::Null,
            };
            let backend = AgentBackend::Solver(scripted(setup, *script)?);
            let mut spec = new(kind, script.about().to_owned(), backend);
            spec.price = Some(Price::default());
            // Reference solutions may need more turns, and scripts are deterministic.
            spec.rollout.max_turns = spec.rollout.max_turns.max(20);
            spec.rollout.samples = 1;
            Ok(spec)
        }
        AgentChoice::Human {} => {
            let human = Solver::Model(Arc::new(HumanAgent::new(&PybenchFormat)));
            let about = "a person at the terminal".to_owned();
            Ok(AgentSpec {
                price: Some(Price::default()),
                concurrency: Some(1),
                ..new(AgentKind::Human, about, AgentBackend::Solver(human))
            })
        }
        AgentChoice::Openai {
            model,
            base_url,
            about,
            ..
        } => {
            let about = about.clone();
            let about = about.unwrap_or_else(|| format!("`{model}` at {}", host(base_url)));
            openai(setup, label, choice, about)
        }
        AgentChoice::Checkpoint {
            model,
            base,
            dtype,
            engine,
            about,
        } => {
            let options = ServeOptions {
                base: *base,
                dtype: *dtype,
                engine: *engine,
            };
            let checkpoint = checkpoint(label, model, options).await?;
            let by = if checkpoint.by_vllm { " by vLLM" } else { "" };
            let about = about.clone();
            let about = about.unwrap_or_else(|| format!("`{model}`, served on this machine"));
            let about = about + by;
            Ok(AgentSpec {
                format: message_format(setup),
                price: Some(Price::default()),
                ..new(
                    AgentKind::Model,
                    about,
                    AgentBackend::Checkpoint(checkpoint),
                )
            })
        }
        AgentChoice::Gguf {
            model,
            sha256,
            context,
            about,
        } => {
            let model = Model {
                model: model.clone(),
                sha256: sha256.clone(),
                context: *context,
                root: setup.project_root.clone(),
                cache: default_cache_dir(),
            };
            gguf(setup, label, model, about.clone()).await
        }
        AgentChoice::Config { path, price } => config(setup, label, path, *price),
        AgentChoice::Trajectories { path, outputs } => {
            let at = |path: &PathBuf| setup.project_root.join(path);
            let backend = AgentBackend::Trajectories {
                path: at(path),
                outputs: outputs.as_ref().map(at),
            };
            let about = "trajectories of another system".to_owned();
            Ok(new(AgentKind::Foreign, about, backend))
        }
    }
}

/// The message format of models that have none of their own.
pub(super) fn message_format(setup: &Setup) -> &'static dyn Format {
    match setup.recipe.single_reply {
        true => &SingleReplyFormat,
        false => agent::format(setup.recipe.rollout.format),
    }
}

/// A GGUF file, which runs in a local process without API keys. Its price is zero.
async fn gguf(
    setup: &Setup,
    label: &str,
    model: Model,
    about: Option<String>,
) -> Result<AgentSpec, RunError> {
    let cap = BudgetCap::of(&setup.recipe.budget);
    let format = message_format(setup);
    let model = Embedded::open(model).await?;
    let about = about.unwrap_or_else(|| format!("`{}`, run on this machine", model.name()));
    let model = model.metered(setup.folder.clone(), cap, format.name(), &setup.interrupt);
    let backend = AgentBackend::Solver(Solver::Model(model));
    Ok(AgentSpec {
        format,
        price: Some(Price::default()),
        ..AgentSpec::new(setup, label, AgentKind::Model, about, backend)
    })
}

/// A model behind an endpoint of the recipe.
fn openai(
    setup: &Setup,
    label: &str,
    choice: &AgentChoice,
    about: String,
) -> Result<AgentSpec, RunError> {
    let internal = |text: &str| RunError::Internal(text.to_owned());
    let choice = choice.model_choice();
    let choice = choice.ok_or_else(|| internal("the agent has no model"))?;
    let options = OpenAiOptions::from_recipe(&choice, variable).map_err(setup_error)?;
    let options = options.ok_or_else(|| internal("the model has no endpoint"))?;
    let format = message_format(setup);
    let price = options.price;
    let options = RequestOptions::of_rollout(format, &setup.recipe.rollout).apply(options);
    let backend = endpoint(setup, options, format)?;
    Ok(AgentSpec {
        format,
        price,
        ..AgentSpec::new(setup, label, AgentKind::Model, about, backend)
    })
}

/// A model that a YAML configuration of PyBench describes.
fn config(
    setup: &Setup,
    label: &str,
    path: &Path,
    price: Option<Price>,
) -> Result<AgentSpec, RunError> {
    let mut config = UpstreamConfig::read(&setup.project_root.join(path), variable)?;
    config.endpoint.price = price.or(config.endpoint.price);
    let host = host(&config.endpoint.base_url);
    let about = format!("`{}` at {host}", config.endpoint.model);
    let format: &'static dyn Format = UpstreamFormat::new(&config.system, config.call.as_deref());
    let price = config.endpoint.price;
    let backend = endpoint(setup, config.endpoint, format)?;
    Ok(AgentSpec {
        format,
        rollout: Rollout {
            max_turns: config.max_turns,
            sampling: config.sampling,
            ..setup.recipe.rollout.clone()
        },
        price,
        ..AgentSpec::new(setup, label, AgentKind::Model, about, backend)
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn scripted(setup: &Setup, script: Script) -> Result<Solver, RunError> {
    let wrong = |error: String| RunError::BadInput(error);
    let library = Library::embedded().map_err(|error| wrong(error.to_string()))?;
    let suites = setup.suites.clone();
    let agent = ScriptedAgent::new(script, suites, Arc::new(library), &PybenchFormat);
    Ok(Solver::Script(Arc::new(agent)))
}

/// Opens a model behind an endpoint; its calls are journaled and limited by the budget.
fn endpoint(
    setup: &Setup,
    options: OpenAiOptions,
    format: &'static dyn Format,
) -> Result<AgentBackend, RunError> {
    let recipe = &setup.recipe;
    money::bounded(&options.model, options.price, &recipe.budget).map_err(|error| {
        RunError::BadInput(format!("{error} (command line: --usd or --tokens)"))
    })?;
    // No replies of other runs: a model that was trained further may have the name of its predecessor.
    let model = metered(
        options,
        setup.folder.clone(),
        &recipe.budget,
        format.name(),
        None,
        &setup.interrupt,
    )?;
    Ok(AgentBackend::Solver(Solver::Model(model)))
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
    /// An agent with PyBench's message format and the settings of the recipe.
    fn new(
        setup: &Setup,
        label: &str,
        kind: AgentKind,
        about: String,
        backend: AgentBackend,
    ) -> Self {
        Self {
            label: label.to_owned(),
            backend,
            kind,
            about,
            format: &PybenchFormat,
            rollout: setup.recipe.rollout.clone(),
            price: None,
            concurrency: None,
        }
    }

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
            feedback: None,
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
