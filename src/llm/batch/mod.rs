//! Calls in batches: OpenAI's Batch API, half the price and answers within a day.
//!
//! Whoever asks such a teacher is told [`TeacherError::Deferred`], and the request is noted in the journal.
//! [`Batches::go`] sends what was noted as one batch (more, where the endpoint's limits ask for it), waits,
//! and settles every call in the journal, where the same question finds its answer then. Each step is in the
//! journal before the next one, so that a process that was killed anywhere is followed by one that waits for
//! the same batch: nothing is asked for twice, and a batch whose making was never confirmed is looked for.

mod api;
mod line;
mod pace;
mod settle;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::api::{Api, Remote};
use self::pace::{FIRST_LOOK, LAST_LOOK, Pace, persist};
use super::openai::{OpenAi, OpenAiOptions};
use super::{ChatRequest, Teacher, TeacherError};
use crate::id::Digest;
use crate::run::{Batch, BudgetCap, Note, Reservation, ReserveError, RunError, RunFolder};

/// Most requests of a batch, and bytes of its file: 50,000 and 200 MB in OpenAI's reference of `POST /batches`.
const MOST_REQUESTS: usize = 50_000;
const MOST_BYTES: u64 = 200_000_000;
/// Looks for a batch that may have been made, before it is taken for one that was not.
const LOOKS: u32 = 3;

/// What an endpoint is asked in batches.
pub struct Batches {
    teacher: OpenAi,
    api: Api,
    folder: Arc<RunFolder>,
    /// Batches that may end without an answer to the same question, at least 1.
    attempts: u32,
    /// Requests that the endpoint bears at a time; fewer than a batch may have once it said so.
    bears: AtomicUsize,
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
            bears: AtomicUsize::new(MOST_REQUESTS),
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
        loop {
            self.form()?;
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

    /// Puts what was noted into batches: the first ones only, where the endpoint does not bear all at a time.
    fn form(&self) -> Result<(), RunError> {
        let (journal, name) = (self.folder.journal(), self.teacher.name());
        let bears = self.bears.load(Ordering::Relaxed);
        let mut wave = wave(journal.noted(name)?, bears, MOST_BYTES);
        if bears < MOST_REQUESTS {
            wave.truncate(1);
        }
        match wave.is_empty() {
            true => Ok(()),
            false => journal.form_batches(name, &wave),
        }
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
            match persist(async || self.api.find(file).await).await {
                Ok(None) => {}
                // No word on the batch, which may have been made.
                Err(TeacherError::Rejected(text)) => {
                    let text = format!("batches cannot be listed: {text}");
                    return Err(TeacherError::Broken(text));
                }
                end => return end,
            }
            if look + 1 < LOOKS {
                tokio::time::sleep(FIRST_LOOK * (1 << look)).await;
            }
        }
        Ok(None)
    }

    /// What a failure says. A batch that the endpoint will not take is no more; any other one is kept for the
    /// next process.
    fn refused(&self, batch: &Batch, error: TeacherError) -> RunError {
        if !matches!(error, TeacherError::Rejected(_)) {
            return self.lost_sight(batch, &error);
        }
        if let Err(error) = self.folder.journal().dissolve_batch(&batch.name) {
            return error;
        }
        let name = self.teacher.name();
        RunError::Endpoint(format!(
            "{name} takes no batch: {error}; where the endpoint has no Batch API, leave out `batch`"
        ))
    }

    /// Waits until every batch has ended, and settles its calls.
    async fn wait(&self) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let (mut pause, mut seen) = (FIRST_LOOK, HashMap::new());
        let mut open = journal.open_batches(self.teacher.name())?;
        while !open.is_empty() {
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
            open = journal.open_batches(self.teacher.name())?;
            if !open.is_empty() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_LOOK);
            }
        }
        Ok(())
    }

    fn lost_sight(&self, batch: &Batch, error: &TeacherError) -> RunError {
        let (name, remote) = (self.teacher.name(), batch.remote.as_deref());
        RunError::Endpoint(format!(
            "{name}: {}: {error}; the same command goes on with batch {}",
            error.kind(),
            remote.unwrap_or(&batch.name),
        ))
    }
}

/// The calls of a wave, in as few batches as the limits allow.
fn wave(noted: Vec<(String, u64)>, most_requests: usize, most_bytes: u64) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for (call, length) in noted {
        // The end of the line.
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

fn tell(batch: &Batch, remote: &Remote) {
    tracing::info!(
        target: "pybench::progress",
        wave = batch.wave, done = remote.done(), total = batch.requests,
        "{}: wave {}: {} requests in batch {}, {}, {} of {} done",
        batch.teacher, batch.wave, batch.requests, batch.remote.as_deref().unwrap_or_default(),
        remote.status(), remote.done(), batch.requests,
    );
}

#[cfg(test)]
mod tests;
