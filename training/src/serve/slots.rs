//! Slots for sequences, each with a key-value cache. A new prompt reuses the longest prefix that any slot has
//! computed.
//!
//! The slots of `embedded` are other ones: there one request runs at a time and llama.cpp owns the cache, here many
//! replies are in progress and each slot owns its cache.

use super::decoder::SequenceCache;

/// The shortest shared prefix that is worth copying to another slot.
const MIN_COPIED_TOKENS: usize = 16;

#[derive(Debug)]
pub(super) struct Slot<T, C> {
    /// Keys and values of the first tokens of `ids`.
    pub(super) cache: C,
    /// The prompt and the generated tokens.
    pub(super) ids: Vec<i64>,
    /// The reply in progress.
    pub(super) work: Option<T>,
    /// Value of the clock at the last use.
    last_used: u64,
}

#[derive(Debug)]
pub(super) struct Slots<T, C> {
    pub(super) all: Vec<Slot<T, C>>,
    clock: u64,
}

impl<T, C: SequenceCache> Slot<T, C> {
    /// Number of tokens that have not been computed.
    pub(super) fn pending(&self) -> usize {
        self.ids.len() - self.cache.len()
    }

    /// Length of the computed prefix that this slot shares with `prompt`.
    fn shared(&self, prompt: &[i64]) -> usize {
        let seen = &self.ids[..self.cache.len()];
        seen.iter().zip(prompt).take_while(|(a, b)| a == b).count()
    }

    /// Clears the slot after a failure.
    pub(super) fn reset(&mut self) {
        self.cache = C::default();
        self.ids.clear();
        self.work = None;
    }
}

impl<T, C: SequenceCache> Slots<T, C> {
    pub(super) fn new(count: usize) -> Self {
        let slot = |_| Slot {
            cache: C::default(),
            ids: vec![],
            work: None,
            last_used: 0,
        };
        Self {
            all: (0..count).map(slot).collect(),
            clock: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.all.iter().any(|slot| slot.work.is_none())
    }

    /// Assigns a free slot to a prompt. `work` gets the number of cached tokens; the last token is never cached,
    /// because its logits are needed. `None` if no slot is free.
    pub(super) fn admit(&mut self, prompt: &[i64], work: impl FnOnce(usize) -> T) -> Option<usize> {
        let max = prompt.len().saturating_sub(1);
        let shared = |slot: &Slot<T, C>| slot.shared(prompt).min(max);
        let donor = (0..self.all.len()).max_by_key(|&i| shared(&self.all[i]))?;
        let reused = shared(&self.all[donor]);
        let continues = self.all[donor].work.is_none() && 2 * reused >= self.all[donor].ids.len();
        let free = (0..self.all.len()).filter(|&i| self.all[i].work.is_none());
        let index = match continues {
            true => donor,
            // The least recently used slot; the donor keeps its cache if possible.
            false => free.min_by_key(|&i| (i == donor && reused > 0, self.all[i].last_used))?,
        };
        let reused = match (index == donor, reused >= MIN_COPIED_TOKENS) {
            (true, _) => reused,
            (false, true) => {
                self.all[index].cache = self.all[donor].cache.prefix(reused);
                reused
            }
            (false, false) => 0,
        };
        self.clock += 1;
        let slot = &mut self.all[index];
        slot.cache.truncate(reused);
        slot.ids = prompt.to_vec();
        slot.work = Some(work(reused));
        slot.last_used = self.clock;
        Some(reused)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::KvCache;

    type Slots<T> = super::Slots<T, KvCache>;

    fn slot_of(slots: &Slots<u32>, work: u32) -> usize {
        let found = slots.all.iter().position(|slot| slot.work == Some(work));
        found.unwrap()
    }

    #[test]
    fn the_least_recently_used_slot_is_taken() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.admit(&[1, 2], |_| 1), Some(0));
        assert_eq!(slots.admit(&[3], |_| 2), Some(0));
        assert!(!slots.has_room());
        assert_eq!(slots.admit(&[4], |_| 3), None);
        let first = slot_of(&slots, 1);
        slots.all.iter_mut().for_each(|slot| slot.work = None);
        slots.admit(&[5], |_| 4);
        assert_eq!(slot_of(&slots, 4), first);
    }

    #[test]
    fn only_computed_tokens_are_shared() {
        let mut slots = Slots::new(1);
        slots.admit(&[1, 2, 3], |_| 1);
        slots.all[0].work = None;
        // The client of the first prompt disconnected before the prompt was computed.
        assert_eq!(slots.admit(&[1, 2, 3, 4], |cached| cached as u32), Some(0));
        assert_eq!(slots.all[0].pending(), 4);
    }
}
