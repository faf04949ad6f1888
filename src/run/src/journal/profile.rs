//! Profiles: where a run keeps its state. A recipe says what the run does.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::PostgresServer;
use crate::RunError;

/// A profile file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Server that holds the journals.
    pub postgres: PostgresServer,
}

impl Profile {
    /// Reads a profile; paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is missing or wrong.
    pub fn load(path: &Path) -> Result<Self, RunError> {
        let wrong = |reason: String| {
            RunError::BadInput(format!(
                "profile {}: {reason}; `pybench cluster up` writes one",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut profile: Self = toml::from_str(&text)
            .map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        profile
            .postgres
            .check()
            .map_err(|error| wrong(error.to_string()))?;
        if let (Some(file), Some(folder)) = (&mut profile.postgres.password_file, path.parent()) {
            *file = folder.join(&*file);
        }
        Ok(profile)
    }
}
