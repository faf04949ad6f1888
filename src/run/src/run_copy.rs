//! A copy of a run in its bucket, made when the run ends, and before if `--runs-dir` names the bucket: what `status`, `show`,
//! `verify`, `publish` and others read where neither the run folder nor the server of its journal is within reach.
//!
//! `s3://BUCKET/PREFIX/NAME` holds files by digest, and a list of them for each time that the run has ended. Nothing is
//! replaced; the last list counts. Copies of a run that has not ended are marked, and deleted when later ones are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use pybench_interpreter::default_cache_dir;
use pybench_types::id::Digest;
use serde::{Deserialize, Serialize};

use crate::artifact_names::{
    BLOBS, BUCKET, BUCKET_CLAIM, CALLS, COPIES, INCOMING, JOURNAL, MOVE, POINTER,
};
use crate::journal::JournalPlace;
use crate::store::{BucketPath, ExpectedFile, Store, end_uploads};
use crate::{Journal, NewFolder, RunError, RunFolder};

/// Between number and digest in the name of the list of a run that has not ended.
const UNFINISHED: &str = "unfinished-";

/// Files of a run folder that belong to its processes; the journal is copied by itself.
const NOT_COPIED: [&str; 9] = [
    "lock",
    JOURNAL,
    "journal.sqlite-wal",
    "journal.sqlite-shm",
    CALLS,
    POINTER,
    MOVE,
    BUCKET,
    BUCKET_CLAIM,
];

/// Folder of content-addressed files, which are in the bucket already.
const FILES: &str = "files";

/// Maximum number of lists of a run, of which each end of the run adds one.
const MAX_COPIES: usize = 100_000;

/// Maximum number of files in a list, and its maximum size in bytes.
const MAX_FILES: usize = 1_000_000;
const MAX_LIST: u64 = 256 << 20;

/// Maximum size of a file of a copy, in bytes, also if its list names no size or a larger one.
const MAX_FILE: u64 = 1 << 40;

/// What a copy shows of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyState {
    Ended,
    /// In progress, interrupted or failed.
    Unfinished,
}

/// Tells whether a journal names the files, by their paths, that were copied with it.
type IsConsistent = fn(&Journal, &BTreeMap<String, Digest>) -> Result<bool, RunError>;

/// What a run folder held when it was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CopyList {
    files: Vec<CopiedFile>,
    /// The folder that holds the content-addressed files, beside that of the copies; without it, that one has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files_folder: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct CopiedFile {
    /// Path in the run folder.
    path: String,
    digest: Digest,
    /// In bytes; older lists have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

impl CopiedFile {
    fn key(&self) -> String {
        format!("{BLOBS}/{}/{}", &self.digest.as_str()[..2], self.digest)
    }
}

impl RunFolder {
    /// Copies the run to its bucket, if it has one: artifacts, dataset, report, and the journal as a SQLite file. The run must
    /// have ended.
    ///
    /// # Errors
    /// [`RunError::Store`] if the bucket cannot be written; the journal or a file cannot be read.
    pub fn copy_to_bucket(&self) -> Result<(), RunError> {
        self.copy_if(CopyState::Ended, |_, _| Ok(true))
    }

    /// As [`RunFolder::copy_to_bucket`], also while the run is in progress. Nothing is copied if the files that were read are
    /// not those of the journal.
    ///
    /// # Errors
    /// As [`RunFolder::copy_to_bucket`].
    pub(crate) fn copy_if(
        &self,
        state: CopyState,
        is_consistent: IsConsistent,
    ) -> Result<(), RunError> {
        let place = JournalPlace::of(self.root())?;
        match place.copies(self.root())? {
            Some(store) => self.copy_into(&store, &place, state, is_consistent),
            None => Ok(()),
        }
    }

    fn copy_into(
        &self,
        store: &dyn Store,
        place: &JournalPlace,
        state: CopyState,
        is_consistent: IsConsistent,
    ) -> Result<(), RunError> {
        let _alone = self.start_copying();
        if state == CopyState::Ended {
            // Of a process that was killed while it copied.
            end_uploads(store);
        }
        let temporary = tempfile::tempdir().map_err(RunError::io("a temporary folder"))?;
        let journal = temporary.path().join(JOURNAL);
        match place {
            JournalPlace::Sqlite(path) => copy_journal(&Journal::snapshot(path)?, &journal)?,
            JournalPlace::Postgres(_) => copy_journal(self.journal(), &journal)?,
        }
        let lists = lists_in(store)?;
        let last = newest(&lists);
        let stored: BTreeSet<String> = store.list(BLOBS)?.into_iter().collect();
        let mut files = vec![put(store, &stored, JOURNAL, &journal)?];
        for path in copied_paths(self.root())? {
            files.push(put(store, &stored, &path, &self.root().join(&path))?);
        }
        files.sort();
        let digests: BTreeMap<String, Digest> = files
            .iter()
            .map(|file| (file.path.clone(), file.digest.clone()))
            .collect();
        if !is_consistent(&Journal::open_read_only(&journal)?, &digests)? {
            tracing::info!(
                "the run changed while it was copied to its bucket; a later copy counts"
            );
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&CopyList {
            files,
            files_folder: place.files_folder(),
        })?;
        let digest = Digest::of_bytes(&text);
        let same = last.filter(|list| list.ends_with(digest.as_str()));
        if same.is_some_and(|list| state == CopyState::Unfinished || !is_unfinished(list)) {
            return Ok(());
        }
        let list = temporary.path().join("list.json");
        fs::write(&list, text).map_err(RunError::io(list.display().to_string()))?;
        let number = last.and_then(number_of).unwrap_or(0) + 1;
        let mark = match state {
            CopyState::Ended => "",
            CopyState::Unfinished => UNFINISHED,
        };
        store.put(&format!("{COPIES}/{number:08}-{mark}{digest}"), &list)?;
        remove_replaced(store, temporary.path())
    }
}

/// Deletes the copies of a run that had not ended, up to the last but one, which somebody may be reading, and the files that only
/// they name.
fn remove_replaced(store: &dyn Store, folder: &Path) -> Result<(), RunError> {
    let lists = lists_in(store)?;
    let (old, recent) = lists.split_at(lists.len().saturating_sub(2));
    let (replaced, kept): (Vec<&String>, Vec<&String>) =
        old.iter().partition(|list| is_unfinished(list));
    if replaced.is_empty() {
        return Ok(());
    }
    let mut needed = BTreeSet::new();
    for list in kept.into_iter().chain(recent) {
        let files = read_list(store, list, folder)?.files.into_iter();
        needed.extend(files.map(|file| file.key()));
    }
    for list in replaced {
        let files = read_list(store, list, folder)?.files.into_iter();
        for key in files.map(|file| file.key()) {
            if !needed.contains(&key) {
                store.delete(&key)?;
            }
        }
        // Last, so that a process that is killed here leaves nothing that no list names.
        store.delete(list)?;
    }
    Ok(())
}

/// The local copy of a run whose path is in a bucket, by name in `runs_dir` or by itself; `None` if neither is there.
///
/// # Errors
/// [`RunError::BadInput`] if the bucket has no such run; [`RunError::Store`] if it cannot be read.
pub(crate) fn fetch(run: &Path, runs_dir: &Path) -> Result<Option<PathBuf>, RunError> {
    let by_name = || BucketPath::of(&runs_dir.join(run)).filter(|_| run.is_relative());
    let Some(place) = BucketPath::of(run).or_else(by_name) else {
        return Ok(None);
    };
    let store = place.store()?;
    let lists = lists_in(&store)?;
    let Some(list) = newest(&lists) else {
        return Err(RunError::BadInput(format!(
            "{place}: there is no copy of a run; one is made when a run ends whose --runs-dir or profile names this bucket and \
             prefix"
        )));
    };
    if is_unfinished(list) {
        tracing::warn!("{place} has not ended; this is its state when it was last copied");
    }
    let id = Digest::of_json(&(place.to_string(), list));
    let folder = default_cache_dir().join("run-copies").join(id.as_str());
    let copy = folder.join(place.name());
    if copy.is_dir() {
        return Ok(Some(copy));
    }
    tracing::info!("fetching {place} into {}", copy.display());
    let wrap = || RunError::io(folder.display().to_string());
    let new = NewFolder::new(&folder).map_err(wrap())?;
    let root = new.path().join(place.name());
    let files = read_list(&store, list, new.path())?.files;
    for file in files.iter().filter(|file| is_copied(&file.path)) {
        fetch_file(&store, file, &root.join(checked(&file.path)?))?;
    }
    match new.finish() {
        // Another process was faster.
        Err(_) if copy.is_dir() => {}
        finished => finished.map_err(wrap())?,
    }
    Ok(Some(copy))
}

/// Fetches a file of a copy, which has to have the size and the digest that the list names.
///
/// # Errors
/// [`RunError::BadInput`] if it is missing, larger or damaged; [`RunError::Store`] if the store cannot be read.
fn fetch_file(store: &dyn Store, file: &CopiedFile, to: &Path) -> Result<(), RunError> {
    let expected = ExpectedFile {
        max: file.size.unwrap_or(MAX_FILE).min(MAX_FILE),
        ..ExpectedFile::with_digest(&file.digest)
    };
    match store.fetch_expected(&file.key(), to, &expected) {
        Ok(true) => Ok(()),
        Ok(false) => Err(RunError::BadInput(format!(
            "{}: {} is missing in the bucket; repeat this command if the run is in progress, or run the command that made the \
             run again to store it",
            store.describe(),
            file.path
        ))),
        Err(RunError::BadInput(refused)) => {
            Err(RunError::BadInput(format!("{}: {refused}", file.path)))
        }
        Err(error) => Err(error),
    }
}

/// The store with the content-addressed files of the run or the dataset at an address in a bucket, which may not have all of them;
/// `None` for other paths. For a dataset of no run, they are in the folder `files` beside it.
///
/// # Errors
/// [`RunError::Store`] if the bucket cannot be read; [`RunError::BadInput`] for a wrong address.
pub fn files_at(address: &Path) -> Result<Option<Arc<dyn Store>>, RunError> {
    let Some(asked) = BucketPath::of(address) else {
        return Ok(None);
    };
    let beside = asked.parent();
    for run in [Some(&asked), beside.as_ref()].into_iter().flatten() {
        let store = run.store()?;
        match files_folder(&store)? {
            Some(Some(folder)) => return Ok(Some(Arc::new(run.beside(&folder)?.store()?))),
            Some(None) => return Ok(Some(Arc::new(store))),
            None => {}
        }
    }
    let store = beside.map(|folder| folder.store()).transpose()?;
    Ok(store.map(|store| -> Arc<dyn Store> { Arc::new(store) }))
}

/// What the last copy of a run says of its content-addressed files, as [`JournalPlace::files_folder`] does; `None` if there is no
/// copy.
fn files_folder(store: &dyn Store) -> Result<Option<Option<String>>, RunError> {
    let lists = lists_in(store)?;
    let Some(list) = newest(&lists) else {
        return Ok(None);
    };
    let temporary = tempfile::tempdir().map_err(RunError::io("a temporary folder"))?;
    Ok(Some(read_list(store, list, temporary.path())?.files_folder))
}

/// Copies a journal to a new SQLite file.
fn copy_journal(journal: &Journal, path: &Path) -> Result<(), RunError> {
    let copy = Journal::create(path)?;
    journal.copy_to(&copy)?;
    drop(copy);
    match path.with_extension("sqlite-wal").exists() {
        true => Err(RunError::Environment(format!(
            "SQLite could not write its log into {}: is the disk full?",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Stores a file, unless its key is one of those that are stored.
fn put(
    store: &dyn Store,
    stored: &BTreeSet<String>,
    path: &str,
    from: &Path,
) -> Result<CopiedFile, RunError> {
    // Opened once: the run may replace the file between the two readings, and no key is ever replaced.
    let open = File::open(from).map_err(RunError::io(from.display().to_string()))?;
    let bytes = path_of(&open);
    let digest = digest_of(&bytes)?;
    let metadata = open.metadata();
    let metadata = metadata.map_err(RunError::io(from.display().to_string()))?;
    let file = CopiedFile {
        path: path.to_owned(),
        digest,
        size: Some(metadata.len()),
    };
    if !stored.contains(&file.key()) {
        store.put(&file.key(), &bytes)?;
    }
    Ok(file)
}

/// A path of an open file, also if another file has its old path.
fn path_of(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

fn digest_of(path: &Path) -> Result<Digest, RunError> {
    let digest = File::open(path).and_then(Digest::of_reader);
    digest.map_err(RunError::io(path.display().to_string()))
}

/// Paths of the files of a run folder that are copied.
fn copied_paths(root: &Path) -> Result<Vec<String>, RunError> {
    let (mut paths, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        let wrap = || RunError::io(full.display().to_string());
        for entry in fs::read_dir(&full).map_err(wrap())? {
            let entry = entry.map_err(wrap())?;
            let kind = entry.file_type().map_err(wrap())?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = folder.join(&name);
            let is_top = folder.as_os_str().is_empty();
            if name.starts_with('.') || (is_top && is_not_copied(&name)) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                paths.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(paths)
}

/// Whether a path in a list is one that is copied. A bucket of somebody else may name others, such as the file by which a run
/// folder says that its journal is on a server that this machine knows.
fn is_copied(path: &str) -> bool {
    let top = path.split('/').next().unwrap_or_default();
    let has_hidden = path.split('/').any(|part| part.starts_with('.'));
    path == JOURNAL || !(has_hidden || is_not_copied(top))
}

/// Whether a file or folder at the top of a run folder is left out.
fn is_not_copied(name: &str) -> bool {
    name == FILES || NOT_COPIED.contains(&name) || name.starts_with(INCOMING)
}

/// The keys of the lists of a run, sorted.
///
/// # Errors
/// [`RunError::BadInput`] if there are more than [`MAX_COPIES`]; [`RunError::Store`] if the store cannot be read.
fn lists_in(store: &dyn Store) -> Result<Vec<String>, RunError> {
    store.list_up_to(COPIES, MAX_COPIES)
}

/// The last list; their keys are sorted.
fn newest(lists: &[String]) -> Option<&str> {
    lists.last().map(String::as_str)
}

/// Whether a list is that of a run that had not ended.
fn is_unfinished(list: &str) -> bool {
    list.contains(UNFINISHED)
}

/// The number of a list, from its key.
fn number_of(list: &str) -> Option<u64> {
    let name = list.rsplit('/').next()?;
    name.split('-').next()?.parse().ok()
}

fn read_list(store: &dyn Store, key: &str, folder: &Path) -> Result<CopyList, RunError> {
    let path = folder.join("list.json");
    let wrap = || RunError::io(path.display().to_string());
    if !store.fetch_up_to(key, &path, MAX_LIST)? {
        return Err(RunError::Store(format!(
            "{}: {key} was deleted while the run was read; repeat this command",
            store.describe()
        )));
    }
    let text = fs::read(&path).map_err(wrap())?;
    fs::remove_file(&path).map_err(wrap())?;
    parsed_list(&text, MAX_FILES).map_err(|error| {
        RunError::BadInput(format!(
            "{}: {key} is no list of a run: {error}",
            store.describe()
        ))
    })
}

/// A list of at most `max` files.
fn parsed_list(text: &[u8], max: usize) -> Result<CopyList, String> {
    let list: CopyList = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match list.files.len() > max {
        true => Err(format!(
            "it names more than {max} files, which are the most that are fetched"
        )),
        false => Ok(list),
    }
}

/// A path that stays within the run folder.
fn checked(path: &str) -> Result<&Path, RunError> {
    let parts = Path::new(path).components();
    let is_inside = |part| matches!(part, Component::Normal(_));
    match !path.is_empty() && parts.clone().all(is_inside) {
        true => Ok(Path::new(path)),
        false => Err(RunError::BadInput(format!(
            "{path:?} in the list of a run is no path inside of it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FolderStore;

    #[test]
    fn what_belongs_to_processes_is_not_copied() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "seed = 1\n").unwrap();
        folder.store().put(b"abc").unwrap();
        folder.write("tasks.jsonl", b"{}\n").unwrap();
        folder.write("dataset/data/train.parquet", b"rows").unwrap();
        folder.write("dataset/files/ab/abcd", b"input").unwrap();
        folder.write(".unfinished", b"").unwrap();
        folder.write("journal.incoming.sqlite-wal", b"").unwrap();
        let mut paths = copied_paths(root.path()).unwrap();
        paths.sort();
        let expected = [
            "dataset/data/train.parquet",
            "dataset/files/ab/abcd",
            "recipe.toml",
            "tasks.jsonl",
        ];
        assert_eq!(paths, expected);
        let copy = root.path().join("copy.sqlite");
        folder.journal().enqueue("s", ["a"]).unwrap();
        copy_journal(folder.journal(), &copy).unwrap();
        let copied = Journal::open_read_only(&copy).unwrap();
        assert_eq!(copied.summary("s").unwrap().pending, 1);
    }

    #[test]
    fn copies_of_a_run_in_progress_are_replaced() {
        let [root, bucket, to] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let folder = RunFolder::open(root.path(), "seed = 1\n").unwrap();
        let place = JournalPlace::of(root.path()).unwrap();
        let copy = |state| {
            folder
                .copy_into(&store, &place, state, |_, _| Ok(true))
                .unwrap();
            store.list(COPIES).unwrap()
        };
        let text_of = |list: &str| {
            let files = read_list(&store, list, to.path()).unwrap().files;
            let report = files.iter().find(|file| file.path == "report.md").unwrap();
            let path = to.path().join("report.md");
            store
                .fetch(&report.key(), &path)
                .unwrap()
                .then(|| fs::read_to_string(path).unwrap())
        };
        folder.write("report.md", b"ended").unwrap();
        copy(CopyState::Ended);
        for state in ["first", "second", "third"] {
            folder.write("report.md", state.as_bytes()).unwrap();
            copy(CopyState::Unfinished);
            // Nothing has changed.
            copy(CopyState::Unfinished);
        }
        let lists = store.list(COPIES).unwrap();
        let numbers: Vec<_> = lists.iter().filter_map(|list| number_of(list)).collect();
        assert_eq!(numbers, [1, 3, 4]);
        let unfinished: Vec<_> = lists.iter().map(|list| is_unfinished(list)).collect();
        assert_eq!(unfinished, [false, true, true]);
        let texts: Vec<_> = lists.iter().filter_map(|list| text_of(list)).collect();
        assert_eq!(texts, ["ended", "second", "third"]);
        // recipe, journal, and three reports; the first unfinished one is deleted.
        assert_eq!(store.list("blobs").unwrap().len(), 5);
        let ended = copy(CopyState::Ended);
        assert!(!is_unfinished(ended.last().unwrap()), "{ended:?}");
        assert_eq!(copy(CopyState::Unfinished), ended);
    }

    #[test]
    fn a_file_that_is_replaced_while_it_is_copied_is_the_old_one() {
        let root = tempfile::tempdir().unwrap();
        let [path, stored] = ["a", "b"].map(|name| root.path().join(name));
        fs::write(&path, "old").unwrap();
        let open = File::open(&path).unwrap();
        crate::write_atomically(&path, b"new").unwrap();
        let store = FolderStore::new(root.path());
        store.put("b", &path_of(&open)).unwrap();
        assert_eq!(fs::read_to_string(stored).unwrap(), "old");
    }

    #[test]
    fn files_that_the_journal_does_not_name_are_no_copy() {
        let [root, bucket] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let folder = RunFolder::open(root.path(), "seed = 1\n").unwrap();
        let place = JournalPlace::of(root.path()).unwrap();
        let copy = |is_consistent: IsConsistent| {
            let copied = folder.copy_into(&store, &place, CopyState::Unfinished, is_consistent);
            copied.unwrap();
            store.list(COPIES).unwrap().len()
        };
        folder.journal().enqueue("s", ["a"]).unwrap();
        assert_eq!(copy(|_, _| Ok(false)), 0);
        let is_whole: IsConsistent = |journal, files| {
            Ok(files.contains_key("recipe.toml") && journal.summary("s")?.pending == 1)
        };
        assert_eq!(copy(is_whole), 1);
    }

    #[test]
    fn a_copy_says_where_the_files_of_the_run_are() {
        let [root, bucket] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let folder = RunFolder::open(root.path(), "seed = 1\n").unwrap();
        let copy = || {
            let place = JournalPlace::of(root.path()).unwrap();
            let copied = folder.copy_into(&store, &place, CopyState::Ended, |_, _| Ok(true));
            copied.unwrap();
        };
        assert_eq!(files_folder(&store).unwrap(), None);
        copy();
        assert_eq!(files_folder(&store).unwrap(), Some(None));
        let pointer = "profile = '/p.toml'\nschema = 'run_a_0f'\n";
        fs::write(root.path().join(POINTER), pointer).unwrap();
        copy();
        let schema = "run_a_0f".to_owned();
        assert_eq!(files_folder(&store).unwrap(), Some(Some(schema)));
        assert!(files_at(Path::new("data/runs/a")).unwrap().is_none());
    }

    #[test]
    fn a_damaged_file_of_a_copy_is_not_fetched() {
        let [root, bucket, to] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let from = root.path().join("report.md");
        fs::write(&from, "abc").unwrap();
        let file = put(&store, &BTreeSet::new(), "report.md", &from).unwrap();
        assert_eq!(file.size, Some(3));
        let (object, copy) = (bucket.path().join(file.key()), to.path().join("report.md"));
        let refused = |file: &CopiedFile| {
            let error = fetch_file(&store, file, &copy).unwrap_err().to_string();
            assert!(error.contains("report.md"), "{error}");
            // Nor does a temporary file stay.
            assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
            error
        };
        fs::write(&object, "abcd").unwrap();
        let error = refused(&file);
        assert!(error.contains("more than 3 bytes"), "{error}");
        // An older list names no size.
        let older = CopiedFile {
            size: None,
            ..file.clone()
        };
        let error = refused(&older);
        for words in ["is damaged", file.digest.as_str()] {
            assert!(error.contains(words), "{error}");
        }
        fs::remove_file(&object).unwrap();
        let error = refused(&file);
        assert!(error.contains("is missing"), "{error}");
        fs::write(&object, "abc").unwrap();
        for file in [&file, &older] {
            fetch_file(&store, file, &copy).unwrap();
            assert_eq!(fs::read_to_string(&copy).unwrap(), "abc");
        }
    }

    #[test]
    fn a_list_has_a_maximum_size() {
        let file = |path: &str| CopiedFile {
            path: path.to_owned(),
            digest: Digest::of_bytes(b"abc"),
            size: Some(3),
        };
        let list = CopyList {
            files: vec![file("a"), file("b")],
            files_folder: None,
        };
        let text = serde_json::to_vec(&list).unwrap();
        assert_eq!(parsed_list(&text, 2).unwrap(), list);
        let error = parsed_list(&text, 1).unwrap_err();
        assert!(error.contains("more than 1 files"), "{error}");
        let older = String::from_utf8(text).unwrap().replace(",\"size\":3", "");
        let older = parsed_list(older.as_bytes(), 2).unwrap();
        assert!(older.files.iter().all(|file| file.size.is_none()));
    }

    #[test]
    fn a_copy_names_no_journal_elsewhere() {
        for good in ["journal.sqlite", "report.md", "dataset/data/a.parquet"] {
            assert!(is_copied(good), "{good}");
        }
        for bad in [
            "journal.toml",
            "journal.toml/",
            "./journal.toml",
            "journal.sqlite/a",
            "journal.incoming.sqlite-wal",
            "bucket.toml",
            "files/ab/abcd",
            "dataset/.hidden",
        ] {
            assert!(!is_copied(bad), "{bad}");
        }
    }

    #[test]
    fn a_list_names_only_files_inside_of_the_run() {
        assert!(checked("dataset/data/a.parquet").is_ok());
        for bad in ["", "/etc/passwd", "../a", "a/../../b", "."] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        assert_eq!(number_of("copies/00000012-0f0f"), Some(12));
        assert_eq!(
            newest(&["copies/1-a".into(), "copies/2-b".into()]),
            Some("copies/2-b")
        );
    }
}
