//! The run folder: frozen recipe, journal, content-addressed files, artifacts and report.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::replace::write_atomically;
use super::{ContentStore, Journal, Requests, RunError, artifact_names};

/// A run folder; this process has exclusive access while it is open.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    journal: Journal,
    store: ContentStore,
    requests: Requests,
    /// Holds the lock; the kernel releases it when the process ends.
    _lock: File,
}

impl RunFolder {
    /// Opens or creates the folder for writing. `recipe` is the resolved recipe as TOML, which is frozen into
    /// the folder.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another process uses the folder, or if it belongs to a different recipe; the
    /// text shows the differences.
    pub fn open(root: &Path, recipe: &str) -> Result<Self, RunError> {
        let at = |path: &Path| format!("run folder {}", path.display());
        fs::create_dir_all(root).map_err(RunError::io(at(root)))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(RunError::io(at(&lock_path)))?;
        match lock_within(&lock, LOCK_GRACE) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunError::Conflict(format!(
                    "run folder {} is in use by another process; wait for that process to end, or choose another run folder with --run NAME",
                    root.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(RunError::io(at(&lock_path))(error)),
        }
        freeze_recipe(root, recipe)?;
        let journal = root.join("journal.sqlite");
        check_not_lost(root, &journal)?;
        let journal = Journal::open(&journal)?;
        let store = ContentStore::open(&root.join("files"))?;
        Ok(Self {
            root: root.to_owned(),
            journal,
            store,
            requests: Requests::default(),
            _lock: lock,
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    pub fn store(&self) -> &ContentStore {
        &self.store
    }

    /// The requests of this process to models.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Writes an artifact or report atomically: a reader sees either the old or the new content.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.root.join(name);
        write_atomically(&path, bytes)?;
        Ok(path)
    }
}

/// Keys that affect how a run is executed, but not its results. They may differ from the frozen recipe, so
/// that a budget can be raised.
const MUTABLE_KEYS: [&str; 3] = ["budget.", "rollout.concurrency", "rollout.attempts"];

/// A killed run holds its lock until its last sandbox has ended, about one second later; a command that is
/// repeated immediately waits for it.
const LOCK_GRACE: Duration = Duration::from_secs(5);

/// Locks a file, blocking this thread for at most `grace`. A process that is ending, or that another thread
/// has just started, briefly holds a copy of the lock.
///
/// # Errors
/// [`TryLockError::WouldBlock`] if another process still holds the lock.
pub fn lock_within(lock: &File, grace: Duration) -> Result<(), TryLockError> {
    let since = Instant::now();
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if since.elapsed() < grace => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// A run without its journal would start over: with the whole budget, and with results that do not belong to its
/// artifacts.
fn check_not_lost(root: &Path, journal: &Path) -> Result<(), RunError> {
    let Some(artifact) = artifact_names::ALL
        .iter()
        .find(|name| root.join(name).exists())
    else {
        return Ok(());
    };
    if !Journal::is_blank(journal)? {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "{} is missing or empty, but the run has {artifact}; restore it from a backup together with its -wal file, or \
         start a new run with --run NAME; to start this one over and pay for its calls again, delete {}",
        journal.display(),
        root.display()
    )))
}

fn freeze_recipe(root: &Path, recipe: &str) -> Result<(), RunError> {
    let path = root.join("recipe.toml");
    let frozen = match fs::read_to_string(&path) {
        Ok(frozen) => frozen,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(RunError::io(path.display().to_string())(error)),
    };
    if frozen == recipe {
        return Ok(());
    }
    if !frozen.is_empty() {
        let difference = difference(&frozen, recipe);
        if !difference.is_empty() {
            return Err(RunError::Conflict(format!(
                "run folder {} was created with a different recipe:\n{difference}use the original recipe, or choose another run folder with --run NAME",
                root.display(),
            )));
        }
    }
    write_atomically(&path, recipe.as_bytes())
}

/// One line for each immutable key that differs: `  rollout.samples: 1 in the folder, 4 in this recipe`.
fn difference(frozen: &str, now: &str) -> String {
    let (frozen, now) = (flatten(frozen), flatten(now));
    let keys: BTreeSet<&String> = frozen.keys().chain(now.keys()).collect();
    let shown = |value: Option<&String>| value.map_or("not set", String::as_str).to_owned();
    keys.into_iter()
        .filter(|key| frozen.get(*key) != now.get(*key))
        .filter(|key| !MUTABLE_KEYS.iter().any(|prefix| key.starts_with(prefix)))
        .map(|key| {
            let (old, new) = (shown(frozen.get(key)), shown(now.get(key)));
            format!("  {key}: {old} in the folder, {new} in this recipe\n")
        })
        .collect()
}

/// Maps the dotted key of every leaf to its value. Text that cannot be parsed counts as one value.
fn flatten(recipe: &str) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    match toml::from_str::<toml::Value>(recipe) {
        Ok(value) => flatten_into(&value, String::new(), &mut flat),
        Err(_) => flat.extend([(
            "recipe".to_owned(),
            "a file that cannot be parsed".to_owned(),
        )]),
    }
    flat
}

fn flatten_into(value: &toml::Value, path: String, flat: &mut BTreeMap<String, String>) {
    let below = |key: &str| match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    };
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flatten_into(value, below(key), flat);
            }
        }
        toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
            for (index, value) in items.iter().enumerate() {
                flatten_into(value, below(&index.to_string()), flat);
            }
        }
        single => {
            flat.insert(path, single.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitCode;

    #[test]
    fn a_folder_in_use_is_a_conflict_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let first = RunFolder::open(root.path(), "a = 1").unwrap();
        let error = RunFolder::open(root.path(), "a = 1").unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        assert!(error.to_string().contains("--run NAME"), "{error}");
        drop(first);
        RunFolder::open(root.path(), "a = 1").unwrap();
    }

    #[test]
    fn a_different_recipe_is_a_conflict_that_shows_the_difference() {
        let root = tempfile::tempdir().unwrap();
        drop(RunFolder::open(root.path(), "seed = 1\n[rollout]\nsamples = 1\n").unwrap());
        let now = "seed = 1\nname = 'b'\n[rollout]\nsamples = 4\n";
        let error = RunFolder::open(root.path(), now).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        let text = error.to_string();
        assert!(
            text.contains("  rollout.samples: 1 in the folder, 4 in this recipe\n"),
            "{text}"
        );
        assert!(
            text.contains("  name: not set in the folder, \"b\" in this recipe\n"),
            "{text}"
        );
        assert!(!text.contains("seed"), "{text}");
    }

    #[test]
    fn a_run_without_its_journal_does_not_start_over() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "").unwrap();
        folder.write(artifact_names::TASKS, b"").unwrap();
        drop(folder);
        drop(RunFolder::open(root.path(), "").unwrap());
        let journal = root.path().join("journal.sqlite");
        fs::write(&journal, "").unwrap();
        for _ in 0..2 {
            let error = RunFolder::open(root.path(), "").unwrap_err();
            assert_eq!(error.exit_code(), crate::ExitCode::BadInput);
            let text = error.to_string();
            assert!(
                text.contains("is missing or empty, but the run has tasks.jsonl"),
                "{text}"
            );
            let _ = fs::remove_file(&journal);
        }
    }

    #[test]
    fn a_budget_can_be_raised() {
        let root = tempfile::tempdir().unwrap();
        drop(RunFolder::open(root.path(), "seed = 1\n[budget]\nusd = 1.0\n").unwrap());
        let raised = "seed = 1\n[budget]\nusd = 2.0\n";
        drop(RunFolder::open(root.path(), raised).unwrap());
        let frozen = fs::read_to_string(root.path().join("recipe.toml")).unwrap();
        assert_eq!(frozen, raised);
    }
}
