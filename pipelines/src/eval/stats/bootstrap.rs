//! Intervals over tasks and seeds, where tasks that share a file are one observation.
//!
//! Clusters of tasks are drawn with replacement, each with its tasks and all their seeds. The seeds
//! of a task are not drawn with replacement once more: the spread of the task means holds their
//! spread already, and drawing again counts it twice (Davison and Hinkley 1997, §3.8; the simulation
//! prints what the interval then covers). What differs between seeds alone, on these very tasks, is
//! [`Clustered::over_seeds`].

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::interval::{Interval, Z, normal_cdf, student, wilson};

/// Draws of a bootstrap.
pub(super) const DRAWS: usize = 4_000;
/// Every interval is drawn from the same stream: equal records, equal bytes.
const SEED: u64 = 0x5079_4265_6e63_6821;

/// A mean over tasks, with intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clustered {
    /// Mean over tasks of the mean over seeds.
    pub mean: f64,
    /// Of the mean over tasks like these, each with seeds like these.
    pub over_tasks: Interval,
    /// Of the mean over other seeds of these very tasks; `None` unless each task has two seeds.
    pub over_seeds: Option<Interval>,
    /// Independent observations: clusters of tasks.
    pub clusters: usize,
}

/// Groups tasks that share a key (an input file), directly or through others: the index of the
/// cluster of each task.
pub fn clusters<K: Ord>(keys: &[Vec<K>]) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..keys.len()).collect();
    let mut first: BTreeMap<&K, usize> = BTreeMap::new();
    for (task, keys) in keys.iter().enumerate() {
        for key in keys {
            let other = *first.entry(key).or_insert(task);
            let (a, b) = (root(&mut parent, task), root(&mut parent, other));
            parent[a.max(b)] = a.min(b);
        }
    }
    (0..keys.len())
        .map(|task| root(&mut parent, task))
        .collect()
}

fn root(parent: &mut [usize], mut at: usize) -> usize {
    while parent[at] != at {
        parent[at] = parent[parent[at]];
        at = parent[at];
    }
    at
}

/// The mean of `values[task][seed]` with intervals; tasks without values are left out. `None` where
/// nothing is left.
pub fn bootstrap(values: &[Vec<f64>], cluster: &[usize], draws: usize) -> Option<Clustered> {
    let groups = sums(values, cluster);
    let mean = ratio(groups.iter().copied())?;
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let over_tasks = match spread(&groups, mean) {
        true => percentile(&mut resample(&groups, draws, &mut rng), groups.len()),
        // Values that are all equal have no spread to draw from.
        false => alike(mean, groups.len()),
    };
    Some(Clustered {
        mean,
        over_tasks,
        over_seeds: over_seeds(values, mean, draws, &mut rng),
        clusters: groups.len(),
    })
}

/// The mean difference of paired tasks with its interval over tasks. Values lie in -1 to 1.
pub fn paired(differences: &[f64], cluster: &[usize], draws: usize) -> Option<(f64, Interval)> {
    let values: Vec<_> = differences.iter().map(|d| vec![*d]).collect();
    let groups = sums(&values, cluster);
    let mean = ratio(groups.iter().copied())?;
    if !spread(&groups, mean) {
        let half = alike(0.0, groups.len()).high;
        let low = (mean - half).max(-1.0);
        let high = (mean + half).min(1.0);
        return Some((mean, Interval { low, high }));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut means = resample(&groups, draws, &mut rng);
    Some((mean, percentile(&mut means, groups.len())))
}

/// Sum of task means and number of tasks of each cluster.
fn sums(values: &[Vec<f64>], cluster: &[usize]) -> Vec<(f64, f64)> {
    let mut groups: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for (seeds, cluster) in values.iter().zip(cluster) {
        if let Some(mean) = mean_of(seeds) {
            let (sum, tasks) = groups.entry(*cluster).or_default();
            *sum += mean;
            *tasks += 1.0;
        }
    }
    groups.into_values().collect()
}

fn mean_of(seeds: &[f64]) -> Option<f64> {
    let mean = seeds.iter().sum::<f64>() / seeds.len() as f64;
    (!seeds.is_empty()).then_some(mean)
}

fn ratio(groups: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, tasks) = groups.fold((0.0, 0.0), |(s, t), (sum, tasks)| (s + sum, t + tasks));
    (tasks > 0.0).then_some(sum / tasks)
}

/// Whether the clusters differ at all.
fn spread(groups: &[(f64, f64)], mean: f64) -> bool {
    groups
        .iter()
        .any(|(sum, tasks)| (sum / tasks - mean).abs() > 1e-12)
}

fn resample(groups: &[(f64, f64)], draws: usize, rng: &mut impl Rng) -> Vec<f64> {
    let draw = |_| {
        let picks = (0..groups.len()).map(|_| groups[rng.random_range(0..groups.len())]);
        ratio(picks).unwrap_or_default()
    };
    (0..draws).map(draw).collect()
}

/// The percentile interval, widened so that few clusters cover as many do (Hesterberg 2015, §3.4):
/// Student's quantile for the normal's, and n for n - 1.
fn percentile(means: &mut [f64], clusters: usize) -> Interval {
    let n = clusters as f64;
    let reach = student((n - 1.0).max(1.0)) * (n / (n - 1.0).max(1.0)).sqrt();
    let tail = normal_cdf(-reach.max(Z));
    means.sort_by(f64::total_cmp);
    let last = means.len().saturating_sub(1) as f64;
    let at = |share: f64| {
        let place = share * last;
        let (low, high) = (place.floor() as usize, place.ceil() as usize);
        means[low] + (means[high] - means[low]) * (place - place.floor())
    };
    Interval {
        low: at(tail),
        high: at(1.0 - tail),
    }
}

/// Of observations that are all equal: Wilson's, as though each cluster were a task.
fn alike(mean: f64, clusters: usize) -> Interval {
    wilson(mean.clamp(0.0, 1.0), clusters)
}

/// Only seeds are drawn, within each task, their spread restored to that of n - 1.
fn over_seeds(
    values: &[Vec<f64>],
    mean: f64,
    draws: usize,
    rng: &mut impl Rng,
) -> Option<Interval> {
    let tasks: Vec<&Vec<f64>> = values.iter().filter(|seeds| !seeds.is_empty()).collect();
    if tasks.iter().any(|seeds| seeds.len() < 2) {
        return None;
    }
    let mut means = Vec::with_capacity(draws);
    for _ in 0..draws {
        let mut sum = 0.0;
        for seeds in &tasks {
            let n = seeds.len();
            let own = seeds.iter().sum::<f64>() / n as f64;
            let drawn = (0..n).map(|_| seeds[rng.random_range(0..n)]).sum::<f64>() / n as f64;
            sum += own + (drawn - own) * (n as f64 / (n as f64 - 1.0)).sqrt();
        }
        means.push(sum / tasks.len() as f64);
    }
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((means.len() - 1) as f64 * share).round() as usize];
    Some(Interval {
        low: at(0.025).min(mean).max(0.0),
        high: at(0.975).max(mean).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_share_files_are_one_cluster() {
        let keys = [
            vec!["a"],
            vec!["b"],
            vec![],
            vec!["a", "c"],
            vec!["c"],
            vec![],
        ];
        assert_eq!(clusters(&keys), [0, 1, 2, 0, 0, 5]);
    }

    #[test]
    fn shared_files_widen_the_interval() {
        let values: Vec<_> = (0..60)
            .map(|i| vec![f64::from(u8::from(i % 20 < 10))])
            .collect();
        let alone: Vec<usize> = (0..60).collect();
        let shared: Vec<usize> = (0..60).map(|i| i / 10).collect();
        let width = |cluster: &[usize]| {
            let found = bootstrap(&values, cluster, DRAWS).unwrap();
            found.over_tasks.high - found.over_tasks.low
        };
        assert!(
            width(&shared) > 1.5 * width(&alone),
            "{} {}",
            width(&shared),
            width(&alone)
        );
    }

    #[test]
    fn equal_values_do_not_make_certainty() {
        let found = bootstrap(&vec![vec![1.0]; 10], &(0..10).collect::<Vec<_>>(), 100).unwrap();
        assert!(found.over_tasks.low < 0.8 && found.over_tasks.high == 1.0);
        let (mean, interval) = paired(&[0.0; 10], &(0..10).collect::<Vec<_>>(), 100).unwrap();
        assert!(mean == 0.0 && interval.low < -0.1 && interval.high > 0.1);
        assert_eq!(bootstrap(&[vec![]], &[0], 100), None);
        assert_eq!(bootstrap(&[], &[], 100), None);
    }

    #[test]
    fn a_single_cluster_says_nothing_for_certain() {
        let found = bootstrap(&[vec![1.0], vec![0.0]], &[0, 0], 100).unwrap();
        assert!(
            found.over_tasks.high - found.over_tasks.low > 0.5,
            "{found:?}"
        );
    }
}
