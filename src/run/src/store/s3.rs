//! A store in a bucket of an S3 server.
//!
//! `object_store` is asynchronous, and stages call a store from any task. Its requests run in a runtime of their own, and
//! the caller's thread sleeps until they have ended.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path as Location;
use object_store::{
    ClientConfigKey, ClientOptions, Error, GetOptions, MultipartUpload, ObjectStore,
    ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use super::failure::{StoreError, found};
use super::uploads::{abandoned_uploads, abort};
use super::{Store, check_key};
use crate::RunError;
use crate::blocking::waiting;
use crate::replace::{finish_file, new_file};

/// Files up to this size are stored with one request, and only if the key is free; larger ones in parts of this size. S3
/// shows a file in parts when all of them are there. Large files are read in parts of this size too.
const PART: usize = 8 << 20;

/// Time for a request, from its beginning to the last byte of its answer.
const TIMEOUT_SECONDS: u32 = 30;

/// How long `object_store` repeats a request that the server did not answer or answered with 5xx, and how long after its
/// beginning an operation may begin again for such a reason.
const PATIENCE: Duration = Duration::from_secs(60);

/// Times that an operation is begun. `object_store` does not repeat what is not idempotent in general; here everything is,
/// since a key names its content.
const MAX_TRIES: u32 = 4;

/// Lists of unfinished uploads that are read, each of at most 1,000.
const MAX_LISTS: u32 = 100;

/// Wait before the second try; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// A bucket, and who may use it. It names where the secret key is and never holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectServer {
    pub bucket: String,
    /// Folder of the runs in the bucket.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Base URL of the server; without it, Amazon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Name of the key. Without it, Amazon's environment variables and roles decide.
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
            bucket: String::new(),
            prefix: default_prefix(),
            endpoint: None,
            region: None,
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
    /// [`RunError::BadInput`] if the connection to another machine would not be encrypted, the prefix is no key, or there
    /// is no time for a request.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        check_key(&self.prefix)?;
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
        let host = host.split(['/', ':']).next().unwrap_or_default();
        match host == "localhost" || host.starts_with("127.") {
            true => Ok(()),
            false => Err(RunError::BadInput(format!(
                "store.endpoint: {host} is another machine, so it needs https://"
            ))),
        }
    }

    fn secret(&self) -> Result<String, RunError> {
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

/// Files below a folder of a bucket.
#[derive(Clone)]
pub struct S3Store {
    client: Arc<AmazonS3>,
    bucket: String,
    folder: String,
    region: String,
    options: ClientOptions,
}

impl std::fmt::Debug for S3Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client knows the keys.
        formatter
            .debug_struct("S3Store")
            .field("bucket", &self.bucket)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl S3Store {
    /// The store of the run `name`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the settings are wrong; the secret key cannot be read.
    pub fn new(server: &ObjectServer, name: &str) -> Result<Self, RunError> {
        let folder = format!("{}/{name}", server.prefix);
        check_key(&folder)?;
        Self::in_folder(server, folder)
    }

    /// The store in a folder of the bucket.
    pub(super) fn in_folder(server: &ObjectServer, folder: String) -> Result<Self, RunError> {
        server.check()?;
        let mut builder = match &server.access_key {
            None => AmazonS3Builder::from_env(),
            Some(key) => AmazonS3Builder::new()
                .with_access_key_id(key)
                .with_secret_access_key(server.secret()?),
        };
        let endpoint = server.endpoint.as_deref();
        let timeout = format!("{}s", server.timeout_seconds);
        // `from_env` reads AWS_ALLOW_HTTP, which stays.
        let mut allows_http = builder.get_config_value(&client_key(ClientConfigKey::AllowHttp));
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            allows_http = Some("true".to_owned());
        }
        let allows_http = allows_http.unwrap_or_else(|| "false".to_owned());
        let options = ClientOptions::new()
            .with_config(ClientConfigKey::Timeout, &timeout)
            .with_config(ClientConfigKey::AllowHttp, &allows_http);
        builder = builder
            .with_config(client_key(ClientConfigKey::Timeout), timeout)
            .with_config(client_key(ClientConfigKey::AllowHttp), allows_http)
            .with_bucket_name(&server.bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(RetryConfig {
                retry_timeout: PATIENCE,
                ..RetryConfig::default()
            });
        if let Some(region) = &server.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
        let client = builder
            .build()
            .map_err(|error| RunError::BadInput(format!("the store of the profile: {error}")))?;
        Ok(Self {
            client: Arc::new(client),
            bucket: server.bucket.clone(),
            folder,
            // As `object_store` has it.
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            options,
        })
    }

    /// Folder in the bucket.
    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    fn location(&self, key: &str) -> Result<Location, RunError> {
        check_key(key)?;
        Ok(Location::from(format!("{}/{key}", self.folder)))
    }

    /// Runs requests, and begins again if they fail for a reason that may pass; `what` says what is done with which key.
    pub(super) fn run<T: Send + 'static, F>(
        &self,
        what: String,
        requests: impl Fn(Arc<AmazonS3>) -> F + Send + Sync + 'static,
    ) -> Result<T, RunError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel();
        let (client, operation) = (self.client.clone(), what.clone());
        runtime()?.spawn(async move {
            let _ = sender.send(repeated(&operation, move || requests(client.clone())).await);
        });
        let ended = waiting(|| receiver.recv());
        let ended = ended.map_err(|_| {
            RunError::Internal(format!(
                "{}: {what}: the requests panicked",
                self.describe()
            ))
        })?;
        ended.map_err(|error| match error {
            StoreError::Store(error) => {
                RunError::Store(format!("{}: {what}: {error}", self.describe()))
            }
            StoreError::File(error) => RunError::io(what)(error),
        })
    }
}

/// Makes requests until they succeed, fail for good, or have failed [`MAX_TRIES`] times; a server that fails is not asked again
/// after [`PATIENCE`].
async fn repeated<T, F: Future<Output = Result<T, StoreError>>>(
    what: &str,
    requests: impl Fn() -> F,
) -> Result<T, StoreError> {
    let (since, mut wait) = (Instant::now(), FIRST_WAIT);
    for _ in 1..MAX_TRIES {
        match requests().await {
            Err(error) if error.may_pass(since.elapsed() < PATIENCE) => {
                tracing::debug!("{what} failed, trying again: {error}");
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            ended => return ended,
        }
    }
    requests().await
}

fn client_key(key: ClientConfigKey) -> AmazonS3ConfigKey {
    AmazonS3ConfigKey::Client(key)
}

impl Store for S3Store {
    fn put(&self, key: &str, path: &Path) -> Result<(), RunError> {
        let (location, path) = (self.location(key)?, path.to_owned());
        let what = format!("storing {} as {key}", path.display());
        self.run(what, move |client| {
            let (location, path) = (location.clone(), path.clone());
            async move {
                let file = tokio::fs::File::open(&path).await?;
                match file.metadata().await?.len() > PART as u64 {
                    true => put_in_parts(&client, &location, file).await,
                    false => put_whole(&client, &location, file).await,
                }
            }
        })
    }

    fn fetch(&self, key: &str, path: &Path) -> Result<bool, RunError> {
        let (location, path) = (self.location(key)?, path.to_owned());
        let what = format!("fetching {key} to {}", path.display());
        self.run(what, move |client| {
            let (location, path) = (location.clone(), path.clone());
            async move { fetch_object(&client, &location, &path).await }
        })
    }

    fn size(&self, key: &str) -> Result<Option<u64>, RunError> {
        let location = self.location(key)?;
        self.run(format!("looking for {key}"), move |client| {
            let location = location.clone();
            async move { Ok(found(client.head(&location).await)?.map(|object| object.size)) }
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, RunError> {
        let location = self.location(folder)?;
        let prefix = format!("{}/", self.folder);
        self.run(format!("listing {folder}"), move |client| {
            let (location, prefix) = (location.clone(), prefix.clone());
            async move {
                let objects: Vec<_> = client.list(Some(&location)).try_collect().await?;
                let keys = objects.iter().filter_map(|object| {
                    let key = object.location.as_ref().strip_prefix(&prefix)?;
                    Some(key.to_owned())
                });
                let mut keys: Vec<String> = keys.collect();
                keys.sort();
                Ok(keys)
            }
        })
    }

    fn delete(&self, key: &str) -> Result<(), RunError> {
        let location = self.location(key)?;
        self.run(format!("deleting {key}"), move |client| {
            let location = location.clone();
            async move {
                found(client.delete(&location).await)?;
                Ok(())
            }
        })
    }

    fn end_uploads(&self) -> Result<u64, RunError> {
        let prefix = format!("{}/", self.folder);
        let (region, options) = (self.region.clone(), self.options.clone());
        let what = "ending uploads that no process continues".to_owned();
        self.run(what, move |client| {
            let (prefix, region, options) = (prefix.clone(), region.clone(), options.clone());
            async move {
                let settings = (region.as_str(), &options);
                let mut ended = 0;
                for _ in 0..MAX_LISTS {
                    let uploads = abandoned_uploads(&client, settings, &prefix).await?;
                    if uploads.is_empty() {
                        break;
                    }
                    for upload in &uploads {
                        abort(&client, upload).await?;
                        ended += 1;
                    }
                }
                Ok(ended)
            }
        })
    }

    fn describe(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.folder)
    }
}

/// Copies an object to a file, which appears when it is complete; `false` if there is none.
pub(super) async fn fetch_object(
    client: &AmazonS3,
    location: &Location,
    path: &Path,
) -> Result<bool, StoreError> {
    let Some(object) = found(client.get(location).await)? else {
        return Ok(false);
    };
    let mut out = new_file(path)?;
    let size = object.meta.size;
    if size <= PART as u64 {
        let mut chunks = object.into_stream();
        while let Some(chunk) = chunks.next().await {
            out.write_all(&chunk?)?;
        }
    } else {
        let tag = object.meta.e_tag.clone();
        drop(object);
        for start in (0..size).step_by(PART) {
            let range = start..(start + PART as u64).min(size);
            let options = GetOptions::new().with_range(Some(range));
            let part = client.get_opts(location, options).await?;
            if part.meta.e_tag != tag {
                return Err(replaced(location));
            }
            out.write_all(&part.bytes().await?)?;
        }
    }
    finish_file(out, path)?;
    Ok(true)
}

/// An object that was read in parts has changed meanwhile; it is read again.
fn replaced(location: &Location) -> StoreError {
    StoreError::Store(Error::Generic {
        store: "S3",
        source: format!("{location} was replaced while it was read").into(),
    })
}

/// Stores a small file, unless the key exists.
async fn put_whole(
    client: &AmazonS3,
    location: &Location,
    mut file: tokio::fs::File,
) -> Result<(), StoreError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await?;
    let options = PutOptions::from(PutMode::Create);
    let stored = client.put_opts(location, PutPayload::from(bytes), options);
    match stored.await {
        // The precondition failed (412): the key is there. With 409, another process has begun to store it.
        Err(Error::AlreadyExists { source, .. }) if source.is::<Error>() => Ok(()),
        stored => Ok(stored.map(|_| ())?),
    }
}

/// Stores a large file, unless the key exists.
async fn put_in_parts(
    client: &AmazonS3,
    location: &Location,
    mut file: tokio::fs::File,
) -> Result<(), StoreError> {
    if found(client.head(location).await)?.is_some() {
        return Ok(());
    }
    let mut upload = client.put_multipart(location).await?;
    let sent = match send_parts(&mut file, upload.as_mut()).await {
        Ok(()) => upload
            .complete()
            .await
            .map(|_| ())
            .map_err(StoreError::from),
        Err(error) => Err(error),
    };
    let Err(error) = sent else {
        return Ok(());
    };
    // Parts that are never completed would be paid for. If the reply to the completion was lost, there is nothing to abort, and
    // the next try finds the file.
    let _ = upload.abort().await;
    Err(error)
}

async fn send_parts(
    file: &mut tokio::fs::File,
    upload: &mut dyn MultipartUpload,
) -> Result<(), StoreError> {
    loop {
        let mut part = Vec::with_capacity(PART);
        let mut rest = (&mut *file).take(PART as u64);
        if rest.read_to_end(&mut part).await? == 0 {
            return Ok(());
        }
        upload.put_part(PutPayload::from(part)).await?;
    }
}

/// The runtime of all requests.
fn runtime() -> Result<&'static Runtime, RunError> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("store")
        .enable_all()
        .build()
        .map_err(RunError::io("a runtime"))?;
    // If another thread was faster, this one is dropped, which may not happen inside a runtime.
    if let Err(late) = RUNTIME.set(runtime) {
        late.shutdown_background();
    }
    RUNTIME
        .get()
        .ok_or_else(|| RunError::Internal("the runtime of the store is missing".to_owned()))
}
