//! Where a PostgreSQL server is, and who may use it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::RunError;

/// Address and user of a database. It names where the password is and never holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresServer {
    pub host: String,
    pub port: u16,
    pub database: String,
    pub user: String,
    /// File that holds the password; relative to the folder of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
}

impl PostgresServer {
    /// Checks that the server can be used at all.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is on another machine: connections are not encrypted.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let is_loopback = match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        };
        match is_loopback {
            true => Ok(()),
            false => Err(RunError::BadInput(format!(
                "postgres.host: {} is another machine, and pybench cannot encrypt the connection yet: forward a port of \
                 this machine to it (ssh -L 5432:127.0.0.1:5432 HOST) and set host = \"127.0.0.1\"",
                self.host
            ))),
        }
    }

    /// The password.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if neither a file nor a variable is named; [`RunError::Environment`] if what is named has
    /// no password.
    pub(super) fn password(&self) -> Result<String, RunError> {
        match (&self.password_file, &self.password_env) {
            (Some(path), None) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(RunError::io(format!(
                    "cannot read the password of PostgreSQL in {}",
                    path.display()
                )))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, Some(name)) => std::env::var(name).map_err(|_| {
                RunError::Environment(format!(
                    "the environment variable {name}, which postgres.password_env names, is not set"
                ))
            }),
            _ => Err(RunError::BadInput(
                "the profile needs either postgres.password_file or postgres.password_env"
                    .to_owned(),
            )),
        }
    }
}
