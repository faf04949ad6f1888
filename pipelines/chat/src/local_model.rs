//! A model in the memory of this machine. Conversations with different message formats can share one.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use pybench_agent as agent;
use pybench_attempts::model_server::ServeOptions;
use pybench_attempts::request_options::RequestOptions;
use pybench_attempts::served::{Served, ServedModel};
use pybench_embedded_client::{Embedded, Model};
use pybench_eval::run::AgentChoice;
use pybench_interpreter::default_cache_dir;
use pybench_llm::ChatModel;
use pybench_run::{Rollout, RunError};

/// Ends when the memory of a model is free.
pub type Unloading = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A model in the memory of this machine. It is unloaded when the last of its clients and holders is dropped.
pub trait LocalModel: Send + Sync {
    /// The model for conversations with these settings.
    fn client(self: Arc<Self>, rollout: &Rollout) -> Arc<dyn ChatModel>;

    /// Unloads it, if nobody else uses it, and waits until its memory is free.
    fn unload(self: Arc<Self>) -> Unloading;

    /// Whether it no longer answers, so that it has to be loaded again.
    fn is_broken(&self) -> bool {
        false
    }
}

impl LocalModel for Embedded {
    fn client(self: Arc<Self>, _: &Rollout) -> Arc<dyn ChatModel> {
        self
    }

    fn unload(self: Arc<Self>) -> Unloading {
        Box::pin(async move {
            if let Some(model) = Arc::into_inner(self) {
                model.stop().await;
            }
        })
    }
}

impl LocalModel for ServedModel {
    fn client(self: Arc<Self>, rollout: &Rollout) -> Arc<dyn ChatModel> {
        let options = RequestOptions::of_rollout(agent::format(rollout.format), rollout);
        Arc::new(Served::of(self, options))
    }

    fn unload(self: Arc<Self>) -> Unloading {
        Box::pin(async move {
            if let Some(model) = Arc::into_inner(self) {
                model.stop().await;
            }
        })
    }

    fn is_broken(&self) -> bool {
        self.is_unreachable()
    }
}

/// What an agent loads into the memory of this machine. Agents for which it is equal can share one model.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalModelSpec(AgentChoice);

impl LocalModelSpec {
    /// `None` if the agent loads nothing.
    pub fn of(agent: &AgentChoice) -> Option<Self> {
        let mut agent = agent.clone();
        match &mut agent {
            AgentChoice::Gguf { about, .. } | AgentChoice::Checkpoint { about, .. } => {
                *about = None;
            }
            _ => return None,
        }
        Some(Self(agent))
    }

    /// Loads the model; a checkpoint is loaded with the first message. Paths are relative to `root`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the model is not found or cannot be loaded; [`RunError::Environment`] if a program is
    /// missing.
    pub async fn load(&self, root: &Path) -> Result<Arc<dyn LocalModel>, RunError> {
        match &self.0 {
            AgentChoice::Gguf {
                model,
                sha256,
                context,
                ..
            } => {
                let model = Model {
                    model: model.clone(),
                    sha256: sha256.clone(),
                    context: *context,
                    root: root.to_owned(),
                    cache: default_cache_dir(),
                };
                Ok(Arc::new(Embedded::open(model).await?))
            }
            AgentChoice::Checkpoint {
                model,
                base,
                dtype,
                engine,
                ..
            } => {
                let options = ServeOptions {
                    base: *base,
                    dtype: *dtype,
                    engine: *engine,
                };
                Ok(Arc::new(ServedModel::new(
                    model,
                    options,
                    served_path(model, root),
                )?))
            }
            _ => Err(RunError::Internal("the agent loads no model".to_owned())),
        }
    }
}

/// A model folder, or else a name in the trainer's catalog.
fn served_path(model: &str, root: &Path) -> String {
    let folder = root.join(model);
    match folder.is_dir() {
        true => folder.display().to_string(),
        false => model.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(agent: &str) -> Option<LocalModelSpec> {
        LocalModelSpec::of(&serde_json::from_str(agent).unwrap())
    }

    #[test]
    fn agents_share_a_model_that_is_loaded_in_the_same_way() {
        let one = spec(r#"{"kind": "gguf", "model": "m.gguf"}"#);
        assert!(one.is_some());
        assert_eq!(
            one,
            spec(r#"{"kind": "gguf", "model": "m.gguf", "about": "the same"}"#)
        );
        for other in [
            r#"{"kind": "gguf", "model": "n.gguf"}"#,
            r#"{"kind": "gguf", "model": "m.gguf", "context": 512}"#,
            r#"{"kind": "checkpoint", "model": "m.gguf"}"#,
        ] {
            let other = spec(other);
            assert!(other.is_some());
            assert_ne!(one, other);
        }
        let endpoint = r#"{"kind": "openai", "model": "m", "base_url": "http://h/v1"}"#;
        assert_eq!(spec(endpoint), None);
    }
}
