//! Calls in batches: OpenAI's Batch API, half the price and answers within a day.
//!
//! Whoever asks such a teacher is told [`TeacherError::Deferred`], and the request is noted in the journal.
//! [`Batches::go`] sends what was noted as one batch (more, where the endpoint's limits ask for it), waits,
//! and settles every call in the journal, where the same question finds its answer then. Each step is in the
//! journal before the next one, so that a process that was killed anywhere is followed by one that waits for
//! the same batch: nothing is asked for twice, and a batch whose making was never confirmed is looked for.

mod api;
mod line;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::api::{Api, Remote};
use super::budget::{Kept, cost};
use super::openai::{OpenAi, OpenAiOptions, redact};
use super::{ChatRequest, Reply, Teacher, TeacherError};
use crate::id::Digest;
use crate::run::{
    Awaited, Batch, BudgetCap, Note, Reservation, ReserveError, RunError, RunFolder,
};
use crate::trajectory::Usage;

/// Most requests of a batch, and bytes of its file (OpenAI: 50,000 and 200 MB).
const MOST_REQUESTS: usize = 50_000;
const MOST_BYTES: u64 = 200_000_000;
/// Between two looks at a batch: at first, and at last.
const FIRST_LOOK: Duration = Duration::from_millis(500);
const LAST_LOOK: Duration = Duration::from_secs(60);
/// Failures of the endpoint in a row after which this process gives up; the batch stays where it is.
const MOST_FAILURES: u32 = 10;
/// Looks for a batch that may have been made, before it is taken for one that was not.
const LOOKS: u32 = 3;
/// Lines of a file per request, and more, that are read.
const SPARE_LINES: u64 = 1_000;

/// What an endpoint is asked in batches.
pub struct Batches {
    teacher: OpenAi,
    api: Api,
    folder: Arc<RunFolder>,
    /// Batches that may end without an answer to the same question, at least 1.
    attempts: u32,
    /// What had no answer in this process, by turn: how often, and why the last time.
    unanswered: Mutex<HashMap<String, (u32, TeacherError)>>,
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("teacher", &self.teacher)
            .finish_non_exhaustive()
    }
}

/// `<turn>/<attempt>`.
fn turn_of(call: &str) -> &str {
    call.rsplit_once('/').map_or(call, |(turn, _)| turn)
}

impl Batches {
    /// Batches at that endpoint, whose price is that of batches; a question without an answer after
    /// `attempts` batches is given up. Fails as [`OpenAi::new`] does.
    pub fn new(
        options: OpenAiOptions,
        folder: Arc<RunFolder>,
        attempts: u32,
    ) -> Result<Self, TeacherError> {
        Ok(Self {
            api: Api::new(&options)?,
            teacher: OpenAi::new(options)?,
            folder,
            attempts: attempts.max(1),
            unanswered: Mutex::default(),
        })
    }

    /// Why a question is not asked again.
    pub(super) fn given_up(&self, turn: &str) -> Option<TeacherError> {
        let unanswered = self.unanswered.lock();
        let unanswered = unanswered.unwrap_or_else(PoisonError::into_inner);
        let (batches, last) = unanswered.get(turn)?;
        match (last.retryable(), *batches >= self.attempts) {
            (true, false) => None,
            (true, true) => Some(TeacherError::GivenUp {
                batches: *batches,
                last: Box::new(last.clone()),
            }),
            (false, _) => Some(last.clone()),
        }
    }

    /// Notes a question for the next batch, its highest cost reserved.
    pub(super) fn note(
        &self,
        call: &str,
        digest: &Digest,
        request: &ChatRequest<'_>,
        most: Reservation,
        cap: BudgetCap,
    ) -> Result<Result<(), ReserveError>, TeacherError> {
        let line = line::write(call, &self.teacher.body(request)?);
        let note = Note {
            teacher: self.teacher.name(),
            request: digest,
            line: &line,
        };
        Ok(self.folder.journal().note(call, most, cap, note))
    }

    /// Sends what was noted, and waits for that and for what an earlier process sent. Afterwards the end of
    /// every call is in the journal. May be dropped at any time: the next one goes on.
    ///
    /// # Errors
    /// [`RunError::Endpoint`] when the endpoint takes no batches, refuses the key or cannot be reached, and
    /// failures of the journal.
    pub async fn go(&self) -> Result<(), RunError> {
        let (journal, name) = (self.folder.journal(), self.teacher.name());
        let wave = wave(journal.noted(name)?, MOST_REQUESTS, MOST_BYTES);
        if !wave.is_empty() {
            journal.form_batches(name, &wave)?;
        }
        for batch in journal.open_batches(name)? {
            if batch.remote.is_none() {
                self.send(&batch).await?;
            }
        }
        self.wait().await
    }

    /// Uploads a batch and has it made.
    async fn send(&self, batch: &Batch) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let file = match &batch.file {
            Some(file) => file.clone(),
            None => {
                let lines = journal.batch_file(&batch.name)?;
                let id = persist(async || self.api.upload(&batch.name, &lines).await).await;
                let id = id.map_err(|error| self.refused(batch, error))?;
                journal.batch_uploaded(&batch.name, &id)?;
                id
            }
        };
        journal.batch_asked(&batch.name)?;
        let remote = self.make(batch, &file).await;
        let remote = remote.map_err(|error| self.refused(batch, error))?;
        journal.batch_made(&batch.name, &remote)?;
        tracing::debug!(batch = batch.name, remote, "made");
        Ok(())
    }

    /// Has a batch made, once: where an answer may be lost the batch is looked for.
    async fn make(&self, batch: &Batch, file: &str) -> Result<String, TeacherError> {
        let mut maybe_made = batch.asked;
        let mut pace = Pace::default();
        loop {
            if maybe_made && let Some(found) = self.find(file).await? {
                return Ok(found);
            }
            match self.api.make(&batch.name, file).await {
                Err(error) if error.retryable() => {
                    maybe_made |= error.may_be_charged();
                    pace.wait(error).await?;
                }
                end => return end,
            }
        }
    }

    /// Looks for the batch of a file; a moment may pass until it is listed.
    async fn find(&self, file: &str) -> Result<Option<String>, TeacherError> {
        for look in 0..LOOKS {
            if let Some(found) = persist(async || self.api.find(file).await).await? {
                return Ok(Some(found));
            }
            if look + 1 < LOOKS {
                tokio::time::sleep(FIRST_LOOK * (1 << look)).await;
            }
        }
        Ok(None)
    }

    /// What a refusal says; a batch that the endpoint will not take is no more.
    fn refused(&self, batch: &Batch, error: TeacherError) -> RunError {
        if matches!(error, TeacherError::Rejected(_))
            && let Err(error) = self.folder.journal().dissolve_batch(&batch.name)
        {
            return error;
        }
        let name = self.teacher.name();
        RunError::Endpoint(format!(
            "{name} takes no batch: {}: {error}; where the endpoint has no Batch API, leave out `batch`",
            error.kind()
        ))
    }

    /// Waits until every batch has ended, and settles its calls.
    async fn wait(&self) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let (mut pause, mut seen) = (FIRST_LOOK, HashMap::new());
        loop {
            let open = journal.open_batches(self.teacher.name())?;
            if open.is_empty() {
                return Ok(());
            }
            for batch in open {
                let Some(id) = &batch.remote else { continue };
                let remote = persist(async || self.api.look(id).await).await;
                let remote = remote.map_err(|error| self.lost_sight(&batch, &error))?;
                let now = (remote.status(), remote.done());
                if seen.insert(batch.name.clone(), now.clone()).as_ref() != Some(&now) {
                    tell(&batch, &remote);
                }
                if remote.ended() {
                    self.settle(&batch, &remote).await?;
                }
            }
            if !journal.open_batches(self.teacher.name())?.is_empty() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_LOOK);
            }
        }
    }

    fn lost_sight(&self, batch: &Batch, error: &TeacherError) -> RunError {
        let (name, remote) = (self.teacher.name(), batch.remote.as_deref());
        RunError::Endpoint(format!(
            "{name}: {}: {error}; the same command goes on waiting for batch {}",
            error.kind(),
            remote.unwrap_or(&batch.name),
        ))
    }

    /// Settles every call of a batch that ended.
    async fn settle(&self, batch: &Batch, remote: &Remote) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let awaited = journal.awaited(&batch.name)?;
        let by_line: Vec<String> = awaited.iter().map(|call| call.call.clone()).collect();
        let named = awaited.into_iter();
        let mut left: HashMap<String, Awaited> = named
            .map(|call| (line::custom_id(&call.call), call))
            .collect();
        let mut missing = why_missing(remote);
        for file in remote.files() {
            if let Some(error) = self.read_file(batch, file, &mut left).await? {
                tracing::warn!("batch {}: {error}", batch.name);
                missing = error;
            }
        }
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
            tracing::warn!("batch {id}: {strange} lines of {file} say nothing of an open request");
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

/// The calls of a wave, in as few batches as the limits allow.
fn wave(noted: Vec<(String, u64)>, most_requests: usize, most_bytes: u64) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for (call, length) in noted {
        // The end of the line.
        let length = length + 1;
        let fits = |batch: &Vec<String>| batch.len() < most_requests && bytes + length <= most_bytes;
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

/// Why a request is in none of the files of a batch that ended like this.
fn why_missing(remote: &Remote) -> TeacherError {
    match remote.status().as_str() {
        "completed" => TeacherError::Malformed("the batch has no line for the request".to_owned()),
        "failed" => {
            let refusals = remote.refusals();
            let texts: Vec<_> = refusals.iter().take(3).map(|refusal| refusal.text()).collect();
            let text = match texts.is_empty() {
                true => "no reason given".to_owned(),
                false => texts.join("; "),
            };
            let of_lines = refusals.iter().any(|refusal| refusal.line.is_some());
            let full = |refusal: &api::Refusal| {
                refusal.code.as_deref() == Some("token_limit_exceeded")
            };
            match of_lines || refusals.iter().any(full) {
                // Without those lines, or with fewer batches under way, it may be taken.
                true => TeacherError::Unanswered(text),
                false => TeacherError::Rejected(format!("the batch was refused: {text}")),
            }
        }
        status => TeacherError::Unanswered(status.to_owned()),
    }
}

/// The calls of a refused batch whose own lines are to blame.
fn blamed<'a>(remote: &Remote, by_line: &'a [String]) -> HashMap<&'a str, TeacherError> {
    let refusals = remote.refusals().iter();
    let blamed = refusals.filter_map(|refusal| {
        let at = usize::try_from(refusal.line?).ok()?.checked_sub(1)?;
        let call = by_line.get(at)?;
        Some((call.as_str(), TeacherError::Rejected(refusal.text())))
    });
    blamed.collect()
}

fn tell(batch: &Batch, remote: &Remote) {
    tracing::info!(
        target: "pybench::progress",
        wave = batch.wave, done = remote.done(), total = batch.requests,
        "{}: wave {}: {} requests in batch {}, {}, {} of {} done",
        batch.teacher, batch.wave, batch.requests, batch.remote.as_deref().unwrap_or_default(),
        remote.status(), remote.done(), batch.requests,
    );
}

/// Waits after failures in a row, longer each time.
#[derive(Default)]
struct Pace(u32);

impl Pace {
    /// Waits, or gives the failure back: it is one that stays, or one too many.
    async fn wait(&mut self, error: TeacherError) -> Result<(), TeacherError> {
        self.0 += 1;
        if !error.retryable() || self.0 >= MOST_FAILURES {
            return Err(error);
        }
        let doubled = FIRST_LOOK.saturating_mul(1 << self.0.min(16));
        let asked = match &error {
            TeacherError::RateLimited { retry_after } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        tracing::debug!("{error}; once more in a moment");
        tokio::time::sleep(doubled.max(asked).min(LAST_LOOK)).await;
        Ok(())
    }
}

/// Tries again what does no harm when it is done twice.
async fn persist<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, TeacherError>,
) -> Result<T, TeacherError> {
    let mut pace = Pace::default();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => pace.wait(error).await?,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
