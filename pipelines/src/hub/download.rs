//! Files of the Hub, tried again where that may help.

use reqwest::Url;

use super::client::{persistently, rest_after};
use crate::crawl::source::Limits;
use crate::crawl::source::web::{Expected, Parcel, Service, Trouble};

/// A file; what broke off goes on where it did, in this process or in a later one.
pub(super) async fn download(
    service: &Service,
    url: &Url,
    expected: &Expected,
    limits: Limits,
) -> Result<Parcel, Trouble> {
    let ask = || service.parcel(url.clone(), expected, limits);
    let rest = |trouble: &Trouble, tries| match trouble {
        Trouble::Failed(failure) if failure.retryable => rest_after(tries, failure.retry_after),
        _ => None,
    };
    persistently(ask, rest).await
}
