//! Whole tables.

use rusqlite::params_from_iter;

use super::super::transfer::{Kind, ORDER, PAGE, Row, Table, TransferStore};
use super::{SqliteJournal, writing};
use crate::RunError;

/// The name of a column here.
fn name(column: &'static str) -> &'static str {
    match column {
        ORDER => "rowid",
        column => column,
    }
}

/// The parameter `number` (from 1) as a column stores it.
fn parameter(number: usize, kind: Kind) -> String {
    match kind {
        Kind::Text => format!("?{number}"),
        Kind::Integer | Kind::Boolean => format!("CAST(?{number} AS INTEGER)"),
    }
}

fn names(table: &Table) -> Vec<&'static str> {
    let columns = table.columns.iter();
    columns.map(|(column, _)| name(column)).collect()
}

/// The parameters of the first `count` columns.
fn parameters(table: &Table, count: usize) -> String {
    let columns = table.columns.iter().take(count).enumerate();
    let columns: Vec<String> = columns
        .map(|(at, (_, kind))| parameter(at + 1, *kind))
        .collect();
    columns.join(", ")
}

impl TransferStore for SqliteJournal {
    fn rows_after(&self, table: &Table, last: Option<&Row>) -> Result<Vec<Row>, RunError> {
        let names = names(table);
        let texts: Vec<String> = names
            .iter()
            .map(|name| format!("CAST({name} AS TEXT)"))
            .collect();
        let keys = names[..table.keys].join(", ");
        let after = match last {
            None => String::new(),
            Some(_) => format!("WHERE ({keys}) > ({})", parameters(table, table.keys)),
        };
        let read = format!(
            "SELECT {} FROM {} {after} ORDER BY {keys} LIMIT {PAGE}",
            texts.join(", "),
            table.name
        );
        let key = last.map(|row| &row[..table.keys]).unwrap_or_default();
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&read)?;
        let rows = statement.query_map(params_from_iter(key), |row| {
            (0..names.len()).map(|column| row.get(column)).collect()
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn add_rows(&self, table: &Table, rows: &[Row]) -> Result<(), RunError> {
        let add = format!(
            "INSERT OR IGNORE INTO {} ({}) VALUES ({})",
            table.name,
            names(table).join(", "),
            parameters(table, table.columns.len())
        );
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let mut statement = transaction.prepare_cached(&add)?;
        for row in rows {
            statement.execute(params_from_iter(row))?;
        }
        drop(statement);
        transaction.commit()?;
        Ok(())
    }

    fn delete_rows(&self, table: &Table) -> Result<(), RunError> {
        self.lock()
            .execute(&format!("DELETE FROM {}", table.name), [])?;
        Ok(())
    }
}
