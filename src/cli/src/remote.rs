//! Runs, datasets and files on other machines, which commands read from copies in the machine's cache.

use std::path::PathBuf;

use pybench_hub::{fetch_files, fetch_source, until_interrupted};
use pybench_run::cli::Process;
use pybench_run::{RunError, default_cache_dir};

/// Replaces the address of a run or dataset (`hf://`, `s3://`, `gs://`, `az://`) by its copy; other paths stay.
pub(crate) async fn fetch(source: &mut PathBuf, process: &Process) -> Result<(), RunError> {
    let cache = default_cache_dir();
    let copy = until_interrupted(process, fetch_source(source, &cache)).await??;
    if let Some(copy) = copy {
        *source = copy;
    }
    Ok(())
}

/// As [`fetch`], for a file or a folder of any kind.
pub(crate) async fn fetch_input(path: &mut PathBuf, process: &Process) -> Result<(), RunError> {
    let cache = default_cache_dir();
    let copy = until_interrupted(process, fetch_files(path, &cache)).await??;
    if let Some(copy) = copy {
        *path = copy;
    }
    Ok(())
}
