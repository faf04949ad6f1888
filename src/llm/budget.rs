//! Paid calls: reserved in the journal before they are sent, settled after, never paid twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{ChatRequest, Completions, Price, Reply, Teacher, TeacherError, token_bound};
use crate::id::Digest;
use crate::run::{BudgetCap, CallState, Reservation, ReserveError, RunError, RunFolder};
use crate::trajectory::{Role, Trajectory, Usage};

/// Most tokens that a picture is taken for: above what endpoints count for 1,024 pixels a side.
const PICTURE_TOKENS: u64 = 4_096;

/// A teacher whose calls are accounted for in a run's journal.
///
/// A call is named `<trajectory>/<turn>/<attempt>`. Its highest possible cost is reserved before it
/// is sent. An answer settles it; a failure that is surely free releases it; any other failure, and
/// the death of this process, leaves it charged as reserved. An answered call is not sent again:
/// its reply is read from the journal, provided that the conversation is the same.
#[derive(Debug)]
pub struct Metered<T> {
    teacher: T,
    folder: Arc<RunFolder>,
    cap: BudgetCap,
    /// Name of the message format; part of a trajectory's id.
    format: &'static str,
    /// Calls of this process that hold a reservation.
    in_flight: Mutex<usize>,
    /// A reservation was settled or given up.
    freed: Notify,
    /// What other runs paid for.
    completions: Option<Completions>,
}

/// An answered call as the journal keeps it.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What was asked: messages, sampling parameters, stop sequences.
    request: Digest,
    reply: Reply,
}

impl<T: Teacher> Metered<T> {
    /// `format` is the name of the message format that the trajectories have.
    pub fn new(teacher: T, folder: Arc<RunFolder>, cap: BudgetCap, format: &'static str) -> Self {
        Self {
            teacher,
            folder,
            cap,
            format,
            in_flight: Mutex::new(0),
            freed: Notify::new(),
            completions: None,
        }
    }

    /// Take replies from there before asking, and leave new ones there.
    pub fn sharing(self, completions: Completions) -> Self {
        Self {
            completions: Some(completions),
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

    /// `<trajectory>/<turn>`.
    fn turn_id(&self, request: &ChatRequest<'_>) -> String {
        let (task, teacher) = (&request.task.id, self.teacher.name());
        let id =
            Trajectory::compute_id(task, teacher, request.sampling, self.format, request.sample);
        let replies = request.messages.iter();
        let turn = replies.filter(|m| m.role == Role::Assistant).count();
        format!("{id}/{turn}")
    }

    /// The kept reply to this very request, or the id of the next attempt.
    fn look_up(&self, turn: &str, request: &Digest) -> Result<Result<Reply, String>, RunError> {
        for attempt in 0_u64.. {
            let id = format!("{turn}/{attempt}");
            let Some(call) = self.folder.journal().call(&id)? else {
                return Ok(Err(id));
            };
            if let (CallState::Settled, Some(value)) = (call.state, call.reply) {
                let kept: Kept = serde_json::from_value(value)?;
                if kept.request == *request {
                    return Ok(Ok(kept.reply));
                }
            }
        }
        Err(RunError::Internal(format!("no attempt left for {turn}")))
    }

    fn cost(&self, usage: Usage) -> Reservation {
        Reservation {
            micro_usd: self.price().map_or(0, |price| price.micro_usd(usage)),
            tokens: usage.prompt_tokens + usage.completion_tokens,
        }
    }

    /// Reserves, waiting while calls in flight hold what may become free.
    async fn reserve(
        &self,
        id: String,
        most: Reservation,
    ) -> Result<Reserved<'_, T>, TeacherError> {
        loop {
            let freed = self.freed.notified();
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
            Err(ReserveError::OverBudget(detail)) => Err(TeacherError::Budget(detail)),
            Err(ReserveError::Run(error)) => Err(internal(error)),
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, usize> {
        // A number is never half written.
        self.in_flight
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
        self.metered.freed.notify_waiters();
    }
}

fn internal(error: RunError) -> TeacherError {
    TeacherError::Internal(error.to_string())
}

#[async_trait]
impl<T: Teacher> Teacher for Metered<T> {
    fn name(&self) -> &str {
        self.teacher.name()
    }

    fn price(&self) -> Option<Price> {
        self.teacher.price()
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let digest = request.digest();
        let id = match self
            .look_up(&self.turn_id(request), &digest)
            .map_err(internal)?
        {
            Ok(reply) => return Ok(reply),
            Err(id) => id,
        };
        if let Some(reply) = self.shared(&id, &digest, request).map_err(internal)? {
            return Ok(reply);
        }
        let most = self.cost(Usage {
            prompt_tokens: token_bound(request.messages)
                + PICTURE_TOKENS * request.pictures.len() as u64,
            completion_tokens: request.sampling.max_tokens.into(),
        });
        let reserved = self.reserve(id, most).await?;
        let end = self.teacher.reply(request).await;
        reserved.book(digest, &end).map_err(internal)?;
        if let (Some(completions), Ok(reply)) = (&self.completions, &end) {
            completions.put(request, reply).map_err(internal)?;
        }
        end
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
