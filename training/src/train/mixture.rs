//! Several sources as one: which documents an epoch sees, and what the mixture is made of.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::data::Facts;

/// A source's part in the mixture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// What the source is called.
    pub source: String,
    /// How often its documents are seen in an epoch.
    pub weight: f64,
    /// Its rows.
    pub records: usize,
    /// Documents made of them.
    pub documents: usize,
    /// Their tokens.
    pub tokens: usize,
    /// Their trained tokens.
    pub trained: usize,
    /// Tokens that did not fit.
    pub lost: usize,
    /// Part of the trained tokens of an epoch.
    pub share: f64,
}

/// The shares of sources with their names and weights.
pub(super) fn shares<'a>(
    sources: impl Iterator<Item = (String, f64, &'a Facts)> + Clone,
) -> Vec<Share> {
    let seen = |weight: f64, facts: &Facts| weight * facts.trained as f64;
    let all: f64 = sources
        .clone()
        .map(|(_, weight, facts)| seen(weight, facts))
        .sum();
    let share = |(source, weight, facts): (String, f64, &Facts)| Share {
        source,
        weight,
        records: facts.records,
        documents: facts.documents,
        tokens: facts.tokens,
        trained: facts.trained,
        lost: facts.overflow.lost,
        share: seen(weight, facts) / all.max(1.0),
    };
    sources.map(share).collect()
}

/// The shares as a table.
pub(super) fn table(shares: &[Share]) -> String {
    let width = shares.iter().map(|s| s.source.chars().count()).max();
    let width = width.unwrap_or(0).clamp(6, 60);
    let mut out = format!(
        "{:<width$} {:>9} {:>9} {:>13} {:>13} {:>7} {:>7}\n",
        "source", "rows", "documents", "tokens", "trained", "weight", "share"
    );
    for s in shares {
        out += &format!(
            "{:<width$} {:>9} {:>9} {:>13} {:>13} {:>7} {:>6.1}%\n",
            s.source,
            s.records,
            s.documents,
            s.tokens,
            s.trained,
            s.weight,
            100.0 * s.share
        );
    }
    out.pop();
    out
}

/// How often each of `count` documents of a source is seen in an epoch, as numbers of documents. Of a
/// fraction every epoch takes others, until all have had their turn.
pub(super) fn chosen(count: usize, weight: f64, seed: u64, epoch: u64) -> Vec<usize> {
    let whole = weight.floor() as usize;
    let mut all: Vec<usize> = (0..whole).flat_map(|_| 0..count).collect();
    let part = (count as f64 * weight.fract()).round() as usize;
    if part > 0 {
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let start = (epoch as usize).wrapping_mul(part) % count;
        all.extend((start..start + part).map(|place| order[place % count]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn weights_are_kept_and_fractions_take_turns() {
        assert_eq!(chosen(4, 1.0, 9, 3), [0, 1, 2, 3]);
        assert_eq!(chosen(3, 2.0, 9, 0), [0, 1, 2, 0, 1, 2]);
        assert!(chosen(5, 0.0, 9, 0).is_empty() && chosen(0, 0.5, 9, 0).is_empty());
        let epoch = |epoch| chosen(100, 0.25, 9, epoch);
        assert_eq!(epoch(0), epoch(0));
        let seen: BTreeSet<usize> = (0..4).flat_map(epoch).collect();
        assert_eq!(seen.len(), 100);
        assert_ne!(chosen(100, 0.25, 9, 0), chosen(100, 0.25, 10, 0));
    }

    #[test]
    fn shares_are_of_trained_tokens() {
        let facts = |trained| Facts {
            trained,
            ..Facts::default()
        };
        let (one, two) = (facts(100), facts(300));
        let all = [("a".to_owned(), 3.0, &one), ("b".to_owned(), 1.0, &two)];
        let shares = shares(all.into_iter());
        assert_eq!((shares[0].share, shares[1].share), (0.5, 0.5));
        assert!(
            table(&shares)
                .lines()
                .all(|line| line.len() == table(&shares).lines().next().unwrap().len())
        );
    }
}
