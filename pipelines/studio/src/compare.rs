//! Two runs or evaluations on the same tasks: what each solves, and how likely the difference is by chance.

pub(crate) mod matrix;

use std::collections::HashMap;

use pybench_eval::stats::mcnemar;
use pybench_run::RunError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::index::{Index, TaskOutcome};
use crate::row::Row;

/// Tasks of a page, unless the query says.
const DEFAULT_PAGE: u64 = 100;
/// Maximum number of tasks of a page.
const MAX_PAGE: u64 = 500;

/// What is asked of a comparison.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompareQuery {
    /// Names of the two runs; they may be the same, with two models.
    pub(crate) a: String,
    pub(crate) b: String,
    /// Only attempts of this model or agent; empty for all.
    pub(crate) a_teacher: String,
    pub(crate) b_teacher: String,
    /// What is compared; empty for the first measure that both have.
    pub(crate) measure: String,
    /// Only tasks on which the two differ.
    pub(crate) flips: bool,
    /// Number of tasks before the page.
    pub(crate) from: u64,
    /// Tasks of the page, at most 500; 0 for 100.
    pub(crate) count: u64,
}

/// What decides whether an attempt passed; the columns of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    Verdict,
    Strict,
    Fixed,
    Upstream,
}

impl Measure {
    const ALL: [Self; 4] = [Self::Verdict, Self::Strict, Self::Fixed, Self::Upstream];

    fn name(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Strict => "strict",
            Self::Fixed => "fixed",
            Self::Upstream => "upstream",
        }
    }
}

/// Two runs on the same tasks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Comparison {
    pub(crate) measure: Measure,
    /// All measures that both have.
    pub(crate) measures: Vec<Measure>,
    pub(crate) a: SideSummary,
    pub(crate) b: SideSummary,
    /// Number of tasks that both attempted.
    pub(crate) shared: u64,
    /// Number of tasks on which both have a result; only these count.
    pub(crate) compared: u64,
    /// Number of tasks on which A passes more often.
    pub(crate) a_better: u64,
    /// Number of tasks on which B passes more often.
    pub(crate) b_better: u64,
    /// p-value of the exact two-sided McNemar test over these discordant pairs.
    pub(crate) p: f64,
    /// Number of tasks in the list.
    pub(crate) total: u64,
    /// A part of the list: tasks on which A is better, then those on which B is, then the others.
    pub(crate) tasks: Vec<TaskPair>,
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SideSummary {
    pub(crate) name: String,
    /// Only attempts of this model or agent; empty for all.
    pub(crate) teacher: String,
    pub(crate) attempts: u64,
    pub(crate) tasks: u64,
    /// Mean share of passed attempts over the compared tasks; `None` if there are none.
    pub(crate) rate: Option<f64>,
}

/// A task that both attempted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TaskPair {
    pub(crate) task: String,
    pub(crate) category: String,
    /// The start of the query.
    pub(crate) query: String,
    pub(crate) winner: Winner,
    pub(crate) a: TaskSide,
    pub(crate) b: TaskSide,
}

/// Who passes a task more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Winner {
    A,
    B,
    Neither,
    Unknown,
}

/// The attempts of one side at a task.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TaskSide {
    /// The attempt to look at: one that passed if this side is better, and one that failed if it is worse.
    pub(crate) number: u64,
    pub(crate) attempts: u64,
    /// Number of attempts with a result.
    pub(crate) results: u64,
    pub(crate) passed: u64,
    /// Turns and tokens of the attempt to look at.
    pub(crate) turns: u64,
    pub(crate) tokens: u64,
}

/// The attempts of one side at a task, in the order of the source: number and result.
#[derive(Default)]
struct Attempts(Vec<(u64, Option<bool>)>);

impl Attempts {
    fn results(&self) -> u64 {
        self.0.iter().filter(|(_, passed)| passed.is_some()).count() as u64
    }

    fn passed(&self) -> u64 {
        let passed = self.0.iter().filter(|(_, passed)| *passed == Some(true));
        passed.count() as u64
    }

    /// The share that passed; `None` without results.
    fn rate(&self) -> Option<f64> {
        let results = self.results();
        (results > 0).then(|| self.passed() as f64 / results as f64)
    }

    fn first(&self) -> u64 {
        self.0.first().map_or(0, |(number, _)| *number)
    }

    /// The first attempt with this result, or the first one.
    fn example(&self, wanted: Option<bool>) -> u64 {
        let mut attempts = self.0.iter();
        let found = attempts.find(|(_, passed)| wanted.is_some() && *passed == wanted);
        found.map_or(self.first(), |(number, _)| *number)
    }
}

/// A task with the attempts of both.
struct Shared<'a> {
    task: &'a str,
    winner: Winner,
    rates: Option<(f64, f64)>,
    a: &'a Attempts,
    b: &'a Attempts,
}

/// Compares A with B.
///
/// # Errors
/// [`RunError::BadInput`] if they share no task, neither has results, or the measure is unknown.
pub(crate) fn compare(a: &Index, b: &Index, query: &CompareQuery) -> Result<Comparison, RunError> {
    let (measures, measure) = measures(a, b, query)?;
    let of_a = by_task(a.outcomes(measure.name(), &query.a_teacher)?);
    let of_b = by_task(b.outcomes(measure.name(), &query.b_teacher)?);
    let mut shared: Vec<Shared<'_>> = of_a
        .iter()
        .filter_map(|(task, a)| Some(Shared::new(task, a, of_b.get(task)?)))
        .collect();
    if shared.is_empty() {
        return Err(RunError::BadInput(format!(
            "{} and {} have no task in common: tasks are the same if their query, files and checks are, or, in evaluations, \
             suite and name",
            side_name(&query.a, &query.a_teacher),
            side_name(&query.b, &query.b_teacher)
        )));
    }
    shared.sort_by_key(|one| (one.winner, one.a.first()));
    let rates: Vec<(f64, f64)> = shared.iter().filter_map(|one| one.rates).collect();
    let won = |winner: Winner| shared.iter().filter(|one| one.winner == winner).count() as u64;
    let (a_better, b_better) = (won(Winner::A), won(Winner::B));
    let compared = rates.len() as u64;
    let mean = |of: fn(&(f64, f64)) -> f64| {
        let sum: f64 = rates.iter().map(of).sum();
        (compared > 0).then(|| sum / compared as f64)
    };
    let listed = match query.flips {
        true => a_better + b_better,
        false => shared.len() as u64,
    };
    let count = match query.count {
        0 => DEFAULT_PAGE,
        count => count.min(MAX_PAGE),
    };
    let from = query.from.min(listed) as usize;
    let to = query.from.saturating_add(count).min(listed) as usize;
    let tasks = shared[from..to].iter().map(|one| one.pair(a, b));
    Ok(Comparison {
        measure,
        measures,
        a: side(&query.a, &query.a_teacher, &of_a, mean(|rates| rates.0)),
        b: side(&query.b, &query.b_teacher, &of_b, mean(|rates| rates.1)),
        shared: shared.len() as u64,
        compared,
        a_better,
        b_better,
        p: mcnemar(a_better, b_better),
        total: listed,
        tasks: tasks.collect::<Result<_, _>>()?,
    })
}

/// The measures that both have, and the one that is compared.
fn measures(
    a: &Index,
    b: &Index,
    query: &CompareQuery,
) -> Result<(Vec<Measure>, Measure), RunError> {
    let mut both = Vec::new();
    for measure in Measure::ALL {
        let has = |index: &Index, teacher: &str| index.has_outcomes(measure.name(), teacher);
        if has(a, &query.a_teacher)? && has(b, &query.b_teacher)? {
            both.push(measure);
        }
    }
    let names = || {
        let names: Vec<_> = both.iter().map(|measure| measure.name()).collect();
        names.join(", ")
    };
    let found = both
        .iter()
        .find(|measure| query.measure.is_empty() || measure.name() == query.measure);
    match (found, both.is_empty()) {
        (Some(found), _) => Ok((both.clone(), *found)),
        (None, true) => Err(RunError::BadInput(format!(
            "{} and {} have no results of the same kind; `pybench grade` gives a run verdicts, and `pybench eval` gives scores",
            side_name(&query.a, &query.a_teacher),
            side_name(&query.b, &query.b_teacher)
        ))),
        (None, false) => Err(RunError::BadInput(format!(
            "`measure` is `{}`; both have {}",
            query.measure,
            names()
        ))),
    }
}

fn by_task(outcomes: Vec<TaskOutcome>) -> HashMap<String, Attempts> {
    let mut tasks = HashMap::<String, Attempts>::new();
    for TaskOutcome {
        task,
        number,
        passed,
    } in outcomes
    {
        tasks.entry(task).or_default().0.push((number, passed));
    }
    tasks
}

fn side(
    name: &str,
    teacher: &str,
    tasks: &HashMap<String, Attempts>,
    rate: Option<f64>,
) -> SideSummary {
    SideSummary {
        name: name.to_owned(),
        teacher: teacher.to_owned(),
        attempts: tasks.values().map(|one| one.0.len() as u64).sum(),
        tasks: tasks.len() as u64,
        rate,
    }
}

fn side_name(name: &str, teacher: &str) -> String {
    match teacher {
        "" => format!("`{name}`"),
        teacher => format!("`{name}` ({teacher})"),
    }
}

impl<'a> Shared<'a> {
    fn new(task: &'a str, a: &'a Attempts, b: &'a Attempts) -> Self {
        let rates = a.rate().zip(b.rate());
        let winner = match rates {
            None => Winner::Unknown,
            Some((a, b)) if (a - b).abs() < 1e-12 => Winner::Neither,
            Some((a, b)) if a > b => Winner::A,
            Some(_) => Winner::B,
        };
        Self {
            task,
            winner,
            rates,
            a,
            b,
        }
    }

    /// The task as the list shows it.
    fn pair(&self, a: &Index, b: &Index) -> Result<TaskPair, RunError> {
        let (wanted_a, wanted_b) = match self.winner {
            Winner::A => (Some(true), Some(false)),
            Winner::B => (Some(false), Some(true)),
            Winner::Neither | Winner::Unknown => (None, None),
        };
        let row = |index: &Index, attempts: &Attempts, wanted| {
            let number = attempts.example(wanted);
            let row = index.row(number)?;
            let gone = || RunError::Internal(format!("the index has no row {number}"));
            row.ok_or_else(gone)
        };
        let (of_a, of_b) = (row(a, self.a, wanted_a)?, row(b, self.b, wanted_b)?);
        let side = |attempts: &Attempts, row: &Row| TaskSide {
            number: row.number,
            attempts: attempts.0.len() as u64,
            results: attempts.results(),
            passed: attempts.passed(),
            turns: row.turns,
            tokens: row.tokens,
        };
        Ok(TaskPair {
            task: self.task.to_owned(),
            winner: self.winner,
            a: side(self.a, &of_a),
            b: side(self.b, &of_b),
            category: of_a.category,
            query: of_a.query,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use pybench_show::TrajectorySource;

    use super::*;
    use crate::evaluation::tests::write;

    /// The index of an evaluation with these attempts.
    pub(crate) fn index(
        folder: &Path,
        name: &str,
        attempts: &[(&str, &str, Option<bool>)],
    ) -> Index {
        let run = folder.join(name);
        std::fs::create_dir_all(&run).unwrap();
        write(&run, attempts);
        let source = TrajectorySource::Run(run);
        Index::open(&folder.join(format!("{name}.sqlite")), &source).unwrap()
    }

    fn query() -> CompareQuery {
        CompareQuery {
            a: "x".into(),
            b: "y".into(),
            ..CompareQuery::default()
        }
    }

    #[test]
    fn flips_come_first_and_are_tested() {
        let folder = tempfile::tempdir().unwrap();
        let (yes, no) = (Some(true), Some(false));
        let x = [
            ("m", "1", yes),
            ("m", "2", yes),
            ("m", "3", no),
            ("m", "4", yes),
            ("m", "5", None),
            ("m", "6", yes),
        ];
        let y = [
            ("m", "1", yes),
            ("m", "2", no),
            ("m", "3", yes),
            ("m", "4", no),
            ("m", "5", yes),
            ("m", "7", yes),
        ];
        let (a, b) = (index(folder.path(), "x", &x), index(folder.path(), "y", &y));
        let found = compare(&a, &b, &query()).unwrap();
        assert_eq!(
            (found.measure, &*found.measures),
            (Measure::Strict, &[Measure::Strict][..])
        );
        assert_eq!((found.shared, found.compared, found.total), (5, 4, 5));
        assert_eq!((found.a_better, found.b_better), (2, 1));
        // Two of three fair coins, or more extreme, in either direction.
        assert!((found.p - 1.0).abs() < 1e-12);
        assert_eq!((found.a.rate, found.b.rate), (Some(0.75), Some(0.5)));
        assert_eq!((found.a.tasks, found.a.attempts), (6, 6));
        let order: Vec<_> = found
            .tasks
            .iter()
            .map(|one| (&*one.task, one.winner))
            .collect();
        assert_eq!(
            order,
            [
                ("s/2", Winner::A),
                ("s/4", Winner::A),
                ("s/3", Winner::B),
                ("s/1", Winner::Neither),
                ("s/5", Winner::Unknown),
            ]
        );
        let first = &found.tasks[0];
        assert_eq!((first.a.number, first.b.number), (2, 2));
        assert_eq!((first.a.passed, first.b.passed, first.b.results), (1, 0, 1));
        assert_eq!(first.query, "Do 2.");

        let flips = CompareQuery {
            flips: true,
            from: 1,
            count: 1,
            ..query()
        };
        let found = compare(&a, &b, &flips).unwrap();
        assert_eq!((found.total, found.tasks.len()), (3, 1));
        assert_eq!(found.tasks[0].task, "s/4");
        let beyond = CompareQuery {
            from: u64::MAX,
            ..query()
        };
        assert!(compare(&a, &b, &beyond).unwrap().tasks.is_empty());
    }

    #[test]
    fn two_agents_of_one_evaluation_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let attempts = [
            ("m", "1", Some(true)),
            ("n", "1", Some(false)),
            ("n", "2", Some(true)),
        ];
        let index = index(folder.path(), "x", &attempts);
        let of = |a: &str, b: &str| CompareQuery {
            a_teacher: a.into(),
            b_teacher: b.into(),
            ..query()
        };
        let found = compare(&index, &index, &of("m", "n")).unwrap();
        assert_eq!((found.shared, found.a_better), (1, 1));
        let error = compare(&index, &index, &of("m", "k")).unwrap_err();
        assert!(matches!(error, RunError::BadInput(_)), "{error}");
        let unknown = CompareQuery {
            measure: "verdict".into(),
            ..of("m", "n")
        };
        let error = compare(&index, &index, &unknown).unwrap_err().to_string();
        assert!(error.contains("both have strict"), "{error}");
    }

    #[test]
    fn several_attempts_count_by_their_share_and_the_telling_one_is_shown() {
        let attempts =
            |results: &[Option<bool>]| Attempts((1..).zip(results.iter().copied()).collect());
        let (yes, no) = (Some(true), Some(false));
        let a = attempts(&[no, None, yes, yes]);
        let b = attempts(&[yes, no, None, no]);
        let pair = Shared::new("t", &a, &b);
        assert_eq!(pair.winner, Winner::A);
        assert_eq!((a.example(Some(true)), b.example(Some(false))), (3, 2));
        assert_eq!(a.example(None), 1);
        assert_eq!((a.results(), a.passed()), (3, 2));
        let none = attempts(&[None]);
        assert_eq!(Shared::new("t", &a, &none).winner, Winner::Unknown);
    }
}
