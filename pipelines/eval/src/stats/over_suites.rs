//! Macro average over suites.

use std::collections::BTreeMap;

use serde::Serialize;

use super::families::whole_suite;
use super::summary::{AgentSummary, Measure, MeasureSummary};
use pybench_checks::interval::Interval;

/// Suites that are in no mean: their inputs are made here, and PyBench's scores are not mixed with those on them.
const LEFT_OUT: [&str; 1] = ["pybench-regenerated"];

/// The rates of all agents on the suites that have a measure, and their means over the suites.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverSuites {
    pub measure: Measure,
    /// The suites on which any agent has a value, sorted.
    pub suites: Vec<String>,
    /// In the order in which the agents appear in the summaries.
    pub agents: Vec<SuitesMean>,
}

/// The rates of one agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuitesMean {
    pub agent: String,
    /// Rate on each suite of [`OverSuites::suites`]; `None` if the agent has no value there.
    pub rates: Vec<Option<SuiteRate>>,
    /// Mean of the rates, each suite with the same weight; `None` unless the agent has a value on every suite.
    pub mean: Option<f64>,
    /// Interval of the mean at 95 %, over tasks.
    pub interval: Option<Interval>,
}

/// The rate of one agent on one suite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SuiteRate {
    pub rate: f64,
    /// Tasks with a value.
    pub tasks: usize,
    /// Tasks that were run. A score need not have a value for each of them.
    pub run: usize,
}

/// The means over suites by every measure that at least two suites have.
pub fn over_suites(summaries: &[AgentSummary]) -> Vec<OverSuites> {
    let of_measure = |measure| {
        let in_mean = |s: &&AgentSummary| !LEFT_OUT.contains(&s.suite.as_str());
        let scored = summaries.iter().filter(in_mean);
        let scored = scored.filter(|s| s.measure(measure).is_some());
        let mut suites: Vec<String> = scored.clone().map(|s| s.suite.clone()).collect();
        suites.sort();
        suites.dedup();
        let mut agents: Vec<&str> = Vec::new();
        for summary in scored {
            if !agents.contains(&&*summary.agent) {
                agents.push(&summary.agent);
            }
        }
        let agents = agents.into_iter();
        let agents = agents.map(|agent| suites_mean(summaries, measure, &suites, agent));
        OverSuites {
            measure,
            agents: agents.collect(),
            suites,
        }
    };
    let measures = Measure::ALL.into_iter().map(of_measure);
    measures.filter(|found| found.suites.len() > 1).collect()
}

fn suites_mean(
    summaries: &[AgentSummary],
    measure: Measure,
    suites: &[String],
    agent: &str,
) -> SuitesMean {
    let on = |suite: &String| {
        let mut found = summaries
            .iter()
            .filter(|s| s.suite == *suite && s.agent == agent);
        let summary = found.next()?;
        Some((summary, summary.measure(measure)?))
    };
    let measured: Vec<_> = suites.iter().map(on).collect();
    let every: Option<Vec<_>> = measured.iter().copied().collect();
    let means = every.map(|every| {
        let rates = every
            .iter()
            .map(|(s, m)| (&*s.suite, m.overall.rate, m.clustered.over_tasks));
        mean(&rates.collect::<Vec<_>>())
    });
    let rate = |(summary, measured): (&AgentSummary, &MeasureSummary)| SuiteRate {
        rate: measured.overall.rate,
        tasks: measured.overall.tasks,
        run: summary.tasks - summary.not_run,
    };
    SuitesMean {
        agent: agent.to_owned(),
        rates: measured.into_iter().map(|m| m.map(rate)).collect(),
        mean: means.map(|(mean, _)| mean),
        interval: means.map(|(_, interval)| interval),
    }
}

/// The mean of the rates of suites, with limits that are recovered from theirs (MOVER). Suites that share tasks rise and fall
/// together, so their distances are added; all others are independent.
fn mean(rates: &[(&str, f64, Interval)]) -> (f64, Interval) {
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().map(|(_, rate, _)| rate).sum::<f64>() / count;
    let distance = |limit: fn(&Interval) -> f64| {
        let mut of_family: BTreeMap<&str, f64> = BTreeMap::new();
        for (suite, rate, interval) in rates {
            *of_family.entry(whole_suite(suite)).or_default() += (rate - limit(interval)).abs();
        }
        let squares = of_family.values().map(|distance| distance.powi(2));
        squares.sum::<f64>().sqrt() / count
    };
    let interval = Interval {
        low: mean - distance(|interval| interval.low),
        high: mean + distance(|interval| interval.high),
    };
    (mean, interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{attempt, fingerprint};
    use crate::record::{AgentKind, Evaluation};
    use crate::stats::summarize;

    fn limits(low: f64, high: f64) -> Interval {
        Interval { low, high }
    }

    #[test]
    fn each_suite_has_the_same_weight() {
        let mut attempts = Vec::new();
        for (suite, tasks, passed) in [
            ("small", 10, 9),
            ("large", 90, 9),
            ("pybench-regenerated", 9, 9),
        ] {
            for task in 0..tasks {
                for agent in ["a", "b"] {
                    let mut one = attempt(agent, &task.to_string(), 0, task < passed);
                    one.suite = suite.to_owned();
                    // `b` was run on one suite only.
                    if agent == "a" || suite == "small" {
                        attempts.push(one);
                    }
                }
            }
        }
        let agents = [("a", AgentKind::Model), ("b", AgentKind::Model)];
        let summaries = summarize(&Evaluation::new(fingerprint(&agents), attempts));
        let found = over_suites(&summaries);
        let strict = found
            .iter()
            .find(|one| one.measure == Measure::Strict)
            .unwrap();
        assert_eq!(strict.suites, ["large", "small"]);
        let [a, b] = &strict.agents[..] else {
            panic!("{strict:?}")
        };
        assert!((a.mean.unwrap() - 0.5).abs() < 1e-12, "{a:?}");
        let counts = a.rates.iter().map(|rate| rate.map(|r| (r.tasks, r.run)));
        assert_eq!(counts.collect::<Vec<_>>(), [Some((90, 90)), Some((10, 10))]);
        let interval = a.interval.unwrap();
        assert!(interval.low < 0.45 && interval.high > 0.52, "{interval:?}");
        assert_eq!((b.rates[0], b.mean, b.interval), (None, None, None));
        let one_suite: Vec<_> = summaries
            .into_iter()
            .filter(|s| s.suite == "small")
            .collect();
        assert_eq!(over_suites(&one_suite), []);
    }

    #[test]
    fn limits_are_recovered_from_those_of_the_suites() {
        let (found, interval) = mean(&[
            ("qrdata", 0.5, limits(0.4, 0.6)),
            ("gsm8k", 0.9, limits(0.8, 0.95)),
        ]);
        assert!((found - 0.7).abs() < 1e-12);
        // sqrt(0.1² + 0.1²) / 2 and sqrt(0.1² + 0.05²) / 2.
        assert!(
            (found - interval.low - 0.070_710_678).abs() < 1e-8,
            "{interval:?}"
        );
        assert!(
            (interval.high - found - 0.055_901_699).abs() < 1e-8,
            "{interval:?}"
        );
        let alone = mean(&[("qrdata", 0.5, limits(0.4, 0.6))]).1;
        assert!((alone.low - 0.4).abs() < 1e-12 && (alone.high - 0.6).abs() < 1e-12);
    }

    /// A second suite with the same tasks tells nothing new.
    #[test]
    fn suites_that_share_tasks_do_not_narrow_the_interval() {
        let equal = |first, second| {
            let of = |suite| (suite, 0.5, limits(0.4, 0.7));
            mean(&[of(first), of(second)]).1
        };
        for (first, second) in [
            ("humaneval", "humaneval-plus"),
            ("mbpp-plus", "mbpp"),
            ("da-dev", "da-dev-verified"),
        ] {
            let both = equal(first, second);
            assert!((both.low - 0.4).abs() < 1e-12, "{first}: {both:?}");
            assert!((both.high - 0.7).abs() < 1e-12, "{first}: {both:?}");
        }
        let independent = equal("humaneval", "mbpp");
        assert!(independent.low > 0.42 && independent.high < 0.65);
    }
}
