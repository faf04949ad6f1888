//! The journal: one SQLite file (WAL) that knows every unit, call and turn of a run.
//!
//! It is written before the next step starts, so that a `kill -9` loses nothing but what was in
//! flight, and a call in flight is charged as uncertain.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Failure, RunError, StageSummary, Unit, UnitState};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS unit (
    stage TEXT NOT NULL, item TEXT NOT NULL, position INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', attempts INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0, output TEXT, failure TEXT,
    PRIMARY KEY (stage, item)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS call (
    id TEXT PRIMARY KEY, state TEXT NOT NULL,
    micro_usd INTEGER NOT NULL, tokens INTEGER NOT NULL, reply TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    trajectory TEXT NOT NULL, position INTEGER NOT NULL, payload TEXT NOT NULL,
    PRIMARY KEY (trajectory, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    connection: Mutex<Connection>,
}

/// Where a paid call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Reserved; the answer is awaited.
    InFlight,
    /// Answered; charged as used.
    Settled,
    /// In flight when the process died; charged as reserved.
    Uncertain,
}

/// A call as the journal holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Where it stands.
    pub state: CallState,
    /// The reply, once settled.
    pub reply: Option<Value>,
}

/// What a call may cost at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens, prompt and completion.
    pub tokens: u64,
}

/// Hard limits; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCap {
    /// Millionths of a US dollar.
    pub micro_usd: Option<u64>,
    /// Tokens, prompt and completion.
    pub tokens: Option<u64>,
}

/// What was spent, calls in flight and uncertain ones included as reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Calls.
    pub calls: u64,
    /// Of these, uncertain ones.
    pub uncertain: u64,
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens, prompt and completion.
    pub tokens: u64,
}

/// Which units that failed for good are tried anew by the same command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryFailed {
    /// None.
    None,
    /// Failures of ours, of the machine or of an endpoint; a bad item stays failed.
    #[default]
    Ours,
    /// All.
    All,
}

/// A reservation was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// It would exceed the budget.
    #[error("the budget is used up: {0}")]
    OverBudget(String),
    /// The journal failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// One step of a trajectory, as journaled.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// From 0, without gaps.
    pub position: u64,
    /// What happened.
    pub payload: Value,
}

impl Journal {
    /// Open (or make) the journal. Calls left in flight by a dead process become uncertain.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.execute_batch(SCHEMA)?;
        // Who opens the journal for writing holds the run folder's lock: every other holder of a
        // lease and every awaited call is dead.
        connection.execute_batch(
            "UPDATE call SET state = 'uncertain' WHERE state = 'in_flight';
             UPDATE unit SET lease_until = 0 WHERE lease_until <> 0;",
        )?;
        Ok(Self {
            connection: Mutex::new(connection),
        })
    }

    /// Open an existing journal to look at it, while another process may be writing.
    pub fn open_read_only(path: &Path) -> Result<Self, RunError> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(Self {
            connection: Mutex::new(connection),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the lock leaves no half-done statement: SQLite rolls it back.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    // --- units -------------------------------------------------------------------------------

    /// Add units in this order; those already there keep their place and state.
    pub fn enqueue(&self, stage: &str, items: &[String]) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let first: u64 = transaction.query_row(
            "SELECT COALESCE(MAX(position) + 1, 0) FROM unit WHERE stage = ?1",
            [stage],
            |row| row.get(0),
        )?;
        for (offset, item) in items.iter().enumerate() {
            transaction.execute(
                "INSERT OR IGNORE INTO unit (stage, item, position) VALUES (?1, ?2, ?3)",
                params![stage, item, first + offset as u64],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Every unit of a stage, in item order.
    pub fn units(&self, stage: &str) -> Result<Vec<Unit>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT item, position, state, attempts, output, failure FROM unit
             WHERE stage = ?1 ORDER BY position",
        )?;
        let rows = statement.query_map([stage], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, u64>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, u32>(3)?,
                row.get::<_, Option<String>>(4)?,
                row.get::<_, Option<String>>(5)?,
            ))
        })?;
        rows.map(|row| {
            let (item, position, state, attempts, output, failure) = row?;
            Ok(Unit {
                stage: stage.to_owned(),
                item,
                position,
                state: serde_json::from_value(Value::String(state))?,
                attempts,
                output: output.as_deref().map(serde_json::from_str).transpose()?,
                failure: failure.as_deref().map(serde_json::from_str).transpose()?,
            })
        })
        .collect()
    }

    /// The outputs of a stage's done units, in item order.
    pub fn outputs<T: serde::de::DeserializeOwned>(&self, stage: &str) -> Result<Vec<T>, RunError> {
        let units = self.units(stage)?;
        let outputs = units.into_iter().filter_map(|unit| unit.output);
        Ok(outputs
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()?)
    }

    /// Take a pending unit for `seconds`; `false` when it is done, failed, or leased to another.
    pub fn lease(&self, stage: &str, item: &str, now: i64, seconds: i64) -> Result<bool, RunError> {
        let changed = self.lock().execute(
            "UPDATE unit SET attempts = attempts + 1, lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until <= ?3",
            params![stage, item, now, now + seconds],
        )?;
        Ok(changed == 1)
    }

    /// Until when a pending unit is leased (seconds since 1970); `None` when it is not pending.
    pub fn leased_until(&self, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        Ok(self
            .lock()
            .query_row(
                "SELECT lease_until FROM unit WHERE stage = ?1 AND item = ?2 AND state = 'pending'",
                [stage, item],
                |row| row.get(0),
            )
            .optional()?)
    }

    /// Move the end of a lease that ends at `from`; `false` when it is held no more. 0 gives the
    /// unit back.
    pub fn move_lease(
        &self,
        stage: &str,
        item: &str,
        from: i64,
        to: i64,
    ) -> Result<bool, RunError> {
        let changed = self.lock().execute(
            "UPDATE unit SET lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until = ?3",
            params![stage, item, from, to],
        )?;
        Ok(changed == 1)
    }

    /// Commit a unit's output. Committing again changes nothing.
    pub fn complete(&self, stage: &str, item: &str, output: &Value) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE unit SET state = 'done', output = ?3, failure = NULL, lease_until = 0
             WHERE stage = ?1 AND item = ?2 AND state <> 'done'",
            params![stage, item, output.to_string()],
        )?;
        Ok(())
    }

    /// Record a failure; `last` makes it final, otherwise the unit goes back to pending.
    pub fn fail(
        &self,
        stage: &str,
        item: &str,
        failure: &Failure,
        last: bool,
    ) -> Result<(), RunError> {
        let state = if last { "failed" } else { "pending" };
        self.lock().execute(
            "UPDATE unit SET state = ?3, failure = ?4, lease_until = 0
             WHERE stage = ?1 AND item = ?2 AND state <> 'done'",
            params![stage, item, state, serde_json::to_string(failure)?],
        )?;
        Ok(())
    }

    /// Make failed units pending again, so that the same command tries them anew.
    pub fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError> {
        let which = match which {
            RetryFailed::None => return Ok(()),
            RetryFailed::Ours => "AND json_extract(failure, '$.kind') <> 'item'",
            RetryFailed::All => "",
        };
        self.lock().execute(
            &format!(
                "UPDATE unit SET state = 'pending' WHERE stage = ?1 AND state = 'failed' {which}"
            ),
            [stage],
        )?;
        Ok(())
    }

    /// Counts of a stage's units.
    pub fn summary(&self, stage: &str) -> Result<StageSummary, RunError> {
        Ok(self.lock().query_row(
            "SELECT COALESCE(SUM(state = 'done'), 0), COALESCE(SUM(state = 'failed'), 0),
                    COALESCE(SUM(state = 'pending'), 0) FROM unit WHERE stage = ?1",
            [stage],
            |row| {
                Ok(StageSummary {
                    done: row.get(0)?,
                    failed: row.get(1)?,
                    pending: row.get(2)?,
                })
            },
        )?)
    }

    /// Where a unit stands; `None` when it was never enqueued.
    pub fn state(&self, stage: &str, item: &str) -> Result<Option<UnitState>, RunError> {
        let state: Option<String> = self
            .lock()
            .query_row(
                "SELECT state FROM unit WHERE stage = ?1 AND item = ?2",
                [stage, item],
                |row| row.get(0),
            )
            .optional()?;
        Ok(state
            .map(|s| serde_json::from_value(s.into()))
            .transpose()?)
    }

    /// Every unit of a stage and where it stands, in item order.
    pub fn states(&self, stage: &str) -> Result<Vec<(String, UnitState)>, RunError> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT item, state FROM unit WHERE stage = ?1 ORDER BY position")?;
        let rows = statement.query_map([stage], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.map(|row| {
            let (item, state) = row?;
            Ok((item, serde_json::from_value(Value::String(state))?))
        })
        .collect()
    }

    // --- calls -------------------------------------------------------------------------------

    /// The call of that id, if it was ever reserved.
    pub fn call(&self, id: &str) -> Result<Option<Call>, RunError> {
        let row = self
            .lock()
            .query_row("SELECT state, reply FROM call WHERE id = ?1", [id], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            })
            .optional()?;
        let Some((state, reply)) = row else {
            return Ok(None);
        };
        Ok(Some(Call {
            state: serde_json::from_value(Value::String(state))?,
            reply: reply.as_deref().map(serde_json::from_str).transpose()?,
        }))
    }

    /// Reserve a call's highest cost, in one step with the test against the caps. `id` names one
    /// attempt (`<request id>/<attempt>`): an attempt is reserved once.
    pub fn reserve(&self, id: &str, most: Reservation, cap: BudgetCap) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = connection.transaction().map_err(RunError::from)?;
        let spent = spent(&transaction)?;
        let over = |name: &str, have: u64, want: u64, cap: Option<u64>| match cap {
            Some(cap) if have + want > cap => Err(ReserveError::OverBudget(format!(
                "{name}: {have} spent or reserved, {want} more asked for, {cap} allowed"
            ))),
            _ => Ok(()),
        };
        over(
            "millionths of a dollar",
            spent.micro_usd,
            most.micro_usd,
            cap.micro_usd,
        )?;
        over("tokens", spent.tokens, most.tokens, cap.tokens)?;
        transaction
            .execute(
                "INSERT INTO call (id, state, micro_usd, tokens) VALUES (?1, 'in_flight', ?2, ?3)",
                params![id, most.micro_usd, most.tokens],
            )
            .map_err(RunError::from)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    /// The answer came: charge what was used and keep the reply.
    pub fn settle(&self, id: &str, used: Reservation, reply: &Value) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE call SET state = 'settled', micro_usd = ?2, tokens = ?3, reply = ?4 WHERE id = ?1",
            params![id, used.micro_usd, used.tokens, reply.to_string()],
        )?;
        Ok(())
    }

    /// The call failed in a way that is surely not charged (refused connection, 4xx, 429): forget it.
    pub fn release(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "DELETE FROM call WHERE id = ?1 AND state = 'in_flight'",
            [id],
        )?;
        Ok(())
    }

    /// The call failed in a way that may have been charged (time-out, broken answer): charge it as reserved.
    pub fn mark_uncertain(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE call SET state = 'uncertain' WHERE id = ?1 AND state = 'in_flight'",
            [id],
        )?;
        Ok(())
    }

    /// What the run spent so far.
    pub fn spent(&self) -> Result<Spent, RunError> {
        spent(&self.lock())
    }

    // --- events of trajectories ---------------------------------------------------------------

    /// Append a step of a trajectory; its position must be the next one.
    pub fn append(&self, trajectory: &str, position: u64, payload: &Value) -> Result<(), RunError> {
        self.lock().execute(
            "INSERT INTO event (trajectory, position, payload) VALUES (?1, ?2, ?3)",
            params![trajectory, position, payload.to_string()],
        )?;
        Ok(())
    }

    /// The steps of a trajectory, in order.
    pub fn events(&self, trajectory: &str) -> Result<Vec<Event>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT position, payload FROM event WHERE trajectory = ?1 ORDER BY position",
        )?;
        let rows = statement.query_map([trajectory], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.map(|row| {
            let (position, payload) = row?;
            Ok(Event {
                position,
                payload: serde_json::from_str(&payload)?,
            })
        })
        .collect()
    }

    /// Forget the steps of a trajectory: it starts anew.
    pub fn clear_events(&self, trajectory: &str) -> Result<(), RunError> {
        self.lock()
            .execute("DELETE FROM event WHERE trajectory = ?1", [trajectory])?;
        Ok(())
    }

    // --- facts -------------------------------------------------------------------------------

    /// Remember a named fact of the run (seconds spent, warnings).
    pub fn set_fact(&self, key: &str, value: &Value) -> Result<(), RunError> {
        self.lock().execute(
            "INSERT INTO fact (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            params![key, value.to_string()],
        )?;
        Ok(())
    }

    /// A named fact.
    pub fn fact(&self, key: &str) -> Result<Option<Value>, RunError> {
        let text: Option<String> = self
            .lock()
            .query_row("SELECT value FROM fact WHERE key = ?1", [key], |row| {
                row.get(0)
            })
            .optional()?;
        Ok(text.as_deref().map(serde_json::from_str).transpose()?)
    }

    /// Facts whose key begins with `prefix`, by key; the prefix is cut off.
    pub fn facts(&self, prefix: &str) -> Result<Vec<(String, Value)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT substr(key, length(?1) + 1), value FROM fact
             WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key",
        )?;
        let rows = statement.query_map([prefix], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.map(|row| {
            let (key, value) = row?;
            Ok((key, serde_json::from_str(&value)?))
        })
        .collect()
    }
}

fn spent(connection: &Connection) -> Result<Spent, RunError> {
    Ok(connection.query_row(
        "SELECT COUNT(*), COALESCE(SUM(state = 'uncertain'), 0),
                COALESCE(SUM(micro_usd), 0), COALESCE(SUM(tokens), 0) FROM call",
        [],
        |row| {
            Ok(Spent {
                calls: row.get(0)?,
                uncertain: row.get(1)?,
                micro_usd: row.get(2)?,
                tokens: row.get(3)?,
            })
        },
    )?)
}
