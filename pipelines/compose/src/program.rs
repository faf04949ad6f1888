//! Tasks that ask for a small program: it reads a table of the same form from standard input and prints the answer. The
//! checker runs it on tables that are drawn from the rows of the file.

use polars::prelude::{DataFrame, DataType, IdxCa, IdxSize};
use pybench_types::task::FileKind;
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::frame::{Class, Frame};
use crate::graph::Graph;
use crate::inputs;
use crate::operation::{Operation, Role};
use crate::prove::mutations;
use crate::rename;
use crate::rounding;

/// Tables that a program is run on.
const RUNS: usize = 3;
/// Tables that are drawn for them.
const TRIES: usize = 12;
/// Rows of such a table. The file has at least twice as many.
const ROWS: std::ops::RangeInclusive<usize> = 20..=40;
/// Bytes of all these tables.
const MAX_BYTES: usize = 24_000;
/// What is printed has at most so many digits; beyond, the last ones depend on the order of a sum.
const MAX_SCALED: f64 = 1e10;
/// A number whose next digits are this close to a half is rounded either way.
const TIE: f64 = 1e-3;

const STEMS: [&str; 5] = ["solve", "compute", "report", "pipeline", "main"];

/// Operations that judge each row by itself. What they need of a table, each part of it has too.
const ROW_BY_ROW: [&str; 40] = [
    "day_month",
    "day_of_week",
    "day_of_year",
    "day_quarter",
    "day_year",
    "derive_absolute",
    "derive_clip",
    "derive_difference",
    "derive_log",
    "derive_product",
    "derive_ratio",
    "derive_scaled_by",
    "derive_sqrt",
    "derive_square",
    "derive_sum",
    "filter_above",
    "filter_at_least",
    "filter_at_most",
    "filter_before_day",
    "filter_below",
    "filter_between",
    "filter_between_days",
    "filter_both",
    "filter_compare_columns",
    "filter_contains",
    "filter_either",
    "filter_equal",
    "filter_from_day",
    "filter_in",
    "filter_missing",
    "filter_month",
    "filter_not_equal",
    "filter_not_in",
    "filter_present",
    "filter_starts_with",
    "filter_true",
    "filter_weekend",
    "filter_year",
    "text_length",
    "text_words",
];
/// Answers that any table has, in whatever order its rows are.
const ANSWERS: [&str; 14] = [
    "answer_correlation",
    "answer_distinct",
    "answer_max",
    "answer_mean",
    "answer_median",
    "answer_min",
    "answer_percent_above",
    "answer_quantile",
    "answer_range",
    "answer_rows",
    "answer_slope",
    "answer_std",
    "answer_sum",
    "answer_weighted_mean",
];

/// A program that is asked for.
pub(crate) struct Program {
    /// Its path, relative to the workspace.
    pub path: String,
    /// What it is given and what it has to print, as the check `program` expects it, in JSON.
    pub runs: String,
}

/// One run of it.
struct Run {
    frame: Frame,
    stdin: String,
    stdout: String,
}

/// Draws tables for a program that does the steps of a graph over `start`; `None` if the steps do not suit other tables, or if
/// one of them could be left out or changed without being noticed on the tables drawn.
pub(crate) fn draw(
    graph: &Graph,
    start: &Frame,
    decimals: Option<u8>,
    rng: &mut ChaCha8Rng,
) -> Option<Program> {
    if !suits_other_tables(graph) || start.height() < 2 * *ROWS.end() {
        return None;
    }
    let drawn = (0..TRIES).filter_map(|_| run(graph, start, decimals, rng));
    let runs: Vec<Run> = drawn.take(RUNS).collect();
    let differ = runs.iter().any(|run| run.stdout != runs[0].stdout);
    let bytes: usize = runs.iter().map(|run| run.stdin.len()).sum();
    if runs.len() < RUNS || !differ || bytes > MAX_BYTES {
        return None;
    }
    let changed = mutations(graph, start, rng);
    let noticed = |graph: &Graph| runs.iter().any(|run| is_noticed(graph, run, decimals));
    if !changed.iter().all(|mutation| noticed(&mutation.graph)) {
        return None;
    }
    let stem = STEMS.choose(rng).copied().unwrap_or("main");
    let runs = runs
        .into_iter()
        .map(|run| serde_json::json!({"args": [], "stdin": run.stdin, "stdout": run.stdout}));
    Some(Program {
        path: format!("output/{stem}.py"),
        runs: serde_json::Value::Array(runs.collect()).to_string(),
    })
}

/// Whether each step is defined on every table that has some of the rows.
fn suits_other_tables(graph: &Graph) -> bool {
    let mut steps = graph.0.iter();
    steps.all(|step| step.operation().is_ok_and(suits))
}

/// Whether an operation is defined on every table that has some of the rows.
pub(crate) fn suits(operation: &Operation) -> bool {
    let name = operation.name.as_str();
    match operation.role {
        Role::Answer => ANSWERS.contains(&name) || operation.is_several_numbers(),
        _ => ROW_BY_ROW.contains(&name),
    }
}

/// A run on some rows in another order; `None` if a part of it reads differently or has no clear answer, or if rounding
/// decides it.
fn run(graph: &Graph, start: &Frame, decimals: Option<u8>, rng: &mut ChaCha8Rng) -> Option<Run> {
    let rows = some_rows(&start.data, rng)?;
    let stdin = rename::csv(&rows, ',');
    let frame = inputs::read(FileKind::Csv, stdin.as_bytes())?;
    let names = rows.get_column_names_owned();
    let alike = names
        .iter()
        .all(|name| frame.class(name) == start.class(name));
    if !alike || frame.height() != rows.height() {
        return None;
    }
    let result = graph.evaluate(&frame).ok()?;
    if rounding::decides(graph, &frame, &result) {
        return None;
    }
    let stdout = printed(&result, decimals)?;
    Some(Run {
        frame,
        stdin,
        stdout,
    })
}

fn some_rows(data: &DataFrame, rng: &mut ChaCha8Rng) -> Option<DataFrame> {
    let mut places: Vec<IdxSize> = (0..IdxSize::try_from(data.height()).ok()?).collect();
    places.shuffle(rng);
    places.truncate(rng.random_range(ROWS));
    data.take(&IdxCa::from_vec("place".into(), places)).ok()
}

/// Whether a program for another graph prints something else, or fails.
fn is_noticed(graph: &Graph, run: &Run, decimals: Option<u8>) -> bool {
    let Ok(result) = graph.evaluate(&run.frame) else {
        return true;
    };
    printed(&result, decimals).is_some_and(|text| text != run.stdout)
}

/// The numbers of an answer as a program prints them; `None` if one is missing, or is no whole number where no decimals are
/// asked for, or could be rounded in two ways.
fn printed(result: &Frame, decimals: Option<u8>) -> Option<String> {
    let column = result.data.column("answer").ok()?;
    let is_whole = column.dtype() == &DataType::Int64;
    if result.class("answer") != Some(Class::Number)
        || column.null_count() > 0
        || (decimals.is_none() && !is_whole)
    {
        return None;
    }
    let floats = column.cast(&DataType::Float64).ok()?;
    let numbers = floats.f64().ok()?.iter().flatten();
    let texts: Option<Vec<String>> = numbers.map(|x| rounded(x, decimals)).collect();
    texts.map(|texts| texts.join(", "))
}

fn rounded(number: f64, decimals: Option<u8>) -> Option<String> {
    let Some(decimals) = decimals else {
        return Some(format!("{number:.0}"));
    };
    let scaled = number.abs() * 10f64.powi(decimals.into());
    let is_tie = (scaled.fract() - 0.5).abs() < TIE;
    // What rounds to zero may have a sign.
    let clear = !is_tie && (1.0..MAX_SCALED).contains(&scaled);
    clear.then(|| format!("{number:.*}", usize::from(decimals)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    #[test]
    fn the_operations_exist() {
        for name in ROW_BY_ROW.iter().chain(&ANSWERS) {
            assert!(operations::named(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_number_that_could_be_rounded_in_two_ways_is_not_printed() {
        assert_eq!(rounded(12.345678, Some(2)).as_deref(), Some("12.35"));
        assert_eq!(rounded(-7.0, None).as_deref(), Some("-7"));
        for unclear in [0.125, -0.001, 1e12] {
            assert_eq!(rounded(unclear, Some(2)), None, "{unclear}");
        }
    }
}
