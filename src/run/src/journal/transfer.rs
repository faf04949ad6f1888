//! Copies a journal to another database, table by table.
//!
//! Values pass as text, because databases store truth values differently, and JSON must stay as it is. Leases, offers and
//! workers are not copied: they belong to processes.

use pybench_types::id::{Digest, DigestBuilder};
use serde_json::Value;

use super::Journal;
use crate::RunError;

/// The values of a row, in the order of [`Table::columns`].
pub(super) type Row = Vec<Option<String>>;

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Boolean,
}

/// A table of every journal.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [(&'static str, Kind)],
    /// The first columns are the key, by which rows are ordered.
    pub(super) keys: usize,
}

use Kind::{Boolean, Integer, Text};

/// What a journal holds beside its totals, which follow from the calls.
const TABLES: [Table; 6] = [
    Table {
        name: "unit",
        columns: &[
            ("stage", Text),
            ("item", Text),
            ("position", Integer),
            ("state", Text),
            ("attempts", Integer),
            ("output", Text),
            ("failure", Text),
        ],
        keys: 2,
    },
    Table {
        name: "call",
        columns: &[
            ("id", Text),
            ("state", Text),
            ("micro_usd", Integer),
            ("tokens", Integer),
            ("reply", Text),
        ],
        keys: 1,
    },
    Table {
        name: "event",
        columns: &[
            ("trajectory", Text),
            ("position", Integer),
            ("payload", Text),
        ],
        keys: 2,
    },
    FACTS,
    Table {
        name: "batch",
        columns: &[
            (ORDER, Integer),
            ("name", Text),
            ("teacher", Text),
            ("wave", Integer),
            ("requests", Integer),
            ("file", Text),
            ("asked", Boolean),
            ("remote", Text),
            ("closed", Boolean),
        ],
        keys: 1,
    },
    Table {
        name: "noted",
        columns: &[
            ("call", Text),
            ("teacher", Text),
            ("batch", Text),
            ("request", Text),
            ("line", Text),
        ],
        keys: 1,
    },
];

const FACTS: Table = Table {
    name: "fact",
    columns: &[("key", Text), ("value", Text)],
    keys: 1,
};

/// The column by which batches are ordered; SQLite calls it `rowid`.
pub(super) const ORDER: &str = "number";

/// Rows that are read and written at a time; each may hold a trajectory.
pub(super) const PAGE: usize = 64;

/// Key of the metadata of a journal that is elsewhere now. It is not copied.
const MOVED: &str = "moved";

/// Where a journal is that is not filled yet, so that no process takes it for that of the run.
const UNFINISHED: &str = "another place, from which its copy was interrupted";

/// Whole tables.
pub(super) trait TransferStore {
    /// The next [`PAGE`] rows, in the order of their keys; `last` is the row after which they begin.
    fn rows_after(&self, table: &Table, last: Option<&Row>) -> Result<Vec<Row>, RunError>;
    /// Adds rows. Those whose keys exist are left as they are.
    fn add_rows(&self, table: &Table, rows: &[Row]) -> Result<(), RunError>;
    /// Deletes the rows of a table.
    fn delete_rows(&self, table: &Table) -> Result<(), RunError>;
}

/// What a journal holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalSize {
    pub units: u64,
    pub calls: u64,
    /// Steps of trajectories that have not ended.
    pub steps: u64,
}

impl Journal {
    /// Replaces the content of `target` by that of this journal, and compares both. No other process writes either.
    ///
    /// # Errors
    /// [`RunError::Internal`] if the copy differs; errors of the databases.
    pub(crate) fn copy_to(&self, target: &Self) -> Result<JournalSize, RunError> {
        let mut size = JournalSize::default();
        for table in &TABLES {
            target.backend.delete_rows(table)?;
            if table.name == FACTS.name {
                target.mark_moved(Some(UNFINISHED))?;
            }
            let (mut rows, mut digest) = (0, DigestBuilder::default());
            self.each_page(table, |page| {
                rows += page.len() as u64;
                add(&mut digest, page);
                target.backend.add_rows(table, page)
            })?;
            if target.digest(table)? != digest.finish() {
                return Err(RunError::Internal(format!(
                    "the copy of the table {} differs from the journal: nothing is moved; please report this",
                    table.name
                )));
            }
            match table.name {
                "unit" => size.units = rows,
                "call" => size.calls = rows,
                "event" => size.steps = rows,
                _ => {}
            }
        }
        target.mark_moved(None)?;
        Ok(size)
    }

    /// Marks this journal as one that is elsewhere, or is being moved there; `None` withdraws the mark.
    pub(crate) fn mark_moved(&self, to: Option<&str>) -> Result<(), RunError> {
        let mark = to.map_or(Value::Null, |to| Value::String(to.to_owned()));
        self.set_metadata_synced(MOVED, &mark)
    }

    /// Where this journal is now, or is being moved to.
    pub(crate) fn moved_to(&self) -> Result<Option<String>, RunError> {
        let mark = self.metadata(MOVED)?.unwrap_or_default();
        Ok(mark.as_str().map(str::to_owned))
    }

    /// Visits the rows of a table that are copied.
    fn each_page(
        &self,
        table: &Table,
        mut visit: impl FnMut(&[Row]) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let mut last = None;
        loop {
            let mut page = self.backend.rows_after(table, last.as_ref())?;
            let Some(end) = page.last().cloned() else {
                return Ok(());
            };
            if table.name == FACTS.name {
                page.retain(|row| row.first() != Some(&Some(MOVED.to_owned())));
            }
            visit(&page)?;
            last = Some(end);
        }
    }

    fn digest(&self, table: &Table) -> Result<Digest, RunError> {
        let mut digest = DigestBuilder::default();
        self.each_page(table, |page| {
            add(&mut digest, page);
            Ok(())
        })?;
        Ok(digest.finish())
    }
}

/// Adds rows to a digest, so that no two lists of rows look alike.
fn add(digest: &mut DigestBuilder, rows: &[Row]) {
    for value in rows.iter().flatten() {
        match value {
            None => digest.add(b"n"),
            Some(text) => {
                digest.add(format!("{}:", text.len()).as_bytes());
                digest.add(text.as_bytes());
            }
        }
    }
}
