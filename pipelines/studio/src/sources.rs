//! What the studio shows: one run or dataset, or all runs of a project. Each has an index, which follows its files.

mod cache;
mod list_state;
mod open_source;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use pybench_datasets::inspect_log::log_files;
use pybench_eval::run::RESULTS;
use pybench_files::open_regular;
use pybench_run::{ContentStore, Journal, RunError, Store, human_edits};
use pybench_show::TrajectorySource;
use pybench_types::id::Digest;

use self::cache::{CacheClaim, delete_older};
use self::open_source::OpenSource;
use crate::index::{Index, ListQuery, Page};
use crate::prices::Prices;
use crate::review::{self, IdFilter};
use crate::runs::{SourceInfo, describe, is_locked};
use crate::watch::Watchers;

/// Maximum size of a file that is sent, bytes.
const MAX_FILE: u64 = 64 << 20;
/// Maximum size of a file that is fetched from a bucket to be shown page by page, or used by a session, bytes.
const MAX_FETCHED: u64 = 1 << 30;
/// Maximum number of files of a dataset, and depth of its folders.
const MAX_FILES: usize = 10_000;
const MAX_DEPTH: usize = 8;
/// Number of folders above a dataset in which its run is looked for.
const MAX_ABOVE: usize = 3;
/// The least time between two indexes of a source.
const MIN_AGE: Duration = Duration::from_secs(2);
/// How long the list shows what a journal on a server had.
const SERVER_AGE: Duration = Duration::from_secs(5);
/// An index is used for this many times the time that it took, so that a large run that goes on is not always indexed.
const AGE_FACTOR: u32 = 20;

/// The runs and datasets that can be opened, by name.
pub(crate) struct Sources {
    what: What,
    /// Folder of the indexes.
    cache: PathBuf,
    claim: OnceLock<Option<CacheClaim>>,
    /// The files of the run, if it is a copy from a bucket.
    bucket: Option<Arc<dyn Store>>,
    open: Mutex<HashMap<String, Arc<SourceSlot>>>,
    described: Mutex<HashMap<String, Described>>,
    watchers: Arc<Watchers>,
}

/// A source that was asked for; `None` until it is open. It is locked while it opens, so that nobody else begins to index it.
type SourceSlot = Mutex<Option<OpenSource>>;

/// A run as the list shows it.
struct Described {
    info: SourceInfo,
    /// The state of its files before it was read, and when that was.
    files: Digest,
    at: Instant,
}

impl Described {
    /// Whether nothing has changed since: neither its files, nor whether a process works on it. A run that goes on is always
    /// read, since its calls end with time, and one with a journal on a server after a while, since no file tells its state.
    fn is_current(&self, folder: &Path, files: &Digest) -> bool {
        self.files == *files
            && self.info.state != "running"
            && !is_locked(folder)
            && (is_local_run(folder) || self.at.elapsed() < SERVER_AGE)
    }
}

/// What was asked for.
pub(crate) enum What {
    /// All runs in a folder.
    Runs(PathBuf),
    One {
        name: String,
        source: TrajectorySource,
    },
}

/// A source with its index.
pub(crate) struct Opened {
    pub(crate) index: Index,
    pub(crate) prices: Prices,
    files: Files,
    /// The content store of a run, with the bucket that has the files which are not here.
    bucket: Option<ContentStore>,
    /// Folder of the run; `None` for a dataset or log.
    run: Option<PathBuf>,
    state: Mutex<Digest>,
    /// Why a newer index could not be made; empty if none failed.
    outdated: Mutex<String>,
    saving: Mutex<()>,
}

/// Keeps other processes from starting to work on a run, or from starting it over, until it is dropped.
struct RunLock {
    _file: File,
}

impl RunLock {
    /// `None` if a process works on the run.
    fn take(folder: &Path) -> Option<Self> {
        let file = File::open(folder.join("lock")).ok()?;
        // Shared, so that the run does not look as if a process worked on it.
        file.try_lock_shared().ok()?;
        Some(Self { _file: file })
    }
}

/// Where the files of a source are.
enum Files {
    Run(ContentStore),
    Dataset(PathBuf),
}

impl Sources {
    pub(crate) fn new(what: What, cache: PathBuf) -> Self {
        let (open, described) = (Mutex::default(), Mutex::default());
        Self {
            what,
            cache,
            claim: OnceLock::new(),
            bucket: None,
            open,
            described,
            watchers: Arc::default(),
        }
    }

    /// Fetches the files of a run from this store when they are opened.
    pub(crate) fn with_bucket(self, bucket: Option<Arc<dyn Store>>) -> Self {
        Self { bucket, ..self }
    }

    /// The only source, if one was asked for.
    pub(crate) fn only(&self) -> Option<&str> {
        match &self.what {
            What::Runs(_) => None,
            What::One { name, .. } => Some(name),
        }
    }

    /// All sources, by name.
    pub(crate) fn list(&self) -> Vec<SourceInfo> {
        match &self.what {
            What::Runs(folder) => {
                let names = run_names(folder).into_iter();
                names
                    .map(|name| self.describe(&name, &folder.join(&name)))
                    .collect()
            }
            What::One { name, source } => match source {
                TrajectorySource::Run(folder) => vec![self.describe(name, folder)],
                TrajectorySource::Dataset(_) => vec![SourceInfo::of_files(name, "dataset")],
                TrajectorySource::InspectLog(_) => vec![SourceInfo::of_files(name, "log")],
            },
        }
    }

    /// Describes a run; again only if it may have changed.
    fn describe(&self, name: &str, folder: &Path) -> SourceInfo {
        let files = state_of(&run_files(folder));
        if let Some(known) = lock(&self.described).get(name)
            && known.is_current(folder, &files)
        {
            return known.info.clone();
        }
        let described = Described {
            info: describe(name, folder),
            files,
            at: Instant::now(),
        };
        let info = described.info.clone();
        lock(&self.described).insert(name.to_owned(), described);
        info
    }

    /// What pages follow.
    pub(crate) fn watchers(&self) -> &Arc<Watchers> {
        &self.watchers
    }

    /// The folder that has all runs; `None` if only one source was asked for.
    pub(crate) fn runs_dir(&self) -> Option<&Path> {
        match &self.what {
            What::Runs(folder) => Some(folder),
            What::One { .. } => None,
        }
    }

    /// The source with this name, without an index.
    pub(crate) fn find(&self, name: &str) -> Option<TrajectorySource> {
        match &self.what {
            What::Runs(folder) => {
                let is_known = run_names(folder).iter().any(|known| known == name);
                is_known.then(|| TrajectorySource::Run(folder.join(name)))
            }
            What::One {
                name: known,
                source,
            } => (known == name).then(|| source.clone()),
        }
    }

    /// The run folders, by name.
    pub(crate) fn run_folders(&self) -> Vec<(String, PathBuf)> {
        match &self.what {
            What::Runs(folder) => {
                let names = run_names(folder).into_iter();
                names
                    .map(|name| (name.clone(), folder.join(name)))
                    .collect()
            }
            What::One { name, source } => match source {
                TrajectorySource::Run(folder) => vec![(name.clone(), folder.clone())],
                TrajectorySource::Dataset(_) | TrajectorySource::InspectLog(_) => Vec::new(),
            },
        }
    }

    /// Opens a source, whose index may be growing; `None` if there is none of that name.
    ///
    /// # Errors
    /// The source cannot be read or has no trajectories; its index cannot be written.
    pub(crate) fn open(&self, name: &str) -> Result<Option<Arc<Opened>>, RunError> {
        let source = self.find(name);
        let opened = source.map(|source| self.current(name, &source));
        opened.transpose()
    }

    /// As [`Sources::open`]; waits until all trajectories are indexed.
    ///
    /// # Errors
    /// Those of [`Sources::open`]; the source has changed, and cannot be indexed any more.
    pub(crate) fn open_whole(&self, name: &str) -> Result<Option<Arc<Opened>>, RunError> {
        let opened = self.open(name)?;
        opened.iter().try_for_each(|opened| opened.wait())?;
        Ok(opened)
    }

    /// The source with an index of what it has now, or had a moment ago.
    fn current(&self, name: &str, source: &TrajectorySource) -> Result<Arc<Opened>, RunError> {
        let slot = self.slot(name);
        let mut known = lock(&slot);
        let state = state(source)?;
        if let Some(known) = &mut *known
            && (known.is_growing() || known.newest().is_current(source, &state))
        {
            return Ok(known.shown().clone());
        }
        let newer = Arc::new(self.index(source, state)?);
        let made = newer.index.wait_for_rows();
        match &mut *known {
            // It stays until the newer one is complete, and says why if that fails.
            Some(known) if known.is_whole() => {
                known.replace(newer);
                Ok(known.shown().clone())
            }
            _ => {
                made?;
                *known = Some(OpenSource::new(newer.clone()));
                Ok(newer)
            }
        }
    }

    /// The place of a source. Only requests for this source wait while it is locked.
    fn slot(&self, name: &str) -> Arc<SourceSlot> {
        let mut open = lock(&self.open);
        open.entry(name.to_owned()).or_default().clone()
    }

    /// The source with an index that is made, or that begins to be made.
    fn index(&self, source: &TrajectorySource, state: Digest) -> Result<Opened, RunError> {
        let io = |path: &Path| RunError::io(path.display().to_string());
        std::fs::create_dir_all(&self.cache).map_err(io(&self.cache))?;
        let path = source.path();
        let place = path.canonicalize().map_err(io(path))?;
        let place = Digest::of_bytes(place.as_os_str().as_encoded_bytes());
        let name = format!("{}-{}.sqlite", place.short(), state.short());
        let _claim = self.claim.get_or_init(|| CacheClaim::take(&self.cache));
        let index = Index::begin(&self.cache.join(&name), source)?;
        delete_older(&self.cache, place.short(), &name);
        let run = match source {
            TrajectorySource::Run(folder) => Some(folder.clone()),
            TrajectorySource::Dataset(_) | TrajectorySource::InspectLog(_) => None,
        };
        let files = match source {
            TrajectorySource::Run(folder) => Files::Run(ContentStore::open(&folder.join("files"))?),
            TrajectorySource::Dataset(path) | TrajectorySource::InspectLog(path) => {
                Files::Dataset(path.join("files"))
            }
        };
        let bucket = match (&files, &self.bucket) {
            // Nothing is written there.
            (Files::Run(store), Some(bucket)) => {
                Some(store.clone().with_remote(Some(bucket.clone())))
            }
            _ => None,
        };
        Ok(Opened {
            index,
            prices: Prices::of(source),
            files,
            bucket,
            run,
            state: Mutex::new(state),
            outdated: Mutex::default(),
            saving: Mutex::default(),
        })
    }
}

impl Opened {
    /// The bytes of a file of the source.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is missing, damaged or too large; [`RunError::Store`] if its bucket cannot be read.
    pub(crate) fn file(&self, id: &Digest) -> Result<Vec<u8>, RunError> {
        self.fetch(id, MAX_FILE)?;
        let path = self.path(id);
        let size = std::fs::metadata(&path).map(|metadata| metadata.len());
        let bad = |why: &str| RunError::BadInput(format!("{} {why}", path.display()));
        match size {
            Err(_) => return Err(bad("is not part of the run or dataset")),
            Ok(size) if size > MAX_FILE => return Err(bad("is larger than 64 MiB; open it there")),
            Ok(_) => {}
        }
        match &self.files {
            Files::Run(store) => store.get(id),
            Files::Dataset(_) => {
                let mut bytes = Vec::new();
                let file = open_regular(&path).map_err(|error| bad(&error.to_string()))?;
                let read = file.take(MAX_FILE).read_to_end(&mut bytes);
                read.map_err(RunError::io(path.display().to_string()))?;
                match Digest::of_bytes(&bytes) == *id {
                    true => Ok(bytes),
                    false => Err(bad("is damaged (its digest is not its name)")),
                }
            }
        }
    }
}

impl Opened {
    /// Fetches a file of at most `max` bytes from the bucket of the run, unless it is here or the bucket does not have it.
    fn fetch(&self, id: &Digest, max: u64) -> Result<(), RunError> {
        match &self.bucket {
            Some(bucket) if !self.path(id).exists() => bucket.fetch_remote(id, max).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Fetches what a session needs from the bucket of the run.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a file is too large or damaged; [`RunError::Store`] if the bucket cannot be read.
    pub(crate) fn fetch_all<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a Digest>,
    ) -> Result<(), RunError> {
        ids.into_iter()
            .try_for_each(|id| self.fetch(id, MAX_FETCHED))
    }

    /// A file of the source, of any size that is here. Its bytes are not compared with its id.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is missing or cannot be opened; [`RunError::Store`] if its bucket cannot be read.
    pub(crate) fn open_file(&self, id: &Digest) -> Result<File, RunError> {
        self.fetch(id, MAX_FETCHED)?;
        let path = self.path(id);
        open_regular(&path)
            .map_err(|error| RunError::BadInput(format!("{}: {error}", path.display())))
    }

    fn path(&self, id: &Digest) -> PathBuf {
        match &self.files {
            Files::Run(store) => store.path(id),
            Files::Dataset(folder) => {
                let path = folder.join(&id.as_str()[..2]).join(id.as_str());
                match path.is_file() {
                    true => path,
                    false => folder.join(id.as_str()),
                }
            }
        }
    }

    /// The folder of the run whose journal takes decisions and edits.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a dataset, which has no journal.
    pub(crate) fn run(&self) -> Result<&Path, RunError> {
        let missing = || {
            RunError::BadInput(
                "decisions and edits are kept in the journal of a run, and a dataset or log has none; open the run that it was \
                 made from"
                    .to_owned(),
            )
        };
        self.run.as_deref().ok_or_else(missing)
    }

    /// Saves what a person decided or made, with `write`, which gets the folder of the run. The index has none of it, so it
    /// stays the current one.
    ///
    /// # Errors
    /// The source is a dataset, or those of `write`.
    pub(crate) fn save(
        &self,
        write: impl FnOnce(&Path) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let folder = self.run()?;
        let _one_at_a_time = lock(&self.saving);
        // While a process works on the run, the index follows it anyway.
        let idle = RunLock::take(folder);
        let source = TrajectorySource::Run(folder.to_owned());
        let is_current = idle.is_some() && state(&source).is_ok_and(|now| now == self.state());
        write(folder)?;
        if is_current && let Ok(now) = state(&source) {
            *lock(&self.state) = now;
        }
        Ok(())
    }

    /// A page of the list, with the decisions and edits that it is filtered by.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the query is invalid; the index or the journal cannot be read.
    pub(crate) fn page(&self, mut query: ListQuery) -> Result<Page, RunError> {
        if !query.review.is_empty() || !query.label.is_empty() {
            let reviews = review::read_all(self.run()?)?;
            let decided = review::filter(&reviews, &query.review, &query.reviewer)?;
            let labelled = review::labelled(&reviews, &query.label, &query.reviewer);
            query.ids.extend(decided.into_iter().chain(labelled));
        }
        let edited = match query.edited {
            true => {
                let edited = self.edited()?;
                query
                    .ids
                    .push(IdFilter::Among(edited.iter().cloned().collect()));
                edited
            }
            // The list is shown without them.
            false => self.edited().unwrap_or_default(),
        };
        let mut page = self.index.page(&query)?;
        let rows = page.rows.iter().filter(|row| edited.contains(&row.id));
        page.edited = rows.map(|row| row.number).collect();
        page.outdated = self.outdated();
        Ok(page)
    }

    /// The ids of the trajectories that people edited.
    fn edited(&self) -> Result<BTreeSet<String>, RunError> {
        human_edits::recorded_ids(&Journal::read_run(self.run()?)?)
    }

    /// The runs above a dataset, one of which may have made it: `shard` writes into the folder of its run.
    pub(crate) fn runs_above(&self) -> Vec<PathBuf> {
        let Files::Dataset(files) = &self.files else {
            return Vec::new();
        };
        let dataset = files.parent().and_then(|path| path.canonicalize().ok());
        let above = dataset.iter().flat_map(|path| path.ancestors().skip(1));
        let above = above.take(MAX_ABOVE).filter(|folder| is_local_run(folder));
        above.map(Path::to_owned).collect()
    }

    /// The content store of a run; `None` for a dataset.
    pub(crate) fn store(&self) -> Option<&ContentStore> {
        match &self.files {
            Files::Run(store) => Some(store),
            Files::Dataset(_) => None,
        }
    }

    /// Waits until all trajectories are indexed.
    fn wait(&self) -> Result<(), RunError> {
        self.index.wait()?;
        match self.outdated() {
            problem if problem.is_empty() => Ok(()),
            problem => Err(RunError::BadInput(problem)),
        }
    }

    /// Why a newer index could not be made; empty if this is the newest one.
    pub(crate) fn outdated(&self) -> String {
        lock(&self.outdated).clone()
    }

    /// Notes why a newer index could not be made.
    fn set_outdated(&self, problem: String) {
        *lock(&self.outdated) = problem;
    }

    fn state(&self) -> Digest {
        lock(&self.state).clone()
    }

    /// Whether the index has what the source has in this state, or is too new to be made again.
    fn is_current(&self, source: &TrajectorySource, state: &Digest) -> bool {
        let is_new = |(age, took): (Duration, Duration)| age < max_age(source, took);
        self.state() == *state || self.index.age().is_none_or(is_new)
    }

    /// Whether the source has a file with this id. A bucket is not asked: it has the files that its run names.
    pub(crate) fn has(&self, id: &str) -> bool {
        let is_here = |id: Digest| self.bucket.is_some() || self.path(&id).is_file();
        Digest::try_from(id.to_owned()).is_ok_and(is_here)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long an index is used after its source has changed. Once no process works on a run, the next index is the last one.
fn max_age(source: &TrajectorySource, took: Duration) -> Duration {
    match source {
        TrajectorySource::Run(folder) if !is_locked(folder) => MIN_AGE,
        _ => MIN_AGE.max(took * AGE_FACTOR),
    }
}

/// Whether a folder has a run whose journal is in it. Another one would be asked for over the network.
pub(crate) fn is_local_run(folder: &Path) -> bool {
    folder.join("journal.sqlite").is_file() && !folder.join("journal.toml").exists()
}

/// Names of the run folders in `folder`.
fn run_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let runs = entries.filter(|entry| Journal::exists(&entry.path()));
    let mut names: Vec<String> = runs
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// A digest of where the files of a source are and when they were last changed.
fn state(source: &TrajectorySource) -> Result<Digest, RunError> {
    match source {
        TrajectorySource::Run(folder) => {
            let files = state_of(&run_files(folder));
            // The counts of a journal on a server change with each trajectory.
            match folder.join("journal.sqlite").is_file() {
                true => Ok(files),
                false => Ok(Digest::of_json(&(files, describe("", folder).status))),
            }
        }
        TrajectorySource::Dataset(path) => Ok(state_of(&files_of_dataset(path)?)),
        TrajectorySource::InspectLog(path) => {
            let files = log_files(path).map_err(|error| RunError::BadInput(error.to_string()))?;
            Ok(state_of(&files))
        }
    }
}

/// What the trajectories of a run are read from.
fn run_files(folder: &Path) -> Vec<PathBuf> {
    let names = [
        "journal.sqlite",
        "journal.sqlite-wal",
        "tasks.jsonl",
        "verdicts.jsonl",
        RESULTS,
    ];
    names.map(|name| folder.join(name)).to_vec()
}

/// The files of a dataset that have its rows, sorted.
///
/// # Errors
/// A folder cannot be read, or the dataset has too many folders or files.
pub(crate) fn files_of_dataset(path: &Path) -> Result<Vec<PathBuf>, RunError> {
    let mut files = Vec::new();
    dataset_files(path, 0, &mut files)?;
    files.sort();
    Ok(files)
}

/// The rows of a dataset, in files of any depth; input files are named by their content and need no look.
fn dataset_files(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), RunError> {
    if !path.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth > MAX_DEPTH || found.len() > MAX_FILES {
        let text = format!(
            "{} has folders of more than {MAX_DEPTH} levels or more than {MAX_FILES} files; open one of them",
            path.display()
        );
        return Err(RunError::BadInput(text));
    }
    let entries = std::fs::read_dir(path).map_err(RunError::io(path.display().to_string()))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name != "files" && !name.as_encoded_bytes().starts_with(b".") {
            dataset_files(&entry.path(), depth + 1, found)?;
        }
    }
    Ok(())
}

pub(crate) fn state_of(files: &[PathBuf]) -> Digest {
    let state = files.iter().map(|file| {
        let metadata = std::fs::metadata(file).ok();
        let changed = metadata.as_ref().and_then(|found| found.modified().ok());
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed = changed.map(|time| (time.as_secs(), time.subsec_nanos()));
        let path = file.as_os_str().to_string_lossy();
        (path, metadata.map(|found| found.len()), changed)
    });
    Digest::of_json(&state.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
