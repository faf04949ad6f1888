//! Errors in OpenAI's format.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    pub(super) fn bad(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            param,
            message: message.into(),
        }
    }

    pub(super) fn too_long(message: String) -> Self {
        let code = Some("context_length_exceeded");
        Self {
            code,
            ..Self::bad(Some("messages"), message)
        }
    }

    pub(super) fn too_large(message: String) -> Self {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self {
            status,
            ..Self::bad(None, message)
        }
    }

    pub(super) fn no_model(asked: &str, name: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: Some("model_not_found"),
            ..Self::bad(
                Some("model"),
                format!("the model {asked} does not exist; this server has {name}"),
            )
        }
    }

    pub(super) fn no_route(status: StatusCode, message: String) -> Self {
        Self {
            status,
            ..Self::bad(None, message)
        }
    }

    pub(super) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            code: Some("invalid_api_key"),
            ..Self::bad(None, "the API key is missing or wrong")
        }
    }

    pub(super) fn busy() -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: Some("queue_full"),
            ..Self::bad(None, "the queue is full; try again later")
        }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "server_error",
            ..Self::bad(None, message)
        }
    }

    pub(super) fn body(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            let seconds = axum::http::HeaderValue::from_static("1");
            response.headers_mut().insert("retry-after", seconds);
        }
        response
    }
}
