//! Conversations in SQLite, and the files that people put into them.
//!
//! An entry is on the disk when [`History::append`] returns (WAL, `synchronous = FULL`), and is shown only then.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pybench_run::{BudgetCap, ContentStore, Reservation, RunError};
use pybench_types::text::{count, dollars, line};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use crate::entry::Entry;
use crate::settings::Settings;

/// Folder of the history, relative to the project root.
pub const FOLDER: &str = "data/chat";
/// Version of the tables.
const VERSION: i64 = 1;
/// Time that a statement waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of digits of an id.
const ID_DIGITS: usize = 12;
/// Maximum length of a title, characters.
const MAX_TITLE: usize = 80;
/// Maximum number of conversations that are listed.
const MAX_LISTED: usize = 200;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS conversation (
    id TEXT PRIMARY KEY, changed INTEGER NOT NULL, title TEXT NOT NULL DEFAULT '', settings TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS entry (
    conversation TEXT NOT NULL, position INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (conversation, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS call (
    number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, micro_usd INTEGER NOT NULL, tokens INTEGER NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS call_of_conversation ON call (conversation);
";

/// All conversations of a project.
pub struct History {
    root: PathBuf,
    connection: Mutex<Connection>,
    store: ContentStore,
}

/// A conversation in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    /// The beginning of its first message.
    pub title: String,
    /// Time of the last change, seconds since 1970.
    pub changed: u64,
}

/// A conversation as it was saved.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    pub settings: Settings,
    /// All entries, those that were taken back included.
    pub entries: Vec<Entry>,
}

/// What the calls of a conversation cost. A call that did not end counts with its maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    pub calls: u64,
    /// Calls among them whose end is unknown.
    pub uncertain: u64,
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    pub tokens: u64,
}

/// A call that was reserved and not settled.
#[derive(Debug)]
pub struct ReservedCall(i64);

impl History {
    /// Opens or creates the history in a folder. Only this user can read it.
    ///
    /// # Errors
    /// [`RunError::Environment`] if it cannot be written, or a newer version of pybench made it.
    pub fn open(root: &Path) -> Result<Self, RunError> {
        let wrap = || RunError::io(root.display().to_string());
        let mut folder = DirBuilder::new();
        let folder = folder.recursive(true).mode(0o700);
        folder.create(root).map_err(wrap())?;
        let path = root.join("history.sqlite");
        let mut private = OpenOptions::new();
        let private = private.create(true).append(true).mode(0o600);
        private.open(&path).map_err(wrap())?;
        let failed = |error: rusqlite::Error| failed(root, &error);
        let connection = Connection::open(&path).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        let version = prepare(&connection).map_err(failed)?;
        if version > VERSION {
            return Err(RunError::Environment(format!(
                "{} was written by a newer version of pybench; install that version, or name another folder with --history",
                path.display()
            )));
        }
        Ok(Self {
            store: ContentStore::open(&root.join("files"))?,
            root: root.to_owned(),
            connection: Mutex::new(connection),
        })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The files that people put into conversations.
    pub fn store(&self) -> &ContentStore {
        &self.store
    }

    /// Begins the conversation `id`; nothing happens if it has begun.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn begin(&self, id: &str, settings: &Settings) -> Result<(), RunError> {
        let settings = serde_json::to_string(settings)?;
        let insert =
            "INSERT OR IGNORE INTO conversation (id, changed, settings) VALUES (?1, ?2, ?3)";
        self.with(|connection| connection.execute(insert, params![id, now(), settings]))?;
        Ok(())
    }

    /// The conversations, the last one first.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, RunError> {
        self.with(|connection| {
            let mut statement = connection.prepare(&format!(
                "SELECT id, title, changed / 1000 FROM conversation
                 ORDER BY changed DESC, rowid DESC LIMIT {MAX_LISTED}"
            ))?;
            let rows = statement.query_map([], |row| {
                Ok(Listed {
                    id: row.get(0)?,
                    title: row.get(1)?,
                    changed: row.get(2)?,
                })
            })?;
            rows.collect()
        })
    }

    /// The id of the conversation that begins with these digits; `None` for the last one.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none, or more than one.
    pub fn find(&self, digits: Option<&str>) -> Result<String, RunError> {
        let Some(digits) = digits else {
            let last = self.list()?.into_iter().next();
            return last.map(|last| last.id).ok_or_else(|| {
                let text = format!("there is no conversation in {}", self.root.display());
                RunError::BadInput(text)
            });
        };
        let found = self.with(|connection| {
            let select = "SELECT id FROM conversation WHERE substr(id, 1, length(?1)) = ?1 LIMIT 2";
            let mut statement = connection.prepare(select)?;
            let rows = statement.query_map([digits], |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        match &found[..] {
            [id] => Ok(id.clone()),
            [] => Err(RunError::BadInput(format!(
                "there is no conversation `{}` in {}; `pybench chat --list` lists them",
                line(digits),
                self.root.display()
            ))),
            _ => Err(RunError::BadInput(format!(
                "several conversations begin with `{}`; give more digits",
                line(digits)
            ))),
        }
    }

    /// Reads a conversation.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none, or it cannot be parsed.
    pub fn read(&self, id: &str) -> Result<Saved, RunError> {
        let read = self.with(|connection| {
            let settings = "SELECT settings FROM conversation WHERE id = ?1";
            let settings: Option<String> = connection
                .query_row(settings, [id], |row| row.get(0))
                .optional()?;
            let select = "SELECT json FROM entry WHERE conversation = ?1 ORDER BY position";
            let mut statement = connection.prepare(select)?;
            let rows = statement.query_map([id], |row| row.get::<_, String>(0))?;
            let entries = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(settings.map(|settings| (settings, entries)))
        })?;
        let (settings, entries) = read.ok_or_else(|| {
            RunError::BadInput(format!("there is no conversation `{}`", line(id)))
        })?;
        let damaged = |error: serde_json::Error| {
            RunError::BadInput(format!(
                "the conversation `{id}` in {} cannot be parsed: {error}; it may be of another version of pybench",
                self.root.display()
            ))
        };
        let entries = entries.iter().map(|json| serde_json::from_str(json));
        Ok(Saved {
            settings: serde_json::from_str(&settings).map_err(damaged)?,
            entries: entries.collect::<Result<_, _>>().map_err(damaged)?,
        })
    }

    /// Saves the entry at `position`, from 0. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another process has saved an entry there.
    pub fn append(&self, id: &str, position: u64, entry: &Entry) -> Result<(), RunError> {
        let json = serde_json::to_string(entry)?;
        let saved = self.transaction(|connection| {
            let insert = "INSERT INTO entry VALUES (?1, ?2, ?3)";
            if let Err(error) = connection.execute(insert, params![id, position, json]) {
                return match error.sqlite_error_code() {
                    Some(ErrorCode::ConstraintViolation) => Ok(false),
                    _ => Err(error),
                };
            }
            let changed = "UPDATE conversation SET changed = ?2 WHERE id = ?1";
            connection.execute(changed, params![id, now()])?;
            if let Entry::Message { text } = entry {
                let title: String = line(text.trim()).chars().take(MAX_TITLE).collect();
                let set = "UPDATE conversation SET title = ?2 WHERE id = ?1 AND title = ''";
                connection.execute(set, params![id, title])?;
            }
            Ok(true)
        })?;
        match saved {
            true => Ok(()),
            false => Err(RunError::Conflict(format!(
                "the conversation `{id}` was continued elsewhere, and this is not saved; end this chat and start it again \
                 with `--resume {id}`"
            ))),
        }
    }

    /// Reserves the maximum cost of a call, so that the limits hold even if the process is killed before the call ends.
    ///
    /// # Errors
    /// [`RunError::Budget`] if the limits do not allow it.
    pub fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
    ) -> Result<ReservedCall, RunError> {
        let reserved = self.transaction(|connection| {
            let spent = spending(connection, id)?;
            let exceeds = |spent: u64, more: u64, cap: Option<u64>| {
                cap.is_some_and(|cap| spent.saturating_add(more) > cap)
            };
            if exceeds(spent.micro_usd, most.micro_usd, cap.micro_usd)
                || exceeds(spent.tokens, most.tokens, cap.tokens)
            {
                return Ok(Err(spent));
            }
            connection.execute(
                "INSERT INTO call (conversation, micro_usd, tokens) VALUES (?1, ?2, ?3)",
                params![id, bounded(most.micro_usd), bounded(most.tokens)],
            )?;
            Ok(Ok(ReservedCall(connection.last_insert_rowid())))
        })?;
        reserved.map_err(|spent| over_budget(spent, most, cap))
    }

    /// Records what a call cost.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn settle(&self, call: &ReservedCall, cost: Reservation) -> Result<(), RunError> {
        let update = "UPDATE call SET micro_usd = ?2, tokens = ?3, settled = 1 WHERE number = ?1";
        let (micro_usd, tokens) = (bounded(cost.micro_usd), bounded(cost.tokens));
        self.with(|connection| connection.execute(update, params![call.0, micro_usd, tokens]))?;
        Ok(())
    }

    /// Forgets a call that certainly cost nothing.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn release(&self, call: &ReservedCall) -> Result<(), RunError> {
        let delete = "DELETE FROM call WHERE number = ?1";
        self.with(|connection| connection.execute(delete, [call.0]))?;
        Ok(())
    }

    /// What the calls of a conversation cost.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn spending(&self, id: &str) -> Result<Spending, RunError> {
        self.with(|connection| spending(connection, id))
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RunError> {
        work(&self.lock()).map_err(|error| failed(&self.root, &error))
    }

    fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RunError> {
        let mut connection = self.lock();
        let behavior = TransactionBehavior::Immediate;
        let done = connection
            .transaction_with_behavior(behavior)
            .and_then(|transaction| {
                let done = work(&transaction)?;
                transaction.commit()?;
                Ok(done)
            });
        done.map_err(|error| failed(&self.root, &error))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the tables, and returns their version.
fn prepare(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version > VERSION {
        return Ok(version);
    }
    connection.execute_batch(TABLES)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    Ok(VERSION)
}

fn spending(connection: &Connection, id: &str) -> rusqlite::Result<Spending> {
    let sums = "SELECT count(*), coalesce(sum(settled = 0), 0), coalesce(sum(micro_usd), 0), coalesce(sum(tokens), 0)
                FROM call WHERE conversation = ?1";
    connection.query_row(sums, [id], |row| {
        Ok(Spending {
            calls: row.get(0)?,
            uncertain: row.get(1)?,
            micro_usd: row.get(2)?,
            tokens: row.get(3)?,
        })
    })
}

/// Sums of amounts below this fit SQLite's integers.
fn bounded(amount: u64) -> u64 {
    amount.min(1 << 40)
}

fn over_budget(spent: Spending, most: Reservation, cap: BudgetCap) -> RunError {
    let limits = [
        cap.tokens.map(|most| format!("{} tokens", count(most))),
        cap.micro_usd.map(dollars),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    RunError::Budget(format!(
        "the conversation may cost {}, of which {} tokens and {} are spent, and another reply may need {} tokens and {}. Begin \
         a conversation with larger --tokens or --usd",
        limits.join(" and "),
        count(spent.tokens),
        dollars(spent.micro_usd),
        count(most.tokens),
        dollars(most.micro_usd),
    ))
}

fn failed(root: &Path, error: &rusqlite::Error) -> RunError {
    RunError::Environment(format!(
        "cannot use the history of conversations in {}: {error}; check that its disk is writable and has space, or name \
         another folder with --history",
        root.display()
    ))
}

/// The id of a new conversation.
pub fn new_id() -> String {
    let random: [u8; 8] = rand::random();
    let digits = format!("{:016x}", u64::from_be_bytes(random));
    digits[..ID_DIGITS].to_owned()
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_eval::run::AgentChoice;

    fn settings() -> Settings {
        Settings {
            label: "m".to_owned(),
            agent: AgentChoice::Human {},
            rollout: Default::default(),
            interpreter: Default::default(),
            budget: Default::default(),
            task: None,
        }
    }

    fn begin(history: &History) -> String {
        let id = new_id();
        history.begin(&id, &settings()).unwrap();
        id
    }

    fn message(text: &str) -> Entry {
        Entry::Message {
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_is_saved_is_there_for_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path()).unwrap();
        let id = begin(&history);
        history
            .append(&id, 0, &message("First\u{1b}[31m\nline"))
            .unwrap();
        history.append(&id, 1, &Entry::Rewind { keep: 0 }).unwrap();
        history.append(&id, 2, &message("Second")).unwrap();
        let other = History::open(folder.path()).unwrap();
        let saved = other.read(&id).unwrap();
        assert_eq!((saved.settings, saved.entries.len()), (settings(), 3));
        let listed = other.list().unwrap();
        assert_eq!((&listed[0].id, &*listed[0].title), (&id, "First␛[31m line"));
        // What both continue is saved once.
        let error = other.append(&id, 2, &message("Third")).unwrap_err();
        assert!(matches!(error, RunError::Conflict(_)), "{error}");
        assert!(error.to_string().contains(&id));
        assert_eq!(history.read(&id).unwrap().entries[2], message("Second"));
    }

    #[test]
    fn conversations_are_found_by_their_first_digits() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path()).unwrap();
        assert!(matches!(history.find(None), Err(RunError::BadInput(_))));
        let first = begin(&history);
        let second = begin(&history);
        history.append(&second, 0, &message("a")).unwrap();
        assert_eq!(history.find(Some(&first)).unwrap(), first);
        assert_eq!(history.find(Some(&second[..11])).unwrap(), second);
        for digits in ["", "x", "%"] {
            let error = history.find(Some(digits)).unwrap_err();
            assert!(matches!(error, RunError::BadInput(_)), "{digits:?}");
        }
        assert!(matches!(history.read("x"), Err(RunError::BadInput(_))));
    }

    #[test]
    fn files_of_a_newer_version_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        drop(History::open(folder.path()).unwrap());
        let path = folder.path().join("history.sqlite");
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let error = History::open(folder.path()).err().unwrap();
        assert!(error.to_string().contains("newer version"), "{error}");
    }

    #[test]
    fn limits_hold_for_calls_that_did_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path()).unwrap();
        let id = begin(&history);
        let of = |tokens| Reservation {
            micro_usd: 10 * tokens,
            tokens,
        };
        let cap = BudgetCap {
            micro_usd: None,
            tokens: Some(100),
        };
        let call = history.reserve(&id, of(60), cap).unwrap();
        let error = history.reserve(&id, of(60), cap).unwrap_err();
        assert!(matches!(error, RunError::Budget(_)), "{error}");
        history.settle(&call, of(20)).unwrap();
        let lost = history.reserve(&id, of(60), cap).unwrap();
        let spent = history.spending(&id).unwrap();
        assert_eq!((spent.calls, spent.uncertain), (2, 1));
        assert_eq!((spent.tokens, spent.micro_usd), (80, 800));
        history.release(&lost).unwrap();
        history.reserve(&id, of(80), cap).unwrap();
        let dollars = BudgetCap {
            micro_usd: Some(1_000),
            tokens: None,
        };
        assert!(history.reserve(&id, of(1), dollars).is_err());
    }
}
