//! OpenAI's Batch API: half the price, replies within 24 hours.
//!
//! A request to a batched model returns [`ChatError::Deferred`] and is queued in the journal. [`Batches::run`]
//! sends the queued requests as one batch (or more, if the endpoint's limits require it), waits, and settles
//! every call in the journal, where the same request then finds its reply. Each step is recorded before the
//! next one starts. After a kill, the next process therefore waits for the same batch: nothing is sent twice,
//! and a batch whose creation was not confirmed is looked up.

mod api;
mod backoff;
mod line;
mod settle;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::api::{Api, RemoteBatch};
use self::backoff::{Backoff, MAX_POLL_INTERVAL, MIN_POLL_INTERVAL, retry};
use super::openai::{OpenAi, OpenAiOptions};
use super::{ChatError, ChatModel, ChatRequest};
use pybench_run::{Batch, BatchRequest, BudgetCap, Reservation, ReserveError, RunError, RunFolder};
use pybench_types::id::Digest;

/// Maximum number of requests in a batch and size of its file: 50,000 and 200 MB according to OpenAI's reference
/// of `POST /batches`.
const MAX_REQUESTS: usize = 50_000;
const MAX_BYTES: u64 = 200_000_000;
/// Number of lookups of a batch before it is assumed not to exist.
const MAX_LOOKUPS: u32 = 3;

/// Sends the requests of a model in batches.
pub struct Batches {
    teacher: OpenAi,
    api: Api,
    folder: Arc<RunFolder>,
    /// Number of batches that may end without a reply to the same request, at least 1.
    attempts: u32,
    /// Maximum number of requests per batch; lowered once the endpoint rejects a batch as too large.
    max_requests: AtomicUsize,
    /// Requests without a reply in this process, by turn: number of batches and last error.
    unanswered: Mutex<HashMap<String, (u32, ChatError)>>,
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("teacher", &self.teacher)
            .finish_non_exhaustive()
    }
}

impl Batches {
    /// Batches at an endpoint; `options` must contain the batch price. A request without a reply after `attempts`
    /// batches fails. Fails as [`OpenAi::new`].
    pub fn new(
        options: OpenAiOptions,
        folder: Arc<RunFolder>,
        attempts: u32,
    ) -> Result<Self, ChatError> {
        Ok(Self {
            api: Api::new(&options)?,
            teacher: OpenAi::new(options)?,
            folder,
            attempts: attempts.max(1),
            max_requests: AtomicUsize::new(MAX_REQUESTS),
            unanswered: Mutex::default(),
        })
    }

    /// The error of a request that is not sent again, if it has failed finally.
    pub(super) fn final_error(&self, turn: &str) -> Option<ChatError> {
        let unanswered = self.unanswered.lock();
        let unanswered = unanswered.unwrap_or_else(PoisonError::into_inner);
        let (batches, last) = unanswered.get(turn)?;
        match (last.retryable(), *batches >= self.attempts) {
            (true, false) => None,
            (true, true) => Some(ChatError::GivenUp {
                batches: *batches,
                last: Box::new(last.clone()),
            }),
            (false, _) => Some(last.clone()),
        }
    }

    /// Queues a request for the next batch and reserves its maximum cost.
    pub(super) fn queue(
        &self,
        call: &str,
        digest: &Digest,
        request: &ChatRequest<'_>,
        most: Reservation,
        cap: BudgetCap,
    ) -> Result<Result<(), ReserveError>, ChatError> {
        let line = line::write(call, &self.teacher.body(request)?);
        let queued = BatchRequest {
            teacher: self.teacher.name(),
            request: digest,
            line: &line,
        };
        Ok(self
            .folder
            .journal()
            .queue_for_batch(call, most, cap, queued))
    }

    /// Sends the queued requests and waits for them and for the batches of earlier processes. Afterward the
    /// journal contains the result of every call. May be dropped at any time; the next call continues.
    ///
    /// # Errors
    /// [`RunError::Endpoint`] if the endpoint has no Batch API, refuses the API key or cannot be reached, and
    /// failures of the journal.
    pub async fn run(&self) -> Result<(), RunError> {
        let (journal, name) = (self.folder.journal(), self.teacher.name());
        loop {
            self.create_batches()?;
            let open = journal.open_batches(name)?;
            if open.is_empty() {
                return Ok(());
            }
            for batch in open.iter().filter(|batch| batch.remote.is_none()) {
                self.send(batch).await?;
            }
            self.wait().await?;
        }
    }

    /// Groups queued requests into batches: only the first batch if the endpoint does not accept all at a time.
    fn create_batches(&self) -> Result<(), RunError> {
        let (journal, name) = (self.folder.journal(), self.teacher.name());
        let max_requests = self.max_requests.load(Ordering::Relaxed);
        let mut batches = split(journal.queued_calls(name)?, max_requests, MAX_BYTES);
        if max_requests < MAX_REQUESTS {
            batches.truncate(1);
        }
        match batches.is_empty() {
            true => Ok(()),
            false => journal.create_batches(name, &batches),
        }
    }

    /// Uploads the file of a batch and creates the batch.
    async fn send(&self, batch: &Batch) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let file = match &batch.file {
            Some(file) => file.clone(),
            None => {
                let lines = journal.batch_file(&batch.name)?;
                let id = retry(async || self.api.upload(&batch.name, &lines).await).await;
                let id = id.map_err(|error| self.rejected(batch, error))?;
                journal.batch_uploaded(&batch.name, &id)?;
                id
            }
        };
        journal.batch_requested(&batch.name)?;
        let remote = self.create(batch, &file).await;
        let remote = remote.map_err(|error| self.rejected(batch, error))?;
        journal.batch_created(&batch.name, &remote)?;
        tracing::debug!(batch = batch.name, remote, "batch created");
        Ok(())
    }

    /// Creates a batch exactly once: if a response may have been lost, the batch is looked up first.
    async fn create(&self, batch: &Batch, file: &str) -> Result<String, ChatError> {
        let mut may_exist = batch.asked;
        let mut backoff = Backoff::default();
        loop {
            if may_exist && let Some(found) = self.find(file).await? {
                return Ok(found);
            }
            match self.api.create(&batch.name, file).await {
                Err(error) if error.retryable() => {
                    may_exist |= error.may_be_charged();
                    backoff.wait(error).await?;
                }
                end => return end,
            }
        }
    }

    /// Looks up the batch of a file, repeatedly, because a new batch may be listed with a delay.
    async fn find(&self, file: &str) -> Result<Option<String>, ChatError> {
        for lookup in 0..MAX_LOOKUPS {
            match retry(async || self.api.find(file).await).await {
                Ok(None) => {}
                // The batch may exist although it cannot be listed.
                Err(ChatError::Rejected(text) | ChatError::NotFound(text)) => {
                    let text = format!("cannot list the batches of the endpoint: {text}");
                    return Err(ChatError::Broken(text));
                }
                end => return end,
            }
            if lookup + 1 < MAX_LOOKUPS {
                tokio::time::sleep(MIN_POLL_INTERVAL * (1 << lookup)).await;
            }
        }
        Ok(None)
    }

    /// The error of a batch that could not be sent. A rejected batch is discarded; after other failures the next
    /// process continues with it.
    fn rejected(&self, batch: &Batch, error: ChatError) -> RunError {
        if !matches!(error, ChatError::Rejected(_) | ChatError::NotFound(_)) {
            return self.interrupted(batch, &error);
        }
        if let Err(error) = self.folder.journal().discard_batch(&batch.name) {
            return error;
        }
        let name = self.teacher.name();
        RunError::Endpoint(format!(
            "{name}: the batch was rejected: {error}; if the endpoint has no Batch API, remove `batch` from the recipe"
        ))
    }

    /// Waits until every batch has ended, and settles its calls.
    async fn wait(&self) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let (mut interval, mut seen) = (MIN_POLL_INTERVAL, HashMap::new());
        let mut open = journal.open_batches(self.teacher.name())?;
        while !open.is_empty() {
            for batch in open {
                let Some(id) = &batch.remote else { continue };
                let remote = retry(async || self.api.status(id).await).await;
                let remote = remote.map_err(|error| self.interrupted(&batch, &error))?;
                let now = (remote.status(), remote.done());
                if seen.insert(batch.name.clone(), now.clone()).as_ref() != Some(&now) {
                    log_progress(&batch, &remote);
                }
                if remote.ended() {
                    self.settle(&batch, &remote).await?;
                }
            }
            open = journal.open_batches(self.teacher.name())?;
            if !open.is_empty() {
                tokio::time::sleep(interval).await;
                interval = (interval * 2).min(MAX_POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// The error of a batch that a later process can continue.
    fn interrupted(&self, batch: &Batch, error: &ChatError) -> RunError {
        let (name, remote) = (self.teacher.name(), batch.remote.as_deref());
        RunError::Endpoint(format!(
            "{name}: {}: {error}; run the same command again to continue with batch {}",
            error.kind(),
            remote.unwrap_or(&batch.name),
        ))
    }
}

/// Groups calls into as few batches as the limits allow.
fn split(queued: Vec<(String, u64)>, most_requests: usize, most_bytes: u64) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for (call, length) in queued {
        // The line break.
        let length = length + 1;
        let fits =
            |batch: &Vec<String>| batch.len() < most_requests && bytes + length <= most_bytes;
        match batches.last_mut().filter(|batch| fits(batch)) {
            Some(batch) => {
                batch.push(call);
                bytes += length;
            }
            None => {
                batches.push(vec![call]);
                bytes = length;
            }
        }
    }
    batches
}

fn log_progress(batch: &Batch, remote: &RemoteBatch) {
    tracing::info!(
        target: "pybench_types::progress",
        wave = batch.wave, done = remote.done(), total = batch.requests,
        "{}: round {}: {} requests in batch {}, {}, {} of {} done",
        batch.teacher, batch.wave, batch.requests, batch.remote.as_deref().unwrap_or_default(),
        remote.status(), remote.done(), batch.requests,
    );
}

#[cfg(test)]
mod tests;
