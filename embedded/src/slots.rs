//! Places for conversations, each with the tokens whose keys and values it holds. A prompt goes on from
//! the longest beginning that some place has seen.

/// Shortest shared beginning that is worth a copy.
const WORTH: usize = 16;

/// All places.
#[derive(Debug)]
pub(crate) struct Slots {
    all: Vec<Slot>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Slot {
    /// Computed tokens, from the start.
    tokens: Vec<i32>,
    /// How many of them the last prompt had.
    prompt: usize,
    /// When it was last given out.
    used: u64,
}

/// Where a prompt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The sequence that it is computed in.
    pub(crate) slot: usize,
    /// The sequence whose beginning it shares; may be its own.
    pub(crate) from: usize,
    /// Tokens of that beginning; fewer than the prompt has.
    pub(crate) reused: usize,
}

impl Slots {
    /// That many, all empty.
    pub(crate) fn new(count: usize) -> Self {
        let all = (0..count.max(1)).map(|_| Slot::default()).collect();
        Self { all, clock: 0 }
    }

    /// A place for `prompt`: one that the prompt goes on from, else the one unused for longest. The last
    /// token is never taken as computed: what follows it is wanted.
    pub(crate) fn admit(&mut self, prompt: &[i32]) -> Place {
        let most = prompt.len().saturating_sub(1);
        let shared = |slot: &Slot| {
            let same = slot.tokens.iter().zip(prompt).take_while(|(a, b)| a == b);
            same.count().min(most)
        };
        let places = 0..self.all.len();
        let from = places.clone().max_by_key(|&i| shared(&self.all[i]));
        let from = from.unwrap_or_default();
        let reused = shared(&self.all[from]);
        // The next turn of a conversation begins with all that was asked before; a bit of slack for
        // templates that write the end of a prompt otherwise once there is a reply. To share a long
        // system prompt is not enough: two conversations would drive each other out.
        let goes_on = reused > 0 && 8 * reused >= 7 * self.all[from].prompt;
        let slot = match goes_on {
            true => from,
            // The one that is copied from keeps what it has, where there is another.
            false => places
                .min_by_key(|&i| (i == from && reused > 0, self.all[i].used))
                .unwrap_or_default(),
        };
        let reused = if slot == from || reused >= WORTH {
            reused
        } else {
            0
        };
        self.clock += 1;
        self.all[slot].used = self.clock;
        self.all[slot].prompt = prompt.len();
        self.all[slot].tokens = prompt[..reused].to_vec();
        Place { slot, from, reused }
    }

    /// These tokens were computed in that place.
    pub(crate) fn computed(&mut self, slot: usize, tokens: &[i32]) {
        self.all[slot].tokens.extend_from_slice(tokens);
    }

    /// Nothing of that place can be trusted.
    pub(crate) fn forget(&mut self, slot: usize) {
        self.all[slot].tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(slots: &mut Slots, prompt: &[i32]) -> Place {
        let place = slots.admit(prompt);
        slots.computed(place.slot, &prompt[place.reused..]);
        place
    }

    #[test]
    fn a_conversation_goes_on_where_it_was() {
        let mut slots = Slots::new(2);
        let first: Vec<i32> = (0..40).collect();
        let second: Vec<i32> = (0..30).chain(100..140).collect();
        let a = run(&mut slots, &first);
        assert_eq!(a.reused, 0);
        // Another conversation with the same beginning copies it and leaves the first one whole.
        let b = run(&mut slots, &second);
        assert_eq!((b.from, b.reused), (a.slot, 30));
        assert_ne!(b.slot, a.slot);
        for (prompt, place) in [(&first, a), (&second, b)] {
            let longer: Vec<i32> = prompt.iter().copied().chain([7, 8, 9]).collect();
            let next = run(&mut slots, &longer);
            assert_eq!((next.slot, next.from), (place.slot, place.slot));
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
    fn what_failed_is_forgotten() {
        let mut slots = Slots::new(1);
        let place = run(&mut slots, &[1, 2, 3]);
        slots.forget(place.slot);
        assert_eq!(run(&mut slots, &[1, 2, 3, 4]).reused, 0);
    }

    #[test]
    fn the_place_unused_for_longest_is_taken() {
        let mut slots = Slots::new(2);
        let a = run(&mut slots, &[1, 2]);
        let b = run(&mut slots, &[5, 6]);
        assert_ne!(a.slot, b.slot);
        assert_eq!(run(&mut slots, &[8, 9]).slot, a.slot);
    }
}
