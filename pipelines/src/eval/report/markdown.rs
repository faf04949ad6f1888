//! The numbers of the report as Markdown.

use super::Numbers;
use super::board::{Board, Cell, boards};
use super::text::{markdown, percent};

/// The whole text.
pub(super) fn report(numbers: &Numbers<'_>) -> String {
    let frozen = &numbers.evaluation.frozen;
    let mut out = format!("# {}\n\n", markdown(&frozen.task_set));
    out +=
        "pass@1 in percent, Wilson intervals at 95 % over tasks. The scores are never mixed.\n\n";
    for warning in &numbers.warnings {
        out += &format!("**{}**\n\n", markdown(warning));
    }
    for table in boards(numbers) {
        out += &board(&table);
    }
    out += &what_ran(numbers);
    out += &pairs(numbers);
    out += "## What defines these scores\n\n";
    for (name, value) in [
        ("task set", frozen.tasks.as_str()),
        ("checker", &frozen.checker),
        ("Python environment", &frozen.environment),
        ("prompts", &frozen.prompts),
    ] {
        out += &format!("- {name}: `{}`\n", markdown(value));
    }
    for (name, value) in &frozen.limits {
        out += &format!("- {}: {value}\n", markdown(name));
    }
    out
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn cell(cell: &Cell) -> String {
    match cell.interval.is_empty() {
        true => cell.value.clone(),
        false => format!("{} [{}]", cell.value, cell.interval),
    }
}

fn board(board: &Board) -> String {
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

fn what_ran(numbers: &Numbers<'_>) -> String {
    let mut out = "## What ran\n\n| agent | suite | tasks | not run | attempts | ran | infrastructure | tokens in | tokens out | cost, $ |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n".to_owned();
    for s in &numbers.summaries {
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

fn pairs(numbers: &Numbers<'_>) -> String {
    if numbers.comparisons.is_empty() {
        return String::new();
    }
    let mut out = "## Pairs\n\n".to_owned();
    for c in &numbers.comparisons {
        out += &format!("- {}\n", sentence(c));
    }
    out + "\n"
}

/// One comparison in a sentence.
pub(in crate::eval) fn sentence(c: &crate::eval::stats::Comparison) -> String {
    let flips: Vec<_> = c.flips.iter().take(50).map(|f| markdown(&f.task)).collect();
    let more = if c.flips.len() > 50 { ", …" } else { "" };
    format!(
        "{} against {}, {} ({}), {} tasks in {} clusters: {} against {}, difference {} [{}, {}], McNemar p = {:.4} (Holm {:.4}): {}. {} only {}, {} only {}{}",
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
            false => format!("; they differ on {}{more}.", flips.join(", ")),
        },
    )
}

/// Which of the two is better, if that can be told.
pub(super) fn verdict(c: &crate::eval::stats::Comparison) -> String {
    match (c.tied, c.difference > 0.0) {
        (true, _) => "statistically tied".to_owned(),
        (false, true) => format!("{} is better", markdown(&c.a)),
        (false, false) => format!("{} is better", markdown(&c.b)),
    }
}
