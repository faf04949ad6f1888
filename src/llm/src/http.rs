//! One HTTP exchange with a chat endpoint: sent once, read with a size limit, failures classified.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::ChatError;
use super::endpoint_check::is_loopback;
use super::lines::{Lines, ReadLimits, transport_error};

/// Maximum size of a response, bytes.
pub(super) const MAX_BODY: u64 = 4 << 20;
/// Maximum duration of a file transfer.
const MAX_FILE_TRANSFER: Duration = Duration::from_secs(3600);
/// Media type of a stream of events.
const EVENTS: &[u8] = b"text/event-stream";
/// Maximum length of an error message from an endpoint, characters.
const MAX_MESSAGE: usize = 300;

/// A response to a request for a stream.
pub(super) enum Answered {
    /// Server-sent events, line by line.
    Events(Box<Lines>),
    /// JSON, from an endpoint that does not stream.
    Whole(Value),
}

/// The transport for async-openai. The default transport would retry silently and read bodies without a limit;
/// this one sends a request once and reports every failure as a [`ChatError`].
#[derive(Clone, Debug)]
pub(super) struct Transport {
    client: Client,
    /// For this machine: a proxy would read the key, and reach another machine under the same address.
    direct: Client,
}

impl Transport {
    /// `timeout` limits the whole exchange, including the body.
    pub(super) fn new(timeout: Duration) -> Result<Self, ChatError> {
        Self::of(|| {
            Client::builder()
                .connect_timeout(timeout.min(Duration::from_secs(20)))
                .timeout(timeout)
                // A redirect could leak the API key to another host.
                .redirect(reqwest::redirect::Policy::none())
        })
    }

    /// For file transfers: `timeout` limits the time without data, [`MAX_FILE_TRANSFER`] the whole exchange.
    pub(super) fn for_files(timeout: Duration) -> Result<Self, ChatError> {
        Self::of(|| {
            Client::builder()
                .connect_timeout(timeout.min(Duration::from_secs(20)))
                .read_timeout(timeout)
                .timeout(MAX_FILE_TRANSFER)
                .redirect(reqwest::redirect::Policy::none())
        })
    }

    fn of(builder: impl Fn() -> ClientBuilder) -> Result<Self, ChatError> {
        let built = |builder: ClientBuilder| {
            let built = builder.build();
            built.map_err(|error| {
                ChatError::Internal(format!("cannot create an HTTP client: {error}"))
            })
        };
        Ok(Self {
            client: built(builder())?,
            direct: built(builder().no_proxy())?,
        })
    }

    /// Sends a request once, to this machine through no proxy.
    async fn execute(&self, request: Request) -> Result<Response, ChatError> {
        let client = match is_loopback(request.url()) {
            true => &self.direct,
            false => &self.client,
        };
        client.execute(request).await.map_err(transport_error)
    }
}

impl tower::Service<HttpRequestFactory> for Transport {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move {
            let request = factory.build().await?;
            let answer = transport.exchange(request).await;
            answer
                .map(|body| http::Response::new(body).into())
                .map_err(|error| OpenAIError::Boxed(Box::new(error)))
        })
    }
}

impl Transport {
    /// Posts JSON once and parses the JSON response.
    pub(super) async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: &Value,
    ) -> Result<Value, ChatError> {
        self.send(self.client.post(url).headers(headers).json(body))
            .await
    }

    /// Posts bytes of the given media type once and parses the JSON response.
    pub(super) async fn post_bytes(
        &self,
        url: &str,
        headers: HeaderMap,
        media_type: &str,
        body: Vec<u8>,
    ) -> Result<Value, ChatError> {
        let request = self.client.post(url).headers(headers);
        self.send(request.header(CONTENT_TYPE, media_type).body(body))
            .await
    }

    /// Sends one GET request and parses the JSON response.
    pub(super) async fn get(&self, url: &str, headers: HeaderMap) -> Result<Value, ChatError> {
        self.send(self.client.get(url).headers(headers)).await
    }

    async fn exchange(&self, request: Request) -> Result<String, ChatError> {
        read(self.execute(request).await?).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value, ChatError> {
        let answer = self
            .exchange(request.build().map_err(transport_error)?)
            .await?;
        parse(&answer)
    }

    /// Posts JSON once. Events are read as they arrive, another response as a whole.
    pub(super) async fn post_live(
        &self,
        url: &str,
        headers: HeaderMap,
        body: &Value,
        most: ReadLimits,
    ) -> Result<Answered, ChatError> {
        let request = self.client.post(url).headers(headers).json(body);
        let request = request.build().map_err(transport_error)?;
        let response = self.execute(request).await?;
        let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(EVENTS);
        let content_type = response.headers().get(CONTENT_TYPE);
        match response.status().is_success() && content_type.is_some_and(is_stream) {
            true => Ok(Answered::Events(Box::new(Lines::new(response, most)))),
            false => Ok(Answered::Whole(parse(&read(response).await?)?)),
        }
    }

    /// Downloads a file line by line.
    pub(super) async fn lines(
        &self,
        url: &str,
        headers: HeaderMap,
        most: ReadLimits,
    ) -> Result<Lines, ChatError> {
        let request = self.client.get(url).headers(headers).build();
        let response = self.execute(request.map_err(transport_error)?).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            let body = read_bounded(response, MAX_BODY).await.unwrap_or_default();
            return Err(status_error(status, &headers, &body, SystemTime::now()));
        }
        Ok(Lines::new(response, most))
    }
}

/// The error for a status and a body without headers.
pub(super) fn error_of(status: u16, body: &Value) -> ChatError {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = body.to_string();
    status_error(
        status,
        &HeaderMap::new(),
        body.as_bytes(),
        SystemTime::now(),
    )
}

/// Makes text from an endpoint safe to display: one line of limited length.
pub(super) fn plain(message: &str) -> String {
    message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_MESSAGE)
        .collect()
}

/// The body of a response, which is JSON, or the error that its status means.
async fn read(response: Response) -> Result<String, ChatError> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = read_bounded(response, MAX_BODY).await;
    if !status.is_success() {
        // The status is more informative than an error while reading the body.
        let body = body.unwrap_or_default();
        return Err(status_error(status, &headers, &body, SystemTime::now()));
    }
    let body = String::from_utf8(body?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ChatError::Malformed(format!("not UTF-8 from byte {at} on"))
    })?;
    // async-openai would log the full body if it cannot be parsed.
    parse(&body)?;
    Ok(body)
}

fn parse(body: &str) -> Result<Value, ChatError> {
    serde_json::from_str(body).map_err(|error| ChatError::Malformed(format!("not JSON: {error}")))
}

async fn read_bounded(mut response: Response, most: u64) -> Result<Vec<u8>, ChatError> {
    let too_large = |length: u64| length > most;
    if response.content_length().is_some_and(too_large) {
        return Err(ChatError::TooLarge(most));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(transport_error)? {
        if too_large((body.len() + chunk.len()) as u64) {
            return Err(ChatError::TooLarge(most));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn status_error(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> ChatError {
    let (message, code) = error_message(body);
    let text = format!("{}: {message}", status.as_u16());
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| retry_after(value.to_str().ok()?, now));
    match status.as_u16() {
        // No credit: retries do not help, and all other calls would fail too.
        429 if code == "insufficient_quota" => ChatError::Unauthorized(text),
        429 => ChatError::RateLimited { retry_after },
        503 if retry_after.is_some() => ChatError::RateLimited { retry_after },
        401..=403 => ChatError::Unauthorized(text),
        404 => ChatError::NotFound(text),
        408 | 504 => ChatError::Timeout,
        500..=599 => ChatError::Server(status.as_u16()),
        _ => ChatError::Rejected(text),
    }
}

/// Message and code of an error body, or the start of the body if it has another format.
fn error_message(body: &[u8]) -> (String, String) {
    #[derive(Deserialize)]
    struct Wrapped {
        error: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        #[serde(default)]
        message: String,
        #[serde(default)]
        code: Value,
    }
    let (message, code) = match serde_json::from_slice::<Wrapped>(body) {
        Ok(Wrapped { error }) => (
            error.message,
            error.code.as_str().unwrap_or_default().to_owned(),
        ),
        Err(_) => {
            let head = &body[..body.len().min(4 * MAX_MESSAGE)];
            (String::from_utf8_lossy(head).into_owned(), String::new())
        }
    };
    (plain(&message), code)
}

/// Parses `Retry-After`: seconds or an HTTP date. A date in the past gives zero.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(value.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use pybench_testing::endpoint::{Answer, Endpoint};
    use reqwest::Proxy;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn requests_to_this_machine_go_through_no_proxy() {
        let endpoint = Endpoint::always(Answer::Content("hello".to_owned())).await;
        // Nothing listens there.
        let proxy = Proxy::all("http://127.0.0.1:1").unwrap();
        let transport = Transport::of(|| Client::builder().proxy(proxy.clone())).unwrap();
        let body = json!({"model": "m", "messages": []});
        let url = format!("{}/chat/completions", endpoint.base_url());
        let answer = transport.post(&url, HeaderMap::new(), &body).await;
        assert!(answer.unwrap().to_string().contains("hello"));
        let other = "http://192.0.2.1/v1/chat/completions";
        let refused = transport.post(other, HeaderMap::new(), &body).await;
        assert!(
            matches!(refused, Err(ChatError::Connection(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 30);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("0.5", now), Some(Duration::from_millis(500)));
        assert_eq!(retry_after(date, now), Some(Duration::from_secs(30)));
        let later = now + Duration::from_secs(3600);
        assert_eq!(retry_after(date, later), Some(Duration::ZERO));
        for bad in ["soon", "-1", "nan", "1e300", ""] {
            assert_eq!(retry_after(bad, now), None, "{bad}");
        }
    }

    #[test]
    fn statuses_map_to_error_kinds() {
        let of = |status: u16, headers: &HeaderMap, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            status_error(status, headers, body.as_bytes(), SystemTime::now()).kind()
        };
        let kind = |status, body| of(status, &HeaderMap::new(), body);
        assert_eq!(kind(429, ""), "rate_limited");
        let quota = r#"{"error": {"message": "no", "code": "insufficient_quota"}}"#;
        assert_eq!(kind(429, quota), "unauthorized");
        assert_eq!(kind(401, ""), "unauthorized");
        assert_eq!(kind(403, ""), "unauthorized");
        assert_eq!(kind(404, "nothing here"), "not_found");
        assert_eq!(kind(400, ""), "rejected");
        assert_eq!(kind(307, ""), "rejected");
        assert_eq!(kind(500, "<html>"), "server");
        assert_eq!(kind(503, ""), "server");
        let busy = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        assert_eq!(of(503, &busy, ""), "rate_limited");
        assert_eq!(kind(504, ""), "timeout");
    }

    #[test]
    fn fuzz_error_bodies_stay_short_and_plain() {
        bolero::check!().for_each(|body: &[u8]| {
            let (message, _) = error_message(body);
            assert!(message.chars().count() <= MAX_MESSAGE);
            assert!(!message.chars().any(char::is_control));
        });
    }
}
