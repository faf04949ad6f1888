//! Access control: checks the host name and the origin, then a token. Runs before a body is read.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_types::address::is_loopback_host;

pub(crate) use super::client::Client;
use super::error::ApiError;
use super::registry::Sandbox;
use super::{Service, Tokens, token as secrets};

/// Header in which E2B's client sends the sandbox ID.
pub(super) const SANDBOX_HEADER: &str = "e2b-sandbox-id";

/// Headers in which E2B's client sends the sandbox token.
const SANDBOX_TOKENS: [&str; 2] = ["x-access-token", "e2b-traffic-access-token"];

/// Name of all clients of a service without tokens.
const ANONYMOUS: &str = "anybody";

/// The credentials that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A token of the service.
    Client,
    /// The token of the sandbox that a header names.
    Sandbox,
    /// The sandbox's token if the header is present, otherwise a token of the service.
    Either,
}

/// The accepted host names and origins.
#[derive(Clone, Debug)]
pub(super) struct AllowedNames {
    /// In lower case and without brackets; those of the loopback are accepted as well.
    hosts: Vec<String>,
    origins: Vec<String>,
    /// Whether the server has pages of its own, which may call it.
    own_pages: bool,
}

impl AllowedNames {
    pub(super) fn new(address: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let names = hosts.iter().map(|host| host.to_ascii_lowercase());
        let mut names: Vec<String> = names.collect();
        if !address.ip().is_unspecified() {
            names.push(address.ip().to_string());
        }
        let hosts = names;
        Self {
            hosts,
            origins: origins.to_vec(),
            own_pages: false,
        }
    }

    /// Also accepts the origin of the server itself.
    pub(super) fn with_own_pages(self, own_pages: bool) -> Self {
        Self { own_pages, ..self }
    }

    /// Whether a `Host` header is accepted. This blocks DNS rebinding: a web page that points its own name at
    /// this address sends its own name here.
    fn host(&self, host: &str) -> bool {
        let Ok(uri) = host.parse::<Uri>() else {
            return false;
        };
        let Some(name) = uri.host().map(str::to_ascii_lowercase) else {
            return false;
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        is_loopback_host(&name) || self.hosts.iter().any(|known| known == bare)
    }

    /// Whether an `Origin` header is accepted, in a request to an accepted host.
    fn origin(&self, origin: &str, host: &str) -> bool {
        let scheme = ["http://", "https://"].iter();
        let mut names = scheme.filter_map(|scheme| origin.strip_prefix(scheme));
        let is_own = self.own_pages && names.next() == Some(host);
        is_own || self.origins.iter().any(|known| known == origin)
    }
}

/// Refuses requests with other host names and origins.
pub(super) async fn names(
    State(names): State<Arc<AllowedNames>>,
    request: Request,
    next: Next,
) -> Response {
    match check_names(&names, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check_names(names: &AllowedNames, headers: &HeaderMap) -> Result<(), ApiError> {
    let one = |name| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
            _ => Err(()),
        }
    };
    let forbidden = |text: &str| Err(ApiError::new(StatusCode::FORBIDDEN, text));
    let host = match one(HOST) {
        Ok(Some(host)) if names.host(host) => host,
        _ => return forbidden("this host name is not accepted; allow it with --host"),
    };
    match one(ORIGIN) {
        Ok(None) => Ok(()),
        Ok(Some(origin)) if names.origin(origin, host) => Ok(()),
        _ => forbidden("pages of this origin may not call the service; allow it with --origin"),
    }
}

/// Identifies the client or the sandbox of a request and adds it to the request's extensions.
pub(super) async fn authenticate(
    State((service, access)): State<(Arc<Service>, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    match identify(&service, access, request.headers()) {
        Ok(Who::Client(client)) => {
            request.extensions_mut().insert(client);
        }
        Ok(Who::Sandbox(sandbox)) => {
            sandbox.touch();
            request.extensions_mut().insert(sandbox);
        }
        Err(error) => return refuse(error),
    }
    next.run(request).await
}

/// Requires one of the tokens, if there are any.
pub(super) async fn token(
    State(tokens): State<Option<Tokens>>,
    request: Request,
    next: Next,
) -> Response {
    let known = |tokens: &Tokens| {
        let token = presented(request.headers());
        token.is_some_and(|token| tokens.client(&token).is_some())
    };
    match tokens.as_ref().is_none_or(known) {
        true => next.run(request).await,
        false => refuse(unauthorized()),
    }
}

enum Who {
    Client(Client),
    Sandbox(Arc<Sandbox>),
}

fn identify(service: &Service, access: Access, headers: &HeaderMap) -> Result<Who, ApiError> {
    let named = headers.contains_key(SANDBOX_HEADER);
    match access {
        Access::Client => client(service, headers).map(Who::Client),
        Access::Either if !named => client(service, headers).map(Who::Client),
        Access::Sandbox | Access::Either => sandbox(service, headers).map(Who::Sandbox),
    }
}

fn client(service: &Service, headers: &HeaderMap) -> Result<Client, ApiError> {
    let Some(tokens) = &service.options.tokens else {
        return Ok(Client(ANONYMOUS.into()));
    };
    let found = presented(headers).and_then(|token| tokens.client(&token).map(Arc::from));
    found.map(Client).ok_or_else(unauthorized)
}

/// The token of a request: `Authorization: Bearer`, the password of `Authorization: Basic` (which a URL can
/// contain), or E2B's `X-API-KEY`.
fn presented(headers: &HeaderMap) -> Option<String> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok().map(str::to_owned);
    }
    let (scheme, value) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(value.trim().to_owned()),
        "basic" => {
            let pair = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
            Some(pair.split_once(':')?.1.to_owned())
        }
        _ => None,
    }
}

fn sandbox(service: &Service, headers: &HeaderMap) -> Result<Arc<Sandbox>, ApiError> {
    let id = headers.get(SANDBOX_HEADER).and_then(|id| id.to_str().ok());
    let id = id.ok_or_else(|| ApiError::bad(format!("the header {SANDBOX_HEADER} is missing")))?;
    // E2B's client recognizes a dead sandbox by this status and text.
    let gone = || ApiError::new(StatusCode::BAD_GATEWAY, "The sandbox was not found");
    let sandbox = service.registry.get(id).ok_or_else(gone)?;
    let mut given = SANDBOX_TOKENS.iter().filter_map(|name| headers.get(*name));
    let matches = given.any(|value| {
        value
            .to_str()
            .is_ok_and(|t| secrets::constant_time_eq(t, &sandbox.token))
    });
    let owner = || client(service, headers).is_ok_and(|client| client == sandbox.client);
    match matches || (service.options.tokens.is_some() && owner()) {
        true => Ok(sandbox),
        false => Err(unauthorized()),
    }
}

fn unauthorized() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong")
}

fn refuse(error: ApiError) -> Response {
    let status = error.status;
    let mut response = error.into_response();
    if status == StatusCode::UNAUTHORIZED {
        let value = axum::http::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(ip: &str) -> AllowedNames {
        let address = SocketAddr::new(ip.parse().unwrap(), 80);
        let origins = ["https://chat.example".to_owned()];
        AllowedNames::new(address, &["Box.Example".to_owned()], &origins)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn only_accepted_host_names_pass() {
        let names = names_of("10.0.0.7");
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:80",
            "10.0.0.7",
            "box.example:9",
        ] {
            assert!(names.host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.example",
            "10.0.0.8",
            "a b",
            "user@localhost:80@evil",
        ] {
            assert!(!names.host(host), "{host}");
        }
        assert!(!names_of("0.0.0.0").host("0.0.0.0"));
    }

    #[test]
    fn other_origins_and_repeated_headers_are_refused() {
        let names = names_of("127.0.0.1");
        let ok = |pairs: &[(&'static str, &str)]| check_names(&names, &headers(pairs)).is_ok();
        assert!(ok(&[("host", "localhost:1")]));
        assert!(ok(&[
            ("host", "localhost:1"),
            ("origin", "https://chat.example")
        ]));
        assert!(!ok(&[]));
        assert!(!ok(&[("host", "localhost"), ("host", "evil")]));
        for origin in [
            "null",
            "http://localhost:1",
            "https://chat.example.evil",
            "",
        ] {
            assert!(
                !ok(&[("host", "localhost:1"), ("origin", origin)]),
                "{origin}"
            );
        }
    }

    #[test]
    fn only_a_server_with_pages_answers_its_own_origin() {
        let ok = |own_pages, host: &str, origin: &str| {
            let names = names_of("127.0.0.1").with_own_pages(own_pages);
            check_names(&names, &headers(&[("host", host), ("origin", origin)])).is_ok()
        };
        assert!(ok(true, "localhost:1", "http://localhost:1"));
        assert!(ok(true, "127.0.0.1:1", "http://127.0.0.1:1"));
        assert!(!ok(false, "localhost:1", "http://localhost:1"));
        for origin in [
            "http://localhost:2",
            "http://127.0.0.1:1",
            "null",
            "ftp://localhost:1",
            "localhost:1",
        ] {
            assert!(!ok(true, "localhost:1", origin), "{origin}");
        }
        assert!(!ok(true, "evil.example", "http://evil.example"));
    }

    #[test]
    fn tokens_are_found_in_three_headers() {
        let token = |name, value: &str| presented(&headers(&[(name, value)]));
        let basic = format!("Basic {}", STANDARD.encode("me:s3cret"));
        for found in [
            token("x-api-key", "s3cret"),
            token("authorization", "bearer s3cret"),
            token("authorization", &basic),
        ] {
            assert_eq!(found.as_deref(), Some("s3cret"));
        }
        for (name, value) in [
            ("authorization", "s3cret"),
            ("authorization", "Basic !!"),
            ("cookie", "s3cret"),
        ] {
            assert_eq!(token(name, value), None);
        }
    }

    #[test]
    fn fuzz_headers() {
        bolero::check!().with_type::<(String, String)>().for_each(
            |(host, value): &(String, String)| {
                let names = names_of("127.0.0.1");
                names.host(host);
                let mut map = HeaderMap::new();
                if let Ok(value) = value.parse() {
                    map.insert(AUTHORIZATION, value);
                    presented(&map);
                }
            },
        );
    }
}
