//! Agreement between two raters.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::interval::{DRAWS, Interval};

/// The agreement between two raters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Items that both rated.
    pub items: usize,
    /// Share of items on which they agree.
    pub agree: f64,
    /// Cohen's kappa: 0 is chance, 1 is perfect; `None` if a rater gives every item the same rating, since the other
    /// can then agree by chance only.
    pub kappa: Option<f64>,
    /// 95 % bootstrap interval of kappa, over clusters of items.
    pub interval: Option<Interval>,
}

/// Computes the agreement over pairs of ratings. Pairs with the same number in `cluster` are not independent.
/// `None` without pairs.
pub fn agreement(pairs: &[(bool, bool)], cluster: &[usize]) -> Option<Agreement> {
    if pairs.is_empty() {
        return None;
    }
    let mut groups = std::collections::BTreeMap::<usize, [f64; 4]>::new();
    for ((a, b), cluster) in pairs.iter().zip(cluster) {
        groups.entry(*cluster).or_default()[cell(*a, *b)] += 1.0;
    }
    let groups: Vec<_> = groups.into_values().collect();
    let table = total(groups.iter());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let draw = |_| {
        let picks = (0..groups.len()).map(|_| &groups[rng.random_range(0..groups.len())]);
        kappa(&total(picks))
    };
    let mut drawn: Vec<f64> = (0..DRAWS).filter_map(draw).collect();
    drawn.sort_by(f64::total_cmp);
    let kappa = kappa(&table);
    let at = |share: f64| drawn[((drawn.len() - 1) as f64 * share).round() as usize];
    // Kappa is undefined for draws in which a rater has only one rating. If there are many such draws, the others are a
    // biased sample.
    let enough = kappa.is_some() && drawn.len() * 10 >= DRAWS * 9;
    Some(Agreement {
        items: pairs.len(),
        agree: (table[0] + table[3]) / pairs.len() as f64,
        kappa,
        interval: enough.then(|| Interval {
            low: at(0.025),
            high: at(0.975),
        }),
    })
}

fn cell(a: bool, b: bool) -> usize {
    usize::from(a) * 2 + usize::from(b)
}

fn total<'a>(groups: impl Iterator<Item = &'a [f64; 4]>) -> [f64; 4] {
    groups.fold([0.0; 4], |mut sum, group| {
        sum.iter_mut().zip(group).for_each(|(s, g)| *s += g);
        sum
    })
}

fn kappa([nn, ny, yn, yy]: &[f64; 4]) -> Option<f64> {
    let n = nn + ny + yn + yy;
    let observed = (nn + yy) / n;
    let chance = ((yn + yy) * (ny + yy) + (nn + ny) * (nn + yn)) / (n * n);
    let sums = [nn + ny, yn + yy, nn + yn, ny + yy];
    let is_defined = sums.iter().all(|ratings| *ratings > 0.0);
    is_defined.then(|| (observed - chance) / (1.0 - chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kappa_matches_the_textbook_example() {
        // A common textbook example: 20, 5, 10, 15.
        let pairs: Vec<_> = [
            ((true, true), 20),
            ((true, false), 5),
            ((false, true), 10),
            ((false, false), 15),
        ]
        .iter()
        .flat_map(|(pair, times)| std::iter::repeat_n(*pair, *times))
        .collect();
        let cluster: Vec<usize> = (0..pairs.len()).collect();
        let found = agreement(&pairs, &cluster).unwrap();
        assert!((found.kappa.unwrap() - 0.4).abs() < 1e-12 && (found.agree - 0.7).abs() < 1e-12);
        let interval = found.interval.unwrap();
        assert!(interval.low < 0.4 && 0.4 < interval.high && interval.low > 0.0);
        assert_eq!(agreement(&[], &[]), None);
        let constant = agreement(&[(true, true); 5], &[0, 1, 2, 3, 4]).unwrap();
        assert!(constant.kappa.is_none() && constant.agree == 1.0);
        let pairs = [(true, true), (false, true), (true, true), (false, true)];
        let constant = agreement(&pairs, &[0, 1, 2, 3]).unwrap();
        assert_eq!((constant.kappa, constant.interval), (None, None));
        assert_eq!(constant.agree, 0.5);
    }
}
