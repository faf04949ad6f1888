//! Paired comparison of agents on the tasks they share, with a correction for multiple comparisons.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bootstrap::{DRAWS, clusters, paired};
use super::summary::Measure;
use crate::record::{Attempt, Evaluation, task_order};
use pybench_checks::interval::Interval;

/// A task on which two agents differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flip {
    /// Name of the task.
    pub task: String,
    pub category: String,
    /// Pass rate of A over its seeds.
    pub a: f64,
    /// Pass rate of B over its seeds.
    pub b: f64,
}

/// Comparison of agent A with agent B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub suite: String,
    pub measure: Measure,
    /// Label of A.
    pub a: String,
    /// Label of B.
    pub b: String,
    /// Number of tasks on which both have a value; only these count.
    pub tasks: usize,
    /// Number of clusters of tasks that share files.
    pub clusters: usize,
    /// Pass rate of A on these tasks.
    pub a_rate: f64,
    /// Pass rate of B on these tasks.
    pub b_rate: f64,
    /// `a_rate - b_rate`.
    pub difference: f64,
    /// Paired bootstrap interval of the difference at 95 %.
    pub interval: Interval,
    /// Number of tasks on which A does better.
    pub a_better: u64,
    /// Number of tasks on which B does better.
    pub b_better: u64,
    /// p-value of the exact two-sided McNemar test.
    pub p: f64,
    /// p-value after Holm's correction for multiple comparisons.
    pub p_holm: f64,
    /// Whether there is no significant difference: the corrected p is at least 0.05, or the interval
    /// contains 0.
    pub tied: bool,
    /// Tasks on which the agents differ.
    pub flips: Vec<Flip>,
}

/// p-value of the exact two-sided McNemar test with `a` and `b` discordant pairs.
pub fn mcnemar(a: u64, b: u64) -> f64 {
    let (n, least) = (a + b, a.min(b));
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for k in 0..=least {
        tail += log_term.exp();
        log_term += ((n - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

/// Holm's correction for multiple comparisons: adjusted p-values, in the order of `p`.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|i, j| p[*i].total_cmp(&p[*j]));
    let (mut adjusted, mut floor) = (vec![0.0; p.len()], 0.0_f64);
    for (rank, i) in order.into_iter().enumerate() {
        floor = floor.max((p[i] * (p.len() - rank) as f64).min(1.0));
        adjusted[i] = floor;
    }
    adjusted
}

/// The tasks on which an agent has a value: (first attempt, mean over seeds).
fn rates<'a>(
    evaluation: &'a Evaluation,
    suite: &str,
    measure: Measure,
    agent: &str,
) -> BTreeMap<&'a str, (&'a Attempt, f64)> {
    let mut tasks: BTreeMap<&str, (&Attempt, f64, f64)> = BTreeMap::new();
    let mine = |a: &&Attempt| a.suite == suite && a.agent == agent;
    for attempt in evaluation.attempts.iter().filter(mine) {
        if let Some(passed) = measure.value(attempt) {
            let task = tasks.entry(&attempt.task).or_insert((attempt, 0.0, 0.0));
            task.1 += f64::from(u8::from(passed));
            task.2 += 1.0;
        }
    }
    let mean = |(task, (first, passed, n))| (task, (first, passed / n));
    tasks.into_iter().map(mean).collect()
}

/// Compares A with B on the tasks on which both have a value. With several seeds, a task counts for the
/// agent that passed it more often. `None` if they share no such task.
pub fn compare(
    evaluation: &Evaluation,
    suite: &str,
    measure: Measure,
    a: &str,
    b: &str,
) -> Option<Comparison> {
    let of_a = rates(evaluation, suite, measure, a);
    let of_b = rates(evaluation, suite, measure, b);
    let both = of_a.into_iter().filter_map(|(task, (first, x))| {
        let (_, y) = of_b.get(task)?;
        Some((first, x, *y))
    });
    let mut both: Vec<_> = both.collect();
    both.sort_by(|x, y| task_order(&x.0.task, &y.0.task));
    let files: Vec<_> = both
        .iter()
        .map(|(first, ..)| first.clusters.clone())
        .collect();
    let cluster = clusters(&files);
    let differences: Vec<_> = both.iter().map(|(_, x, y)| x - y).collect();
    let (difference, interval) = paired(&differences, &cluster, DRAWS)?;
    let flips: Vec<_> = both
        .iter()
        .filter(|(_, x, y)| (x - y).abs() > 1e-12)
        .collect();
    let a_better = flips.iter().filter(|(_, x, y)| x > y).count() as u64;
    let b_better = flips.len() as u64 - a_better;
    let p = mcnemar(a_better, b_better);
    let mean = |pick: fn(&(&Attempt, f64, f64)) -> f64| {
        both.iter().map(pick).sum::<f64>() / both.len() as f64
    };
    let mut comparison = Comparison {
        suite: suite.to_owned(),
        measure,
        a: a.to_owned(),
        b: b.to_owned(),
        tasks: both.len(),
        clusters: cluster.iter().enumerate().filter(|(i, c)| i == *c).count(),
        a_rate: mean(|x| x.1),
        b_rate: mean(|x| x.2),
        difference,
        interval,
        a_better,
        b_better,
        p,
        p_holm: p,
        tied: true,
        flips: flips.into_iter().map(flip).collect(),
    };
    comparison.update_tied();
    Some(comparison)
}

fn flip((first, a, b): &(&Attempt, f64, f64)) -> Flip {
    Flip {
        task: first.task.clone(),
        category: first.category.clone(),
        a: *a,
        b: *b,
    }
}

impl Comparison {
    fn update_tied(&mut self) {
        let contains_zero = self.interval.low <= 0.0 && 0.0 <= self.interval.high;
        self.tied = self.p_holm >= 0.05 || contains_zero;
    }
}

/// Compares every pair of agents, in the order given, with Holm's correction.
pub fn compare_all(
    evaluation: &Evaluation,
    suite: &str,
    measure: Measure,
    agents: &[String],
) -> Vec<Comparison> {
    let pairs = agents.iter().enumerate();
    let pairs = pairs.flat_map(|(i, a)| agents[i + 1..].iter().map(move |b| (a, b)));
    let found = pairs.filter_map(|(a, b)| compare(evaluation, suite, measure, a, b));
    let mut found: Vec<_> = found.collect();
    let adjusted = holm(&found.iter().map(|c| c.p).collect::<Vec<_>>());
    for (comparison, p) in found.iter_mut().zip(adjusted) {
        comparison.p_holm = p;
        comparison.update_tied();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AgentKind;
    use crate::record::tests::{attempt, fingerprint};

    fn evaluation(rows: &[(&str, [usize; 2])], tasks: usize) -> Evaluation {
        let agents: Vec<_> = rows.iter().map(|(a, _)| (*a, AgentKind::Model)).collect();
        let attempts = rows.iter().flat_map(|(agent, [from, to])| {
            (0..tasks).map(move |t| attempt(agent, &t.to_string(), 0, (*from..*to).contains(&t)))
        });
        Evaluation::new(fingerprint(&agents), attempts.collect())
    }

    #[test]
    fn mcnemar_equals_the_binomial_tail() {
        for (a, b, p) in [
            (0, 0, 1.0),
            (5, 5, 1.0),
            (0, 5, 0.0625),
            (0, 6, 0.03125),
            (1, 9, 0.021_484_375),
        ] {
            assert!(
                (mcnemar(a, b) - p).abs() < 1e-12,
                "{a} {b} {}",
                mcnemar(a, b)
            );
        }
        assert!(mcnemar(10_000, 10_400) < 0.01);
    }

    #[test]
    fn holm_steps_down() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn small_differences_are_ties_and_large_ones_are_not() {
        let e = evaluation(&[("a", [0, 30]), ("b", [0, 28]), ("c", [0, 5])], 50);
        let near = compare(&e, "pybench", Measure::Strict, "a", "b").unwrap();
        assert!(
            near.tied && near.flips.len() == 2 && near.flips[0].task == "28",
            "{near:?}"
        );
        let far = compare(&e, "pybench", Measure::Strict, "c", "a").unwrap();
        assert!(!far.tied && far.difference < -0.4 && (far.a_better, far.b_better) == (0, 25));
        assert!(far.interval.low < far.difference && far.difference < far.interval.high);
        assert!(
            compare(&e, "pybench", Measure::Judge, "a", "b").is_none(),
            "there are no values to compare"
        );
    }

    #[test]
    fn several_comparisons_need_more_evidence() {
        let e = evaluation(&[("a", [0, 20]), ("b", [0, 14]), ("c", [0, 8])], 40);
        let names = ["a", "b", "c"].map(str::to_owned);
        let all = compare_all(&e, "pybench", Measure::Strict, &names);
        assert_eq!(all.len(), 3);
        let [ab, ac, bc] = &all[..] else { panic!() };
        assert!(
            (ab.p - 0.03125).abs() < 1e-12 && ab.tied && bc.tied && !ac.tied,
            "{all:?}"
        );
        assert!(
            !compare(&e, "pybench", Measure::Strict, "a", "b")
                .unwrap()
                .tied,
            "without the correction the difference is significant"
        );
    }
}
