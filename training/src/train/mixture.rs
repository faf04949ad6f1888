//! The mixture of sources: the documents of an epoch, and the share of each source.

use pybench_training_data::TokenStats;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// The contribution of a source to the mixture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceShare {
    pub source: String,
    /// How often each document occurs in an epoch.
    pub weight: f64,
    pub records: usize,
    pub documents: usize,
    pub tokens: usize,
    /// Number of trained tokens.
    pub trained: usize,
    /// Number of tokens lost to `train.overflow`.
    pub lost: usize,
    /// Number of trained tokens among these.
    pub lost_trained: usize,
    /// Fraction of the trained tokens of an epoch.
    pub share: f64,
}

/// The shares of sources, given by name, weight and statistics.
pub(super) fn source_shares<'a>(
    sources: impl Iterator<Item = (String, f64, &'a TokenStats)> + Clone,
) -> Vec<SourceShare> {
    let trained = |weight: f64, stats: &TokenStats| weight * stats.trained as f64;
    let all: f64 = sources
        .clone()
        .map(|(_, weight, stats)| trained(weight, stats))
        .sum();
    let share = |(source, weight, stats): (String, f64, &TokenStats)| SourceShare {
        source,
        weight,
        records: stats.records,
        documents: stats.documents,
        tokens: stats.tokens,
        trained: stats.trained,
        lost: stats.overflow.lost,
        lost_trained: stats.overflow.lost_trained,
        share: trained(weight, stats) / all.max(1.0),
    };
    sources.map(share).collect()
}

pub(super) fn mixture_table(shares: &[SourceShare]) -> String {
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

/// The indices of the documents of a source in an epoch. A fractional weight selects other documents in each
/// epoch, until all have been used.
pub(super) fn sample_documents(count: usize, weight: f64, seed: u64, epoch: u64) -> Vec<usize> {
    let whole = weight.floor() as usize;
    let mut all: Vec<usize> = (0..whole).flat_map(|_| 0..count).collect();
    let part = (count as f64 * weight.fract()).round() as usize;
    if part > 0 {
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let start = (epoch as usize).wrapping_mul(part) % count;
        all.extend((start..start + part).map(|index| order[index % count]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn weights_are_kept_and_fractions_rotate() {
        assert_eq!(sample_documents(4, 1.0, 9, 3), [0, 1, 2, 3]);
        assert_eq!(sample_documents(3, 2.0, 9, 0), [0, 1, 2, 0, 1, 2]);
        assert!(
            sample_documents(5, 0.0, 9, 0).is_empty() && sample_documents(0, 0.5, 9, 0).is_empty()
        );
        let epoch = |epoch| sample_documents(100, 0.25, 9, epoch);
        assert_eq!(epoch(0), epoch(0));
        let seen: BTreeSet<usize> = (0..4).flat_map(epoch).collect();
        assert_eq!(seen.len(), 100);
        assert_ne!(
            sample_documents(100, 0.25, 9, 0),
            sample_documents(100, 0.25, 10, 0)
        );
    }

    #[test]
    fn shares_are_fractions_of_trained_tokens() {
        let stats = |trained| TokenStats {
            trained,
            ..TokenStats::default()
        };
        let (one, two) = (stats(100), stats(300));
        let all = [("a".to_owned(), 3.0, &one), ("b".to_owned(), 1.0, &two)];
        let shares = source_shares(all.into_iter());
        assert_eq!((shares[0].share, shares[1].share), (0.5, 0.5));
        assert!(
            mixture_table(&shares)
                .lines()
                .all(|line| line.len() == mixture_table(&shares).lines().next().unwrap().len())
        );
    }
}
