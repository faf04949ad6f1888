//! Answers that show files: how many are read at the same time, and HTML files in a frame that may do nothing.

use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use pybench_files::text;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::handlers::{ApiError, not_found};

/// Files that are read at the same time: each may take much memory.
static READERS: Semaphore = Semaphore::const_new(3);

/// Maximum size of an HTML file that is shown in a frame, bytes.
pub(crate) const MAX_FRAME: usize = 4 << 20;

/// What an HTML file may do: show its own texts, styles and pictures. It has no scripts, no forms, no network, and an origin
/// of its own, also if it is opened outside of the frame.
const FRAME_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; \
                            base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// Waits until another file may be read, which it may as long as the permit is kept.
pub(crate) async fn reader() -> Option<SemaphorePermit<'static>> {
    // The semaphore is never closed.
    READERS.acquire().await.ok()
}

/// An HTML file for a frame; `cache` says how long a browser keeps it.
///
/// # Errors
/// 404 if it is too large, or no text.
pub(crate) fn frame(html: &[u8], cache: &'static str) -> Result<Response, ApiError> {
    if html.len() > MAX_FRAME {
        return Err(not_found("the file is too large for a frame; download it"));
    }
    let decoded = text::decode(html).map_err(not_found)?;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, FRAME_POLICY),
        (CACHE_CONTROL, cache),
        // Links of the file would else be looked up before they are followed.
        (HeaderName::from_static("x-dns-prefetch-control"), "off"),
    ];
    Ok((headers, without_links(&decoded.text)).into_response())
}

/// HTML whose `<link>`, `<a>` and `<area>` elements are comments, so that their texts stay: browsers connect to the hosts
/// that links name, some at once and some when a person presses the mouse on them, and no policy prevents it.
fn without_links(html: &str) -> String {
    let (mut safe, mut from) = (String::with_capacity(html.len()), 0);
    for (at, _) in html.match_indices('<') {
        let name = html[at + 1..]
            .split(|c: char| !c.is_ascii_alphabetic())
            .next();
        let is_link = |name: &str| {
            ["a", "area", "link"]
                .iter()
                .any(|link| name.eq_ignore_ascii_case(link))
        };
        if name.is_some_and(is_link) {
            safe += &html[from..=at];
            safe.push('!');
            from = at + 1;
        }
    }
    safe + &html[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_comments() {
        let html = "é<LINK rel=preconnect href=//a><p title='<link>'>&lt;link<lin<A\thref=//a>b</a><area/><abbr><a";
        let safe = "é<!LINK rel=preconnect href=//a><p title='<!link>'>&lt;link<lin<!A\thref=//a>b</a><!area/><abbr><!a";
        assert_eq!(without_links(html), safe);
    }
}
