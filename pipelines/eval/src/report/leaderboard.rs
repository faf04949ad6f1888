//! Leaderboards with the columns of the paper's Table 3, one for each suite and score. The overall rate comes first.

use serde::Serialize;

use super::{Published, ReportData, SOURCE, published};
use crate::record::AgentKind;
use crate::stats::{AgentSummary, Measure, MeasureSummary, Rate};
use pybench_checks::interval::Interval;
use pybench_types::text::{line, percent};

/// A formatted value, its interval and number of tasks, and a note about missing values or contradictions.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LeaderboardCell {
    pub(super) value: String,
    pub(super) interval: String,
    /// `n = 12`, or `n = 1 of 257`.
    pub(super) tasks: String,
    pub(super) note: String,
}

/// One agent, or one published result.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LeaderboardRow {
    pub(super) label: String,
    pub(super) about: String,
    pub(super) class: &'static str,
    /// One for each column of the leaderboard.
    pub(super) cells: Vec<LeaderboardCell>,
}

/// The leaderboard of one suite and score. Columns in which no row has a value are left out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Leaderboard {
    pub(super) suite: String,
    pub(super) measure: &'static str,
    pub(super) about: String,
    /// Titles of the columns; the first is the overall rate.
    pub(super) columns: Vec<String>,
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
    let mut board = Leaderboard {
        suite: line(suite),
        measure: measure.name(),
        about: about(measure, has_published),
        columns: columns(&categories),
        rows,
    };
    board.drop_empty_columns();
    Some(board)
}

fn columns(categories: &[String]) -> Vec<String> {
    let categories = categories.iter().map(|c| line(c));
    let more = [
        "macro",
        "over tasks, clustered",
        "judge",
        "turns, failed = max",
        "turns",
        "HumanEval(+)",
        "MBPP(+)",
    ];
    let overall = std::iter::once("overall".to_owned());
    overall
        .chain(categories)
        .chain(more.map(str::to_owned))
        .collect()
}

impl LeaderboardCell {
    fn plain(value: String) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.value.is_empty() && self.note.is_empty()
    }
}

impl Leaderboard {
    fn drop_empty_columns(&mut self) {
        for at in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.cells[at].is_empty()) {
                self.columns.remove(at);
                for row in &mut self.rows {
                    row.cells.remove(at);
                }
            }
        }
    }
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

/// Position of a category in the paper's table; its number of columns if it is none of them.
pub fn category_order(category: &str) -> usize {
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

fn cell(rate: &Rate) -> LeaderboardCell {
    LeaderboardCell {
        interval: interval(rate.interval),
        tasks: format!("n = {}", rate.tasks),
        ..LeaderboardCell::plain(percent(rate.rate))
    }
}

fn row(
    data: &ReportData<'_>,
    summary: &AgentSummary,
    measure: Measure,
    categories: &[String],
) -> Option<LeaderboardRow> {
    let agent = data.evaluation.fingerprint.agents.get(&summary.agent)?;
    let mut cells = match summary.measure(measure) {
        Some(measured) => {
            let run = summary.tasks - summary.not_run;
            measured_cells(measured, categories, run)
        }
        None => {
            let missing = *summary.unmeasured.get(&measure)?;
            let overall = LeaderboardCell {
                note: missing_note(missing, 0.0, 1.0),
                ..LeaderboardCell::default()
            };
            let mut cells = vec![overall];
            cells.resize(categories.len() + 3, LeaderboardCell::default());
            cells
        }
    };
    let judge = summary.measure(Measure::Judge).map(|m| cell(&m.overall));
    cells.push(judge.unwrap_or_default());
    let turns = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.1}"));
    let more = [
        turns(summary.turns.and_then(|t| t.as_upstream)),
        turns(summary.turns.map(|t| t.plain)),
        general(data, &summary.agent, "humaneval"),
        general(data, &summary.agent, "mbpp"),
    ];
    cells.extend(more.map(LeaderboardCell::plain));
    Some(LeaderboardRow {
        label: line(&summary.agent),
        about: line(&agent.about),
        class: match agent.kind {
            AgentKind::Reference | AgentKind::Null => "baseline",
            _ => "",
        },
        cells,
    })
}

/// The number of tasks with a value: `12`, or `1 of 257`. A score may leave out some of those that were run, as that of
/// DA-Dev's authors does.
pub(super) fn counted(tasks: usize, run: usize) -> String {
    match tasks < run {
        true => format!("{tasks} of {run}"),
        false => tasks.to_string(),
    }
}

/// The cells from `overall` to the clustered interval, of an agent with so many tasks that were run.
fn measured_cells(
    measured: &MeasureSummary,
    categories: &[String],
    run: usize,
) -> Vec<LeaderboardCell> {
    let bounds = &measured.bounds;
    let overall = LeaderboardCell {
        tasks: format!("n = {}", counted(measured.overall.tasks, run)),
        note: match bounds.missing {
            0 => String::new(),
            missing => missing_note(missing, bounds.worst, bounds.best),
        },
        ..cell(&measured.overall)
    };
    let mut cells = vec![overall];
    let rates = categories.iter().map(|c| measured.categories.get(c));
    cells.extend(rates.map(|rate| rate.map(cell).unwrap_or_default()));
    let more = [
        percent(measured.macro_mean),
        interval(measured.clustered.over_tasks),
    ];
    cells.extend(more.map(LeaderboardCell::plain));
    cells
}

/// Attempts without a value, and the rates if all of them had failed or passed.
fn missing_note(missing: usize, worst: f64, best: f64) -> String {
    format!("{missing} missing: {}–{}", percent(worst), percent(best))
}

/// `57.3(48.2)`: pass rates with the original tests and with those of EvalPlus.
fn general(data: &ReportData<'_>, agent: &str, suite: &str) -> String {
    let rate = |suite: &str| {
        let mut found = data.suite_summaries(suite).filter(|s| s.agent == agent);
        let measured = found.next()?.measure(Measure::Upstream)?;
        Some(percent(measured.overall.rate))
    };
    match (rate(suite), rate(&format!("{suite}-plus"))) {
        (Some(base), Some(plus)) => format!("{base}({plus})"),
        (Some(base), None) => base,
        (None, Some(plus)) => format!("({plus})"),
        (None, None) => String::new(),
    }
}

/// A published result, in the columns of this leaderboard.
fn published_row(row: &Published, categories: &[String]) -> LeaderboardRow {
    let plain = |value: f64| LeaderboardCell::plain(format!("{value:.1}"));
    let mut overall = plain(row.overall);
    if row.contradicts() {
        overall.note = format!("columns give {:.1}", row.computed());
    }
    let mut cells = vec![overall];
    let rates = categories
        .iter()
        .map(|c| row.categories.get(category_order(c)));
    cells.extend(rates.map(|rate| rate.copied().map(plain).unwrap_or_default()));
    let no_interval = LeaderboardCell::default();
    let no_plain_turns = LeaderboardCell::default();
    let pair = |(base, plus)| LeaderboardCell::plain(format!("{base:.1}({plus:.1})"));
    cells.extend([
        plain(row.categories.iter().sum::<f64>() / 5.0),
        no_interval,
        plain(row.judge),
        plain(row.turns),
        no_plain_turns,
        pair(row.humaneval),
        pair(row.mbpp),
    ]);
    LeaderboardRow {
        label: match row.size {
            "-" => row.model.to_owned(),
            size => format!("{} {size}", row.model),
        },
        about: "published".to_owned(),
        class: "published",
        cells,
    }
}
