//! A page of the list.

use pybench_run::RunError;
use rusqlite::params_from_iter;
use schemars::JsonSchema;
use serde::Serialize;

use super::Index;
use super::growth::IndexProgress;
use super::query::{ListQuery, matching, order};
use super::schema::{quoted, read_row};
use crate::row::Row;

/// Rows of a page, unless the query says.
const DEFAULT_PAGE: u64 = 100;
/// Maximum number of rows of a page.
const MAX_PAGE: u64 = 500;

/// A part of the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Page {
    /// Number of rows that match.
    pub(crate) total: u64,
    pub(crate) rows: Vec<Row>,
    /// Numbers of those that people edited.
    pub(crate) edited: Vec<u64>,
    /// While not all trajectories are indexed, how many are; the page knows only those.
    pub(crate) indexing: Option<IndexProgress>,
    /// Why the page is of an earlier state of the source: the present one cannot be indexed. Empty otherwise.
    pub(crate) outdated: String,
    pub(crate) state: ListState,
}

/// The version of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ListState {
    /// Another one when the list has changed, or begins to be made again.
    pub(crate) version: String,
    /// How far the list of the changed source is, while this one is of an earlier state.
    pub(crate) newer: Option<IndexProgress>,
}

impl Index {
    /// A part of the list.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the column or the words to search for are invalid.
    pub(crate) fn page(&self, query: &ListQuery) -> Result<Page, RunError> {
        let (matching, values) = matching(query)?;
        let (order, columns) = (order(query)?, quoted());
        let count = match query.count {
            0 => DEFAULT_PAGE,
            count => count.min(MAX_PAGE),
        };
        let from = query.from.min(i64::MAX as u64);
        let indexing = self.progress();
        self.read(|connection| {
            let count_all = match &*matching {
                // Numbers have no gaps.
                "row" => "SELECT coalesce(max(number), 0) FROM row".to_owned(),
                _ => format!("SELECT count(*) FROM {matching}"),
            };
            let mut counted = connection.prepare_cached(&count_all)?;
            let total: u64 = counted.query_row(params_from_iter(&values), |row| row.get(0))?;
            let page = match (&*matching, &*query.sort, query.descending) {
                // Nothing has to be skipped either.
                ("row", "" | "number", false) => format!("BETWEEN {} AND {}", from + 1, from + count),
                ("row", "" | "number", true) => {
                    let to = total.saturating_sub(from);
                    format!("BETWEEN {} AND {to}", to.saturating_sub(count) + 1)
                }
                // What is skipped is read from an index, not from the wide rows.
                _ => format!("IN (SELECT number FROM {matching} ORDER BY {order} LIMIT {count} OFFSET {from})"),
            };
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {columns} FROM row WHERE number {page} ORDER BY {order}"
            ))?;
            let rows = statement.query_map(params_from_iter(&values), read_row)?;
            let rows = rows.collect::<Result<_, _>>()?;
            Ok(Page {
                total,
                rows,
                edited: Vec::new(),
                indexing,
                outdated: String::new(),
                state: ListState::default(),
            })
        })
    }
}
