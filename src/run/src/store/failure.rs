//! Why requests to a store fail.

use object_store::Error;

/// Why requests failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("{0}")]
    Store(Error),
    /// A file of this machine.
    #[error("{0}")]
    File(std::io::Error),
}

impl StoreError {
    /// Whether the same requests may succeed now: another process has ended the upload in parts (not found) or stores the same
    /// key at this moment (409); or, while there is `time` for the server, a request took too long or the connection was cut.
    pub(super) fn may_pass(&self, time: bool) -> bool {
        use Error::{AlreadyExists, Generic, NotFound};
        match self {
            Self::Store(NotFound { .. } | AlreadyExists { .. }) => true,
            Self::Store(Generic { .. }) => time,
            _ => false,
        }
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

/// `None` if the store does not have the key.
pub(super) fn found<T>(result: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match result {
        Err(Error::NotFound { .. }) => Ok(None),
        result => Ok(Some(result?)),
    }
}
