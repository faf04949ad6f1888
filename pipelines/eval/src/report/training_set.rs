//! The section about the training set: which of its rows match tasks, and the scores without these tasks.

use std::collections::HashMap;

use minijinja::{Value, context};
use pybench_types::text::{line, markdown, percent};

use super::{ReportData, Titles};
use crate::contamination::{SuiteContamination, TrainingSet};
use crate::stats::{AgentSummary, Measure, MeasureSummary};

/// Maximum number of matches that are listed for each suite.
const MAX_LISTED: usize = 20;
/// Length of a row's id.
const SHORT_ID: usize = 12;
const SCORES: [Measure; 3] = [Measure::Strict, Measure::Fixed, Measure::Upstream];

/// What was compared, in one sentence.
fn summary(set: &TrainingSet) -> String {
    let digest = set.digest.as_ref();
    let digest = digest.map_or(String::new(), |digest| format!(" (digest {digest})"));
    let mut text = format!(
        "{} of {} rows of {}{digest} match tasks of these suites.",
        set.matching_rows, set.rows, set.dataset
    );
    if set.unseen_files > 0 {
        text += &format!(
            " {} files of the dataset are not on this machine: only their digests were compared.",
            set.unseen_files
        );
    }
    text
}

/// The texts of a suite's row in the table.
struct SuiteRow {
    suite: String,
    rows: String,
    by: String,
    tasks: String,
    compared: String,
}

fn suite_row(suite: &SuiteContamination) -> SuiteRow {
    let by = suite.by.iter();
    let by: Vec<String> = by
        .map(|(kind, rows)| {
            let kind = serde_json::to_value(kind).unwrap_or_default();
            format!(
                "{} {rows}",
                kind.as_str().unwrap_or_default().replace('_', " ")
            )
        })
        .collect();
    let mut compared = suite.compared();
    if suite.unread_inputs > 0 {
        compared += &format!(
            "; {} input files of the records were not found, so that only their digests were compared",
            suite.unread_inputs
        );
    }
    SuiteRow {
        suite: suite.suite.clone(),
        rows: suite.rows.to_string(),
        by: by.join(", "),
        tasks: match suite.evaluated {
            0 => "not evaluated".to_owned(),
            evaluated => format!("{} of {evaluated}", suite.matched_tasks.len()),
        },
        compared,
    }
}

/// A score with all tasks and without those that rows match.
struct ScoreRow {
    agent: String,
    suite: String,
    measure: &'static str,
    all: String,
    without: String,
}

fn score_rows(data: &ReportData<'_>, set: &TrainingSet) -> Vec<ScoreRow> {
    let mut rows = Vec::new();
    for suite in set.suites.iter().filter(|s| !s.matched_tasks.is_empty()) {
        let others: HashMap<&str, &AgentSummary> = suite
            .without_matched
            .iter()
            .map(|summary| (&*summary.agent, summary))
            .collect();
        for summary in data.suite_summaries(&suite.suite) {
            for measure in SCORES {
                let Some(all) = summary.measure(measure) else {
                    continue;
                };
                let other = others.get(&*summary.agent);
                let other = other.and_then(|summary| summary.measure(measure));
                rows.push(ScoreRow {
                    agent: summary.agent.clone(),
                    suite: suite.suite.clone(),
                    measure: measure.name(),
                    all: rate(all),
                    without: other.map_or("no task is left".to_owned(), rate),
                });
            }
        }
    }
    rows
}

fn rate(measured: &MeasureSummary) -> String {
    let overall = &measured.overall;
    format!(
        "{} [{}–{}] (n = {})",
        percent(overall.rate),
        percent(overall.interval.low),
        percent(overall.interval.high),
        overall.tasks
    )
}

/// A match: row, task and its title if it was evaluated, reason.
fn listed<'a>(
    suite: &'a SuiteContamination,
    titles: &'a Titles<'_>,
) -> impl Iterator<Item = (String, String, String)> + 'a {
    suite.matches.iter().take(MAX_LISTED).map(|found| {
        let id: String = found.trajectory.chars().take(SHORT_ID).collect();
        let title = titles.of(&suite.suite, &found.task);
        let task = match title == found.task {
            true => found.task.clone(),
            false => format!("{} ({title})", found.task),
        };
        let row = format!("{} {id}", found.row);
        (row, task, found.by.reason(found.share))
    })
}

fn rest(suite: &SuiteContamination) -> usize {
    suite.matches.len().saturating_sub(MAX_LISTED)
}

/// The section in Markdown.
pub(super) fn in_markdown(data: &ReportData<'_>) -> String {
    let Some(set) = &data.training_set else {
        return String::new();
    };
    let mut out = format!("## Training set\n\n{}\n\n", markdown(&summary(set)));
    out += "| suite | rows | by | evaluated tasks matched | compared with |\n| --- | --- | --- | --- | --- |\n";
    for suite in &set.suites {
        let row = suite_row(suite);
        let cells = [row.suite, row.rows, row.by, row.tasks, row.compared];
        out += &format!("| {} |\n", cells.map(|cell| markdown(&cell)).join(" | "));
    }
    let scores = score_rows(data, set);
    if !scores.is_empty() {
        out += "\n### Scores without the matched tasks\n\n| agent | suite | score | all tasks | without |\n| --- | --- | --- | --- | --- |\n";
        for row in scores {
            out += &format!(
                "| {} | {} | {} | {} | {} |\n",
                markdown(&row.agent),
                markdown(&row.suite),
                row.measure,
                row.all,
                row.without
            );
        }
    }
    for suite in set.suites.iter().filter(|s| !s.matches.is_empty()) {
        out += &format!("\n### Rows that match {}\n\n", markdown(&suite.suite));
        out += "| row | task | by |\n| --- | --- | --- |\n";
        for (row, task, reason) in listed(suite, &data.titles) {
            let cells = [row, task, reason];
            out += &format!("| {} |\n", cells.map(|cell| markdown(&cell)).join(" | "));
        }
        if rest(suite) > 0 {
            out += &format!("\n{} more matches are in report.json.\n", rest(suite));
        }
    }
    out + "\n"
}

/// The section for the index page.
pub(super) fn for_page(data: &ReportData<'_>) -> Option<Value> {
    let set = data.training_set.as_ref()?;
    let suites = set.suites.iter().map(|suite| {
        let row = suite_row(suite);
        let matches = listed(suite, &data.titles).map(|(row, task, reason)| {
            context! { row => line(&row), task => line(&task), reason => line(&reason) }
        });
        context! {
            name => line(&row.suite), rows => row.rows, by => row.by, tasks => row.tasks,
            compared => line(&row.compared), matches => matches.collect::<Vec<_>>(), more => rest(suite),
        }
    });
    let scores = score_rows(data, set).into_iter().map(|row| {
        context! {
            agent => line(&row.agent), suite => line(&row.suite), measure => row.measure,
            all => row.all, without => row.without,
        }
    });
    Some(context! {
        summary => line(&summary(set)),
        suites => suites.collect::<Vec<_>>(),
        scores => scores.collect::<Vec<_>>(),
    })
}
