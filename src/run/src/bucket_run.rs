//! Runs that are kept in a bucket: `--runs-dir s3://BUCKET/PREFIX`.
//!
//! The run folder is on this machine. Content-addressed files and artifacts are stored in the bucket when they are made; the
//! dataset, the report and the journal are copied there now and then, and when a command ends.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::artifact_names::BUCKET;
use crate::artifacts::are_artifacts_of;
use crate::folder::lock_folder;
use crate::journal::JournalPlace;
use crate::relocate::store_files;
use crate::run_copy::CopyState;
use crate::store::{BucketPath, RunBucket};
use crate::{Mode, Profile, RunError, RunFolder, frozen_recipe};

/// Minimum time between two copies.
const PAUSE: Duration = Duration::from_secs(300);

/// After a copy, the pause is at least this many times as long as the copy took.
const MIN_PAUSES: u32 = 10;

/// Folder of the dataset, without which no run has ended.
const DATASET: &str = "dataset";

/// A run, as a command line selects it.
pub(crate) struct SelectedRun<'a> {
    /// Folder or bucket of the runs.
    pub(crate) runs_dir: &'a Path,
    /// Folder on this machine of runs that are kept in a bucket.
    pub(crate) local: &'a Path,
    pub(crate) name: &'a str,
    /// The resolved recipe, as TOML.
    pub(crate) recipe: &'a str,
    pub(crate) profile: Option<&'a Path>,
}

impl SelectedRun<'_> {
    /// The run folder on this machine; nothing is written.
    pub(crate) fn folder(&self) -> PathBuf {
        match BucketPath::of(self.runs_dir) {
            Some(_) => self.local.join(self.name),
            None => self.runs_dir.join(self.name),
        }
    }

    /// Keeps the run in its bucket from now on, if it is selected by one. The folder of a run with a profile becomes the owner
    /// of its copies.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the run is kept elsewhere, or if another folder works on the run of the bucket or has its copies
    /// there, also if it is selected by its folder; the bucket cannot be written.
    pub(crate) fn keep_in_bucket(&self) -> Result<(), RunError> {
        let root = self.folder();
        let place = JournalPlace::of(&root)?;
        if let Some(profile) = self.profile.or(place.profile()) {
            if let Some(runs) = BucketPath::of(self.runs_dir) {
                check_profile(&runs, profile)?;
            }
            return own_copies(&root, &place, profile);
        }
        let Some(address) = BucketPath::of(&self.runs_dir.join(self.name)) else {
            return check_kept(&root);
        };
        fs::create_dir_all(&root)
            .map_err(RunError::io(format!("run folder {}", root.display())))?;
        let _lock = lock_folder(&root)?;
        match RunBucket::of(&root)? {
            Some(kept) if kept.address == address.to_string() => {
                kept.check_owner(&kept.store()?)?;
            }
            Some(kept) => {
                return Err(RunError::Conflict(format!(
                    "{} is kept in {}; name the folder of that address with --runs-dir, or choose another name with --run NAME. To \
                     keep this run elsewhere from now on, delete {BUCKET} in its folder",
                    root.display(),
                    kept.address
                )));
            }
            None => self.begin(&root, &address, &place)?,
        }
        tracing::info!(
            "the run is kept in {address}; its journal and its work files are in {}",
            root.display()
        );
        Ok(())
    }

    /// Stores what the run has so far.
    fn begin(
        &self,
        root: &Path,
        address: &BucketPath,
        place: &JournalPlace,
    ) -> Result<(), RunError> {
        let has_begun = !place.is_blank()?;
        if has_begun && !frozen_recipe::changes(root, self.recipe)?.is_empty() {
            return Err(RunError::Conflict(format!(
                "{} is a run of another recipe, and it is not kept in {address}; choose another name with --run NAME, or delete \
                 that folder",
                root.display()
            )));
        }
        let bucket = RunBucket::claim(root, address)?;
        let store = bucket.store()?;
        bucket.check_free(&store)?;
        bucket.check_owner(&store)?;
        if has_begun && let Some(journal) = place.read()? {
            store_files(root, &journal, &store)?;
        }
        RunBucket::take(root)
    }
}

/// Makes the run folder the owner of its copies before anything is made and paid for.
fn own_copies(root: &Path, place: &JournalPlace, profile: &Path) -> Result<(), RunError> {
    let Some(server) = Profile::load(profile)?.store else {
        return Ok(());
    };
    // A run that has begun without a profile is refused later, and has no copies.
    if place.profile().is_none() && !place.is_blank()? {
        return Ok(());
    }
    fs::create_dir_all(root).map_err(RunError::io(format!("run folder {}", root.display())))?;
    let _lock = lock_folder(root)?;
    RunBucket::own_copies(root, &server).map(drop)
}

/// The bucket that a run folder names; `None` if it names none, or has its journal elsewhere.
fn bucket_of(root: &Path) -> Result<Option<RunBucket>, RunError> {
    match JournalPlace::of(root)?.profile() {
        Some(_) => Ok(None),
        None => RunBucket::of(root),
    }
}

/// Checks that a run folder which names a bucket is the one that the bucket names.
fn check_kept(root: &Path) -> Result<(), RunError> {
    let Some(kept) = bucket_of(root)? else {
        return Ok(());
    };
    if !Path::new(&kept.address).ends_with(root.file_name().unwrap_or_default()) {
        return Err(RunError::Conflict(format!(
            "{} was copied or renamed: it names the bucket of another run, {}. Rename it back, or delete {BUCKET} in it to \
             make it a run of its own without a bucket",
            root.display(),
            kept.address
        )));
    }
    kept.check_owner(&kept.store()?)
}

/// Refuses a profile with another bucket.
fn check_profile(runs: &BucketPath, profile: &Path) -> Result<(), RunError> {
    let store = Profile::load(profile)?.store;
    match store.is_some_and(|store| runs.is_folder_of(&store)) {
        true => Ok(()),
        false => Err(RunError::Conflict(format!(
            "--runs-dir {runs} and the section [store] of {} name different places: omit --runs-dir, or name its bucket and \
             prefix in the profile",
            profile.display()
        ))),
    }
}

/// Does work on a run and keeps the copy in its bucket up to date, if `--runs-dir` names one. A dry run stores no copy.
///
/// # Errors
/// Those of `work`; [`RunError::Store`] if the bucket cannot be written in the end.
pub async fn keep_copies<T>(
    folder: &Arc<RunFolder>,
    mode: Mode,
    work: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    let kept = bucket_of(folder.root())?;
    let Some(kept) = kept.filter(|_| mode != Mode::DryRun) else {
        return work.await;
    };
    let ended = tokio::select! {
        ended = work => ended,
        never = copy_repeatedly(folder) => match never {},
    };
    tracing::info!("storing the run in {}", kept.address);
    let copied = copy(folder, state(folder.root(), &ended)).await;
    match (ended, copied) {
        (Ok(result), copied) => copied.map(|()| result),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(failed)) => {
            warn_of(&failed);
            Err(error)
        }
    }
}

/// Whether the run has ended with this result.
fn state<T>(root: &Path, result: &Result<T, RunError>) -> CopyState {
    let is_whole = matches!(result, Ok(_) | Err(RunError::Incomplete(_)));
    match is_whole && root.join(DATASET).is_dir() {
        true => CopyState::Ended,
        false => CopyState::Unfinished,
    }
}

async fn copy_repeatedly(folder: &Arc<RunFolder>) -> Infallible {
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let since = Instant::now();
        if let Err(error) = copy(folder, CopyState::Unfinished).await {
            warn_of(&error);
        }
        pause = PAUSE.max(since.elapsed().saturating_mul(MIN_PAUSES));
    }
}

async fn copy(folder: &Arc<RunFolder>, state: CopyState) -> Result<(), RunError> {
    let folder = folder.clone();
    let copied = tokio::task::spawn_blocking(move || match state {
        CopyState::Ended => folder.copy_to_bucket(),
        CopyState::Unfinished => folder.copy_if(state, are_artifacts_of),
    });
    copied
        .await
        .unwrap_or_else(|error| Err(RunError::Internal(error.to_string())))
}

fn warn_of(error: &RunError) {
    tracing::warn!("the copy of the run in its bucket is not up to date: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected<'a>(
        runs_dir: &'a Path,
        local: &'a Path,
        profile: Option<&'a Path>,
    ) -> SelectedRun<'a> {
        SelectedRun {
            runs_dir,
            local,
            name: "a",
            recipe: "seed = 1\n",
            profile,
        }
    }

    #[test]
    fn a_run_in_a_bucket_has_its_folder_on_this_machine() {
        let local = tempfile::tempdir().unwrap();
        let folder = |runs_dir: &str| selected(Path::new(runs_dir), local.path(), None).folder();
        assert_eq!(folder("/elsewhere"), Path::new("/elsewhere/a"));
        for bucket in ["s3://b/runs", "gs://b/runs", "az://b/runs"] {
            assert_eq!(folder(bucket), local.path().join("a"));
        }
    }

    #[test]
    fn a_profile_and_a_bucket_of_runs_agree() {
        let local = tempfile::tempdir().unwrap();
        let profile = local.path().join("p.toml");
        let text = "[postgres]\nhost = '127.0.0.1'\nport = 1\ndatabase = 'd'\nuser = 'u'\n";
        let keep = |runs_dir: &str| {
            selected(Path::new(runs_dir), local.path(), Some(&profile)).keep_in_bucket()
        };
        let store = "[store]\nbucket = 'b'\nprefix = 'runs'\n";
        fs::write(&profile, format!("{text}{store}")).unwrap();
        let same = BucketPath::of(Path::new("s3://b/runs/")).unwrap();
        check_profile(&same, &profile).unwrap();
        for other in ["s3://b/other", "s3://c/runs", "gs://b/runs"] {
            let error = keep(other).unwrap_err().to_string();
            assert!(error.contains("name different places"), "{error}");
        }
        fs::write(&profile, text).unwrap();
        assert!(keep("s3://b/runs").is_err());
        assert!(!local.path().join("a").exists());
    }

    #[test]
    fn a_run_that_is_kept_elsewhere_stays_there() {
        let local = tempfile::tempdir().unwrap();
        let root = local.path().join("a");
        drop(RunFolder::open(&root, "seed = 2\n").unwrap());
        let refused = |bucket: &str| {
            let error = selected(Path::new(bucket), local.path(), None).keep_in_bucket();
            error.unwrap_err().to_string()
        };
        let changed = refused("s3://b/runs");
        assert!(changed.contains("a run of another recipe"), "{changed}");
        let kept = BucketPath::of(Path::new("s3://b/runs/a")).unwrap();
        RunBucket::claim(&root, &kept).unwrap();
        RunBucket::take(&root).unwrap();
        let moved = refused("s3://c/runs");
        assert!(moved.contains("is kept in s3://b/runs/a"), "{moved}");
    }

    #[test]
    fn a_copy_of_a_run_folder_does_not_write_to_the_bucket_of_the_run() {
        let local = tempfile::tempdir().unwrap();
        let root = local.path().join("a");
        drop(RunFolder::open(&root, "seed = 1\n").unwrap());
        let other = BucketPath::of(Path::new("s3://b/runs/original")).unwrap();
        RunBucket::claim(&root, &other).unwrap();
        let keep = || selected(local.path(), local.path(), None).keep_in_bucket();
        keep().unwrap();
        RunBucket::take(&root).unwrap();
        let error = keep().unwrap_err();
        assert_eq!(error.exit_code(), crate::ExitCode::Conflict);
        assert!(error.to_string().contains("delete bucket.toml"), "{error}");
        fs::remove_file(root.join(BUCKET)).unwrap();
        keep().unwrap();
    }

    #[tokio::test]
    async fn a_dry_run_stores_no_copy() {
        let local = tempfile::tempdir().unwrap();
        let folder = Arc::new(RunFolder::open(&local.path().join("a"), "").unwrap());
        // An address without a bucket, to which nothing can be stored.
        let nowhere = BucketPath::of(Path::new("s3:///a")).unwrap();
        RunBucket::claim(folder.root(), &nowhere).unwrap();
        RunBucket::take(folder.root()).unwrap();
        let work = || async { Ok::<_, RunError>(1) };
        let dry = keep_copies(&folder, Mode::DryRun, work()).await;
        assert_eq!(dry.unwrap(), 1);
        assert!(keep_copies(&folder, Mode::Full, work()).await.is_err());
    }

    #[test]
    fn a_run_without_a_dataset_has_not_ended() {
        let root = tempfile::tempdir().unwrap();
        let incomplete = || Err::<(), _>(RunError::Incomplete(String::new()));
        assert_eq!(state(root.path(), &Ok(())), CopyState::Unfinished);
        fs::create_dir(root.path().join(DATASET)).unwrap();
        assert_eq!(state(root.path(), &Ok(())), CopyState::Ended);
        assert_eq!(state(root.path(), &incomplete()), CopyState::Ended);
        let interrupted = Err::<(), _>(RunError::Interrupted);
        assert_eq!(state(root.path(), &interrupted), CopyState::Unfinished);
    }
}
