//! One trajectory: its line of the list, its record, and its page.

use pybench_run::RunError;
use rusqlite::OptionalExtension;

use super::Index;
use super::schema::{quoted, read_row};
use crate::row::Row;
use crate::view::{PAGE_TURNS, TurnView, View};

/// A trajectory whose turns are rows of their own.
struct LongTrajectory {
    /// Its page without turns, as JSON.
    head: String,
    /// Id of its first turn.
    first: u64,
    count: u64,
}

impl Index {
    /// A trajectory: its line of the list, and the record as JSON. `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn record(&self, number: u64) -> Result<Option<(Row, String)>, RunError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let columns = quoted();
        self.read(|connection| {
            let row = format!("SELECT {columns} FROM row WHERE number = ?1");
            let row = connection
                .prepare_cached(&row)?
                .query_row([number], read_row)
                .optional()?;
            let json = "SELECT json FROM record WHERE number = ?1";
            let mut statement = connection.prepare_cached(json)?;
            let json = statement.query_row([number], |row| row.get(0)).optional()?;
            Ok(row.zip(json))
        })
    }

    /// The page of a trajectory that has its turn `turn`, from 1; `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn view(&self, number: u64, turn: u64) -> Result<Option<View>, RunError> {
        let Some(long) = self.long(number)? else {
            let Some((row, json)) = self.record(number)? else {
                return Ok(None);
            };
            return Ok(Some(View::new(row, serde_json::from_str(&json)?)));
        };
        let mut view: View = serde_json::from_str(&long.head)?;
        let page = PAGE_TURNS as u64;
        let before = turn.clamp(1, long.count.max(1)).saturating_sub(1) / page * page;
        view.turns = self.page_of(&long, before)?;
        view.first_turn = before + 1;
        Ok(Some(view))
    }

    /// The turns of a trajectory after its first `before`, at most [`PAGE_TURNS`]; `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn turns_after(
        &self,
        number: u64,
        before: u64,
    ) -> Result<Option<Vec<TurnView>>, RunError> {
        if let Some(long) = self.long(number)? {
            return self.page_of(&long, before).map(Some);
        }
        // It has at most a page of turns.
        if before >= PAGE_TURNS as u64 {
            return Ok(self.row(number)?.map(|_| Vec::new()));
        }
        let view = self.view(number, 1)?;
        Ok(view.map(|view| view.turns.into_iter().skip(before as usize).collect()))
    }

    /// The turns after the first `before`, at most [`PAGE_TURNS`].
    fn page_of(&self, long: &LongTrajectory, before: u64) -> Result<Vec<TurnView>, RunError> {
        if before >= long.count {
            return Ok(Vec::new());
        }
        let select = "SELECT json FROM turn WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
        let count = (long.count - before).min(PAGE_TURNS as u64);
        let from = long.first + before;
        let turns: Vec<String> = self.read(|connection| {
            let mut statement = connection.prepare_cached(select)?;
            let rows = statement.query_map((from, from + count - 1), |row| row.get(0))?;
            rows.collect()
        })?;
        let turns = turns.iter().map(|json| serde_json::from_str(json));
        Ok(turns.collect::<Result<_, _>>()?)
    }

    /// The head of a trajectory whose turns are rows of their own; `None` for other trajectories.
    fn long(&self, number: u64) -> Result<Option<LongTrajectory>, RunError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let select = "SELECT json, first, count FROM head WHERE number = ?1";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(select)?;
            let long = statement.query_row([number], |row| {
                Ok(LongTrajectory {
                    head: row.get(0)?,
                    first: row.get(1)?,
                    count: row.get(2)?,
                })
            });
            long.optional()
        })
    }

    /// The line of the list of a trajectory; `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn row(&self, number: u64) -> Result<Option<Row>, RunError> {
        let select = format!("SELECT {} FROM row WHERE number = ?1", quoted());
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&select)?;
            statement.query_row([number], read_row).optional()
        })
    }
}
