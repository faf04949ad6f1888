//! Who may ask. The link that the command prints holds a token; it is exchanged for a cookie that other sites cannot make
//! the browser send. The server in front checks `Host` and `Origin`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// What pages may load: nothing from elsewhere, no inline scripts. Images of outputs are in the page's data.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const REFUSED: &str = "Open the link that `pybench studio` printed: it holds the token of this session. Programs send it \
                       as `Authorization: Bearer TOKEN`.\n";

/// The secret of a running studio.
#[derive(Clone)]
pub(crate) struct Token {
    secret: Arc<str>,
    /// Cookies are shared by all ports of a host; the name tells the studios apart.
    cookie: Arc<str>,
}

impl Token {
    /// A new one, of 256 random bits, for the studio at this port.
    pub(crate) fn new(port: u16) -> Self {
        let bytes: [u8; 32] = rand::random();
        Self {
            secret: blake3::Hash::from(bytes).to_hex().as_str().into(),
            cookie: format!("pybench_studio_{port}").into(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.secret
    }

    fn is(&self, given: &str) -> bool {
        // The comparison of hashes takes the same time wherever they differ.
        blake3::hash(given.as_bytes()) == blake3::hash(self.secret.as_bytes())
    }

    fn is_sent(&self, headers: &HeaderMap) -> bool {
        let texts = |name| {
            let values = headers.get_all(name).iter();
            values.filter_map(|value: &HeaderValue| value.to_str().ok())
        };
        let bearer = texts(AUTHORIZATION).filter_map(|value| value.strip_prefix("Bearer "));
        let pairs = texts(COOKIE).flat_map(|value| value.split(';'));
        let cookies = pairs.filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == &*self.cookie).then_some(value)
        });
        bearer.chain(cookies).any(|given| self.is(given.trim()))
    }
}

/// Answers the opening link with a cookie, and refuses requests without it.
pub(crate) async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    let link = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("token="));
    let mut response = match link {
        Some(given) if token.is(given) => admitted(&token, request.uri().path()),
        _ if token.is_sent(request.headers()) => next.run(request).await,
        _ => (StatusCode::UNAUTHORIZED, REFUSED).into_response(),
    };
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(POLICY);
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(policy);
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(CACHE_CONTROL).or_insert(no_store);
    for (name, value) in [
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sets the cookie and opens the same page without the token in its address.
fn admitted(token: &Token, path: &str) -> Response {
    let cookie = format!(
        "{}={}; Path=/; HttpOnly; SameSite=Strict",
        token.cookie, token.secret
    );
    // A path such as `//example.org` would be another host.
    let path = format!("/{}", path.trim_start_matches('/'));
    let headers = [(SET_COOKIE, cookie), (LOCATION, path)];
    (StatusCode::SEE_OTHER, headers).into_response()
}
