//! What the Hub says no with: each kind its own words and its own exit code.

use std::fmt;
use std::time::Duration;

use pybench::run::RunError;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::client::{read, rest_after};
use crate::crawl::name::printable;
use crate::crawl::source::web::Auth;
use crate::crawl::source::web::headers::later;

/// Most bytes of a refusal that are read.
const WORDS: usize = 64 << 10;

/// Why something is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// 401 without a token.
    Nobody,
    /// 401 with one.
    Token,
    /// 403.
    Forbidden,
    /// 404.
    Missing,
    /// 409, 412: something else happened meanwhile.
    Conflict,
    /// 413.
    TooLarge,
    /// 429, and when to come again where that is said.
    Later(Option<Duration>),
    /// 402, 507, and refusals that speak of storage.
    Quota,
    /// 5xx.
    Server(StatusCode),
    /// No connection, or one that broke off.
    Unreachable,
    /// An answer of another form than it should have.
    Form,
    /// A setting of this machine.
    Setting,
    /// Any other status.
    Other(StatusCode),
}

/// A no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was tried.
    what: String,
    /// Why not.
    pub why: Why,
    /// In the server's words; may be empty.
    said: String,
}

impl Refusal {
    pub(super) fn new(what: &str, why: Why, said: String) -> Self {
        Self {
            what: what.to_owned(),
            why,
            said: printable(&said),
        }
    }

    /// Of an answer that is none.
    pub(super) async fn of(what: &str, response: Response, auth: &Auth) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(what, response, WORDS).await.unwrap_or_default();
        let said = auth.hide(&words(&headers, &body));
        let why = why(status, &headers, &said, auth.is_some());
        Self::new(what, why, said)
    }

    /// Of an object of a batch, which has a status of its own.
    pub(super) fn of_object(what: &str, code: u16, said: String) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
        let why = why(status, &HeaderMap::new(), &said, true);
        Self::new(what, why, said)
    }

    /// Of what another program was answered: the status, where there was an answer.
    pub(super) fn told(
        what: &str,
        status: Option<u16>,
        after: Option<Duration>,
        said: String,
    ) -> Self {
        let mut told = match status {
            Some(status) => Self::of_object(what, status, said),
            None => Self::new(what, Why::Unreachable, said),
        };
        if matches!(told.why, Why::Later(_)) {
            told.why = Why::Later(after);
        }
        told
    }

    /// How long to rest before it is tried again; `None` where that does not help.
    pub(super) fn rest(&self, tries: u32) -> Option<Duration> {
        match self.why {
            Why::Later(asked) => rest_after(tries, asked),
            Why::Server(_) | Why::Unreachable => rest_after(tries, None),
            _ => None,
        }
    }
}

/// The server's words: a header, or `error` of a JSON body.
fn words(headers: &HeaderMap, body: &[u8]) -> String {
    let header = headers.get("x-error-message");
    let header = header.and_then(|value| value.to_str().ok());
    if let Some(header) = header.filter(|header| !header.is_empty()) {
        return header.to_owned();
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = body.get("error").or_else(|| body.get("message"));
    let error = error.and_then(Value::as_str);
    error.unwrap_or_default().to_owned()
}

fn why(status: StatusCode, headers: &HeaderMap, said: &str, with_token: bool) -> Why {
    let lower = said.to_lowercase();
    let of_storage = lower.contains("storage") || lower.contains("quota");
    match status.as_u16() {
        402 | 507 => Why::Quota,
        403 | 400 | 413 if of_storage => Why::Quota,
        401 if with_token => Why::Token,
        401 => Why::Nobody,
        403 => Why::Forbidden,
        404 => Why::Missing,
        409 | 412 => Why::Conflict,
        413 => Why::TooLarge,
        429 => Why::Later(later(status, headers).flatten().or_else(|| window(headers))),
        500..600 => Why::Server(status),
        _ => Why::Other(status),
    }
}

/// When the present window ends, of `RateLimit: "api";r=0;t=55`.
fn window(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("ratelimit")?.to_str().ok()?;
    let parameters = text.split([';', ',']).map(str::trim);
    let seconds = parameters.filter_map(|p| p.strip_prefix("t=")?.parse::<u64>().ok());
    seconds.max().map(Duration::from_secs)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.said.is_empty() {
            true => String::new(),
            false => format!(" (it says: {})", self.said),
        };
        write!(f, "{}: ", self.what)?;
        match self.why {
            Why::Nobody => write!(
                f,
                "the Hub asks who you are (401): set HF_TOKEN to a token that may write, or sign in with \
                 the Hub's own tool{said}"
            ),
            Why::Token => write!(
                f,
                "the Hub does not accept this token (401): HF_TOKEN, or the Hub's own token file, holds \
                 one that is wrong or no longer valid{said}"
            ),
            Why::Forbidden => write!(
                f,
                "this token may not do that (403): it needs the right to write to this owner's \
                 repositories; its settings say what it may{said}"
            ),
            Why::Missing => write!(f, "the Hub has no such thing (404){said}"),
            Why::Conflict => write!(
                f,
                "something else was changed there meanwhile (409); the same command compares anew{said}"
            ),
            Why::TooLarge => write!(
                f,
                "too large for the Hub in one piece (413): make smaller shards (`shard.shard_rows`), or \
                 carry fewer small files{said}"
            ),
            Why::Later(Some(after)) => write!(
                f,
                "the Hub asks to come again in {} s (429); the same command then goes on{said}",
                after.as_secs()
            ),
            Why::Later(None) => write!(
                f,
                "the Hub asks for fewer requests (429); the same command goes on later{said}"
            ),
            Why::Quota => write!(
                f,
                "the storage of this owner is used up: free some, or raise it; the same command then \
                 goes on{said}"
            ),
            Why::Server(status) => write!(
                f,
                "the Hub is out of order ({}); what was sent stays there, the same command goes on{said}",
                status.as_u16()
            ),
            Why::Unreachable => write!(
                f,
                "no connection: {}; what was sent stays there, the same command goes on",
                self.said
            ),
            Why::Form => write!(
                f,
                "the answer is not of the expected form: {}; is HF_ENDPOINT a Hub?",
                self.said
            ),
            Why::Setting => write!(f, "{}", self.said),
            Why::Other(status) => write!(f, "the Hub answered {}{said}", status.as_u16()),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for RunError {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal.why {
            Why::Setting | Why::Missing | Why::TooLarge => Self::BadInput(text),
            Why::Conflict => Self::Conflict(text),
            Why::Quota => Self::Budget(text),
            _ => Self::Endpoint(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench::run::ExitCode;

    fn no(status: u16, headers: &[(&'static str, &'static str)], said: &str) -> Refusal {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let status = StatusCode::from_u16(status).unwrap();
        Refusal::new(
            "sending",
            why(status, &headers, said, true),
            said.to_owned(),
        )
    }

    #[test]
    fn each_refusal_has_its_words_and_its_code() {
        let full = "Private repository storage limit reached";
        let cases = [
            (no(401, &[], ""), ExitCode::Endpoint, "(401)"),
            (no(403, &[], "no"), ExitCode::Endpoint, "right to write"),
            (no(404, &[], ""), ExitCode::BadInput, "(404)"),
            (no(409, &[], ""), ExitCode::Conflict, "(409)"),
            (no(412, &[], ""), ExitCode::Conflict, "meanwhile"),
            (no(413, &[], ""), ExitCode::BadInput, "smaller shards"),
            (no(429, &[], ""), ExitCode::Endpoint, "(429)"),
            (no(503, &[], ""), ExitCode::Endpoint, "(503)"),
            (no(403, &[], full), ExitCode::Budget, "storage"),
            (no(402, &[], ""), ExitCode::Budget, "used up"),
            (no(418, &[], ""), ExitCode::Endpoint, "418"),
        ];
        let mut seen = std::collections::HashSet::new();
        for (refusal, code, words) in cases {
            let text = refusal.to_string();
            assert!(text.starts_with("sending: "), "{text}");
            assert!(text.contains(words), "{text}");
            assert!(seen.insert(text.clone()) || words == "meanwhile", "{text}");
            assert_eq!(RunError::from(refusal).exit_code(), code, "{text}");
        }
        assert_eq!(
            why(StatusCode::UNAUTHORIZED, &HeaderMap::new(), "", false),
            Why::Nobody
        );
    }

    #[test]
    fn rests_are_as_asked_and_end() {
        let after = |seconds| Why::Later(Some(Duration::from_secs(seconds)));
        assert_eq!(no(429, &[("retry-after", "7")], "").why, after(7));
        assert_eq!(
            no(429, &[("ratelimit", "\"api\";r=0;t=55")], "").why,
            after(55)
        );
        let rest = |refusal: Refusal, tries| refusal.rest(tries).map(|rest| rest.as_millis());
        assert_eq!(rest(no(429, &[("retry-after", "7")], ""), 1), Some(7000));
        assert_eq!(rest(no(429, &[("retry-after", "700")], ""), 1), None);
        assert_eq!(rest(no(503, &[], ""), 1), Some(400));
        assert_eq!(rest(no(503, &[], ""), 3), Some(1600));
        for status in [400, 401, 403, 404, 409, 413] {
            assert_eq!(rest(no(status, &[], ""), 1), None, "{status}");
        }
    }

    #[test]
    fn fuzz_words_of_a_server() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let said = words(&HeaderMap::new(), bytes);
            let text = Refusal::new("x", Why::Forbidden, said).to_string();
            assert!(!text.contains('\n') && text.chars().count() < 600);
            if let Ok(value) = reqwest::header::HeaderValue::from_bytes(bytes) {
                let headers = [("ratelimit".parse().unwrap(), value)];
                let _ = window(&headers.into_iter().collect());
            }
        });
    }
}
