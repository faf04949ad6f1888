//! A checkpoint as a chat model: `pybench-train serve` runs from the first request until its last client is dropped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A checkpoint that is served when it is first asked, so that a run with nothing left to ask loads no model. Clients of
/// several message formats can share it.
pub struct ServedModel {
    /// `checkpoint:` and the model as the recipe has it. It is part of trajectory ids.
    name: String,
    program: PathBuf,
    /// The model folder, or a name in the trainer's catalog.
    model: String,
    options: ServeOptions,
    server: OnceCell<ModelServer>,
    is_unreachable: AtomicBool,
}

/// A client of a served checkpoint.
pub struct Served {
    model: Arc<ServedModel>,
    request_options: RequestOptions,
    client: OnceCell<OpenAi>,
}

impl ServedModel {
    /// The checkpoint that a recipe calls `model`, at `path`.
    ///
    /// # Errors
    /// [`RunError::Environment`] if `pybench-train` is missing.
    pub fn new(model: &str, options: ServeOptions, path: String) -> Result<Self, RunError> {
        Ok(Self {
            name: ModelChoice::checkpoint_name(model, options.dtype, options.engine),
            program: model_server::required_program()?,
            model: path,
            options,
            server: OnceCell::new(),
            is_unreachable: AtomicBool::new(false),
        })
    }

    /// Whether a client could not connect to the server. It does not start again.
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Stops the server, if it runs, and waits until its memory is free.
    pub async fn stop(self) {
        if let Some(server) = self.server.into_inner() {
            server.stop().await;
        }
    }

    /// The server, which is started if it does not run.
    async fn server(&self) -> Result<&ModelServer, ChatError> {
        let server = self.server.get_or_try_init(|| self.start()).await;
        server.map_err(|error| ChatError::Connection(error.to_string()))
    }

    async fn start(&self) -> Result<ModelServer, RunError> {
        ModelServer::start(&self.program, &self.model, &self.name, self.options).await
    }
}

impl Served {
    /// The checkpoint that a recipe calls `model`, at `path`, for one client.
    ///
    /// # Errors
    /// As [`ServedModel::new`].
    pub fn new(
        model: &str,
        options: ServeOptions,
        path: String,
        request_options: RequestOptions,
    ) -> Result<Self, RunError> {
        let model = Arc::new(ServedModel::new(model, options, path)?);
        Ok(Self::of(model, request_options))
    }

    /// A client of a checkpoint that others may use too.
    pub fn of(model: Arc<ServedModel>, request_options: RequestOptions) -> Self {
        Self {
            model,
            request_options,
            client: OnceCell::new(),
        }
    }

    async fn client(&self) -> Result<&OpenAi, ChatError> {
        self.client.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<OpenAi, ChatError> {
        let server = self.model.server().await?;
        let options = server.client_options(&self.model.name);
        let options = match self.model.options.engine.is_own() {
            true => self.request_options.apply_served(options),
            false => self.request_options.apply(options),
        };
        OpenAi::new(options)
    }

    /// Notes whether the server could be reached.
    fn noted(&self, reply: Result<Reply, ChatError>) -> Result<Reply, ChatError> {
        if let Err(ChatError::Connection(_)) = &reply {
            self.model.is_unreachable.store(true, Ordering::Relaxed);
        }
        reply
    }
}

#[async_trait]
impl ChatModel for Served {
    fn name(&self) -> &str {
        &self.model.name
    }

    fn price(&self) -> Option<Price> {
        Some(Price::default())
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        self.noted(self.client().await?.reply(request).await)
    }

    async fn reply_live(
        &self,
        request: &ChatRequest<'_>,
        watcher: &ReplyWatcher,
    ) -> Result<Reply, ChatError> {
        self.noted(self.client().await?.reply_live(request, watcher).await)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pybench_agent::{Format, PybenchFormat, ToolsFormat};
    use pybench_run::Rollout;
    use pybench_testing::endpoint::{Answer, Endpoint};
    use pybench_testing::program::write_program;
    use pybench_types::id::Digest;
    use pybench_types::trajectory::{Message, Role, Sampling};

    use super::*;

    /// A checkpoint whose server prints this address; each start adds a line to the file `starts`.
    fn stand_in(folder: &Path, address: &str) -> Arc<ServedModel> {
        let program = folder.join("serve");
        let starts = folder.join("starts");
        let script = format!(
            "#!/bin/sh\necho start >>'{}'\necho {address}\nexec sleep 600\n",
            starts.display()
        );
        write_program(&program, &script);
        Arc::new(ServedModel {
            name: "checkpoint:m".to_owned(),
            program,
            model: "m".to_owned(),
            options: ServeOptions::default(),
            server: OnceCell::new(),
            is_unreachable: AtomicBool::new(false),
        })
    }

    async fn ask(model: &Arc<ServedModel>, format: &dyn Format) -> Result<Reply, ChatError> {
        let options = RequestOptions::of_rollout(format, &Rollout::default());
        let request = ChatRequest {
            key: &Digest::of_bytes(b"q"),
            sample: 0,
            messages: &[Message::new(Role::User, "q")],
            sampling: &Sampling::default(),
            stop: &[],
            pictures: &[],
        };
        Served::of(model.clone(), options).reply(&request).await
    }

    #[tokio::test]
    async fn clients_with_different_formats_share_one_server() {
        let endpoint = Endpoint::always(Answer::Content("hello".to_owned())).await;
        let folder = tempfile::tempdir().unwrap();
        let model = stand_in(folder.path(), &endpoint.base_url());
        ask(&model, &PybenchFormat).await.unwrap();
        ask(&model, &ToolsFormat).await.unwrap();
        assert_eq!(endpoint.call_count(), 2);
        let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
        assert_eq!(starts, "start\n");
        assert!(!model.is_unreachable());
    }

    #[tokio::test]
    async fn a_server_that_does_not_listen_is_unreachable() {
        let folder = tempfile::tempdir().unwrap();
        let model = stand_in(folder.path(), "http://127.0.0.1:1/v1");
        let error = ask(&model, &PybenchFormat).await.unwrap_err();
        assert!(matches!(error, ChatError::Connection(_)), "{error}");
        assert!(model.is_unreachable());
    }
}
