//! Leaderboards with the columns of the paper's Table 3, one for each suite and score.

use serde::Serialize;

use super::{Published, ReportData, SOURCE, published};
use crate::record::AgentKind;
use crate::stats::{AgentSummary, Measure, Rate};
use pybench_checks::interval::Interval;
use pybench_types::text::{line, percent};

/// A formatted rate and its interval.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LeaderboardCell {
    pub(super) value: String,
    pub(super) interval: String,
}

/// One agent, or one published result.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LeaderboardRow {
    pub(super) label: String,
    pub(super) about: String,
    pub(super) class: &'static str,
    pub(super) judge: LeaderboardCell,
    pub(super) categories: Vec<LeaderboardCell>,
    pub(super) overall: LeaderboardCell,
    pub(super) note: String,
    pub(super) macro_mean: String,
    pub(super) clustered: String,
    pub(super) turns_upstream: String,
    pub(super) turns: String,
    pub(super) humaneval: String,
    pub(super) mbpp: String,
}

/// The leaderboard of one suite and score.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Leaderboard {
    pub(super) suite: String,
    pub(super) measure: &'static str,
    pub(super) about: String,
    pub(super) categories: Vec<String>,
    /// Whether to show the HumanEval(+) and MBPP(+) columns.
    pub(super) general: bool,
    pub(super) rows: Vec<LeaderboardRow>,
}

/// All leaderboards that have at least one row.
pub(super) fn leaderboards(data: &ReportData<'_>) -> Vec<Leaderboard> {
    let scores = [Measure::Strict, Measure::Fixed, Measure::Upstream];
    let suites = data.suites().into_iter();
    let tables = suites.flat_map(|suite| scores.map(|measure| (suite, measure)));
    tables
        .filter_map(|(suite, measure)| leaderboard(data, suite, measure))
        .collect()
}

fn leaderboard(data: &ReportData<'_>, suite: &str, measure: Measure) -> Option<Leaderboard> {
    let mut categories: Vec<String> = (data.suite_summaries(suite))
        .filter_map(|s| s.measure(measure))
        .flat_map(|m| m.categories.keys().cloned())
        .collect();
    categories.sort_by_key(|c| (category_order(c), c.clone()));
    categories.dedup();
    let is_measured = data
        .suite_summaries(suite)
        .any(|s| s.measure(measure).is_some());
    let is_scored = data.suite_summaries(suite).any(|s| !s.measures.is_empty());
    let own = data
        .suite_summaries(suite)
        .filter_map(|s| row(data, s, measure, &categories));
    let mut rows: Vec<_> = own.collect();
    // A suite need not have every score.
    if rows.is_empty() || is_scored && !is_measured {
        return None;
    }
    let has_published = suite == "pybench" && measure == Measure::Upstream;
    if has_published {
        rows.extend(
            published()
                .iter()
                .map(|row| published_row(row, &categories)),
        );
    }
    let general = has_published
        || rows
            .iter()
            .any(|r| !r.humaneval.is_empty() || !r.mbpp.is_empty());
    Some(Leaderboard {
        suite: line(suite),
        measure: measure.name(),
        about: about(measure, has_published),
        categories: categories.iter().map(|c| line(c)).collect(),
        general,
        rows,
    })
}

fn about(measure: Measure, has_published: bool) -> String {
    let about = match measure {
        Measure::Strict => "Executable checks of this project, on the headline tasks.",
        Measure::Fixed => "Upstream's tests in isolation, with broken or wrong oracles repaired.",
        Measure::Upstream => "The benchmark's own tests, unchanged.",
        Measure::Judge => "Verdicts of the LLM judge.",
    };
    match has_published {
        true => format!(
            "{about} Shaded rows are published results ({SOURCE}), not measured here. If their overall value contradicts their category columns, both are shown."
        ),
        false => about.to_owned(),
    }
}

/// Position of a category in the paper's table.
fn category_order(category: &str) -> usize {
    let name = category.to_lowercase();
    let order = ["chart", "text", "image", "math", "software"];
    order
        .iter()
        .position(|word| name.contains(word))
        .unwrap_or(order.len())
}

fn interval(interval: Interval) -> String {
    format!("{}–{}", percent(interval.low), percent(interval.high))
}

fn cell(rate: Option<&Rate>) -> LeaderboardCell {
    rate.map_or_else(LeaderboardCell::default, |rate| LeaderboardCell {
        value: percent(rate.rate),
        interval: format!("{} (n = {})", interval(rate.interval), rate.tasks),
    })
}

fn row(
    data: &ReportData<'_>,
    summary: &AgentSummary,
    measure: Measure,
    categories: &[String],
) -> Option<LeaderboardRow> {
    let row = base_row(data, summary)?;
    let Some(measured) = summary.measure(measure) else {
        let missing = summary.unmeasured.get(&measure)?;
        return Some(LeaderboardRow {
            categories: vec![LeaderboardCell::default(); categories.len()],
            note: missing_note(*missing, 0.0, 1.0),
            ..row
        });
    };
    let bounds = &measured.bounds;
    Some(LeaderboardRow {
        categories: categories
            .iter()
            .map(|c| cell(measured.categories.get(c)))
            .collect(),
        overall: cell(Some(&measured.overall)),
        note: match bounds.missing {
            0 => String::new(),
            missing => missing_note(missing, bounds.worst, bounds.best),
        },
        macro_mean: percent(measured.macro_mean),
        clustered: interval(measured.clustered.over_tasks),
        ..row
    })
}

/// Attempts without a value, and the rates if all of them had failed or passed.
fn missing_note(missing: usize, worst: f64, best: f64) -> String {
    format!("{missing} missing: {}–{}", percent(worst), percent(best))
}

/// The parts of a row that do not depend on the score.
fn base_row(data: &ReportData<'_>, summary: &AgentSummary) -> Option<LeaderboardRow> {
    let agent = data.evaluation.fingerprint.agents.get(&summary.agent)?;
    let turns = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.1}"));
    Some(LeaderboardRow {
        label: line(&summary.agent),
        about: line(&agent.about),
        class: match agent.kind {
            AgentKind::Reference | AgentKind::Null => "baseline",
            _ => "",
        },
        judge: cell(summary.measure(Measure::Judge).map(|m| &m.overall)),
        turns_upstream: turns(summary.turns.and_then(|t| t.as_upstream)),
        turns: turns(summary.turns.map(|t| t.plain)),
        humaneval: general(data, &summary.agent, "humaneval"),
        mbpp: general(data, &summary.agent, "mbpp"),
        ..LeaderboardRow::default()
    })
}

/// `57.3(48.2)`: pass rates with the original tests and with those of EvalPlus.
fn general(data: &ReportData<'_>, agent: &str, suite: &str) -> String {
    let rate = |suite: &str| {
        let mut found = data.suite_summaries(suite).filter(|s| s.agent == agent);
        let measured = found.next()?.measure(Measure::Upstream)?;
        Some(percent(measured.overall.rate))
    };
    match (rate(suite), rate(&format!("{suite}+"))) {
        (Some(base), Some(plus)) => format!("{base}({plus})"),
        (Some(base), None) => base,
        (None, Some(plus)) => format!("({plus})"),
        (None, None) => String::new(),
    }
}

/// A published result, in the columns of this leaderboard.
fn published_row(row: &Published, categories: &[String]) -> LeaderboardRow {
    let plain = |value: f64| LeaderboardCell {
        value: format!("{value:.1}"),
        interval: String::new(),
    };
    let column = |category: &String| match row.categories.get(category_order(category)) {
        Some(value) => plain(*value),
        None => LeaderboardCell::default(),
    };
    LeaderboardRow {
        label: match row.size {
            "-" => row.model.to_owned(),
            size => format!("{} {size}", row.model),
        },
        about: "published".to_owned(),
        class: "published",
        judge: plain(row.judge),
        categories: categories.iter().map(column).collect(),
        overall: plain(row.overall),
        note: match row.contradicts() {
            true => format!("columns give {:.1}", row.computed()),
            false => String::new(),
        },
        macro_mean: format!("{:.1}", row.categories.iter().sum::<f64>() / 5.0),
        turns_upstream: format!("{:.1}", row.turns),
        humaneval: format!("{:.1}({:.1})", row.humaneval.0, row.humaneval.1),
        mbpp: format!("{:.1}({:.1})", row.mbpp.0, row.mbpp.1),
        ..LeaderboardRow::default()
    }
}
