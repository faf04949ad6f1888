//! Datasets and logs of the Hub (`hf://`), and runs, datasets and logs in buckets (`s3://`, `gs://`, `az://`): downloaded into
//! the cache, and opened there.

use std::path::{Path, PathBuf};

use pybench_hub::{DatasetRef, Snapshot, fetch_from_bucket, until_interrupted};
use pybench_run::RunError;
use pybench_run::cli::Process;
use pybench_types::id::Digest;

/// A dataset or log that was downloaded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// Its name in addresses of pages.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Downloads what an address names; `None` if the text is a path of this machine. What is in `cache` already is not
/// downloaded again.
///
/// # Errors
/// [`RunError::BadInput`] for a wrong address, or if there is no dataset; errors of the Hub, of S3 and of the disk;
/// [`RunError::Interrupted`] after Ctrl-C.
pub(crate) async fn fetch(
    what: &Path,
    cache: &Path,
    process: &Process,
) -> Result<Option<Remote>, RunError> {
    let address = what.to_string_lossy();
    if address.starts_with("hf://") {
        let pin = DatasetRef::parse(&address).map_err(RunError::BadInput)?;
        let snapshot = until_interrupted(process, Snapshot::fetch(&pin, cache, false)).await??;
        let name = pin.name.rsplit('/').next().unwrap_or(&pin.name);
        return Ok(Some(Remote {
            name: name.to_owned(),
            path: snapshot.folder,
        }));
    }
    let fetching = fetch_from_bucket(what, cache, is_wanted);
    let copied = until_interrupted(process, fetching).await??;
    Ok(copied.map(|path| Remote {
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        path,
    }))
}

/// Whether a file of a dataset is needed here: rows, logs, and input files under their digests. Keys have no part that is
/// `..` or begins with a dot.
fn is_wanted(path: &str) -> bool {
    let is_rows = |name: &str| {
        let end = name.rsplit_once('.').map(|(_, end)| end);
        matches!(end, Some("parquet" | "jsonl" | "json" | "eval"))
    };
    match path.split('/').collect::<Vec<_>>()[..] {
        [""] => true,
        [name] | ["data", name] => is_rows(name),
        ["files", part, name] => {
            let is_digest = Digest::try_from(name.to_owned()).is_ok();
            is_digest && part == &name[..2]
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_logs_and_their_files_are_downloaded() {
        let digest = "ab".repeat(32);
        for path in [
            "",
            "rows.jsonl",
            "data/train-0.parquet",
            "a.eval",
            &format!("files/ab/{digest}"),
        ] {
            assert!(is_wanted(path), "{path}");
        }
        for path in [
            "README.md",
            "model.safetensors",
            "plots/a.svg",
            "x/y.parquet",
            "files/ab/x",
            &format!("files/cd/{digest}"),
        ] {
            assert!(!is_wanted(path), "{path}");
        }
    }
}
