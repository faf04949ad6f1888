//! Locates a dataset: a local folder, a run, a dataset on the Hub, or one in a bucket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_datasets::dataset::FILES_DIR;
use pybench_datasets::read;
use pybench_interpreter::default_cache_dir;
use pybench_run::cli::Process;
use pybench_run::project::{default_runs_dir, find_run, is_in_bucket, project_root};
use pybench_run::{RunError, Store, files_at};

use super::VerifyArgs;
use pybench_hub::{DatasetRef, Snapshot, fetch_source, until_interrupted};

/// A dataset on this machine, possibly downloaded.
pub(super) struct DatasetLocation {
    /// Folder with the shards.
    pub(super) folder: PathBuf,
    /// Content stores: folders with files named by their digests.
    pub(super) stores: Vec<PathBuf>,
    /// The same in a bucket, if the dataset is in one.
    pub(super) bucket: Option<Arc<dyn Store>>,
    /// Commit on the Hub, if the dataset was downloaded from there.
    pub(super) hub_commit: Option<String>,
    /// Whether the folder is a copy in the cache, which must not be changed.
    pub(super) is_copy: bool,
}

impl DatasetLocation {
    /// Find a local folder or run with the given name; otherwise download the dataset from the Hub or a bucket.
    pub(super) async fn find(args: &VerifyArgs, process: &Process) -> Result<Self, RunError> {
        let asked = args.dataset.to_string_lossy();
        if is_in_bucket(&args.dataset) && !args.offline {
            return Self::find_in_bucket(args, process).await;
        }
        let local_error = match asked.starts_with("hf://") {
            true => None,
            false => match Self::find_local(args) {
                Ok(location) => return Ok(location),
                Err(error) => Some(error),
            },
        };
        let pin = match (DatasetRef::parse(&asked), local_error) {
            // An existing path that is not a dataset is not looked up on the Hub.
            (_, Some(error)) if args.dataset.exists() => return Err(error),
            (Ok(pin), _) => pin,
            (Err(_), Some(error)) => return Err(error),
            (Err(form), None) => return Err(RunError::BadInput(form)),
        };
        let cache = args.downloads.clone().unwrap_or_else(default_cache_dir);
        let fetching = Snapshot::fetch(&pin, &cache, args.offline);
        let snapshot = until_interrupted(process, fetching).await??;
        tracing::info!(
            "{pin} at {} is in {}",
            snapshot.commit,
            snapshot.folder.display()
        );
        let mut stores = args.files.clone();
        stores.push(snapshot.folder.join(FILES_DIR));
        stores.retain(|store| store.is_dir());
        Ok(Self {
            folder: snapshot.folder,
            stores,
            bucket: None,
            hub_commit: Some(snapshot.commit),
            is_copy: true,
        })
    }

    /// A run that was copied to a bucket, or a folder with shards in it.
    async fn find_in_bucket(args: &VerifyArgs, process: &Process) -> Result<Self, RunError> {
        let cache = args.downloads.clone().unwrap_or_else(default_cache_dir);
        let fetching = fetch_source(&args.dataset, &cache);
        let copy = until_interrupted(process, fetching).await??;
        let local = VerifyArgs {
            dataset: copy.unwrap_or_else(|| args.dataset.clone()),
            ..args.clone()
        };
        Ok(Self {
            is_copy: true,
            bucket: files_in_bucket(&args.dataset),
            ..Self::find_local(&local)?
        })
    }

    fn find_local(args: &VerifyArgs) -> Result<Self, RunError> {
        let root = project_root(Path::new("."));
        let asked = &args.dataset;
        let mut stores = args.files.clone();
        let is_dataset = read::shards(asked).is_ok();
        let folder = match is_dataset {
            true => asked.clone(),
            false => {
                let run = find_run(asked, &default_runs_dir(root.as_deref()));
                let run = run.map_err(|error| not_a_dataset(asked, &error))?;
                stores.push(run.join("files"));
                run.join("dataset")
            }
        };
        stores.push(folder.join(FILES_DIR));
        // If this is the dataset of a run, its files are in the run folder.
        stores.extend(folder.parent().map(|run| run.join("files")));
        stores.retain(|store| store.is_dir());
        Ok(Self {
            folder,
            stores,
            bucket: None,
            hub_commit: None,
            is_copy: false,
        })
    }
}

/// The input files of a run or dataset in a bucket. Without them, files are looked up elsewhere.
fn files_in_bucket(dataset: &Path) -> Option<Arc<dyn Store>> {
    files_at(dataset).unwrap_or_else(|error| {
        tracing::warn!("input files are not read from the bucket: {error}");
        None
    })
}

fn not_a_dataset(asked: &Path, error: &RunError) -> RunError {
    let asked = asked.display();
    RunError::BadInput(format!(
        "{asked}: neither a dataset (a folder with data/*.parquet or *.parquet), nor a run ({error}), nor \
         OWNER/NAME of a dataset on the Hub"
    ))
}
