//! Where a dataset is: on this machine, or on the Hub.

use std::path::{Path, PathBuf};

use pybench::run::cli::Process;
use pybench::run::project::{default_runs_dir, find_run, project_root};
use pybench::run::{RunError, default_cache_dir};
use pybench_datasets::dataset::FILES;
use pybench_datasets::read;

use super::VerifyArgs;
use crate::hub::{Pin, Snapshot, until_asked_to_stop};

/// A dataset on this machine.
pub(super) struct Place {
    /// With the shards.
    pub(super) folder: PathBuf,
    /// With files under their digests.
    pub(super) stores: Vec<PathBuf>,
    /// The commit of the Hub whose state it is; such a folder is nobody's to write into.
    pub(super) of_hub: Option<String>,
}

impl Place {
    /// A folder or run of this machine, where there is one of that name; a dataset of the Hub otherwise, which
    /// is fetched.
    pub(super) async fn find(args: &VerifyArgs, process: &Process) -> Result<Self, RunError> {
        let asked = args.dataset.to_string_lossy();
        let neither = match asked.starts_with("hf://") {
            true => None,
            false => match Self::here(args) {
                Ok(place) => return Ok(place),
                Err(error) => Some(error),
            },
        };
        let pin = match (Pin::parse(&asked), neither) {
            // What lies here, and is no dataset, is not looked for elsewhere.
            (_, Some(error)) if args.dataset.exists() => return Err(error),
            (Ok(pin), _) => pin,
            (Err(_), Some(error)) => return Err(error),
            (Err(form), None) => return Err(RunError::BadInput(form)),
        };
        let cache = args.downloads.clone().unwrap_or_else(default_cache_dir);
        let fetching = Snapshot::fetch(&pin, &cache, args.offline);
        let snapshot = until_asked_to_stop(process, fetching).await??;
        tracing::info!(
            "{pin} at {} lies in {}",
            snapshot.commit,
            snapshot.folder.display()
        );
        let mut stores = args.files.clone();
        stores.push(snapshot.folder.join(FILES));
        stores.retain(|store| store.is_dir());
        Ok(Self {
            folder: snapshot.folder,
            stores,
            of_hub: Some(snapshot.commit),
        })
    }

    fn here(args: &VerifyArgs) -> Result<Self, RunError> {
        let root = project_root(Path::new("."));
        let asked = &args.dataset;
        let mut stores = args.files.clone();
        let is_dataset = read::shards(asked).is_ok();
        let folder = match is_dataset {
            true => asked.clone(),
            false => {
                let run = find_run(asked, &default_runs_dir(root.as_deref()));
                let run = run.map_err(|error| neither(asked, &error))?;
                stores.push(run.join("files"));
                run.join("dataset")
            }
        };
        stores.push(folder.join(FILES));
        // The dataset of a run lies in the run's folder.
        stores.extend(folder.parent().map(|run| run.join("files")));
        stores.retain(|store| store.is_dir());
        Ok(Self {
            folder,
            stores,
            of_hub: None,
        })
    }
}

fn neither(asked: &Path, error: &RunError) -> RunError {
    let asked = asked.display();
    RunError::BadInput(format!(
        "{asked}: neither a dataset (a folder with data/*.parquet or *.parquet), nor a run ({error}), nor \
         OWNER/NAME of a dataset on the Hub"
    ))
}
