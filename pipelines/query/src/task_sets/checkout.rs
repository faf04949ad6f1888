//! Checkouts of the repositories that built-in sets come from.

use std::path::{Path, PathBuf};

use pybench_net::git_origin::{Origin, own_checkout};
use pybench_run::RunError;

/// The user's checkout `$PYBENCH_SUITES/<name>`, or a verified one in the cache, which is fetched if it is not there.
///
/// # Errors
/// Git or the network is unavailable; a file differs from its commit.
pub(super) async fn checkout(
    origin: &Origin,
    name: &str,
    cache: &Path,
) -> Result<PathBuf, RunError> {
    if let Some(folder) = own_checkout(name) {
        return match folder.is_dir() {
            true => Ok(folder),
            false => Err(RunError::BadInput(format!(
                "{}: there is no checkout of {}; put one there, or unset PYBENCH_SUITES to download it",
                folder.display(),
                origin.repository
            ))),
        };
    }
    let folder = origin.checkout_dir(cache);
    if !folder.is_dir() {
        tracing::info!("fetching {} ({})", origin.repository, origin.license);
    }
    origin.fetch(origin.repository, &folder).await?;
    Ok(folder)
}
