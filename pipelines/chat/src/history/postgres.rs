//! The history in PostgreSQL: one schema for all who use the database.

use pybench_run::{
    BudgetCap, PostgresServer, PostgresTables, Reservation, RunError, SqlRow, SqlTransaction,
    SqlValue,
};

use super::backend::{Backend, allows, bounded};
use super::{Listed, Spending};

/// Version of the tables.
const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS chat_version (version BIGINT NOT NULL);
INSERT INTO chat_version SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM chat_version);
CREATE TABLE IF NOT EXISTS conversation (
    number BIGINT GENERATED ALWAYS AS IDENTITY, id TEXT PRIMARY KEY, changed BIGINT NOT NULL,
    title TEXT NOT NULL DEFAULT '', settings TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS entry (
    conversation TEXT NOT NULL, position BIGINT NOT NULL, json TEXT NOT NULL, writer TEXT NOT NULL,
    PRIMARY KEY (conversation, position)
);
CREATE TABLE IF NOT EXISTS call (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, conversation TEXT NOT NULL, micro_usd BIGINT NOT NULL,
    tokens BIGINT NOT NULL, settled BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX IF NOT EXISTS call_of_conversation ON call (conversation);
";

/// A connection to the conversations.
pub(super) struct PostgresHistory {
    tables: PostgresTables,
    /// Names this handle in the entries that it writes.
    writer: String,
}

impl PostgresHistory {
    /// Connects, and makes the tables if there are none.
    pub(super) fn open(server: &PostgresServer, schema: &str) -> Result<Self, RunError> {
        let tables = PostgresTables::open(server, schema, TABLES)?;
        let select = "SELECT version FROM chat_version";
        let version = tables.transaction(|sql| one(sql, select, &[])?.integer(0))?;
        if version != VERSION {
            return Err(RunError::Environment(format!(
                "the conversations in schema {schema} of PostgreSQL have version {version}, and this program reads version \
                 {VERSION}; install the version of pybench that made them, or name a folder with --history"
            )));
        }
        Ok(Self {
            tables,
            writer: format!("{:016x}", rand::random::<u64>()),
        })
    }

    fn rows(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, RunError> {
        self.tables
            .transaction(|transaction| transaction.rows(sql, values))
    }
}

impl Backend for PostgresHistory {
    fn begin(&self, id: &str, settings: &str, now: u64) -> Result<(), RunError> {
        let insert = "INSERT INTO conversation (id, changed, settings) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let values = [SqlValue::Text(id), number(now), SqlValue::Text(settings)];
        self.rows(insert, &values)?;
        Ok(())
    }

    fn list(&self, most: usize) -> Result<Vec<Listed>, RunError> {
        let select = "SELECT id, title, changed / 1000 FROM conversation ORDER BY changed DESC, number DESC LIMIT $1";
        let rows = self.rows(select, &[number(most as u64)])?;
        let listed = rows.iter().map(|row| {
            Ok(Listed {
                id: row.text(0)?,
                title: row.text(1)?,
                changed: unsigned(row.integer(2)?),
            })
        });
        listed.collect()
    }

    fn starting_with(&self, digits: &str) -> Result<Vec<String>, RunError> {
        // A text of PostgreSQL cannot have this character, and no id does.
        if digits.contains('\0') {
            return Ok(Vec::new());
        }
        let select = "SELECT id FROM conversation WHERE starts_with(id, $1) LIMIT 2";
        let rows = self.rows(select, &[SqlValue::Text(digits)])?;
        rows.iter().map(|row| row.text(0)).collect()
    }

    fn read(&self, id: &str) -> Result<Option<(String, Vec<String>)>, RunError> {
        if id.contains('\0') {
            return Ok(None);
        }
        self.tables.transaction(|sql| {
            let values = [SqlValue::Text(id)];
            let settings = sql.rows("SELECT settings FROM conversation WHERE id = $1", &values)?;
            let Some(settings) = settings.first() else {
                return Ok(None);
            };
            let select = "SELECT json FROM entry WHERE conversation = $1 ORDER BY position";
            let entries = sql.rows(select, &values)?;
            let entries = entries.iter().map(|row| row.text(0));
            let entries = entries.collect::<Result<Vec<_>, _>>()?;
            Ok(Some((settings.text(0)?, entries)))
        })
    }

    fn append(
        &self,
        id: &str,
        position: u64,
        json: &str,
        title: &str,
        now: u64,
    ) -> Result<bool, RunError> {
        let insert =
            "INSERT INTO entry (conversation, position, json, writer) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING";
        let update = "UPDATE conversation SET changed = $2, title = CASE WHEN title = '' THEN $3 ELSE title END
             WHERE id = $1";
        // If the connection was cut, the entry may have been saved already.
        let saved = "SELECT COUNT(*) FROM entry
             WHERE conversation = $1 AND position = $2 AND json = $3 AND writer = $4";
        let entry = [
            SqlValue::Text(id),
            number(position),
            SqlValue::Text(json),
            SqlValue::Text(&self.writer),
        ];
        let change = [SqlValue::Text(id), number(now), SqlValue::Text(title)];
        self.tables.transaction(|sql| {
            sql.rows(insert, &entry)?;
            let is_saved = one(sql, saved, &entry)?.integer(0)? == 1;
            if is_saved {
                sql.rows(update, &change)?;
            }
            Ok(is_saved)
        })
    }

    fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
    ) -> Result<Result<i64, Spending>, RunError> {
        // Two programs that continue the conversation reserve one after the other.
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))";
        let insert = "INSERT INTO call (conversation, micro_usd, tokens) VALUES ($1, $2, $3) RETURNING number";
        let call = [
            SqlValue::Text(id),
            SqlValue::Integer(bounded(most.micro_usd)),
            SqlValue::Integer(bounded(most.tokens)),
        ];
        self.tables.transaction(|sql| {
            sql.rows(lock, &[SqlValue::Text(id)])?;
            let spent = spending(sql, id)?;
            match allows(cap, spent, most) {
                true => Ok(Ok(one(sql, insert, &call)?.integer(0)?)),
                false => Ok(Err(spent)),
            }
        })
    }

    fn settle(&self, call: i64, cost: Reservation) -> Result<(), RunError> {
        let update =
            "UPDATE call SET micro_usd = $2, tokens = $3, settled = TRUE WHERE number = $1";
        let values = [call, bounded(cost.micro_usd), bounded(cost.tokens)];
        self.rows(update, &values.map(SqlValue::Integer))?;
        Ok(())
    }

    fn release(&self, call: i64) -> Result<(), RunError> {
        let delete = "DELETE FROM call WHERE number = $1";
        self.rows(delete, &[SqlValue::Integer(call)])?;
        Ok(())
    }

    fn spending(&self, id: &str) -> Result<Spending, RunError> {
        self.tables.transaction(|sql| spending(sql, id))
    }
}

fn spending(sql: &mut SqlTransaction<'_>, id: &str) -> Result<Spending, RunError> {
    let sums =
        "SELECT COUNT(*), COUNT(*) FILTER (WHERE NOT settled), COALESCE(SUM(micro_usd), 0)::bigint,
                COALESCE(SUM(tokens), 0)::bigint FROM call WHERE conversation = $1";
    let row = one(sql, sums, &[SqlValue::Text(id)])?;
    Ok(Spending {
        calls: unsigned(row.integer(0)?),
        uncertain: unsigned(row.integer(1)?),
        micro_usd: unsigned(row.integer(2)?),
        tokens: unsigned(row.integer(3)?),
    })
}

/// The only row of a statement that always has one.
fn one(
    sql: &mut SqlTransaction<'_>,
    statement: &str,
    values: &[SqlValue<'_>],
) -> Result<SqlRow, RunError> {
    let row = sql.rows(statement, values)?.into_iter().next();
    row.ok_or_else(|| RunError::Internal(format!("PostgreSQL returned no row for {statement}")))
}

fn number(number: u64) -> SqlValue<'static> {
    SqlValue::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
