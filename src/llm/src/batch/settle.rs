//! Settles the calls of a batch that ended.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::api::{BatchError, RemoteBatch};
use super::backoff::Backoff;
use super::{Batches, line};
use crate::openai::redact;
use crate::settled::{SettledCall, charge, check_usage};
use crate::{ChatError, ChatModel, Reply};
use pybench_run::{Batch, PendingCall, RunError};

/// Number of lines read in addition to two per request.
const SPARE_LINES: u64 = 1_000;

/// The turn of an attempt, whose id is `<turn>/<attempt>`.
pub(super) fn turn_of(call: &str) -> &str {
    call.rsplit_once('/').map_or(call, |(turn, _)| turn)
}

impl Batches {
    /// Settles every call of a batch that ended.
    pub(super) async fn settle(&self, batch: &Batch, remote: &RemoteBatch) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let pending = journal.pending_calls(&batch.name)?.into_iter();
        let mut pending: HashMap<String, PendingCall> = pending
            .map(|call| (line::custom_id(&call.call), call))
            .collect();
        let mut missing = missing_reply_error(remote);
        for file in remote.files() {
            if let Some(error) = self.read_file(batch, file, &mut pending).await? {
                tracing::warn!("batch {}: {error}", batch.name);
                missing = error;
            }
        }
        if is_too_large(remote) && batch.requests > 1 {
            return self.halve_batches(batch, remote);
        }
        let by_line = journal.batch_calls(&batch.name)?;
        let invalid = invalid_calls(remote, &by_line);
        for call in pending.values() {
            let why = invalid.get(call.call.as_str()).unwrap_or(&missing);
            self.record(call, Err(why.clone()))?;
        }
        if !pending.is_empty() {
            tracing::warn!(
                "batch {}: {} of {} requests have no reply: {missing}",
                batch.name,
                pending.len(),
                batch.requests
            );
        }
        journal.close_batch(&batch.name)
    }

    /// The endpoint rejected the batch as too large: its requests are sent in smaller batches.
    fn halve_batches(&self, batch: &Batch, remote: &RemoteBatch) -> Result<(), RunError> {
        let half = usize::try_from(batch.requests / 2).unwrap_or(1).max(1);
        self.max_requests.fetch_min(half, Ordering::Relaxed);
        tracing::warn!(
            "{}: {}; continuing with at most {half} requests per batch",
            batch.teacher,
            missing_reply_error(remote)
        );
        self.folder.journal().discard_batch(&batch.name)
    }

    /// Settles the calls in a result file. Returns an error if the rest of the file cannot be read.
    async fn read_file(
        &self,
        batch: &Batch,
        file: &str,
        pending: &mut HashMap<String, PendingCall>,
    ) -> Result<Option<ChatError>, RunError> {
        let mut backoff = Backoff::default();
        loop {
            match self.read_once(batch, file, pending).await? {
                Ok(()) => return Ok(None),
                Err(error @ ChatError::Unauthorized(_)) => {
                    return Err(self.interrupted(batch, &error));
                }
                Err(error @ ChatError::TooLarge(_)) => return Ok(Some(error)),
                Err(error) if error.retryable() => {
                    let waited = backoff.wait(error).await;
                    waited.map_err(|error| self.interrupted(batch, &error))?;
                }
                // The file no longer exists.
                Err(error) => return Ok(Some(ChatError::Broken(error.to_string()))),
            }
        }
    }

    async fn read_once(
        &self,
        batch: &Batch,
        file: &str,
        pending: &mut HashMap<String, PendingCall>,
    ) -> Result<Result<(), ChatError>, RunError> {
        let mut lines = match self.api.lines(file, batch.requests).await {
            Ok(lines) => lines,
            Err(error) => return Ok(Err(error)),
        };
        let most = batch.requests.saturating_mul(2).saturating_add(SPARE_LINES);
        let (mut read, mut unknown) = (0_u64, 0_u64);
        loop {
            let piece = match lines.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            };
            for line in piece {
                read += 1;
                let restore = self.teacher.options().restore_python_tag;
                let ended = line.as_deref().and_then(|line| line::read(line, restore));
                // If a request occurs twice, the first result counts.
                match ended.map(|ended| (pending.remove(&ended.custom_id), ended.end)) {
                    Some((Some(call), end)) => self.record(&call, end)?,
                    _ => unknown += 1,
                }
            }
            if read > most {
                return Ok(Err(ChatError::TooLarge(most)));
            }
        }
        if unknown > 0 {
            let id = batch.remote.as_deref().unwrap_or(&batch.name);
            tracing::debug!("batch {id}: {unknown} lines of {file} belong to no pending request");
        }
        Ok(Ok(()))
    }

    /// Records the result of a call.
    fn record(&self, call: &PendingCall, end: Result<Reply, ChatError>) -> Result<(), RunError> {
        let journal = self.folder.journal();
        match end {
            Ok(reply) => {
                let reply = check_usage(&call.call, reply, call.reserved.tokens);
                let used = charge(self.teacher.price(), &reply, call.reserved);
                let request = call.request.clone();
                let settled = serde_json::to_value(SettledCall { request, reply })?;
                journal.settle(&call.call, used, &settled)
            }
            Err(error) => {
                let error = redact(self.teacher.options(), error);
                let mut unanswered = self
                    .unanswered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let turn = turn_of(&call.call).to_owned();
                let before = unanswered.get(&turn).map_or(0, |(batches, _)| *batches);
                let charged = error.may_be_charged();
                unanswered.insert(turn, (before + 1, error));
                match charged {
                    true => journal.mark_uncertain(&call.call),
                    false => journal.release(&call.call),
                }
            }
        }
    }
}

/// The error of a request that is in none of the result files of an ended batch.
pub(super) fn missing_reply_error(remote: &RemoteBatch) -> ChatError {
    match remote.status().as_str() {
        "completed" => ChatError::Malformed(
            "the result files of the batch do not contain the request".to_owned(),
        ),
        "failed" => {
            let errors = remote.errors();
            let texts: Vec<_> = errors.iter().take(3).map(|error| error.text()).collect();
            let text = match texts.is_empty() {
                true => "no reason given".to_owned(),
                false => texts.join("; "),
            };
            let of_lines = errors.iter().any(|error| error.line.is_some());
            match of_lines || is_too_large(remote) {
                // The batch may be accepted without those lines, or with fewer requests in flight.
                true => ChatError::Unanswered(text),
                false => ChatError::Rejected(format!("the batch was rejected: {text}")),
            }
        }
        status => ChatError::Unanswered(status.to_owned()),
    }
}

/// Whether the endpoint rejected the batch because of its enqueued token limit; no request was processed.
fn is_too_large(remote: &RemoteBatch) -> bool {
    let is_limit = |error: &BatchError| error.code.as_deref() == Some("token_limit_exceeded");
    remote.status() == "failed" && remote.errors().iter().any(is_limit)
}

/// The calls of a rejected batch whose own lines are invalid.
pub(super) fn invalid_calls<'a>(
    remote: &RemoteBatch,
    by_line: &'a [String],
) -> HashMap<&'a str, ChatError> {
    let errors = remote.errors().iter();
    let invalid = errors.filter_map(|error| {
        let at = usize::try_from(error.line?).ok()?.checked_sub(1)?;
        let call = by_line.get(at)?;
        Some((call.as_str(), ChatError::Rejected(error.text())))
    });
    invalid.collect()
}
