//! All conversations that are open, and those that were saved. Each open one has a session, so there are few, and one that
//! nobody asks for is closed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pybench_chat::conversation::{Conversation, Tools};
use pybench_chat::history::History;
use pybench_chat::live::Live;
use pybench_chat::settings::Settings;
use pybench_eval::run::AgentChoice;
use pybench_run::{FormatChoice, RunError};
use pybench_types::text::line;
use tokio::sync::Semaphore;

use super::open_chat::{OpenChat, Order};
use super::topic::Topic;
use super::view::{ChatList, ChatRequest, SavedChat};
use crate::handlers::off_thread;
use crate::interpreters::Interpreters;
use crate::model_choice::{ModelChoice, ModelPlace};
use crate::shared_models::SharedModels;

/// Maximum number of conversations that are open.
pub(crate) const MAX_CHATS: usize = 4;
/// A conversation that nobody has asked for in this time is closed. Browsers call the timers of hidden pages once a minute.
const LEASE: Duration = Duration::from_secs(180);
/// What a request to open a conversation may name.
const REQUESTS: &str = "name one of `agent`, `endpoint` and `file`, perhaps with `about` and `format`, or name \
                        `conversation`";

/// Where conversations are kept, and the models that they use.
#[derive(Clone, Debug)]
pub(crate) struct ChatPlace {
    pub(crate) models: ModelPlace,
    /// Profile of the database that has the history instead of the folder.
    pub(crate) profile: Option<PathBuf>,
}

/// All conversations.
pub(crate) struct Chats {
    place: ChatPlace,
    /// Made with the first conversation.
    history: Mutex<Option<Arc<History>>>,
    open: Mutex<HashMap<String, Arc<OpenChat>>>,
    slots: Arc<Semaphore>,
    interpreters: Interpreters,
    models: Arc<SharedModels>,
    lease: Duration,
}

impl Chats {
    pub(crate) fn new(place: ChatPlace, models: Arc<SharedModels>) -> Self {
        Self::with_lease(place, models, LEASE)
    }

    pub(crate) fn with_lease(place: ChatPlace, models: Arc<SharedModels>, lease: Duration) -> Self {
        Self {
            place,
            history: Mutex::default(),
            open: Mutex::default(),
            slots: Arc::new(Semaphore::new(MAX_CHATS)),
            interpreters: Interpreters::default(),
            models,
            lease,
        }
    }

    fn history(&self) -> Result<Arc<History>, RunError> {
        let mut known = lock(&self.history);
        if let Some(history) = &*known {
            return Ok(history.clone());
        }
        let history = Arc::new(History::at(
            &self.place.models.history,
            self.place.profile.as_deref(),
        )?);
        *known = Some(history.clone());
        Ok(history)
    }

    /// The settings of the conversation that a request asks for: a new one, or one that was saved and may go on here.
    fn settings(&self, request: &ChatRequest, has_topic: bool) -> Result<Settings, RunError> {
        match (request.model()?, &request.conversation) {
            (Some(model), None) => {
                let settings = self.new_settings(model, request.format)?;
                if has_topic {
                    settings.check_for_task()?;
                }
                Ok(settings)
            }
            (None, Some(id)) if !has_topic && request.format.is_none() => {
                let settings = self.history()?.read(id)?.settings;
                self.check_saved(&settings)?;
                Ok(settings)
            }
            _ => Err(RunError::BadInput(REQUESTS.to_owned())),
        }
    }

    /// The settings of a new conversation.
    fn new_settings(
        &self,
        model: ModelChoice<'_>,
        format: Option<FormatChoice>,
    ) -> Result<Settings, RunError> {
        let place = &self.place.models;
        let mut settings = place.settings(model, place.agents())?;
        if let Some(format) = format {
            choose_format(&mut settings, format)?;
        }
        Ok(settings)
    }

    /// Checks that a saved conversation may go on here.
    ///
    /// # Errors
    /// As [`ModelPlace::check_saved`].
    pub(super) fn check_saved(&self, settings: &Settings) -> Result<(), RunError> {
        let is_shared = self.place.profile.is_some();
        self.place.models.check_saved(settings, is_shared)
    }

    /// The agents and the saved conversations.
    ///
    /// # Errors
    /// The history cannot be read.
    pub(crate) fn list(&self) -> Result<ChatList, RunError> {
        let models = &self.place.models;
        let (agents, (endpoints, unread)) = (models.agents(), models.endpoints());
        let exists = self.place.profile.is_some() || models.history.is_dir();
        let saved = match exists {
            true => self.history()?.list()?,
            false => Vec::new(),
        };
        let saved = saved.into_iter().map(|one| SavedChat {
            id: one.id,
            title: one.title,
            changed: one.changed,
        });
        Ok(ChatList {
            agents: agents.names(),
            problem: [agents.problem, unread].join(" ").trim().to_owned(),
            conversations: saved.collect(),
            endpoints,
        })
    }

    /// Opens a conversation, a new one about this topic; `None` if as many are open as can be.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no such agent or conversation; [`RunError::Endpoint`] if a key is not set;
    /// [`RunError::Environment`] if the interpreter or the model cannot run; [`RunError::Conflict`] if the model has to be
    /// loaded and there is no room.
    pub(crate) async fn open(
        self: &Arc<Self>,
        request: &ChatRequest,
        topic: Option<Topic>,
    ) -> Result<Option<Arc<OpenChat>>, RunError> {
        if let Some(id) = &request.conversation
            && let Some(open) = self.get(id)
        {
            return Ok(Some(open));
        }
        let Ok(permit) = self.slots.clone().try_acquire_owned() else {
            return Ok(None);
        };
        let (chats, asked, has_topic) = (self.clone(), request.clone(), topic.is_some());
        let (settings, history) = off_thread(move || {
            let settings = chats.settings(&asked, has_topic)?;
            Ok((settings, chats.history()?))
        })
        .await?;
        let tools = self.tools(&settings).await?;
        let (root, saved) = (self.place.models.root.clone(), request.conversation.clone());
        let (conversation, first) = off_thread(move || match saved {
            Some(id) => {
                let conversation = Conversation::resume(history, id, tools, &root)?;
                Ok((conversation, Some(Order::Restore)))
            }
            None => begun(history, settings, tools, &root, topic),
        })
        .await?;
        let (open, orders) = OpenChat::new(&conversation, self.lease)?;
        {
            let mut known = lock(&self.open);
            // Two pages may have asked for it at the same time.
            if let Some(other) = known.get(&open.id) {
                return Ok(Some(other.clone()));
            }
            known.insert(open.id.clone(), open.clone());
        }
        let (chats, live) = (self.clone(), open.clone());
        tokio::spawn(async move {
            live.live(conversation, orders, permit).await;
            let mut known = lock(&chats.open);
            // It may have been opened again meanwhile.
            if known
                .get(&live.id)
                .is_some_and(|one| Arc::ptr_eq(one, &live))
            {
                known.remove(&live.id);
            }
        });
        if let Some(first) = first {
            open.order(first)?;
        }
        if let Some(model) = request.model()? {
            self.place.models.remember(model).await;
        }
        Ok(Some(open))
    }

    async fn tools(&self, settings: &Settings) -> Result<Tools, RunError> {
        Ok(Tools {
            interpreter: self.interpreters.get(&settings.interpreter)?,
            agent: self.models.open(settings).await?,
        })
    }

    /// The open conversation with this id, which somebody asks for.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<OpenChat>> {
        let open = lock(&self.open).get(id).cloned()?;
        open.touch();
        Some(open)
    }

    /// Closes all conversations.
    pub(crate) fn close_all(&self) {
        for (_, open) in lock(&self.open).drain() {
            open.close();
        }
    }

    /// Closes a conversation; nothing happens if it is not open.
    pub(crate) fn close(&self, id: &str) {
        if let Some(open) = lock(&self.open).remove(id) {
            open.close();
        }
    }
}

/// Sets the message format that the person chose.
///
/// # Errors
/// [`RunError::BadInput`] if the agent brings its own.
pub(super) fn choose_format(settings: &mut Settings, format: FormatChoice) -> Result<(), RunError> {
    if matches!(settings.agent, AgentChoice::Config { .. }) {
        return Err(RunError::BadInput(format!(
            "the configuration of agent `{}` has its own message format; leave the format to the agent",
            line(&settings.label)
        )));
    }
    settings.rollout.format = format;
    Ok(())
}

/// A new conversation, and what it begins with.
fn begun(
    history: Arc<History>,
    mut settings: Settings,
    tools: Tools,
    root: &Path,
    topic: Option<Topic>,
) -> Result<(Conversation, Option<Order>), RunError> {
    let Some(topic) = topic else {
        return Ok((Conversation::begin(history, settings, tools, root)?, None));
    };
    for bytes in &topic.held_out {
        history.store().put(bytes)?;
    }
    settings.task = topic.task;
    let mut conversation = Conversation::begin(history, settings, tools, root)?;
    let (live, _) = Live::new();
    for (name, bytes) in &topic.files {
        conversation.put_file(name, bytes, &live)?;
    }
    Ok((conversation, Some(Order::Send(topic.query))))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
