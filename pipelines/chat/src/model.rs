//! The model of a conversation: an endpoint, a checkpoint that is served on this machine, or a GGUF file.

use std::path::Path;
use std::sync::Arc;

use pybench_agent as agent;
use pybench_agent::Format;
use pybench_attempts::request_options::RequestOptions;
use pybench_attempts::teacher::setup_error;
use pybench_eval::agent::UpstreamFormat;
use pybench_eval::agent::config::UpstreamConfig;
use pybench_eval::run::AgentChoice;
use pybench_llm::{ChatModel, OpenAi, OpenAiOptions};
use pybench_run::{BudgetCap, ModelChoice, Rollout, RunError};
use pybench_types::text::line;

use crate::local_model::{LocalModel, LocalModelSpec};
use crate::settings::Settings;

/// A model with its message format.
#[derive(Clone)]
pub struct ChatAgent {
    pub model: Arc<dyn ChatModel>,
    pub format: &'static dyn Format,
    /// Sampling, and the number of replies to a message.
    pub rollout: Rollout,
}

impl ChatAgent {
    /// Opens the model of a conversation. Paths in the settings are relative to `root`. A GGUF model is loaded now, a
    /// checkpoint with the first message.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the agent is no model, or its settings are wrong; [`RunError::Endpoint`] if an API key is not
    /// set; [`RunError::Environment`] if a program is missing.
    pub async fn open(settings: &Settings, root: &Path) -> Result<Self, RunError> {
        if let Some(spec) = LocalModelSpec::of(&settings.agent) {
            return Ok(Self::of_local(settings, spec.load(root).await?));
        }
        let rollout = settings.rollout.clone();
        let opened = match &settings.agent {
            AgentChoice::Openai { .. } => endpoint(&settings.agent, rollout),
            AgentChoice::Config { path, price } => {
                let mut config = UpstreamConfig::read(&root.join(path), variable)?;
                config.endpoint.price = price.or(config.endpoint.price);
                upstream(config, rollout)
            }
            _ => Err(RunError::BadInput(format!(
                "the agent `{}` is no model, so there is nothing to talk to; name an agent of the kind openai, checkpoint, \
                 gguf or config",
                line(&settings.label)
            ))),
        };
        let opened = opened?;
        let cap = BudgetCap::of(&settings.budget);
        if cap.micro_usd.is_some() && opened.model.price().is_none() {
            return Err(RunError::BadInput(format!(
                "the price of {} is unknown, so a limit in dollars cannot be kept; limit the conversation with --tokens, or \
                 give the agent a `price`",
                line(opened.model.name())
            )));
        }
        Ok(opened)
    }

    /// The model of a conversation, which is in the memory of this machine. It costs nothing.
    pub fn of_local(settings: &Settings, model: Arc<dyn LocalModel>) -> Self {
        let rollout = settings.rollout.clone();
        Self {
            model: model.client(&rollout),
            format: agent::format(rollout.format),
            rollout,
        }
    }

    fn new(model: impl ChatModel + 'static, format: &'static dyn Format, rollout: Rollout) -> Self {
        Self {
            model: Arc::new(model),
            format,
            rollout,
        }
    }
}

fn endpoint(choice: &AgentChoice, rollout: Rollout) -> Result<ChatAgent, RunError> {
    let internal = || RunError::Internal("the agent has no endpoint".to_owned());
    let choice: ModelChoice = choice.model_choice().ok_or_else(internal)?;
    let options = OpenAiOptions::from_recipe(&choice, variable).map_err(setup_error)?;
    let format = agent::format(rollout.format);
    let options = RequestOptions::of_rollout(format, &rollout).apply(options.ok_or_else(internal)?);
    let model = OpenAi::new(options).map_err(setup_error)?;
    Ok(ChatAgent::new(model, format, rollout))
}

/// A model that a YAML configuration of PyBench describes.
fn upstream(config: UpstreamConfig, rollout: Rollout) -> Result<ChatAgent, RunError> {
    let format = UpstreamFormat::new(&config.system, config.call.as_deref());
    let rollout = Rollout {
        max_turns: config.max_turns,
        sampling: config.sampling,
        ..rollout
    };
    let model = OpenAi::new(config.endpoint).map_err(setup_error)?;
    Ok(ChatAgent::new(model, format, rollout))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
