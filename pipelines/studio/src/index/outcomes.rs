//! The results of attempts at tasks, which comparisons are made of.

use std::collections::HashMap;

use pybench_run::RunError;

use super::Index;

/// An attempt at a task and whether it passed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskOutcome {
    pub(crate) task: String,
    pub(crate) number: u64,
    /// `None` if it has no result.
    pub(crate) passed: Option<bool>,
}

impl Index {
    /// Every attempt at a task, in the order of the source, with its result in a column: `verdict`, or a score. Only those of
    /// `teacher`, unless that is empty.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn outcomes(
        &self,
        column: &'static str,
        teacher: &str,
    ) -> Result<Vec<TaskOutcome>, RunError> {
        let select = format!(
            "SELECT task, number, \"{column}\" FROM row WHERE task <> '' AND (?1 = '' OR teacher = ?1) ORDER BY number"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&select)?;
            let rows = statement.query_map([teacher], |row| {
                let outcome: String = row.get(2)?;
                Ok(TaskOutcome {
                    task: row.get(0)?,
                    number: row.get(1)?,
                    passed: match &*outcome {
                        "accepted" | "passed" => Some(true),
                        "rejected" | "failed" => Some(false),
                        _ => None,
                    },
                })
            })?;
            rows.collect()
        })
    }

    /// Whether any attempt has a result in this column.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn has_outcomes(
        &self,
        column: &'static str,
        teacher: &str,
    ) -> Result<bool, RunError> {
        let select = format!(
            "SELECT EXISTS (SELECT 1 FROM row WHERE \"{column}\" <> '' AND task <> '' AND (?1 = '' OR teacher = ?1))"
        );
        self.read(|connection| connection.query_row(&select, [teacher], |row| row.get(0)))
    }

    /// The tasks of trajectories, by id.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn tasks_of(&self, ids: &[String]) -> Result<HashMap<String, String>, RunError> {
        let select = "SELECT id, task FROM row WHERE id IN (SELECT value FROM json_each(?1))";
        let ids = serde_json::to_string(ids)?;
        self.read(|connection| {
            let mut statement = connection.prepare_cached(select)?;
            let rows = statement.query_map([ids], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }
}
