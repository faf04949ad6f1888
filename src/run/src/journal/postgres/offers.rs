//! Units that several processes may work on, and the processes.
//!
//! `unit.lease_until` decides who has a unit. `offer.not_before` repeats it for the search, so that the next unit is found
//! without looking at those in work.

use std::sync::atomic::Ordering;

use tokio_postgres::types::ToSql;

use super::super::backend::OfferStore;
use super::super::leased::Attempt;
use super::super::offers::{LeaseRequest, LeasedOffer, OfferCounts};
use super::link::Link;
use super::units::MOVE_LEASE;
use super::{PostgresJournal, unsigned};
use crate::RunError;

/// Items in one statement.
const ITEMS: usize = 5_000;

/// Unix time of the server, seconds. Workers are alive by this clock.
const NOW: &str = "extract(epoch FROM clock_timestamp())::bigint";

/// Offers that have ended since the table was vacuumed. A search passes over the index entries of all of them.
const MAX_ENDED: u64 = 2_000;

/// Offers whose units can be leased.
const OPEN: &str = "
        SELECT offer.item, offer.failures, offer.lost, unit.lease_until > 0 AS is_lost
        FROM offer JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item
        WHERE offer.round = $1 AND offer.stage = $2 AND unit.state = 'pending' AND unit.lease_until <= $4";

/// Locks the unit of an offer, and passes over those that another process is leasing.
const LOCK: &str = "FOR UPDATE OF unit SKIP LOCKED";

/// Leases the unit of `next`. A lease that has ended without a result is counted with the offer.
const TAKE: &str = "
    leased AS (
        UPDATE unit SET attempts = attempts + 1, lease_until = $5, holder = $6
        FROM next WHERE unit.stage = $2 AND unit.item = next.item
        RETURNING unit.attempts),
    marked AS (
        UPDATE offer SET lost = offer.lost + next.is_lost::int, not_before = $5 * 1000
        FROM next WHERE offer.stage = $2 AND offer.item = next.item)
    SELECT next.item, leased.attempts, next.failures, next.lost + next.is_lost::int::bigint
    FROM next, leased";

/// Leases the next unit: the first one whose lease or wait has ended, or else the first one that no worker has had.
fn lease_next() -> String {
    format!(
        "WITH due AS ({OPEN} AND offer.not_before > 0 AND offer.not_before <= $3
             ORDER BY offer.position LIMIT 1 {LOCK}),
         free AS ({OPEN} AND offer.not_before = 0 AND NOT EXISTS (SELECT 1 FROM due)
             ORDER BY offer.position LIMIT 1 {LOCK}),
         next AS (SELECT * FROM due UNION ALL SELECT * FROM free), {TAKE}"
    )
}

/// Leases the unit `$7`.
fn lease_given() -> String {
    format!("WITH next AS ({OPEN} AND offer.not_before <= $3 AND offer.item = $7 {LOCK}), {TAKE}")
}

/// What this handle has leased until then, perhaps by a statement whose reply was lost.
const OWN: &str = "
    SELECT offer.item, unit.attempts, offer.failures, offer.lost
    FROM offer JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item
    WHERE offer.round = $1 AND offer.stage = $2 AND unit.state = 'pending'
      AND unit.lease_until = $3 AND unit.holder = $4 AND ($5::text IS NULL OR offer.item = $5)";

fn read_offer(row: &tokio_postgres::Row, until: i64) -> Result<LeasedOffer, RunError> {
    let number = |column: usize| -> Result<u32, RunError> {
        Ok(u32::try_from(row.try_get::<_, i64>(column)?).unwrap_or(u32::MAX))
    };
    Ok(LeasedOffer {
        item: row.try_get(0)?,
        attempt: number(1)?,
        until,
        failures: row.try_get(2)?,
        lost: number(3)?,
    })
}

/// Removes the workers whose time has passed. Their calls in flight become uncertain; their leases end by themselves.
pub(super) async fn remove_dead(link: &mut Link) -> Result<(), RunError> {
    let remove = format!(
        "WITH dead AS (DELETE FROM member WHERE seen + seconds < {NOW} RETURNING holder)
         UPDATE call SET state = 'uncertain'
         WHERE state = 'in_flight' AND holder IN (SELECT holder FROM dead)"
    );
    link.execute(&remove, &[]).await?;
    Ok(())
}

impl PostgresJournal {
    /// Removes the index entries of offers that have ended, once there are many: the server does so once a minute at most. If it does
    /// so at this moment, it is not waited for.
    fn vacuum_offers(&self, ended: u64) {
        let before = self.ended_offers.fetch_add(ended, Ordering::Relaxed);
        if before.saturating_add(ended) < MAX_ENDED {
            return;
        }
        self.ended_offers.store(0, Ordering::Relaxed);
        let vacuum = "VACUUM (SKIP_LOCKED, TRUNCATE FALSE, INDEX_CLEANUP ON) offer";
        if let Err(error) = self.run(async |link, _| link.batch(vacuum).await) {
            tracing::warn!(
                "cannot vacuum the offers, so that finding the next unit takes longer: {error}"
            );
        }
    }
}

impl OfferStore for PostgresJournal {
    fn is_shared(&self) -> bool {
        true
    }

    fn now_millis(&self) -> Result<i64, RunError> {
        self.server_millis()
    }

    fn offer(&self, round: &str, stage: &str, items: &[String]) -> Result<(), RunError> {
        let offer = "INSERT INTO offer (stage, item, round, position, not_before)
             SELECT unit.stage, unit.item, $2::text, unit.position, unit.lease_until * 1000 FROM unit
             WHERE unit.stage = $1 AND unit.state = 'pending' AND unit.item = ANY($3)
             ON CONFLICT (stage, item) DO UPDATE SET round = excluded.round, position = excluded.position,
                 failures = '', not_before = excluded.not_before, lost = 0";
        for items in items.chunks(ITEMS) {
            self.run(async |link, _| link.execute(offer, &[&stage, &round, &items]).await)?;
        }
        Ok(())
    }

    fn clear_offers(&self) -> Result<(), RunError> {
        self.run(async |link, _| link.execute("DELETE FROM offer", &[]).await)?;
        Ok(())
    }

    fn withdraw(&self, round: &str, stage: &str, item: &str) -> Result<(), RunError> {
        let delete = "DELETE FROM offer WHERE round = $1 AND stage = $2 AND item = $3";
        self.run(async |link, _| link.execute(delete, &[&round, &stage, &item]).await)?;
        Ok(())
    }

    fn sweep_offers(&self, round: &str) -> Result<OfferCounts, RunError> {
        let sweep = "WITH offered AS MATERIALIZED (
                 SELECT offer.stage, offer.item, unit.state, unit.lease_until FROM offer
                 JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item WHERE offer.round = $1),
             ended AS (
                 DELETE FROM offer USING offered
                 WHERE offer.round = $1 AND offer.stage = offered.stage AND offer.item = offered.item
                   AND offered.state <> 'pending'
                 RETURNING offered.state),
             counted AS (
                 SELECT COUNT(*) AS open, COUNT(*) FILTER (WHERE lease_until = 0) AS free
                 FROM offered WHERE state = 'pending')
             SELECT (SELECT COUNT(*) FROM ended WHERE state = 'done'),
                 (SELECT COUNT(*) FROM ended WHERE state = 'failed'), open, free FROM counted";
        let (is_partial, row) = self.run(async |link, repeated| {
            let row = link.one(sweep, &[&round]).await?;
            Ok((repeated, row))
        })?;
        let (done, failed) = (unsigned(row.try_get(0)?), unsigned(row.try_get(1)?));
        self.vacuum_offers(done + failed);
        Ok(OfferCounts {
            is_partial,
            done,
            failed,
            open: unsigned(row.try_get(2)?),
            free: unsigned(row.try_get(3)?),
        })
    }

    fn offered(&self, round: &str) -> Result<Vec<String>, RunError> {
        let read = "SELECT item FROM offer WHERE round = $1 ORDER BY position";
        let rows = self.run(async |link, _| link.query(read, &[&round]).await)?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    fn offered_from(&self, round: &str, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        let read = "SELECT GREATEST(offer.not_before, unit.lease_until * 1000)
             FROM offer JOIN unit ON unit.stage = offer.stage AND unit.item = offer.item
             WHERE offer.round = $1 AND offer.stage = $2 AND offer.item = $3 AND unit.state = 'pending'";
        let row = self.run(async |link, _| link.row(read, &[&round, &stage, &item]).await)?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    fn lease_offer(
        &self,
        request: LeaseRequest<'_>,
        is_held: &dyn Fn(&str) -> bool,
    ) -> Result<Option<LeasedOffer>, RunError> {
        let LeaseRequest {
            round, stage, item, ..
        } = request;
        let (millis, now, until) = (request.now_millis, request.now(), request.until);
        let params: [&(dyn ToSql + Sync); 7] =
            [&round, &stage, &millis, &now, &until, &self.holder, &item];
        let (lease, params) = match item {
            Some(_) => (lease_given(), &params[..]),
            None => (lease_next(), &params[..6]),
        };
        self.run(async |link, repeated| {
            if repeated {
                let own = link
                    .query(OWN, &[&round, &stage, &until, &self.holder, &item])
                    .await?;
                for row in &own {
                    let offer = read_offer(row, until)?;
                    if !is_held(&offer.item) {
                        return Ok(Some(offer));
                    }
                }
            }
            let row = link.row(&lease, params).await?;
            row.map(|row| read_offer(&row, until)).transpose()
        })
    }

    fn postpone(
        &self,
        round: &str,
        attempt: Attempt<'_>,
        failures: &str,
        until_millis: i64,
    ) -> Result<(), RunError> {
        let postpone = "UPDATE offer SET failures = $4, not_before = $5 FROM unit
             WHERE offer.round = $1 AND offer.stage = $2 AND offer.item = $3
               AND unit.stage = offer.stage AND unit.item = offer.item AND unit.attempts = $6";
        let (stage, item) = (attempt.stage, attempt.item);
        let number = i64::from(attempt.number);
        self.run(async |link, _| {
            let params: [&(dyn ToSql + Sync); 6] =
                [&round, &stage, &item, &failures, &until_millis, &number];
            link.execute(postpone, &params).await
        })?;
        Ok(())
    }

    fn beat(&self, about: &str, seconds: i64) -> Result<(), RunError> {
        let beat = format!(
            "INSERT INTO member (holder, about, seconds, seen) VALUES ($1, $2, $3, {NOW})
             ON CONFLICT (holder) DO UPDATE SET about = excluded.about, seconds = excluded.seconds, seen = excluded.seen"
        );
        self.run_apart(async |link, _| {
            link.execute(&beat, &[&self.holder, &about, &seconds]).await
        })?;
        Ok(())
    }

    fn leave(&self) -> Result<(), RunError> {
        let calls = "UPDATE call SET state = 'uncertain' WHERE state = 'in_flight' AND holder = $1";
        let leases =
            "SELECT stage, item, lease_until FROM unit WHERE lease_until <> 0 AND holder = $1";
        let member = "DELETE FROM member WHERE holder = $1";
        self.run(async |link, _| {
            // One after the other, since the coordinator may be deleting several offers in another order.
            for row in link.query(leases, &[&self.holder]).await? {
                let (stage, item): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
                let (from, none): (i64, i64) = (row.try_get(2)?, 0);
                link.query(MOVE_LEASE, &[&stage, &item, &from, &none, &self.holder])
                    .await?;
            }
            link.transaction(async |link| {
                for statement in [calls, member] {
                    link.execute(statement, &[&self.holder]).await?;
                }
                Ok(())
            })
            .await
        })
    }

    fn members(&self) -> Result<Vec<(String, u64)>, RunError> {
        // A journal that an older version made has no such table.
        let known = "SELECT to_regclass('member') IS NOT NULL";
        let alive = format!(
            "SELECT about, {NOW} - seen FROM member WHERE seen + seconds >= {NOW} ORDER BY about, holder"
        );
        let rows =
            self.run(
                async |link, _| match link.one(known, &[]).await?.try_get::<_, bool>(0)? {
                    true => link.query(&alive, &[]).await,
                    false => Ok(Vec::new()),
                },
            )?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, unsigned(row.try_get(1)?))))
            .collect()
    }

    fn remove_dead_members(&self) -> Result<(), RunError> {
        self.run(async |link, _| remove_dead(link).await)
    }

    fn has_calls_elsewhere(&self) -> Result<bool, RunError> {
        // A worker that is silent returns nothing, also before it is removed.
        let any = format!(
            "SELECT EXISTS (SELECT 1 FROM call WHERE state = 'in_flight' AND holder <> $1
                 AND NOT EXISTS (SELECT 1 FROM member
                     WHERE member.holder = call.holder AND member.seen + member.seconds < {NOW}))"
        );
        let row = self.run(async |link, _| link.one(&any, &[&self.holder]).await)?;
        Ok(row.try_get(0)?)
    }
}
