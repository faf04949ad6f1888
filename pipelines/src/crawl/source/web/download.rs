//! One request: conditional where a body is kept, for the rest where a part is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use pybench::run::{Failure, FailureKind};
use reqwest::header::{CONTENT_RANGE, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use sha2::{Digest, Sha256};

use super::super::Limits;
use super::super::http::file_name;
use super::kept::{Kept, Mark, State, hex};
use super::{Auth, Expected, LISTING, Pace, Trouble, Web, chain, display_url, headers, refusal};
use crate::crawl::sniff::{HEAD, archive_head};

/// How often a download that breaks off goes on at once; after that it is the executor's turn.
const RESUMES: usize = 3;
/// Longest rest that a service is given before a unit is tried again.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What is asked for, of whom, and as whom.
pub(super) struct Ask<'a> {
    pub(super) url: Url,
    pub(super) auth: &'a Auth,
    /// What to do where the answer is 401 or 403.
    pub(super) help: &'static str,
    pub(super) pace: Option<&'a Pace>,
    pub(super) bound: Bound,
    pub(super) expected: &'a Expected,
    /// Longest time that one request may take.
    pub(super) patience: Duration,
}

/// How much is read.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    Listing,
    /// Archives may be as large as all files together, a file only as large as a file.
    File(Limits),
}

impl Bound {
    fn of(self, head: &[u8]) -> u64 {
        match self {
            Self::Listing => LISTING,
            Self::File(limits) if archive_head(head).is_some() => limits.total,
            Self::File(limits) => limits.file,
        }
    }
}

/// A download, rewound to its beginning.
#[derive(Debug)]
pub(in crate::crawl::source) struct Got {
    pub(in crate::crawl::source) file: File,
    pub(in crate::crawl::source) sha256: String,
    /// The URL, without what may be a secret.
    pub(in crate::crawl::source) origin: String,
    pub(in crate::crawl::source) name: String,
    /// The page after this one.
    pub(super) next: Option<String>,
}

/// A download that is to lie somewhere else than in the cache, and how it is kept there until then.
#[derive(Debug)]
pub(crate) struct Parcel {
    got: Got,
    kept: Option<Kept>,
}

impl Parcel {
    /// Lower-case hexadecimal digits.
    pub(crate) fn sha256(&self) -> &str {
        &self.got.sha256
    }

    /// From its beginning.
    pub(crate) fn file(&mut self) -> io::Result<&mut File> {
        self.got.file.seek(SeekFrom::Start(0))?;
        Ok(&mut self.got.file)
    }

    /// Put it there at once and whole; nothing of it stays in the cache.
    pub(crate) fn place(mut self, to: &Path) -> io::Result<()> {
        let folder = to.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let moved = self.kept.as_ref().is_some_and(|kept| kept.hand_over(to));
        if !moved {
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            io::copy(self.file()?, &mut new)?;
            new.persist(to)?;
        }
        self.discard();
        Ok(())
    }

    /// It is of no use: nothing of it stays in the cache.
    pub(crate) fn discard(self) {
        self.kept.inspect(Kept::forget);
    }
}

/// Why there is no download yet.
enum Stop {
    Trouble(Trouble),
    /// The connection ended before the body; whether some of it is kept that was not before.
    BrokeOff(Failure, bool),
    /// What is kept is of no use: ask again without it.
    Again,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// Download within bounds of size and time.
pub(super) async fn fetch(web: &Web, ask: Ask<'_>) -> Result<Got, Trouble> {
    Ok(obtain(web, ask).await?.got)
}

/// The same, with the place where it is kept.
pub(super) async fn obtain(web: &Web, ask: Ask<'_>) -> Result<Parcel, Trouble> {
    if !matches!(ask.url.scheme(), "http" | "https") {
        return Err(Trouble::Refused("neither http nor https".into()));
    }
    let asked = format!("{} {}", ask.url, ask.auth.is_some());
    let key = blake3::hash(asked.as_bytes()).to_hex();
    let kept = Kept::open(&web.cache, &key);
    let fetch = Fetch {
        shown: display_url(&ask.url),
        web,
        ask,
        kept,
    };
    let (mut resumed, mut again) = (0, false);
    loop {
        match fetch.attempt().await {
            Ok(got) => {
                let kept = fetch.kept;
                return Ok(Parcel { got, kept });
            }
            Err(Stop::Trouble(trouble)) => return Err(trouble),
            Err(Stop::BrokeOff(_, true)) if resumed < RESUMES => resumed += 1,
            Err(Stop::BrokeOff(failure, _)) => return Err(Trouble::Failed(failure)),
            Err(Stop::Again) if !again => again = true,
            Err(Stop::Again) => return Err(fetch.failed("the server contradicts itself")),
        }
    }
}

struct Fetch<'a> {
    web: &'a Web,
    ask: Ask<'a>,
    shown: String,
    kept: Option<Kept>,
}

impl Fetch<'_> {
    async fn attempt(&self) -> Result<Got, Stop> {
        let state = self.kept.as_ref().map_or(State::Nothing, Kept::state);
        let client = self
            .web
            .client()
            .map_err(|error| self.failed(&chain(&error)))?;
        let request = client.get(self.ask.url.clone()).timeout(self.ask.patience);
        let request = self.ask.auth.sign(request);
        let _turn = match self.ask.pace {
            Some(pace) => Some(pace.turn().await),
            None => None,
        };
        let sent = conditional(request, &state).send().await;
        let response = sent.map_err(|error| self.failed(&chain(&error)))?;
        let range = headers::text(response.headers(), CONTENT_RANGE);
        match (response.status(), state, &self.kept) {
            (StatusCode::NOT_MODIFIED, State::Whole(mark), Some(kept)) => {
                self.kept_whole(kept, mark)
            }
            (StatusCode::PARTIAL_CONTENT, State::Part(mark, length), Some(kept))
                if headers::part_begins(range) == Some(length) =>
            {
                let file = kept.go_on().map_err(|error| self.internal(&error))?;
                self.save(response, file, Some((kept, mark))).await
            }
            (
                StatusCode::NOT_MODIFIED
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::RANGE_NOT_SATISFIABLE,
                State::Whole(_) | State::Part(..),
                Some(kept),
            ) => {
                kept.forget();
                Err(Stop::Again)
            }
            (StatusCode::OK, ..) => self.anew(response).await,
            _ => Err(self.refused(&response).await.into()),
        }
    }

    /// A body from its beginning.
    async fn anew(&self, response: Response) -> Result<Got, Stop> {
        let next = headers::next(&self.ask.url, response.headers()).map(String::from);
        let name = file_name(&self.ask.url, response.headers());
        let mark = Mark::of(response.headers(), name, next);
        let kept = self.kept.as_ref();
        let begun = match kept.filter(|_| mark.is_of_use()) {
            Some(kept) => kept
                .begin(&mark)
                .map(|file| (file, Some((kept, mark.clone())))),
            None => {
                kept.inspect(|kept| kept.forget());
                tempfile::tempfile().map(|file| (file, None))
            }
        };
        let (file, place) = begun.map_err(|error| self.internal(&error))?;
        match place {
            Some(place) => self.save(response, file, Some(place)).await,
            None => {
                let mut got = self.save(response, file, None).await?;
                (got.name, got.next) = (mark.name, mark.next);
                Ok(got)
            }
        }
    }

    fn kept_whole(&self, kept: &Kept, mark: Mark) -> Result<Got, Stop> {
        let Ok(Some(file)) = kept.whole(&mark) else {
            kept.forget();
            return Err(Stop::Again);
        };
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let mut head = Vec::new();
        let read = (&file).take(HEAD as u64).read_to_end(&mut head);
        read.map_err(|error| self.internal(&error))?;
        self.bounded(size, &head)?;
        Ok(self.got(file, mark)?)
    }

    /// Add an answer's body to a file, which has room at its end.
    async fn save(
        &self,
        response: Response,
        mut file: File,
        kept: Option<(&Kept, Mark)>,
    ) -> Result<Got, Stop> {
        let wrong = |error: io::Error| Stop::from(self.internal(&error));
        let mut body = Body::of(&mut file).map_err(wrong)?;
        let before = body.size;
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    let size = body.size;
                    let detail = format!("broke off after {size} bytes: {}", chain(&error));
                    let resumable = kept
                        .as_ref()
                        .is_some_and(|(_, mark)| mark.exact().is_some());
                    let failure = self.failure(&detail).retryable();
                    return Err(Stop::BrokeOff(failure, resumable && size > before));
                }
            };
            body.add(&chunk);
            if let Err(trouble) = self.bounded(body.size, &body.head) {
                kept.inspect(|(kept, _)| kept.forget());
                return Err(trouble.into());
            }
            file.write_all(&chunk).map_err(wrong)?;
        }
        let (size, sha256) = (body.size, hex(&body.hasher.finalize()));
        if let Err(trouble) = self.as_expected(size, &sha256) {
            kept.inspect(|(kept, _)| kept.forget());
            return Err(trouble.into());
        }
        let (kept, mark) = kept.unzip();
        let mark = Mark {
            sha256,
            ..mark.unwrap_or_default()
        };
        if let Some(kept) = kept {
            kept.complete(&mark).map_err(wrong)?;
        }
        Ok(self.got(file, mark)?)
    }

    fn got(&self, mut file: File, mark: Mark) -> Result<Got, Trouble> {
        let rewound = file.seek(SeekFrom::Start(0));
        rewound.map_err(|error| self.internal(&error))?;
        Ok(Got {
            file,
            sha256: mark.sha256,
            origin: self.shown.clone(),
            name: mark.name,
            next: mark.next,
        })
    }

    fn bounded(&self, size: u64, head: &[u8]) -> Result<(), Trouble> {
        let most = self.ask.bound.of(head);
        match size > most {
            true => Err(Trouble::Refused(format!("larger than {} MiB", most >> 20))),
            false => Ok(()),
        }
    }

    /// Whether it is what a listing has announced. What is not may have been cut on its way.
    fn as_expected(&self, size: u64, sha256: &str) -> Result<(), Trouble> {
        let expected = self.ask.expected;
        match (&expected.sha256, expected.size) {
            (_, Some(announced)) if announced != size => {
                let text = format!("has {size} bytes where the listing has {announced}");
                Err(self.failed(&text))
            }
            (Some(announced), _) if !announced.eq_ignore_ascii_case(sha256) => {
                Err(self.failed("has another SHA-256 than the listing"))
            }
            _ => Ok(()),
        }
    }

    /// An answer that is none.
    async fn refused(&self, response: &Response) -> Trouble {
        let status = response.status();
        let Some(after) = headers::later(status, response.headers()) else {
            let kept = self.kept.as_ref();
            kept.inspect(|kept| kept.forget());
            return Trouble::Refused(refusal(status, self.ask.help));
        };
        let after = after.map(|after| after.min(LONGEST_REST));
        if let (Some(pace), Some(after)) = (self.ask.pace, after) {
            pace.hold(after).await;
        }
        let mut failure = self
            .failure(&format!("the server answered {status}"))
            .retryable();
        failure.retry_after = after;
        Trouble::Failed(failure)
    }

    fn failure(&self, detail: &str) -> Failure {
        Failure::new(FailureKind::Internal, format!("{}: {detail}", self.shown))
    }

    fn failed(&self, detail: &str) -> Trouble {
        Trouble::Failed(self.failure(detail).retryable())
    }

    /// Nothing that the server has done.
    fn internal(&self, error: &io::Error) -> Trouble {
        Trouble::Failed(self.failure(&format!("keeping the download: {error}")))
    }
}

/// Ask only for what is not there.
fn conditional(request: RequestBuilder, state: &State) -> RequestBuilder {
    match state {
        State::Nothing => request,
        State::Whole(mark) => match (&mark.etag, &mark.modified) {
            (Some(etag), _) => request.header(IF_NONE_MATCH, etag),
            (None, Some(modified)) => request.header(IF_MODIFIED_SINCE, modified),
            (None, None) => request,
        },
        State::Part(mark, length) => {
            let range = format!("bytes={length}-");
            request
                .header(RANGE, range)
                .header(IF_RANGE, mark.exact().unwrap_or_default())
        }
    }
}

/// What has come of a body.
struct Body {
    hasher: Sha256,
    head: Vec<u8>,
    size: u64,
}

impl Body {
    /// What a file holds so far.
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
