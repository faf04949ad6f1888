//! Extracts JSON request bodies, with limits on size and time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// Maximum size of a JSON body, bytes: a cell of 4 MiB with escapes.
const MAX_JSON: usize = 16 << 20;

/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A JSON body; `Content-Type: application/json` is required.
pub(super) struct Json<T>(pub(super) T);

/// A JSON body of a client that may omit the content type, like CodeAct's.
pub(super) struct LenientJson<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        match is_json(request.headers()) {
            Some(true) => Ok(Self(parse(
                &bytes(request.into_body(), BODY_TIMEOUT).await?,
            )?)),
            _ => Err(not_json()),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for LenientJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        match is_json(request.headers()) {
            Some(true) | None => Ok(Self(parse(
                &bytes(request.into_body(), BODY_TIMEOUT).await?,
            )?)),
            Some(false) => Err(not_json()),
        }
    }
}

/// Whether the content type is JSON; `None` if there is none.
fn is_json(headers: &HeaderMap) -> Option<bool> {
    let value = headers.get(CONTENT_TYPE)?;
    let kind = value.to_str().unwrap_or_default().split(';').next();
    Some(kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")))
}

fn not_json() -> ApiError {
    let text = "the body must be JSON, with `Content-Type: application/json`";
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
}

async fn bytes(body: Body, timeout: Duration) -> Result<axum::body::Bytes, ApiError> {
    match tokio::time::timeout(timeout, axum::body::to_bytes(body, MAX_JSON)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let text = format!("the body is incomplete or has more than {MAX_JSON} bytes");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body was not received in time",
        )),
    }
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::bad(format!("invalid body: {error}")))
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
        let bare = LenientJson::<u16>::from_request(request(), &())
            .await
            .map(|json| json.0);
        [strict, bare].map(|result| result.map_err(|error| error.status.as_u16()))
    }

    #[tokio::test]
    async fn only_json_is_accepted() {
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
    async fn a_slow_body_is_refused() {
        let drops = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok::<_, std::io::Error>("1"), ()))
        });
        let refused = bytes(Body::from_stream(drops), Duration::from_millis(200)).await;
        assert_eq!(refused.unwrap_err().status, StatusCode::REQUEST_TIMEOUT);
    }
}
