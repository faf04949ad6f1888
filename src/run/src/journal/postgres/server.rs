//! Where a PostgreSQL server is, and who may use it.

use std::path::PathBuf;

use pybench_types::address::is_loopback_host;
use serde::{Deserialize, Serialize};

use super::tls::{ClientIdentity, Tls};
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
    /// File of the certificate authority that signed the server's certificate (PEM); relative to the folder of the profile.
    /// Without it, the authorities that this machine trusts count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// File of the certificate by which this process proves who it is (PEM); relative to the folder of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_file: Option<PathBuf>,
    /// File of the private key of that certificate (PEM); relative to the folder of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key_file: Option<PathBuf>,
}

impl PostgresServer {
    /// Checks that the server can be used at all.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if `host` is no machine, or if a certificate has no key or a key no certificate.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let wrong = match (&self.client_cert_file, &self.client_key_file) {
            _ if self.host.is_empty() || self.host.starts_with('/') => format!(
                "host: {:?} is no name or address of a machine; Unix sockets are not supported",
                self.host
            ),
            (Some(_), None) => {
                "client_key_file is missing: the certificate in client_cert_file needs its private key".to_owned()
            }
            (None, Some(_)) => {
                "client_cert_file is missing: the private key in client_key_file needs its certificate".to_owned()
            }
            _ => return Ok(()),
        };
        Err(RunError::BadInput(format!("postgres.{wrong}")))
    }

    /// The files that the profile names, relative to its folder.
    pub(crate) fn files_mut(&mut self) -> [Option<&mut PathBuf>; 4] {
        [
            self.password_file.as_mut(),
            self.ca_file.as_mut(),
            self.client_cert_file.as_mut(),
            self.client_key_file.as_mut(),
        ]
    }

    /// Encrypts connections to another machine, and to one for which the profile names certificates.
    pub(super) fn tls(&self) -> Result<Option<Tls>, RunError> {
        let files = (&self.client_cert_file, &self.client_key_file);
        let identity = match files {
            (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
            _ => None,
        };
        match is_loopback_host(&self.host) && self.ca_file.is_none() && identity.is_none() {
            true => Ok(None),
            false => Tls::new(self.ca_file.as_deref(), identity).map(Some),
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
