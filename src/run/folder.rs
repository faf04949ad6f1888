//! The run folder: frozen recipe, journal, content-addressed files, artefacts, report.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Journal, RunError};
use crate::id::Digest;

/// A run's folder, held by this process alone while open.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    journal: Journal,
    store: ContentStore,
    /// Held for its lock; released when the process ends, however it ends.
    _lock: File,
}

impl RunFolder {
    /// Open (or make) the folder for writing. Fails with [`RunError::Conflict`] when another
    /// process holds it or when it was made by another recipe; the text shows the difference.
    /// `recipe` is the resolved recipe as TOML, which is frozen into the folder.
    pub fn open(root: &Path, recipe: &str) -> Result<Self, RunError> {
        let at = |path: &Path| format!("run folder {}", path.display());
        fs::create_dir_all(root).map_err(RunError::io(at(root)))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(RunError::io(at(&lock_path)))?;
        match lock_within(&lock, GRACE) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunError::Conflict(format!(
                    "run folder {} is in use by another process; wait for it or choose another with --run NAME",
                    root.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(RunError::io(at(&lock_path))(error)),
        }
        freeze_recipe(root, recipe)?;
        let journal = Journal::open(&root.join("journal.sqlite"))?;
        let store = ContentStore::open(&root.join("files"))?;
        Ok(Self {
            root: root.to_owned(),
            journal,
            store,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Content-addressed files.
    pub fn store(&self) -> &ContentStore {
        &self.store
    }

    /// Write an artefact (or report) whole: a reader sees the old one or the new one.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.root.join(name);
        write_atomically(&path, bytes)?;
        Ok(path)
    }
}

/// Keys that change how a run goes on, not what it makes: they may differ from the frozen recipe,
/// so that a used-up budget can be raised.
const FREE_KEYS: [&str; 3] = ["budget.", "rollout.concurrency", "rollout.attempts"];

/// A run that was killed holds its lock until the last of its sandboxes is gone, about a second
/// later: whoever repeats the command at once should not have to know that.
const GRACE: Duration = Duration::from_secs(5);

/// Take a file's lock, waiting for it at most that long on this thread. A process that ends, or that another
/// thread has just started, holds a copy of it for a moment.
///
/// # Errors
/// [`TryLockError::WouldBlock`] where others hold it still.
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
                "run folder {} was made by another recipe:\n{difference}use that recipe, or choose another folder with --run NAME",
                root.display(),
            )));
        }
    }
    write_atomically(&path, recipe.as_bytes())
}

/// One line for each key that differs and is not free: `  rollout.samples: 1 there, 4 now`.
fn difference(frozen: &str, now: &str) -> String {
    let (frozen, now) = (flatten(frozen), flatten(now));
    let keys: BTreeSet<&String> = frozen.keys().chain(now.keys()).collect();
    let shown = |value: Option<&String>| value.map_or("nothing", String::as_str).to_owned();
    keys.into_iter()
        .filter(|key| frozen.get(*key) != now.get(*key))
        .filter(|key| !FREE_KEYS.iter().any(|free| key.starts_with(free)))
        .map(|key| {
            let (there, now) = (shown(frozen.get(key)), shown(now.get(key)));
            format!("  {key}: {there} there, {now} now\n")
        })
        .collect()
}

/// Dotted key → value of every single value. Text that does not parse is one value.
fn flatten(recipe: &str) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    match toml::from_str::<toml::Value>(recipe) {
        Ok(value) => flatten_into(&value, String::new(), &mut flat),
        Err(_) => flat.extend([("recipe".to_owned(), "a file that does not parse".to_owned())]),
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

/// Write through a temporary file and a rename.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(wrap())?;
    // As an ordinary file, by the umask: a sandbox of another user reads inputs from here.
    let mut file = tempfile::Builder::new()
        .prefix(".tmp-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(wrap())?;
    file.write_all(bytes).map_err(wrap())?;
    file.as_file().sync_all().map_err(wrap())?;
    file.persist(path).map_err(|error| wrap()(error.error))?;
    Ok(())
}

/// Files by the digest of their bytes, under `<root>/<first two digits>/<digest>`.
#[derive(Clone, Debug)]
pub struct ContentStore {
    root: PathBuf,
}

impl ContentStore {
    /// Open (or make) a store.
    pub fn open(root: &Path) -> Result<Self, RunError> {
        fs::create_dir_all(root).map_err(RunError::io(root.display().to_string()))?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Where the bytes of that digest lie, whether they are there or not.
    pub fn path(&self, id: &Digest) -> PathBuf {
        self.root.join(&id.as_str()[..2]).join(id.as_str())
    }

    /// Store bytes; the same bytes again cost nothing.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, RunError> {
        let id = Digest::of_bytes(bytes);
        let path = self.path(&id);
        if !path.exists() {
            write_atomically(&path, bytes)?;
        }
        Ok(id)
    }

    /// The bytes of that digest.
    pub fn get(&self, id: &Digest) -> Result<Vec<u8>, RunError> {
        let path = self.path(id);
        fs::read(&path).map_err(RunError::io(path.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::ExitCode;

    #[test]
    fn a_folder_in_use_is_refused_and_freed_by_dropping() {
        let root = tempfile::tempdir().unwrap();
        let first = RunFolder::open(root.path(), "a = 1").unwrap();
        let error = RunFolder::open(root.path(), "a = 1").unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        assert!(error.to_string().contains("--run NAME"), "{error}");
        drop(first);
        RunFolder::open(root.path(), "a = 1").unwrap();
    }

    #[test]
    fn another_recipe_is_refused_with_the_difference() {
        let root = tempfile::tempdir().unwrap();
        drop(RunFolder::open(root.path(), "seed = 1\n[rollout]\nsamples = 1\n").unwrap());
        let now = "seed = 1\nname = 'b'\n[rollout]\nsamples = 4\n";
        let error = RunFolder::open(root.path(), now).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        let text = error.to_string();
        assert!(
            text.contains("  rollout.samples: 1 there, 4 now\n"),
            "{text}"
        );
        assert!(
            text.contains("  name: nothing there, \"b\" now\n"),
            "{text}"
        );
        assert!(!text.contains("seed"), "{text}");
    }

    #[test]
    fn a_budget_may_be_raised() {
        let root = tempfile::tempdir().unwrap();
        drop(RunFolder::open(root.path(), "seed = 1\n[budget]\nusd = 1.0\n").unwrap());
        let raised = "seed = 1\n[budget]\nusd = 2.0\n";
        drop(RunFolder::open(root.path(), raised).unwrap());
        let frozen = fs::read_to_string(root.path().join("recipe.toml")).unwrap();
        assert_eq!(frozen, raised);
    }

    #[test]
    fn files_are_stored_by_content_and_readable_by_others() {
        let root = tempfile::tempdir().unwrap();
        let store = ContentStore::open(root.path()).unwrap();
        let id = store.put(b"abc").unwrap();
        assert_eq!(store.put(b"abc").unwrap(), id);
        assert_eq!(store.get(&id).unwrap(), b"abc");
        let plain = root.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&store.path(&id)), mode(&plain));
        assert!(store.get(&Digest::of_bytes(b"other")).is_err());
    }
}
