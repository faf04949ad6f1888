//! A store in a bucket of an S3 server.
//!
//! `object_store` is asynchronous, and stages call a store from any task. Its requests run in a runtime of their own, and
//! the caller's thread sleeps until they have ended.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};

use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path as Location;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use super::{Store, check_key};
use crate::RunError;
use crate::blocking::waiting;
use crate::replace::{finish_file, new_file};

/// Files up to this size are stored with one request, and only if the key is free; larger ones in parts of this size. S3
/// shows a file in parts when all of them are there.
const PART: usize = 8 << 20;

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
}

fn default_prefix() -> String {
    "runs".to_owned()
}

impl ObjectServer {
    /// Checks that the server can be used at all.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the connection to another machine would not be encrypted, or the prefix is no key.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        check_key(&self.prefix)?;
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

/// A file of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct S3File {
    pub key: String,
    pub size: u64,
    /// Changes with its content, if the server says so.
    pub version: String,
}

/// Files below a folder of a bucket, or of the whole bucket if the folder has no name.
#[derive(Clone)]
pub struct S3Store {
    client: Arc<AmazonS3>,
    bucket: String,
    folder: String,
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
        server.check()?;
        let folder = format!("{}/{name}", server.prefix);
        check_key(&folder)?;
        let mut builder = match &server.access_key {
            None => AmazonS3Builder::from_env(),
            Some(key) => AmazonS3Builder::new()
                .with_access_key_id(key)
                .with_secret_access_key(server.secret()?),
        };
        builder = builder
            .with_bucket_name(&server.bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch);
        if let Some(region) = &server.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &server.endpoint {
            builder = builder
                .with_endpoint(endpoint)
                .with_allow_http(endpoint.starts_with("http://"));
        }
        let client = builder
            .build()
            .map_err(|error| RunError::BadInput(format!("the store of the profile: {error}")))?;
        Ok(Self {
            client: Arc::new(client),
            bucket: server.bucket.clone(),
            folder,
        })
    }

    /// The store that has the file or folder of an address `s3://BUCKET/PATH`, and its key there. Amazon's environment
    /// variables and roles decide about server and keys.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the address has another form, or the environment variables are wrong.
    pub fn of_address(address: &str) -> Result<(Self, String), RunError> {
        let wrong = |reason: String| RunError::BadInput(format!("{address}: {reason}"));
        let path = address.strip_prefix("s3://").unwrap_or(address);
        let (bucket, path) = path
            .trim_end_matches('/')
            .split_once('/')
            .ok_or_else(|| wrong("expected s3://BUCKET/PATH".to_owned()))?;
        check_key(path).map_err(|error| wrong(error.to_string()))?;
        let (folder, key) = path.rsplit_once('/').unwrap_or(("", path));
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let client = builder.build().map_err(|error| wrong(error.to_string()))?;
        let store = Self {
            client: Arc::new(client),
            bucket: bucket.to_owned(),
            folder: folder.to_owned(),
        };
        Ok((store, key.to_owned()))
    }

    /// The files below a folder, sorted by key, or the file of that key. Those whose keys no store has are left out.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a wrong key; the server refuses.
    pub fn files(&self, key: &str) -> Result<Vec<S3File>, RunError> {
        let location = self.location(key)?;
        let prefix = self.prefix();
        self.run(format!("listing {key}"), |client| async move {
            let mut objects: Vec<_> = client.list(Some(&location)).try_collect().await?;
            if objects.is_empty() {
                objects.extend(found(client.head(&location).await)?);
            }
            let file = |object: &object_store::ObjectMeta| {
                let key = object.location.as_ref().strip_prefix(&prefix)?;
                check_key(key).ok()?;
                Some(S3File {
                    key: key.to_owned(),
                    size: object.size,
                    version: object.e_tag.clone().unwrap_or_default(),
                })
            };
            let mut files: Vec<S3File> = objects.iter().filter_map(file).collect();
            files.sort_by(|a, b| a.key.cmp(&b.key));
            Ok(files)
        })
    }

    /// What the keys of the bucket begin with that are in the folder.
    fn prefix(&self) -> String {
        match self.folder.is_empty() {
            true => String::new(),
            false => format!("{}/", self.folder),
        }
    }

    fn location(&self, key: &str) -> Result<Location, RunError> {
        check_key(key)?;
        Ok(Location::from(format!("{}{key}", self.prefix())))
    }

    /// Runs requests; `what` says what is done with which key.
    fn run<T: Send + 'static, F>(
        &self,
        what: String,
        requests: impl FnOnce(Arc<AmazonS3>) -> F,
    ) -> Result<T, RunError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel();
        let requests = requests(self.client.clone());
        runtime()?.spawn(async move {
            let _ = sender.send(requests.await);
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
                RunError::Environment(format!("{}: {what}: {error}", self.describe()))
            }
            StoreError::File(error) => RunError::io(what)(error),
        })
    }
}

/// Why requests failed.
enum StoreError {
    Store(Error),
    /// A file of this machine.
    File(std::io::Error),
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
fn found<T>(result: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match result {
        Err(Error::NotFound { .. }) => Ok(None),
        result => Ok(Some(result?)),
    }
}

impl Store for S3Store {
    fn put(&self, key: &str, path: &Path) -> Result<(), RunError> {
        let (location, path) = (self.location(key)?, path.to_owned());
        let what = format!("storing {} as {key}", path.display());
        self.run(what, |client| async move {
            let mut file = tokio::fs::File::open(&path).await?;
            if file.metadata().await?.len() > PART as u64 {
                if found(client.head(&location).await)?.is_some() {
                    return Ok(());
                }
                let mut upload = client.put_multipart(&location).await?;
                return match send_parts(&mut file, upload.as_mut()).await {
                    Ok(()) => {
                        upload.complete().await?;
                        Ok(())
                    }
                    Err(error) => {
                        // Parts that are never completed would be paid for.
                        let _ = upload.abort().await;
                        Err(error)
                    }
                };
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).await?;
            let options = PutOptions::from(PutMode::Create);
            match client
                .put_opts(&location, PutPayload::from(bytes), options)
                .await
            {
                Err(Error::AlreadyExists { .. }) => Ok(()),
                stored => Ok(stored.map(|_| ())?),
            }
        })
    }

    fn fetch(&self, key: &str, path: &Path) -> Result<bool, RunError> {
        let (location, path) = (self.location(key)?, path.to_owned());
        let what = format!("fetching {key} to {}", path.display());
        self.run(what, |client| async move {
            let Some(object) = found(client.get(&location).await)? else {
                return Ok(false);
            };
            let mut out = new_file(&path)?;
            let mut chunks = object.into_stream();
            while let Some(chunk) = chunks.next().await {
                out.write_all(&chunk?)?;
            }
            finish_file(out, &path)?;
            Ok(true)
        })
    }

    fn size(&self, key: &str) -> Result<Option<u64>, RunError> {
        let location = self.location(key)?;
        self.run(format!("looking for {key}"), |client| async move {
            Ok(found(client.head(&location).await)?.map(|object| object.size))
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, RunError> {
        let location = self.location(folder)?;
        let prefix = self.prefix();
        self.run(format!("listing {folder}"), |client| async move {
            let objects: Vec<_> = client.list(Some(&location)).try_collect().await?;
            let keys = objects.iter().filter_map(|object| {
                let key = object.location.as_ref().strip_prefix(&prefix)?;
                Some(key.to_owned())
            });
            let mut keys: Vec<String> = keys.collect();
            keys.sort();
            Ok(keys)
        })
    }

    fn delete(&self, key: &str) -> Result<(), RunError> {
        let location = self.location(key)?;
        self.run(format!("deleting {key}"), |client| async move {
            found(client.delete(&location).await)?;
            Ok(())
        })
    }

    fn describe(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.folder)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_bucket_and_a_path() {
        let of = |address: &str| {
            let (store, key) = S3Store::of_address(address)?;
            Ok::<_, RunError>((store.bucket, store.folder, key))
        };
        let found = |bucket: &str, folder: &str, key: &str| {
            (bucket.to_owned(), folder.to_owned(), key.to_owned())
        };
        assert_eq!(of("s3://b/a/c/d/").unwrap(), found("b", "a/c", "d"));
        assert_eq!(of("s3://b/d.parquet").unwrap(), found("b", "", "d.parquet"));
        for wrong in [
            "s3://b",
            "s3://b/",
            "s3://b/../x",
            "s3://b/a//c",
            "s3://b/.x",
            "s3://b/a b",
        ] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.starts_with(wrong), "{error}");
        }
    }
}
