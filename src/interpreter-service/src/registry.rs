//! All sandboxes: their owners, limits on their number, and when they end.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use tokio::sync::{OnceCell, Semaphore, watch};

use super::client::{Client, Permits};
use super::error::ApiError;
use super::kernel::Kernel;
use super::{Options, Service, token};
use pybench_interpreter::{Files, Interpreter, Limits, Network, SessionSpec};

/// Maximum number of interpreters of one sandbox.
const MAX_CONTEXTS: usize = 8;

/// How often expired sandboxes are closed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What a client requests for a new sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct SandboxSpec {
    /// Seed of `random` and numpy; `None`: a new one.
    pub(super) seed: Option<u64>,
    /// Time limit of a cell, seconds; `None`: the service's default.
    pub(super) cell_seconds: Option<u64>,
    /// Fixed lifetime; `None`: it ends when it is idle for too long.
    pub(super) ends: Option<Duration>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) template: String,
}

/// A workspace and its interpreters.
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) client: Client,
    /// Access token of this sandbox for E2B's client.
    pub(super) token: String,
    pub(super) files: Option<Files>,
    pub(super) started: SystemTime,
    pub(super) spec: SandboxSpec,
    pub(super) limits: Limits,
    clock: Mutex<Clock>,
    ended: watch::Sender<bool>,
    /// The first is the default.
    kernels: Mutex<Vec<Arc<Kernel>>>,
}

#[derive(Clone, Copy)]
struct Clock {
    used: Instant,
    ends: Option<(Instant, SystemTime)>,
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
    /// CodeAct's conversations: client and name → sandbox ID, once it has started.
    conversations: HashMap<(Client, String), Arc<OnceCell<String>>>,
    stopped: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    /// Marks the sandbox as used now.
    pub(super) fn touch(&self) {
        lock(&self.clock).used = Instant::now();
    }

    /// Sets its remaining lifetime.
    pub(super) fn ends_in(&self, life: Duration) {
        lock(&self.clock).ends = Some((Instant::now() + life, SystemTime::now() + life));
    }

    /// When it ends, if its lifetime is fixed.
    pub(super) fn ends(&self) -> Option<SystemTime> {
        lock(&self.clock).ends.map(|(_, at)| at)
    }

    fn is_expired(&self, idle: Duration) -> bool {
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

    /// Its interpreters, the default one first.
    pub(super) fn kernels(&self) -> Vec<Arc<Kernel>> {
        lock(&self.kernels).clone()
    }

    /// An interpreter by ID; `None`: the default one.
    pub(super) fn kernel(&self, id: Option<&str>) -> Result<Arc<Kernel>, ApiError> {
        let kernels = lock(&self.kernels);
        let found = match id {
            None => kernels.first(),
            Some(id) => kernels.iter().find(|kernel| kernel.id == id),
        };
        let missing = || ApiError::missing(&format!("the context {}", id.unwrap_or("default")));
        found.cloned().ok_or_else(missing)
    }

    pub(super) fn files(&self) -> Result<&Files, ApiError> {
        let status = axum::http::StatusCode::NOT_IMPLEMENTED;
        let none = || {
            ApiError::new(
                status,
                "this isolation tier does not support access to files",
            )
        };
        self.files.as_ref().ok_or_else(none)
    }

    /// Ends one of its interpreters, except the default one.
    pub(super) async fn remove(&self, id: &str) -> Result<(), ApiError> {
        let kernel = self.kernel(Some(id))?;
        {
            let mut kernels = lock(&self.kernels);
            if kernels.first().is_some_and(|first| first.id == id) {
                return Err(ApiError::bad("the default context cannot be removed"));
            }
            kernels.retain(|kernel| kernel.id != id);
        }
        kernel.end().await;
        Ok(())
    }

    /// Resolves when the sandbox ends.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }

    async fn end(&self) {
        self.ended.send_replace(true);
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

    /// Digest of the Python environment.
    pub(super) fn environment(&self) -> &str {
        self.interpreter.environment()
    }

    /// A running sandbox.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Sandbox>> {
        lock(&self.state).sandboxes.get(id).cloned()
    }

    /// A sandbox of a client; marks it as used.
    pub(super) fn client_sandbox(
        &self,
        client: &Client,
        id: &str,
    ) -> Result<Arc<Sandbox>, ApiError> {
        let sandbox = self.get(id).filter(|sandbox| sandbox.client == *client);
        let sandbox = sandbox.ok_or_else(|| ApiError::missing(&format!("session {id:.80}")))?;
        sandbox.touch();
        Ok(sandbox)
    }

    /// All sandboxes of a client, oldest first.
    pub(super) fn client_sandboxes(&self, client: &Client) -> Vec<Arc<Sandbox>> {
        let state = lock(&self.state);
        let mine = state.sandboxes.values().filter(|s| s.client == *client);
        let mut mine: Vec<_> = mine.cloned().collect();
        mine.sort_by_key(|sandbox| (sandbox.started, sandbox.id.clone()));
        mine
    }

    fn permits(&self, client: &Client) -> Result<Permits, ApiError> {
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
            ApiError::too_many(format!(
                "{whose} {count} sessions already: close one, or wait until an idle one is closed"
            ))
        };
        let _client = own
            .try_acquire_owned()
            .map_err(|_| full("this client has", self.per_client))?;
        let _all = self.all.clone().try_acquire_owned();
        let _all = _all.map_err(|_| full("the service has", self.total))?;
        Ok(Permits { _client, _all })
    }

    /// Starts a sandbox.
    pub(super) async fn create(
        &self,
        client: &Client,
        spec: SandboxSpec,
    ) -> Result<Arc<Sandbox>, ApiError> {
        let permits = self.permits(client)?;
        let mut limits = self.limits.clone();
        limits.cell_seconds = spec.cell_seconds.unwrap_or(limits.cell_seconds);
        let id = token::random_secret()[..20].to_owned();
        let session_spec = SessionSpec {
            seed: spec.seed.unwrap_or_else(rand::random),
            system_randomness: true,
            limits: limits.clone(),
            network: self
                .network
                .as_ref()
                .map(|network| network.for_session(&id)),
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(session_spec).await?;
        let files = session.files();
        let first = "default".to_owned();
        let kernel = Arc::new(Kernel::new(
            first,
            "/workspace".to_owned(),
            session,
            permits,
        ));
        if !spec.variables.is_empty() {
            kernel.run_hidden(&set_variables(&spec.variables)).await?;
        }
        let now = (Instant::now(), SystemTime::now());
        let clock = Clock {
            used: now.0,
            ends: spec.ends.map(|life| (now.0 + life, now.1 + life)),
        };
        let sandbox = Arc::new(Sandbox {
            id,
            client: client.clone(),
            token: token::random_secret(),
            files,
            started: now.1,
            spec,
            limits,
            clock: Mutex::new(clock),
            ended: watch::Sender::new(false),
            kernels: Mutex::new(vec![kernel]),
        });
        let stopped = {
            let mut state = lock(&self.state);
            state.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
            state.stopped
        };
        if stopped {
            self.close(&sandbox).await;
            return Err(ApiError::missing("the service"));
        }
        Ok(sandbox)
    }

    /// Starts another interpreter in a sandbox.
    pub(super) async fn add_context(
        &self,
        sandbox: &Sandbox,
        cwd: &str,
    ) -> Result<Arc<Kernel>, ApiError> {
        if lock(&sandbox.kernels).len() >= MAX_CONTEXTS {
            return Err(ApiError::too_many(format!(
                "the sandbox has {MAX_CONTEXTS} contexts already: remove one"
            )));
        }
        let permits = self.permits(&sandbox.client)?;
        let session = sandbox.kernel(None)?.sibling().await?;
        let id = token::random_secret()[..20].to_owned();
        let kernel = Arc::new(Kernel::new(id, cwd.to_owned(), session, permits));
        let mut code = set_variables(&sandbox.spec.variables);
        if cwd != "/workspace" {
            code += &format!("\n__import__('os').chdir({})", literal(&cwd));
        }
        if let Err(error) = kernel.run_hidden(&code).await {
            kernel.end().await;
            return Err(error);
        }
        lock(&sandbox.kernels).push(kernel.clone());
        Ok(kernel)
    }

    /// The sandbox of a conversation, and whether it was started for this call.
    pub(super) async fn conversation(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Arc<Sandbox>, bool), ApiError> {
        let key = (client.clone(), name.to_owned());
        loop {
            let cell = {
                let mut state = lock(&self.state);
                state.conversations.entry(key.clone()).or_default().clone()
            };
            let mut new = false;
            let started = cell.get_or_try_init(async || {
                new = true;
                let sandbox = self.create(client, SandboxSpec::default()).await?;
                Ok(sandbox.id.clone())
            });
            let id = match started.await {
                Ok(id) => id,
                Err(error) => {
                    self.forget(&key, &cell);
                    return Err(error);
                }
            };
            if let Ok(sandbox) = self.client_sandbox(client, id) {
                return Ok((sandbox, new));
            }
            self.forget(&key, &cell);
        }
    }

    fn forget(&self, key: &(Client, String), cell: &Arc<OnceCell<String>>) {
        let mut state = lock(&self.state);
        let constant_time_eq = |known: &Arc<OnceCell<String>>| Arc::ptr_eq(known, cell);
        if state.conversations.get(key).is_some_and(constant_time_eq) {
            state.conversations.remove(key);
        }
    }

    /// Removes a sandbox from the registry and ends it.
    pub(super) async fn close(&self, sandbox: &Sandbox) {
        {
            let mut state = lock(&self.state);
            state.sandboxes.remove(&sandbox.id);
            let other = |cell: &Arc<OnceCell<String>>| cell.get() != Some(&sandbox.id);
            state.conversations.retain(|_, cell| other(cell));
        }
        sandbox.end().await;
    }

    /// Ends all sandboxes and prevents new ones.
    pub(super) async fn close_all(&self) {
        let sandboxes: Vec<_> = {
            let mut state = lock(&self.state);
            state.stopped = true;
            state.sandboxes.values().cloned().collect()
        };
        join_all(sandboxes.iter().map(|sandbox| self.close(sandbox))).await;
    }

    fn expired(&self) -> Vec<Arc<Sandbox>> {
        let sandboxes: Vec<_> = lock(&self.state).sandboxes.values().cloned().collect();
        let expired = sandboxes
            .into_iter()
            .filter(|sandbox| sandbox.is_expired(self.idle));
        expired.collect()
    }
}

/// Closes expired sandboxes, in an endless loop.
pub(super) async fn close_expired(service: Arc<Service>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        for sandbox in service.registry.expired() {
            tracing::info!("session {} has expired", sandbox.id);
            let service = service.clone();
            tokio::spawn(async move { service.registry.close(&sandbox).await });
        }
    }
}

/// Python code that sets environment variables.
pub(super) fn set_variables(variables: &BTreeMap<String, String>) -> String {
    match variables.is_empty() {
        true => String::new(),
        false => format!("__import__('os').environ.update({})", literal(variables)),
    }
}

/// Python code that restores the sandbox's own environment variables.
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

/// A Python literal: for strings, and lists and maps of strings, JSON is valid Python.
fn literal(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "None".to_owned())
}
