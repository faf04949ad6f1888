//! How many units are in work at the same time: a given number, or what endpoint, cores, memory and budget allow.
//!
//! Without a given number, a unit whose request an endpoint is answering needs nothing of this machine but memory.
//! Only the others count: they run cells, or wait for a core, the endpoint or the budget. There are a few more of
//! them than cores, so that a reply finds its core busy and an endpoint finds the next request ready. The number of
//! requests in flight is up to the models, which adapt it to their endpoint.

use std::time::{Duration, Instant};

use pybench_types::memory;

use super::cores;
use crate::requests::{Bottleneck, RequestCounts};
use crate::{BudgetCap, Spent};

/// Memory of a session that has read a table and drawn a chart (docs/benchmarks/rollout.md), until there are enough of
/// them to tell.
const SESSION_BYTES: u64 = 64 << 20;
/// Units in work whose mean memory is taken for that of all.
const MIN_UNITS: u64 = 64;
/// The least that a session is taken for.
const MIN_SESSION_BYTES: u64 = 16 << 20;
/// One part in this many of the free memory stays free.
const RESERVE_SHARE: u64 = 2;
/// How often the free memory is read again.
const MEMORY_INTERVAL: Duration = Duration::from_millis(500);
/// Units in work until the first one is done and shows what a unit costs, if there is a budget.
const UNITS_OF_UNKNOWN_COST: usize = 8;

/// Decides whether another unit may start.
pub(crate) struct Admission {
    /// The given number of units in work.
    given: Option<usize>,
    /// Units that are not waiting for a reply.
    busy: usize,
    memory: FreeMemory,
    budget: BudgetPace,
}

impl Admission {
    /// `spent` is what the run has spent so far.
    pub(crate) fn new(given: Option<usize>, cap: BudgetCap, spent: Spent) -> Self {
        Self {
            given: given.map(|given| given.max(1)),
            busy: cores() + cores().div_ceil(2),
            memory: FreeMemory::new(memory::available()),
            budget: BudgetPace {
                cap,
                before: spent,
                done: 0,
            },
        }
    }

    /// Counts a unit that is done.
    pub(crate) fn done(&mut self) {
        self.budget.done += 1;
    }

    /// What keeps another unit from starting while `units` are in work; `None` if it may start. `spent` reads what
    /// the run has spent.
    pub(crate) fn refuses<E>(
        &mut self,
        units: usize,
        requests: RequestCounts,
        spent: impl FnOnce() -> Result<Spent, E>,
    ) -> Result<Option<Bottleneck>, E> {
        if let Some(given) = self.given {
            return Ok((units >= given).then_some(Bottleneck::Recipe));
        }
        let waits = requests.bottleneck();
        if units.saturating_sub(requests.in_flight) >= self.busy {
            return Ok(Some(waits.unwrap_or(Bottleneck::Cores)));
        }
        if units < self.busy {
            return Ok(None);
        }
        if !self.memory.allows(units) {
            return Ok(Some(Bottleneck::Memory));
        }
        let affordable = self.budget.cap == BudgetCap::default()
            || self.budget.allows(units as u64 + 1, spent()?);
        Ok((!affordable).then_some(Bottleneck::Budget))
    }
}

/// The number of units that memory allows, each with a session.
struct FreeMemory {
    /// Free memory at the start, and what has to stay free of it; `None` if it is unknown.
    start: Option<(u64, u64)>,
    /// When the free memory was last read, and how many units it allows.
    seen: Option<(Instant, u64)>,
}

impl FreeMemory {
    fn new(available: Option<u64>) -> Self {
        Self {
            start: available.map(|free| (free, free / RESERVE_SHARE)),
            seen: None,
        }
    }

    /// Whether another unit may join the `units` in work.
    fn allows(&mut self, units: usize) -> bool {
        let Some((free, reserve)) = self.start else {
            return true;
        };
        let recent = |(at, _): &(Instant, u64)| at.elapsed() < MEMORY_INTERVAL;
        let allowed = match self.seen.filter(recent) {
            Some((_, allowed)) => allowed,
            None => {
                let now = memory::available().unwrap_or(free);
                let allowed = allowed(units as u64, free, now, reserve);
                self.seen = Some((Instant::now(), allowed));
                allowed
            }
        };
        (units as u64) < allowed
    }
}

/// The number of units that memory allows while there are `units`, which have taken what was free at the start and is
/// not `now`. Each is allowed half more than the mean, since some have not taken their memory yet.
fn allowed(units: u64, free: u64, now: u64, reserve: u64) -> u64 {
    if now < reserve {
        return 0;
    }
    let each = match units >= MIN_UNITS {
        true => (free.saturating_sub(now) * 3 / 2 / units).max(MIN_SESSION_BYTES),
        false => SESSION_BYTES,
    };
    (free - reserve) / each
}

/// Keeps units from starting that the budget could not finish: each would pay for its first replies and leave
/// nothing.
struct BudgetPace {
    cap: BudgetCap,
    /// What the run had spent before the stage.
    before: Spent,
    /// Units of the stage that are done.
    done: u64,
}

impl BudgetPace {
    /// Whether what is left pays for this number of units at the mean cost of those that are done. Calls in flight
    /// count with their reserved amounts, so the mean is rather too high.
    fn allows(&self, units: u64, spent: Spent) -> bool {
        if self.done == 0 {
            return units <= UNITS_OF_UNKNOWN_COST as u64;
        }
        let pays = |cap: Option<u64>, spent: u64, before: u64| {
            let each = spent.saturating_sub(before).div_ceil(self.done);
            cap.is_none_or(|cap| cap.saturating_sub(spent) >= each.saturating_mul(units))
        };
        pays(self.cap.micro_usd, spent.micro_usd, self.before.micro_usd)
            && pays(self.cap.tokens, spent.tokens, self.before.tokens)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::requests::Requests;

    fn refuses(
        admission: &mut Admission,
        units: usize,
        requests: RequestCounts,
        spent: Spent,
    ) -> Option<Bottleneck> {
        let Ok(refused) = admission.refuses(units, requests, || Ok::<_, Infallible>(spent));
        refused
    }

    fn in_flight(count: usize) -> RequestCounts {
        let mut requests = RequestCounts::default();
        requests.in_flight = count;
        requests
    }

    #[test]
    fn units_that_wait_for_a_reply_need_no_core() {
        let mut admission = Admission::new(None, BudgetCap::default(), Spent::default());
        admission.memory = FreeMemory::new(None);
        let (busy, spent) = (admission.busy, Spent::default());
        assert!(busy > cores());
        let mut refused = |units, requests| refuses(&mut admission, units, requests, spent);
        assert_eq!(refused(busy - 1, in_flight(0)), None);
        assert_eq!(refused(busy, in_flight(0)), Some(Bottleneck::Cores));
        assert_eq!(refused(busy + 99, in_flight(100)), None);
        assert_eq!(refused(busy + 100, in_flight(100)), Some(Bottleneck::Cores));
        let requests = Requests::default();
        let _waiting = requests.waiting(Bottleneck::RateLimit);
        let waiting = *requests.subscribe().borrow();
        assert_eq!(refused(busy, waiting), Some(Bottleneck::RateLimit));
    }

    #[test]
    fn memory_bounds_the_units_whatever_the_endpoint_takes() {
        let mut admission = Admission::new(None, BudgetCap::default(), Spent::default());
        let units = admission.busy + 10;
        let free = units as u64 * SESSION_BYTES * RESERVE_SHARE / (RESERVE_SHARE - 1);
        admission.memory = FreeMemory::new(Some(free + RESERVE_SHARE));
        let spent = Spent::default();
        admission.memory.seen = Some((Instant::now(), units as u64));
        let mut refused = |units| refuses(&mut admission, units, in_flight(1000), spent);
        assert_eq!(refused(units), Some(Bottleneck::Memory));
        assert_eq!(refused(units - 1), None);
    }

    #[test]
    fn the_memory_of_a_session_is_measured_once_there_are_enough() {
        let (free, reserve) = (20 << 30, 10 << 30);
        assert_eq!(allowed(3, free, free, reserve), 160, "as usual");
        let taken = |each: u64| free - ((100 * each) << 20);
        assert_eq!(allowed(100, free, taken(20), reserve), 341);
        assert_eq!(allowed(100, free, taken(80), reserve), 85, "they grew");
        assert_eq!(allowed(100, free, free, reserve), 640, "the least");
        assert_eq!(allowed(100, free, reserve - 1, reserve), 0, "none is free");
    }

    #[test]
    fn a_budget_starts_no_unit_that_it_could_not_finish() {
        let cap = BudgetCap {
            micro_usd: Some(1000),
            tokens: None,
        };
        let spent = |micro_usd| Spent {
            micro_usd,
            ..Spent::default()
        };
        let mut admission = Admission::new(None, cap, spent(100));
        admission.memory = FreeMemory::new(None);
        let many = in_flight(1000);
        let few = admission.busy.max(UNITS_OF_UNKNOWN_COST);
        let refused = refuses(&mut admission, few, many, spent(100));
        assert_eq!(refused, Some(Bottleneck::Budget), "its cost is unknown");
        admission.done();
        admission.done();
        // Two units cost 50 each at most; 800 are left.
        let busy = admission.busy;
        let mut refused = |units| refuses(&mut admission, units, many, spent(200));
        assert_eq!(refused(busy.max(15)), None);
        assert_eq!(refused(busy.max(16)), Some(Bottleneck::Budget));
        assert_eq!(refused(0), None, "the last money is spent too");
    }

    #[test]
    fn a_given_number_is_all_that_counts() {
        let mut admission = Admission::new(Some(3), BudgetCap::default(), Spent::default());
        let mut refused = |units| refuses(&mut admission, units, in_flight(3), Spent::default());
        assert_eq!(refused(2), None);
        assert_eq!(refused(3), Some(Bottleneck::Recipe));
    }
}
