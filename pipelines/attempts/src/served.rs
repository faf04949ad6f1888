//! A checkpoint as a chat model: `pybench-train serve` runs from the first request until the model is dropped.

use std::path::PathBuf;

use async_trait::async_trait;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Limits, OpenAi, Reply, ReplyWatcher};
use pybench_run::{ModelChoice, Price, RunError};
use tokio::sync::OnceCell;

use crate::model_server::{self, ModelServer, SLOTS, ServeOptions};
use crate::request_options::RequestOptions;

/// The server generates that many replies at once.
pub const LIMITS: Limits = Limits {
    requests: None,
    tokens: None,
    in_flight: Some(SLOTS),
};

/// A checkpoint that is served when it is first asked, so that a run with nothing left to ask loads no model.
pub struct Served {
    /// `checkpoint:` and the model as the recipe has it. It is part of trajectory ids.
    name: String,
    program: PathBuf,
    /// The model folder, or a name in the trainer's catalog.
    model: String,
    options: ServeOptions,
    request_options: RequestOptions,
    started: OnceCell<(ModelServer, OpenAi)>,
}

impl Served {
    /// The checkpoint that a recipe calls `model`, at `path`.
    ///
    /// # Errors
    /// [`RunError::Environment`] if `pybench-train` is missing.
    pub fn new(
        model: &str,
        options: ServeOptions,
        path: String,
        request_options: RequestOptions,
    ) -> Result<Self, RunError> {
        Ok(Self {
            name: ModelChoice::checkpoint_name(model, options.dtype, options.engine),
            program: model_server::required_program()?,
            model: path,
            options,
            request_options,
            started: OnceCell::new(),
        })
    }

    async fn start(&self) -> Result<(ModelServer, OpenAi), ChatError> {
        let server = ModelServer::start(&self.program, &self.model, &self.name, self.options).await;
        let server = server.map_err(|error| ChatError::Connection(error.to_string()))?;
        let options = server.client_options(&self.name);
        let client = OpenAi::new(self.request_options.apply(options))?;
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

    async fn reply_live(
        &self,
        request: &ChatRequest<'_>,
        watcher: &ReplyWatcher,
    ) -> Result<Reply, ChatError> {
        let (_, client) = self.started.get_or_try_init(|| self.start()).await?;
        client.reply_live(request, watcher).await
    }
}
