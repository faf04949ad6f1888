//! What became of every call of a batch.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::api::{Refusal, Remote};
use super::pace::Pace;
use super::{Batches, line};
use crate::llm::budget::{Kept, cost};
use crate::llm::openai::redact;
use crate::llm::{Reply, Teacher, TeacherError};
use crate::run::{Awaited, Batch, RunError};
use crate::trajectory::Usage;

/// Lines of a file, beside two for each request, that are read.
const SPARE_LINES: u64 = 1_000;

/// The turn of an attempt: `<turn>/<attempt>`.
pub(super) fn turn_of(call: &str) -> &str {
    call.rsplit_once('/').map_or(call, |(turn, _)| turn)
}

impl Batches {
    /// Settles every call of a batch that ended.
    pub(super) async fn settle(&self, batch: &Batch, remote: &Remote) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let awaited = journal.awaited(&batch.name)?.into_iter();
        let mut left: HashMap<String, Awaited> = awaited
            .map(|call| (line::custom_id(&call.call), call))
            .collect();
        let mut missing = why_missing(remote);
        for file in remote.files() {
            if let Some(error) = self.read_file(batch, file, &mut left).await? {
                tracing::warn!("batch {}: {error}", batch.name);
                missing = error;
            }
        }
        if is_too_much(remote) && batch.requests > 1 {
            return self.divide(batch, remote);
        }
        let by_line = journal.batch_calls(&batch.name)?;
        let blamed = blamed(remote, &by_line);
        for call in left.values() {
            let why = blamed.get(call.call.as_str()).unwrap_or(&missing);
            self.end(call, Err(why.clone()))?;
        }
        if !left.is_empty() {
            tracing::warn!(
                "batch {}: {} of {} requests have no answer: {missing}",
                batch.name,
                left.len(),
                batch.requests
            );
        }
        journal.close_batch(&batch.name)
    }

    /// Nothing was done, because it was too much at a time: the same is asked in smaller pieces.
    fn divide(&self, batch: &Batch, remote: &Remote) -> Result<(), RunError> {
        let half = usize::try_from(batch.requests / 2).unwrap_or(1).max(1);
        self.bears.fetch_min(half, Ordering::Relaxed);
        tracing::warn!(
            "{}: {}; from here on {half} requests at a time",
            batch.teacher,
            why_missing(remote)
        );
        self.folder.journal().dissolve_batch(&batch.name)
    }

    /// Settles the calls that a file speaks of; why the rest of it cannot be had, where that is so.
    async fn read_file(
        &self,
        batch: &Batch,
        file: &str,
        left: &mut HashMap<String, Awaited>,
    ) -> Result<Option<TeacherError>, RunError> {
        let mut pace = Pace::default();
        loop {
            match self.read_once(batch, file, left).await? {
                Ok(()) => return Ok(None),
                Err(error @ TeacherError::Unauthorized(_)) => {
                    return Err(self.lost_sight(batch, &error));
                }
                Err(error @ TeacherError::TooLarge(_)) => return Ok(Some(error)),
                Err(error) if error.retryable() => {
                    let waited = pace.wait(error).await;
                    waited.map_err(|error| self.lost_sight(batch, &error))?;
                }
                // The file is gone.
                Err(error) => return Ok(Some(TeacherError::Broken(error.to_string()))),
            }
        }
    }

    async fn read_once(
        &self,
        batch: &Batch,
        file: &str,
        left: &mut HashMap<String, Awaited>,
    ) -> Result<Result<(), TeacherError>, RunError> {
        let mut lines = match self.api.lines(file, batch.requests).await {
            Ok(lines) => lines,
            Err(error) => return Ok(Err(error)),
        };
        let most = batch.requests.saturating_mul(2) + SPARE_LINES;
        let (mut read, mut strange) = (0_u64, 0_u64);
        loop {
            let piece = match lines.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            };
            for line in piece {
                read += 1;
                let ended = line.as_deref().and_then(line::read);
                // Of a request that is named twice, the first word counts.
                match ended.map(|ended| (left.remove(&ended.custom_id), ended.end)) {
                    Some((Some(call), end)) => self.end(&call, end)?,
                    _ => strange += 1,
                }
            }
            if read > most {
                return Ok(Err(TeacherError::TooLarge(most)));
            }
        }
        if strange > 0 {
            let id = batch.remote.as_deref().unwrap_or(&batch.name);
            tracing::debug!("batch {id}: {strange} lines of {file} say nothing of an open request");
        }
        Ok(Ok(()))
    }

    /// Books the end of a call.
    fn end(&self, call: &Awaited, end: Result<Reply, TeacherError>) -> Result<(), RunError> {
        let journal = self.folder.journal();
        match end {
            Ok(reply) => {
                let used = match (reply.usage == Usage::default(), self.teacher.price()) {
                    (true, _) => call.reserved,
                    (false, price) => cost(price, reply.usage),
                };
                let request = call.request.clone();
                let kept = serde_json::to_value(Kept { request, reply })?;
                journal.settle(&call.call, used, &kept)
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

/// Why a request is in none of the files of a batch that ended like this.
pub(super) fn why_missing(remote: &Remote) -> TeacherError {
    match remote.status().as_str() {
        "completed" => TeacherError::Malformed("the batch has no line for the request".to_owned()),
        "failed" => {
            let refusals = remote.refusals();
            let texts: Vec<_> = refusals
                .iter()
                .take(3)
                .map(|refusal| refusal.text())
                .collect();
            let text = match texts.is_empty() {
                true => "no reason given".to_owned(),
                false => texts.join("; "),
            };
            let of_lines = refusals.iter().any(|refusal| refusal.line.is_some());
            match of_lines || is_too_much(remote) {
                // Without those lines, or with fewer batches under way, it may be taken.
                true => TeacherError::Unanswered(text),
                false => TeacherError::Rejected(format!("the batch was refused: {text}")),
            }
        }
        status => TeacherError::Unanswered(status.to_owned()),
    }
}

/// Whether more waits at the endpoint than it bears (`enqueued token limit`): nothing of the batch was done.
fn is_too_much(remote: &Remote) -> bool {
    let says = |refusal: &Refusal| refusal.code.as_deref() == Some("token_limit_exceeded");
    remote.status() == "failed" && remote.refusals().iter().any(says)
}

/// The calls of a refused batch whose own lines are to blame.
pub(super) fn blamed<'a>(remote: &Remote, by_line: &'a [String]) -> HashMap<&'a str, TeacherError> {
    let refusals = remote.refusals().iter();
    let blamed = refusals.filter_map(|refusal| {
        let at = usize::try_from(refusal.line?).ok()?.checked_sub(1)?;
        let call = by_line.get(at)?;
        Some((call.as_str(), TeacherError::Rejected(refusal.text())))
    });
    blamed.collect()
}
