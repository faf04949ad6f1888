//! What access to datasets and to models of the Hugging Face Hub shares.

use thiserror::Error;

use pybench_types::exit_code::ExitCode;

#[derive(Debug, Error)]
pub enum HubError {
    #[error("{0} is not a repository id; it must have the form owner/name")]
    RepoId(String),
    #[error("{repository}@{revision}: {reason}")]
    Unreachable {
        repository: String,
        revision: String,
        reason: String,
    },
    #[error(
        "{repository}: {path} has {found} bytes instead of the {wanted} that the Hub lists; delete it from the cache and run again"
    )]
    Size {
        repository: String,
        path: String,
        found: u64,
        wanted: u64,
    },
    #[error("{repository}: {path}: {reason}")]
    File {
        repository: String,
        path: String,
        reason: String,
    },
}

impl HubError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::RepoId(_) => ExitCode::BadInput,
            _ => ExitCode::Endpoint,
        }
    }
}

pub(crate) fn offline() -> bool {
    let value = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
    ["1", "ON", "YES", "TRUE"].contains(&value.to_ascii_uppercase().as_str())
}

/// Whether a text has the form `owner/name`.
pub fn is_repo_id(repository: &str) -> bool {
    let fits = |part: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (1..=96).contains(&part.len()) && part.chars().all(letter) && !part.starts_with('.')
    };
    repository
        .split_once('/')
        .is_some_and(|(owner, name)| fits(owner) && fits(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_ids_have_an_owner_and_a_name() {
        assert!(is_repo_id("xingyaoww/code-act") && is_repo_id("m-a-p/Code-Feedback"));
        for name in ["a", "a/b/c", "../b", "a/..", "a/b?x", "", "a/"] {
            assert!(!is_repo_id(name), "{name}");
        }
    }
}
