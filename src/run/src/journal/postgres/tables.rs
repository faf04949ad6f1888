//! Tables beside those of the journals, in a schema of their own, for crates above this one. They need neither `tokio-postgres`
//! nor a runtime.

use std::sync::Mutex;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::link::{Link, block_on};
use super::server::PostgresServer;
use super::{Slot, check_schema, connected_as, random_name};
use crate::RunError;

/// A connection to a schema.
pub struct PostgresTables {
    server: PostgresServer,
    schema: String,
    slot: Slot,
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum SqlValue<'a> {
    Text(&'a str),
    Integer(i64),
}

/// A row of a result.
#[derive(Debug)]
pub struct SqlRow(Row);

/// Statements that take effect together.
pub struct SqlTransaction<'a> {
    link: &'a mut Link,
}

impl PostgresTables {
    /// Connects, and makes what `create` says is missing: statements that have no effect the second time.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a wrong address; the server does not answer, or refuses the user or a statement.
    pub fn open(server: &PostgresServer, schema: &str, create: &str) -> Result<Self, RunError> {
        server.check()?;
        check_schema(schema)?;
        let create = format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"; {create}");
        // Two processes that make the same tables would hinder each other.
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
        let name = random_name();
        let ((), link) = connected_as(server, Some(schema), &name, async |link| {
            link.transaction(async |link| {
                link.query(lock, &[&schema]).await?;
                link.batch(&create).await
            })
            .await
        })?;
        Ok(Self {
            server: server.clone(),
            schema: schema.to_owned(),
            slot: Slot {
                name,
                link: Mutex::new(Some(link)),
            },
        })
    }

    /// Runs `work` in a transaction. It runs again if the connection is cut or the server gives it up for the sake of another
    /// transaction; the first time may have taken effect, and is over.
    ///
    /// # Errors
    /// Those of `work`; the server does not answer.
    pub fn transaction<T>(
        &self,
        work: impl Fn(&mut SqlTransaction<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let place = (&self.server, &*self.schema);
        let prepare = |_: &mut Link| Ok(());
        self.slot
            .run(place, prepare, |link, _| in_transaction(link, &work))
    }
}

fn in_transaction<T>(
    link: &mut Link,
    work: &impl Fn(&mut SqlTransaction<'_>) -> Result<T, RunError>,
) -> Result<T, RunError> {
    block_on(link.batch("BEGIN"))?;
    match work(&mut SqlTransaction { link: &mut *link }) {
        Ok(done) => {
            block_on(link.batch("COMMIT"))?;
            Ok(done)
        }
        Err(error) => {
            // Where the connection is cut, the server rolls back by itself.
            let _ = block_on(link.batch("ROLLBACK"));
            Err(error)
        }
    }
}

impl SqlTransaction<'_> {
    /// The rows of a statement.
    ///
    /// # Errors
    /// The server refuses it, or does not answer.
    pub fn rows(&mut self, sql: &str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, RunError> {
        let params: Vec<&(dyn ToSql + Sync)> = values
            .iter()
            .map(|value| match value {
                SqlValue::Text(text) => text as &(dyn ToSql + Sync),
                SqlValue::Integer(number) => number as &(dyn ToSql + Sync),
            })
            .collect();
        let rows = block_on(self.link.query(sql, &params))?;
        Ok(rows.into_iter().map(SqlRow).collect())
    }
}

impl SqlRow {
    /// The text in a column, from 0.
    ///
    /// # Errors
    /// The column has no text.
    pub fn text(&self, column: usize) -> Result<String, RunError> {
        Ok(self.0.try_get(column)?)
    }

    /// The number in a column of the type `bigint`, from 0.
    ///
    /// # Errors
    /// The column has no such number.
    pub fn integer(&self, column: usize) -> Result<i64, RunError> {
        Ok(self.0.try_get(column)?)
    }
}
