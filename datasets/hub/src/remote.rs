//! What recipes and commands name on other machines: on the Hub (`hf://`) and in buckets (`s3://`, `gs://`, `az://`). One
//! resolver for all: it downloads into the cache, once, and returns the path of the copy.

use std::path::{Path, PathBuf};

use pybench_run::project::{find_run, is_in_bucket};
use pybench_run::{RunContext, RunError, local_copy, local_copy_of};

use super::path::HubPath;
use super::snapshot::{DatasetRef, Snapshot, is_dataset_file};

/// Folder of the dataset in a run folder.
const DATASET: &str = "dataset";

fn is_on_hub(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("hf://"))
}

/// Whether a path is an address on the Hub or in a bucket.
pub fn is_address(path: &Path) -> bool {
    is_on_hub(path) || is_in_bucket(path)
}

/// The copy in `cache` of the file or folder that an address names; `None` if the path is one of this machine.
///
/// # Errors
/// [`RunError::BadInput`] for a wrong address, or if there is nothing of that name; errors of the Hub and of the bucket.
pub async fn fetch_files(address: &Path, cache: &Path) -> Result<Option<PathBuf>, RunError> {
    let (address, cache) = (address.to_owned(), cache.to_owned());
    if !is_on_hub(&address) {
        return blocking(move || local_copy(&address, &cache)).await;
    }
    let path = HubPath::parse(&address.to_string_lossy()).map_err(RunError::BadInput)?;
    // Stages await this in futures that move between threads, which that of a download cannot.
    let runtime = tokio::runtime::Handle::current();
    blocking(move || runtime.block_on(path.fetch(&cache)).map(Some)).await
}

/// As [`fetch_files`]; of a run that was copied to a bucket when it ended, its run folder.
///
/// # Errors
/// As [`fetch_files`].
pub async fn fetch_any(address: &Path, cache: &Path) -> Result<Option<PathBuf>, RunError> {
    match is_in_bucket(address) {
        true => fetch_from_bucket(address, cache, is_no_pointer).await,
        false => fetch_files(address, cache).await,
    }
}

/// The copy in `cache` of a run or dataset on another machine; `None` if the path is one of this machine. Files that are no part
/// of a dataset are not downloaded.
///
/// # Errors
/// As [`fetch_files`].
pub async fn fetch_source(source: &Path, cache: &Path) -> Result<Option<PathBuf>, RunError> {
    if is_on_hub(source) {
        let pin = DatasetRef::parse(&source.to_string_lossy()).map_err(RunError::BadInput)?;
        let snapshot = Snapshot::fetch(&pin, cache, false).await?;
        return Ok(Some(snapshot.folder));
    }
    fetch_from_bucket(source, cache, is_of_dataset).await
}

/// Whether a file of a folder is another one than those by which a run folder names a journal on a server or a bucket. A bucket
/// does not choose which servers, buckets and files of this machine a command reads.
fn is_no_pointer(path: &str) -> bool {
    !pybench_run::POINTERS.contains(&path)
}

/// Whether a file below a folder of a bucket belongs to a dataset; empty for a file that is named itself.
fn is_of_dataset(path: &str) -> bool {
    let is_list = path.ends_with(".jsonl") && !path.contains('/');
    path.is_empty() || is_list || is_dataset_file(path)
}

/// The copy in `cache` of what an address in a bucket names: a run that was copied there, its dataset, or else the wanted files
/// below it, by their paths; a file that is named itself has an empty one. `None` for other paths.
///
/// # Errors
/// As [`fetch_files`].
pub async fn fetch_from_bucket(
    address: &Path,
    cache: &Path,
    is_wanted: fn(&str) -> bool,
) -> Result<Option<PathBuf>, RunError> {
    if !is_in_bucket(address) {
        return Ok(None);
    }
    let (address, cache) = (address.to_owned(), cache.to_owned());
    blocking(move || match find_run_or_dataset(&address) {
        Ok(found) => Ok(Some(found)),
        Err(RunError::BadInput(no_run)) => {
            let copied = local_copy_of(&address, &cache, is_wanted);
            copied.map_err(|error| match error {
                RunError::BadInput(text) => RunError::BadInput(format!("{text}; {no_run}")),
                error => error,
            })
        }
        Err(error) => Err(error),
    })
    .await
}

/// The copy of a run, or of its folder `dataset`.
fn find_run_or_dataset(address: &Path) -> Result<PathBuf, RunError> {
    let no_run = match find_run(address, Path::new(".")) {
        Err(RunError::BadInput(no_run)) => no_run,
        found => return found,
    };
    let dataset = address
        .parent()
        .filter(|_| address.ends_with(DATASET))
        .map(|run| find_run(run, Path::new(".")))
        .transpose();
    match dataset {
        Ok(Some(run)) if run.join(DATASET).is_dir() => Ok(run.join(DATASET)),
        Ok(_) | Err(RunError::BadInput(_)) => Err(RunError::BadInput(no_run)),
        Err(error) => Err(error),
    }
}

/// A file or folder that a recipe names: on this machine as [`RunContext::resolve`] finds it, or its copy in the cache.
///
/// # Errors
/// As [`fetch_files`]; an address on the Hub without a commit, which would name other bytes tomorrow.
pub async fn fetch_input(context: &RunContext, path: &Path) -> Result<PathBuf, RunError> {
    if is_on_hub(path) {
        let named = HubPath::parse(&path.to_string_lossy()).map_err(RunError::BadInput)?;
        if named.commit().is_none() {
            return Err(RunError::BadInput(format!(
                "{named}: a recipe names a commit, so that it always reads the same bytes: \
                 hf://[datasets/]OWNER/NAME@COMMIT[/PATH], with all 40 digits"
            )));
        }
    }
    let copy = fetch_files(path, &context.cache_dir).await?;
    Ok(copy.unwrap_or_else(|| context.resolve(path)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, RunError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| RunError::Internal(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paths_of_this_machine_are_left_alone() {
        let cache = tempfile::tempdir().unwrap();
        let path = Path::new("data/files");
        assert!(!is_address(path) && is_address(Path::new("hf://o/n")));
        assert_eq!(fetch_files(path, cache.path()).await.unwrap(), None);
        assert_eq!(fetch_any(path, cache.path()).await.unwrap(), None);
        assert_eq!(fetch_source(path, cache.path()).await.unwrap(), None);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn wrong_addresses_are_refused_without_a_request() {
        let cache = tempfile::tempdir().unwrap();
        for (address, expected) in [
            ("hf://o", "expected hf://"),
            ("s3://bucket", "expected s3://BUCKET/PATH"),
            ("az://container", "az://CONTAINER/PATH"),
        ] {
            let error = fetch_files(Path::new(address), cache.path()).await;
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
