//! The leaderboard in the shape of the paper's Table 3: one for each suite and score.

use serde::Serialize;

use super::text::{line, percent};
use super::{Numbers, Published, SOURCE, published};
use crate::eval::record::AgentKind;
use crate::eval::stats::{AgentSummary, Interval, Measure, MeasureSummary, Rate};

/// A rate as it is printed.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cell {
    pub(super) value: String,
    pub(super) interval: String,
}

/// A row.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) about: String,
    pub(super) class: &'static str,
    pub(super) judge: Cell,
    pub(super) categories: Vec<Cell>,
    pub(super) overall: Cell,
    pub(super) note: String,
    pub(super) macro_mean: String,
    pub(super) clustered: String,
    pub(super) turns_upstream: String,
    pub(super) turns: String,
    pub(super) humaneval: String,
    pub(super) mbpp: String,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Board {
    pub(super) suite: String,
    pub(super) measure: &'static str,
    pub(super) about: String,
    pub(super) categories: Vec<String>,
    /// Whether there are columns of general ability.
    pub(super) general: bool,
    pub(super) rows: Vec<Row>,
}

/// Every table that has a row.
pub(super) fn boards(numbers: &Numbers<'_>) -> Vec<Board> {
    let scores = [Measure::Strict, Measure::Fixed, Measure::Upstream];
    let suites = numbers.suites().into_iter();
    let tables = suites.flat_map(|suite| scores.map(|measure| (suite, measure)));
    tables
        .filter_map(|(suite, measure)| board(numbers, suite, measure))
        .collect()
}

fn board(numbers: &Numbers<'_>, suite: &str, measure: Measure) -> Option<Board> {
    let mut categories: Vec<String> = (numbers.of(suite))
        .filter_map(|s| s.measure(measure))
        .flat_map(|m| m.categories.keys().cloned())
        .collect();
    categories.sort_by_key(|c| (place(c), c.clone()));
    categories.dedup();
    let own = numbers
        .of(suite)
        .filter_map(|s| row(numbers, s, s.measure(measure)?, &categories));
    let mut rows: Vec<_> = own.collect();
    if rows.is_empty() {
        return None;
    }
    let theirs = suite == "pybench" && measure == Measure::Upstream;
    if theirs {
        rows.extend(
            published()
                .iter()
                .map(|row| published_row(row, &categories)),
        );
    }
    let general = theirs
        || rows
            .iter()
            .any(|r| !r.humaneval.is_empty() || !r.mbpp.is_empty());
    Some(Board {
        suite: line(suite),
        measure: measure.name(),
        about: about(measure, theirs),
        categories: categories.iter().map(|c| line(c)).collect(),
        general,
        rows,
    })
}

fn about(measure: Measure, theirs: bool) -> String {
    let about = match measure {
        Measure::Strict => "Our executable checks, over the tasks of the headline.",
        Measure::Fixed => "Upstream's intent, isolated, with broken oracles repaired.",
        Measure::Upstream => "The benchmark's own tests, with their quirks.",
        Measure::Judge => "The judge.",
    };
    match theirs {
        true => format!(
            "{about} Shaded rows are published figures ({SOURCE}), not measured here; where their overall value is not what their columns give, both are shown."
        ),
        false => about.to_owned(),
    }
}

/// The paper's order of categories.
fn place(category: &str) -> usize {
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

fn cell(rate: Option<&Rate>) -> Cell {
    rate.map_or_else(Cell::default, |rate| Cell {
        value: percent(rate.rate),
        interval: format!("{} (n = {})", interval(rate.interval), rate.tasks),
    })
}

fn row(
    numbers: &Numbers<'_>,
    summary: &AgentSummary,
    measured: &MeasureSummary,
    categories: &[String],
) -> Option<Row> {
    let agent = numbers.evaluation.frozen.agents.get(&summary.agent)?;
    let turns = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.1}"));
    Some(Row {
        label: line(&summary.agent),
        about: line(&agent.about),
        class: match agent.kind {
            AgentKind::Reference | AgentKind::Null => "beside",
            _ => "",
        },
        judge: cell(summary.measure(Measure::Judge).map(|m| &m.overall)),
        categories: categories
            .iter()
            .map(|c| cell(measured.categories.get(c)))
            .collect(),
        overall: cell(Some(&measured.overall)),
        note: match measured.bounds.missing {
            0 => String::new(),
            missing => format!(
                "{missing} missing: {}–{}",
                percent(measured.bounds.worst),
                percent(measured.bounds.best)
            ),
        },
        macro_mean: percent(measured.macro_mean),
        clustered: interval(measured.clustered.over_tasks),
        turns_upstream: turns(summary.turns.and_then(|t| t.as_upstream)),
        turns: turns(summary.turns.map(|t| t.plain)),
        humaneval: general(numbers, &summary.agent, "humaneval"),
        mbpp: general(numbers, &summary.agent, "mbpp"),
    })
}

/// `57.3(48.2)`: the base tests, and those of EvalPlus.
fn general(numbers: &Numbers<'_>, agent: &str, suite: &str) -> String {
    let rate = |suite: &str| {
        let mut found = numbers.of(suite).filter(|s| s.agent == agent);
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

/// A published row under the columns that are shown here.
fn published_row(row: &Published, categories: &[String]) -> Row {
    let plain = |value: f64| Cell {
        value: format!("{value:.1}"),
        interval: String::new(),
    };
    let column = |category: &String| match row.categories.get(place(category)) {
        Some(value) => plain(*value),
        None => Cell::default(),
    };
    Row {
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
        ..Row::default()
    }
}
