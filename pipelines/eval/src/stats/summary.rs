//! Summary of one agent on one suite.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::bootstrap::{ClusteredMean, DRAWS, bootstrap, clusters};
use super::samples::{pass_at_k, pass_hat_k};
use crate::record::{AgentKind, Attempt, Duel, Evaluation, Outcome, Score, task_order};
use pybench_checks::interval::{Interval, wilson};

/// Which verdict a rate counts. Rates of different measures are never combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Judge,
    Upstream,
    Fixed,
    Strict,
}

impl Measure {
    /// All measures, in the order of the report.
    pub const ALL: [Self; 4] = [Self::Judge, Self::Upstream, Self::Fixed, Self::Strict];

    /// Name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Judge => "judge",
            Self::Upstream => "upstream",
            Self::Fixed => "fixed",
            Self::Strict => "strict",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.name() == name)
    }

    /// Verdict on an attempt; `None` if there is none. `strict` counts only headline tasks.
    pub fn value(self, attempt: &Attempt) -> Option<bool> {
        match self {
            Self::Judge => attempt.judgment.as_ref()?.passed.filter(|_| attempt.ran()),
            Self::Upstream => attempt.score(Score::Upstream),
            Self::Fixed => attempt.score(Score::Fixed),
            Self::Strict => attempt
                .score(Score::Strict)
                .filter(|_| attempt.headline.counts),
        }
    }

    /// Whether an attempt should have a value but has none.
    fn missing(self, attempt: &Attempt) -> bool {
        let infrastructure = matches!(attempt.outcome, Outcome::Infrastructure { .. });
        match self {
            Self::Judge => infrastructure || attempt.ran() && self.value(attempt).is_none(),
            Self::Strict => infrastructure && attempt.headline.counts,
            Self::Upstream | Self::Fixed => infrastructure,
        }
    }
}

/// A pass rate over tasks with its Wilson interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// pass@1: the mean over tasks of the mean over seeds.
    pub rate: f64,
    pub tasks: usize,
    /// Wilson interval at 95 %, assuming independent tasks.
    pub interval: Interval,
}

/// Bounds of the rate, depending on the missing values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Number of attempts that should have a value but have none.
    pub missing: usize,
    /// Rate if all missing values were failures.
    pub worst: f64,
    /// Rate if all missing values were passes.
    pub best: f64,
}

/// pass@k and pass^k.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtK {
    /// Number of samples.
    pub k: u64,
    /// pass@k: probability that at least one sample passes.
    pub any: f64,
    /// pass^k: probability that all samples pass.
    pub all: f64,
}

/// Results of one agent by one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasureSummary {
    pub measure: Measure,
    /// Rate over all tasks (micro average).
    pub overall: Rate,
    /// Rate by category.
    pub categories: BTreeMap<String, Rate>,
    /// Mean of the category rates (macro average).
    pub macro_mean: f64,
    /// Mean with bootstrap intervals; tasks that share a file are clustered.
    pub clustered: ClusteredMean,
    /// Effect of missing values.
    pub bounds: Bounds,
    /// pass@k and pass^k for k up to the smallest number of samples of a task.
    pub at_k: Vec<AtK>,
}

/// Average number of turns of the attempts that ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Turns {
    /// Plain mean.
    pub plain: f64,
    /// Mean as upstream computes it: attempts that the judge failed count as the turn limit. `None` if
    /// nothing was judged.
    pub as_upstream: Option<f64>,
}

/// Number of wins, ties and losses against another agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duels {
    pub win: usize,
    pub tie: usize,
    pub lose: usize,
    /// Comparisons on which the judge abstained.
    pub abstained: usize,
}

/// One agent on one suite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentSummary {
    pub agent: String,
    pub kind: AgentKind,
    pub suite: String,
    /// Tasks with at least one attempt.
    pub tasks: usize,
    /// All attempts, regardless of their outcome.
    pub attempts: usize,
    /// Attempts that ran.
    pub ran: usize,
    /// Tasks that could not be run.
    pub not_run: usize,
    /// Attempts with an infrastructure failure.
    pub infrastructure: usize,
    /// Attempts that a rule against hopeless ones ended.
    pub ended_early: usize,
    /// Measures with at least one value, in the order of [`Measure::ALL`].
    pub measures: Vec<MeasureSummary>,
    /// Scores without any value, because attempts failed for reasons of ours, and the number of these attempts.
    pub unmeasured: BTreeMap<Measure, usize>,
    /// Turns; `None` if nothing ran.
    pub turns: Option<Turns>,
    /// Prompt tokens of all attempts.
    pub tokens_in: u64,
    /// Completion tokens of all attempts.
    pub tokens_out: u64,
    /// Cost of all attempts, in millionths of a dollar; `None` if the cost of one is unknown.
    pub micro_usd: Option<u64>,
    /// Pairwise comparisons with other agents, by label.
    pub duels: BTreeMap<String, Duels>,
}

impl AgentSummary {
    /// The results by `measure`, if it has any value.
    pub fn measure(&self, measure: Measure) -> Option<&MeasureSummary> {
        self.measures.iter().find(|m| m.measure == measure)
    }
}

/// Summarizes every agent on every suite, sorted by suite, kind of agent and label.
pub fn summarize(evaluation: &Evaluation) -> Vec<AgentSummary> {
    let mut groups: BTreeMap<(&str, AgentKind, &str), Vec<&Attempt>> = BTreeMap::new();
    for attempt in &evaluation.attempts {
        if let Some(agent) = evaluation.fingerprint.agents.get(&attempt.agent) {
            let key = (&*attempt.suite, agent.kind, &*attempt.agent);
            groups.entry(key).or_default().push(attempt);
        }
    }
    let one = |((suite, kind, agent), attempts): ((&str, _, &str), Vec<_>)| {
        summary(suite, kind, agent, &attempts)
    };
    groups.into_iter().map(one).collect()
}

fn summary(suite: &str, kind: AgentKind, agent: &str, attempts: &[&Attempt]) -> AgentSummary {
    let tasks = |keep: &dyn Fn(&Attempt) -> bool| {
        let kept = attempts.iter().filter(|a| keep(a));
        kept.map(|a| &a.task).collect::<BTreeSet<_>>().len()
    };
    let count = |keep: &dyn Fn(&Attempt) -> bool| attempts.iter().filter(|a| keep(a)).count();
    let measures = Measure::ALL.into_iter();
    let measures: Vec<_> = measures
        .filter_map(|m| measure_summary(m, attempts))
        .collect();
    AgentSummary {
        unmeasured: unmeasured(&measures, attempts),
        agent: agent.to_owned(),
        kind,
        suite: suite.to_owned(),
        tasks: tasks(&|_| true),
        attempts: attempts.len(),
        ran: count(&Attempt::ran),
        not_run: tasks(&|a| matches!(a.outcome, Outcome::NotRun { .. })),
        infrastructure: count(&|a| matches!(a.outcome, Outcome::Infrastructure { .. })),
        ended_early: count(&|a| a.ended_early),
        measures,
        turns: turns(attempts),
        tokens_in: attempts
            .iter()
            .map(|a| a.tokens_in)
            .fold(0, u64::saturating_add),
        tokens_out: attempts
            .iter()
            .map(|a| a.tokens_out)
            .fold(0, u64::saturating_add),
        micro_usd: attempts
            .iter()
            .try_fold(0_u64, |sum, a| Some(sum.saturating_add(a.micro_usd?))),
        duels: duels(attempts),
    }
}

fn unmeasured(measures: &[MeasureSummary], attempts: &[&Attempt]) -> BTreeMap<Measure, usize> {
    let scores = [Measure::Upstream, Measure::Fixed, Measure::Strict].into_iter();
    let without = scores.filter(|score| measures.iter().all(|m| m.measure != *score));
    let missing = without.map(|score| {
        let missing = attempts.iter().filter(|attempt| score.missing(attempt));
        (score, missing.count())
    });
    missing.filter(|(_, count)| *count > 0).collect()
}

/// The values of one measure on one task.
struct TaskValues<'a> {
    first: &'a Attempt,
    values: Vec<f64>,
    missing: usize,
}

/// The values of a measure for each task of one agent, in task order.
fn task_values<'a>(measure: Measure, attempts: &[&'a Attempt]) -> Vec<TaskValues<'a>> {
    let mut tasks: BTreeMap<&str, TaskValues<'a>> = BTreeMap::new();
    for attempt in attempts {
        let task = tasks.entry(&attempt.task).or_insert(TaskValues {
            first: attempt,
            values: Vec::new(),
            missing: 0,
        });
        task.values
            .extend(measure.value(attempt).map(f64::from_bool));
        task.missing += usize::from(measure.missing(attempt));
    }
    let mut tasks: Vec<_> = tasks.into_values().collect();
    tasks.sort_by(|a, b| task_order(&a.first.task, &b.first.task));
    tasks
}

trait FromBool {
    fn from_bool(value: bool) -> Self;
}

impl FromBool for f64 {
    fn from_bool(value: bool) -> Self {
        f64::from(u8::from(value))
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn rate(tasks: &[&TaskValues<'_>]) -> Rate {
    let means: Vec<_> = tasks.iter().map(|task| mean(&task.values)).collect();
    let rate = mean(&means);
    Rate {
        rate,
        tasks: tasks.len(),
        interval: wilson(rate, tasks.len()),
    }
}

fn measure_summary(measure: Measure, attempts: &[&Attempt]) -> Option<MeasureSummary> {
    let all = task_values(measure, attempts);
    let valued: Vec<_> = all.iter().filter(|task| !task.values.is_empty()).collect();
    let mut by_category: BTreeMap<String, Vec<&TaskValues<'_>>> = BTreeMap::new();
    for task in &valued {
        let category = by_category.entry(task.first.category.clone());
        category.or_default().push(task);
    }
    let categories: BTreeMap<_, _> = by_category
        .into_iter()
        .map(|(c, t)| (c, rate(&t)))
        .collect();
    let rates: Vec<_> = categories.values().map(|rate| rate.rate).collect();
    let files: Vec<_> = valued.iter().map(|t| t.first.clusters.clone()).collect();
    let values: Vec<_> = valued.iter().map(|t| t.values.clone()).collect();
    Some(MeasureSummary {
        measure,
        overall: rate(&valued),
        macro_mean: mean(&rates),
        clustered: bootstrap(&values, &clusters(&files), DRAWS)?,
        bounds: bounds(&all),
        at_k: at_k(&values),
        categories,
    })
}

fn bounds(tasks: &[TaskValues<'_>]) -> Bounds {
    let known = tasks.iter().filter(|t| t.values.len() + t.missing > 0);
    let with = |value: f64| {
        let filled = |task: &TaskValues<'_>| {
            let sum = task.values.iter().sum::<f64>() + value * task.missing as f64;
            sum / (task.values.len() + task.missing) as f64
        };
        mean(&known.clone().map(filled).collect::<Vec<_>>())
    };
    Bounds {
        missing: tasks.iter().map(|t| t.missing).sum(),
        worst: with(0.0),
        best: with(1.0),
    }
}

fn at_k(values: &[Vec<f64>]) -> Vec<AtK> {
    let least = values.iter().map(Vec::len).min().unwrap_or(0) as u64;
    let of = |k: u64, estimate: fn(u64, u64, u64) -> Option<f64>| {
        let one = |seeds: &Vec<f64>| {
            let passed = seeds.iter().filter(|v| **v > 0.5).count();
            estimate(seeds.len() as u64, passed as u64, k)
        };
        mean(&values.iter().filter_map(one).collect::<Vec<_>>())
    };
    let one = |k| AtK {
        k,
        any: of(k, pass_at_k),
        all: of(k, pass_hat_k),
    };
    (1..=least).map(one).collect()
}

fn turns(attempts: &[&Attempt]) -> Option<Turns> {
    let ran: Vec<_> = attempts.iter().filter(|a| a.ran()).collect();
    if ran.is_empty() {
        return None;
    }
    let plain: Vec<_> = ran.iter().map(|a| f64::from(a.turns)).collect();
    let counted = |a: &&&Attempt| {
        let passed = a.judgment.as_ref()?.passed?;
        Some(f64::from(if passed { a.turns } else { a.max_turns }))
    };
    let judged: Vec<_> = ran.iter().filter_map(counted).collect();
    Some(Turns {
        plain: mean(&plain),
        as_upstream: (!judged.is_empty()).then(|| mean(&judged)),
    })
}

fn duels(attempts: &[&Attempt]) -> BTreeMap<String, Duels> {
    let mut all: BTreeMap<String, Duels> = BTreeMap::new();
    let judged = attempts.iter().filter_map(|a| a.judgment.as_ref());
    for (other, duel) in judged.flat_map(|j| &j.duels) {
        let duels = all.entry(other.clone()).or_default();
        *match duel {
            Duel::Win => &mut duels.win,
            Duel::Tie => &mut duels.tie,
            Duel::Lose => &mut duels.lose,
            Duel::Abstained => &mut duels.abstained,
        } += 1;
    }
    all
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
