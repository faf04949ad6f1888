//! Who may ask. The link that the command prints holds a token; it is exchanged for a cookie that other sites cannot
//! make the browser send.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, COOKIE, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const COOKIE_NAME: &str = "pybench_studio";

/// What pages may load: nothing from elsewhere, no inline scripts.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                          font-src 'self'; frame-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; \
                          frame-ancestors 'none'";

/// The secret of a running studio.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// A new one, of 256 random bits.
    pub fn new() -> Self {
        let bytes: [u8; 32] = rand::random();
        Self(blake3::Hash::from(bytes).to_hex().as_str().into())
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    fn is(&self, given: &str) -> bool {
        // The comparison of hashes takes the same time wherever they differ.
        blake3::hash(given.as_bytes()) == blake3::hash(self.0.as_bytes())
    }
}

/// Answers the opening link with a cookie, and refuses requests without it.
pub async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    let given = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("token="));
    if request.uri().path() == "/" && given.is_some_and(|given| token.is(given)) {
        return admitted(&token);
    }
    if !cookie(request.headers()).is_some_and(|given| token.is(given)) {
        let text =
            "Open the link that `pybench studio` printed: it holds the token of this session.\n";
        return (StatusCode::UNAUTHORIZED, text).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn admitted(token: &Token) -> Response {
    let cookie = format!(
        "{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict",
        token.text()
    );
    (
        StatusCode::SEE_OTHER,
        [(SET_COOKIE, cookie), (LOCATION, "/".to_owned())],
    )
        .into_response()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}
