//! Up to six runs or agents on the same tasks: a matrix of tasks and sides, and the test of each pair.

use std::collections::HashMap;

use pybench_eval::stats::{holm, mcnemar};
use pybench_run::RunError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Attempts, DEFAULT_PAGE, MAX_PAGE, Measure, SideSummary, by_task, side, side_name};
use crate::index::Index;

/// What is asked of a matrix. Sides without a name are left out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MatrixQuery {
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) c: String,
    pub(crate) d: String,
    pub(crate) e: String,
    pub(crate) f: String,
    /// Only attempts of this model or agent; empty for all.
    pub(crate) a_teacher: String,
    pub(crate) b_teacher: String,
    pub(crate) c_teacher: String,
    pub(crate) d_teacher: String,
    pub(crate) e_teacher: String,
    pub(crate) f_teacher: String,
    /// What is compared; empty for the first measure that all have.
    pub(crate) measure: String,
    /// Only tasks on which two sides differ.
    pub(crate) flips: bool,
    /// Number of tasks before the page.
    pub(crate) from: u64,
    /// Tasks of the page, at most 500; 0 for 100.
    pub(crate) count: u64,
}

impl MatrixQuery {
    /// The names of the sides and of their models.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there are fewer than two, or one is there twice.
    pub(crate) fn sides(&self) -> Result<Vec<(&str, &str)>, RunError> {
        let all = [
            (&*self.a, &*self.a_teacher),
            (&*self.b, &*self.b_teacher),
            (&*self.c, &*self.c_teacher),
            (&*self.d, &*self.d_teacher),
            (&*self.e, &*self.e_teacher),
            (&*self.f, &*self.f_teacher),
        ];
        let named = all.into_iter().filter(|(name, _)| !name.is_empty());
        let sides: Vec<(&str, &str)> = named.collect();
        let twice = (1..sides.len()).find(|at| sides[..*at].contains(&sides[*at]));
        match (sides.len(), twice) {
            (0 | 1, _) => Err(RunError::BadInput(
                "name at least two runs, as `a`, `b`, … up to `f`".to_owned(),
            )),
            (_, Some(at)) => Err(RunError::BadInput(format!(
                "{} is there twice; name another run, or another model of it",
                side_name(sides[at].0, sides[at].1)
            ))),
            (_, None) => Ok(sides),
        }
    }
}

/// One of the sides.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) name: &'a str,
    /// Only attempts of this model or agent; empty for all.
    pub(crate) teacher: &'a str,
    pub(crate) index: &'a Index,
}

/// Several runs on the same tasks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Matrix {
    pub(crate) measure: Measure,
    /// All measures that all sides have.
    pub(crate) measures: Vec<Measure>,
    /// The rates are over the tasks on which all sides have a result.
    pub(crate) sides: Vec<SideSummary>,
    /// Number of tasks on which all sides have a result.
    pub(crate) compared: u64,
    /// The test of each pair.
    pub(crate) pairs: Vec<PairTest>,
    /// Number of tasks in the list: those that at least two sides attempted.
    pub(crate) total: u64,
    /// A part of the list; tasks on which sides differ come first.
    pub(crate) tasks: Vec<MatrixTask>,
}

/// The exact two-sided McNemar test of a pair, over the tasks on which both have a result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PairTest {
    /// Positions of the two sides, from 0.
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) compared: u64,
    /// Number of tasks on which A passes more often.
    pub(crate) a_better: u64,
    pub(crate) b_better: u64,
    pub(crate) p: f64,
    /// After Holm's correction for the number of pairs.
    pub(crate) p_holm: f64,
}

/// A task that at least two sides attempted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MatrixTask {
    pub(crate) task: String,
    pub(crate) category: String,
    /// The start of the query.
    pub(crate) query: String,
    /// Whether two sides differ.
    pub(crate) differs: bool,
    /// One for each side; `None` if it did not attempt the task.
    pub(crate) cells: Vec<Option<MatrixCell>>,
}

/// The attempts of one side at a task.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MatrixCell {
    /// The attempt to look at: one that passed if most did, and one that failed otherwise.
    pub(crate) number: u64,
    pub(crate) attempts: u64,
    /// Number of attempts with a result.
    pub(crate) results: u64,
    pub(crate) passed: u64,
}

/// A task with the attempts of each side.
struct Line<'a> {
    task: &'a str,
    cells: Vec<Option<&'a Attempts>>,
    differs: bool,
}

impl<'a> Line<'a> {
    fn new(task: &'a str, sides: &'a [HashMap<String, Attempts>]) -> Self {
        let cells: Vec<Option<&Attempts>> = sides.iter().map(|side| side.get(task)).collect();
        let rates = || {
            cells
                .iter()
                .filter_map(|cell| cell.and_then(Attempts::rate))
        };
        let (least, most) = (
            rates().fold(f64::INFINITY, f64::min),
            rates().fold(f64::NEG_INFINITY, f64::max),
        );
        Self {
            differs: most - least > 1e-12,
            task,
            cells,
        }
    }

    fn attempted(&self) -> usize {
        self.cells.iter().flatten().count()
    }

    fn rate(&self, side: usize) -> Option<f64> {
        self.cells[side].and_then(Attempts::rate)
    }

    /// The rates of all sides; `None` if one has none.
    fn rates(&self) -> Option<Vec<f64>> {
        (0..self.cells.len()).map(|side| self.rate(side)).collect()
    }

    /// Where the task comes in the list: those that differ first, then in the order of the first side that has it.
    fn order(&self) -> (bool, Option<(usize, u64)>) {
        let cells = self.cells.iter().enumerate();
        let mut first = cells.filter_map(|(side, cell)| Some((side, (*cell)?.first())));
        (!self.differs, first.next())
    }

    /// The task as the list shows it.
    fn shown(&self, sides: &[Side<'_>]) -> Result<MatrixTask, RunError> {
        let (mut category, mut query) = (String::new(), String::new());
        let first = self.order().1;
        if let Some((side, number)) = first
            && let Some(row) = sides[side].index.row(number)?
        {
            (category, query) = (row.category, row.query);
        }
        let cell = |attempts: &Attempts| MatrixCell {
            number: attempts.example(attempts.rate().map(|rate| rate >= 0.5)),
            attempts: attempts.0.len() as u64,
            results: attempts.results(),
            passed: attempts.passed(),
        };
        Ok(MatrixTask {
            task: self.task.to_owned(),
            category,
            query,
            differs: self.differs,
            cells: self.cells.iter().map(|one| one.map(cell)).collect(),
        })
    }
}

/// Compares all sides.
///
/// # Errors
/// [`RunError::BadInput`] if no two sides share a task, or not all have the measure.
pub(crate) fn matrix(sides: &[Side<'_>], query: &MatrixQuery) -> Result<Matrix, RunError> {
    let (measures, measure) = measures(sides, &query.measure)?;
    let attempts = |side: &Side<'_>| -> Result<HashMap<String, Attempts>, RunError> {
        let outcomes = side.index.outcomes(measure.name(), side.teacher)?;
        Ok(by_task(outcomes))
    };
    let attempts: Vec<HashMap<String, Attempts>> = sides
        .iter()
        .map(attempts)
        .collect::<Result<_, RunError>>()?;
    let mut lines = lines(&attempts);
    if lines.is_empty() {
        let text = "no two of these have a task in common: tasks are the same if their query, files and checks are, or, in \
                    evaluations, suite and name";
        return Err(RunError::BadInput(text.to_owned()));
    }
    lines.sort_by_key(Line::order);
    let whole: Vec<Vec<f64>> = lines.iter().filter_map(Line::rates).collect();
    let rate = |at: usize| {
        let sum: f64 = whole.iter().map(|rates| rates[at]).sum();
        (!whole.is_empty()).then(|| sum / whole.len() as f64)
    };
    let summaries = sides.iter().zip(&attempts).enumerate();
    let summaries =
        summaries.map(|(at, (one, tasks))| side(one.name, one.teacher, tasks, rate(at)));
    let pairs = pairs(&lines, sides.len());
    let listed = match query.flips {
        true => lines.iter().filter(|line| line.differs).count(),
        false => lines.len(),
    };
    let count = match query.count {
        0 => DEFAULT_PAGE,
        count => count.min(MAX_PAGE),
    };
    let from = query.from.min(listed as u64);
    let to = from.saturating_add(count).min(listed as u64);
    let page = lines[from as usize..to as usize].iter();
    Ok(Matrix {
        measure,
        measures,
        sides: summaries.collect(),
        compared: whole.len() as u64,
        pairs,
        total: listed as u64,
        tasks: page
            .map(|line| line.shown(sides))
            .collect::<Result<_, _>>()?,
    })
}

/// The tasks that at least two sides attempted.
fn lines(sides: &[HashMap<String, Attempts>]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for (at, side) in sides.iter().enumerate() {
        // A task is listed with the first side that attempted it.
        let is_new = |task: &str| !sides[..at].iter().any(|before| before.contains_key(task));
        let tasks = side.keys().filter(|task| is_new(task));
        let found = tasks.map(|task| Line::new(task, sides));
        lines.extend(found.filter(|line| line.attempted() > 1));
    }
    lines
}

/// The test of each pair, with Holm's correction.
fn pairs(lines: &[Line<'_>], sides: usize) -> Vec<PairTest> {
    let mut tests = Vec::new();
    for a in 0..sides {
        for b in a + 1..sides {
            tests.push(test(lines, a, b));
        }
    }
    let all: Vec<f64> = tests.iter().map(|test| test.p).collect();
    for (test, adjusted) in tests.iter_mut().zip(holm(&all)) {
        test.p_holm = adjusted;
    }
    tests
}

fn test(lines: &[Line<'_>], a: usize, b: usize) -> PairTest {
    let both = |line: &Line<'_>| line.rate(a).zip(line.rate(b));
    let rates: Vec<(f64, f64)> = lines.iter().filter_map(both).collect();
    let better = |more: fn(f64) -> bool| {
        let won = rates.iter().filter(|(a, b)| more(a - b));
        won.count() as u64
    };
    let (a_better, b_better) = (better(|gap| gap > 1e-12), better(|gap| gap < -1e-12));
    let p = mcnemar(a_better, b_better);
    PairTest {
        a,
        b,
        compared: rates.len() as u64,
        a_better,
        b_better,
        p,
        p_holm: p,
    }
}

/// The measures that all sides have, and the one that is compared.
fn measures(sides: &[Side<'_>], wanted: &str) -> Result<(Vec<Measure>, Measure), RunError> {
    let mut common = Vec::new();
    for measure in Measure::ALL {
        let has = |side: &Side<'_>| side.index.has_outcomes(measure.name(), side.teacher);
        let all = sides.iter().map(has).collect::<Result<Vec<_>, _>>()?;
        if all.into_iter().all(|has| has) {
            common.push(measure);
        }
    }
    let found = common
        .iter()
        .find(|measure| wanted.is_empty() || measure.name() == wanted);
    if let Some(found) = found.copied() {
        return Ok((common, found));
    }
    let names: Vec<&str> = common.iter().map(|measure| measure.name()).collect();
    Err(RunError::BadInput(match names.is_empty() {
        true => "these have no results of the same kind; `pybench grade` gives a run verdicts, and `pybench eval` gives scores"
            .to_owned(),
        false => format!("`measure` is `{wanted}`; all have {}", names.join(", ")),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::index;
    use super::*;

    #[test]
    fn each_pair_is_tested_and_tasks_that_differ_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let (yes, no) = (Some(true), Some(false));
        let make = |name: &str, results: [Option<bool>; 4]| {
            let tasks = ["1", "2", "3", "4"];
            let attempts: Vec<_> = tasks.into_iter().zip(results).collect();
            let attempts: Vec<_> = attempts
                .iter()
                .map(|(task, passed)| ("m", *task, *passed))
                .collect();
            index(folder.path(), name, &attempts)
        };
        let indexes = [
            make("x", [yes, yes, yes, None]),
            make("y", [yes, no, no, yes]),
            make("z", [yes, no, yes, yes]),
        ];
        let query = MatrixQuery {
            a: "x".into(),
            b: "y".into(),
            f: "z".into(),
            ..MatrixQuery::default()
        };
        let names = query.sides().unwrap();
        let sides: Vec<Side<'_>> = names
            .iter()
            .zip(&indexes)
            .map(|(&(name, teacher), index)| Side {
                name,
                teacher,
                index,
            })
            .collect();
        let found = matrix(&sides, &query).unwrap();
        assert_eq!(
            (found.measure, found.compared, found.total),
            (Measure::Strict, 3, 4)
        );
        let rates: Vec<Option<f64>> = found.sides.iter().map(|side| side.rate).collect();
        assert_eq!(rates[0], Some(1.0));
        assert!((rates[1].unwrap() - 1.0 / 3.0).abs() < 1e-12);
        let pairs: Vec<_> = found
            .pairs
            .iter()
            .map(|pair| (pair.a, pair.b, pair.compared, pair.a_better, pair.b_better))
            .collect();
        assert_eq!(pairs, [(0, 1, 3, 2, 0), (0, 2, 3, 1, 0), (1, 2, 4, 0, 1)]);
        // Two coins that fall on the same side, in either direction; three times that is more than certain.
        assert!((found.pairs[0].p - 0.5).abs() < 1e-12);
        assert!((found.pairs[0].p_holm - 1.0).abs() < 1e-12);
        let order: Vec<_> = found
            .tasks
            .iter()
            .map(|one| (&*one.task, one.differs))
            .collect();
        assert_eq!(
            order,
            [("s/2", true), ("s/3", true), ("s/1", false), ("s/4", false)]
        );
        let cell = found.tasks[0].cells[1].as_ref().unwrap();
        assert_eq!((cell.number, cell.results, cell.passed), (2, 1, 0));
        let flips = MatrixQuery {
            flips: true,
            from: 1,
            ..query.clone()
        };
        let found = matrix(&sides, &flips).unwrap();
        assert_eq!((found.total, found.tasks.len()), (2, 1));
        let unknown = MatrixQuery {
            measure: "verdict".into(),
            ..query.clone()
        };
        let error = matrix(&sides, &unknown).unwrap_err().to_string();
        assert!(error.contains("all have strict"), "{error}");
    }

    #[test]
    fn sides_are_two_or_more_and_different() {
        let of = |a: &str, b: &str, b_teacher: &str| {
            let query = MatrixQuery {
                a: a.into(),
                b: b.into(),
                b_teacher: b_teacher.into(),
                ..MatrixQuery::default()
            };
            let sides = query.sides().map(|sides| sides.len());
            sides.map_err(|error| error.to_string())
        };
        assert_eq!(of("x", "x", "m"), Ok(2));
        assert!(of("x", "", "").unwrap_err().contains("at least two"));
        assert!(of("x", "x", "").unwrap_err().contains("twice"));
    }
}
