//! Errors of the Hub. Each kind has its own message and exit code.

use std::fmt;
use std::time::Duration;

use pybench_run::RunError;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use pybench_files::name::printable;
use pybench_net::Auth;
use pybench_net::headers;

/// Delay before the second attempt; it doubles with each further attempt.
pub(super) const BASE_DELAY: Duration = Duration::from_millis(400);

/// Longest delay that is waited for. If the Hub asks for more, the request fails with that delay.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(60);

/// Maximum number of bytes read of an error response.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubErrorKind {
    /// 401 without a token.
    Unauthenticated,
    /// 401 with a token.
    InvalidToken,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409, 412: the repository was changed meanwhile.
    Conflict,
    /// 413.
    TooLarge,
    /// 429, with the delay that the Hub requests, if any.
    RateLimited(Option<Duration>),
    /// 402, 507, and other errors whose message is about storage.
    Quota,
    /// 5xx.
    Server(StatusCode),
    /// No connection, or it broke.
    Unreachable,
    /// A response of an unexpected form.
    UnexpectedResponse,
    /// A wrong setting or a failed file operation on this machine.
    Local,
    /// Any other status.
    OtherStatus(StatusCode),
}

/// A failed request to the Hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubError {
    /// What was being done.
    action: String,
    pub kind: HubErrorKind,
    /// The server's message; may be empty.
    message: String,
}

impl HubError {
    pub(super) fn new(action: &str, kind: HubErrorKind, message: String) -> Self {
        Self {
            action: action.to_owned(),
            kind,
            message: printable(&message),
        }
    }

    /// The error of a response whose status is not a success.
    pub(super) async fn from_response(action: &str, response: Response, auth: &Auth) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(action, response, MAX_ERROR_BODY)
            .await
            .unwrap_or_default();
        let message = auth.redact(&server_message(&headers, &body));
        let kind = error_kind(status, &headers, &message, auth.is_some());
        Self::new(action, kind, message)
    }

    /// The error of one object of a batch, which has its own status.
    pub(super) fn from_status(action: &str, code: u16, message: String) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
        let kind = error_kind(status, &HeaderMap::new(), &message, true);
        Self::new(action, kind, message)
    }

    /// The error that another program reports. `status` is `None` if it got no response.
    pub(super) fn from_program(
        action: &str,
        status: Option<u16>,
        after: Option<Duration>,
        message: String,
    ) -> Self {
        let mut error = match status {
            Some(status) => Self::from_status(action, status, message),
            None => Self::new(action, HubErrorKind::Unreachable, message),
        };
        if matches!(error.kind, HubErrorKind::RateLimited(_)) {
            error.kind = HubErrorKind::RateLimited(after);
        }
        error
    }

    /// The delay before the next attempt; `None` if another attempt does not help.
    pub(super) fn retry_delay(&self, attempts: u32) -> Option<Duration> {
        match self.kind {
            HubErrorKind::RateLimited(requested) => retry_delay(attempts, requested),
            HubErrorKind::Server(_) | HubErrorKind::Unreachable => retry_delay(attempts, None),
            _ => None,
        }
    }
}

/// The server's message: a header, or `error` or `message` of a JSON body.
fn server_message(headers: &HeaderMap, body: &[u8]) -> String {
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

fn error_kind(
    status: StatusCode,
    headers: &HeaderMap,
    message: &str,
    with_token: bool,
) -> HubErrorKind {
    let lower = message.to_lowercase();
    let of_storage = lower.contains("storage") || lower.contains("quota");
    match status.as_u16() {
        402 | 507 => HubErrorKind::Quota,
        403 | 400 | 413 if of_storage => HubErrorKind::Quota,
        401 if with_token => HubErrorKind::InvalidToken,
        401 => HubErrorKind::Unauthenticated,
        403 => HubErrorKind::Forbidden,
        404 => HubErrorKind::NotFound,
        409 | 412 => HubErrorKind::Conflict,
        413 => HubErrorKind::TooLarge,
        429 => HubErrorKind::RateLimited(
            headers::retry_delay(status, headers)
                .flatten()
                .or_else(|| rate_limit_reset(headers)),
        ),
        500..600 => HubErrorKind::Server(status),
        _ => HubErrorKind::OtherStatus(status),
    }
}

/// The time until the current rate-limit window ends, from `RateLimit: "api";r=0;t=55`.
fn rate_limit_reset(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("ratelimit")?.to_str().ok()?;
    let parameters = text.split([';', ',']).map(str::trim);
    let seconds = parameters.filter_map(|p| p.strip_prefix("t=")?.parse::<u64>().ok());
    seconds.max().map(Duration::from_secs)
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.message.is_empty() {
            true => String::new(),
            false => format!(" (server message: {})", self.message),
        };
        write!(f, "{}: ", self.action)?;
        match self.kind {
            HubErrorKind::Unauthenticated => write!(
                f,
                "authentication is required (401): set HF_TOKEN to a token with write access, or run \
                 `hf auth login`{said}"
            ),
            HubErrorKind::InvalidToken => write!(
                f,
                "the Hub rejected the token (401): the token in HF_TOKEN or in the Hub's token file is wrong \
                 or no longer valid{said}"
            ),
            HubErrorKind::Forbidden => write!(
                f,
                "the token lacks permission (403): it needs the right to write to this owner's \
                 repositories; check its settings on the Hub{said}"
            ),
            HubErrorKind::NotFound => write!(f, "not found on the Hub (404){said}"),
            HubErrorKind::Conflict => write!(
                f,
                "the repository was changed meanwhile (409); run the same command again to compare with \
                 the new state{said}"
            ),
            HubErrorKind::TooLarge => write!(
                f,
                "too large for one upload (413): make smaller shards (`shard.shard_rows`), or include fewer \
                 small files{said}"
            ),
            HubErrorKind::RateLimited(Some(after)) => write!(
                f,
                "rate limited (429): run the same command again in {} s to continue{said}",
                after.as_secs()
            ),
            HubErrorKind::RateLimited(None) => write!(
                f,
                "rate limited (429): run the same command again later to continue{said}"
            ),
            HubErrorKind::Quota => write!(
                f,
                "the owner's storage quota is used up: free some storage or raise the quota, then run the \
                 same command again to continue{said}"
            ),
            HubErrorKind::Server(status) => write!(
                f,
                "the Hub reported a server error ({}); uploaded data is kept, run the same command again to \
                 continue{said}",
                status.as_u16()
            ),
            HubErrorKind::Unreachable => write!(
                f,
                "no connection: {}; uploaded data is kept, run the same command again to continue",
                self.message
            ),
            HubErrorKind::UnexpectedResponse => write!(
                f,
                "unexpected response: {}; is HF_ENDPOINT a Hub?",
                self.message
            ),
            HubErrorKind::Local => write!(f, "{}", self.message),
            HubErrorKind::OtherStatus(status) => {
                write!(f, "the Hub answered {}{said}", status.as_u16())
            }
        }
    }
}

impl std::error::Error for HubError {}

impl From<HubError> for RunError {
    fn from(error: HubError) -> Self {
        let text = error.to_string();
        match error.kind {
            HubErrorKind::Local | HubErrorKind::NotFound | HubErrorKind::TooLarge => {
                Self::BadInput(text)
            }
            HubErrorKind::Conflict => Self::Conflict(text),
            HubErrorKind::Quota => Self::Budget(text),
            _ => Self::Endpoint(text),
        }
    }
}

/// Reads a response body of at most `limit` bytes.
pub(crate) async fn read(
    what: &str,
    mut response: Response,
    limit: usize,
) -> Result<Vec<u8>, HubError> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await;
        match chunk.map_err(|e| {
            HubError::new(
                what,
                HubErrorKind::Unreachable,
                pybench_net::error_chain(&e),
            )
        })? {
            None => return Ok(body),
            Some(chunk) if body.len() + chunk.len() > limit => {
                let message = format!("a response of more than {limit} bytes");
                return Err(HubError::new(
                    what,
                    HubErrorKind::UnexpectedResponse,
                    message,
                ));
            }
            Some(chunk) => body.extend_from_slice(&chunk),
        }
    }
}

/// The delay after a number of failed attempts. A delay that the Hub requests takes precedence; `None` if it is
/// too long.
pub(crate) fn retry_delay(attempts: u32, requested: Option<Duration>) -> Option<Duration> {
    match requested {
        Some(requested) if requested > MAX_DELAY => None,
        Some(requested) => Some(requested),
        None => Some(BASE_DELAY * 2_u32.pow(attempts.saturating_sub(1).min(6))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_run::ExitCode;

    fn refusal(status: u16, headers: &[(&'static str, &'static str)], said: &str) -> HubError {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let status = StatusCode::from_u16(status).unwrap();
        HubError::new(
            "sending",
            error_kind(status, &headers, said, true),
            said.to_owned(),
        )
    }

    #[test]
    fn each_error_kind_has_its_message_and_exit_code() {
        let full = "Private repository storage limit reached";
        let cases = [
            (refusal(401, &[], ""), ExitCode::Endpoint, "(401)"),
            (
                refusal(403, &[], "no"),
                ExitCode::Endpoint,
                "right to write",
            ),
            (refusal(404, &[], ""), ExitCode::BadInput, "(404)"),
            (refusal(409, &[], ""), ExitCode::Conflict, "(409)"),
            (refusal(412, &[], ""), ExitCode::Conflict, "meanwhile"),
            (refusal(413, &[], ""), ExitCode::BadInput, "smaller shards"),
            (refusal(429, &[], ""), ExitCode::Endpoint, "(429)"),
            (refusal(503, &[], ""), ExitCode::Endpoint, "(503)"),
            (refusal(403, &[], full), ExitCode::Budget, "storage"),
            (refusal(402, &[], ""), ExitCode::Budget, "used up"),
            (refusal(418, &[], ""), ExitCode::Endpoint, "418"),
        ];
        let mut seen = std::collections::HashSet::new();
        for (error, code, words) in cases {
            let text = error.to_string();
            assert!(text.starts_with("sending: "), "{text}");
            assert!(text.contains(words), "{text}");
            assert!(seen.insert(text.clone()) || words == "meanwhile", "{text}");
            assert_eq!(RunError::from(error).exit_code(), code, "{text}");
        }
        assert_eq!(
            error_kind(StatusCode::UNAUTHORIZED, &HeaderMap::new(), "", false),
            HubErrorKind::Unauthenticated
        );
    }

    #[test]
    fn retry_delays_are_as_requested_and_bounded() {
        let after = |seconds| HubErrorKind::RateLimited(Some(Duration::from_secs(seconds)));
        assert_eq!(refusal(429, &[("retry-after", "7")], "").kind, after(7));
        assert_eq!(
            refusal(429, &[("ratelimit", "\"api\";r=0;t=55")], "").kind,
            after(55)
        );
        let rest = |error: HubError, tries| error.retry_delay(tries).map(|rest| rest.as_millis());
        assert_eq!(
            rest(refusal(429, &[("retry-after", "7")], ""), 1),
            Some(7000)
        );
        assert_eq!(rest(refusal(429, &[("retry-after", "700")], ""), 1), None);
        assert_eq!(rest(refusal(503, &[], ""), 1), Some(400));
        assert_eq!(rest(refusal(503, &[], ""), 3), Some(1600));
        for status in [400, 401, 403, 404, 409, 413] {
            assert_eq!(rest(refusal(status, &[], ""), 1), None, "{status}");
        }
    }

    #[test]
    fn fuzz_server_messages() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let message = server_message(&HeaderMap::new(), bytes);
            let text = HubError::new("x", HubErrorKind::Forbidden, message).to_string();
            assert!(!text.contains('\n') && text.chars().count() < 600);
            if let Ok(value) = reqwest::header::HeaderValue::from_bytes(bytes) {
                let headers = [("ratelimit".parse().unwrap(), value)];
                let _ = rate_limit_reset(&headers.into_iter().collect());
            }
        });
    }
}
