//! A store in a bucket of Amazon, Google or Azure.
//!
//! `object_store` is asynchronous, and stages call a store from any task. Its requests run in a runtime of their own, and
//! the caller's thread sleeps until they have ended.

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Location;
use object_store::{
    Error, GetOptions, GetResult, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload,
};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use super::connection::Connection;
use super::failure::{StoreError, found, refusal};
use super::fetched_file::FetchedFile;
use super::server::{ObjectServer, StoreKind};
use super::uploads::{abandoned_uploads, abort};
use super::{ExpectedFile, Store, check_key};
use crate::RunError;
use crate::blocking::waiting;

/// Files up to this size are stored with one request, and only if the key is free; larger ones in parts of this size. A
/// server shows a file in parts when all of them are there. Large files are read in parts of this size too.
pub(super) const PART: usize = 8 << 20;

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

/// Files below a folder of a bucket.
#[derive(Clone)]
pub struct BucketStore {
    connection: Connection,
    kind: StoreKind,
    bucket: String,
    folder: String,
}

impl std::fmt::Debug for BucketStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client knows the keys.
        formatter
            .debug_struct("BucketStore")
            .field("kind", &self.kind)
            .field("bucket", &self.bucket)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl BucketStore {
    /// The store of the run `name`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the settings are wrong; [`RunError::Environment`] if a variable is missing; the secret key
    /// cannot be read.
    pub fn new(server: &ObjectServer, name: &str) -> Result<Self, RunError> {
        let folder = format!("{}/{name}", server.prefix);
        check_key(&folder)?;
        Self::in_folder(server, folder)
    }

    /// The store in a folder of the bucket.
    pub(super) fn in_folder(server: &ObjectServer, folder: String) -> Result<Self, RunError> {
        Ok(Self {
            connection: Connection::new(server, PATIENCE)?,
            kind: server.kind,
            bucket: server.bucket.clone(),
            folder,
        })
    }

    /// A store in memory, for tests.
    #[cfg(test)]
    pub(super) fn in_memory(folder: &str) -> Self {
        let connection = Connection {
            objects: Arc::new(object_store::memory::InMemory::new()),
            s3: None,
            remedy: String::new(),
        };
        Self {
            connection,
            kind: StoreKind::Gcs,
            bucket: "memory".to_owned(),
            folder: folder.to_owned(),
        }
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
        requests: impl Fn(Arc<dyn ObjectStore>) -> F + Send + Sync + 'static,
    ) -> Result<T, RunError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel();
        let (client, operation) = (self.connection.objects.clone(), what.clone());
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
            StoreError::Store(error) => self.failed(&what, &error),
            StoreError::File(error) => RunError::io(what)(error),
            refused @ (StoreError::TooLarge(_)
            | StoreError::TooMany(_)
            | StoreError::OtherDigest { .. }) => {
                RunError::BadInput(format!("{}: {what}: {refused}", self.describe()))
            }
        })
    }

    /// The error of requests that failed.
    fn failed(&self, what: &str, error: &Error) -> RunError {
        let remedy = &self.connection.remedy;
        let text = format!("{}: {what}: {error}{remedy}", self.describe());
        match refusal(error) {
            Some(way_out) => {
                RunError::StoreRefused(format!("{text}; {way_out}, and repeat the command"))
            }
            None => RunError::Store(text),
        }
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

impl Store for BucketStore {
    fn put(&self, key: &str, path: &Path) -> Result<(), RunError> {
        let (location, path) = (self.location(key)?, path.to_owned());
        let what = format!("storing {} as {key}", path.display());
        self.run(what, move |client| {
            let (location, path) = (location.clone(), path.clone());
            async move {
                let file = tokio::fs::File::open(&path).await?;
                match file.metadata().await?.len() > PART as u64 {
                    true => put_in_parts(client.as_ref(), &location, file).await,
                    false => put_whole(client.as_ref(), &location, file).await,
                }
            }
        })
    }

    fn fetch_expected(
        &self,
        key: &str,
        path: &Path,
        expected: &ExpectedFile,
    ) -> Result<bool, RunError> {
        let (location, path, expected) = (self.location(key)?, path.to_owned(), expected.clone());
        let what = format!("fetching {key} to {}", path.display());
        self.run(what, move |client| {
            let (location, path, expected) = (location.clone(), path.clone(), expected.clone());
            async move { fetch_object(client.as_ref(), &location, &path, &expected).await }
        })
    }

    fn size(&self, key: &str) -> Result<Option<u64>, RunError> {
        let location = self.location(key)?;
        self.run(format!("looking for {key}"), move |client| {
            let location = location.clone();
            async move { Ok(found(client.head(&location).await)?.map(|object| object.size)) }
        })
    }

    fn list_up_to(&self, folder: &str, max: usize) -> Result<Vec<String>, RunError> {
        let location = self.location(folder)?;
        let prefix = format!("{}/", self.folder);
        self.run(format!("listing {folder}"), move |client| {
            let (location, prefix) = (location.clone(), prefix.clone());
            async move {
                let mut objects = client.list(Some(&location));
                let (mut keys, mut objects_seen) = (Vec::<String>::new(), 0);
                while let Some(object) = objects.try_next().await? {
                    objects_seen += 1;
                    if objects_seen > max {
                        return Err(StoreError::TooMany(max));
                    }
                    let key = object.location.as_ref().strip_prefix(&prefix);
                    keys.extend(key.map(str::to_owned));
                }
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
        // Azure deletes unfinished uploads after a week. Google needs a rule of the bucket, as docs/cluster.md says.
        let Some(s3) = self.connection.s3.clone() else {
            return Ok(0);
        };
        let prefix = format!("{}/", self.folder);
        let what = "ending uploads that no process continues".to_owned();
        self.run(what, move |_| {
            let (prefix, s3) = (prefix.clone(), s3.clone());
            async move {
                let settings = (s3.region.as_str(), &s3.options);
                let mut ended = 0;
                for _ in 0..MAX_LISTS {
                    let uploads = abandoned_uploads(&s3.client, settings, &prefix).await?;
                    if uploads.is_empty() {
                        break;
                    }
                    for upload in &uploads {
                        abort(&s3.client, upload).await?;
                        ended += 1;
                    }
                }
                Ok(ended)
            }
        })
    }

    fn describe(&self) -> String {
        let scheme = self.kind.scheme();
        format!("{scheme}://{}/{}", self.bucket, self.folder)
    }
}

/// Copies an object to a file, which appears when it is complete and as expected; `false` if there is none.
async fn fetch_object(
    client: &dyn ObjectStore,
    location: &Location,
    path: &Path,
    expected: &ExpectedFile,
) -> Result<bool, StoreError> {
    let Some(object) = found(client.get(location).await)? else {
        return Ok(false);
    };
    let size = object.meta.size;
    if size > expected.max {
        return Err(StoreError::TooLarge(expected.max));
    }
    let mut out = FetchedFile::new(path, expected)?;
    if size <= PART as u64 {
        write_body(object, size, &mut out).await?;
    } else {
        let tag = object.meta.e_tag.clone();
        drop(object);
        for start in (0..size).step_by(PART) {
            let end = (start + PART as u64).min(size);
            let options = GetOptions::new().with_range(Some(start..end));
            let part = client.get_opts(location, options).await?;
            if part.meta.e_tag != tag {
                return Err(replaced(location));
            }
            write_body(part, end - start, &mut out).await?;
        }
    }
    out.finish(path)?;
    Ok(true)
}

/// Writes the body of a response, which has to have as many bytes as the server has announced.
pub(super) async fn write_body(
    response: GetResult,
    length: u64,
    out: &mut impl Write,
) -> Result<(), StoreError> {
    let location = response.meta.location.clone();
    let other_length = || {
        StoreError::Store(Error::Generic {
            store: "bucket",
            source: format!("{location}: the body has not the length that was announced").into(),
        })
    };
    let (mut chunks, mut left) = (response.into_stream(), length);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        let rest = left.checked_sub(chunk.len() as u64);
        left = rest.ok_or_else(other_length)?;
        out.write_all(&chunk)?;
    }
    match left {
        0 => Ok(()),
        _ => Err(other_length()),
    }
}

/// An object that was read in parts has changed meanwhile; it is read again.
pub(super) fn replaced(location: &Location) -> StoreError {
    StoreError::Store(Error::Generic {
        store: "bucket",
        source: format!("{location} was replaced while it was read").into(),
    })
}

/// Stores a small file, unless the key exists.
async fn put_whole(
    client: &dyn ObjectStore,
    location: &Location,
    mut file: tokio::fs::File,
) -> Result<(), StoreError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await?;
    let options = PutOptions::from(PutMode::Create);
    let stored = client.put_opts(location, PutPayload::from(bytes), options);
    match stored.await {
        Err(error @ Error::AlreadyExists { .. }) => {
            // The key is there (412; 409 of Azure), or another process has begun to store it (409 of S3).
            match found(client.head(location).await)? {
                Some(_) => Ok(()),
                None => Err(error.into()),
            }
        }
        stored => Ok(stored.map(|_| ())?),
    }
}

/// Stores a large file, unless the key exists.
async fn put_in_parts(
    client: &dyn ObjectStore,
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

#[cfg(test)]
mod tests {
    use pybench_types::id::Digest;

    use super::*;

    /// Services report an existing key with different errors; S3's is tested with a server.
    #[test]
    fn a_key_that_exists_is_kept() {
        let store = BucketStore::in_memory("runs/a");
        assert_eq!(store.describe(), "gs://memory/runs/a");
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("in"), folder.path().join("out"));
        for bytes in ["first", "second"] {
            std::fs::write(&from, bytes).unwrap();
            store.put("files/b", &from).unwrap();
        }
        assert!(store.fetch("files/b", &to).unwrap());
        assert_eq!(std::fs::read(&to).unwrap(), b"first");
        assert_eq!(store.list("files").unwrap(), ["files/b"]);
        store.delete("files/b").unwrap();
        assert_eq!(store.size("files/b").unwrap(), None);
        assert!(!store.fetch("files/b", &to).unwrap());
        // The service itself deletes unfinished uploads.
        assert_eq!(store.end_uploads().unwrap(), 0);
    }

    #[test]
    fn an_object_that_is_not_as_expected_does_not_appear() {
        let store = BucketStore::in_memory("runs/a");
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("in"), folder.path().join("out/file"));
        // Read at once, and in parts.
        for (key, size) in [("files/a", 3), ("files/b", PART + 1)] {
            let mut bytes = vec![1_u8; size];
            let expected = ExpectedFile {
                max: size as u64,
                ..ExpectedFile::with_digest(&Digest::of_bytes(&bytes))
            };
            let stored = |bytes: &[u8]| {
                store.delete(key).unwrap();
                std::fs::write(&from, bytes).unwrap();
                store.put(key, &from).unwrap();
                store.fetch_expected(key, &to, &expected)
            };
            assert!(stored(&bytes).unwrap());
            assert!(std::fs::read(&to).unwrap() == bytes);
            std::fs::remove_file(&to).unwrap();
            bytes[size - 1] = 2;
            let error = stored(&bytes).unwrap_err().to_string();
            let (wrong, right) = (Digest::of_bytes(&bytes), expected.digest.as_ref().unwrap());
            for words in [key, "is damaged", wrong.as_str(), right.as_str()] {
                assert!(error.contains(words), "{error}");
            }
            bytes.push(1);
            let error = stored(&bytes).unwrap_err().to_string();
            assert!(
                error.contains(&format!("more than {size} bytes")),
                "{error}"
            );
            let parent = to.parent().unwrap();
            assert_eq!(std::fs::read_dir(parent).unwrap().count(), 0);
        }
    }

    #[test]
    fn only_so_many_keys_are_listed() {
        let store = BucketStore::in_memory("runs/a");
        let file = tempfile::NamedTempFile::new().unwrap();
        for key in ["copies/1", "copies/2"] {
            store.put(key, file.path()).unwrap();
        }
        assert_eq!(store.list_up_to("copies", 2).unwrap().len(), 2);
        let error = store.list_up_to("copies", 1).unwrap_err().to_string();
        assert!(error.contains("more than 1 files"), "{error}");
    }

    #[test]
    fn a_body_has_the_length_that_was_announced() {
        let objects = object_store::memory::InMemory::new();
        let location = Location::from("a");
        let read = async |length: u64| {
            let mut out = Vec::new();
            write_body(objects.get(&location).await?, length, &mut out).await?;
            Ok::<_, StoreError>(out)
        };
        let runtime = runtime().unwrap();
        let payload = PutPayload::from(b"abc".to_vec());
        runtime.block_on(objects.put(&location, payload)).unwrap();
        assert_eq!(runtime.block_on(read(3)).unwrap(), b"abc");
        for wrong in [2, 4] {
            let error = runtime.block_on(read(wrong)).unwrap_err();
            assert!(error.may_pass(true), "{error}");
        }
    }
}
