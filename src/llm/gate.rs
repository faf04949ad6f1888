//! How fast an endpoint is asked: requests and tokens per minute, and as many at a time as it bears.
//!
//! The number at a time grows by one with every round of answers (with every answer until the first
//! overload) and halves when the endpoint says that it is too many or gives out: additive increase,
//! multiplicative decrease. Whoever is made to wait
//! waits before anything is reserved in the journal.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::{Reply, TeacherError};
use crate::run::TeacherChoice;

/// Requests at a time to begin with, and at most.
const FIRST: f64 = 8.0;
const MOST: f64 = 1024.0;
/// What may go out at once after a pause, as a share of a minute's worth.
const BURST: f64 = 1.0 / 6.0;
/// Longest wait that an endpoint can ask of everybody.
const LONGEST: Duration = Duration::from_secs(600);

/// Limits that an endpoint states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute.
    pub requests: Option<u32>,
    /// Tokens per minute, prompt and completion.
    pub tokens: Option<u64>,
}

impl Limits {
    /// Those that a recipe states.
    pub fn of(choice: &TeacherChoice) -> Self {
        match choice {
            TeacherChoice::Openai {
                requests_per_minute,
                tokens_per_minute,
                ..
            } => Self {
                requests: *requests_per_minute,
                tokens: *tokens_per_minute,
            },
            _ => Self::default(),
        }
    }
}

/// What every request to an endpoint passes through.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// How many may be under way; only whole ones count.
    window: f64,
    under_way: usize,
    /// Nobody goes before.
    closed_until: Option<Instant>,
    /// When the window was last halved: what was sent before says nothing of the new one.
    halved: Option<Instant>,
}

/// An amount that refills steadily. It may be overdrawn by one request, which the next ones wait for.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    most: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: f64, now: Instant) -> Self {
        let most = (per_minute * BURST).max(1.0);
        Self {
            per_second: per_minute / 60.0,
            most,
            level: most,
            at: now,
        }
    }

    /// When `amount` may be taken, or as much of it as fits in.
    fn ready_at(&mut self, amount: f64, now: Instant) -> Instant {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + since * self.per_second).min(self.most);
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
        Self {
            requests: limits.requests.map(|n| bucket(f64::from(n))),
            tokens: limits.tokens.map(|n| bucket(n as f64)),
            window: FIRST,
            under_way: 0,
            closed_until: None,
            halved: None,
        }
    }

    /// The buckets, and what a request of so many tokens takes from each.
    fn taken(&mut self, tokens: u64) -> impl Iterator<Item = (&mut Bucket, f64)> {
        let requests = self.requests.as_mut().map(|bucket| (bucket, 1.0));
        let tokens = self.tokens.as_mut().map(|bucket| (bucket, tokens as f64));
        requests.into_iter().chain(tokens)
    }

    fn enter(&mut self, tokens: u64, now: Instant) -> Result<(), Option<Instant>> {
        if self.under_way >= (self.window as usize).max(1) {
            return Err(None);
        }
        let closed = self.closed_until.unwrap_or(now).max(now);
        let ready = self
            .taken(tokens)
            .map(|(bucket, amount)| bucket.ready_at(amount, now));
        let ready = ready.fold(closed, Instant::max);
        if ready > now {
            return Err(Some(ready));
        }
        self.taken(tokens)
            .for_each(|(bucket, amount)| bucket.level -= amount);
        self.under_way += 1;
        Ok(())
    }

    fn learn(
        &mut self,
        tokens: u64,
        since: Instant,
        end: &Result<Reply, TeacherError>,
        now: Instant,
    ) {
        match end {
            Ok(reply) => {
                let more = match self.halved {
                    None => 1.0,
                    Some(_) => 1.0 / self.window,
                };
                self.window = (self.window + more).min(MOST);
                let used = reply.usage.prompt_tokens + reply.usage.completion_tokens;
                if let (Some(bucket), true) = (&mut self.tokens, used > 0) {
                    bucket.level += tokens as f64 - used as f64;
                }
            }
            Err(error) if overloaded(error) => {
                if self.halved.is_none_or(|halved| since > halved) {
                    self.window = (self.window / 2.0).max(1.0);
                    self.halved = Some(now);
                }
                if let TeacherError::RateLimited {
                    retry_after: Some(wait),
                } = error
                {
                    let until = now + (*wait).min(LONGEST);
                    self.closed_until = self.closed_until.max(Some(until));
                }
            }
            Err(_) => {}
        }
    }
}

impl Gate {
    /// A gate with those limits.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(limits, Instant::now())),
            freed: Notify::new(),
        })
    }

    /// Waits for a turn with a request of about so many tokens.
    pub async fn enter(self: &Arc<Self>, tokens: u64) -> Pass {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.try_enter(tokens) {
                Ok(pass) => return pass,
                Err(Some(at)) => {
                    tokio::select! { () = sleep_until(at.into()) => {}, () = freed => {} }
                }
                Err(None) => freed.await,
            }
        }
    }

    /// A turn now; otherwise when it may be had, where that is known.
    pub fn try_enter(self: &Arc<Self>, tokens: u64) -> Result<Pass, Option<Instant>> {
        let now = Instant::now();
        self.state().enter(tokens, now)?;
        Ok(Pass {
            gate: self.clone(),
            tokens,
            since: now,
        })
    }

    /// Requests at a time, now.
    pub fn window(&self) -> usize {
        (self.state().window as usize).max(1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers are never half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn. It ends when it is dropped.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    tokens: u64,
    since: Instant,
}

impl Pass {
    /// The endpoint answered, or did not: what that says of how many it bears.
    pub fn learn(&self, end: &Result<Reply, TeacherError>) {
        let now = Instant::now();
        self.gate.state().learn(self.tokens, self.since, end, now);
    }
}

/// Whether it may be for too many requests.
fn overloaded(error: &TeacherError) -> bool {
    use TeacherError::*;
    matches!(
        error,
        RateLimited { .. } | Server(_) | Timeout | Broken(_) | Connection(_)
    )
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.state().under_way -= 1;
        self.gate.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Usage;

    fn answered(tokens: u64) -> Result<Reply, TeacherError> {
        let usage = Usage {
            prompt_tokens: tokens,
            completion_tokens: 0,
        };
        Ok(Reply {
            content: String::new(),
            usage,
            truncated: false,
            fault: None,
        })
    }

    /// A gate under a clock of its own.
    struct Clocked {
        state: State,
        begun: Instant,
        now: Instant,
    }

    impl Clocked {
        fn new(requests: Option<u32>, tokens: Option<u64>) -> Self {
            let now = Instant::now();
            Self {
                state: State::new(Limits { requests, tokens }, now),
                begun: now,
                now,
            }
        }

        /// Waits for a turn, and takes it.
        fn enter(&mut self, tokens: u64) {
            while let Err(at) = self.state.enter(tokens, self.now) {
                self.now = at.expect("a turn comes");
            }
        }

        fn ask(&mut self, tokens: u64, end: &Result<Reply, TeacherError>) {
            self.enter(tokens);
            let since = self.now;
            self.now += Duration::from_micros(1);
            self.state.learn(tokens, since, end, self.now);
            self.state.under_way -= 1;
        }

        fn elapsed(&self) -> f64 {
            self.now.duration_since(self.begun).as_secs_f64()
        }

        fn window(&self) -> usize {
            self.state.window as usize
        }
    }

    #[test]
    fn requests_and_tokens_keep_to_the_minute() {
        for (requests, tokens) in [(Some(60), None), (None, Some(6000))] {
            let mut gate = Clocked::new(requests, tokens);
            for _ in 0..70 {
                gate.ask(100, &answered(100));
            }
            // A burst of ten, then one a second.
            let took = gate.elapsed();
            assert!((59.0..60.5).contains(&took), "{took}");
        }
    }

    #[test]
    fn what_was_not_used_is_given_back_and_a_large_request_goes_through() {
        let mut gate = Clocked::new(None, Some(600));
        for _ in 0..10 {
            gate.ask(100, &answered(1));
        }
        assert!(gate.elapsed() < 2.0, "{}", gate.elapsed());
        gate.ask(1_000_000, &answered(1));
        assert!(gate.elapsed() < 60.0, "{}", gate.elapsed());
    }

    #[test]
    fn the_window_grows_by_one_a_round_and_halves_once_for_one_overload() {
        let mut gate = Clocked::new(None, None);
        assert_eq!(gate.window(), 8);
        gate.ask(1, &answered(1));
        assert_eq!(gate.window(), 9, "fast to begin with");
        (0..9).for_each(|_| gate.enter(1));
        assert_eq!(
            gate.state.enter(1, gate.now),
            Err(None),
            "no more at a time"
        );
        let (since, full) = (gate.now, Err(TeacherError::Server(503)));
        gate.now += Duration::from_secs(1);
        for _ in 0..9 {
            gate.state.learn(1, since, &full, gate.now);
            gate.state.under_way -= 1;
        }
        assert_eq!(gate.window(), 4, "one overload, nine that met it");
        (0..5).for_each(|_| gate.ask(1, &answered(1)));
        assert_eq!(gate.window(), 5, "one more after a round");
        (0..9).for_each(|_| gate.ask(1, &full));
        assert_eq!(gate.window(), 1);
        gate.enter(1);
    }

    #[test]
    fn everybody_waits_as_long_as_the_endpoint_asks() {
        let mut gate = Clocked::new(None, None);
        let wait = Some(Duration::from_secs(7));
        gate.ask(1, &Err(TeacherError::RateLimited { retry_after: wait }));
        gate.enter(1);
        assert!((7.0..7.1).contains(&gate.elapsed()), "{}", gate.elapsed());
    }

    #[tokio::test]
    async fn whoever_waits_is_let_in_when_another_leaves() {
        let gate = Gate::new(Limits::default());
        let mut passes = Vec::new();
        for _ in 0..8 {
            passes.push(gate.enter(1).await);
        }
        let (last, waiting) = (passes.pop(), gate.enter(1));
        let left = async move { drop(last) };
        let (pass, ()) = tokio::join!(waiting, left);
        assert_eq!(gate.state().under_way, 8);
        drop((pass, passes));
        assert_eq!(gate.state().under_way, 0);
    }
}
