//! All conversations that are open, and those that were saved. Each open one has a session, so there are few, and one that
//! nobody asks for is closed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pybench_chat::agents;
use pybench_chat::conversation::{Conversation, Tools};
use pybench_chat::history::History;
use pybench_chat::live::Live;
use pybench_chat::settings::Settings;
use pybench_eval::run::AgentChoice;
use pybench_interpreter::Tier;
use pybench_run::{FormatChoice, RunError};
use pybench_types::text::line;
use tokio::sync::Semaphore;

use super::endpoints;
use super::open_chat::{OpenChat, Order};
use super::topic::Topic;
use super::view::{ChatEndpoint, ChatList, ChatRequest, SavedChat};
use crate::interpreters::Interpreters;
use crate::shared_models::SharedModels;

/// Maximum number of conversations that are open.
pub(crate) const MAX_CHATS: usize = 4;
/// A conversation that nobody has asked for in this time is closed. Browsers call the timers of hidden pages once a minute.
const LEASE: Duration = Duration::from_secs(180);
/// What a request to open a conversation may name.
const REQUESTS: &str =
    "name either `agent` or `endpoint`, perhaps with `about` and `format`, or `conversation`";
/// Why a conversation is with no endpoint that a page or a saved conversation names.
const NOT_NAMED: &str = "the studio was started with --host, so that other people may use it: a conversation is with an agent \
                         of the recipe that --chat-recipe names";

/// Where conversations are kept, and whom they are with.
#[derive(Clone, Debug)]
pub(crate) struct ChatPlace {
    /// The project.
    pub(crate) root: PathBuf,
    /// Folder of the history.
    pub(crate) history: PathBuf,
    /// Profile of the database that has the history instead of that folder.
    pub(crate) profile: Option<PathBuf>,
    /// Recipe of the agents: a file, or a name.
    pub(crate) recipe: PathBuf,
    pub(crate) runs_dir: PathBuf,
    /// Whether pages may name endpoints.
    pub(crate) endpoints: bool,
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
            &self.place.history,
            self.place.profile.as_deref(),
        )?);
        *known = Some(history.clone());
        Ok(history)
    }

    /// The agents to talk with: those of the recipe that are models, and the newest checkpoint.
    fn agents(&self) -> (Vec<Settings>, String) {
        let of_recipe = agents::models_of_recipe(&self.place.recipe, &self.place.root);
        let (mut known, problem) = match of_recipe {
            Ok(known) => (known, String::new()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        known.extend(agents::newest(&self.place.runs_dir));
        (known, problem)
    }

    /// The settings of a new conversation; `None` if a saved one is asked for.
    fn new_settings(&self, request: &ChatRequest) -> Result<Option<Settings>, RunError> {
        let mut settings = match (&request.agent, &request.endpoint) {
            (None, None) => return Ok(None),
            (Some(agent), None) => self.settings(agent)?,
            (None, Some(endpoint)) if self.place.endpoints => {
                endpoints::settings(endpoint, variable)?
            }
            (None, Some(_)) => return Err(RunError::BadInput(NOT_NAMED.to_owned())),
            (Some(_), Some(_)) => return Err(RunError::BadInput(REQUESTS.to_owned())),
        };
        if let Some(format) = request.format {
            choose_format(&mut settings, format)?;
        }
        Ok(Some(settings))
    }

    /// Checks that the keys which a saved conversation names may be sent to its endpoint, and that its cells may run here:
    /// other people may have saved it.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if no conversation could begin with this endpoint here, nobody here named its key, or the cells
    /// of a shared one run without a sandbox.
    pub(super) fn check_saved(&self, settings: &Settings) -> Result<(), RunError> {
        let is_shared = self.place.profile.is_some();
        if is_shared {
            settings.check_sandbox()?;
        }
        let AgentChoice::Openai {
            base_url, key_env, ..
        } = &settings.agent
        else {
            return Ok(());
        };
        let (known, _) = self.agents();
        let is_same = |own: &Settings| agents::is_same_endpoint(&own.agent, &settings.agent);
        if known.iter().any(is_same) {
            return Ok(());
        }
        if !self.place.endpoints {
            return Err(RunError::BadInput(NOT_NAMED.to_owned()));
        }
        agents::check_endpoint(&settings.agent, variable)?;
        let keys = agents::keys(&settings.agent);
        if !is_shared || keys.is_empty() {
            return Ok(());
        }
        let is_named = keys.len() == usize::from(key_env.is_some())
            && endpoints::was_used(&self.place.history, base_url, key_env.as_deref())?;
        match is_named {
            true => Ok(()),
            false => Err(RunError::BadInput(format!(
                "the conversation is from a shared history, and would send the value of {} to {}, which nobody has allowed here; \
                 to allow it, begin a conversation with this address and variable, or add them to the recipe of the agents",
                line(&keys.join(", ")),
                line(base_url)
            ))),
        }
    }

    /// The endpoints that people named, and why they cannot be read; `None` if none can be named.
    fn endpoints(&self) -> (Option<Vec<ChatEndpoint>>, String) {
        if !self.place.endpoints {
            return (None, String::new());
        }
        match endpoints::remembered(&self.place.history) {
            Ok(known) => (Some(known), String::new()),
            Err(error) => (Some(Vec::new()), error.to_string()),
        }
    }

    /// Remembers the endpoint of a conversation that begins.
    fn remember(&self, request: &ChatRequest) {
        let Some(endpoint) = &request.endpoint else {
            return;
        };
        // The conversation goes on without it.
        if let Err(error) = endpoints::remember(&self.place.history, endpoint) {
            tracing::warn!("the endpoint is not remembered: {error}");
        }
    }

    /// The agents and the saved conversations.
    ///
    /// # Errors
    /// The history cannot be read.
    pub(crate) fn list(&self) -> Result<ChatList, RunError> {
        let (known, problem) = self.agents();
        let (endpoints, unread) = self.endpoints();
        let exists = self.place.profile.is_some() || self.place.history.is_dir();
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
            agents: known.into_iter().map(|one| one.label).collect(),
            problem: [problem, unread].join(" ").trim().to_owned(),
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
        let history = self.history()?;
        let root = &self.place.root;
        let (conversation, first) = match (self.new_settings(request)?, &request.conversation) {
            (Some(settings), None) => {
                if topic.is_some() {
                    check_sandbox(&settings)?;
                }
                let tools = self.tools(&settings).await?;
                let begun = begun(history, settings, tools, root, topic)?;
                self.remember(request);
                begun
            }
            (None, Some(id)) if topic.is_none() && request.format.is_none() => {
                let settings = history.read(id)?.settings;
                self.check_saved(&settings)?;
                let tools = self.tools(&settings).await?;
                let conversation = Conversation::resume(history, id.clone(), tools, root)?;
                (conversation, Some(Order::Restore))
            }
            _ => return Err(RunError::BadInput(REQUESTS.to_owned())),
        };
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
        Ok(Some(open))
    }

    fn settings(&self, agent: &str) -> Result<Settings, RunError> {
        let (known, problem) = self.agents();
        let found = known.into_iter().find(|one| one.label == agent);
        found.ok_or_else(|| {
            let text = format!("there is no agent `{}` {problem}", line(agent));
            RunError::BadInput(text.trim_end().to_owned())
        })
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

/// Whether an agent may work on a task of a run, which may be hostile, as may be its files and the code of its checks.
///
/// # Errors
/// [`RunError::BadInput`] if its cells run without a sandbox.
pub(super) fn check_sandbox(settings: &Settings) -> Result<(), RunError> {
    match settings.interpreter.tier {
        Tier::Unsandboxed => Err(RunError::BadInput(format!(
            "the cells of agent `{}` run without a sandbox (`interpreter.tier`), and the task of a run may be hostile; choose an \
             agent with a sandbox",
            line(&settings.label)
        ))),
        _ => Ok(()),
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

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
