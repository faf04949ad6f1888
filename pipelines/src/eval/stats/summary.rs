//! What is said of one agent on one suite.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::bootstrap::{Clustered, DRAWS, bootstrap, clusters};
use super::interval::{Interval, wilson};
use super::samples::{pass_at_k, pass_hat_k};
use crate::eval::record::{AgentKind, Attempt, Duel, Evaluation, Outcome, Score, task_order};

/// What a rate counts. Rates of two are never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Measure {
    Judge,
    Upstream,
    Fixed,
    Strict,
}

impl Measure {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 4] = [Self::Judge, Self::Upstream, Self::Fixed, Self::Strict];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Judge => "judge",
            Self::Upstream => "upstream",
            Self::Fixed => "fixed",
            Self::Strict => "strict",
        }
    }

    /// The measure of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.name() == name)
    }

    /// What it says of an attempt. `strict` counts the tasks of its headline alone.
    pub fn value(self, attempt: &Attempt) -> Option<bool> {
        match self {
            Self::Judge => attempt.judgement.as_ref()?.passed.filter(|_| attempt.ran()),
            Self::Upstream => attempt.score(Score::Upstream),
            Self::Fixed => attempt.score(Score::Fixed),
            Self::Strict => attempt
                .score(Score::Strict)
                .filter(|_| attempt.headline.counts),
        }
    }

    /// Whether an attempt without a value misses one, rather than having none to have.
    fn missing(self, attempt: &Attempt) -> bool {
        let infrastructure = matches!(attempt.outcome, Outcome::Infrastructure { .. });
        match self {
            Self::Judge => infrastructure || attempt.ran() && self.value(attempt).is_none(),
            Self::Strict => infrastructure && attempt.headline.counts,
            Self::Upstream | Self::Fixed => infrastructure,
        }
    }
}

/// A rate over tasks with Wilson's interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// pass@1: mean over tasks of the mean over seeds.
    pub rate: f64,
    /// Tasks.
    pub tasks: usize,
    /// Wilson's, tasks taken as independent.
    pub interval: Interval,
}

/// The rate if every missing value were a failure, and if every one were a pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Attempts without a value that should have one.
    pub missing: usize,
    /// All of them failures.
    pub worst: f64,
    /// All of them passes.
    pub best: f64,
}

/// Of k samples of a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtK {
    /// Samples.
    pub k: u64,
    /// At least one passes.
    pub any: f64,
    /// All pass.
    pub all: f64,
}

/// One measure of one agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasureSummary {
    /// What is counted.
    pub measure: Measure,
    /// Over all tasks (micro mean).
    pub overall: Rate,
    /// By category.
    pub categories: BTreeMap<String, Rate>,
    /// Mean of the categories' rates (macro mean).
    pub macro_mean: f64,
    /// Bootstrap intervals, tasks that share a file clustered.
    pub clustered: Clustered,
    /// What missing values could change.
    pub bounds: Bounds,
    /// For k up to the least number of samples of a task.
    pub at_k: Vec<AtK>,
}

/// Turns of attempts that ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Turns {
    /// Their mean.
    pub plain: f64,
    /// Their mean as upstream has it: those that the judge failed count as the maximum. `None`
    /// where nothing was judged.
    pub as_upstream: Option<f64>,
}

/// Win, tie, lose against another agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Duels {
    pub win: usize,
    pub tie: usize,
    pub lose: usize,
    /// Missing values.
    pub abstained: usize,
}

/// One agent on one suite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentSummary {
    /// Its label.
    pub agent: String,
    /// What it is.
    pub kind: AgentKind,
    /// The benchmark.
    pub suite: String,
    /// Tasks with at least one attempt.
    pub tasks: usize,
    /// Attempts of any outcome.
    pub attempts: usize,
    /// Attempts that ran.
    pub ran: usize,
    /// Tasks that could not be run here.
    pub not_run: usize,
    /// Attempts that infrastructure failed.
    pub infrastructure: usize,
    /// Those that have a value at all, in the order of [`Measure::ALL`].
    pub measures: Vec<MeasureSummary>,
    /// `None` where nothing ran.
    pub turns: Option<Turns>,
    /// Tokens read, all attempts.
    pub tokens_in: u64,
    /// Tokens written, all attempts.
    pub tokens_out: u64,
    /// Cost of all attempts, millionths of a dollar.
    pub micro_usd: u64,
    /// Against others, by their label.
    pub duels: BTreeMap<String, Duels>,
}

impl AgentSummary {
    /// What it says of that measure.
    pub fn measure(&self, measure: Measure) -> Option<&MeasureSummary> {
        self.measures.iter().find(|m| m.measure == measure)
    }
}

/// Every agent on every suite; by suite, models first, then by label.
pub fn summarise(evaluation: &Evaluation) -> Vec<AgentSummary> {
    let mut groups: BTreeMap<(&str, AgentKind, &str), Vec<&Attempt>> = BTreeMap::new();
    for attempt in &evaluation.attempts {
        if let Some(agent) = evaluation.frozen.agents.get(&attempt.agent) {
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
    AgentSummary {
        agent: agent.to_owned(),
        kind,
        suite: suite.to_owned(),
        tasks: tasks(&|_| true),
        attempts: attempts.len(),
        ran: count(&Attempt::ran),
        not_run: tasks(&|a| matches!(a.outcome, Outcome::NotRun { .. })),
        infrastructure: count(&|a| matches!(a.outcome, Outcome::Infrastructure { .. })),
        measures: measures.filter_map(|m| measured(m, attempts)).collect(),
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
            .map(|a| a.micro_usd)
            .fold(0, u64::saturating_add),
        duels: duels(attempts),
    }
}

/// One task as a measure sees it.
struct Seen<'a> {
    first: &'a Attempt,
    values: Vec<f64>,
    missing: usize,
}

/// The tasks of one agent, in order, with the values of a measure.
fn seen<'a>(measure: Measure, attempts: &[&'a Attempt]) -> Vec<Seen<'a>> {
    let mut tasks: BTreeMap<&str, Seen<'a>> = BTreeMap::new();
    for attempt in attempts {
        let task = tasks.entry(&attempt.task).or_insert(Seen {
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

fn rate(tasks: &[&Seen<'_>]) -> Rate {
    let means: Vec<_> = tasks.iter().map(|task| mean(&task.values)).collect();
    let rate = mean(&means);
    Rate {
        rate,
        tasks: tasks.len(),
        interval: wilson(rate, tasks.len()),
    }
}

fn measured(measure: Measure, attempts: &[&Attempt]) -> Option<MeasureSummary> {
    let all = seen(measure, attempts);
    let valued: Vec<_> = all.iter().filter(|task| !task.values.is_empty()).collect();
    let mut by_category: BTreeMap<String, Vec<&Seen<'_>>> = BTreeMap::new();
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

fn bounds(tasks: &[Seen<'_>]) -> Bounds {
    let known = tasks.iter().filter(|t| t.values.len() + t.missing > 0);
    let with = |value: f64| {
        let filled = |task: &Seen<'_>| {
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
        let passed = a.judgement.as_ref()?.passed?;
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
    let judged = attempts.iter().filter_map(|a| a.judgement.as_ref());
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
