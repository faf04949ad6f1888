//! Where pairs of trajectories diverge, for the pages of a pair after its first one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::align::Divergence;

/// Maximum number of pairs that are kept, the newest ones.
const MAX_PAIRS: usize = 256;

/// A trajectory of an index: the id of the index, and the number of the trajectory there.
pub(crate) type Indexed = (u64, u64);

/// What was found, by pair. The index of a source that has changed has another id, so an old divergence is never used for it.
#[derive(Default)]
pub(crate) struct Divergences(Mutex<VecDeque<([Indexed; 2], Divergence)>>);

impl Divergences {
    /// The divergence of a pair, which `find` finds if it is not known.
    ///
    /// # Errors
    /// Those of `find`, which are not kept.
    pub(crate) fn get<E>(
        &self,
        pair: [Indexed; 2],
        find: impl FnOnce() -> Result<Divergence, E>,
    ) -> Result<Divergence, E> {
        if let Some(known) = self.known(pair) {
            return Ok(known);
        }
        // Not locked: this takes seconds for a long pair.
        let found = find()?;
        let mut all = self.lock();
        if all.len() == MAX_PAIRS {
            all.pop_front();
        }
        all.push_back((pair, found));
        Ok(found)
    }

    fn known(&self, pair: [Indexed; 2]) -> Option<Divergence> {
        let all = self.lock();
        let known = all.iter().find(|(one, _)| *one == pair);
        known.map(|(_, divergence)| *divergence)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<([Indexed; 2], Divergence)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_searched_once_as_long_as_it_is_kept() {
        let known = Divergences::default();
        let mut searched = 0;
        let mut get = |pair| {
            let find = || {
                searched += 1;
                Ok::<_, ()>(Divergence::default())
            };
            known.get(pair, find).unwrap();
            searched
        };
        let pair = |index| [(index, 1), (0, 2)];
        assert_eq!(get(pair(0)), 1);
        assert_eq!(get(pair(0)), 1);
        // The other way round, and of another index.
        assert_eq!(get([(0, 2), (0, 1)]), 2);
        assert_eq!(get(pair(1)), 3);
        let others = MAX_PAIRS as u64;
        for index in 2..others {
            get(pair(index));
        }
        // The first pair was dropped, and the newest ones are kept.
        assert_eq!(get(pair(others)), others + 2);
        assert_eq!(get(pair(others - 1)), others + 2);
        assert_eq!(get(pair(0)), others + 3);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let (known, pair) = (Divergences::default(), [(0, 1), (0, 2)]);
        assert_eq!(known.get(pair, || Err("unreadable")), Err("unreadable"));
        let found = known.get(pair, || Ok::<_, &str>(Divergence::default()));
        assert_eq!(found, Ok(Divergence::default()));
    }
}
