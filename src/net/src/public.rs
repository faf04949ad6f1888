//! Connections to public addresses only, for URLs that come from a dataset.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pybench_types::address::is_public;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{ClientBuilder, Url};

/// Resolves names to their public addresses; a name that has none is an error.
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|found| is_public(found.ip())).collect();
            match public.is_empty() {
                true => Err(format!("{} has no public address", name.as_str()).into()),
                false => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

/// A client that connects to public addresses only, also after a redirect. It uses no proxy, which would resolve names
/// itself.
pub(super) fn restrict(client: ClientBuilder) -> ClientBuilder {
    let redirect = |attempt: Attempt<'_>| match check(attempt.url()) {
        Ok(()) => super::redirect(attempt),
        Err(reason) => attempt.error(reason),
    };
    client
        .no_proxy()
        .dns_resolver(Arc::new(PublicResolver))
        .redirect(Policy::custom(redirect))
}

/// Checks the address in a URL, which is not resolved.
pub(super) fn check(url: &Url) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    match address.is_none_or(is_public) {
        true => Ok(()),
        false => Err(format!("{host} is not a public address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_urls_are_checked_however_they_are_written() {
        let check = |text: &str| check(&Url::parse(text).unwrap());
        for text in [
            "https://example.org/a",
            "http://93.184.216.34/a",
            "http://[2606:2800:220:1::1]/",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in [
            "http://127.0.0.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://[::1]:80/",
            "http://[::ffff:10.0.0.1]/",
            "http://169.254.169.254/latest/meta-data",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
