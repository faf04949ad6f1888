//! Finds results that rounding decides.
//!
//! Each engine rounds sums, means and differences in its own way: two numbers that are equal on paper are equal in one
//! engine and differ in their last bits in another. A task has one answer only if no order, cut, threshold, rank or
//! repeated row depends on these bits.

use polars::prelude::{Column, DataFrame, PlHashSet};

use crate::alike::{Alike, TOLERANCE};
use crate::argument::Argument;
use crate::content::Medium;
use crate::frame::Frame;
use crate::graph::{Graph, Step};
use crate::operation::Role;

/// How far a computed number is moved at most, relative to its size. Numbers that are closer cannot be told apart.
const REACH: f64 = 1e-9;
/// As [`REACH`], relative to the largest number of the column: what is left where large numbers cancel out is as inexact as
/// they are.
const REMAINDER: f64 = 1e-14;
/// Low bits of a number that are rounded away. What is lost is about [`REACH`].
const LOW_BITS: u32 = 22;
/// Whole numbers from here on are not exact.
const MAX_WHOLE: f64 = (1_u64 << 53) as f64;
/// Numbers that the check of a table takes for zero.
const ZERO: f64 = 1e-9;

/// Whether rounding decides what a graph gives over `start`, which is `result`: another result comes out when all computed
/// numbers are moved a little, or rounded so that numbers which cannot be told apart are equal. Numbers that a file or the
/// query has are exact, and so are whole numbers.
pub(crate) fn decides(graph: &Graph, start: &Frame, result: &Frame) -> bool {
    let is_on_table = |step: &Step| {
        let operation = step.operation();
        operation.is_ok_and(|operation| operation.input == Medium::Table)
    };
    if !graph.0.iter().any(is_on_table) {
        return false;
    }
    let mut exact = exact_numbers(graph, start);
    for change in [Change::Up, Change::Down, Change::Round] {
        let mut trial = Trial {
            change,
            exact: &mut exact,
            has_changed: false,
        };
        let changed = trial.evaluate(graph, start);
        if changed.is_none_or(|changed| !is_same(graph, result, &changed)) {
            return true;
        }
        if !trial.has_changed {
            // No number is computed before the end, so the other changes have nothing to change either.
            return false;
        }
    }
    false
}

/// The bits of numbers that are not computed: those of the files and of the query.
fn exact_numbers(graph: &Graph, start: &Frame) -> PlHashSet<u64> {
    let arguments = graph.0.iter().flat_map(|step| step.arguments.0.values());
    let numbers = arguments.filter_map(|argument| match argument {
        Argument::Number(number) => Some(number.to_bits()),
        _ => None,
    });
    let mut exact: PlHashSet<u64> = numbers.chain([0.0_f64.to_bits()]).collect();
    let others = start.others.iter().map(|other| other.frame.as_ref());
    for frame in std::iter::once(start).chain(others) {
        exact.extend(bits(frame));
    }
    exact
}

/// What is done to computed numbers.
#[derive(Clone, Copy)]
enum Change {
    /// Each is moved by another amount.
    Up,
    /// By the same amounts in the other direction.
    Down,
    Round,
}

impl Change {
    /// The changed number. `largest` is the largest one of its column in size, and `seed` belongs to its place.
    fn of(self, number: f64, largest: f64, seed: u64) -> f64 {
        let reach = (REACH * number.abs()).max(REMAINDER * largest);
        match self {
            Self::Up => number + reach * noise(seed),
            Self::Down => number - reach * noise(seed),
            Self::Round if number.abs() <= REMAINDER * largest => 0.0,
            Self::Round => rounded(number),
        }
    }
}

/// A number from -1 to 1 that looks random and depends on a seed only (SplitMix64).
fn noise(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// The nearest number whose low bits are zero.
fn rounded(number: f64) -> f64 {
    let half = 1_u64 << (LOW_BITS - 1);
    let kept = !((1_u64 << LOW_BITS) - 1);
    f64::from_bits(number.to_bits().wrapping_add(half) & kept)
}

/// An evaluation with changed numbers.
struct Trial<'a> {
    change: Change,
    /// The bits of numbers that are not computed.
    exact: &'a mut PlHashSet<u64>,
    /// Whether a number was changed so far.
    has_changed: bool,
}

impl Trial<'_> {
    /// What a graph gives with changed numbers; `None` if a step fails, or if the numbers that it computes and compares
    /// cannot be told apart.
    fn evaluate(&mut self, graph: &Graph, start: &Frame) -> Option<Frame> {
        let mut frame = start.clone();
        for step in &graph.0 {
            let operation = step.operation().ok()?;
            // A file has the numbers as they are: nothing is decided any more.
            if operation.role != Role::Output {
                frame = self.changed(&frame, false);
            }
            if operation.compares_computed && self.decides_step(step, &frame) {
                return None;
            }
            frame = step.apply(&frame).ok()?;
            if operation.role == Role::Read {
                self.exact.extend(bits(&frame));
            }
        }
        Some(frame)
    }

    /// Whether a step gives another result when all floats of its columns are changed.
    fn decides_step(&mut self, step: &Step, frame: &Frame) -> bool {
        let columns = frame.data.columns().iter();
        let columns = columns.filter(|column| is_argument(step, column));
        let frame = with_columns(frame, columns.cloned().collect());
        let changed = self.changed(&frame, true);
        match (step.apply(&frame), step.apply(&changed)) {
            (Ok(one), Ok(other)) => !alike(true).same(&one.data, &other.data),
            _ => true,
        }
    }

    /// The table with its computed floats changed, or with all of its floats. A column of whole numbers stays as it is.
    fn changed(&mut self, frame: &Frame, all: bool) -> Frame {
        let columns = frame.data.columns();
        let numbered = columns.iter().enumerate();
        let changed = numbered.map(|(at, column)| self.changed_column(column, at as u64, all));
        let changed: Vec<Option<Column>> = changed.collect();
        if changed.iter().all(Option::is_none) {
            return frame.clone();
        }
        self.has_changed = true;
        let columns = changed.into_iter().zip(columns);
        let columns = columns.map(|(changed, column)| changed.unwrap_or_else(|| column.clone()));
        with_columns(frame, columns.collect())
    }

    /// A column with its numbers changed; `None` if it stays as it is.
    fn changed_column(&self, column: &Column, at: u64, all: bool) -> Option<Column> {
        let floats = column.f64().ok()?;
        let is_whole = |number: f64| number.fract() == 0.0 && number.abs() < MAX_WHOLE;
        let is_exact = |number: f64| self.exact.contains(&number.to_bits());
        if floats.iter().flatten().all(is_whole) || (!all && floats.iter().flatten().all(is_exact))
        {
            return None;
        }
        let sizes = floats.iter().flatten().map(f64::abs);
        let largest = sizes.fold(0.0, f64::max);
        let seeds = (at << 32)..;
        let changed = floats
            .iter()
            .zip(seeds)
            .map(|(number, seed)| Some(self.change.of(number?, largest, seed)));
        let changed: Vec<Option<f64>> = changed.collect();
        Some(Column::new(column.name().clone(), changed))
    }
}

/// The bits of all floats of a table.
fn bits(frame: &Frame) -> Vec<u64> {
    let columns = frame.data.columns().iter();
    let floats = columns.filter_map(|column| column.f64().ok());
    floats
        .flat_map(|floats| floats.iter().flatten().map(f64::to_bits))
        .collect()
}

/// Whether a step names a column as an argument.
fn is_argument(step: &Step, column: &Column) -> bool {
    let mut arguments = step.arguments.0.values();
    arguments.any(
        |argument| matches!(argument, Argument::Column(name) if name == column.name().as_str()),
    )
}

/// A table with other columns, which are as long as those before.
fn with_columns(frame: &Frame, columns: Vec<Column>) -> Frame {
    match DataFrame::new(frame.height(), columns) {
        Ok(data) => Frame {
            data,
            ..frame.clone()
        },
        Err(_) => frame.clone(),
    }
}

fn alike(ordered: bool) -> Alike {
    Alike {
        ordered,
        tolerance: TOLERANCE,
        absolute: ZERO,
        ignore_case: false,
    }
}

/// Whether a check could take one result of a graph for the other.
fn is_same(graph: &Graph, result: &Frame, other: &Frame) -> bool {
    let ending = graph.ending().and_then(|step| step.operation().ok());
    let is_answer = ending.is_some_and(|operation| operation.role == Role::Answer);
    let ordered = is_answer || result.ordered;
    alike(true).same(&result.data, &other.data)
        || (!ordered && alike(false).same(&result.data, &other.data))
}

#[cfg(test)]
mod tests;
