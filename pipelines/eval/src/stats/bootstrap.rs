//! Bootstrap intervals over tasks and seeds. Tasks that share an input file form a cluster and count as
//! one observation.
//!
//! Clusters are resampled with replacement; each draw keeps all tasks of a cluster and all their seeds.
//! Seeds are not resampled within tasks, because the variance of the task means already includes the
//! variance over seeds; resampling both would count it twice (Davison and Hinkley 1997, §3.8;
//! `simulation_tests` measures the coverage). The variation over seeds alone, with the tasks fixed, is
//! [`ClusteredMean::over_seeds`].

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use pybench_checks::interval::{Interval, Z, normal_cdf, student, wilson};

pub(super) use pybench_checks::interval::DRAWS;
/// Seed of the random number generator. It is fixed, so that identical records give identical reports.
const SEED: u64 = 0x5079_4265_6e63_6821;

/// A mean over tasks with 95 % bootstrap intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClusteredMean {
    /// Mean over tasks of the mean over seeds.
    pub mean: f64,
    /// Interval for new tasks and new seeds from the same distribution.
    pub over_tasks: Interval,
    /// Interval for new seeds of the same tasks; `None` unless every task has at least two seeds.
    pub over_seeds: Option<Interval>,
    /// Number of independent observations (clusters of tasks).
    pub clusters: usize,
}

/// Assigns each task to a cluster. Tasks that share a key (an input file), directly or through other
/// tasks, get the same cluster, named by the index of its first task.
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

/// The mean of `values[task][seed]` with intervals. Tasks without values are ignored; `None` if no task has
/// a value.
pub fn bootstrap(values: &[Vec<f64>], cluster: &[usize], draws: usize) -> Option<ClusteredMean> {
    let groups = cluster_sums(values, cluster);
    let mean = ratio(groups.iter().copied())?;
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let over_tasks = match means_differ(&groups, mean) {
        true => percentile(&mut resample(&groups, draws, &mut rng), groups.len()),
        // The bootstrap of identical values has zero width.
        false => interval_of_equal_values(mean, groups.len()),
    };
    Some(ClusteredMean {
        mean,
        over_tasks,
        over_seeds: over_seeds(values, mean, draws, &mut rng),
        clusters: groups.len(),
    })
}

/// The mean of paired differences (from -1 to 1) with its interval over tasks.
pub fn paired(differences: &[f64], cluster: &[usize], draws: usize) -> Option<(f64, Interval)> {
    let values: Vec<_> = differences.iter().map(|d| vec![*d]).collect();
    let groups = cluster_sums(&values, cluster);
    let mean = ratio(groups.iter().copied())?;
    if !means_differ(&groups, mean) {
        let half = interval_of_equal_values(0.0, groups.len()).high;
        let low = (mean - half).max(-1.0);
        let high = (mean + half).min(1.0);
        return Some((mean, Interval { low, high }));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut means = resample(&groups, draws, &mut rng);
    Some((mean, percentile(&mut means, groups.len())))
}

/// (Sum of task means, number of tasks) of each cluster.
fn cluster_sums(values: &[Vec<f64>], cluster: &[usize]) -> Vec<(f64, f64)> {
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

/// Whether the cluster means differ.
fn means_differ(groups: &[(f64, f64)], mean: f64) -> bool {
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

/// The percentile interval, widened to keep its coverage with few clusters (Hesterberg 2015, §3.4): it
/// uses Student's quantile instead of the normal quantile and rescales from n to n - 1.
fn percentile(means: &mut [f64], clusters: usize) -> Interval {
    let n = clusters as f64;
    let reach = student((n - 1.0).max(1.0)) * (n / (n - 1.0).max(1.0)).sqrt();
    let tail = normal_cdf(-reach.max(Z));
    means.sort_by(f64::total_cmp);
    let last = means.len().saturating_sub(1) as f64;
    let at = |share: f64| {
        let position = share * last;
        let (low, high) = (position.floor() as usize, position.ceil() as usize);
        means[low] + (means[high] - means[low]) * (position - position.floor())
    };
    Interval {
        low: at(tail),
        high: at(1.0 - tail),
    }
}

/// Interval for observations that are all equal: Wilson's, with each cluster as one task.
fn interval_of_equal_values(mean: f64, clusters: usize) -> Interval {
    wilson(mean.clamp(0.0, 1.0), clusters)
}

/// Interval over seeds: resamples the seeds within each task and rescales their variance from n to n - 1.
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
    fn tasks_that_share_files_form_one_cluster() {
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
    fn equal_values_still_have_an_interval() {
        let found = bootstrap(&vec![vec![1.0]; 10], &(0..10).collect::<Vec<_>>(), 100).unwrap();
        assert!(found.over_tasks.low < 0.8 && found.over_tasks.high == 1.0);
        let (mean, interval) = paired(&[0.0; 10], &(0..10).collect::<Vec<_>>(), 100).unwrap();
        assert!(mean == 0.0 && interval.low < -0.1 && interval.high > 0.1);
        assert_eq!(bootstrap(&[vec![]], &[0], 100), None);
        assert_eq!(bootstrap(&[], &[], 100), None);
    }

    #[test]
    fn a_single_cluster_has_a_wide_interval() {
        let found = bootstrap(&[vec![1.0], vec![0.0]], &[0, 0], 100).unwrap();
        assert!(
            found.over_tasks.high - found.over_tasks.low > 0.5,
            "{found:?}"
        );
    }
}
