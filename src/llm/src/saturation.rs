//! Finds out where an endpoint gets no faster with more requests in flight.
//!
//! A server that computes all requests at once accepts more than it can use: each request then takes longer, and
//! nothing says so. The throughput of a round of replies is the mean number of requests in flight times the mean
//! speed of one of them in tokens per second. It does not depend on pauses between requests.

use std::time::Duration;

/// Minimum number of replies whose mean is compared.
const MIN_REPLIES: usize = 16;
/// How many times as many requests must be in flight before throughputs are compared.
const MIN_RATIO: f64 = 1.5;
/// A request that gets this share of the speed that one had with fewer in flight takes no longer.
const SAME_SPEED: f64 = 0.8;
/// An endpoint is saturated if this share of the additional requests, or less, is additional throughput.
const SATURATED_GAIN: f64 = 0.15;
/// Rounds without growth after which a saturated endpoint is tested again.
const HELD_ROUNDS: usize = 20;

/// What the number of requests in flight should do after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// It may grow; fast if replies show that the endpoint computes more requests in the same time.
    Open { parallel: bool },
    /// It is not used, or the endpoint is saturated.
    Hold,
    /// It goes back to this number, which is as fast.
    Back(usize),
}

/// Compares the throughput of an endpoint with more and fewer requests in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Saturation {
    round: Round,
    /// The round with fewer requests in flight that later ones are compared with.
    before: Option<Throughput>,
    /// Most requests in flight in the previous round.
    peak: usize,
    /// Rounds until the window may grow again.
    held: usize,
}

/// The replies since the last comparison.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Number of replies to wait for.
    size: usize,
    replies: usize,
    /// Sum over the replies of requests in flight when they were sent.
    in_flight: usize,
    peak: usize,
    tokens: u64,
    seconds: f64,
}

#[derive(Clone, Copy, Debug)]
struct Throughput {
    /// Mean number of requests in flight.
    in_flight: f64,
    tokens_per_second: f64,
}

impl Saturation {
    /// Takes a reply of `tokens` tokens that took `took`, sent as one of `in_flight` requests. At most `window` are
    /// allowed.
    pub(super) fn reply(
        &mut self,
        window: usize,
        in_flight: usize,
        tokens: u64,
        took: Duration,
    ) -> Growth {
        let parallel = self.is_parallel(in_flight, tokens, took);
        let round = &mut self.round;
        if round.replies == 0 {
            round.size = window.max(MIN_REPLIES);
        }
        round.replies += 1;
        round.in_flight += in_flight;
        round.peak = round.peak.max(in_flight);
        // Replies without counted tokens count as equal.
        round.tokens += tokens.max(1);
        round.seconds += took.as_secs_f64();
        // In one round it doubles, or quadruples.
        let reach = if parallel { 4 } else { 2 };
        let used = reach * self.peak.max(round.peak) > window;
        if round.replies >= round.size
            && let Some(back) = self.end_round()
        {
            return Growth::Back(back);
        }
        match used && self.held == 0 {
            true => Growth::Open { parallel },
            false => Growth::Hold,
        }
    }

    /// Whether this reply came as fast as those of an earlier round with clearly fewer requests in flight.
    fn is_parallel(&self, in_flight: usize, tokens: u64, took: Duration) -> bool {
        self.before.is_some_and(|before| {
            let alone = before.tokens_per_second / before.in_flight;
            in_flight as f64 >= MIN_RATIO * before.in_flight
                && tokens.max(1) as f64 >= SAME_SPEED * alone * took.as_secs_f64()
        })
    }

    /// Compares the round with an earlier one; a number of requests that is as fast if the endpoint is saturated.
    fn end_round(&mut self) -> Option<usize> {
        let round = std::mem::take(&mut self.round);
        self.peak = round.peak;
        self.held = self.held.saturating_sub(1);
        let now = round.throughput()?;
        let Some(before) = self.before else {
            self.before = Some(now);
            return None;
        };
        let ratio = now.in_flight / before.in_flight;
        if ratio < MIN_RATIO {
            // Fewer requests than before are the new basis.
            self.before = Some(if ratio < 1.0 { now } else { before });
            return None;
        }
        let gain = now.tokens_per_second / before.tokens_per_second;
        self.before = Some(now);
        if gain - 1.0 > SATURATED_GAIN * (ratio - 1.0) {
            return None;
        }
        self.before = None;
        self.held = HELD_ROUNDS;
        Some(before.in_flight.ceil() as usize)
    }
}

impl Round {
    /// `None` if the replies took no time.
    fn throughput(&self) -> Option<Throughput> {
        let in_flight = self.in_flight as f64 / self.replies as f64;
        (self.seconds > 0.0).then(|| Throughput {
            in_flight,
            tokens_per_second: in_flight * self.tokens as f64 / self.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `rounds` windows of requests to an endpoint that serves `parallel` requests without slowing down.
    /// Returns the windows, which double per round, or quadruple, as long as they may grow.
    fn windows(parallel: usize, demand: usize, rounds: usize) -> Vec<usize> {
        let (mut saturation, mut window, mut seen) = (Saturation::default(), 16, Vec::new());
        for _ in 0..rounds {
            let in_flight = window.min(demand);
            let took = Duration::from_secs_f64((in_flight as f64 / parallel as f64).max(1.0));
            for _ in 0..in_flight {
                match saturation.reply(window, in_flight, 50, took) {
                    Growth::Open { parallel } => window += if parallel { 3 } else { 1 },
                    Growth::Hold => {}
                    Growth::Back(back) => window = back,
                }
            }
            seen.push(window);
        }
        seen
    }

    #[test]
    fn growth_stops_where_requests_only_take_longer() {
        let seen = windows(20, usize::MAX, 200);
        let later = &seen[10..];
        let (least, most) = (later.iter().min().unwrap(), later.iter().max().unwrap());
        assert!((15..=60).contains(least) && *most <= 160, "{seen:?}");
        let usual = later.iter().filter(|window| **window < 80).count();
        assert!(
            usual * 10 > later.len() * 8,
            "tested again only now and then: {seen:?}"
        );
    }

    #[test]
    fn growth_goes_on_while_throughput_grows_and_is_needed() {
        let seen = windows(usize::MAX, usize::MAX, 4);
        assert!(*seen.last().unwrap() >= 300, "{seen:?}");
        let seen = windows(usize::MAX, 20, 50);
        assert!(*seen.last().unwrap() <= 40, "{seen:?}");
    }
}
