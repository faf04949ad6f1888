//! How often a student copies a name wrongly: its code asks for a file, a column or a table that is not there.

use std::path::Path;

use pybench_eval::record::Attempt;
use pybench_run::{ContentStore, RunError};
use pybench_types::observation::CellError;
use pybench_types::trajectory::{Trajectory, Turn};

/// Exceptions of Python, pandas, polars and SQLAlchemy about a name that is not there.
const NAMES: [&str; 5] = [
    "KeyError",
    "FileNotFoundError",
    "ColumnNotFoundError",
    "UndefinedVariableError",
    "NoSuchTableError",
];
/// What others say of it: SQLite, DuckDB, attributes of a data frame, and columns that a reader is told to take.
const TEXTS: [&str; 6] = [
    "no such column",
    "no such table",
    "Referenced column",
    "'DataFrame' object has no attribute",
    "Usecols do not match columns",
    "Missing column provided to 'parse_dates'",
];

/// The number of attempts of an evaluation in which a cell failed at a name; `None` if an attempt cannot be read.
pub(crate) fn count(run: &Path, attempts: &[Attempt]) -> Option<usize> {
    let counted = try_count(run, attempts);
    counted
        .inspect_err(|error| tracing::warn!("wrong names are not counted: {error}"))
        .ok()
}

fn try_count(run: &Path, attempts: &[Attempt]) -> Result<usize, RunError> {
    let store = ContentStore::open(&run.join("files"))?;
    let mut count = 0;
    for file in attempts.iter().filter_map(|one| one.trajectory.as_ref()) {
        let trajectory: Trajectory = serde_json::from_slice(&store.get(&file.id)?)?;
        count += usize::from(fails_at_a_name(&trajectory.turns));
    }
    Ok(count)
}

fn fails_at_a_name(turns: &[Turn]) -> bool {
    let observations = turns.iter().flat_map(|turn| turn.observations());
    let mut errors = observations.filter_map(|seen| seen.error.as_ref());
    errors.any(is_about_a_name)
}

fn is_about_a_name(error: &CellError) -> bool {
    NAMES.contains(&error.ename.as_str()) || TEXTS.iter().any(|text| error.evalue.contains(text))
}

#[cfg(test)]
mod tests {
    use pybench_types::observation::Observation;
    use pybench_types::trajectory::Usage;

    use super::*;

    fn turn(error: Option<(&str, &str)>) -> Turn {
        let error = error.map(|(ename, evalue)| CellError {
            ename: ename.to_owned(),
            evalue: evalue.to_owned(),
            traceback: String::new(),
        });
        Turn {
            reply: String::new(),
            cell: Some("x".to_owned()),
            observation: Some(Observation {
                outputs: Vec::new(),
                error,
                stopped: None,
            }),
            more: Vec::new(),
            usage: Usage::default(),
        }
    }

    #[test]
    fn names_that_are_not_there_are_told_from_other_errors() {
        let wrong = [
            ("KeyError", "'gor mer'"),
            ("FileNotFoundError", "[Errno 2] No such file or directory"),
            ("OperationalError", "no such column: pric"),
            ("DatabaseError", "Execution failed on sql: no such table: t"),
            (
                "AttributeError",
                "'DataFrame' object has no attribute 'pric'",
            ),
        ];
        for error in wrong {
            let turns = [turn(None), turn(Some(error)), turn(None)];
            assert!(fails_at_a_name(&turns), "{error:?}");
        }
        let other = [
            ("ZeroDivisionError", "division by zero"),
            ("NameError", "name 'df' is not defined"),
            ("AttributeError", "'str' object has no attribute 'dt'"),
            ("OperationalError", "near \"SELEC\": syntax error"),
        ];
        let turns: Vec<Turn> = other.map(|error| turn(Some(error))).into();
        assert!(!fails_at_a_name(&turns) && !fails_at_a_name(&[]));
    }

    #[test]
    fn an_attempt_that_cannot_be_read_leaves_the_count_open() {
        let run = tempfile::tempdir().unwrap();
        let attempt = |trajectory: serde_json::Value| -> Attempt {
            let value = serde_json::json!({
                "agent": "student", "suite": "library", "task": "t", "category": "c", "seed": 0,
                "outcome": {"outcome": "ran"}, "turns": 1,
                "scores": {"upstream": null, "fixed": null, "strict": false}, "max_turns": 8,
                "trajectory": trajectory,
            });
            serde_json::from_value(value).unwrap()
        };
        let none = attempt(serde_json::Value::Null);
        assert_eq!(count(run.path(), std::slice::from_ref(&none)), Some(0));
        let missing = attempt(serde_json::json!({
            "path": "trajectory.json", "id": pybench_types::id::Digest::of_bytes(b"x"), "size": 1,
        }));
        assert_eq!(count(run.path(), &[none, missing]), None);
    }
}
