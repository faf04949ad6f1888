//! The report as Markdown.

use super::ReportData;
use super::leaderboard::{Leaderboard, LeaderboardCell, leaderboards};
use pybench_types::text::{markdown, percent};

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
    out += &coverage(data);
    out += &comparisons(data);
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

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn cell(cell: &LeaderboardCell) -> String {
    match cell.interval.is_empty() {
        true => cell.value.clone(),
        false => format!("{} [{}]", cell.value, cell.interval),
    }
}

fn table(board: &Leaderboard) -> String {
    let mut head = vec!["agent".to_owned(), "judge".to_owned()];
    head.extend(board.categories.iter().map(|c| markdown(c)));
    let more = [
        "overall",
        "macro",
        "over tasks, clustered",
        "turns, failed = max",
        "turns",
        "HumanEval(+)",
        "MBPP(+)",
    ];
    let more = &more[..if board.general { 7 } else { 5 }];
    head.extend(more.iter().map(|s| (*s).to_owned()));
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
        let mut cells = vec![format!("{}{mark}", markdown(&r.label)), cell(&r.judge)];
        cells.extend(r.categories.iter().map(cell));
        let note = if r.note.is_empty() {
            String::new()
        } else {
            format!(" ({})", r.note)
        };
        cells.push(format!("{}{note}", cell(&r.overall)));
        cells.extend([&r.macro_mean, &r.clustered, &r.turns_upstream, &r.turns].map(String::clone));
        if board.general {
            cells.extend([r.humaneval.clone(), r.mbpp.clone()]);
        }
        out += &row(&cells);
    }
    out + "\n"
}

fn coverage(data: &ReportData<'_>) -> String {
    let mut out = "## Attempts\n\n| agent | suite | tasks | not run | attempts | ran | infrastructure | tokens in | tokens out | cost, $ |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n".to_owned();
    for s in &data.summaries {
        out += &row(&[
            markdown(&s.agent),
            markdown(&s.suite),
            s.tasks.to_string(),
            s.not_run.to_string(),
            s.attempts.to_string(),
            s.ran.to_string(),
            s.infrastructure.to_string(),
            s.tokens_in.to_string(),
            s.tokens_out.to_string(),
            format!("{:.4}", s.micro_usd as f64 / 1e6),
        ]);
    }
    out + "\n"
}

fn comparisons(data: &ReportData<'_>) -> String {
    if data.comparisons.is_empty() {
        return String::new();
    }
    let mut out = "## Pairwise comparisons\n\n".to_owned();
    for c in &data.comparisons {
        out += &format!("- {}\n", sentence(c));
    }
    out + "\n"
}

/// Describes a comparison in a sentence.
pub(crate) fn sentence(c: &crate::stats::Comparison) -> String {
    let flips: Vec<_> = c.flips.iter().take(50).map(|f| markdown(&f.task)).collect();
    let more = if c.flips.len() > 50 { ", …" } else { "" };
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
            false => format!("; they differ on tasks {}{more}.", flips.join(", ")),
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
