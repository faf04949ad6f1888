//! The sandboxes there are: who owns them, how many there may be, and when they end.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::error::Refusal;
use super::guard::Client;
use super::kernel::Kernel;
use super::{Options, Service, token};
use crate::interpreter::{Files, Interpreter, Limits, Network, SessionSpec};

/// Interpreters of one sandbox.
const MAX_CONTEXTS: usize = 8;

/// How often it is looked for sandboxes whose time is over.
const LOOK: Duration = Duration::from_millis(500);

/// What a client wants of a new sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) seed: u64,
    /// Seconds that a cell may run; `None`: as the service's limits say.
    pub(super) cell_seconds: Option<u64>,
    /// It ends at a certain time; otherwise when nobody has used it for long enough.
    pub(super) ends: Option<Duration>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) template: String,
}

/// A workspace and the interpreters that work in it.
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) client: Client,
    /// What E2B's client shows for requests to this sandbox.
    pub(super) token: String,
    pub(super) files: Option<Files>,
    pub(super) started: SystemTime,
    pub(super) wish: Wish,
    pub(super) limits: Limits,
    clock: Mutex<Clock>,
    /// The first is the default.
    kernels: Mutex<Vec<Arc<Kernel>>>,
}

#[derive(Clone, Copy)]
struct Clock {
    used: Instant,
    ends: Option<(Instant, SystemTime)>,
}

/// Counts an interpreter while it lives.
pub(super) struct Permits {
    _client: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// All sandboxes.
pub(super) struct Registry {
    interpreter: Arc<dyn Interpreter>,
    limits: Limits,
    network: Option<Network>,
    idle: Duration,
    per_client: usize,
    total: usize,
    all: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sandboxes: HashMap<String, Arc<Sandbox>>,
    clients: HashMap<Client, Arc<Semaphore>>,
    /// CodeAct's conversations: whose, which → the sandbox's id, once it stands.
    conversations: HashMap<(Client, String), Arc<OnceCell<String>>>,
    stopped: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    /// Somebody uses it.
    pub(super) fn touch(&self) {
        lock(&self.clock).used = Instant::now();
    }

    /// It ends so long from now.
    pub(super) fn ends_in(&self, life: Duration) {
        lock(&self.clock).ends = Some((Instant::now() + life, SystemTime::now() + life));
    }

    /// When it ends, where that is fixed.
    pub(super) fn ends(&self) -> Option<SystemTime> {
        lock(&self.clock).ends.map(|(_, at)| at)
    }

    fn is_over(&self, idle: Duration) -> bool {
        let clock = *lock(&self.clock);
        let busy = lock(&self.kernels).iter().any(|kernel| kernel.is_busy());
        match clock.ends {
            Some((at, _)) => Instant::now() >= at,
            None if busy => {
                self.touch();
                false
            }
            None => clock.used.elapsed() >= idle,
        }
    }

    /// Its interpreters, the default first.
    pub(super) fn kernels(&self) -> Vec<Arc<Kernel>> {
        lock(&self.kernels).clone()
    }

    /// One of them; `None` asks for the default.
    pub(super) fn kernel(&self, id: Option<&str>) -> Result<Arc<Kernel>, Refusal> {
        let kernels = lock(&self.kernels);
        let found = match id {
            None => kernels.first(),
            Some(id) => kernels.iter().find(|kernel| kernel.id == id),
        };
        let missing = || Refusal::missing(&format!("the context {}", id.unwrap_or("default")));
        found.cloned().ok_or_else(missing)
    }

    pub(super) fn files(&self) -> Result<&Files, Refusal> {
        let status = axum::http::StatusCode::NOT_IMPLEMENTED;
        let none = || Refusal::new(status, "files cannot be reached in this tier of isolation");
        self.files.as_ref().ok_or_else(none)
    }

    /// End one of its interpreters, not the default.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Refusal> {
        let kernel = self.kernel(Some(id))?;
        {
            let mut kernels = lock(&self.kernels);
            if kernels.first().is_some_and(|first| first.id == id) {
                return Err(Refusal::bad("the default context cannot be removed"));
            }
            kernels.retain(|kernel| kernel.id != id);
        }
        kernel.end().await;
        Ok(())
    }

    async fn end(&self) {
        let kernels = std::mem::take(&mut *lock(&self.kernels));
        join_all(kernels.iter().map(|kernel| kernel.end())).await;
    }
}

impl Registry {
    pub(super) fn new(interpreter: Arc<dyn Interpreter>, options: &Options) -> Self {
        Self {
            interpreter,
            limits: options.limits.clone(),
            network: options.network.clone(),
            idle: options.idle,
            per_client: options.per_client,
            total: options.total,
            all: Arc::new(Semaphore::new(options.total)),
            state: Mutex::default(),
        }
    }

    /// The environment's digest.
    pub(super) fn environment(&self) -> &str {
        self.interpreter.environment()
    }

    /// A sandbox that lives.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Sandbox>> {
        lock(&self.state).sandboxes.get(id).cloned()
    }

    /// A client's sandbox.
    pub(super) fn of(&self, client: &Client, id: &str) -> Result<Arc<Sandbox>, Refusal> {
        let sandbox = self.get(id).filter(|sandbox| sandbox.client == *client);
        let sandbox = sandbox.ok_or_else(|| Refusal::missing(&format!("session {id:.80}")))?;
        sandbox.touch();
        Ok(sandbox)
    }

    /// All of a client's, oldest first.
    pub(super) fn all_of(&self, client: &Client) -> Vec<Arc<Sandbox>> {
        let state = lock(&self.state);
        let mine = state.sandboxes.values().filter(|s| s.client == *client);
        let mut mine: Vec<_> = mine.cloned().collect();
        mine.sort_by_key(|sandbox| (sandbox.started, sandbox.id.clone()));
        mine
    }

    fn permits(&self, client: &Client) -> Result<Permits, Refusal> {
        let own = {
            let mut state = lock(&self.state);
            let new = || Arc::new(Semaphore::new(self.per_client));
            state
                .clients
                .entry(client.clone())
                .or_insert_with(new)
                .clone()
        };
        let full = |whose: &str, count: usize| {
            Refusal::too_many(format!(
                "{whose} {count} sessions already: close one, or wait until one is closed for idleness"
            ))
        };
        let _client = own
            .try_acquire_owned()
            .map_err(|_| full("this client has", self.per_client))?;
        let _all = self.all.clone().try_acquire_owned();
        let _all = _all.map_err(|_| full("the service has", self.total))?;
        Ok(Permits { _client, _all })
    }

    /// Start a sandbox.
    pub(super) async fn create(
        &self,
        client: &Client,
        wish: Wish,
    ) -> Result<Arc<Sandbox>, Refusal> {
        let permits = self.permits(client)?;
        let mut limits = self.limits.clone();
        limits.cell_seconds = wish.cell_seconds.unwrap_or(limits.cell_seconds);
        let id = token::fresh()[..20].to_owned();
        let spec = SessionSpec {
            seed: wish.seed,
            limits: limits.clone(),
            network: self.network.as_ref().map(|network| network.of(&id)),
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(spec).await?;
        let files = session.files();
        let first = "default".to_owned();
        let kernel = Arc::new(Kernel::new(
            first,
            "/workspace".to_owned(),
            session,
            permits,
        ));
        if !wish.variables.is_empty() {
            kernel.aside(&set_variables(&wish.variables)).await?;
        }
        let now = (Instant::now(), SystemTime::now());
        let clock = Clock {
            used: now.0,
            ends: wish.ends.map(|life| (now.0 + life, now.1 + life)),
        };
        let sandbox = Arc::new(Sandbox {
            id,
            client: client.clone(),
            token: token::fresh(),
            files,
            started: now.1,
            wish,
            limits,
            clock: Mutex::new(clock),
            kernels: Mutex::new(vec![kernel]),
        });
        let stopped = {
            let mut state = lock(&self.state);
            state.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
            state.stopped
        };
        if stopped {
            self.close(&sandbox).await;
            return Err(Refusal::missing("the service"));
        }
        Ok(sandbox)
    }

    /// A further interpreter in a sandbox.
    pub(super) async fn add_context(
        &self,
        sandbox: &Sandbox,
        cwd: &str,
    ) -> Result<Arc<Kernel>, Refusal> {
        if lock(&sandbox.kernels).len() >= MAX_CONTEXTS {
            return Err(Refusal::too_many(format!(
                "the sandbox has {MAX_CONTEXTS} contexts already: remove one"
            )));
        }
        let permits = self.permits(&sandbox.client)?;
        let session = sandbox.kernel(None)?.sibling().await?;
        let id = token::fresh()[..20].to_owned();
        let kernel = Arc::new(Kernel::new(id, cwd.to_owned(), session, permits));
        let mut code = set_variables(&sandbox.wish.variables);
        if cwd != "/workspace" {
            code += &format!("\n__import__('os').chdir({})", literal(&cwd));
        }
        if let Err(refusal) = kernel.aside(&code).await {
            kernel.end().await;
            return Err(refusal);
        }
        lock(&sandbox.kernels).push(kernel.clone());
        Ok(kernel)
    }

    /// The sandbox of a conversation, and whether it was started for this call.
    pub(super) async fn conversation(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Arc<Sandbox>, bool), Refusal> {
        let key = (client.clone(), name.to_owned());
        loop {
            let cell = {
                let mut state = lock(&self.state);
                state.conversations.entry(key.clone()).or_default().clone()
            };
            let mut new = false;
            let started = cell.get_or_try_init(async || {
                new = true;
                let sandbox = self.create(client, Wish::default()).await?;
                Ok(sandbox.id.clone())
            });
            let id = match started.await {
                Ok(id) => id,
                Err(refusal) => {
                    self.forget(&key, &cell);
                    return Err(refusal);
                }
            };
            if let Ok(sandbox) = self.of(client, id) {
                return Ok((sandbox, new));
            }
            self.forget(&key, &cell);
        }
    }

    fn forget(&self, key: &(Client, String), cell: &Arc<OnceCell<String>>) {
        let mut state = lock(&self.state);
        let same = |known: &Arc<OnceCell<String>>| Arc::ptr_eq(known, cell);
        if state.conversations.get(key).is_some_and(same) {
            state.conversations.remove(key);
        }
    }

    /// End a sandbox; requests for it find nothing from now on.
    pub(super) async fn close(&self, sandbox: &Sandbox) {
        {
            let mut state = lock(&self.state);
            state.sandboxes.remove(&sandbox.id);
            let other = |cell: &Arc<OnceCell<String>>| cell.get() != Some(&sandbox.id);
            state.conversations.retain(|_, cell| other(cell));
        }
        sandbox.end().await;
    }

    /// End all of them; none is started any more.
    pub(super) async fn close_all(&self) {
        let sandboxes: Vec<_> = {
            let mut state = lock(&self.state);
            state.stopped = true;
            state.sandboxes.values().cloned().collect()
        };
        join_all(sandboxes.iter().map(|sandbox| self.close(sandbox))).await;
    }

    fn over(&self) -> Vec<Arc<Sandbox>> {
        let sandboxes: Vec<_> = lock(&self.state).sandboxes.values().cloned().collect();
        let over = sandboxes
            .into_iter()
            .filter(|sandbox| sandbox.is_over(self.idle));
        over.collect()
    }
}

/// Close what is over, for ever.
pub(super) async fn reap(service: Arc<Service>) {
    loop {
        tokio::time::sleep(LOOK).await;
        for sandbox in service.registry.over() {
            tracing::info!("session {} is over", sandbox.id);
            let service = service.clone();
            tokio::spawn(async move { service.registry.close(&sandbox).await });
        }
    }
}

/// Python that sets environment variables.
pub(super) fn set_variables(variables: &BTreeMap<String, String>) -> String {
    match variables.is_empty() {
        true => String::new(),
        false => format!("__import__('os').environ.update({})", literal(variables)),
    }
}

/// Python that takes variables back to what they were for the whole sandbox.
pub(super) fn reset_variables(
    set: &BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
) -> String {
    let names: Vec<&String> = set.keys().collect();
    format!(
        "[__import__('os').environ.pop(name, None) for name in {}] and None\n{}",
        literal(&names),
        set_variables(before)
    )
}

/// A Python literal: JSON of strings, lists and maps of strings is one.
fn literal(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "None".to_owned())
}
