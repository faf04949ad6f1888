//! Makes the index of a source: a row for each trajectory, its words, and the values that filters offer. One thread reads and
//! prepares, another one writes. What is written can be read by other connections after each transaction.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use pybench_run::RunError;
use pybench_show::TrajectorySource;
use rusqlite::{Connection, ToSql, ffi};

use super::facets::{self, FacetCounts};
use super::failed;
use super::growth::Growth;
use super::prepare::{PreparedRow, PreparedTurns, send_all};
use super::schema::{COLUMNS, FACETS, TABLES, VERSION, list};

/// Time from the start until the first rows can be read, and between transactions after that.
const FIRST: Duration = Duration::from_millis(200);
const PERIOD: Duration = Duration::from_secs(1);
/// A transaction has at most about this many bytes, since it is in memory until it ends.
const MAX_TRANSACTION: usize = 64 << 20;
/// How long a transaction waits for those that read.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The journal is in memory: a file that a kill leaves is not used again. Pages are written at the ends of transactions only,
/// so that those that read wait only then. Words are collected in memory (bytes), which leaves fewer parts to merge.
const SETTINGS: &str = "
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
PRAGMA cache_spill = OFF;
PRAGMA cache_size = -65536;
";
const COLLECT_WORDS: &str = "INSERT INTO words (words, rank) VALUES ('hashsize', 16777216);";

/// A new index without rows, which can be read already.
///
/// # Errors
/// The file cannot be written.
pub(super) fn create(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.execute_batch(SETTINGS)?;
    connection.execute_batch("BEGIN")?;
    connection.execute_batch(TABLES)?;
    connection.execute_batch(COLLECT_WORDS)?;
    connection.execute("INSERT INTO facet VALUES ('[]')", [])?;
    facets::save(&connection, &FacetCounts::default().facets())?;
    connection.execute_batch("COMMIT")?;
    Ok(connection)
}

/// Writes the index of `source`, and renames it from `unfinished` to `path`.
///
/// # Errors
/// The source cannot be read; the file cannot be written; the index is no longer needed.
pub(super) fn write(
    connection: Connection,
    source: &TrajectorySource,
    growth: &Growth,
    unfinished: &Path,
    path: &Path,
) -> Result<(), RunError> {
    let wrong = |error: rusqlite::Error| failed(path, &error);
    // One batch is made while another one is written.
    let (sender, receiver) = sync_channel(1);
    let (written, read) = thread::scope(|scope| {
        let reader = scope.spawn(move || send_all(source, sender));
        let mut writer = Writer::new(&connection, growth);
        let written = writer.write_all(receiver);
        (written, reader.join())
    });
    written.map_err(wrong)?;
    let crashed = |_| RunError::Internal("the thread that reads the source failed".to_owned());
    read.map_err(crashed)??;
    finish(&connection, growth).map_err(wrong)?;
    connection.close().map_err(|(_, error)| wrong(error))?;
    std::fs::rename(unfinished, path).map_err(RunError::io(path.display().to_string()))
}

/// Writes rows in transactions.
struct Writer<'a> {
    connection: &'a Connection,
    growth: &'a Growth,
    insert_row: String,
    facets: FacetCounts,
    /// Number of rows, and of turns that are rows of their own.
    rows: u64,
    turns: u64,
    /// Rows and bytes since the last transaction.
    new_rows: u64,
    new_bytes: usize,
    since: Instant,
    period: Duration,
}

impl<'a> Writer<'a> {
    fn new(connection: &'a Connection, growth: &'a Growth) -> Self {
        let places = vec!["?"; COLUMNS.len()].join(", ");
        Self {
            connection,
            growth,
            insert_row: format!("INSERT INTO row VALUES ({places})"),
            facets: FacetCounts::default(),
            rows: 0,
            turns: 0,
            new_rows: 0,
            new_bytes: 0,
            since: Instant::now(),
            period: FIRST,
        }
    }

    /// Writes what is received until nothing more is sent.
    fn write_all(&mut self, receiver: Receiver<Vec<PreparedRow>>) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN")?;
        loop {
            match receiver.recv_timeout(self.pause()) {
                Ok(batch) => self.write(&batch)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.commit(),
            }
            check_is_wanted(self.growth)?;
            let is_due = self.since.elapsed() >= self.period || self.new_bytes >= MAX_TRANSACTION;
            if self.new_rows > 0 && is_due {
                self.commit()?;
                self.connection.execute_batch("BEGIN")?;
            }
        }
    }

    /// How long to wait for more rows.
    fn pause(&self) -> Duration {
        match self.new_rows {
            0 => PERIOD,
            _ => self.period.saturating_sub(self.since.elapsed()),
        }
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        facets::save(self.connection, &self.facets.facets())?;
        self.connection.execute_batch("COMMIT")?;
        self.growth.reached(self.rows);
        (self.new_rows, self.new_bytes) = (0, 0);
        (self.since, self.period) = (Instant::now(), PERIOD);
        Ok(())
    }

    fn write(&mut self, batch: &[PreparedRow]) -> rusqlite::Result<()> {
        for row in batch {
            self.insert(row)?;
            self.facets.add(&row.row);
            self.rows += 1;
            self.new_rows += 1;
            self.new_bytes += row.size();
        }
        Ok(())
    }

    fn insert(&mut self, prepared: &PreparedRow) -> rusqlite::Result<()> {
        let row = &prepared.row;
        let [number, turns, tokens] = [row.number, row.turns, row.tokens].map(integer);
        let micro_usd = row.micro_usd.map(integer);
        let (kinds, failed_checks) = (list(&row.kinds), list(&row.failed_checks));
        let values: [&dyn ToSql; COLUMNS.len()] = [
            &number,
            &row.id,
            &row.task,
            &row.category,
            &row.keyword,
            &row.origin,
            &kinds,
            &row.language,
            &row.teacher,
            &row.format,
            &row.verdict,
            &row.rejected_by,
            &failed_checks,
            &row.upstream,
            &row.fixed,
            &row.strict,
            &row.end,
            &row.error,
            &turns,
            &tokens,
            &micro_usd,
            &row.query,
        ];
        let mut insert = self.connection.prepare_cached(&self.insert_row)?;
        insert.execute(&values[..])?;
        let insert = "INSERT INTO record VALUES (?1, ?2)";
        let mut insert = self.connection.prepare_cached(insert)?;
        insert.execute((number, &prepared.json))?;
        let insert = "INSERT INTO words (rowid, user, assistant, tool) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = self.connection.prepare_cached(insert)?;
        let [user, assistant, tool] = &prepared.words;
        insert.execute((number, user, assistant, tool))?;
        match &prepared.turns {
            Some(long) => self.insert_turns(number, long),
            None => Ok(()),
        }
    }

    fn insert_turns(&mut self, number: i64, long: &PreparedTurns) -> rusqlite::Result<()> {
        let first = self.turns + 1;
        let insert = "INSERT INTO turn VALUES (?1, ?2)";
        let mut insert = self.connection.prepare_cached(insert)?;
        for turn in &long.turns {
            self.turns += 1;
            insert.execute((self.turns, turn))?;
        }
        let insert = "INSERT INTO head VALUES (?1, ?2, ?3, ?4)";
        let mut insert = self.connection.prepare_cached(insert)?;
        insert.execute((number, first, long.turns.len() as u64, &long.head))?;
        Ok(())
    }
}

/// A number as SQLite has it.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// # Errors
/// The index is no longer needed.
fn check_is_wanted(growth: &Growth) -> rusqlite::Result<()> {
    match growth.is_unwanted() {
        false => Ok(()),
        true => {
            let interrupted = ffi::Error::new(ffi::SQLITE_INTERRUPT);
            Err(rusqlite::Error::SqliteFailure(interrupted, None))
        }
    }
}

/// Adds what makes a large index fast. Each part is a transaction of its own, so that it is not in memory as a whole.
fn finish(connection: &Connection, growth: &Growth) -> rusqlite::Result<()> {
    for column in FACETS
        .into_iter()
        .chain(["id", "task", "turns", "tokens", "micro_usd"])
    {
        check_is_wanted(growth)?;
        connection.execute_batch(&format!("CREATE INDEX row_{column} ON row (\"{column}\")"))?;
    }
    facets::save(connection, &facets::read_all(connection)?)?;
    connection.pragma_update(None, "user_version", VERSION)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pybench_types::trajectory::{Message, Role};

    use super::*;
    use crate::index::open;
    use crate::prices::Prices;
    use crate::record::Record;

    fn row(number: u64) -> PreparedRow {
        let record = Record::Dataset {
            location: String::new(),
            format: "tools".to_owned(),
            metadata: BTreeMap::new(),
            kinds: Vec::new(),
            files: Vec::new(),
            tokens: 0,
            messages: vec![Message::new(Role::User, "Count.")],
        };
        PreparedRow::new(number, record, &Prices::Unknown).unwrap()
    }

    #[test]
    fn rows_are_read_while_more_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.part");
        let (connection, growth) = (create(&path).unwrap(), Growth::new());
        let reader = open(&path).unwrap();
        let count = || {
            let found = "SELECT count(*) FROM words WHERE words MATCH 'count'";
            reader.query_row(found, [], |row| row.get::<_, u64>(0))
        };
        assert_eq!(count(), Ok(0));
        let (sender, receiver) = sync_channel(1);
        thread::scope(|scope| {
            let growth = &growth;
            let written = scope.spawn(move || Writer::new(&connection, growth).write_all(receiver));
            sender.send(vec![row(1), row(2)]).unwrap();
            // The writer waits for more, in a transaction that is open.
            while growth.progress().is_none_or(|progress| progress.rows < 2) {
                assert!(!written.is_finished());
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(count(), Ok(2));
            sender.send(vec![row(3)]).unwrap();
            drop(sender);
            written.join().unwrap().unwrap();
        });
        assert_eq!(count(), Ok(3));
    }
}
