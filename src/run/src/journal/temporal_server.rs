//! Where a Temporal server is, and who may use it.

use std::path::PathBuf;

use pybench_types::address::is_loopback_host;
use serde::{Deserialize, Serialize};

use crate::RunError;

/// A Temporal server. It names where keys are and never holds one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemporalServer {
    /// Host and port of its front end.
    pub address: String,
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Maximum number of a run's activities that are open and that no process has leased.
    #[serde(default = "default_window")]
    pub window: u32,
    /// Environment variable that holds an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
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

impl Default for TemporalServer {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:7233".to_owned(),
            namespace: default_namespace(),
            window: default_window(),
            api_key_env: None,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
        }
    }
}

fn default_namespace() -> String {
    "pybench".to_owned()
}

fn default_window() -> u32 {
    1_000
}

impl TemporalServer {
    /// The port of the address.
    pub fn port(&self) -> Option<u16> {
        self.address.rsplit_once(':')?.1.parse().ok()
    }

    fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_matches(['[', ']'])
    }

    /// Whether connections are encrypted: those to another machine always are, and those that prove who this process is.
    pub fn is_encrypted(&self) -> bool {
        let is_configured =
            self.api_key_env.is_some() || self.ca_file.is_some() || self.client_cert_file.is_some();
        !is_loopback_host(self.host()) || is_configured
    }

    /// The API key, if the profile names a variable that holds one.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the variable is not set.
    pub fn api_key(&self) -> Result<Option<String>, RunError> {
        let Some(name) = &self.api_key_env else {
            return Ok(None);
        };
        match std::env::var(name) {
            Ok(key) if !key.trim().is_empty() => Ok(Some(key.trim().to_owned())),
            _ => Err(RunError::Environment(format!(
                "the environment variable {name}, which temporal.api_key_env names, is not set: set it to an API key of the \
                 Temporal server"
            ))),
        }
    }

    /// The files that the profile names, relative to its folder.
    pub(super) fn files_mut(&mut self) -> [Option<&mut PathBuf>; 3] {
        [
            self.ca_file.as_mut(),
            self.client_cert_file.as_mut(),
            self.client_key_file.as_mut(),
        ]
    }

    /// Checks that the server can be used at all.
    ///
    /// # Errors
    /// [`RunError::BadInput`] names the key that is wrong or missing.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let wrong = match (&self.client_cert_file, &self.client_key_file) {
            _ if self.host().is_empty() || self.port().is_none() => {
                "address: it needs a host and a port, such as 127.0.0.1:7233"
            }
            _ if self.window == 0 => "window: at least 1 activity waits for a process",
            _ if self.api_key_env.as_deref() == Some("") => {
                "api_key_env: the name of an environment variable is missing"
            }
            (Some(_), None) => {
                "client_key_file is missing: the certificate in client_cert_file needs its private key"
            }
            (None, Some(_)) => {
                "client_cert_file is missing: the private key in client_key_file needs its certificate"
            }
            _ => return Ok(()),
        };
        Err(RunError::BadInput(format!("temporal.{wrong}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(keys: &str) -> TemporalServer {
        toml::from_str(keys).unwrap()
    }

    fn reason(keys: &str) -> String {
        server(keys).check().unwrap_err().to_string()
    }

    #[test]
    fn a_connection_is_encrypted_unless_it_stays_on_this_machine() {
        for plain in ["127.0.0.1:7233", "localhost:7233", "[::1]:7233"] {
            let server = server(&format!("address = '{plain}'"));
            server.check().unwrap();
            assert!(!server.is_encrypted(), "{plain}");
        }
        for keys in [
            "address = 'temporal.example.org:7233'",
            "address = '[2001:db8::1]:7233'",
            "address = 'localhost:7233'\nca_file = 'ca.pem'",
            "address = 'localhost:7233'\napi_key_env = 'KEY'",
            "address = 'localhost:7233'\nclient_cert_file = 'a.pem'\nclient_key_file = 'a.key'",
        ] {
            let server = server(keys);
            server.check().unwrap();
            assert!(server.is_encrypted(), "{keys}");
        }
    }

    #[test]
    fn what_is_half_configured_is_refused() {
        let cert = reason("address = 'a:1'\nclient_cert_file = 'a.pem'");
        assert!(
            cert.contains("temporal.client_key_file is missing"),
            "{cert}"
        );
        let key = reason("address = 'a:1'\nclient_key_file = 'a.key'");
        assert!(
            key.contains("temporal.client_cert_file is missing"),
            "{key}"
        );
        for address in ["localhost", ":7233", "localhost:port"] {
            let address = reason(&format!("address = '{address}'"));
            assert!(address.contains("temporal.address"), "{address}");
        }
        let unnamed = reason("address = 'a:1'\napi_key_env = ''");
        assert!(unnamed.contains("temporal.api_key_env"), "{unnamed}");
        let window = reason("address = 'a:1'\nwindow = 0");
        assert!(window.contains("temporal.window"), "{window}");
    }

    #[test]
    fn a_key_that_is_not_set_is_missed() {
        assert_eq!(TemporalServer::default().api_key().unwrap(), None);
        let server = server("address = 'a:1'\napi_key_env = 'PYBENCH_TEST_NO_SUCH_KEY'");
        let error = server.api_key().unwrap_err().to_string();
        assert!(error.contains("PYBENCH_TEST_NO_SUCH_KEY"), "{error}");
    }
}
