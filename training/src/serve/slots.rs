//! Sequences with their key-value caches: those with a reply in progress, and earlier ones, whose prefixes are reused. A
//! new prompt reuses the longest prefix that any of them has computed.
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
    /// Replies in progress at once.
    max_active: usize,
    /// Tokens of all caches together, from which on the least recently used idle slot is dropped.
    max_tokens: usize,
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
}

impl<T, C: SequenceCache> Slots<T, C> {
    pub(super) fn new(max_active: usize, max_tokens: usize) -> Self {
        Self {
            all: vec![],
            max_active,
            max_tokens,
            clock: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let active = self.all.iter().filter(|slot| slot.work.is_some());
        active.count() < self.max_active
    }

    /// Assigns a slot to a prompt: an idle one that it continues, or a new one. `work` gets the number of cached tokens;
    /// the last token is never cached, because its logits are needed. `None` if there is no room.
    pub(super) fn admit(&mut self, prompt: &[i64], work: impl FnOnce(usize) -> T) -> Option<usize> {
        if !self.has_room() {
            return None;
        }
        let max = prompt.len().saturating_sub(1);
        let shared = |slot: &Slot<T, C>| slot.shared(prompt).min(max);
        let donor = (0..self.all.len()).max_by_key(|&i| shared(&self.all[i]));
        let donor = donor.map(|i| (i, shared(&self.all[i])));
        let continued = donor.filter(|&(i, reused)| {
            let slot = &self.all[i];
            slot.work.is_none() && 2 * reused >= slot.ids.len()
        });
        let (index, reused) = continued.unwrap_or_else(|| {
            // The donor keeps its cache.
            let copied = donor.filter(|&(_, reused)| reused >= MIN_COPIED_TOKENS);
            let cache =
                copied.map_or_else(C::default, |(i, reused)| self.all[i].cache.prefix(reused));
            self.all.push(Slot {
                cache,
                ids: vec![],
                work: None,
                last_used: 0,
            });
            (self.all.len() - 1, copied.map_or(0, |(_, reused)| reused))
        });
        self.clock += 1;
        let slot = &mut self.all[index];
        slot.cache.truncate(reused);
        slot.ids = prompt.to_vec();
        slot.work = Some(work(reused));
        slot.last_used = self.clock;
        Some(reused)
    }

    /// Drops idle slots, the least recently used first, until the caches are as small as they shall be.
    pub(super) fn evict(&mut self) {
        let tokens = |all: &[Slot<T, C>]| all.iter().map(|slot| slot.cache.len()).sum::<usize>();
        while tokens(&self.all) > self.max_tokens {
            let idle = (0..self.all.len()).filter(|&i| self.all[i].work.is_none());
            let Some(oldest) = idle.min_by_key(|&i| self.all[i].last_used) else {
                return;
            };
            self.all.swap_remove(oldest);
        }
    }

    /// Drops all slots and returns the replies that were in progress.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = T> {
        self.all.drain(..).filter_map(|slot| slot.work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of nothing but a length.
    #[derive(Debug, Default)]
    struct Length(usize);

    impl SequenceCache for Length {
        fn len(&self) -> usize {
            self.0
        }

        fn truncate(&mut self, length: usize) {
            self.0 = self.0.min(length);
        }

        fn prefix(&self, length: usize) -> Self {
            Self(self.0.min(length))
        }
    }

    type TestSlots = Slots<u32, Length>;

    /// Admits a prompt, computes it and ends its reply. Returns the number of cached tokens.
    fn finished(slots: &mut TestSlots, prompt: &[i64]) -> usize {
        let cached = slots.admit(prompt, |_| 1).unwrap();
        for slot in &mut slots.all {
            slot.cache.0 = slot.ids.len();
            slot.work = None;
        }
        slots.evict();
        cached
    }

    fn conversation(number: i64, length: usize) -> Vec<i64> {
        let own = (0..length as i64).map(|token| 1000 * number + token);
        own.collect()
    }

    #[test]
    fn only_so_many_replies_are_in_progress() {
        let mut slots = TestSlots::new(2, 100);
        assert_eq!(slots.admit(&[1, 2], |_| 1), Some(0));
        assert_eq!(slots.admit(&[3], |_| 2), Some(0));
        assert!(!slots.has_room());
        assert_eq!(slots.admit(&[4], |_| 3), None);
        slots.all[0].work = None;
        assert_eq!(slots.admit(&[4], |_| 3), Some(0));
        assert_eq!(slots.clear().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn conversations_outlive_their_replies_as_far_as_there_is_room() {
        let mut slots = TestSlots::new(1, 100);
        for number in 0..3 {
            assert_eq!(finished(&mut slots, &conversation(number, 30)), 0);
        }
        // All three are cached, and the second goes on.
        assert_eq!(finished(&mut slots, &conversation(1, 40)), 30);
        // With a fourth there is no room for the first, which was not used for longest.
        assert_eq!(finished(&mut slots, &conversation(3, 30)), 0);
        assert_eq!(finished(&mut slots, &conversation(1, 40)), 39);
        assert_eq!(finished(&mut slots, &conversation(0, 30)), 0);
    }

    #[test]
    fn replies_in_progress_are_never_dropped() {
        let mut slots = TestSlots::new(2, 10);
        for number in 0..2 {
            slots.admit(&conversation(number, 30), |_| 1);
        }
        slots.all.iter_mut().for_each(|slot| slot.cache.0 = 30);
        slots.evict();
        assert_eq!(slots.all.len(), 2);
    }

    #[test]
    fn only_computed_tokens_are_shared() {
        let mut slots = TestSlots::new(1, 100);
        slots.admit(&[1, 2, 3], |_| 1);
        slots.all[0].work = None;
        // The client of the first prompt disconnected before the prompt was computed.
        assert_eq!(slots.admit(&[1, 2, 3, 4], |cached| cached as u32), Some(0));
        assert_eq!(slots.all.last().unwrap().pending(), 4);
    }
}
