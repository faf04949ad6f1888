//! Downloads files from the Hub with retries.

use reqwest::Url;

use super::client::{retry_delay, with_retries};
use pybench_net::Limits;
use pybench_net::{Download, Expected, FetchError, Service};

/// Downloads a file. An interrupted download resumes, in this process or in a later one.
pub(super) async fn download(
    service: &Service,
    url: &Url,
    expected: &Expected,
    limits: Limits,
) -> Result<Download, FetchError> {
    let attempt = || service.download_to_move(url.clone(), expected, limits);
    let delay = |error: &FetchError, attempts| match error {
        FetchError::Failed(failure) if failure.retryable => {
            retry_delay(attempts, failure.retry_after)
        }
        _ => None,
    };
    with_retries(attempt, delay).await
}
