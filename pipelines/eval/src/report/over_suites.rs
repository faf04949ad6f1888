//! The tables of macro averages over suites.

use minijinja::{Value, context};
use pybench_types::text::{line, markdown, percent};

use super::ReportData;
use super::leaderboard::counted;
use crate::stats::{OverSuites, SuiteRate, SuitesMean};

/// What the mean is, for readers.
const ABOUT: &str = "The macro average gives each suite the same weight. Its interval is computed from those of the suites \
                     over tasks; suites that share tasks do not narrow it. An agent without a value on one of the suites has \
                     none. The suite pybench-regenerated does not count. Beside a rate, \"1 of 257\" means that the score has \
                     a value for one of 257 tasks that were run.";

/// The cells of an agent: its rate on each suite, then the mean.
fn cells(mean: &SuitesMean) -> Vec<String> {
    let rates = mean.rates.iter();
    let rates = rates.map(|rate| rate.map_or("–".to_owned(), rate_cell));
    let overall = match (mean.mean, mean.interval) {
        (Some(mean), Some(interval)) => format!(
            "{} [{}–{}]",
            percent(mean),
            percent(interval.low),
            percent(interval.high)
        ),
        _ => "–".to_owned(),
    };
    rates.chain([overall]).collect()
}

/// `57.3`, or `100.0 (1 of 257)` if only some of the tasks have a value.
fn rate_cell(rate: SuiteRate) -> String {
    let SuiteRate { rate, tasks, run } = rate;
    match tasks < run {
        true => format!("{} ({})", percent(rate), counted(tasks, run)),
        false => percent(rate),
    }
}

/// The tables in Markdown.
pub(super) fn in_markdown(data: &ReportData<'_>) -> String {
    data.over_suites.iter().map(table).collect()
}

fn table(found: &OverSuites) -> String {
    let suites = found.suites.iter().map(|suite| markdown(suite));
    let head: Vec<String> = suites.chain(["macro".to_owned()]).collect();
    let mut out = format!("## Over suites: {}\n\n{ABOUT}\n\n", found.measure.name());
    out += &format!("| agent | {} |\n", head.join(" | "));
    out += &format!("| --- |{}\n", " --- |".repeat(head.len()));
    for mean in &found.agents {
        out += &format!(
            "| {} | {} |\n",
            markdown(&mean.agent),
            cells(mean).join(" | ")
        );
    }
    out + "\n"
}

/// The tables for the index page.
pub(super) fn for_page(data: &ReportData<'_>) -> Vec<Value> {
    let table = |found: &OverSuites| {
        let rows = found.agents.iter();
        let rows = rows.map(|mean| context! { agent => line(&mean.agent), cells => cells(mean) });
        context! {
            measure => found.measure.name(),
            about => ABOUT,
            suites => found.suites.iter().map(|suite| line(suite)).collect::<Vec<_>>(),
            rows => rows.collect::<Vec<_>>(),
        }
    };
    data.over_suites.iter().map(table).collect()
}
