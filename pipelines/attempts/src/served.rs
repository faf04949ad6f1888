//! A checkpoint as a chat model: `pybench-train serve` runs from the first request until the model is dropped.

use std::path::PathBuf;

use async_trait::async_trait;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Limits, OpenAi, OpenAiOptions, Reply};
use pybench_run::{ModelChoice, Price, RunError};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::model_server::{self, ModelServer, SLOTS};

/// The server generates that many replies at once.
pub const LIMITS: Limits = Limits {
    requests: None,
    tokens: None,
    in_flight: Some(SLOTS),
};
/// Request timeout, since a model may run on few CPU cores.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1800);

/// A checkpoint that is served when it is first asked, so that a run with nothing left to ask loads no model.
pub struct Served {
    /// `checkpoint:` and the model as the recipe has it. It is part of trajectory ids.
    name: String,
    program: PathBuf,
    /// The model folder, or a name in the trainer's catalog.
    model: String,
    /// The tools offered with every request.
    tools: Option<Value>,
    started: OnceCell<(ModelServer, OpenAi)>,
}

impl Served {
    /// The checkpoint that a recipe calls `model`, at `path`.
    ///
    /// # Errors
    /// [`RunError::Environment`] if `pybench-train` is missing.
    pub fn new(model: &str, path: String, tools: Option<Value>) -> Result<Self, RunError> {
        let program = model_server::program().ok_or_else(|| {
            RunError::Environment(
                "`pybench-train` was not found next to this program or on the PATH: run `just train` to build it"
                    .to_owned(),
            )
        })?;
        Ok(Self {
            name: ModelChoice::checkpoint_name(model),
            program,
            model: path,
            tools,
            started: OnceCell::new(),
        })
    }

    async fn start(&self) -> Result<(ModelServer, OpenAi), ChatError> {
        let server = ModelServer::start(&self.program, &self.model, &self.name, false).await;
        let server = server.map_err(|error| ChatError::Connection(error.to_string()))?;
        let options = OpenAiOptions {
            model: self.name.clone(),
            base_url: server.base_url.clone(),
            key: None,
            headers: std::collections::BTreeMap::new(),
            price: Some(Price::default()),
            timeout: TIMEOUT,
            extra: serde_json::Map::new(),
        };
        let client = OpenAi::new(options.with_tools(self.tools.clone()))?;
        Ok((server, client))
    }
}

#[async_trait]
impl ChatModel for Served {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        Some(Price::default())
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let (_, client) = self.started.get_or_try_init(|| self.start()).await?;
        client.reply(request).await
    }
}
