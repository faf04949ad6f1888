//! Offered units. Only the process that opened the file works on them: nothing else holds a lease or has a call in flight.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{OptionalExtension, params};

use super::super::backend::OfferStore;
use super::super::leased::Attempt;
use super::super::offers::{LeaseRequest, LeasedOffer, OfferCounts};
use super::{SqliteJournal, writing};
use crate::RunError;

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS offer (
    stage TEXT NOT NULL, item TEXT NOT NULL, round TEXT NOT NULL, position INTEGER NOT NULL,
    failures TEXT NOT NULL DEFAULT '', not_before INTEGER NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (stage, item)) WITHOUT ROWID;
";

impl OfferStore for SqliteJournal {
    fn is_shared(&self) -> bool {
        false
    }

    /// By the clock of this machine, on which all processes that share the file run.
    fn now_millis(&self) -> Result<i64, RunError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        }))
    }

    fn offer(&self, round: &str, stage: &str, items: &[String]) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let mut offer = transaction.prepare_cached(
            "INSERT OR REPLACE INTO offer (stage, item, round, position)
             SELECT stage, item, ?2, position FROM unit WHERE stage = ?1 AND item = ?3 AND state = 'pending'",
        )?;
        for item in items {
            offer.execute(params![stage, round, item])?;
        }
        drop(offer);
        transaction.commit()?;
        Ok(())
    }

    fn clear_offers(&self) -> Result<(), RunError> {
        self.execute("DELETE FROM offer", [])?;
        Ok(())
    }

    fn withdraw(&self, round: &str, stage: &str, item: &str) -> Result<(), RunError> {
        self.execute(
            "DELETE FROM offer WHERE round = ?1 AND stage = ?2 AND item = ?3",
            params![round, stage, item],
        )?;
        Ok(())
    }

    fn sweep_offers(&self, round: &str) -> Result<OfferCounts, RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let count = "SELECT COALESCE(SUM(unit.state = 'done'), 0), COALESCE(SUM(unit.state = 'failed'), 0),
                 COALESCE(SUM(unit.state = 'pending'), 0),
                 COALESCE(SUM(unit.state = 'pending' AND unit.lease_until = 0), 0)
             FROM offer JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item WHERE offer.round = ?1";
        let counts = transaction.query_row(count, [round], |row| {
            Ok(OfferCounts {
                is_partial: false,
                done: row.get(0)?,
                failed: row.get(1)?,
                open: row.get(2)?,
                free: row.get(3)?,
            })
        })?;
        transaction.execute(
            "DELETE FROM offer WHERE round = ?1 AND NOT EXISTS (SELECT 1 FROM unit
             WHERE unit.stage = offer.stage AND unit.item = offer.item AND unit.state = 'pending')",
            [round],
        )?;
        transaction.commit()?;
        Ok(counts)
    }

    fn offered(&self, round: &str) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT item FROM offer WHERE round = ?1 ORDER BY position")?;
        let items = statement.query_map([round], |row| row.get(0))?;
        Ok(items.collect::<Result<_, _>>()?)
    }

    fn offered_from(&self, round: &str, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT MAX(offer.not_before, unit.lease_until * 1000)
             FROM offer JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item
             WHERE offer.round = ?1 AND offer.stage = ?2 AND offer.item = ?3 AND unit.state = 'pending'",
        )?;
        let from = statement.query_row([round, stage, item], |row| row.get(0));
        Ok(from.optional()?)
    }

    fn lease_offer(
        &self,
        request: LeaseRequest<'_>,
        _is_held: &dyn Fn(&str) -> bool,
    ) -> Result<Option<LeasedOffer>, RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let next = "SELECT offer.item, offer.failures, offer.lost, unit.lease_until > 0
             FROM offer JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item
             WHERE offer.round = ?1 AND offer.stage = ?2 AND offer.not_before <= ?3
               AND unit.state = 'pending' AND unit.lease_until <= ?4 AND (?5 IS NULL OR offer.item = ?5)
             ORDER BY offer.not_before = 0 AND unit.lease_until = 0, offer.position LIMIT 1";
        let (round, stage) = (request.round, request.stage);
        let next = transaction
            .query_row(
                next,
                params![
                    round,
                    stage,
                    request.now_millis,
                    request.now(),
                    request.item
                ],
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, String>(1)?,
                        row.get::<_, u32>(2)?,
                        row.get::<_, bool>(3)?,
                    ))
                },
            )
            .optional()?;
        let Some((item, failures, lost, is_lost)) = next else {
            return Ok(None);
        };
        let lost = lost + u32::from(is_lost);
        transaction.execute(
            // What is given back has no wait.
            "UPDATE offer SET lost = ?3, not_before = 0 WHERE stage = ?1 AND item = ?2",
            params![stage, item, lost],
        )?;
        let attempt = transaction.query_row(
            "UPDATE unit SET attempts = attempts + 1, lease_until = ?3 WHERE stage = ?1 AND item = ?2
             RETURNING attempts",
            params![stage, item, request.until],
            |row| row.get(0),
        )?;
        transaction.commit()?;
        Ok(Some(LeasedOffer {
            item,
            attempt,
            until: request.until,
            failures,
            lost,
        }))
    }

    fn postpone(
        &self,
        round: &str,
        attempt: Attempt<'_>,
        failures: &str,
        until_millis: i64,
    ) -> Result<(), RunError> {
        self.execute(
            "UPDATE offer SET failures = ?4, not_before = ?5
             WHERE round = ?1 AND stage = ?2 AND item = ?3 AND EXISTS (SELECT 1 FROM unit
                 WHERE unit.stage = ?2 AND unit.item = ?3 AND unit.attempts = ?6)",
            params![
                round,
                attempt.stage,
                attempt.item,
                failures,
                until_millis,
                attempt.number
            ],
        )?;
        Ok(())
    }

    fn beat(&self, _about: &str, _seconds: i64) -> Result<(), RunError> {
        Ok(())
    }

    fn leave(&self) -> Result<(), RunError> {
        Ok(())
    }

    fn members(&self) -> Result<Vec<(String, u64)>, RunError> {
        Ok(Vec::new())
    }

    fn remove_dead_members(&self) -> Result<(), RunError> {
        Ok(())
    }

    fn has_calls_elsewhere(&self) -> Result<bool, RunError> {
        Ok(false)
    }
}
