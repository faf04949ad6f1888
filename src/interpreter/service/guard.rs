//! Who may ask: names and origins first, then a token. Runs before a body is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::Refusal;
use super::registry::Sandbox;
use super::{Service, Tokens, token as secrets};

/// What E2B's client names its sandbox by.
pub(super) const SANDBOX_HEADER: &str = "e2b-sandbox-id";

/// Where E2B's client puts the token of its sandbox.
const SANDBOX_TOKENS: [&str; 2] = ["x-access-token", "e2b-traffic-access-token"];

/// The client of a service without tokens.
const ANYBODY: &str = "anybody";

/// Whom a request comes from, as [`authenticate`] found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client(pub(super) Arc<str>);

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A token of the service.
    Client,
    /// The token of the sandbox that a header names.
    Sandbox,
    /// The sandbox's where the header is there, the service's otherwise.
    Either,
}

/// The names by which the service may be called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Names {
    pub(super) fn new(address: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let mut names = vec!["localhost".to_owned()];
        names.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        if !address.ip().is_unspecified() {
            names.push(address.ip().to_string());
        }
        let hosts = names;
        let origins = origins.to_vec();
        Self { hosts, origins }
    }

    /// Whether a `Host` is one of ours: a page that has pointed its own name at us names itself.
    fn host(&self, host: &str) -> bool {
        let Ok(uri) = host.parse::<Uri>() else {
            return false;
        };
        let Some(name) = uri.host().map(str::to_ascii_lowercase) else {
            return false;
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let loopback = bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        loopback || self.hosts.iter().any(|known| known == bare)
    }

    /// Browsers say where a page comes from: ours are served by nobody, so only named ones may ask.
    fn origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|known| known == origin)
    }
}

/// Refuse foreign names and origins.
pub(super) async fn names(
    State(names): State<Arc<Names>>,
    request: Request,
    next: Next,
) -> Response {
    match check_names(&names, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check_names(names: &Names, headers: &HeaderMap) -> Result<(), Refusal> {
    let one = |name| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
            _ => Err(()),
        }
    };
    let forbidden = |text: &str| Err(Refusal::new(StatusCode::FORBIDDEN, text));
    match one(HOST) {
        Ok(Some(host)) if names.host(host) => {}
        _ => return forbidden("this host name is not served; see --host"),
    }
    match one(ORIGIN) {
        Ok(None) => Ok(()),
        Ok(Some(origin)) if names.origin(origin) => Ok(()),
        _ => forbidden("pages of this origin may not call the service; see --origin"),
    }
}

/// Find the client or the sandbox of a request and leave it in its extensions.
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
        Err(refusal) => return refuse(refusal),
    }
    next.run(request).await
}

/// Let in whoever brings one of these tokens; everybody where there are none.
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
        false => refuse(unauthorised()),
    }
}

enum Who {
    Client(Client),
    Sandbox(Arc<Sandbox>),
}

fn identify(service: &Service, access: Access, headers: &HeaderMap) -> Result<Who, Refusal> {
    let named = headers.contains_key(SANDBOX_HEADER);
    match access {
        Access::Client => client(service, headers).map(Who::Client),
        Access::Either if !named => client(service, headers).map(Who::Client),
        Access::Sandbox | Access::Either => sandbox(service, headers).map(Who::Sandbox),
    }
}

fn client(service: &Service, headers: &HeaderMap) -> Result<Client, Refusal> {
    let Some(tokens) = &service.options.tokens else {
        return Ok(Client(ANYBODY.into()));
    };
    let found = presented(headers).and_then(|token| tokens.client(&token).map(Arc::from));
    found.map(Client).ok_or_else(unauthorised)
}

/// The token in a header: `Authorization: Bearer`, `Authorization: Basic` (as the password, which a URL
/// can carry) or E2B's `X-API-KEY`.
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

fn sandbox(service: &Service, headers: &HeaderMap) -> Result<Arc<Sandbox>, Refusal> {
    let id = headers.get(SANDBOX_HEADER).and_then(|id| id.to_str().ok());
    let id = id.ok_or_else(|| Refusal::bad(format!("the header {SANDBOX_HEADER} is missing")))?;
    // E2B's client takes this status and these words for a sandbox that has ended.
    let gone = || Refusal::new(StatusCode::BAD_GATEWAY, "The sandbox was not found");
    let sandbox = service.registry.get(id).ok_or_else(gone)?;
    let mut given = SANDBOX_TOKENS.iter().filter_map(|name| headers.get(*name));
    let matches = given.any(|value| {
        value
            .to_str()
            .is_ok_and(|t| secrets::same(t, &sandbox.token))
    });
    let owner = || client(service, headers).is_ok_and(|client| client == sandbox.client);
    match matches || (service.options.tokens.is_some() && owner()) {
        true => Ok(sandbox),
        false => Err(unauthorised()),
    }
}

fn unauthorised() -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong")
}

fn refuse(refusal: Refusal) -> Response {
    let status = refusal.status;
    let mut response = refusal.into_response();
    if status == StatusCode::UNAUTHORIZED {
        let value = axum::http::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(ip: &str) -> Names {
        let address = SocketAddr::new(ip.parse().unwrap(), 80);
        let origins = ["https://chat.example".to_owned()];
        Names::new(address, &["Box.Example".to_owned()], &origins)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn only_our_own_names_are_served() {
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
    fn foreign_origins_and_doubled_headers_are_refused() {
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
    fn tokens_come_in_three_ways() {
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
