//! Rate limits of an endpoint: requests and tokens per minute, and adaptive concurrency.
//!
//! Concurrency adapts to the endpoint by additive increase and multiplicative decrease: it doubles with every
//! round of replies until the first overload (quadruples where replies show that more requests take no longer), then
//! grows by one per round, and halves at each overload. It also stops growing where more requests only take longer
//! ([`Saturation`]), and it grows only if it is used. Requests wait here before anything is reserved in the journal.
//!
//! The crate `governor` is not used because its buckets take no tokens back when a reply was shorter than
//! estimated, and let no request pass that is larger than the bucket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::ChatError;
use super::saturation::{Growth, Saturation};
use pybench_run::{Bottleneck, ModelChoice};
use pybench_types::trajectory::Usage;

/// Initial and maximum number of concurrent requests.
const INITIAL_WINDOW: f64 = 16.0;
const MAX_WINDOW: f64 = 1024.0;
/// Maximum burst after a pause, as a share of the limit per minute.
const BURST_SHARE: f64 = 1.0 / 6.0;
/// Maximum pause that an endpoint can request for all requests, and maximum debt of a bucket.
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// A wait of at least this long is logged.
const LOGGED_WAIT: Duration = Duration::from_secs(5);
/// Minimum interval between two such log lines.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Rate limits of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute.
    pub requests: Option<u32>,
    /// Tokens per minute, prompt and completion.
    pub tokens: Option<u64>,
    /// Requests in flight; without it, their number adapts to the endpoint.
    pub in_flight: Option<usize>,
}

impl Limits {
    /// The limits given in a recipe.
    pub fn of(choice: &ModelChoice) -> Self {
        match choice {
            ModelChoice::Openai {
                requests_per_minute,
                tokens_per_minute,
                ..
            } => Self {
                requests: *requests_per_minute,
                tokens: *tokens_per_minute,
                in_flight: None,
            },
            _ => Self::default(),
        }
    }

    /// The part of one of this number of processes, which all use the same keys. A limit below that number is exceeded:
    /// each process sends at least one request a minute.
    pub fn shared_by(self, processes: u32) -> Self {
        let processes = processes.max(1);
        Self {
            requests: self.requests.map(|most| (most / processes).max(1)),
            tokens: self.tokens.map(|most| (most / u64::from(processes)).max(1)),
            ..self
        }
    }
}

/// Admits the requests to an endpoint.
#[derive(Debug)]
pub struct RateLimiter {
    /// Name of the model, for log lines.
    name: String,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// Maximum number of requests in flight, rounded down.
    window: f64,
    /// Upper bound of `window`.
    max_window: f64,
    in_flight: usize,
    saturation: Saturation,
    /// No request starts before this time.
    paused_until: Option<Instant>,
    /// When the window was last halved; failures of older requests do not halve it again.
    halved_at: Option<Instant>,
    /// When a wait was last logged.
    logged_at: Option<Instant>,
}

/// Why a request may not start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many requests as the endpoint bears are in flight.
    Window,
    /// The rate limit, or a pause that the endpoint asked for, lasts until then.
    Until(Instant),
}

impl Refusal {
    /// What the request waits for.
    pub fn bottleneck(self) -> Bottleneck {
        match self {
            Self::Window => Bottleneck::Endpoint,
            Self::Until(_) => Bottleneck::RateLimit,
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
struct SentRequest {
    /// Estimated tokens.
    tokens: u64,
    /// When it was admitted.
    since: Instant,
    /// Requests in flight then, this one included.
    in_flight: usize,
    /// Time from sending it to its end.
    took: Duration,
}

/// A token bucket. One request may overdraw it, and the next requests wait until it has refilled, for about
/// [`MAX_PAUSE`] at most.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    most: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: f64, now: Instant) -> Self {
        let most = (per_minute * BURST_SHARE).max(1.0);
        Self {
            per_second: per_minute / 60.0,
            most,
            level: most,
            at: now,
        }
    }

    /// When `amount` will be available, or a full bucket if `amount` exceeds the capacity.
    fn ready_at(&mut self, amount: f64, now: Instant) -> Instant {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        let debt = self.per_second * MAX_PAUSE.as_secs_f64();
        self.level = (self.level + since * self.per_second).clamp(-debt, self.most);
        self.at = now;
        let lacking = amount.min(self.most) - self.level;
        match lacking > 0.0 {
            true => now + Duration::from_secs_f64(lacking / self.per_second),
            false => now,
        }
    }
}

impl State {
    fn new(limits: Limits, now: Instant) -> Self {
        let bucket = |per_minute: f64| Bucket::new(per_minute.max(1.0), now);
        let max_window = limits
            .in_flight
            .map_or(MAX_WINDOW, |given| given.max(1) as f64);
        Self {
            requests: limits.requests.map(|n| bucket(f64::from(n))),
            tokens: limits.tokens.map(|n| bucket(n as f64)),
            window: INITIAL_WINDOW.min(max_window),
            max_window,
            in_flight: 0,
            saturation: Saturation::default(),
            paused_until: None,
            halved_at: None,
            logged_at: None,
        }
    }

    /// The buckets with the amount that a request of `tokens` tokens takes from each.
    fn charges(&mut self, tokens: u64) -> impl Iterator<Item = (&mut Bucket, f64)> {
        let requests = self.requests.as_mut().map(|bucket| (bucket, 1.0));
        let tokens = self.tokens.as_mut().map(|bucket| (bucket, tokens as f64));
        requests.into_iter().chain(tokens)
    }

    fn acquire(&mut self, tokens: u64, now: Instant) -> Result<(), Refusal> {
        if self.in_flight >= (self.window as usize).max(1) {
            return Err(Refusal::Window);
        }
        let closed = self.paused_until.unwrap_or(now).max(now);
        let ready = self
            .charges(tokens)
            .map(|(bucket, amount)| bucket.ready_at(amount, now));
        let ready = ready.fold(closed, Instant::max);
        if ready > now {
            return Err(Refusal::Until(ready));
        }
        self.charges(tokens)
            .for_each(|(bucket, amount)| bucket.level -= amount);
        self.in_flight += 1;
        Ok(())
    }

    /// Adapts the concurrency to the end of a request that was sent with `sent` as the state of the limiter.
    fn record(&mut self, sent: &SentRequest, end: Result<Usage, &ChatError>, now: Instant) {
        match end {
            Ok(usage) => self.answered(sent, usage),
            Err(error) if is_overload(error) => {
                if self.halved_at.is_none_or(|halved| sent.since > halved) {
                    self.window = (self.window / 2.0).max(1.0);
                    self.halved_at = Some(now);
                    self.saturation = Saturation::default();
                }
                if let ChatError::RateLimited {
                    retry_after: Some(wait),
                } = error
                {
                    let until = now + (*wait).min(MAX_PAUSE);
                    self.paused_until = self.paused_until.max(Some(until));
                }
            }
            Err(_) => {}
        }
    }

    fn answered(&mut self, sent: &SentRequest, usage: Usage) {
        let used = usage.total();
        if let (Some(bucket), true) = (&mut self.tokens, used > 0) {
            bucket.level += sent.tokens as f64 - used as f64;
        }
        let window = self.window as usize;
        let (tokens, took) = (usage.completion_tokens, sent.took);
        match self.saturation.reply(window, sent.in_flight, tokens, took) {
            Growth::Back(window) => self.window = (window as f64).max(1.0),
            Growth::Hold => {}
            Growth::Open { parallel } => {
                let more = match self.halved_at {
                    None if parallel => 3.0,
                    None => 1.0,
                    Some(_) => 1.0 / self.window,
                };
                self.window = (self.window + more).min(self.max_window);
            }
        }
    }

    /// The length of a wait that has to be logged: a long one, unless another was logged shortly before.
    fn wait_to_log(&mut self, until: Instant, now: Instant) -> Option<Duration> {
        let wait = until.saturating_duration_since(now);
        let recent = |at: Instant| now.saturating_duration_since(at) < LOG_EVERY;
        if wait < LOGGED_WAIT || self.logged_at.is_some_and(recent) {
            return None;
        }
        self.logged_at = Some(now);
        Some(wait)
    }
}

impl RateLimiter {
    /// A limiter for the model `name`.
    pub fn new(name: &str, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            state: Mutex::new(State::new(limits, Instant::now())),
            freed: Notify::new(),
        })
    }

    /// Waits until a request of about `tokens` tokens may start. Calls `waits` with the reason before each wait; what
    /// it returns is kept for the time of the wait.
    pub async fn acquire<W>(
        self: &Arc<Self>,
        tokens: u64,
        waits: impl Fn(Bottleneck) -> W,
    ) -> RatePermit {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let refusal = match self.try_acquire(tokens) {
                Ok(permit) => return permit,
                Err(refusal) => refusal,
            };
            let _waiting = waits(refusal.bottleneck());
            match refusal {
                Refusal::Window => freed.await,
                Refusal::Until(at) => {
                    self.log_wait(at);
                    tokio::select! { () = sleep_until(at.into()) => {}, () = freed => {} }
                }
            }
        }
    }

    /// Starts a request now, or says why it may not start.
    pub fn try_acquire(self: &Arc<Self>, tokens: u64) -> Result<RatePermit, Refusal> {
        let now = Instant::now();
        let mut state = self.state();
        state.acquire(tokens, now)?;
        Ok(RatePermit {
            limiter: self.clone(),
            tokens,
            since: now,
            in_flight: state.in_flight,
        })
    }

    fn log_wait(&self, until: Instant) {
        let wait = self.state().wait_to_log(until, Instant::now());
        if let Some(wait) = wait {
            tracing::info!(
                "{}: rate limit reached; the next request starts in {:.0} s",
                self.name,
                wait.as_secs_f64()
            );
        }
    }

    /// Current maximum number of concurrent requests.
    pub fn window(&self) -> usize {
        (self.state().window as usize).max(1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is plain numbers, so a panic cannot leave it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in flight, until this is dropped.
#[derive(Debug)]
pub struct RatePermit {
    limiter: Arc<RateLimiter>,
    tokens: u64,
    since: Instant,
    in_flight: usize,
}

impl RatePermit {
    /// Adapts the concurrency to the result of the request, which took `took` from sending it to its end.
    pub fn record(&self, end: Result<Usage, &ChatError>, took: Duration) {
        let sent = SentRequest {
            tokens: self.tokens,
            since: self.since,
            in_flight: self.in_flight,
            took,
        };
        self.limiter.state().record(&sent, end, Instant::now());
    }
}

/// Whether the error may be caused by too many requests.
fn is_overload(error: &ChatError) -> bool {
    use ChatError::*;
    matches!(
        error,
        RateLimited { .. } | Server(_) | Timeout | Broken(_) | Connection(_)
    )
}

impl Drop for RatePermit {
    fn drop(&mut self) {
        self.limiter.state().in_flight -= 1;
        self.limiter.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(tokens: u64) -> Result<Usage, &'static ChatError> {
        Ok(Usage {
            prompt_tokens: tokens,
            completion_tokens: 0,
        })
    }

    /// A rate limiter with a simulated clock.
    struct SimulatedLimiter {
        state: State,
        begun: Instant,
        now: Instant,
    }

    impl SimulatedLimiter {
        fn new(requests: Option<u32>, tokens: Option<u64>) -> Self {
            let now = Instant::now();
            Self {
                state: State::new(
                    Limits {
                        requests,
                        tokens,
                        in_flight: None,
                    },
                    now,
                ),
                begun: now,
                now,
            }
        }

        /// Advances the clock until a request may start, and starts it.
        fn acquire(&mut self, tokens: u64) {
            while let Err(refusal) = self.state.acquire(tokens, self.now) {
                match refusal {
                    Refusal::Until(at) => self.now = at,
                    Refusal::Window => panic!("nothing ends"),
                }
            }
        }

        /// A request that was admitted now, with as many others in flight as are allowed.
        fn sent(&self, tokens: u64) -> SentRequest {
            SentRequest {
                tokens,
                since: self.now,
                in_flight: self.window(),
                took: Duration::from_secs(1),
            }
        }

        fn ask(&mut self, tokens: u64, end: Result<Usage, &ChatError>) {
            self.acquire(tokens);
            let sent = self.sent(tokens);
            self.now += Duration::from_micros(1);
            self.state.record(&sent, end, self.now);
            self.state.in_flight -= 1;
        }

        fn elapsed(&self) -> f64 {
            self.now.duration_since(self.begun).as_secs_f64()
        }

        fn window(&self) -> usize {
            self.state.window as usize
        }
    }

    #[test]
    fn requests_and_tokens_per_minute_are_limited() {
        for (requests, tokens) in [(Some(60), None), (None, Some(6000))] {
            let mut limiter = SimulatedLimiter::new(requests, tokens);
            for _ in 0..70 {
                limiter.ask(100, answered(100));
            }
            // A burst of ten, then one per second.
            let took = limiter.elapsed();
            assert!((59.0..60.5).contains(&took), "{took}");
        }
    }

    #[test]
    fn unused_tokens_are_returned_and_a_large_request_passes() {
        let mut limiter = SimulatedLimiter::new(None, Some(600));
        for _ in 0..10 {
            limiter.ask(100, answered(1));
        }
        assert!(limiter.elapsed() < 2.0, "{}", limiter.elapsed());
        limiter.ask(1_000_000, answered(1));
        assert!(limiter.elapsed() < 60.0, "{}", limiter.elapsed());
    }

    #[test]
    fn the_window_grows_by_one_per_round_and_halves_once_per_overload() {
        let mut limiter = SimulatedLimiter::new(None, None);
        assert_eq!(limiter.window(), 16);
        limiter.ask(1, answered(1));
        assert_eq!(limiter.window(), 17, "fast growth at first");
        (0..17).for_each(|_| limiter.acquire(1));
        assert_eq!(
            limiter.state.acquire(1, limiter.now),
            Err(Refusal::Window),
            "no more at a time"
        );
        let overloaded = ChatError::Server(503);
        let (sent, full) = (limiter.sent(1), Err(&overloaded));
        limiter.now += Duration::from_secs(1);
        for _ in 0..17 {
            limiter.state.record(&sent, full, limiter.now);
            limiter.state.in_flight -= 1;
        }
        assert_eq!(limiter.window(), 8, "one overload that failed 17 requests");
        (0..9).for_each(|_| limiter.ask(1, answered(1)));
        assert_eq!(limiter.window(), 9, "grows by one after a round");
        (0..9).for_each(|_| limiter.ask(1, full));
        assert_eq!(limiter.window(), 1);
        limiter.acquire(1);
    }

    #[test]
    fn all_requests_wait_as_long_as_the_endpoint_asks() {
        let mut limiter = SimulatedLimiter::new(None, None);
        let wait = Some(Duration::from_secs(7));
        limiter.ask(1, Err(&ChatError::RateLimited { retry_after: wait }));
        limiter.acquire(1);
        assert!(
            (7.0..7.1).contains(&limiter.elapsed()),
            "{}",
            limiter.elapsed()
        );
    }

    #[test]
    fn no_reply_makes_the_next_request_wait_for_longer_than_the_maximum() {
        let limit = MAX_PAUSE.as_secs_f64() + 60.0 * BURST_SHARE + 0.1;
        for used in [1_000_000_000_000, u64::MAX] {
            let mut limiter = SimulatedLimiter::new(None, Some(60_000));
            limiter.ask(100, answered(used));
            limiter.acquire(100);
            assert!(limiter.elapsed() < limit, "{}", limiter.elapsed());
        }
        for seconds in [601, 1_000_000_000_000_000, u64::MAX] {
            let mut limiter = SimulatedLimiter::new(None, None);
            let retry_after = Some(Duration::from_secs(seconds));
            limiter.ask(1, Err(&ChatError::RateLimited { retry_after }));
            limiter.acquire(1);
            assert!(limiter.elapsed() < limit, "{}", limiter.elapsed());
        }
    }

    #[test]
    fn long_waits_are_logged_once_for_all_requests() {
        let mut state = SimulatedLimiter::new(None, None).state;
        let now = Instant::now();
        let mut logged = |at: u64, wait: u64| {
            let at = now + Duration::from_secs(at);
            let wait = state.wait_to_log(at + Duration::from_secs(wait), at);
            wait.map(|wait| wait.as_secs())
        };
        assert_eq!(logged(0, 4), None, "a short wait");
        assert_eq!(logged(1, 600), Some(600));
        assert_eq!(logged(2, 599), None, "another request");
        assert_eq!(logged(31, 570), Some(570));
    }

    #[tokio::test]
    async fn a_waiting_request_starts_when_another_ends() {
        let limiter = RateLimiter::new("m", Limits::default());
        let mut passes = Vec::new();
        for _ in 0..16 {
            passes.push(limiter.acquire(1, |_| ()).await);
        }
        let (last, waiting) = (passes.pop(), limiter.acquire(1, |_| ()));
        let left = async move { drop(last) };
        let (pass, ()) = tokio::join!(waiting, left);
        assert_eq!(limiter.state().in_flight, 16);
        drop((pass, passes));
        assert_eq!(limiter.state().in_flight, 0);
    }
}
