//! One download: a conditional request if the body is cached, a range request if a part of it is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use pybench_run::{Failure, FailureKind, replace_file};
use reqwest::header::{CONTENT_RANGE, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use sha2::{Digest, Sha256};

use super::download_cache::{CacheMetadata, CacheState, CachedDownload, hex};
use super::{
    Auth, Expected, FetchError, HttpClient, MAX_LISTING, Throttle, display_url, error_chain,
    headers, status_message,
};
use crate::Limits;
use crate::file_name;
use pybench_files::sniff::{HEAD, archive_head};

/// Immediate resumptions of an interrupted download; further retries are left to the executor.
const MAX_RESUMES: usize = 3;
/// Maximum wait that a service can request before a retry.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A request for a download.
pub(crate) struct FetchRequest<'a> {
    pub url: Url,
    pub auth: &'a Auth,
    /// Hint for the user if the status is 401 or 403.
    pub help: &'static str,
    pub throttle: Option<&'a Throttle>,
    pub size_limit: SizeLimit,
    pub expected: &'a Expected,
    /// Maximum duration of the request.
    pub timeout: Duration,
}

/// Maximum size of a body.
#[derive(Clone, Copy)]
pub(crate) enum SizeLimit {
    Listing,
    /// An archive may have the total size of all files; other files have the limit of a single file.
    File(Limits),
}

impl SizeLimit {
    fn bytes(self, head: &[u8]) -> u64 {
        match self {
            Self::Listing => MAX_LISTING,
            Self::File(limits) if archive_head(head).is_some() => limits.total,
            Self::File(limits) => limits.file,
        }
    }
}

/// A completed download, positioned at its start.
#[derive(Debug)]
pub struct Fetched {
    pub file: File,
    pub sha256: String,
    /// The URL without possible secrets.
    pub origin: String,
    pub name: String,
    /// URL of the next page.
    pub next: Option<String>,
}

/// A download that will be moved out of the cache, together with its cache entry.
#[derive(Debug)]
pub struct Download {
    fetched: Fetched,
    cached: Option<CachedDownload>,
}

impl Download {
    /// SHA-256 in lowercase hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.fetched.sha256
    }

    /// The file, rewound to its start.
    pub fn file(&mut self) -> io::Result<&mut File> {
        self.fetched.file.seek(SeekFrom::Start(0))?;
        Ok(&mut self.fetched.file)
    }

    /// Moves the download to `to` atomically and removes it from the cache.
    pub fn move_to(mut self, to: &Path) -> io::Result<()> {
        let folder = to.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let moved = self
            .cached
            .as_ref()
            .is_some_and(|cached| cached.move_to(to));
        if !moved {
            replace_file(to, |out| io::copy(self.file()?, out).map(drop))?;
        }
        self.discard();
        Ok(())
    }

    /// Removes the download from the cache.
    pub fn discard(self) {
        self.cached.inspect(CachedDownload::clear);
    }
}

/// Why an attempt did not complete the download.
enum AttemptError {
    Final(FetchError),
    /// The connection was lost before the end of the body; whether the cache gained data.
    Interrupted(Failure, bool),
    /// The cached data is unusable; request again without it.
    CacheInvalid,
}

impl From<FetchError> for AttemptError {
    fn from(error: FetchError) -> Self {
        Self::Final(error)
    }
}

/// Downloads a URL within limits of size and time.
pub(crate) async fn fetch(
    web: &HttpClient,
    request: FetchRequest<'_>,
) -> Result<Fetched, FetchError> {
    Ok(fetch_with_cache_entry(web, request).await?.fetched)
}

/// As [`fetch`], and returns the cache entry as well.
pub(crate) async fn fetch_with_cache_entry(
    web: &HttpClient,
    request: FetchRequest<'_>,
) -> Result<Download, FetchError> {
    if !matches!(request.url.scheme(), "http" | "https") {
        return Err(FetchError::Refused("neither http nor https".into()));
    }
    let asked = format!("{} {}", request.url, request.auth.is_some());
    let key = blake3::hash(asked.as_bytes()).to_hex();
    let cached = CachedDownload::open(&web.cache, &key);
    let fetch = Fetch {
        shown: display_url(&request.url),
        web,
        request,
        cached,
    };
    let (mut resumed, mut restarted) = (0, false);
    loop {
        match fetch.attempt().await {
            Ok(fetched) => {
                let cached = fetch.cached;
                return Ok(Download { fetched, cached });
            }
            Err(AttemptError::Final(error)) => return Err(error),
            Err(AttemptError::Interrupted(_, true)) if resumed < MAX_RESUMES => resumed += 1,
            Err(AttemptError::Interrupted(failure, _)) => return Err(FetchError::Failed(failure)),
            Err(AttemptError::CacheInvalid) if !restarted => restarted = true,
            Err(AttemptError::CacheInvalid) => {
                return Err(fetch.failed("the server sent inconsistent responses"));
            }
        }
    }
}

struct Fetch<'a> {
    web: &'a HttpClient,
    request: FetchRequest<'a>,
    shown: String,
    cached: Option<CachedDownload>,
}

impl Fetch<'_> {
    async fn attempt(&self) -> Result<Fetched, AttemptError> {
        let state = self
            .cached
            .as_ref()
            .map_or(CacheState::Empty, CachedDownload::state);
        let client = self
            .web
            .client()
            .map_err(|error| self.failed(&error_chain(&error)))?;
        let request = client
            .get(self.request.url.clone())
            .timeout(self.request.timeout);
        let request = self.request.auth.apply(request);
        let _permit = match self.request.throttle {
            Some(throttle) => Some(throttle.acquire().await),
            None => None,
        };
        let sent = conditional(request, &state).send().await;
        let response = sent.map_err(|error| self.failed(&error_chain(&error)))?;
        let range = headers::text(response.headers(), CONTENT_RANGE);
        match (response.status(), state, &self.cached) {
            (StatusCode::NOT_MODIFIED, CacheState::Complete(metadata), Some(cached)) => {
                self.reuse_cached(cached, metadata)
            }
            (StatusCode::PARTIAL_CONTENT, CacheState::Partial(metadata, length), Some(cached))
                if headers::range_start(range) == Some(length) =>
            {
                let file = cached.resume().map_err(|error| self.internal(&error))?;
                self.save(response, file, Some((cached, metadata))).await
            }
            (
                StatusCode::NOT_MODIFIED
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::RANGE_NOT_SATISFIABLE,
                CacheState::Complete(_) | CacheState::Partial(..),
                Some(cached),
            ) => {
                cached.clear();
                Err(AttemptError::CacheInvalid)
            }
            (StatusCode::OK, ..) => self.save_from_start(response).await,
            _ => Err(self.refused(&response).await.into()),
        }
    }

    /// Saves a body from its beginning.
    async fn save_from_start(&self, response: Response) -> Result<Fetched, AttemptError> {
        let next = headers::next(&self.request.url, response.headers()).map(String::from);
        let name = file_name(&self.request.url, response.headers());
        let metadata = CacheMetadata::from_headers(response.headers(), name, next);
        let cached = self.cached.as_ref();
        let begun = match cached.filter(|_| metadata.has_validator()) {
            Some(cached) => cached
                .begin(&metadata)
                .map(|file| (file, Some((cached, metadata.clone())))),
            None => {
                cached.inspect(|cached| cached.clear());
                tempfile::tempfile().map(|file| (file, None))
            }
        };
        let (file, place) = begun.map_err(|error| self.internal(&error))?;
        match place {
            Some(place) => self.save(response, file, Some(place)).await,
            None => {
                let mut fetched = self.save(response, file, None).await?;
                (fetched.name, fetched.next) = (metadata.name, metadata.next);
                Ok(fetched)
            }
        }
    }

    fn reuse_cached(
        &self,
        cached: &CachedDownload,
        metadata: CacheMetadata,
    ) -> Result<Fetched, AttemptError> {
        let Ok(Some(file)) = cached.open_complete(&metadata) else {
            cached.clear();
            return Err(AttemptError::CacheInvalid);
        };
        let size = file.metadata().map_or(0, |file| file.len());
        let mut head = Vec::new();
        let read = (&file).take(HEAD as u64).read_to_end(&mut head);
        read.map_err(|error| self.internal(&error))?;
        self.bounded(size, &head)?;
        Ok(self.fetched(file, metadata)?)
    }

    /// Appends the body of a response to a file.
    async fn save(
        &self,
        response: Response,
        mut file: File,
        cached: Option<(&CachedDownload, CacheMetadata)>,
    ) -> Result<Fetched, AttemptError> {
        let wrong = |error: io::Error| AttemptError::from(self.internal(&error));
        let mut body = BodyState::of(&mut file).map_err(wrong)?;
        let before = body.size;
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    let size = body.size;
                    let detail = format!(
                        "connection lost after {size} bytes: {}",
                        error_chain(&error)
                    );
                    let resumable = cached
                        .as_ref()
                        .is_some_and(|(_, metadata)| metadata.strong_validator().is_some());
                    let failure = self.failure(&detail).retryable();
                    return Err(AttemptError::Interrupted(
                        failure,
                        resumable && size > before,
                    ));
                }
            };
            body.add(&chunk);
            if let Err(error) = self.bounded(body.size, &body.head) {
                cached.inspect(|(cached, _)| cached.clear());
                return Err(error.into());
            }
            file.write_all(&chunk).map_err(wrong)?;
        }
        let (size, sha256) = (body.size, hex(&body.hasher.finalize()));
        if let Err(error) = self.as_expected(size, &sha256) {
            cached.inspect(|(cached, _)| cached.clear());
            return Err(error.into());
        }
        let (cached, metadata) = cached.unzip();
        let metadata = CacheMetadata {
            sha256,
            ..metadata.unwrap_or_default()
        };
        if let Some(cached) = cached {
            cached.complete(&metadata).map_err(wrong)?;
        }
        Ok(self.fetched(file, metadata)?)
    }

    fn fetched(&self, mut file: File, metadata: CacheMetadata) -> Result<Fetched, FetchError> {
        let rewound = file.seek(SeekFrom::Start(0));
        rewound.map_err(|error| self.internal(&error))?;
        Ok(Fetched {
            file,
            sha256: metadata.sha256,
            origin: self.shown.clone(),
            name: metadata.name,
            next: metadata.next,
        })
    }

    fn bounded(&self, size: u64, head: &[u8]) -> Result<(), FetchError> {
        let most = self.request.size_limit.bytes(head);
        match size > most {
            true => Err(FetchError::Refused(format!(
                "larger than {} MiB",
                most >> 20
            ))),
            false => Ok(()),
        }
    }

    /// Compares the body with its listing. A difference is retryable, because the body may have been truncated.
    fn as_expected(&self, size: u64, sha256: &str) -> Result<(), FetchError> {
        let expected = self.request.expected;
        match (&expected.sha256, expected.size) {
            (_, Some(announced)) if announced != size => {
                let text = format!("{size} bytes received, but the listing says {announced}");
                Err(self.failed(&text))
            }
            (Some(announced), _) if !announced.eq_ignore_ascii_case(sha256) => {
                Err(self.failed("the SHA-256 differs from that of the listing"))
            }
            _ => Ok(()),
        }
    }

    /// The error of a response without a body to save.
    async fn refused(&self, response: &Response) -> FetchError {
        let status = response.status();
        let Some(after) = headers::retry_delay(status, response.headers()) else {
            let cached = self.cached.as_ref();
            cached.inspect(|cached| cached.clear());
            return FetchError::Refused(status_message(status, self.request.help));
        };
        let after = after.map(|after| after.min(MAX_RETRY_AFTER));
        if let (Some(pace), Some(after)) = (self.request.throttle, after) {
            pace.delay(after).await;
        }
        let mut failure = self
            .failure(&format!("the server answered {status}"))
            .retryable();
        failure.retry_after = after;
        FetchError::Failed(failure)
    }

    fn failure(&self, detail: &str) -> Failure {
        Failure::new(FailureKind::Internal, format!("{}: {detail}", self.shown))
    }

    fn failed(&self, detail: &str) -> FetchError {
        FetchError::Failed(self.failure(detail).retryable())
    }

    /// An error of the local disk.
    fn internal(&self, error: &io::Error) -> FetchError {
        FetchError::Failed(self.failure(&format!("cannot save the download: {error}")))
    }
}

/// Requests only data that is not cached.
fn conditional(request: RequestBuilder, state: &CacheState) -> RequestBuilder {
    match state {
        CacheState::Empty => request,
        CacheState::Complete(metadata) => match (&metadata.etag, &metadata.modified) {
            (Some(etag), _) => request.header(IF_NONE_MATCH, etag),
            (None, Some(modified)) => request.header(IF_MODIFIED_SINCE, modified),
            (None, None) => request,
        },
        CacheState::Partial(metadata, length) => {
            let range = format!("bytes={length}-");
            request
                .header(RANGE, range)
                .header(IF_RANGE, metadata.strong_validator().unwrap_or_default())
        }
    }
}

/// Size, hash and first bytes of the received part of a body.
struct BodyState {
    hasher: Sha256,
    head: Vec<u8>,
    size: u64,
}

impl BodyState {
    /// State of the data that a file already contains.
    fn of(file: &mut File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let mut body = Self {
            hasher: Sha256::new(),
            head: Vec::new(),
            size: 0,
        };
        let mut piece = vec![0; 1 << 16];
        while body.size < size {
            match file.read(&mut piece)? {
                0 => break,
                count => body.add(&piece[..count]),
            }
        }
        Ok(body)
    }

    fn add(&mut self, chunk: &[u8]) {
        if self.head.len() < HEAD {
            let wanted = HEAD - self.head.len();
            self.head
                .extend_from_slice(&chunk[..chunk.len().min(wanted)]);
        }
        self.size += chunk.len() as u64;
        self.hasher.update(chunk);
    }
}
