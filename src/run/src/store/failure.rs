//! Why requests to a store fail.

use object_store::Error;
use pybench_types::id::Digest;

/// Why requests failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("{0}")]
    Store(Error),
    /// A file of this machine.
    #[error("{0}")]
    File(std::io::Error),
    #[error("the file has more than {0} bytes, which are the most that are read")]
    TooLarge(u64),
    #[error(
        "the folder has more than {0} files, which are the most that are listed; delete those that do not belong there"
    )]
    TooMany(usize),
    #[error(
        "the file is damaged: its digest is {found} instead of {expected}; delete it in the store, and store it again from a \
         backup or from the machine that made it"
    )]
    OtherDigest { expected: Digest, found: Digest },
}

impl StoreError {
    /// Whether the same requests may succeed now: another process has ended the upload in parts (not found) or stores the same
    /// key at this moment (409); or, while there is `time` for the server, a request took too long or the connection was cut.
    pub(super) fn may_pass(&self, time: bool) -> bool {
        use Error::{AlreadyExists, Generic, NotFound};
        match self {
            Self::Store(error) if refusal(error).is_some() => false,
            Self::Store(NotFound { .. } | AlreadyExists { .. }) => true,
            Self::Store(Generic { .. }) => time,
            _ => false,
        }
    }
}

/// What to do if no request of this kind can succeed until a person changes something; `None` if another attempt may.
pub(super) fn refusal(error: &Error) -> Option<&'static str> {
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Some(
            "check the key, that it may read and write this bucket, and the clock of this machine",
        ),
        Error::NotFound { source, .. } if names_no_bucket(&source.to_string()) => {
            Some("create the bucket, or correct its name")
        }
        Error::Generic { source, .. } if names_old_key(&source.to_string()) => {
            Some("renew the key")
        }
        Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => {
            Some("check the address and the settings of the store")
        }
        _ => None,
    }
}

/// Whether the answer of a server says that the bucket is missing, rather than a key or an upload.
fn names_no_bucket(answer: &str) -> bool {
    // S3 and Google; Azure.
    ["NoSuchBucket", "ContainerNotFound"]
        .iter()
        .any(|code| answer.contains(code))
}

/// Whether the answer of S3 says that a temporary key has ended; its status is 400.
fn names_old_key(answer: &str) -> bool {
    ["ExpiredToken", "InvalidToken"]
        .iter()
        .any(|code| answer.contains(code))
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        // A writer reports why it takes no more bytes as an I/O error.
        error.downcast().unwrap_or_else(Self::File)
    }
}

/// `None` if the store does not have the key. Without its bucket, nobody knows that.
pub(super) fn found<T>(result: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match result {
        Err(error @ Error::NotFound { .. }) if refusal(&error).is_none() => Ok(None),
        result => Ok(Some(result?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_does_not_help_against_a_refusal() {
        let path = || "runs/a".to_owned();
        let source = |text: &str| Box::<dyn std::error::Error + Send + Sync>::from(text);
        let refused = [
            Error::PermissionDenied {
                path: path(),
                source: source("403 Forbidden"),
            },
            Error::Unauthenticated {
                path: path(),
                source: source("401 Unauthorized"),
            },
            Error::NotFound {
                path: path(),
                source: source("404 Not Found: <Code>NoSuchBucket</Code>"),
            },
            Error::NotFound {
                path: path(),
                source: source("404 Not Found: <Code>ContainerNotFound</Code>"),
            },
            Error::NotSupported {
                source: source("conditional put"),
            },
            Error::Generic {
                store: "S3",
                source: source("400 Bad Request: <Code>ExpiredToken</Code>"),
            },
        ];
        for error in refused {
            assert!(refusal(&error).is_some(), "{error}");
            assert!(found::<()>(Err(error)).is_err_and(|error| !error.may_pass(true)));
        }
        let passing = [
            Error::NotFound {
                path: path(),
                source: source("404 Not Found: <Code>NoSuchUpload</Code>"),
            },
            Error::AlreadyExists {
                path: path(),
                source: source("409 Conflict"),
            },
            Error::Generic {
                store: "S3",
                source: source("503 Service Unavailable"),
            },
        ];
        for error in passing {
            assert!(refusal(&error).is_none(), "{error}");
            assert!(StoreError::Store(error).may_pass(true));
        }
    }
}
