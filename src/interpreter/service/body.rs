//! Request bodies: JSON that says so, bounded in size and in time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::error::Refusal;

/// Largest JSON body, bytes: a cell of 4 MiB, escaped.
const MAX_JSON: usize = 16 << 20;

/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A JSON body.
pub(super) struct Json<T>(pub(super) T);

/// A JSON body of a client that may not say what it sends, as CodeAct's.
pub(super) struct BareJson<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        match is_json(request.headers()) {
            Some(true) => Ok(Self(parse(&bytes(request.into_body(), PATIENCE).await?)?)),
            _ => Err(not_json()),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for BareJson<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        match is_json(request.headers()) {
            Some(true) | None => Ok(Self(parse(&bytes(request.into_body(), PATIENCE).await?)?)),
            Some(false) => Err(not_json()),
        }
    }
}

/// Whether a body says that it is JSON; `None`: it says nothing.
fn is_json(headers: &HeaderMap) -> Option<bool> {
    let value = headers.get(CONTENT_TYPE)?;
    let kind = value.to_str().unwrap_or_default().split(';').next();
    Some(kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")))
}

fn not_json() -> Refusal {
    let text = "the body has to be JSON, with `Content-Type: application/json`";
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
}

async fn bytes(body: Body, patience: Duration) -> Result<axum::body::Bytes, Refusal> {
    match tokio::time::timeout(patience, axum::body::to_bytes(body, MAX_JSON)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let text = format!("the body is cut off or has more than {MAX_JSON} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
    }
}

/// Parse a body.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal::bad(format!("the body: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(kind: Option<&str>, body: impl Into<Body>) -> [Result<u16, u16>; 2] {
        let body = axum::body::to_bytes(body.into(), usize::MAX).await.unwrap();
        let request = || {
            let mut request = Request::builder();
            if let Some(kind) = kind {
                request = request.header(CONTENT_TYPE, kind);
            }
            request.body(Body::from(body.clone())).unwrap()
        };
        let strict = Json::<u16>::from_request(request(), &())
            .await
            .map(|json| json.0);
        let bare = BareJson::<u16>::from_request(request(), &())
            .await
            .map(|json| json.0);
        [strict, bare].map(|result| result.map_err(|refusal| refusal.status.as_u16()))
    }

    #[tokio::test]
    async fn only_json_is_read() {
        assert_eq!(ask(Some("application/json"), "7").await, [Ok(7), Ok(7)]);
        assert_eq!(
            ask(Some("Application/JSON; charset=utf-8"), "7").await,
            [Ok(7), Ok(7)]
        );
        assert_eq!(ask(None, "7").await, [Err(415), Ok(7)]);
        assert_eq!(ask(Some("text/plain"), "7").await, [Err(415), Err(415)]);
        assert_eq!(
            ask(Some("application/json"), "{").await,
            [Err(400), Err(400)]
        );
        assert_eq!(
            ask(Some("application/json"), vec![b'1'; MAX_JSON + 1]).await,
            [Err(413), Err(413)]
        );
    }

    #[tokio::test]
    async fn a_body_that_trickles_is_refused() {
        let drops = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok::<_, std::io::Error>("1"), ()))
        });
        let refused = bytes(Body::from_stream(drops), Duration::from_millis(200)).await;
        assert_eq!(refused.unwrap_err().status, StatusCode::REQUEST_TIMEOUT);
    }
}
