//! Paid calls: reserved in the journal before they are sent, settled after, never paid twice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{
    Batches, ChatRequest, Completions, Gate, Limits, Pass, Price, Reply, Teacher, TeacherError,
    token_bound,
};
use crate::id::Digest;
use crate::run::{BudgetCap, CallState, Reservation, ReserveError, RunError, RunFolder};
use crate::trajectory::{Role, Trajectory, Usage};

/// Bytes of a token, to guess what a request takes of a limit per minute.
const BYTES_PER_TOKEN: u64 = 4;
/// Most tokens that a picture is taken for: above what endpoints count for 1,024 pixels a side.
pub const PICTURE_TOKENS: u64 = 4_096;

/// A teacher whose calls are accounted for in a run's journal.
///
/// A call is named `<trajectory>/<turn>/<attempt>`. Its highest possible cost is reserved before it
/// is sent. An answer settles it; a failure that is surely free releases it; any other failure, and
/// the death of this process, leaves it charged as reserved. An answered call is not sent again:
/// its reply is read from the journal, provided that the conversation is the same. With
/// [`Metered::batching`] a call is noted in place of being sent, and outlives the process.
#[derive(Debug)]
pub struct Metered<T> {
    /// The same teacher under each of its keys, at least one; taken in turn.
    lines: Vec<Line<T>>,
    /// Requests made: the next one begins to look for a line here.
    turn: AtomicUsize,
    folder: Arc<RunFolder>,
    cap: BudgetCap,
    /// Name of the message format; part of a trajectory's id.
    format: &'static str,
    /// What the calls of this process hold.
    reserves: Arc<Reserves>,
    /// What other runs paid for.
    completions: Option<Completions>,
    /// What goes out in batches: all of it, or nothing.
    batches: Option<Batches>,
}

/// What the calls of a process hold of a run's budget. Teachers that share a budget share this, so that
/// none takes it for used up while a call of another may give some of it back.
#[derive(Debug, Default)]
pub struct Reserves {
    /// Calls that hold a reservation.
    in_flight: Mutex<usize>,
    /// A reservation was settled or given up.
    freed: Notify,
}

/// A teacher under one key.
#[derive(Debug)]
struct Line<T> {
    teacher: T,
    gate: Arc<Gate>,
    /// The endpoint does not take this key.
    refused: AtomicBool,
}

/// An answered call as the journal keeps it.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    /// What was asked: messages, sampling parameters, stop sequences.
    pub(super) request: Digest,
    pub(super) reply: Reply,
}

/// What so many tokens cost at that price.
pub(super) fn cost(price: Option<Price>, usage: Usage) -> Reservation {
    Reservation {
        micro_usd: price.map_or(0, |price| price.micro_usd(usage)),
        tokens: usage.prompt_tokens + usage.completion_tokens,
    }
}

/// Where the answer to a question is.
enum Found {
    /// Here.
    Kept(Reply),
    /// In a batch that has not ended.
    Awaited,
    /// Nowhere; the id of the next attempt.
    Nowhere(String),
}

impl<T: Teacher> Metered<T> {
    /// `format` is the name of the message format that the trajectories have.
    pub fn new(teacher: T, folder: Arc<RunFolder>, cap: BudgetCap, format: &'static str) -> Self {
        Self::in_turn(teacher, Vec::new(), Limits::default(), folder, cap, format)
    }

    /// The same teacher under more keys, taken in turn, each held to these limits.
    pub fn in_turn(
        teacher: T,
        more: Vec<T>,
        limits: Limits,
        folder: Arc<RunFolder>,
        cap: BudgetCap,
        format: &'static str,
    ) -> Self {
        let line = |teacher| Line {
            teacher,
            gate: Gate::new(limits),
            refused: AtomicBool::new(false),
        };
        Self {
            lines: std::iter::once(teacher).chain(more).map(line).collect(),
            turn: AtomicUsize::new(0),
            folder,
            cap,
            format,
            reserves: Arc::default(),
            completions: None,
            batches: None,
        }
    }

    /// The same, sharing a budget with the other teachers that hold these.
    pub fn beside(self, reserves: Arc<Reserves>) -> Self {
        Self { reserves, ..self }
    }

    /// Take replies from there before asking, and leave new ones there.
    pub fn sharing(self, completions: Completions) -> Self {
        Self {
            completions: Some(completions),
            ..self
        }
    }

    /// Ask nothing at once, and everything in those batches.
    pub fn batching(self, batches: Batches) -> Self {
        Self {
            batches: Some(batches),
            ..self
        }
    }

    /// A reply that another run paid for: journaled like any other, at no cost.
    fn shared(
        &self,
        id: &str,
        digest: &Digest,
        request: &ChatRequest<'_>,
    ) -> Result<Option<Reply>, RunError> {
        let Some(reply) = self.completions.as_ref().and_then(|c| c.get(request)) else {
            return Ok(None);
        };
        let free = Reservation {
            micro_usd: 0,
            tokens: 0,
        };
        let kept = serde_json::to_value(Kept {
            request: digest.clone(),
            reply: reply.clone(),
        })?;
        let journal = self.folder.journal();
        match journal.reserve(id, free, self.cap) {
            Ok(()) => journal.settle(id, free, &kept)?,
            // What is free fits every budget, unless that was overdrawn before.
            Err(ReserveError::OverBudget(_)) => return Ok(None),
            Err(ReserveError::Run(error)) => return Err(error),
        }
        Ok(Some(reply))
    }

    /// Leaves a reply for others; one that was kept before is left again where a kill came in between.
    fn share(
        &self,
        request: &ChatRequest<'_>,
        reply: &Reply,
        new: bool,
    ) -> Result<(), TeacherError> {
        match &self.completions {
            Some(completions) if new || !completions.holds(request) => {
                completions.put(request, reply).map_err(internal)
            }
            _ => Ok(()),
        }
    }

    /// `<trajectory>/<turn>`.
    fn turn_id(&self, request: &ChatRequest<'_>) -> String {
        let (task, teacher) = (&request.task.id, self.name());
        let id =
            Trajectory::compute_id(task, teacher, request.sampling, self.format, request.sample);
        let replies = request.messages.iter();
        let turn = replies.filter(|m| m.role == Role::Assistant).count();
        format!("{id}/{turn}")
    }

    /// The kept reply to this very request, or the id of the next attempt.
    fn look_up(&self, turn: &str, request: &Digest) -> Result<Found, RunError> {
        for attempt in 0_u64.. {
            let id = format!("{turn}/{attempt}");
            let Some(call) = self.folder.journal().call(&id)? else {
                return Ok(Found::Nowhere(id));
            };
            if call.state == CallState::Batched && call.request.as_ref() == Some(request) {
                return Ok(Found::Awaited);
            }
            if let (CallState::Settled, Some(value)) = (call.state, call.reply) {
                let kept: Kept = serde_json::from_value(value)?;
                if kept.request == *request {
                    return Ok(Found::Kept(kept.reply));
                }
            }
        }
        Err(RunError::Internal(format!("no attempt left for {turn}")))
    }

    fn cost(&self, usage: Usage) -> Reservation {
        cost(self.price(), usage)
    }

    /// Tokens that a request takes at most.
    fn most(request: &ChatRequest<'_>) -> Usage {
        let pictures = PICTURE_TOKENS * request.pictures.len() as u64;
        Usage {
            prompt_tokens: token_bound(request.messages) + pictures,
            completion_tokens: request.sampling.max_tokens.into(),
        }
    }

    /// Asks under the next key that has a turn; where the endpoint does not take it, under another one.
    async fn ask(
        &self,
        id: String,
        digest: Digest,
        request: &ChatRequest<'_>,
    ) -> Result<Reply, TeacherError> {
        let most = Self::most(request);
        let about = most.prompt_tokens / BYTES_PER_TOKEN + most.completion_tokens;
        let mut refusal = None;
        while let Some((line, pass)) = self.line(about).await {
            let reserved = self.reserve(id.clone(), self.cost(most)).await?;
            let end = line.teacher.reply(request).await;
            pass.learn(&end);
            reserved.book(digest.clone(), &end).map_err(internal)?;
            match end {
                Err(error @ TeacherError::Unauthorized(_)) => {
                    tracing::warn!("a key is refused: {error}");
                    line.refused.store(true, Ordering::Relaxed);
                    refusal = Some(error);
                }
                end => return end,
            }
        }
        Err(refusal.unwrap_or_else(|| TeacherError::Unauthorized("every key was refused".into())))
    }

    /// The next line with a turn; `None` once the endpoint took no key of ours.
    async fn line(&self, tokens: u64) -> Option<(&Line<T>, Pass)> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.lines.len();
        let in_turn = (0..count).map(|n| &self.lines[(first.wrapping_add(n)) % count]);
        let taken = |line: &&Line<T>| !line.refused.load(Ordering::Relaxed);
        let taken: Vec<_> = in_turn.filter(taken).collect();
        for line in &taken {
            if let Ok(pass) = line.gate.try_enter(tokens) {
                return Some((line, pass));
            }
        }
        let line = taken.first()?;
        Some((line, line.gate.enter(tokens).await))
    }

    /// Reserves, waiting while calls in flight hold what may become free.
    async fn reserve(
        &self,
        id: String,
        most: Reservation,
    ) -> Result<Reserved<'_, T>, TeacherError> {
        loop {
            let freed = self.reserves.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(reserved) = self.try_reserve(&id, most)? {
                return Ok(reserved);
            }
            freed.await;
        }
    }

    /// `None` when the budget does not allow it now but may once a call in flight is settled.
    fn try_reserve(
        &self,
        id: &str,
        most: Reservation,
    ) -> Result<Option<Reserved<'_, T>>, TeacherError> {
        let mut in_flight = self.in_flight();
        match self.folder.journal().reserve(id, most, self.cap) {
            Ok(()) => {
                *in_flight += 1;
                Ok(Some(Reserved {
                    metered: self,
                    id: id.to_owned(),
                    most,
                }))
            }
            Err(ReserveError::OverBudget(_)) if *in_flight > 0 => Ok(None),
            Err(ReserveError::OverBudget(detail)) => Err(self.over_budget(detail, 0)),
            Err(ReserveError::Run(error)) => Err(internal(error)),
        }
    }

    /// A budget that does not allow a call: it may once a call in flight is settled, or a batch has ended.
    fn over_budget(&self, detail: String, in_flight: usize) -> TeacherError {
        match self.folder.journal().awaits_batches() {
            Ok(awaits) if awaits || in_flight > 0 => TeacherError::Deferred,
            Ok(_) => TeacherError::Budget(detail),
            Err(error) => internal(error),
        }
    }

    /// Puts the call among those that go out together. Never a reply: that is there when the batch has ended.
    fn defer(
        &self,
        batches: &Batches,
        id: &str,
        digest: &Digest,
        request: &ChatRequest<'_>,
    ) -> Result<Reply, TeacherError> {
        if let Some(error) = batches.given_up(&self.turn_id(request)) {
            return Err(error);
        }
        let most = self.cost(Self::most(request));
        let in_flight = self.in_flight();
        match batches.note(id, digest, request, most, self.cap)? {
            Ok(()) => Err(TeacherError::Deferred),
            Err(ReserveError::OverBudget(detail)) => Err(self.over_budget(detail, *in_flight)),
            Err(ReserveError::Run(error)) => Err(internal(error)),
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, usize> {
        // A number is never half written.
        self.reserves
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that holds a reservation. Dropped without a word, it stays charged as reserved.
struct Reserved<'a, T: Teacher> {
    metered: &'a Metered<T>,
    id: String,
    most: Reservation,
}

impl<T: Teacher> Reserved<'_, T> {
    /// Books the end of the call.
    fn book(&self, request: Digest, end: &Result<Reply, TeacherError>) -> Result<(), RunError> {
        let journal = self.metered.folder.journal();
        match end {
            Ok(reply) => {
                // An endpoint that counts no tokens is taken to have used what was reserved.
                let counted = reply.usage != Usage::default();
                let used = match counted {
                    true => self.metered.cost(reply.usage),
                    false => self.most,
                };
                let reply = reply.clone();
                let kept = serde_json::to_value(Kept { request, reply })?;
                journal.settle(&self.id, used, &kept)
            }
            Err(error) if error.may_be_charged() => journal.mark_uncertain(&self.id),
            Err(_) => journal.release(&self.id),
        }
    }
}

impl<T: Teacher> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        *self.metered.in_flight() -= 1;
        self.metered.reserves.freed.notify_waiters();
    }
}

fn internal(error: RunError) -> TeacherError {
    TeacherError::Internal(error.to_string())
}

#[async_trait]
impl<T: Teacher> Teacher for Metered<T> {
    fn name(&self) -> &str {
        self.lines[0].teacher.name()
    }

    fn price(&self) -> Option<Price> {
        self.lines[0].teacher.price()
    }

    fn batches(&self) -> Option<&Batches> {
        self.batches.as_ref()
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let digest = request.digest();
        let found = self.look_up(&self.turn_id(request), &digest);
        let id = match found.map_err(internal)? {
            Found::Kept(reply) => {
                self.share(request, &reply, false)?;
                return Ok(reply);
            }
            Found::Awaited => return Err(TeacherError::Deferred),
            Found::Nowhere(id) => id,
        };
        if let Some(reply) = self.shared(&id, &digest, request).map_err(internal)? {
            return Ok(reply);
        }
        if let Some(batches) = &self.batches {
            return self.defer(batches, &id, &digest, request);
        }
        let end = self.ask(id, digest, request).await;
        if let Ok(reply) = &end {
            self.share(request, reply, true)?;
        }
        end
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
