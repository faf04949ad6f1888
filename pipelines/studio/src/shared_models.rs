//! The models of conversations and edits. Users of the same model share it.

mod local;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pybench_agent::Format;
use pybench_chat::local_model::LocalModelSpec;
use pybench_chat::model::ChatAgent;
use pybench_chat::settings::Settings;
use pybench_llm::ChatModel;
use pybench_run::{Rollout, RunError};

use self::local::LocalModels;

/// The models of conversations and edits.
pub(crate) struct SharedModels {
    /// The project.
    root: PathBuf,
    local: Arc<LocalModels>,
    /// The models at endpoints, by their settings.
    remote: Mutex<HashMap<String, RemoteModel>>,
}

/// A model at an endpoint. It ends with its last user.
struct RemoteModel {
    model: Weak<dyn ChatModel>,
    format: &'static dyn Format,
    rollout: Rollout,
}

impl SharedModels {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            local: Arc::default(),
            remote: Mutex::default(),
        }
    }

    /// The model of these settings.
    ///
    /// # Errors
    /// As [`ChatAgent::open`]; [`RunError::Conflict`] if it has to be loaded and there is no room.
    pub(crate) async fn open(&self, settings: &Settings) -> Result<ChatAgent, RunError> {
        match LocalModelSpec::of(&settings.agent) {
            Some(spec) => {
                let (own, root) = (spec.clone(), self.root.clone());
                let load = async move { own.load(&root).await };
                let model = self.local.get(&spec, load).await?;
                Ok(ChatAgent::of_local(settings, model))
            }
            None => self.open_remote(settings).await,
        }
    }

    async fn open_remote(&self, settings: &Settings) -> Result<ChatAgent, RunError> {
        let key = serde_json::to_string(&(&settings.agent, &settings.rollout))?;
        let known = self.lock().get(&key).and_then(RemoteModel::agent);
        if let Some(agent) = known {
            return Ok(agent);
        }
        let agent = ChatAgent::open(settings, &self.root).await?;
        let model = RemoteModel {
            model: Arc::downgrade(&agent.model),
            format: agent.format,
            rollout: agent.rollout.clone(),
        };
        let mut remote = self.lock();
        // People name endpoints, so there is no end of settings.
        remote.retain(|_, one| one.model.strong_count() > 0);
        remote.insert(key, model);
        Ok(agent)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RemoteModel>> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteModel {
    fn agent(&self) -> Option<ChatAgent> {
        Some(ChatAgent {
            model: self.model.upgrade()?,
            format: self.format,
            rollout: self.rollout.clone(),
        })
    }
}
