//! Best-fit packing of documents into rows of one length.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Documents that are packed together. Bounds the work, and keeps the order random.
const WINDOW: usize = 1024;

/// The documents of each row.
pub type Bins = Vec<Vec<usize>>;

/// Packs documents of these lengths into rows of at most `capacity` tokens. Seed and epoch determine the
/// order. Empty documents and those longer than `capacity` are left out.
pub fn pack(lengths: &[usize], capacity: usize, seed: u64, epoch: u64) -> Bins {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(epoch);
    let mut order: Vec<usize> = (0..lengths.len())
        .filter(|&document| (1..=capacity).contains(&lengths[document]))
        .collect();
    order.shuffle(&mut rng);
    let mut bins: Bins = order
        .chunks(WINDOW)
        .flat_map(|window| best_fit(window, lengths, capacity))
        .collect();
    bins.shuffle(&mut rng);
    bins
}

/// Packs the longest document first, each into the fullest row with enough room.
fn best_fit(window: &[usize], lengths: &[usize], capacity: usize) -> Bins {
    let mut window = window.to_vec();
    window.sort_by_key(|&document| (std::cmp::Reverse(lengths[document]), document));
    let mut bins: Bins = vec![];
    let mut by_room: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for document in window {
        let length = lengths[document];
        let room = by_room.range(length..).next().map(|(&room, _)| room);
        let (bin, room) = match room {
            Some(room) => match by_room.get_mut(&room).and_then(Vec::pop) {
                Some(bin) => (bin, room),
                None => continue,
            },
            None => {
                bins.push(vec![]);
                (bins.len() - 1, capacity)
            }
        };
        if by_room.get(&room).is_some_and(Vec::is_empty) {
            by_room.remove(&room);
        }
        bins[bin].push(document);
        by_room.entry(room - length).or_default().push(bin);
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_document_is_in_exactly_one_row(
            lengths in proptest::collection::vec(0usize..200, 0..3000),
            seed: u64,
        ) {
            let bins = pack(&lengths, 128, seed, 0);
            let mut seen: Vec<usize> = bins.concat();
            seen.sort_unstable();
            let fitting = |&i: &usize| (1..=128).contains(&lengths[i]);
            let wanted: Vec<usize> = (0..lengths.len()).filter(fitting).collect();
            prop_assert_eq!(seen, wanted);
            for bin in &bins {
                prop_assert!(bin.iter().map(|&i| lengths[i]).sum::<usize>() <= 128);
            }
        }
    }

    #[test]
    fn rows_are_filled() {
        let bins = pack(&[70, 60, 58, 40, 22, 6], 128, 1, 0);
        assert_eq!(bins.len(), 2, "{bins:?}");
    }

    #[test]
    fn seed_and_epoch_determine_the_order() {
        let lengths: Vec<usize> = (0..500).map(|i| 1 + i * 7 % 100).collect();
        assert_eq!(pack(&lengths, 128, 3, 1), pack(&lengths, 128, 3, 1));
        assert_ne!(pack(&lengths, 128, 3, 1), pack(&lengths, 128, 3, 2));
        assert_ne!(pack(&lengths, 128, 3, 1), pack(&lengths, 128, 4, 1));
    }
}
