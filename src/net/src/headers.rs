//! Headers of responses; untrusted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{HeaderMap, HeaderName, LINK, RETRY_AFTER};
use reqwest::{StatusCode, Url};

/// The text of a header, or an empty string.
pub fn text(headers: &HeaderMap, name: impl Into<HeaderName>) -> &str {
    let value = headers.get(name.into());
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// `Some` if the service asks for a retry later, with the delay if it names one.
pub fn retry_delay(status: StatusCode, headers: &HeaderMap) -> Option<Option<Duration>> {
    let exhausted = text(headers, HeaderName::from_static("x-ratelimit-remaining")) == "0";
    let after = text(headers, RETRY_AFTER)
        .parse()
        .ok()
        .map(Duration::from_secs);
    match status {
        StatusCode::TOO_MANY_REQUESTS => Some(after.or_else(|| time_to_reset(headers))),
        StatusCode::REQUEST_TIMEOUT => Some(after),
        // GitHub reports rate limits like this.
        StatusCode::FORBIDDEN if after.is_some() || exhausted => {
            Some(after.or_else(|| time_to_reset(headers)))
        }
        status if status.is_server_error() => Some(after),
        _ => None,
    }
}

/// Time until a used-up rate limit resets.
fn time_to_reset(headers: &HeaderMap) -> Option<Duration> {
    let at = text(headers, HeaderName::from_static("x-ratelimit-reset"));
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(at.parse().ok()?))?;
    at.duration_since(SystemTime::now()).ok()
}

/// URL of the next page (`Link: <url>; rel="next"`), which must have the same origin.
pub fn next(url: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = text(headers, LINK);
    let link = links.split(',').find(|link| {
        let mut parameters = link.split(';').skip(1).map(str::trim);
        parameters.any(|p| p == "rel=\"next\"" || p == "rel=next")
    })?;
    let target = link.split(';').next()?.trim();
    let target = target.strip_prefix('<')?.strip_suffix('>')?;
    let next = url.join(target).ok()?;
    (next.origin() == url.origin()).then_some(next)
}

/// Start of the range in `Content-Range: bytes 5-9/10`.
pub fn range_start(range: &str) -> Option<u64> {
    let (from, rest) = range.strip_prefix("bytes ")?.split_once('-')?;
    let (to, _) = rest.split_once('/')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn requests_for_a_later_retry_are_recognized() {
        let seconds = |status, pairs: &[(&'static str, &str)]| {
            retry_delay(status, &headers(pairs)).map(|after| after.map(|after| after.as_secs()))
        };
        let again = [("retry-after", "7")];
        assert_eq!(
            seconds(StatusCode::TOO_MANY_REQUESTS, &again),
            Some(Some(7))
        );
        assert_eq!(seconds(StatusCode::FORBIDDEN, &again), Some(Some(7)));
        assert_eq!(seconds(StatusCode::FORBIDDEN, &[]), None);
        assert_eq!(seconds(StatusCode::UNAUTHORIZED, &again), None);
        assert_eq!(
            seconds(StatusCode::BAD_GATEWAY, &[("retry-after", "soon")]),
            Some(None)
        );
        let past = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "5")];
        assert_eq!(seconds(StatusCode::FORBIDDEN, &past), Some(None));
        let future = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "99999999999"),
        ];
        assert!(seconds(StatusCode::FORBIDDEN, &future).flatten().is_some());
    }

    #[test]
    fn the_next_page_has_the_same_origin() {
        let url = Url::parse("https://h/api/tree?a=1").unwrap();
        let found = |link: &str| next(&url, &headers(&[("link", link)])).map(String::from);
        let expected = Some("https://h/api/tree?cursor=x".to_owned());
        assert_eq!(
            found("<https://h/api/tree?cursor=x>; rel=\"next\""),
            expected
        );
        assert_eq!(
            found("</y>; rel=\"prev\", </api/tree?cursor=x>; rel=\"next\""),
            expected
        );
        assert_eq!(found("<https://evil/api>; rel=\"next\""), None);
        assert_eq!(found("<https://h/api>; rel=\"last\""), None);
        assert_eq!(found("nonsense; rel=\"next\""), None);
    }

    #[test]
    fn content_ranges_are_parsed() {
        assert_eq!(range_start("bytes 5-9/10"), Some(5));
        assert_eq!(range_start("bytes 5-9/*"), Some(5));
        for wrong in [
            "",
            "bytes */10",
            "bytes 9-5/10",
            "bytes 5-9",
            "items 5-9/10",
            "bytes -9/10",
        ] {
            assert_eq!(range_start(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn fuzz_headers() {
        let url = Url::parse("https://h/api").unwrap();
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = range_start(&text);
            let Ok(value) = reqwest::header::HeaderValue::from_bytes(bytes) else {
                return;
            };
            let names = ["link", "retry-after", "x-ratelimit-reset"];
            let mut all: HeaderMap = names
                .map(|name| (HeaderName::from_static(name), value.clone()))
                .into_iter()
                .collect();
            all.insert("x-ratelimit-remaining", "0".parse().unwrap());
            let _ = retry_delay(StatusCode::FORBIDDEN, &all);
            assert!(next(&url, &all).is_none_or(|next| next.origin() == url.origin()));
        });
    }
}
