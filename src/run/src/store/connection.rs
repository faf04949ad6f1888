//! Connections to buckets of Amazon, Google and Azure: addresses from the profile, keys from environment variables.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, ClientOptions, Error, ObjectStore, RetryConfig};

use super::server::{ObjectServer, StoreKind};
use crate::RunError;

/// Variables that belong together: where the first is set, the others are needed.
const NEEDED: [(&str, &[&str]); 2] = [
    ("AWS_ACCESS_KEY_ID", &["AWS_SECRET_ACCESS_KEY"]),
    (
        "AZURE_CLIENT_SECRET",
        &["AZURE_CLIENT_ID", "AZURE_TENANT_ID"],
    ),
];

/// The client of a bucket.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Only of S3: what lists and ends unfinished uploads.
    pub(super) s3: Option<S3Client>,
    /// What to set if the server refuses this process; empty if a key was found.
    pub(super) remedy: String,
}

/// The client of an S3 server, with what its own requests need.
#[derive(Clone)]
pub(super) struct S3Client {
    pub(super) client: Arc<AmazonS3>,
    pub(super) region: String,
    pub(super) options: ClientOptions,
}

impl Connection {
    /// A client of the server; a request is repeated for `patience` at most. Nothing is sent yet.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the settings are wrong; [`RunError::Environment`] if a variable is missing.
    pub(super) fn new(server: &ObjectServer, patience: Duration) -> Result<Self, RunError> {
        server.check()?;
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if server.access_key.is_none() {
            check_variables(server, is_set)?;
        }
        let retry = RetryConfig {
            retry_timeout: patience,
            ..RetryConfig::default()
        };
        let wrong = |error: Error| {
            RunError::BadInput(format!(
                "the store {}://{}: {error}",
                server.kind.scheme(),
                server.bucket
            ))
        };
        let mut s3 = None;
        let objects: Arc<dyn ObjectStore> = match server.kind {
            StoreKind::S3 => {
                let client = s3_client(server, retry, wrong)?;
                let objects = client.client.clone();
                s3 = Some(client);
                objects
            }
            StoreKind::Gcs => Arc::new(google(server, retry).build().map_err(wrong)?),
            StoreKind::Azure => Arc::new(azure(server, retry).build().map_err(wrong)?),
        };
        Ok(Self {
            objects,
            s3,
            remedy: match server.access_key {
                Some(_) => String::new(),
                None => remedy(server.kind, is_set),
            },
        })
    }
}

fn s3_client(
    server: &ObjectServer,
    retry: RetryConfig,
    wrong: impl Fn(Error) -> RunError,
) -> Result<S3Client, RunError> {
    let mut builder = match &server.access_key {
        None => AmazonS3Builder::from_env(),
        Some(key) => AmazonS3Builder::new()
            .with_access_key_id(key)
            .with_secret_access_key(server.secret()?),
    };
    // `from_env` reads AWS_ALLOW_HTTP, which stays.
    let allowed = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
    let allowed = builder.get_config_value(&allowed);
    let is_allowed = allowed.is_some_and(|value| means_true(&value));
    let [timeout, allows_http] = client_settings(server, is_allowed);
    let options = ClientOptions::new()
        .with_config(timeout.0, &timeout.1)
        .with_config(allows_http.0, &allows_http.1);
    for (key, value) in [timeout, allows_http] {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    builder = builder
        .with_bucket_name(&server.bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retry);
    if let Some(region) = &server.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &server.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
    Ok(S3Client {
        client: Arc::new(builder.build().map_err(wrong)?),
        // As `object_store` has it.
        region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        options,
    })
}

fn google(server: &ObjectServer, retry: RetryConfig) -> GoogleCloudStorageBuilder {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (key, value) in client_settings(server, is_true("GOOGLE_ALLOW_HTTP")) {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    if let Some(endpoint) = &server.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    builder.with_bucket_name(&server.bucket).with_retry(retry)
}

fn azure(server: &ObjectServer, retry: RetryConfig) -> MicrosoftAzureBuilder {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in client_settings(server, is_true("AZURE_ALLOW_HTTP")) {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    if let Some(account) = &server.account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = &server.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    builder
        .with_container_name(&server.bucket)
        .with_retry(retry)
}

/// Time of a request, and whether it may go without encryption: to an endpoint of the profile, which is on this machine then,
/// or where a variable allows it.
fn client_settings(server: &ObjectServer, is_allowed: bool) -> [(ClientConfigKey, String); 2] {
    let endpoint = server.endpoint.as_deref();
    let is_local = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    [
        (
            ClientConfigKey::Timeout,
            format!("{}s", server.timeout_seconds),
        ),
        (
            ClientConfigKey::AllowHttp,
            (is_local || is_allowed).to_string(),
        ),
    ]
}

fn is_true(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| means_true(&value))
}

fn means_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true") || value == "1"
}

/// Checks that variables which belong together are set together.
fn check_variables(server: &ObjectServer, is_set: impl Fn(&str) -> bool) -> Result<(), RunError> {
    let variables = variables(server.kind);
    let missing = |text: String| Err(RunError::Environment(text));
    let asked = NEEDED.iter().filter(|(name, _)| variables.contains(name));
    for (name, others) in asked.filter(|(name, _)| is_set(name)) {
        if let Some(other) = others.iter().find(|other| !is_set(other)) {
            return missing(format!(
                "the environment variable {other} is not set, and {name}, which needs it, is"
            ));
        }
    }
    let names_account = server.account.is_some()
        || is_set("AZURE_STORAGE_ACCOUNT_NAME")
        || is_set("AZURE_STORAGE_USE_EMULATOR");
    match server.kind == StoreKind::Azure && !names_account {
        true => missing(format!(
            "az://{}: set the environment variable AZURE_STORAGE_ACCOUNT_NAME to the storage account, or name it in \
             store.account of the profile",
            server.bucket
        )),
        false => Ok(()),
    }
}

/// Variables of which each gives a key.
fn variables(kind: StoreKind) -> &'static [&'static str] {
    match kind {
        StoreKind::S3 => &[
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ],
        StoreKind::Gcs => &[
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "SERVICE_ACCOUNT",
        ],
        StoreKind::Azure => &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_CLIENT_SECRET",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_TOKEN",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AZURE_STORAGE_USE_EMULATOR",
        ],
    }
}

/// What to set if the server refuses a process that has no key.
fn remedy(kind: StoreKind, is_set: impl Fn(&str) -> bool) -> String {
    if variables(kind).iter().any(|name| is_set(name)) {
        return String::new();
    }
    let names = match kind {
        StoreKind::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        StoreKind::Gcs => {
            "GOOGLE_APPLICATION_CREDENTIALS (a file) or GOOGLE_SERVICE_ACCOUNT_KEY (its content)"
        }
        StoreKind::Azure => {
            "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and \
             AZURE_CLIENT_SECRET"
        }
    };
    format!("; no key is set: set {names}, unless this machine has a role that may use the bucket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: StoreKind) -> ObjectServer {
        ObjectServer {
            kind,
            bucket: "b".to_owned(),
            ..ObjectServer::default()
        }
    }

    fn refused(server: &ObjectServer, set: &[&str]) -> String {
        let checked = check_variables(server, |name| set.contains(&name));
        checked.unwrap_err().to_string()
    }

    #[test]
    fn a_missing_variable_is_named() {
        let s3 = refused(&of(StoreKind::S3), &["AWS_ACCESS_KEY_ID"]);
        assert!(
            s3.contains("variable AWS_SECRET_ACCESS_KEY is not set"),
            "{s3}"
        );
        let azure = of(StoreKind::Azure);
        let error = refused(&azure, &[]);
        assert!(error.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{error}");
        let set = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_CLIENT_SECRET"];
        let error = refused(&azure, &set);
        assert!(
            error.contains("variable AZURE_CLIENT_ID is not set"),
            "{error}"
        );
        let named = ObjectServer {
            account: Some("a".to_owned()),
            ..azure
        };
        assert!(check_variables(&named, |_| false).is_ok());
        // Keys of another service do not matter.
        let others = |name: &str| name == "AZURE_CLIENT_SECRET";
        assert!(check_variables(&of(StoreKind::Gcs), others).is_ok());
    }

    #[test]
    fn a_refused_process_without_a_key_is_told_what_to_set() {
        for (kind, name) in [
            (StoreKind::S3, "AWS_SECRET_ACCESS_KEY"),
            (StoreKind::Gcs, "GOOGLE_APPLICATION_CREDENTIALS"),
            (StoreKind::Azure, "AZURE_STORAGE_ACCOUNT_KEY"),
        ] {
            assert!(remedy(kind, |_| false).contains(name), "{kind:?}");
            for variable in variables(kind) {
                assert_eq!(remedy(kind, |name| name == *variable), "");
            }
        }
    }

    #[test]
    fn only_servers_of_this_machine_are_reached_without_encryption() {
        let allows =
            |server: &ObjectServer, is_allowed| client_settings(server, is_allowed)[1].1.clone();
        let mut server = of(StoreKind::Gcs);
        assert_eq!(allows(&server, false), "false");
        assert_eq!(allows(&server, true), "true");
        server.endpoint = Some("http://127.0.0.1:9000".to_owned());
        assert_eq!(allows(&server, false), "true");
    }
}
