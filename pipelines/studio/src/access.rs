//! Who may ask. The link that the command prints holds a token; it is exchanged for a cookie that other sites cannot make
//! the browser send. The server in front checks `Host` and `Origin`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION,
    ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// What pages may load: nothing from elsewhere, no inline scripts. Images of outputs are in the page's data.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; media-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const REFUSED: &str = "Open the link that `pybench studio` printed: it holds the token of this session. Programs send it \
                       as `Authorization: Bearer TOKEN`.\n";

/// The secret of a running studio.
#[derive(Clone)]
pub(crate) struct Token {
    secret: Arc<str>,
    /// Cookies are shared by all ports of a host; the name tells the studios apart.
    cookie: Arc<str>,
    /// Digest of a code that can be exchanged for the cookie once.
    code: Arc<Mutex<Option<blake3::Hash>>>,
}

impl Token {
    /// A new one, of 256 random bits, for the studio at this port.
    pub(crate) fn new(port: u16) -> Self {
        let bytes: [u8; 32] = rand::random();
        Self {
            secret: blake3::Hash::from(bytes).to_hex().as_str().into(),
            cookie: format!("pybench_studio_{port}").into(),
            code: Arc::default(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.secret
    }

    /// A code for a link that opens the studio once. Other users of the machine see the arguments of the program that opens
    /// a browser, and may not learn the token from them.
    pub(crate) fn one_time_code(&self) -> String {
        let code = blake3::Hash::from(rand::random::<[u8; 32]>()).to_hex();
        *self.lock_code() = Some(blake3::hash(code.as_bytes()));
        code.to_string()
    }

    /// Whether this is the code, which is not valid a second time.
    fn takes(&self, given: &str) -> bool {
        let mut code = self.lock_code();
        let is_code = *code == Some(blake3::hash(given.as_bytes()));
        if is_code {
            *code = None;
        }
        is_code
    }

    fn lock_code(&self) -> MutexGuard<'_, Option<blake3::Hash>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the query is that of a link which opens the studio.
    fn is_in_link(&self, query: &str) -> bool {
        let token = query.strip_prefix("token=");
        let code = query.strip_prefix("once=");
        token.is_some_and(|given| self.is(given)) || code.is_some_and(|given| self.takes(given))
    }

    fn is(&self, given: &str) -> bool {
        // The comparison of hashes takes the same time wherever they differ.
        blake3::hash(given.as_bytes()) == blake3::hash(self.secret.as_bytes())
    }

    fn is_sent(&self, headers: &HeaderMap) -> bool {
        self.is_in_header(headers) || self.is_in_cookie(headers)
    }

    /// Whether a program sent it. Pages of other sites cannot.
    fn is_in_header(&self, headers: &HeaderMap) -> bool {
        let mut bearer =
            texts(headers, AUTHORIZATION).filter_map(|value| value.strip_prefix("Bearer "));
        bearer.any(|given| self.is(given.trim()))
    }

    fn is_in_cookie(&self, headers: &HeaderMap) -> bool {
        let pairs = texts(headers, COOKIE).flat_map(|value| value.split(';'));
        let mut cookies = pairs.filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == &*self.cookie).then_some(value)
        });
        cookies.any(|given| self.is(given.trim()))
    }
}

/// The values of a header that are text.
fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    values.filter_map(|value: &HeaderValue| value.to_str().ok())
}

/// Why a request that may change something is refused. A page of another site could make the browser send one with the
/// cookie, but not with its own origin as `Origin`, and not as JSON.
fn write_problem(token: &Token, request: &Request) -> Option<(StatusCode, &'static str)> {
    let headers = request.headers();
    if request.method().is_safe() {
        return None;
    }
    if !token.is_in_header(headers) && !is_from_own_page(headers) {
        let text = "only pages of the studio, and programs that send the token as `Authorization: Bearer TOKEN`, can \
                    change something";
        return Some((StatusCode::FORBIDDEN, text));
    }
    let is_json = |value: &str| {
        let kind = value.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    };
    if !texts(headers, CONTENT_TYPE).any(is_json) {
        let text = "send JSON, with the header `Content-Type: application/json`";
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    None
}

/// Whether the browser names the studio itself as the origin of the page that sends the request.
fn is_from_own_page(headers: &HeaderMap) -> bool {
    let (origin, host) = (headers.get(ORIGIN), headers.get(HOST));
    let text = |value: Option<&HeaderValue>| value?.to_str().ok().map(str::to_owned);
    let (Some(origin), Some(host)) = (text(origin), text(host)) else {
        return false;
    };
    [format!("http://{host}"), format!("https://{host}")].contains(&origin)
}

/// Answers the opening link with a cookie, and refuses requests without it.
pub(crate) async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    let query = request.uri().query();
    let is_link = query.is_some_and(|query| token.is_in_link(query));
    let refused = write_problem(&token, &request);
    let mut response = match is_link {
        true => admitted(&token, request.uri().path()),
        false if token.is_sent(request.headers()) => match refused {
            None => next.run(request).await,
            Some((status, text)) => (status, Json(json!({"message": text}))).into_response(),
        },
        false => (StatusCode::UNAUTHORIZED, REFUSED).into_response(),
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
