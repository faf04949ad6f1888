//! The report as Markdown.

use super::ReportData;
use super::Titles;
use super::leaderboard::{Leaderboard, LeaderboardCell, leaderboards};
use super::{over_suites, training_set};
use crate::stats::AgentSummary;
use pybench_types::text::{count, dollars, markdown, percent};

/// Maximum number of tasks in the sentence of a comparison.
const MAX_FLIPS: usize = 50;

/// The report as Markdown.
pub(super) fn report(data: &ReportData<'_>) -> String {
    let fingerprint = &data.evaluation.fingerprint;
    let mut out = format!("# {}\n\n", markdown(&fingerprint.task_set));
    out += "pass@1 in percent with 95 % Wilson intervals over tasks. Different scores are never combined.\n\n";
    for warning in &data.warnings {
        out += &format!("**{}**\n\n", markdown(warning));
    }
    for board in leaderboards(data) {
        out += &table(&board);
    }
    out += &over_suites::in_markdown(data);
    out += &training_set::in_markdown(data);
    out += &coverage(data);
    out += &comparisons(data);
    out += &benchmarks(data);
    out += "## What defines these scores\n\n";
    for (name, value) in [
        ("task set", fingerprint.tasks.as_str()),
        ("checker", &fingerprint.checker),
        ("Python environment", &fingerprint.environment),
        ("prompts", &fingerprint.prompts),
    ] {
        out += &format!("- {name}: `{}`\n", markdown(value));
    }
    for (name, value) in &fingerprint.limits {
        out += &format!("- {}: {value}\n", markdown(name));
    }
    out
}

/// Where the benchmarks come from, and how their scores are defined.
fn benchmarks(data: &ReportData<'_>) -> String {
    let suites = &data.evaluation.fingerprint.suites;
    if suites.is_empty() {
        return String::new();
    }
    let mut out = "## Benchmarks\n\n".to_owned();
    for (name, source) in suites {
        out += &format!(
            "- **{}**: {}, commit `{}`. License: {}.\n",
            markdown(name),
            markdown(&source.repository),
            markdown(&source.commit),
            markdown(&source.license)
        );
        for note in &source.notes {
            out += &format!("  - {}\n", markdown(note));
        }
    }
    out + "\n"
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn cell(cell: &LeaderboardCell) -> String {
    let mut text = cell.value.clone();
    if !cell.interval.is_empty() {
        text += &format!(" [{} ({})]", cell.interval, cell.tasks);
    }
    if !cell.note.is_empty() {
        text += &format!(" ({})", cell.note);
    }
    text.trim_start().to_owned()
}

fn table(board: &Leaderboard) -> String {
    let mut head = vec!["agent".to_owned()];
    head.extend(board.columns.iter().map(|c| markdown(c)));
    let mut out = format!(
        "## {}: {}\n\n{}\n\n",
        markdown(&board.suite),
        board.measure,
        board.about
    );
    out += &row(&head);
    out += &row(&vec!["---".to_owned(); head.len()]);
    for r in &board.rows {
        let mark = if r.class == "published" {
            " (published)"
        } else {
            ""
        };
        let mut cells = vec![format!("{}{mark}", markdown(&r.label))];
        cells.extend(r.cells.iter().map(cell));
        out += &row(&cells);
    }
    out + "\n"
}

fn coverage(data: &ReportData<'_>) -> String {
    let mut out = "## Attempts\n\n| agent | suite | tasks | not run | attempts | ran | infrastructure | tokens in | tokens out | cost |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n".to_owned();
    for s in &data.summaries {
        out += &row(&[
            markdown(&s.agent),
            markdown(&s.suite),
            s.tasks.to_string(),
            s.not_run.to_string(),
            s.attempts.to_string(),
            s.ran.to_string(),
            s.infrastructure.to_string(),
            count(s.tokens_in),
            count(s.tokens_out),
            cost(s),
        ]);
    }
    out + "\n" + &ended_early(data)
}

/// The attempts that a rule of the recipe ended, if there are any.
fn ended_early(data: &ReportData<'_>) -> String {
    let with_some = data.summaries.iter().filter(|s| s.ended_early > 0);
    let lines: Vec<_> = with_some
        .map(|s| {
            let (agent, suite) = (markdown(&s.agent), markdown(&s.suite));
            let (early, ran) = (s.ended_early, s.ran);
            format!("- {agent}, {suite}: {early} of {ran} attempts\n")
        })
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!(
            "Ended early, by a rule below, because the model repeated itself or wrote no code:\n\n{}\n",
            lines.concat()
        ),
    }
}

/// What all attempts of an agent cost.
pub(super) fn cost(summary: &AgentSummary) -> String {
    let known = summary.micro_usd.map(dollars);
    known.unwrap_or_else(|| "unknown".to_owned())
}

fn comparisons(data: &ReportData<'_>) -> String {
    if data.comparisons.is_empty() {
        return String::new();
    }
    let mut out = "## Pairwise comparisons\n\n".to_owned();
    for c in &data.comparisons {
        out += &format!("- {}\n", sentence(c, &data.titles));
    }
    out + "\n"
}

/// Describes a comparison in a sentence.
pub(crate) fn sentence(c: &crate::stats::Comparison, titles: &Titles) -> String {
    let flips = c.flips.iter().take(MAX_FLIPS);
    let flips: Vec<_> = flips
        .map(|f| markdown(titles.of(&c.suite, &f.task)))
        .collect();
    let more = if c.flips.len() > MAX_FLIPS {
        "; …"
    } else {
        ""
    };
    format!(
        "{} vs. {}, {} ({}), {} tasks in {} clusters: {} vs. {}, difference {} [{}, {}], McNemar p = {:.4} (Holm {:.4}): {}. {} is better on {} tasks, {} on {}{}",
        markdown(&c.a),
        markdown(&c.b),
        markdown(&c.suite),
        c.measure.name(),
        c.tasks,
        c.clusters,
        percent(c.a_rate),
        percent(c.b_rate),
        percent(c.difference),
        percent(c.interval.low),
        percent(c.interval.high),
        c.p,
        c.p_holm,
        verdict(c),
        markdown(&c.a),
        c.a_better,
        markdown(&c.b),
        c.b_better,
        match flips.is_empty() {
            true => ".".to_owned(),
            false => format!("; they differ on tasks {}{more}.", flips.join("; ")),
        },
    )
}

/// Which of the two is significantly better, if any.
pub(super) fn verdict(c: &crate::stats::Comparison) -> String {
    match (c.tied, c.difference > 0.0) {
        (true, _) => "statistically tied".to_owned(),
        (false, true) => format!("{} is better", markdown(&c.a)),
        (false, false) => format!("{} is better", markdown(&c.b)),
    }
}
