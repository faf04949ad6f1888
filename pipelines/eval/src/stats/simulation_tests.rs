//! Simulated coverage: how often an interval contains the true value.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::bootstrap::{bootstrap, paired};
use pybench_checks::interval::wilson;

/// Simulated samples of a bootstrap: `$SIMULATIONS`, or so many that a coverage is within 1.5 points in 99.8 % of cases.
fn simulations() -> usize {
    std::env::var("SIMULATIONS").map_or(2_000, |number| number.parse().unwrap())
}

/// Tasks with individual pass probabilities, `truth` plus or minus `spread`.
fn tasks(n: usize, seeds: usize, truth: f64, spread: f64, rng: &mut ChaCha8Rng) -> Vec<Vec<f64>> {
    let task = |rng: &mut ChaCha8Rng| {
        let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
        let chance: f64 = truth + sign * spread;
        (0..seeds)
            .map(|_| f64::from(u8::from(rng.random_bool(chance))))
            .collect()
    };
    (0..n).map(|_| task(rng)).collect()
}

fn mean(values: &[Vec<f64>]) -> f64 {
    let task = |seeds: &Vec<f64>| seeds.iter().sum::<f64>() / seeds.len() as f64;
    values.iter().map(task).sum::<f64>() / values.len() as f64
}

/// Sizes: all of PyBench (143), its categories (62, 48, 23, 6, 4), and one in between (115).
#[test]
fn wilson_intervals_have_nominal_coverage() {
    // Some rates of some sizes are nearly two points off by themselves.
    let simulations = 10_000;
    let mut rng = ChaCha8Rng::seed_from_u64(48);
    for n in [4, 6, 23, 48, 62, 115, 143] {
        let mut all = 0.0;
        let truths = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
        for truth in truths {
            let mut held = 0;
            for _ in 0..simulations {
                let rate = mean(&tasks(n, 1, truth, 0.0, &mut rng));
                let interval = wilson(rate, n);
                held += usize::from(interval.low <= truth && truth <= interval.high);
            }
            let coverage = held as f64 / simulations as f64;
            println!("wilson n={n} truth={truth}: {:.2} %", coverage * 100.0);
            assert!(
                n < 48 || (coverage - 0.95).abs() <= 0.02,
                "n={n} truth={truth} {coverage}"
            );
            all += coverage / truths.len() as f64;
        }
        println!("wilson n={n}, mean over rates: {:.2} %", all * 100.0);
    }
}

/// The bootstrap over tasks, with one and with several seeds.
#[test]
fn the_bootstrap_has_nominal_coverage() {
    let simulations = simulations();
    for (n, seeds, truth, spread) in [
        (48, 1, 0.5, 0.0),
        (48, 2, 0.5, 0.0),
        (48, 4, 0.6, 0.35),
        (62, 2, 0.3, 0.2),
        (143, 1, 0.7, 0.0),
        (23, 2, 0.5, 0.3),
    ] {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let cluster: Vec<usize> = (0..n).collect();
        let mut held = 0;
        for _ in 0..simulations {
            let values = tasks(n, seeds, truth, spread, &mut rng);
            // 250 draws are enough: their noise changes the coverage by less than 0.1 points.
            let over_tasks = bootstrap(&values, &cluster, 250).unwrap().over_tasks;
            held += usize::from(over_tasks.low <= truth && truth <= over_tasks.high);
        }
        let coverage = held as f64 / simulations as f64;
        println!(
            "bootstrap n={n} seeds={seeds} truth={truth}±{spread}: {:.2} %",
            coverage * 100.0
        );
        assert!(
            n < 48 || (coverage - 0.95).abs() <= 0.02,
            "n={n} seeds={seeds} {coverage}"
        );
    }
}

/// Resampling tasks and then seeds within tasks gives intervals that are too wide.
#[test]
fn resampling_seeds_within_tasks_counts_their_variance_twice() {
    let (n, seeds) = (48, 2);
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let (draws, mut held) = (2_000, 0);
    for _ in 0..draws {
        let values = tasks(n, seeds, 0.5, 0.0, &mut rng);
        let mut means: Vec<f64> = (0..250)
            .map(|_| {
                let drawn = (0..n).map(|_| {
                    let task = &values[rng.random_range(0..n)];
                    (0..seeds)
                        .map(|_| task[rng.random_range(0..seeds)])
                        .collect()
                });
                mean(&drawn.collect::<Vec<Vec<f64>>>())
            })
            .collect();
        means.sort_by(f64::total_cmp);
        held += usize::from(means[6] <= 0.5 && 0.5 <= means[243]);
    }
    let coverage = held as f64 / draws as f64;
    println!(
        "two stages with replacement, n={n} seeds={seeds}: {:.2} %",
        coverage * 100.0
    );
    assert!(coverage > 0.965, "{coverage}");
}

/// Tasks that share a file are correlated: the interval needs clustering to keep its coverage.
#[test]
fn shared_files_need_clustering_for_nominal_coverage() {
    let simulations = simulations();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (groups, size) = (48, 3);
    let alone: Vec<usize> = (0..groups * size).collect();
    let shared: Vec<usize> = (0..groups * size).map(|i| i / size).collect();
    let (mut clustered, mut naive) = (0, 0);
    for _ in 0..simulations {
        let values: Vec<Vec<f64>> = (0..groups)
            .flat_map(|_| {
                let chance = if rng.random_bool(0.5) { 0.9 } else { 0.2 };
                (0..size)
                    .map(|_| vec![f64::from(u8::from(rng.random_bool(chance)))])
                    .collect::<Vec<_>>()
            })
            .collect();
        let holds = |cluster: &[usize]| {
            let found = bootstrap(&values, cluster, 250).unwrap().over_tasks;
            usize::from(found.low <= 0.55 && 0.55 <= found.high)
        };
        clustered += holds(&shared);
        naive += holds(&alone);
    }
    let share = |held: usize| held as f64 / simulations as f64;
    println!(
        "shared files: clustered {:.2} %, assuming independence {:.2} %",
        share(clustered) * 100.0,
        share(naive) * 100.0
    );
    assert!((share(clustered) - 0.95).abs() <= 0.02 && share(naive) < 0.90);
}

/// Paired differences of two agents whose results are correlated.
#[test]
fn the_paired_bootstrap_has_nominal_coverage() {
    let simulations = simulations();
    for n in [23, 48, 143] {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let cluster: Vec<usize> = (0..n).collect();
        let mut held = 0;
        for _ in 0..simulations {
            let differences: Vec<f64> = (0..n)
                .map(|_| {
                    let both = rng.random_bool(0.5);
                    let a = both || rng.random_bool(0.4);
                    let b = both || rng.random_bool(0.2);
                    f64::from(u8::from(a)) - f64::from(u8::from(b))
                })
                .collect();
            let (_, interval) = paired(&differences, &cluster, 250).unwrap();
            held += usize::from(interval.low <= 0.1 && 0.1 <= interval.high);
        }
        let coverage = held as f64 / simulations as f64;
        println!("paired n={n}: {:.2} %", coverage * 100.0);
        assert!(
            n < 48 || (coverage - 0.95).abs() <= 0.02,
            "n={n} {coverage}"
        );
    }
}
