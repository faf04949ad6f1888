//! Extracts JSON request bodies, with limits on size and time.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use futures::StreamExt;
use serde::de::DeserializeOwned;

use super::body_budget::Share;
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
            Some(true) => Ok(Self(parse(&bytes(request, BODY_TIMEOUT).await?)?)),
            _ => Err(not_json()),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for LenientJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        match is_json(request.headers()) {
            Some(true) | None => Ok(Self(parse(&bytes(request, BODY_TIMEOUT).await?)?)),
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

async fn bytes(request: Request, timeout: Duration) -> Result<Vec<u8>, ApiError> {
    let received = tokio::time::timeout(timeout, receive(request)).await;
    let late = |_| {
        ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body was not received in time",
        )
    };
    received.map_err(late)?
}

async fn receive(request: Request) -> Result<Vec<u8>, ApiError> {
    let share = Share::of(&request)?;
    let too_large = || {
        let text = format!("the body is incomplete or has more than {MAX_JSON} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let mut pieces = request.into_body().into_data_stream();
    let mut whole = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| too_large())?;
        if whole.len() + piece.len() > MAX_JSON {
            return Err(too_large());
        }
        share.grow(piece.len())?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::bad(format!("invalid body: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Client;
    use axum::body::Body;

    fn with_share(body: Body) -> Request {
        let mut request = Request::new(body);
        let share = Share::new(Arc::default(), Client("test".into()));
        request.extensions_mut().insert(Arc::new(share));
        request
    }

    async fn ask(kind: Option<&str>, body: impl Into<Body>) -> [Result<u16, u16>; 2] {
        let body = axum::body::to_bytes(body.into(), usize::MAX).await.unwrap();
        let request = || {
            let mut request = with_share(Body::from(body.clone()));
            if let Some(kind) = kind {
                let kind = kind.parse().unwrap();
                request.headers_mut().insert(CONTENT_TYPE, kind);
            }
            request
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
        let request = with_share(Body::from_stream(drops));
        let refused = bytes(request, Duration::from_millis(200)).await;
        assert_eq!(refused.unwrap_err().status, StatusCode::REQUEST_TIMEOUT);
    }
}
