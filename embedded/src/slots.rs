//! Slots of the key-value cache, one per conversation. A new prompt reuses the longest prefix that any slot
//! has computed.

/// The shortest shared prefix that is worth copying to another slot.
const MIN_COPIED_TOKENS: usize = 16;

#[derive(Debug)]
pub(crate) struct Slots {
    all: Vec<Slot>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Slot {
    /// Tokens whose keys and values are in the cache.
    tokens: Vec<i32>,
    /// Number of tokens of the last prompt.
    prompt_len: usize,
    /// Value of the clock at the last use.
    last_used: u64,
}

/// Where a prompt is computed, and what it reuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The slot in which the prompt is computed.
    pub(crate) slot: usize,
    /// The slot whose prefix is reused; may be `slot` itself.
    pub(crate) source: usize,
    /// Tokens of that prefix; always fewer than the prompt has.
    pub(crate) reused: usize,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        let all = (0..count.max(1)).map(|_| Slot::default()).collect();
        Self { all, clock: 0 }
    }

    /// Chooses a slot for `prompt`: the one whose conversation it continues, else the least recently used. The
    /// last token is always computed, because its logits are needed.
    pub(crate) fn assign(&mut self, prompt: &[i32]) -> Assignment {
        let max = prompt.len().saturating_sub(1);
        let shared = |slot: &Slot| {
            let same = slot.tokens.iter().zip(prompt).take_while(|(a, b)| a == b);
            same.count().min(max)
        };
        let slots = 0..self.all.len();
        let source = slots.clone().max_by_key(|&i| shared(&self.all[i]));
        let source = source.unwrap_or_default();
        let reused = shared(&self.all[source]);
        // The next turn of a conversation begins with the whole last prompt, except for templates that
        // render its end differently once there is a reply. A shared system prompt alone is not enough:
        // two conversations would evict each other.
        let continues = reused > 0 && 8 * reused >= 7 * self.all[source].prompt_len;
        let slot = match continues {
            true => source,
            // Keep the source's cache if another slot is available.
            false => slots
                .min_by_key(|&i| (i == source && reused > 0, self.all[i].last_used))
                .unwrap_or_default(),
        };
        let reused = if slot == source || reused >= MIN_COPIED_TOKENS {
            reused
        } else {
            0
        };
        self.clock += 1;
        self.all[slot].last_used = self.clock;
        self.all[slot].prompt_len = prompt.len();
        self.all[slot].tokens = prompt[..reused].to_vec();
        Assignment {
            slot,
            source,
            reused,
        }
    }

    pub(crate) fn record_computed(&mut self, slot: usize, tokens: &[i32]) {
        self.all[slot].tokens.extend_from_slice(tokens);
    }

    /// Marks the cache of a slot as unusable.
    pub(crate) fn clear(&mut self, slot: usize) {
        self.all[slot].tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(slots: &mut Slots, prompt: &[i32]) -> Assignment {
        let assignment = slots.assign(prompt);
        slots.record_computed(assignment.slot, &prompt[assignment.reused..]);
        assignment
    }

    #[test]
    fn a_conversation_continues_in_its_slot() {
        let mut slots = Slots::new(2);
        let first: Vec<i32> = (0..40).collect();
        let second: Vec<i32> = (0..30).chain(100..140).collect();
        let a = run(&mut slots, &first);
        assert_eq!(a.reused, 0);
        // Another conversation with the same prefix copies it and leaves the first slot unchanged.
        let b = run(&mut slots, &second);
        assert_eq!((b.source, b.reused), (a.slot, 30));
        assert_ne!(b.slot, a.slot);
        for (prompt, assignment) in [(&first, a), (&second, b)] {
            let longer: Vec<i32> = prompt.iter().copied().chain([7, 8, 9]).collect();
            let next = run(&mut slots, &longer);
            assert_eq!((next.slot, next.source), (assignment.slot, assignment.slot));
            assert_eq!(next.reused, prompt.len());
        }
    }

    #[test]
    fn the_last_token_is_always_computed() {
        let mut slots = Slots::new(1);
        run(&mut slots, &[1, 2, 3]);
        assert_eq!(run(&mut slots, &[1, 2, 3]).reused, 2);
        assert_eq!(run(&mut slots, &[1]).reused, 0);
    }

    #[test]
    fn a_failed_slot_is_cleared() {
        let mut slots = Slots::new(1);
        let assignment = run(&mut slots, &[1, 2, 3]);
        slots.clear(assignment.slot);
        assert_eq!(run(&mut slots, &[1, 2, 3, 4]).reused, 0);
    }

    #[test]
    fn the_least_recently_used_slot_is_taken() {
        let mut slots = Slots::new(2);
        let a = run(&mut slots, &[1, 2]);
        let b = run(&mut slots, &[5, 6]);
        assert_ne!(a.slot, b.slot);
        assert_eq!(run(&mut slots, &[8, 9]).slot, a.slot);
    }
}
