//! Calls that are sent in batches.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::backend::BatchStore;
use super::super::batches::no_batch;
use super::super::leased::Attempt;
use super::super::{Batch, BatchRequest, BudgetCap, PendingCall, Reservation, ReserveError};
use super::calls::{is_reserved_by, reserve_as};
use super::{PostgresJournal, signed, unsigned};
use crate::RunError;
use pybench_types::id::Digest;

/// Deletes queued calls that were never sent.
pub(super) const DELETE_UNSENT: &str = "
DELETE FROM call WHERE state = 'batched' AND id IN (SELECT call FROM noted WHERE batch IS NULL);
DELETE FROM noted WHERE batch IS NULL;
";

fn read_batch(row: &Row) -> Result<Batch, RunError> {
    Ok(Batch {
        name: row.try_get(0)?,
        teacher: row.try_get(1)?,
        wave: unsigned(row.try_get(2)?),
        requests: unsigned(row.try_get(3)?),
        file: row.try_get(4)?,
        asked: row.try_get(5)?,
        remote: row.try_get(6)?,
    })
}

impl PostgresJournal {
    fn change_batch(
        &self,
        statement: &str,
        name: &str,
        value: &(dyn ToSql + Sync),
    ) -> Result<(), RunError> {
        match self.run(async |link, _| link.execute(statement, &[&name, value]).await)? {
            1 => Ok(()),
            _ => Err(no_batch(name)),
        }
    }
}

impl BatchStore for PostgresJournal {
    fn queue_for_batch(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        request: BatchRequest<'_>,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError> {
        let limits = (most, cap);
        let queue = "INSERT INTO noted (call, teacher, request, line) VALUES ($1, $2, $3, $4)";
        let digest = request.request.as_str();
        let granted = self.run(async |link, repeated| {
            if repeated && is_reserved_by(link, &self.holder, id).await? {
                return Ok(true);
            }
            link.transaction(async |link| {
                let granted =
                    reserve_as(link, &self.holder, "batched", id, limits, attempt).await?;
                if granted {
                    link.execute(queue, &[&id, &request.teacher, &digest, &request.line])
                        .await?;
                }
                Ok(granted)
            })
            .await
        })?;
        match granted {
            true => Ok(()),
            false => self.not_granted(limits, attempt),
        }
    }

    fn queued_calls(&self, teacher: &str) -> Result<Vec<(String, u64)>, RunError> {
        let read = "SELECT call, octet_length(line)::bigint FROM noted
             WHERE teacher = $1 AND batch IS NULL ORDER BY call";
        let rows = self.run(async |link, _| link.query(read, &[&teacher]).await)?;
        let calls = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, unsigned(row.try_get(1)?))));
        calls.collect()
    }

    fn has_batched_calls(&self) -> Result<bool, RunError> {
        let any = "SELECT EXISTS (SELECT 1 FROM noted)";
        Ok(self
            .run(async |link, _| link.one(any, &[]).await)?
            .try_get(0)?)
    }

    fn create_batches(&self, teacher: &str, batches: &[Vec<String>]) -> Result<(), RunError> {
        let grouped = "SELECT EXISTS (SELECT 1 FROM noted WHERE call = $1 AND batch IS NOT NULL)";
        let next = "SELECT COALESCE(MAX(wave), 0) + 1 FROM batch WHERE teacher = $1";
        let add = "INSERT INTO batch (name, teacher, wave, requests) VALUES ($1, $2, $3, $4)";
        let put = "UPDATE noted SET batch = $1 WHERE call = ANY($2)";
        let first = batches.iter().flatten().next();
        self.run(async |link, repeated| {
            if repeated
                && let Some(first) = first
                && link.one(grouped, &[first]).await?.try_get(0)?
            {
                return Ok(());
            }
            link.transaction(async |link| {
                let wave: i64 = link.one(next, &[&teacher]).await?.try_get(0)?;
                for calls in batches {
                    let name = Digest::of_json(&(teacher, unsigned(wave), calls));
                    let (name, count) = (name.short(), signed(calls.len() as u64));
                    link.execute(add, &[&name, &teacher, &wave, &count]).await?;
                    link.execute(put, &[&name, calls]).await?;
                }
                Ok(())
            })
            .await
        })
    }

    fn all_open_batches(&self) -> Result<Vec<Batch>, RunError> {
        let read =
            "SELECT name, teacher, wave, requests, file, asked, remote FROM batch WHERE NOT closed
             ORDER BY teacher, wave, number";
        let rows = self.run(async |link, _| link.query(read, &[]).await)?;
        rows.iter().map(read_batch).collect()
    }

    fn batch_file(&self, name: &str) -> Result<String, RunError> {
        let read = "SELECT line FROM noted WHERE batch = $1 ORDER BY call";
        let rows = self.run(async |link, _| link.query(read, &[&name]).await)?;
        let mut file = String::new();
        for row in &rows {
            file += row.try_get(0)?;
            file.push('\n');
        }
        Ok(file)
    }

    fn pending_calls(&self, name: &str) -> Result<Vec<PendingCall>, RunError> {
        let read = "SELECT noted.call, noted.request, call.micro_usd, call.tokens
             FROM noted JOIN call ON call.id = noted.call
             WHERE noted.batch = $1 AND call.state = 'batched' ORDER BY noted.call";
        let rows = self.run(async |link, _| link.query(read, &[&name]).await)?;
        let calls = rows.iter().map(|row| {
            let request: String = row.try_get(1)?;
            Ok(PendingCall {
                call: row.try_get(0)?,
                request: serde_json::from_value(request.into())?,
                reserved: Reservation {
                    micro_usd: unsigned(row.try_get(2)?),
                    tokens: unsigned(row.try_get(3)?),
                },
            })
        });
        calls.collect()
    }

    fn batch_calls(&self, name: &str) -> Result<Vec<String>, RunError> {
        let read = "SELECT call FROM noted WHERE batch = $1 ORDER BY call";
        let rows = self.run(async |link, _| link.query(read, &[&name]).await)?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    fn batched_request(&self, call: &str) -> Result<Option<Digest>, RunError> {
        let read = "SELECT request FROM noted WHERE call = $1";
        let row = self.run(async |link, _| link.row(read, &[&call]).await)?;
        let request: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        let request = request.map(|request| serde_json::from_value(request.into()));
        Ok(request.transpose()?)
    }

    fn batch_uploaded(&self, name: &str, file: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET file = $2 WHERE name = $1", name, &file)
    }

    fn batch_requested(&self, name: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET asked = $2 WHERE name = $1", name, &true)
    }

    fn batch_created(&self, name: &str, remote: &str) -> Result<(), RunError> {
        self.change_batch(
            "UPDATE batch SET remote = $2 WHERE name = $1",
            name,
            &remote,
        )
    }

    fn close_batch(&self, name: &str) -> Result<(), RunError> {
        self.run(async |link, _| {
            link.transaction(async |link| {
                link.execute("UPDATE batch SET closed = TRUE WHERE name = $1", &[&name])
                    .await?;
                link.execute("DELETE FROM noted WHERE batch = $1", &[&name])
                    .await
            })
            .await
        })?;
        Ok(())
    }

    fn discard_batch(&self, name: &str) -> Result<(), RunError> {
        let calls = "DELETE FROM call WHERE state = 'batched' AND id IN
             (SELECT call FROM noted WHERE batch = $1)";
        self.run(async |link, _| {
            link.transaction(async |link| {
                link.execute(calls, &[&name]).await?;
                link.execute("DELETE FROM noted WHERE batch = $1", &[&name])
                    .await?;
                link.execute("DELETE FROM batch WHERE name = $1", &[&name])
                    .await
            })
            .await
        })?;
        Ok(())
    }
}
