//! Blocking work.

use std::path::Path;

use pybench_run::{Failure, FailureKind};

/// Runs blocking work on a thread where it may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Failure::new(
            FailureKind::Internal,
            format!("a blocking task failed: {error}"),
        )),
    }
}

/// Converts an I/O error of `path`.
pub fn io_failure(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| {
        Failure::new(
            FailureKind::Internal,
            format!("{}: {error}", path.display()),
        )
    }
}
