//! Section `[store]` of a profile: a bucket, and who may use it. Keys are in files or environment variables, never in it.

use std::path::PathBuf;

use pybench_types::address::is_loopback_host;
use serde::{Deserialize, Serialize};

use super::check_key;
use crate::RunError;

/// Time for a request, from its beginning to the last byte of its answer.
const TIMEOUT_SECONDS: u32 = 30;

/// Who keeps the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Amazon S3, and servers with its interface.
    #[default]
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage; a bucket is a container.
    Azure,
}

impl StoreKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 3] = [Self::S3, Self::Gcs, Self::Azure];

    /// What addresses of this kind begin with, before `://`.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }

    fn is_s3(&self) -> bool {
        *self == Self::S3
    }
}

/// A bucket, and who may use it. It names where the secret key is and never holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectServer {
    #[serde(default, skip_serializing_if = "StoreKind::is_s3")]
    pub kind: StoreKind,
    /// Name of the bucket; of the container, for Azure.
    pub bucket: String,
    /// Folder of the runs in the bucket.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Base URL of the server; without it, Amazon's, Google's or that of the Azure account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only of S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Storage account of Azure. Without it, `AZURE_STORAGE_ACCOUNT_NAME` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Name of the key, only of S3. Without it, Amazon's environment variables and roles decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<String>,
    /// File that holds the secret key; relative to the folder of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_file: Option<PathBuf>,
    /// Environment variable that holds the secret key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_env: Option<String>,
    /// Seconds for a request; then it is repeated. Files are sent and read in parts of 8 MiB, one request each.
    #[serde(
        default = "default_timeout",
        skip_serializing_if = "is_default_timeout"
    )]
    pub timeout_seconds: u32,
}

fn default_prefix() -> String {
    "runs".to_owned()
}

fn default_timeout() -> u32 {
    TIMEOUT_SECONDS
}

fn is_default_timeout(seconds: &u32) -> bool {
    *seconds == TIMEOUT_SECONDS
}

impl Default for ObjectServer {
    /// A bucket without a name, at Amazon's.
    fn default() -> Self {
        Self {
            kind: StoreKind::S3,
            bucket: String::new(),
            prefix: default_prefix(),
            endpoint: None,
            region: None,
            account: None,
            access_key: None,
            secret_key_file: None,
            secret_key_env: None,
            timeout_seconds: TIMEOUT_SECONDS,
        }
    }
}

impl ObjectServer {
    /// Checks that the server can be used at all.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a key belongs to another kind, a secret key has no name, the connection to another machine would
    /// not be encrypted, the prefix is no key, or there is no time for a request.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        check_key(&self.prefix)?;
        self.check_kind()?;
        let has_secret = self.secret_key_file.is_some() || self.secret_key_env.is_some();
        if has_secret && self.access_key.is_none() {
            return Err(RunError::BadInput(
                "store.access_key is missing: it names the secret key that the profile gives"
                    .to_owned(),
            ));
        }
        if self.timeout_seconds == 0 {
            return Err(RunError::BadInput(
                "store.timeout_seconds: a request takes at least 1 second".to_owned(),
            ));
        }
        let Some(host) = self
            .endpoint
            .as_deref()
            .and_then(|url| url.strip_prefix("http://"))
        else {
            return Ok(());
        };
        let authority = host.split(['/', '\\', '?', '#']).next().unwrap_or_default();
        let address = authority.rsplit('@').next().unwrap_or_default();
        let host = address.split(':').next().unwrap_or_default();
        match is_loopback_host(host) {
            true => Ok(()),
            false => Err(RunError::BadInput(format!(
                "store.endpoint: {host} is another machine, so it needs https://"
            ))),
        }
    }

    /// Refuses keys that the server would ignore.
    fn check_kind(&self) -> Result<(), RunError> {
        let of_s3 = [
            ("region", self.region.is_some()),
            ("access_key", self.access_key.is_some()),
            ("secret_key_file", self.secret_key_file.is_some()),
            ("secret_key_env", self.secret_key_env.is_some()),
        ];
        let wrong = match self.kind {
            StoreKind::S3 if self.account.is_some() => Some(("account", "azure")),
            StoreKind::S3 => None,
            StoreKind::Gcs if self.account.is_some() => Some(("account", "azure")),
            StoreKind::Gcs | StoreKind::Azure => {
                let given = of_s3.into_iter().find(|(_, is_given)| *is_given);
                given.map(|(key, _)| (key, "s3"))
            }
        };
        let Some((key, kind)) = wrong else {
            return Ok(());
        };
        Err(RunError::BadInput(format!(
            "store.{key}: only a store with kind = \"{kind}\" has it; {}",
            match kind {
                "azure" => "delete it, or set store.kind",
                _ => "delete it: keys of Google and Azure are read from environment variables",
            }
        )))
    }

    /// The secret key of S3.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the variable is not set; the file cannot be read.
    pub(super) fn secret(&self) -> Result<String, RunError> {
        match (&self.secret_key_file, &self.secret_key_env) {
            (Some(path), None) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(RunError::io(format!(
                    "cannot read the secret key of the store in {}",
                    path.display()
                )))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, Some(name)) => std::env::var(name).map_err(|_| {
                RunError::Environment(format!(
                    "the environment variable {name}, which store.secret_key_env names, is not set"
                ))
            }),
            _ => Err(RunError::BadInput(
                "store.access_key needs either store.secret_key_file or store.secret_key_env"
                    .to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ObjectServer {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_profile_says_who_keeps_the_bucket() {
        assert_eq!(parsed("bucket = \"b\"").kind, StoreKind::S3);
        for kind in StoreKind::ALL {
            let server = ObjectServer {
                kind,
                bucket: "b".to_owned(),
                ..ObjectServer::default()
            };
            let text = toml::to_string(&server).unwrap();
            assert_eq!(parsed(&text), server, "{text}");
            assert_eq!(text.contains("kind"), kind != StoreKind::S3, "{text}");
            assert!(server.check().is_ok());
        }
        let error = toml::from_str::<ObjectServer>("kind = \"gs\"\nbucket = \"b\"").unwrap_err();
        assert!(error.to_string().contains("`gcs`"), "{error}");
    }

    #[test]
    fn keys_of_another_kind_are_refused() {
        let refused = |text: &str| parsed(text).check().unwrap_err().to_string();
        let base = "bucket = \"b\"\nkind = ";
        for (text, key) in [
            ("\"gcs\"\nregion = \"r\"", "store.region"),
            ("\"gcs\"\naccount = \"a\"", "store.account"),
            ("\"azure\"\naccess_key = \"k\"", "store.access_key"),
            ("\"azure\"\nsecret_key_env = \"S\"", "store.secret_key_env"),
            ("\"s3\"\naccount = \"a\"", "store.account"),
        ] {
            let error = refused(&format!("{base}{text}"));
            assert!(error.starts_with(key), "{error}");
        }
        let nameless = refused("bucket = \"b\"\nsecret_key_env = \"S\"");
        assert!(
            nameless.starts_with("store.access_key is missing"),
            "{nameless}"
        );
        let server = parsed(&format!("{base}\"azure\"\naccount = \"a\""));
        assert!(server.check().is_ok());
    }

    #[test]
    fn other_machines_are_reached_by_https() {
        let check = |endpoint: &str| {
            let endpoint = Some(endpoint.to_owned());
            let server = ObjectServer {
                endpoint,
                ..ObjectServer::default()
            };
            server.check()
        };
        assert!(check("http://127.0.0.1:1/x").is_ok());
        assert!(check("https://s3.example.org").is_ok());
        for other in [
            "http://s3.example.org",
            "http://127.example.org:9000",
            "http://localhost:a@s3.example.org",
        ] {
            let error = check(other).unwrap_err().to_string();
            assert!(error.contains("needs https://"), "{error}");
        }
    }
}
