//! The queue over Temporal's gRPC interface.
//!
//! Activities are polled directly and not by the SDK's worker: how many units are in work depends on endpoint, cores and
//! memory, which pybench's admission knows, and that worker asks for a number of slots.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use pybench_run::shared::{Delivery, DeliveryEnd, Round, UnitQueue};
use pybench_run::{RunError, RunQueue, TemporalServer};
use serde_json::json;
use temporalio_client::errors::ClientConnectError;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::{Code, Request, Response, Status};
use temporalio_client::{
    ClientTlsOptions, Connection, ConnectionOptions, RetryOptions, TlsOptions, Url,
};
use temporalio_protos::temporal::api::workflowservice::v1::{
    DescribeActivityExecutionRequest, DescribeNamespaceRequest, ListActivityExecutionsRequest,
    PollActivityTaskQueueRequest, PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest, RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest, TerminateActivityExecutionRequest,
};

use crate::activity::{self, UnitName};

/// Time that the server may be away, such as for a restart.
const SERVER_AWAY: Duration = Duration::from_secs(60);

/// Time in which a command that begins tries to reach the server, since it may be restarting, and the time between two tries.
const RESTART: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);

/// Time that a poll waits for a unit.
const POLL: Duration = Duration::from_secs(20);

/// Time for an answer that nothing depends on.
const SHORT: Duration = Duration::from_secs(10);

/// Activities that are started, looked up or ended at the same time.
const STARTS: usize = 16;

/// Activities on a page of a list.
const PAGE: i32 = 200;

/// The units of one run in a Temporal server.
#[derive(Clone)]
pub struct TemporalQueue {
    connection: Connection,
    place: RunQueue,
    /// This process, as Temporal's interface shows it.
    identity: String,
}

impl fmt::Debug for TemporalQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("TemporalQueue");
        shown.field("place", &self.place).finish_non_exhaustive()
    }
}

impl TemporalQueue {
    /// Connects to the server, and checks that it can run the activities.
    ///
    /// # Errors
    /// [`RunError::Environment`] if it does not answer, or lacks the namespace or standalone activities.
    pub async fn connect(place: &RunQueue) -> Result<Self, RunError> {
        let address = &place.server.address;
        let tls = tls_options(&place.server)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = Url::parse(&format!("{scheme}://{address}"))
            .map_err(|error| RunError::BadInput(format!("temporal.address: {address}: {error}")))?;
        let identity = format!("{}:{}", host(), std::process::id());
        let retries = RetryOptions::builder()
            .max_interval(Duration::from_secs(2))
            .max_elapsed_time(Some(SERVER_AWAY))
            // As many as fit into that time.
            .max_retries(0)
            .build();
        let options = ConnectionOptions::new(url)
            .identity(identity.clone())
            .connect_timeout(SHORT)
            .retry_options(retries)
            .dns_load_balancing(None)
            .maybe_tls_options(tls)
            .maybe_api_key(place.server.api_key()?)
            .build();
        let connection = reach(options).await.map_err(|error| {
            let hint = match place.server.is_encrypted() {
                true => {
                    "the connection is encrypted, so the server has to have a certificate for this name that \
                     temporal.ca_file or this machine trusts"
                }
                false => "`pybench cluster up --temporal` starts one",
            };
            RunError::Environment(format!(
                "the Temporal server on {address} does not answer: {error}; {hint}"
            ))
        })?;
        let queue = Self {
            connection,
            place: place.clone(),
            identity,
        };
        queue.check_namespace().await?;
        Ok(queue)
    }

    async fn check_namespace(&self) -> Result<(), RunError> {
        let (address, namespace) = (&self.place.server.address, &self.place.server.namespace);
        let request = DescribeNamespaceRequest {
            namespace: namespace.clone(),
            ..DescribeNamespaceRequest::default()
        };
        let mut connection = self.connection.clone();
        let described = connection.describe_namespace(Request::new(request));
        let described = described.await.map_err(|status| match status.code() {
            Code::NotFound => RunError::Environment(format!(
                "the Temporal server on {address} has no namespace {namespace}: create it (temporal operator namespace \
                 create --namespace {namespace}), or set temporal.namespace in the profile"
            )),
            _ => self.failed("describing the namespace", &status),
        })?;
        let info = described.into_inner().namespace_info;
        let capabilities = info.and_then(|info| info.capabilities);
        match capabilities.is_some_and(|capabilities| capabilities.standalone_activities) {
            true => Ok(()),
            false => Err(RunError::Environment(format!(
                "the Temporal server on {address} runs no standalone activities in the namespace {namespace}: set \
                 activity.enableStandalone to true in its dynamic configuration; a server that does not know that key is \
                 too old"
            ))),
        }
    }

    fn failed(&self, what: &str, status: &Status) -> RunError {
        RunError::Environment(format!(
            "{what} failed on the Temporal server on {}: {} ({:?}); run the same command again once it answers",
            self.place.server.address,
            status.message(),
            status.code()
        ))
    }

    /// Starts the activity of a unit unless it is open; whether it has completed before. An open activity of another version is
    /// in a task queue that no process polls, so it is ended and started again.
    async fn start(&self, round: &Round, item: &str) -> Result<bool, RunError> {
        let id = match self.start_unless_open(round, item).await? {
            Found::Nothing => return Ok(false),
            Found::Completed => return Ok(true),
            Found::Open(id) => id,
        };
        let task_queue = activity::task_queue_name(&self.place.run, round);
        match self.open_in(&id).await? {
            Some(name) if name == task_queue => return Ok(false),
            Some(_) => self.terminate(&id, "the version has changed").await?,
            None => {}
        }
        let again = self.start_unless_open(round, item).await?;
        Ok(matches!(again, Found::Completed))
    }

    async fn start_unless_open(&self, round: &Round, item: &str) -> Result<Found, RunError> {
        let request = activity::start(&self.place, round, (item, &self.identity))?;
        let activity = request.activity_id.clone();
        let mut connection = self.connection.clone();
        let started = connection.start_activity_execution(Request::new(request));
        match started.await.map(Response::into_inner) {
            Ok(reply) if reply.started => Ok(Found::Nothing),
            Ok(reply) => Ok(Found::Open(ExecutionId {
                activity,
                run: reply.run_id,
            })),
            Err(status) if status.code() == Code::AlreadyExists => Ok(Found::Completed),
            Err(status) => Err(self.failed("starting an activity", &status)),
        }
    }

    /// The task queue of an activity; `None` if it has ended.
    async fn open_in(&self, id: &ExecutionId) -> Result<Option<String>, RunError> {
        let request = DescribeActivityExecutionRequest {
            namespace: self.place.server.namespace.clone(),
            activity_id: id.activity.clone(),
            run_id: id.run.clone(),
            ..DescribeActivityExecutionRequest::default()
        };
        let mut connection = self.connection.clone();
        let described = connection.describe_activity_execution(Request::new(request));
        match described.await {
            Ok(reply) => {
                let info = reply.into_inner().info.unwrap_or_default();
                Ok(info.close_time.is_none().then_some(info.task_queue))
            }
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(self.failed("describing an activity", &status)),
        }
    }

    /// Ends an activity unless it has ended. The process that works on it goes on; the journal decides what becomes of the unit.
    async fn terminate(&self, id: &ExecutionId, reason: &str) -> Result<(), RunError> {
        let request = TerminateActivityExecutionRequest {
            namespace: self.place.server.namespace.clone(),
            activity_id: id.activity.clone(),
            run_id: id.run.clone(),
            identity: self.identity.clone(),
            // The same one when the client repeats the request.
            request_id: format!("terminate/{}", id.run),
            reason: reason.to_owned(),
        };
        let mut connection = self.connection.clone();
        let ended = connection.terminate_activity_execution(Request::new(request));
        match ended.await {
            Ok(_) => Ok(()),
            Err(status) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => {
                Ok(())
            }
            Err(status) => Err(self.failed("ending an activity", &status)),
        }
    }

    /// Number of the run's open activities. Those that were started a moment ago may be missing.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the server does not answer.
    pub async fn open(&self) -> Result<usize, RunError> {
        Ok(self.open_executions().await?.len())
    }

    /// The open activities of the run. Temporal's list lags behind, so each of them is looked up.
    async fn open_executions(&self) -> Result<Vec<ExecutionId>, RunError> {
        let lookups = self.list_open().await?.into_iter().map(|id| {
            let queue = self.clone();
            async move {
                let is_open = queue.open_in(&id).await?.is_some();
                Ok::<_, RunError>(is_open.then_some(id))
            }
        });
        let open: Vec<Option<ExecutionId>> = stream::iter(lookups)
            .buffer_unordered(STARTS)
            .try_collect()
            .await?;
        Ok(open.into_iter().flatten().collect())
    }

    async fn list_open(&self) -> Result<Vec<ExecutionId>, RunError> {
        let (mut found, mut next_page_token) = (Vec::new(), Vec::new());
        loop {
            let request = ListActivityExecutionsRequest {
                namespace: self.place.server.namespace.clone(),
                page_size: PAGE,
                next_page_token,
                query: activity::open_activities(&self.place.run),
            };
            let mut connection = self.connection.clone();
            let listed = connection.list_activity_executions(Request::new(request));
            let page = listed
                .await
                .map_err(|status| self.failed("listing activities", &status))?
                .into_inner();
            let ids = page.executions.into_iter().map(|execution| ExecutionId {
                activity: execution.activity_id,
                run: execution.run_id,
            });
            found.extend(ids);
            if page.next_page_token.is_empty() {
                return Ok(found);
            }
            next_page_token = page.next_page_token;
        }
    }

    async fn poll(&self, round: &Round) -> Result<PollActivityTaskQueueResponse, Status> {
        let name = activity::task_queue_name(&self.place.run, round);
        let mut request = Request::new(PollActivityTaskQueueRequest {
            namespace: self.place.server.namespace.clone(),
            task_queue: Some(activity::task_queue(name)),
            identity: self.identity.clone(),
            ..PollActivityTaskQueueRequest::default()
        });
        request.set_timeout(POLL);
        let mut connection = self.connection.clone();
        let polled = connection.poll_activity_task_queue(request).await?;
        Ok(polled.into_inner())
    }
}

/// What Temporal had of an activity that was to be started.
enum Found {
    /// No open one: it is started.
    Nothing,
    Open(ExecutionId),
    Completed,
}

/// One execution of an activity.
struct ExecutionId {
    activity: String,
    /// Temporal's name for the execution.
    run: String,
}

#[async_trait]
impl UnitQueue for TemporalQueue {
    fn window(&self) -> usize {
        self.place.server.window as usize
    }

    async fn put(&self, round: &Round, items: &[String]) -> Result<Vec<String>, RunError> {
        let items = items.to_vec();
        let starts = items.into_iter().map(|item| {
            let (queue, round) = (self.clone(), round.clone());
            async move {
                let has_completed = queue.start(&round, &item).await?;
                Ok::<_, RunError>(has_completed.then_some(item))
            }
        });
        let ended: Vec<Option<String>> = stream::iter(starts)
            .buffer_unordered(STARTS)
            .try_collect()
            .await?;
        Ok(ended.into_iter().flatten().collect())
    }

    async fn take(&self, round: &Round) -> Result<Option<Box<dyn Delivery>>, RunError> {
        let task = match self.poll(round).await {
            Ok(task) if task.task_token.is_empty() => return Ok(None),
            Ok(task) => task,
            Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {
                return Ok(None);
            }
            Err(status) => return Err(self.failed("waiting for a unit", &status)),
        };
        let unit = activity::unit_of(task.input.as_ref());
        let activity = ActivityDelivery {
            queue: self.clone(),
            token: task.task_token,
            unit: unit.clone().unwrap_or_else(|| UnitName {
                run: String::new(),
                stage: String::new(),
                item: task.activity_id.clone(),
            }),
            has_ended: false,
        };
        if unit.is_some_and(|unit| unit.run == self.place.run && unit.stage == round.stage) {
            return Ok(Some(Box::new(activity)));
        }
        tracing::warn!(
            activity = task.activity_id,
            "an activity that is no unit of this run is refused"
        );
        let refused = DeliveryEnd::Closed("no unit of this run".to_owned());
        Box::new(activity).end(refused).await;
        Ok(None)
    }

    async fn clear(&self) -> Result<(), RunError> {
        loop {
            let open = self.open_executions().await?;
            if open.is_empty() {
                return Ok(());
            }
            let ends = open.into_iter().map(|id| {
                let queue = self.clone();
                async move { queue.terminate(&id, "its coordinator has ended").await }
            });
            let _: Vec<()> = stream::iter(ends)
                .buffer_unordered(STARTS)
                .try_collect()
                .await?;
            // What the list did not have yet.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// An attempt at an activity.
struct ActivityDelivery {
    queue: TemporalQueue,
    /// Names the attempt. Once Temporal has begun another one, requests with it are refused.
    token: Vec<u8>,
    unit: UnitName,
    has_ended: bool,
}

impl ActivityDelivery {
    async fn respond(&self, end: &DeliveryEnd) -> Result<(), Status> {
        let mut connection = self.queue.connection.clone();
        let namespace = self.queue.place.server.namespace.clone();
        let (task_token, identity) = (self.token.clone(), self.queue.identity.clone());
        match activity::failure(end) {
            None => {
                let completed = RespondActivityTaskCompletedRequest {
                    task_token,
                    identity,
                    namespace,
                    ..RespondActivityTaskCompletedRequest::default()
                };
                let request = Request::new(completed);
                connection.respond_activity_task_completed(request).await?;
            }
            failure => {
                let failed = RespondActivityTaskFailedRequest {
                    task_token,
                    failure,
                    identity,
                    namespace,
                    ..RespondActivityTaskFailedRequest::default()
                };
                let request = Request::new(failed);
                connection.respond_activity_task_failed(request).await?;
            }
        }
        Ok(())
    }

    /// Nothing depends on the answer: an attempt that Temporal does not hear of is repeated after the heartbeat timeout, and
    /// finds in the journal how the unit ended.
    async fn try_to_respond(&self, end: &DeliveryEnd) {
        match self.respond(end).await {
            Ok(()) => {}
            // Another attempt has begun, or a person has ended the activity.
            Err(status) if status.code() == Code::NotFound => {
                tracing::debug!(item = self.unit.item, "Temporal has given the attempt up");
            }
            Err(status) => tracing::warn!(
                item = self.unit.item,
                "{}",
                self.queue.failed("ending an attempt", &status)
            ),
        }
    }
}

#[async_trait]
impl Delivery for ActivityDelivery {
    fn item(&self) -> &str {
        &self.unit.item
    }

    fn beat(&self, turn: u64) {
        let Ok(details) = activity::json(&json!({ "turn": turn })) else {
            return;
        };
        let mut request = Request::new(RecordActivityTaskHeartbeatRequest {
            task_token: self.token.clone(),
            details: Some(details),
            identity: self.queue.identity.clone(),
            namespace: self.queue.place.server.namespace.clone(),
            ..RecordActivityTaskHeartbeatRequest::default()
        });
        request.set_timeout(SHORT);
        let (mut connection, item) = (self.queue.connection.clone(), self.unit.item.clone());
        tokio::spawn(async move {
            // The lease in the journal decides whether the attempt goes on, so that a request to cancel changes nothing.
            let beat = connection.record_activity_task_heartbeat(request);
            match tokio::time::timeout(SHORT, beat).await {
                Ok(Ok(_)) => {}
                Ok(Err(status)) => tracing::debug!(item, "no heartbeat: {status}"),
                Err(_) => tracing::debug!(item, "no heartbeat: the server is away"),
            }
        });
    }

    async fn end(mut self: Box<Self>, end: DeliveryEnd) {
        self.has_ended = true;
        self.try_to_respond(&end).await;
    }
}

impl Drop for ActivityDelivery {
    /// Gives the unit back, so that it does not have to wait for the heartbeat timeout.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.has_ended {
            return;
        }
        let given_back = Self {
            queue: self.queue.clone(),
            token: std::mem::take(&mut self.token),
            unit: self.unit.clone(),
            has_ended: true,
        };
        runtime.spawn(async move {
            let again = DeliveryEnd::Again(Duration::ZERO);
            let answer = given_back.try_to_respond(&again);
            // A process that ends does not wait for a server.
            let _ = tokio::time::timeout(SHORT, answer).await;
        });
    }
}

/// Connects; a server that does not answer is tried again for a while.
async fn reach(options: ConnectionOptions) -> Result<Connection, ClientConnectError> {
    let since = Instant::now();
    loop {
        match Connection::connect(options.clone()).await {
            Err(error) if may_be_away(&error) && since.elapsed() < RESTART => {
                tracing::debug!("the Temporal server does not answer, trying again: {error}");
                tokio::time::sleep(PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// Whether the server may answer later. Wrong settings and keys stay wrong.
fn may_be_away(error: &ClientConnectError) -> bool {
    match error {
        ClientConnectError::TonicTransportError(_) => true,
        ClientConnectError::SystemInfoCallError(status) => !matches!(
            status.code(),
            Code::Unauthenticated | Code::PermissionDenied
        ),
        _ => false,
    }
}

/// How connections to a server are encrypted; `None` if they are not.
fn tls_options(server: &TemporalServer) -> Result<Option<TlsOptions>, RunError> {
    if !server.is_encrypted() {
        return Ok(None);
    }
    let certificate = read_pem("client_cert_file", server.client_cert_file.as_deref())?;
    let key = read_pem("client_key_file", server.client_key_file.as_deref())?;
    let identity = certificate.zip(key).map(|(certificate, key)| {
        ClientTlsOptions::builder()
            .client_cert(certificate)
            .client_private_key(key)
            .build()
    });
    let tls = TlsOptions::builder()
        .maybe_server_root_ca_cert(read_pem("ca_file", server.ca_file.as_deref())?)
        .maybe_client_tls_options(identity)
        .build();
    Ok(Some(tls))
}

/// The file that a key of the profile names.
fn read_pem(key: &str, path: Option<&Path>) -> Result<Option<Vec<u8>>, RunError> {
    let read = |path: &Path| {
        let context = format!("cannot read temporal.{key} {}", path.display());
        std::fs::read(path).map_err(RunError::io(context))
    };
    path.map(read).transpose()
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "worker".to_owned(), |name| name.trim().to_owned())
}
