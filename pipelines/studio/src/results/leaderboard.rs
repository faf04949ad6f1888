//! Leaderboards: one for each suite and score, with the agents of all evaluations and the published results of PyBench.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pybench_eval::record::{AgentKind, Evaluation};
use pybench_eval::report::{Published, SOURCE, category_order, published};
use pybench_eval::stats::{AgentSummary, Measure, MeasureSummary, Rate, summarize};
use pybench_run::RunError;
use pybench_types::id::Digest;
use schemars::JsonSchema;
use serde::Serialize;

/// The suite with published results, and the score that they are of.
const PUBLISHED: (&str, Measure) = ("pybench", Measure::Upstream);
/// The scores in the order of the page.
const MEASURES: [Measure; 4] = [
    Measure::Strict,
    Measure::Fixed,
    Measure::Upstream,
    Measure::Judge,
];
/// The categories of the published results, in their order.
const CATEGORIES: [&str; 5] = ["chart", "text", "image_audio", "math", "software"];

/// All leaderboards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Results {
    pub(crate) leaderboards: Vec<Leaderboard>,
    /// Evaluations that cannot be read, each with the reason.
    pub(crate) problems: Vec<String>,
}

/// The agents on one suite by one score, the best first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Leaderboard {
    pub(crate) suite: String,
    /// `strict`, `fixed`, `upstream` or `judge`.
    pub(crate) score: String,
    pub(crate) categories: Vec<String>,
    pub(crate) entries: Vec<LeaderboardEntry>,
}

/// An agent of an evaluation, or a published result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LeaderboardEntry {
    pub(crate) agent: String,
    pub(crate) about: String,
    pub(crate) kind: EntryKind,
    /// Name of the evaluation; empty for a published result.
    pub(crate) run: String,
    /// What the scores depend on: rows with the same are of the same tasks, checker and environment. Empty if it is unknown.
    pub(crate) basis: String,
    pub(crate) overall: RateView,
    /// One for each category of the leaderboard.
    pub(crate) categories: Vec<Option<RateView>>,
    /// Mean number of turns.
    pub(crate) turns: Option<f64>,
    /// Attempts that have no value because something failed that is not the agent.
    pub(crate) missing: u64,
    /// The rates if all of these had failed, and if all had passed.
    pub(crate) bounds: Option<(f64, f64)>,
    pub(crate) note: String,
}

/// What kind of row it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryKind {
    /// Measured here.
    #[default]
    Measured,
    /// Reference solutions, or an agent that does no work.
    Baseline,
    /// As printed in the paper.
    Published,
}

/// A pass rate between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RateView {
    pub(crate) rate: f64,
    /// Wilson interval at 95 %; `None` for a published rate.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) tasks: Option<u64>,
}

/// An evaluation, summarized.
#[derive(Debug)]
pub(crate) struct EvaluationSummary {
    agents: Vec<AgentSummary>,
    /// What each agent is.
    about: BTreeMap<String, String>,
    basis: String,
}

impl EvaluationSummary {
    /// Summarizes a file of records.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it cannot be read.
    pub(crate) fn read(records: &Path) -> Result<Self, RunError> {
        let read = Evaluation::read(records);
        read.map(|evaluation| Self::new(&evaluation))
            .map_err(|error| RunError::BadInput(error.to_string()))
    }

    pub(crate) fn new(evaluation: &Evaluation) -> Self {
        let fingerprint = &evaluation.fingerprint;
        let agents = fingerprint.agents.iter();
        let basis = (
            &fingerprint.tasks,
            &fingerprint.checker,
            &fingerprint.environment,
        );
        Self {
            agents: summarize(evaluation),
            about: agents
                .map(|(label, agent)| (label.clone(), agent.about.clone()))
                .collect(),
            basis: Digest::of_json(&basis).short().to_owned(),
        }
    }

    /// The results of each agent on each suite.
    pub(super) fn agents(&self) -> &[AgentSummary] {
        &self.agents
    }
}

/// The leaderboards of these evaluations, by suite and score. Those of the published results are always there.
pub(crate) fn leaderboards(evaluations: &[(String, Arc<EvaluationSummary>)]) -> Vec<Leaderboard> {
    let summaries = evaluations.iter().flat_map(|(_, found)| &found.agents);
    let mut suites: Vec<&str> = summaries.map(|agent| &*agent.suite).collect();
    suites.push(PUBLISHED.0);
    suites.sort_unstable();
    suites.dedup();
    let boards = suites
        .into_iter()
        .flat_map(|suite| MEASURES.map(|measure| leaderboard(evaluations, suite, measure)));
    boards.filter(|board| !board.entries.is_empty()).collect()
}

fn leaderboard(
    evaluations: &[(String, Arc<EvaluationSummary>)],
    suite: &str,
    measure: Measure,
) -> Leaderboard {
    let measured: Vec<Measured<'_>> = evaluations
        .iter()
        .flat_map(|(run, evaluation)| {
            let of_suite = evaluation.agents.iter();
            let of_suite = of_suite.filter(move |one| one.suite == suite);
            of_suite.filter_map(move |summary| {
                Some(Measured {
                    run,
                    evaluation,
                    summary,
                    result: summary.measure(measure)?,
                })
            })
        })
        .collect();
    let has_published = (suite, measure) == PUBLISHED;
    let categories = categories(&measured, has_published);
    let mut entries: Vec<LeaderboardEntry> =
        measured.iter().map(|one| one.entry(&categories)).collect();
    if has_published {
        let rows = published();
        entries.extend(rows.iter().map(|row| printed(row, &categories)));
    }
    entries.sort_by(order);
    Leaderboard {
        suite: suite.to_owned(),
        score: measure.name().to_owned(),
        categories,
        entries,
    }
}

/// The best first; those of the same rate by name.
fn order(a: &LeaderboardEntry, b: &LeaderboardEntry) -> Ordering {
    let by_rate = b.overall.rate.total_cmp(&a.overall.rate);
    let by_name = || (&a.agent, &a.run).cmp(&(&b.agent, &b.run));
    by_rate.then_with(by_name)
}

/// The categories of all rows, in the order of the paper's table.
fn categories(measured: &[Measured<'_>], has_published: bool) -> Vec<String> {
    let names = measured.iter().flat_map(|one| one.result.categories.keys());
    let mut names: Vec<String> = names.cloned().collect();
    if has_published && names.is_empty() {
        names = CATEGORIES.map(str::to_owned).to_vec();
    }
    names.sort_by_key(|name| (category_order(name), name.clone()));
    names.dedup();
    names
}

/// The result of an agent by one score.
struct Measured<'a> {
    run: &'a str,
    evaluation: &'a EvaluationSummary,
    summary: &'a AgentSummary,
    result: &'a MeasureSummary,
}

impl Measured<'_> {
    fn entry(&self, categories: &[String]) -> LeaderboardEntry {
        let bounds = &self.result.bounds;
        let of_category = |name: &String| self.result.categories.get(name).map(RateView::from);
        LeaderboardEntry {
            agent: self.summary.agent.clone(),
            about: self
                .evaluation
                .about
                .get(&self.summary.agent)
                .cloned()
                .unwrap_or_default(),
            kind: match self.summary.kind {
                AgentKind::Reference | AgentKind::Null => EntryKind::Baseline,
                AgentKind::Model | AgentKind::Human | AgentKind::Foreign => EntryKind::Measured,
            },
            run: self.run.to_owned(),
            basis: self.evaluation.basis.clone(),
            overall: RateView::from(&self.result.overall),
            categories: categories.iter().map(of_category).collect(),
            turns: self.summary.turns.map(|turns| turns.plain),
            missing: bounds.missing as u64,
            bounds: (bounds.missing > 0).then_some((bounds.worst, bounds.best)),
            note: String::new(),
        }
    }
}

impl From<&Rate> for RateView {
    fn from(rate: &Rate) -> Self {
        Self {
            rate: rate.rate,
            interval: Some((rate.interval.low, rate.interval.high)),
            tasks: Some(rate.tasks as u64),
        }
    }
}

/// A published result.
fn printed(row: &Published, categories: &[String]) -> LeaderboardEntry {
    let rate = |percent: f64| RateView {
        rate: percent / 100.0,
        ..RateView::default()
    };
    let of_category = |name: &String| row.categories.get(category_order(name)).copied().map(rate);
    LeaderboardEntry {
        agent: match row.size {
            "-" => row.model.to_owned(),
            size => format!("{} {size}", row.model),
        },
        about: SOURCE.to_owned(),
        kind: EntryKind::Published,
        overall: rate(row.overall),
        categories: categories.iter().map(of_category).collect(),
        turns: Some(row.turns),
        note: match row.contradicts() {
            true => format!("its category columns give {:.1} %", row.computed()),
            false => String::new(),
        },
        ..LeaderboardEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::tests::write;

    fn evaluation(
        name: &str,
        attempts: &[(&str, &str, Option<bool>)],
    ) -> (String, Arc<EvaluationSummary>) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), attempts);
        let records = folder.path().join(pybench_eval::run::RESULTS);
        let summary = EvaluationSummary::read(&records).unwrap();
        (name.to_owned(), Arc::new(summary))
    }

    #[test]
    fn published_results_are_there_without_any_evaluation() {
        let boards = leaderboards(&[]);
        assert_eq!(boards.len(), 1);
        let board = &boards[0];
        assert_eq!((&*board.suite, &*board.score), ("pybench", "upstream"));
        assert_eq!(board.entries.len(), published().len());
        assert_eq!(board.categories, CATEGORIES);
        let is_sorted = |pair: &[LeaderboardEntry]| pair[0].overall.rate >= pair[1].overall.rate;
        assert!(board.entries.windows(2).all(is_sorted));
        let best = &board.entries[0];
        assert_eq!(
            (&*best.agent, best.kind),
            ("GPT-4o-mini", EntryKind::Published)
        );
        assert!((best.overall.rate - 0.811).abs() < 1e-9 && best.overall.interval.is_none());
        let of_math = best.categories[3].unwrap();
        assert!((of_math.rate - 1.0).abs() < 1e-9);
        // The printed overall value of some contradicts the columns.
        let noted = board.entries.iter().filter(|entry| !entry.note.is_empty());
        assert_eq!(noted.count(), 8);
    }

    #[test]
    fn agents_of_all_evaluations_are_compared_by_suite_and_score() {
        let first = evaluation(
            "first",
            &[
                ("a", "1", Some(true)),
                ("a", "2", Some(false)),
                ("a", "3", None),
            ],
        );
        let second = evaluation("second", &[("a", "1", Some(true)), ("a", "2", Some(true))]);
        let boards = leaderboards(&[first, second]);
        let board = boards.iter().find(|one| one.suite == "s").unwrap();
        assert_eq!((&*board.score, board.entries.len()), ("strict", 2));
        let [best, other] = &board.entries[..] else {
            panic!("{board:?}")
        };
        assert_eq!((&*best.run, &*other.run), ("second", "first"));
        assert_eq!(
            (best.overall.tasks, other.overall.tasks),
            (Some(2), Some(2))
        );
        assert!((other.overall.rate - 0.5).abs() < 1e-9);
        let (low, high) = other.overall.interval.unwrap();
        assert!(0.0 < low && low < 0.5 && 0.5 < high && high < 1.0);
        assert_eq!((other.missing, best.missing), (1, 0));
        let (worst, highest) = other.bounds.unwrap();
        assert!((worst - 1.0 / 3.0).abs() < 1e-9 && (highest - 2.0 / 3.0).abs() < 1e-9);
        // Both are of the same tasks, checker and environment.
        assert_eq!(best.basis, other.basis);
        assert_eq!(board.categories, ["chart"]);
        assert_eq!(best.categories[0].unwrap().tasks, Some(2));
    }
}
