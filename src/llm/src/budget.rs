//! Paid calls: reserved in the journal before they are sent, settled afterward, and never paid twice.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Notify;

use super::response_cache::CacheEntry;
use super::settled::{PaidReply, SettledCall, charge, check_usage, cost};
use super::{
    Batches, ChatError, ChatModel, ChatRequest, Limits, RateLimiter, RatePermit, Reply,
    ResponseCache, token_bound,
};
use pybench_run::Price;
use pybench_run::{
    Bottleneck, BudgetCap, CallState, Interrupt, Reservation, ReserveError, RunError, RunFolder,
    Urgency,
};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Role, Trajectory, Usage};

/// Assumed bytes per token, to estimate how much of a rate limit a request uses.
const BYTES_PER_TOKEN: u64 = 4;
/// Upper bound on the tokens of a picture: more than endpoints count for 1,024 x 1,024 pixels.
pub const PICTURE_TOKENS: u64 = 4_096;
/// How often a call that waits for the budget looks for what other processes have returned.
const ELSEWHERE_INTERVAL: Duration = Duration::from_millis(200);

/// A model whose calls are accounted for in the journal of a run.
///
/// A call has the id `<trajectory>/<turn>/<attempt>`. Its maximum cost is reserved before it is sent. A reply
/// settles the call; a failure that is certainly free releases it; any other failure, or the end of the
/// process, leaves it charged with the reserved amount. An answered call is not sent again: if the
/// conversation is the same, the reply is read from the journal. With [`Metered::with_batches`] calls are
/// queued for a batch instead, which continues after the process ends.
#[derive(Debug)]
pub struct Metered<T> {
    /// Name and price of the model.
    name: String,
    price: Option<Price>,
    /// The model with each of its API keys, at least one. Requests rotate over them.
    keys: Vec<KeyedModel<T>>,
    /// Counter of requests, which selects the first key to try.
    next_key: AtomicUsize,
    folder: Arc<RunFolder>,
    cap: BudgetCap,
    /// Name of the message format; part of a trajectory's id.
    format: &'static str,
    /// Reservations of this process.
    ledger: Arc<BudgetLedger>,
    /// Replies that other runs paid for.
    response_cache: Option<ResponseCache>,
    /// If set, all calls are sent in batches.
    batches: Option<Batches>,
    /// Ends waits for the rate limit.
    interrupt: Interrupt,
}

/// Reservations that the calls of a process hold. Models with a common budget share the ledger, so that none of
/// them reports the budget as used up while a call of another may still return a part of it. It keeps replies that the
/// journal cannot record now.
#[derive(Debug, Default)]
pub struct BudgetLedger {
    /// Calls that hold a reservation.
    in_flight: Mutex<usize>,
    /// Notified when a reservation was settled or released.
    freed: Notify,
    /// What calls cost, and their replies, which an outage has kept out of the journal; by the id of the call.
    unrecorded: Mutex<HashMap<String, (Reservation, Value)>>,
}

impl BudgetLedger {
    fn unrecorded(&self) -> MutexGuard<'_, HashMap<String, (Reservation, Value)>> {
        // Entries are added and removed whole, so a panic leaves none half done.
        self.unrecorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A model with one API key.
#[derive(Debug)]
struct KeyedModel<T> {
    model: T,
    rate_limiter: Arc<RateLimiter>,
    /// Whether the endpoint refused this key.
    refused: AtomicBool,
}

/// A request as journal, budget and cache know it.
pub(super) struct Call {
    /// `<trajectory>/<turn>`.
    turn: String,
    digest: Digest,
    /// Upper bound on the tokens.
    most: Usage,
    /// The reply in the response cache.
    cached: Option<CacheEntry>,
}

/// Result of looking up a request in the journal and the response cache.
pub(super) enum CallLookup<R> {
    Settled(R),
    /// The reply is pending in a batch.
    Pending,
    /// There is no reply; the id of the next attempt.
    Missing(String),
}

/// Why a reservation is refused.
enum OverBudget {
    /// A call of another process may return a part of the budget.
    WhileCallsElsewhere,
    Finally(String),
}

/// A request that was sent.
type Sent<'a, R> = Pin<Box<dyn Future<Output = Result<R, ChatError>> + Send + 'a>>;

impl<T: ChatModel> Metered<T> {
    /// A metered model with one key. `format` is the name of the trajectories' message format.
    pub fn new(model: T, folder: Arc<RunFolder>, cap: BudgetCap, format: &'static str) -> Self {
        Self::with_keys(model, Vec::new(), Limits::default(), folder, cap, format)
    }

    /// A metered model with several keys, each with these rate limits; requests rotate over the keys.
    pub fn with_keys(
        model: T,
        more: Vec<T>,
        limits: Limits,
        folder: Arc<RunFolder>,
        cap: BudgetCap,
        format: &'static str,
    ) -> Self {
        let named = (model.name().to_owned(), model.price());
        let models = std::iter::once(model).chain(more);
        Self::of(named, models, limits, folder, cap, format)
    }

    /// Sends all calls in batches.
    pub fn with_batches(self, batches: Batches) -> Self {
        Self {
            batches: Some(batches),
            ..self
        }
    }

    /// Queues the call for a batch. Always returns an error, because the reply arrives with the batch.
    fn queue(
        &self,
        batches: &Batches,
        id: &str,
        call: &Call,
        request: &ChatRequest<'_>,
    ) -> Result<Reply, ChatError> {
        if let Some(error) = batches.final_error(&call.turn) {
            return Err(error);
        }
        let most = self.cost(call.most);
        let in_flight = self.in_flight();
        match batches.queue(id, &call.digest, request, most, self.cap)? {
            Ok(()) => Err(ChatError::Deferred),
            Err(ReserveError::OverBudget(detail)) => Err(self.over_budget(detail, *in_flight)),
            Err(ReserveError::Run(error)) => Err(internal(error)),
        }
    }
}

impl<T> Metered<T> {
    /// Takes the name and price of the model, and the model with each of its keys.
    pub(super) fn of(
        (name, price): (String, Option<Price>),
        models: impl Iterator<Item = T>,
        limits: Limits,
        folder: Arc<RunFolder>,
        cap: BudgetCap,
        format: &'static str,
    ) -> Self {
        let keyed = |model| KeyedModel {
            model,
            rate_limiter: RateLimiter::new(&name, limits),
            refused: AtomicBool::new(false),
        };
        let keys = models.map(keyed).collect();
        Self {
            name,
            price,
            keys,
            next_key: AtomicUsize::new(0),
            folder,
            cap,
            format,
            ledger: Arc::default(),
            response_cache: None,
            batches: None,
            interrupt: Interrupt::new(),
        }
    }

    /// Ends waits for the rate limit once `interrupt` is raised, with [`ChatError::Interrupted`].
    pub fn with_interrupt(self, interrupt: Interrupt) -> Self {
        Self { interrupt, ..self }
    }

    /// Shares a budget with the other models that use this ledger.
    pub fn with_ledger(self, ledger: Arc<BudgetLedger>) -> Self {
        Self { ledger, ..self }
    }

    /// Uses a response cache: reads replies from it and stores new ones.
    pub fn with_cache(self, response_cache: ResponseCache) -> Self {
        Self {
            response_cache: Some(response_cache),
            ..self
        }
    }

    /// What is recorded of a request.
    pub(super) fn call(&self, request: &ChatRequest<'_>) -> Call {
        let ChatRequest { key, sample, .. } = *request;
        let id = Trajectory::compute_id(key, &self.name, request.sampling, self.format, sample);
        let replies = request.messages.iter();
        let turn = replies.filter(|m| m.role == Role::Assistant).count();
        let pictures = PICTURE_TOKENS.saturating_mul(request.pictures.len() as u64);
        Call {
            turn: format!("{id}/{turn}"),
            digest: request.digest(),
            most: Usage {
                prompt_tokens: token_bound(request.messages).saturating_add(pictures),
                completion_tokens: request.sampling.max_tokens.into(),
            },
            cached: self.response_cache.as_ref().map(|c| c.entry(request)),
        }
    }

    /// The reply to a request that was paid for before, by this run or another.
    pub(super) fn recall<R: PaidReply>(&self, call: &Call) -> Result<CallLookup<R>, ChatError> {
        let id = match self.look_up(call).map_err(internal)? {
            CallLookup::Settled(reply) => {
                store_in_cache(call, &reply, false)?;
                return Ok(CallLookup::Settled(reply));
            }
            CallLookup::Pending => return Ok(CallLookup::Pending),
            CallLookup::Missing(id) => id,
        };
        let cached = self.cached_reply(&id, call).map_err(internal)?;
        Ok(cached.map_or(CallLookup::Missing(id), CallLookup::Settled))
    }

    /// A reply that another run paid for, recorded in the journal at no cost.
    fn cached_reply<R: PaidReply>(&self, id: &str, call: &Call) -> Result<Option<R>, RunError> {
        let Some(reply) = call.cached.as_ref().and_then(CacheEntry::get::<R>) else {
            return Ok(None);
        };
        let free = Reservation {
            micro_usd: 0,
            tokens: 0,
        };
        let settled = serde_json::to_value(SettledCall {
            request: call.digest.clone(),
            reply: reply.clone(),
        })?;
        let journal = self.folder.journal();
        match journal.reserve(id, free, self.cap) {
            Ok(()) => journal.settle(id, free, &settled)?,
            // A free call fits every budget that is not already overdrawn.
            Err(ReserveError::OverBudget(_)) => return Ok(None),
            Err(ReserveError::Run(error)) => return Err(error),
        }
        Ok(Some(reply))
    }

    /// Looks up the reply to this request in the journal.
    fn look_up<R: PaidReply>(&self, call: &Call) -> Result<CallLookup<R>, RunError> {
        for attempt in 0_u64.. {
            let id = format!("{}/{attempt}", call.turn);
            self.record_late(&id)?;
            let Some(known) = self.folder.journal().call(&id)? else {
                return Ok(CallLookup::Missing(id));
            };
            if known.state == CallState::Batched && known.request.as_ref() == Some(&call.digest) {
                return Ok(CallLookup::Pending);
            }
            if let (CallState::Settled, Some(value)) = (known.state, known.reply) {
                let settled: SettledCall<R> = serde_json::from_value(value)?;
                if settled.request == call.digest {
                    return Ok(CallLookup::Settled(settled.reply));
                }
            }
        }
        Err(RunError::Internal(format!(
            "no attempt number left for {}",
            call.turn
        )))
    }

    /// Records the reply of a call, if an outage has kept it out of the journal.
    fn record_late(&self, id: &str) -> Result<(), RunError> {
        let kept = self.ledger.unrecorded().get(id).cloned();
        let Some((used, settled)) = kept else {
            return Ok(());
        };
        let recorded = self.folder.journal().settle(id, used, &settled);
        if !recorded.as_ref().is_err_and(RunError::is_outage) {
            self.ledger.unrecorded().remove(id);
        }
        recorded
    }

    fn cost(&self, usage: Usage) -> Reservation {
        cost(self.price, usage)
    }

    /// Pays for the attempt `id` of a call: `send` makes it.
    pub(super) async fn pay<'a, R: PaidReply>(
        &'a self,
        id: String,
        call: &Call,
        send: impl Fn(&'a T) -> Sent<'a, R>,
    ) -> Result<R, ChatError> {
        let reply = self.ask(id, call, send).await?;
        store_in_cache(call, &reply, true)?;
        Ok(reply)
    }

    /// Sends the request with the next available key, and with another key if the endpoint refuses it.
    async fn ask<'a, R: PaidReply>(
        &'a self,
        id: String,
        call: &Call,
        send: impl Fn(&'a T) -> Sent<'a, R>,
    ) -> Result<R, ChatError> {
        let most = call.most;
        let estimate =
            (most.prompt_tokens / BYTES_PER_TOKEN).saturating_add(most.completion_tokens);
        let mut refusal = None;
        while let Some((key, permit)) = self.acquire_key(estimate).await? {
            let reserved = self.reserve(id.clone(), self.cost(most)).await?;
            let (sent, started) = (self.folder.requests().sent(), Instant::now());
            let end = send(&key.model).await;
            drop(sent);
            let end = end.map(|reply| check_usage(&id, reply, most.total()));
            permit.record(end.as_ref().map(PaidReply::usage), started.elapsed());
            reserved.record(&call.digest, &end).map_err(internal)?;
            match end {
                Err(error @ ChatError::Unauthorized(_)) => {
                    tracing::warn!("{error}; continuing without this key");
                    key.refused.store(true, Ordering::Relaxed);
                    refusal = Some(error);
                }
                end => return end,
            }
        }
        Err(refusal.unwrap_or_else(|| ChatError::Unauthorized("all API keys were refused".into())))
    }

    /// The next key within its rate limit; `None` once all keys were refused.
    async fn acquire_key(
        &self,
        tokens: u64,
    ) -> Result<Option<(&KeyedModel<T>, RatePermit)>, ChatError> {
        let first = self.next_key.fetch_add(1, Ordering::Relaxed);
        let count = self.keys.len();
        let rotated = (0..count).map(|n| &self.keys[(first.wrapping_add(n)) % count]);
        let usable = |key: &&KeyedModel<T>| !key.refused.load(Ordering::Relaxed);
        let usable: Vec<_> = rotated.filter(usable).collect();
        for key in &usable {
            if let Ok(permit) = key.rate_limiter.try_acquire(tokens) {
                return Ok(Some((key, permit)));
            }
        }
        let Some(key) = usable.first() else {
            return Ok(None);
        };
        let waits = |why| self.folder.requests().waiting(why);
        tokio::select! {
            permit = key.rate_limiter.acquire(tokens, waits) => Ok(Some((key, permit))),
            () = self.interrupt.wait(Urgency::Finish) => Err(ChatError::Interrupted),
        }
    }

    /// Reserves the maximum cost, and waits while calls in flight may still return a part of the budget.
    async fn reserve(
        &self,
        id: String,
        most: Reservation,
    ) -> Result<ReservedCall<'_, T>, ChatError> {
        loop {
            let freed = self.ledger.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(reserved) = self.try_reserve(&id, most)? {
                return Ok(reserved);
            }
            let _waiting = self.folder.requests().waiting(Bottleneck::Budget);
            let shared = self.folder.journal().is_shared();
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(ELSEWHERE_INTERVAL), if shared => {}
                () = self.interrupt.wait(Urgency::Finish), if shared => return Err(ChatError::Interrupted),
            }
        }
    }

    /// `None` if the budget does not allow the call now but may once a call in flight is settled.
    fn try_reserve(
        &self,
        id: &str,
        most: Reservation,
    ) -> Result<Option<ReservedCall<'_, T>>, ChatError> {
        let mut in_flight = self.in_flight();
        match self.reserve_or_find_calls(id, most)? {
            Ok(()) => {
                *in_flight += 1;
                Ok(Some(ReservedCall {
                    metered: self,
                    id: id.to_owned(),
                    most,
                    recorded: AtomicBool::new(false),
                }))
            }
            Err(_) if *in_flight > 0 => Ok(None),
            Err(OverBudget::WhileCallsElsewhere) => Ok(None),
            Err(OverBudget::Finally(detail)) => Err(self.over_budget(detail, 0)),
        }
    }

    /// Reserves in the journal. A call of another process may end between a refusal and the look at what is in flight, so
    /// a refusal is final only if it is repeated.
    fn reserve_or_find_calls(
        &self,
        id: &str,
        most: Reservation,
    ) -> Result<Result<(), OverBudget>, ChatError> {
        let journal = self.folder.journal();
        let mut refused = String::new();
        for _ in 0..2 {
            match journal.reserve(id, most, self.cap) {
                Ok(()) => return Ok(Ok(())),
                Err(ReserveError::Run(error)) => return Err(internal(error)),
                Err(ReserveError::OverBudget(detail)) => refused = detail,
            }
            if journal.has_calls_elsewhere().map_err(internal)? {
                return Ok(Err(OverBudget::WhileCallsElsewhere));
            }
        }
        Ok(Err(OverBudget::Finally(refused)))
    }

    /// The error of a call that exceeds the budget. The call is deferred if a pending call or batch may still
    /// return a part of the budget.
    fn over_budget(&self, detail: String, in_flight: usize) -> ChatError {
        match self.folder.journal().has_batched_calls() {
            Ok(awaits) if awaits || in_flight > 0 => ChatError::Deferred,
            Ok(_) => ChatError::Budget(detail),
            Err(error) => internal(error),
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, usize> {
        // A plain number cannot be left inconsistent by a panic.
        self.ledger
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that holds a reservation. If it is dropped without a result, it stays charged with the reserved
/// amount.
struct ReservedCall<'a, T> {
    metered: &'a Metered<T>,
    id: String,
    most: Reservation,
    /// Whether the journal has the result.
    recorded: AtomicBool,
}

impl<T> ReservedCall<'_, T> {
    /// Records the result of the call.
    fn record<R: PaidReply>(
        &self,
        request: &Digest,
        end: &Result<R, ChatError>,
    ) -> Result<(), RunError> {
        let journal = self.metered.folder.journal();
        self.recorded.store(true, Ordering::Relaxed);
        match end {
            Ok(reply) => {
                let used = charge(self.metered.price, reply, self.most);
                let (request, reply) = (request.clone(), reply.clone());
                let settled = serde_json::to_value(SettledCall { request, reply })?;
                let recorded = journal.settle(&self.id, used, &settled);
                if recorded.as_ref().is_err_and(RunError::is_outage) {
                    // The next attempt at the unit finds it.
                    let mut unrecorded = self.metered.ledger.unrecorded();
                    unrecorded.insert(self.id.clone(), (used, settled));
                }
                recorded
            }
            Err(error) if error.may_be_charged() => journal.mark_uncertain(&self.id),
            Err(_) => journal.release(&self.id),
        }
    }
}

impl<T> Drop for ReservedCall<'_, T> {
    fn drop(&mut self) {
        let journal = self.metered.folder.journal();
        // Other processes wait for calls in flight, and this one will return nothing.
        if !self.recorded.load(Ordering::Relaxed)
            && journal.is_shared()
            && let Err(error) = journal.mark_uncertain(&self.id)
        {
            tracing::warn!("cannot record that a call was dropped: {error}");
        }
        *self.metered.in_flight() -= 1;
        self.metered.ledger.freed.notify_waiters();
    }
}

/// Stores a reply in the cache. An old reply is stored too if a kill prevented that before.
fn store_in_cache<R: PaidReply>(call: &Call, reply: &R, new: bool) -> Result<(), ChatError> {
    match &call.cached {
        Some(entry) if new || !entry.exists() => entry.put(reply).map_err(internal),
        _ => Ok(()),
    }
}

fn internal(error: RunError) -> ChatError {
    match error.is_outage() {
        true => ChatError::Outage(error.to_string()),
        false => ChatError::Internal(error.to_string()),
    }
}

#[async_trait]
impl<T: ChatModel> ChatModel for Metered<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        self.price
    }

    fn batches(&self) -> Option<&Batches> {
        self.batches.as_ref()
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let call = self.call(request);
        match (self.recall(&call)?, &self.batches) {
            (CallLookup::Settled(reply), _) => Ok(reply),
            (CallLookup::Pending, _) => Err(ChatError::Deferred),
            (CallLookup::Missing(id), Some(batches)) => self.queue(batches, &id, &call, request),
            (CallLookup::Missing(id), None) => {
                self.pay(id, &call, |model| model.reply(request)).await
            }
        }
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
