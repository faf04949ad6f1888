//! What a client is told when something cannot be done.

use axum::Json;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::interpreter::{FileError, InterpreterError};

/// A request that was refused or failed.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

/// The body of every refusal.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RefusalBody {
    /// The HTTP status once more.
    code: u16,
    /// What went wrong, and what to do.
    message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn missing(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{what} was not found"))
    }

    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// As the connect protocol names it.
    pub(super) fn connect_code(&self) -> &'static str {
        match self.status.as_u16() {
            400 => "invalid_argument",
            401 => "unauthenticated",
            403 => "permission_denied",
            404 => "not_found",
            409 => "already_exists",
            413 | 429 | 507 => "resource_exhausted",
            501 => "unimplemented",
            502 | 503 => "unavailable",
            _ => "internal",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = RefusalBody {
            code: self.status.as_u16(),
            message: self.message,
        };
        let mut response = (self.status, Json(body)).into_response();
        // The rest of such a body is not read: nothing else can come over this connection.
        if matches!(self.status.as_u16(), 408 | 413) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }
}

impl From<InterpreterError> for Refusal {
    fn from(error: InterpreterError) -> Self {
        // The text may name paths of the host: for the log, not for the client.
        tracing::error!("{error}");
        let status = match error {
            InterpreterError::Unavailable(_) => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message = match &error {
            InterpreterError::Unavailable(_) => "this cannot be done here",
            InterpreterError::Start(_) => "a session could not be started",
            InterpreterError::Fork(_) => "the session cannot be forked",
            InterpreterError::Protocol(_) | InterpreterError::Io { .. } => "the session failed",
        };
        Self::new(status, format!("{message}; the service's log says why"))
    }
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        let status = match error {
            FileError::Path(_) | FileError::Kind(_) => StatusCode::BAD_REQUEST,
            FileError::Missing(_) => StatusCode::NOT_FOUND,
            FileError::Exists(_) => StatusCode::CONFLICT,
            FileError::TooLarge(..) => StatusCode::PAYLOAD_TOO_LARGE,
            FileError::Full => StatusCode::INSUFFICIENT_STORAGE,
            FileError::Io(..) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
