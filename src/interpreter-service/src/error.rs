//! Error responses.

use axum::Json;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use pybench_interpreter::{FileError, InterpreterError};

/// The error of a request.
#[derive(Debug)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

/// Body of every error response.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorBody {
    /// The HTTP status.
    code: u16,
    /// What went wrong, and what to do.
    message: String,
}

impl ApiError {
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

    /// The error code in the Connect protocol.
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            code: self.status.as_u16(),
            message: self.message,
        };
        let mut response = (self.status, Json(body)).into_response();
        // The rest of the body is not read, so the connection cannot be reused.
        if matches!(self.status.as_u16(), 408 | 413 | 503) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }
}

impl From<InterpreterError> for ApiError {
    fn from(error: InterpreterError) -> Self {
        // The text may contain host paths, so only the log gets it.
        tracing::error!("{error}");
        let status = match error {
            InterpreterError::Unavailable(_) => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message = match &error {
            InterpreterError::Unavailable(_) => "the service does not support this",
            InterpreterError::Start(_) => "a session could not be started",
            InterpreterError::Fork(_) => "the session cannot be forked",
            InterpreterError::Protocol(_)
            | InterpreterError::Silent
            | InterpreterError::Io { .. } => "the session failed",
        };
        Self::new(
            status,
            format!("{message}; see the service's log for the reason"),
        )
    }
}

impl From<FileError> for ApiError {
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
