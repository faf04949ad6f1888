//! Whole tables.

use tokio_postgres::Row as DatabaseRow;
use tokio_postgres::types::ToSql;

use super::super::transfer::{Kind, ORDER, PAGE, Row, Table, TransferStore};
use super::PostgresJournal;
use crate::RunError;

/// An expression of type text as a column stores it.
fn stored(text: &str, kind: Kind) -> String {
    match kind {
        Kind::Text => text.to_owned(),
        Kind::Integer => format!("{text}::bigint"),
        Kind::Boolean => format!("{text}::int::boolean"),
    }
}

/// A column as text; truth values are 0 and 1.
fn text(column: &str, kind: Kind) -> String {
    match kind {
        Kind::Text => column.to_owned(),
        Kind::Integer => format!("{column}::text"),
        Kind::Boolean => format!("{column}::int::text"),
    }
}

fn names(table: &Table) -> Vec<&'static str> {
    table.columns.iter().map(|(name, _)| *name).collect()
}

fn join(table: &Table, each: impl Fn(usize, &'static str, Kind) -> String) -> String {
    let columns = table.columns.iter().enumerate();
    let columns: Vec<String> = columns
        .map(|(at, (name, kind))| each(at, name, *kind))
        .collect();
    columns.join(", ")
}

fn read_row(row: &DatabaseRow) -> Result<Row, RunError> {
    let values = (0..row.len()).map(|column| Ok(row.try_get(column)?));
    values.collect()
}

impl TransferStore for PostgresJournal {
    fn rows_after(&self, table: &Table, last: Option<&Row>) -> Result<Vec<Row>, RunError> {
        // With the table, since a name alone is that of an output column in ORDER BY: the text of a number.
        let keys: Vec<String> = table.columns[..table.keys]
            .iter()
            .map(|(name, _)| format!("{}.{name}", table.name))
            .collect();
        let keys = keys.join(", ");
        let after = last.map_or_else(String::new, |_| {
            let columns = table.columns[..table.keys].iter().enumerate();
            let values: Vec<String> = columns
                .map(|(at, (_, kind))| stored(&format!("${}::text", at + 1), *kind))
                .collect();
            format!("WHERE ({keys}) > ({})", values.join(", "))
        });
        let read = format!(
            "SELECT {} FROM {} {after} ORDER BY {keys} LIMIT {PAGE}",
            join(table, |_, name, kind| text(name, kind)),
            table.name
        );
        let key = last.map(|row| &row[..table.keys]).unwrap_or_default();
        let key: Vec<&(dyn ToSql + Sync)> = key.iter().map(|value| value as _).collect();
        let rows = self.run(async |link, _| link.query(&read, &key).await)?;
        rows.iter().map(read_row).collect()
    }

    fn add_rows(&self, table: &Table, rows: &[Row]) -> Result<(), RunError> {
        let names = names(table).join(", ");
        let add = format!(
            "INSERT INTO {} ({names}) SELECT {} FROM unnest({}) AS rows ({names}) ON CONFLICT DO NOTHING",
            table.name,
            join(table, |_, name, kind| stored(name, kind)),
            join(table, |at, _, _| format!("${}::text[]", at + 1)),
        );
        let column = |at: usize| -> Vec<Option<&str>> {
            rows.iter().map(|row| row[at].as_deref()).collect()
        };
        let columns: Vec<_> = (0..table.columns.len()).map(column).collect();
        let columns: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|values| values as _).collect();
        self.run(async |link, _| link.execute(&add, &columns).await)?;
        // The next row gets the next number.
        if table.columns[0].0 == ORDER {
            let next = format!(
                "SELECT setval(pg_get_serial_sequence('{0}', '{ORDER}'), COALESCE(MAX({ORDER}), 0) + 1, false) FROM {0}",
                table.name
            );
            self.run(async |link, _| link.query(&next, &[]).await)?;
        }
        Ok(())
    }

    fn delete_rows(&self, table: &Table) -> Result<(), RunError> {
        let delete = format!("DELETE FROM {}", table.name);
        self.run(async |link, _| link.execute(&delete, &[]).await)?;
        Ok(())
    }
}
