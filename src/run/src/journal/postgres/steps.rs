//! Steps of trajectories, and metadata.

use serde_json::Value;
use tokio_postgres::error::SqlState;

use super::super::backend::{MetadataStore, StepStore};
use super::super::leased::Attempt;
use super::super::out_of_order;
use super::link::Link;
use super::{PostgresJournal, signed, unsigned};
use crate::RunError;

/// Whether an attempt (`$1`: stage, `$2`: item, `$3`: number) is the newest of its unit, whose row stays as it is until
/// the end of the transaction.
const IS_NEWEST: &str = "SELECT attempts = $3 FROM unit WHERE stage = $1 AND item = $2 FOR SHARE";

/// Refuses the write of an attempt that another one has overtaken, in a transaction.
pub(super) async fn check_attempt(
    link: &mut Link,
    attempt: Option<Attempt<'_>>,
) -> Result<(), RunError> {
    let Some(attempt) = attempt else {
        return Ok(());
    };
    let number = i64::from(attempt.number);
    let row = link
        .row(IS_NEWEST, &[&attempt.stage, &attempt.item, &number])
        .await?;
    match row {
        Some(row) if !row.try_get::<_, bool>(0)? => Err(attempt.lost()),
        _ => Ok(()),
    }
}

impl StepStore for PostgresJournal {
    fn append(
        &self,
        trajectory: &str,
        position: u64,
        payload: &str,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), RunError> {
        let at = signed(position);
        self.run(async |link, repeated| {
            if repeated {
                let own = "SELECT 1 FROM event WHERE trajectory = $1 AND position = $2 AND payload = $3";
                if link.row(own, &[&trajectory, &at, &payload]).await?.is_some() {
                    return Ok(());
                }
            }
            let added = link
                .transaction(async |link| {
                    check_attempt(link, attempt).await?;
                    let add = "INSERT INTO event (trajectory, position, payload) SELECT $1, $2, $3 WHERE $2 =
                         (SELECT COALESCE(MAX(position) + 1, 0) FROM event WHERE trajectory = $1)";
                    link.execute(add, &[&trajectory, &at, &payload]).await
                })
                .await;
            match added {
                Ok(1) => Ok(()),
                Ok(_) => Err(out_of_order(trajectory, position)),
                // Another worker appended at the same moment.
                Err(RunError::Database(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                    Err(out_of_order(trajectory, position))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn events(&self, trajectory: &str) -> Result<Vec<(u64, String)>, RunError> {
        let read = "SELECT position, payload FROM event WHERE trajectory = $1 ORDER BY position";
        let rows = self.run(async |link, _| link.query(read, &[&trajectory]).await)?;
        let events = rows
            .iter()
            .map(|row| Ok((unsigned(row.try_get(0)?), row.try_get(1)?)));
        events.collect()
    }

    fn count_events(&self, trajectory: &str) -> Result<u64, RunError> {
        let count = "SELECT COUNT(*) FROM event WHERE trajectory = $1";
        let row = self.run(async |link, _| link.one(count, &[&trajectory]).await)?;
        Ok(unsigned(row.try_get(0)?))
    }

    fn clear_events(&self, trajectory: &str, attempt: Option<Attempt<'_>>) -> Result<(), RunError> {
        self.run(async |link, _| {
            link.transaction(async |link| {
                check_attempt(link, attempt).await?;
                let delete = "DELETE FROM event WHERE trajectory = $1";
                link.execute(delete, &[&trajectory]).await
            })
            .await
        })?;
        Ok(())
    }
}

impl MetadataStore for PostgresJournal {
    /// Every commit is on the disk of the server.
    fn set_metadata(&self, key: &str, value: &str, _synced: bool) -> Result<(), RunError> {
        let set = "INSERT INTO fact (key, value) VALUES ($1, $2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.run(async |link, _| link.execute(set, &[&key, &value]).await)?;
        Ok(())
    }

    fn metadata(&self, key: &str) -> Result<Option<String>, RunError> {
        let read = "SELECT value FROM fact WHERE key = $1";
        let row = self.run(async |link, _| link.row(read, &[&key]).await)?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    fn metadata_with_prefix(&self, prefix: &str) -> Result<Vec<(String, String)>, RunError> {
        let read = "SELECT substr(key, length($1) + 1), value FROM fact
             WHERE substr(key, 1, length($1)) = $1 ORDER BY key";
        let rows = self.run(async |link, _| link.query(read, &[&prefix]).await)?;
        let values = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        values.collect()
    }

    fn work_by_hand(&self) -> Result<u64, RunError> {
        let reviews = "SELECT COUNT(*) FROM fact WHERE key LIKE 'review/%' OR key LIKE 'trajectory-review/%' OR key LIKE 'human-edit/%'";
        // The text only preselects: PostgreSQL's JSON refuses escaped zero bytes, which outputs may have.
        let outputs = "SELECT output FROM unit WHERE stage = 'rollout' AND state = 'done'
             AND output LIKE '%\"teacher\":\"human\"%'";
        let (reviews, outputs) = self.run(async |link, _| {
            let reviews: i64 = link.one(reviews, &[]).await?.try_get(0)?;
            Ok((unsigned(reviews), link.query(outputs, &[]).await?))
        })?;
        let mut count = reviews;
        for row in &outputs {
            let output: Value = serde_json::from_str(row.try_get(0)?)?;
            count += u64::from(output["teacher"] == "human");
        }
        Ok(count)
    }
}
