//! Places for sequences, each with the keys and values of what it last computed. A new prompt goes on
//! from the longest beginning that some place has already seen.

use crate::model::KvCache;

/// Shortest shared beginning that is worth a copy.
const WORTH: usize = 16;

/// One place.
#[derive(Debug)]
pub(super) struct Slot<T> {
    /// Of the first tokens of `ids`.
    pub(super) cache: KvCache,
    /// Tokens known: the prompt, then what was generated.
    pub(super) ids: Vec<i64>,
    /// The reply in progress.
    pub(super) work: Option<T>,
    /// When it was last given out.
    used: u64,
}

/// All places.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pub(super) all: Vec<Slot<T>>,
    clock: u64,
}

impl<T> Slot<T> {
    /// Tokens that are known and not computed.
    pub(super) fn pending(&self) -> usize {
        self.ids.len() - self.cache.len()
    }

    /// Tokens from the start that this place has computed and `prompt` begins with.
    fn shared(&self, prompt: &[i64]) -> usize {
        let seen = &self.ids[..self.cache.len()];
        seen.iter().zip(prompt).take_while(|(a, b)| a == b).count()
    }

    /// Forgets everything, for when the cache cannot be trusted.
    pub(super) fn reset(&mut self) {
        self.cache = KvCache::default();
        self.ids.clear();
        self.work = None;
    }
}

impl<T> Slots<T> {
    pub(super) fn new(count: usize) -> Self {
        let slot = |_| Slot {
            cache: KvCache::default(),
            ids: vec![],
            work: None,
            used: 0,
        };
        Self {
            all: (0..count).map(slot).collect(),
            clock: 0,
        }
    }

    /// Whether a place is free.
    pub(super) fn has_room(&self) -> bool {
        self.all.iter().any(|slot| slot.work.is_none())
    }

    /// Gives a free place to a prompt, with work that is told how many of its tokens need no computing
    /// (never the last: its logits are wanted). `None` where no place is free.
    pub(super) fn admit(&mut self, prompt: &[i64], work: impl FnOnce(usize) -> T) -> Option<usize> {
        let most = prompt.len().saturating_sub(1);
        let shared = |slot: &Slot<T>| slot.shared(prompt).min(most);
        let donor = (0..self.all.len()).max_by_key(|&i| shared(&self.all[i]))?;
        let reused = shared(&self.all[donor]);
        let goes_on = self.all[donor].work.is_none() && 2 * reused >= self.all[donor].ids.len();
        let free = (0..self.all.len()).filter(|&i| self.all[i].work.is_none());
        let place = match goes_on {
            true => donor,
            // The one unused for longest; the donor keeps what it has for the next.
            false => free.min_by_key(|&i| (i == donor && reused > 0, self.all[i].used))?,
        };
        let reused = match (place == donor, reused >= WORTH) {
            (true, _) => reused,
            (false, true) => {
                self.all[place].cache = self.all[donor].cache.prefix(reused);
                reused
            }
            (false, false) => 0,
        };
        self.clock += 1;
        let slot = &mut self.all[place];
        slot.cache.truncate(reused);
        slot.ids = prompt.to_vec();
        slot.work = Some(work(reused));
        slot.used = self.clock;
        Some(reused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(slots: &Slots<u32>, work: u32) -> usize {
        let found = slots.all.iter().position(|slot| slot.work == Some(work));
        found.unwrap()
    }

    #[test]
    fn the_oldest_free_place_is_taken() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.admit(&[1, 2], |_| 1), Some(0));
        assert_eq!(slots.admit(&[3], |_| 2), Some(0));
        assert!(!slots.has_room());
        assert_eq!(slots.admit(&[4], |_| 3), None);
        let first = place_of(&slots, 1);
        slots.all.iter_mut().for_each(|slot| slot.work = None);
        slots.admit(&[5], |_| 4);
        assert_eq!(place_of(&slots, 4), first);
    }

    #[test]
    fn nothing_is_shared_that_was_not_computed() {
        let mut slots = Slots::new(1);
        slots.admit(&[1, 2, 3], |_| 1);
        slots.all[0].work = None;
        // The prompt was known, but its client left before it was computed.
        assert_eq!(slots.admit(&[1, 2, 3, 4], |cached| cached as u32), Some(0));
        assert_eq!(slots.all[0].pending(), 4);
    }
}
