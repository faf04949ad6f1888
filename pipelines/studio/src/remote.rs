//! Datasets and logs of the Hub (`hf://`) and of S3 (`s3://`): downloaded into the cache, and opened there.

use std::path::{Path, PathBuf};

use pybench_hub::{DatasetRef, Snapshot, until_interrupted};
use pybench_run::cli::Process;
use pybench_run::{RunError, S3File, S3Store, Store as _};
use pybench_types::id::Digest;
use tracing::info;

/// Maximum number of files that are downloaded from S3, and of bytes of all of them.
const MAX_FILES: usize = 100_000;
const MAX_TOTAL: u64 = 1 << 40;
/// Marker of a download that is complete.
const COMPLETE: &str = ".complete";

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
    if !address.starts_with("s3://") {
        return Ok(None);
    }
    let (address, cache) = (address.into_owned(), cache.to_owned());
    let work = tokio::task::spawn_blocking(move || of_s3(&address, &cache));
    let done = until_interrupted(process, work).await?;
    let done = done.map_err(|error| RunError::Internal(error.to_string()))?;
    done.map(Some)
}

/// Downloads the files of a dataset, or one file. A state of the files has a folder of its own, as a commit of the Hub has.
fn of_s3(address: &str, cache: &Path) -> Result<Remote, RunError> {
    let (store, key) = S3Store::of_address(address)?;
    let mut files = store.files(&key)?;
    files.retain(|file| is_wanted(below(&key, &file.key)));
    check_limits(address, &key, &files)?;
    let state = Digest::of_json(&(address, &files));
    let folder = cache.join("s3").join(state.short());
    let path = folder.join(&key);
    if !folder.join(COMPLETE).is_file() {
        for file in &files {
            download(&store, file, &folder.join(&file.key))?;
        }
        let marker = folder.join(COMPLETE);
        std::fs::write(&marker, "").map_err(RunError::io(marker.display().to_string()))?;
    }
    Ok(Remote { name: key, path })
}

fn download(store: &S3Store, file: &S3File, to: &Path) -> Result<(), RunError> {
    let size = || std::fs::metadata(to).map(|found| found.len());
    // A file appears when it is complete.
    if size().is_ok_and(|size| size == file.size) {
        return Ok(());
    }
    let fetched = store.fetch(&file.key, to)?;
    if !fetched || size().is_ok_and(|size| size != file.size) {
        let _ = std::fs::remove_file(to);
        return Err(RunError::BadInput(format!(
            "{}/{} was changed while it was downloaded; run the command again",
            store.describe(),
            file.key
        )));
    }
    info!("{} ({} bytes)", file.key, file.size);
    Ok(())
}

/// The path of a file below the folder `key`; empty for the file of that key itself.
fn below<'a>(key: &str, file: &'a str) -> &'a str {
    let rest = file.strip_prefix(key).unwrap_or(file);
    rest.strip_prefix('/').unwrap_or(rest)
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

fn check_limits(address: &str, key: &str, files: &[S3File]) -> Result<(), RunError> {
    let bad = |text: String| Err(RunError::BadInput(format!("{address}: {text}")));
    let has_rows = files
        .iter()
        .any(|file| !below(key, &file.key).starts_with("files/"));
    let total = files
        .iter()
        .fold(0, |sum: u64, file| sum.saturating_add(file.size));
    match (has_rows, files.len() > MAX_FILES, total > MAX_TOTAL) {
        (false, ..) => bad(
            "there is no dataset: neither the path nor its folder data/ has a .parquet, .jsonl, .json or .eval file"
                .to_owned(),
        ),
        (_, true, _) => bad(format!("{} files; at most {MAX_FILES} are downloaded", files.len())),
        (_, _, true) => bad(format!("{total} bytes; at most {MAX_TOTAL} are downloaded")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(key: &str, size: u64) -> S3File {
        S3File {
            key: key.to_owned(),
            size,
            version: "v".to_owned(),
        }
    }

    #[test]
    fn only_rows_logs_and_their_files_are_downloaded() {
        let digest = "ab".repeat(32);
        for path in [
            "d",
            "d/rows.jsonl",
            "d/data/train-0.parquet",
            "d/a.eval",
            &format!("d/files/ab/{digest}"),
        ] {
            assert!(is_wanted(below("d", path)), "{path}");
        }
        for path in [
            "d/README.md",
            "d/model.safetensors",
            "d/plots/a.svg",
            "d/x/y.parquet",
            "d/files/ab/x",
            &format!("d/files/cd/{digest}"),
        ] {
            assert!(!is_wanted(below("d", path)), "{path}");
        }
    }

    #[test]
    fn limits_are_checked_before_any_download() {
        let problem = |files: &[S3File]| {
            check_limits("s3://b/d", "d", files)
                .unwrap_err()
                .to_string()
        };
        assert!(check_limits("s3://b/d", "d", &[file("d/a.parquet", 1)]).is_ok());
        assert!(check_limits("s3://b/d.json", "d.json", &[file("d.json", 1)]).is_ok());
        assert!(problem(&[]).contains("no dataset"));
        assert!(problem(&[file("d/files/ab/x", 1)]).contains("no dataset"));
        assert!(
            problem(&[file("d/a.parquet", u64::MAX), file("d/b.parquet", 9)])
                .contains("bytes; at most")
        );
        let many = vec![file("d/a.parquet", 0); MAX_FILES + 1];
        assert!(problem(&many).contains("100001 files"));
    }
}
