//! Conversations in a database, and the files that people put into them.
//!
//! An entry is on the disk when [`History::append`] returns, and is shown only then.

mod backend;
#[cfg(test)]
mod conformance;
mod postgres;
mod sqlite;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pybench_run::{BucketStore, BudgetCap, ContentStore, Profile, Reservation, RunError, Store};
use pybench_types::text::{count, dollars, line};

use self::backend::Backend;
use self::postgres::PostgresHistory;
use self::sqlite::SqliteHistory;
use crate::entry::Entry;
use crate::settings::Settings;

/// Folder of the history, relative to the project root.
pub const FOLDER: &str = "data/chat";
/// Number of digits of an id.
const ID_DIGITS: usize = 12;
/// Maximum length of a title, characters.
const MAX_TITLE: usize = 80;
/// Maximum number of conversations that are listed.
const MAX_LISTED: usize = 200;
/// Schema of the conversations in PostgreSQL, and name of their files in the store of a profile.
const SCHEMA: &str = "pybench_chat";

/// All conversations of a project.
pub struct History {
    /// Where it is, for people.
    place: String,
    root: PathBuf,
    backend: Box<dyn Backend>,
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
    /// Opens the history in the database of the profile at this path, or else in the folder.
    ///
    /// # Errors
    /// The profile is wrong; as [`History::open`] and [`History::open_shared`].
    pub fn at(root: &Path, profile: Option<&Path>) -> Result<Self, RunError> {
        match profile {
            Some(profile) => Self::open_shared(root, &Profile::load(profile)?),
            None => Self::open(root),
        }
    }

    /// Opens or creates the history in a folder. Only this user can read it.
    ///
    /// # Errors
    /// [`RunError::Environment`] if it cannot be written, or a newer version of pybench made it.
    pub fn open(root: &Path) -> Result<Self, RunError> {
        let backend = SqliteHistory::open(root)?;
        Ok(Self {
            place: root.display().to_string(),
            root: root.to_owned(),
            backend: Box::new(backend),
            store: ContentStore::open(&root.join("files"))?,
        })
    }

    /// Opens or creates the history in the database of a profile. Files are in the bucket of the profile, and in a folder,
    /// which has them alone if there is no bucket.
    ///
    /// # Errors
    /// The database does not answer or refuses the user; the folder cannot be written.
    pub fn open_shared(root: &Path, profile: &Profile) -> Result<Self, RunError> {
        make_private(root)?;
        let server = &profile.postgres;
        let remote = profile.store.as_ref();
        let remote = remote
            .map(|bucket| BucketStore::new(bucket, SCHEMA))
            .transpose()?;
        let remote = remote.map(|store| Arc::new(store) as Arc<dyn Store>);
        Ok(Self {
            place: format!("PostgreSQL on {}:{}", server.host, server.port),
            root: root.to_owned(),
            backend: Box::new(PostgresHistory::open(server, SCHEMA)?),
            store: ContentStore::open(&root.join("files"))?.with_remote(remote),
        })
    }

    /// The folder of files and pictures.
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
        self.backend.begin(id, &settings, now())
    }

    /// The conversations, the last one first.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, RunError> {
        self.backend.list(MAX_LISTED)
    }

    /// The id of the conversation that begins with these digits; `None` for the last one.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none, or more than one.
    pub fn find(&self, digits: Option<&str>) -> Result<String, RunError> {
        let Some(digits) = digits else {
            let last = self.list()?.into_iter().next();
            return last.map(|last| last.id).ok_or_else(|| {
                let text = format!("there is no conversation in {}", self.place);
                RunError::BadInput(text)
            });
        };
        match &self.backend.starting_with(digits)?[..] {
            [id] => Ok(id.clone()),
            [] => Err(RunError::BadInput(format!(
                "there is no conversation `{}` in {}; `pybench chat --list` lists them",
                line(digits),
                self.place
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
        let (settings, entries) = self.backend.read(id)?.ok_or_else(|| {
            RunError::BadInput(format!("there is no conversation `{}`", line(id)))
        })?;
        let damaged = |error: serde_json::Error| {
            RunError::BadInput(format!(
                "the conversation `{id}` in {} cannot be parsed: {error}; it may be of another version of pybench",
                self.place
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
        let title: String = match entry {
            Entry::Message { text } => line(text.trim()).chars().take(MAX_TITLE).collect(),
            _ => String::new(),
        };
        match self.backend.append(id, position, &json, &title, now())? {
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
        let reserved = self.backend.reserve(id, most, cap)?;
        let number = reserved.map_err(|spent| over_budget(spent, most, cap))?;
        Ok(ReservedCall(number))
    }

    /// Records what a call cost.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn settle(&self, call: &ReservedCall, cost: Reservation) -> Result<(), RunError> {
        self.backend.settle(call.0, cost)
    }

    /// Forgets a call that certainly cost nothing.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn release(&self, call: &ReservedCall) -> Result<(), RunError> {
        self.backend.release(call.0)
    }

    /// What the calls of a conversation cost.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn spending(&self, id: &str) -> Result<Spending, RunError> {
        self.backend.spending(id)
    }
}

/// Makes the folder of a history, which only this user can read.
///
/// # Errors
/// It cannot be made.
pub fn make_private(root: &Path) -> Result<(), RunError> {
    let mut folder = DirBuilder::new();
    let folder = folder.recursive(true).mode(0o700);
    folder
        .create(root)
        .map_err(RunError::io(root.display().to_string()))
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
