//! The sources of files. Each item of a source is a separate unit of work.

mod arxiv;
mod github;
mod http;
mod hub;
mod kaggle;
mod listing;
mod local;
#[cfg(test)]
mod mock;
mod pypi;
mod zenodo;

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use async_trait::async_trait;
use pybench_run::{Failure, FailureKind, RunContext, SourceChoice};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use pybench_files::archive;
use pybench_files::archive::{Bounds, Visitor};
use pybench_files::name::printable;
use pybench_files::sniff::{HEAD, archive_head};
use pybench_hub::fetch_input;
use pybench_net::blocking::blocking;
pub use pybench_net::{HttpClient, Limits};

/// One source of files.
#[async_trait]
pub trait Source: Send + Sync {
    /// The names of the items that can be collected separately. They are the same in every run.
    fn items(&self) -> Vec<String>;

    /// Collects one item into `sink` and returns when the item is complete.
    ///
    /// # Errors
    /// A failure of the whole item, such as no network or an archive with a wrong checksum. Problems with a
    /// single file are reported to the sink instead.
    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure>;
}

/// Opens a source of the recipe. All sources of a run share `web`.
///
/// # Errors
/// Malformed credentials, or an environment variable whose endpoint is not a URL; a folder that cannot be downloaded.
pub async fn open(
    choice: &SourceChoice,
    context: &RunContext,
    web: &Arc<HttpClient>,
) -> Result<Box<dyn Source>, Failure> {
    Ok(match choice {
        SourceChoice::Local {
            path,
            ignore,
            license,
        } => Box::new(local::Local::new(
            fetch_input(context, path).await?,
            ignore.clone(),
            license.clone(),
        )),
        SourceChoice::Http { urls, license } => {
            Box::new(http::Http::new(urls.clone(), license.clone(), web.clone()))
        }
        SourceChoice::Pypi { packages } => {
            Box::new(pypi::Pypi::new(packages.clone(), context, web.clone()))
        }
        SourceChoice::Arxiv {
            papers,
            searches,
            formats,
        } => Box::new(arxiv::Arxiv::open(web, papers, searches, formats)?),
        SourceChoice::Github {
            repositories,
            include,
            files,
        } => Box::new(github::Github::open(web, repositories, include, *files)?),
        SourceChoice::Hub {
            datasets,
            include,
            files,
        } => Box::new(hub::Hub::open(web, datasets, include, *files)?),
        SourceChoice::Kaggle {
            datasets,
            searches,
            include,
        } => Box::new(kaggle::Kaggle::open(web, datasets, searches, include)?),
        SourceChoice::Zenodo {
            records,
            searches,
            include,
            files,
        } => Box::new(zenodo::Zenodo::open(
            web, records, searches, include, *files,
        )?),
    })
}

/// One finding of a source.
#[derive(Debug)]
pub enum Event {
    /// A file, not an archive.
    File {
        /// As in [`pybench_types::task::SourceFile::origin`].
        origin: String,
        /// The path or name as the source gives it.
        path: String,
        bytes: Vec<u8>,
        /// The file's own license, if it differs from the item's.
        license: Option<String>,
    },
    LeftOut {
        origin: String,
        reason: String,
    },
    /// The license of all files of this item that have no license of their own.
    License(String),
}

/// An item that is collected in a task of its own.
pub struct Collecting {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<Result<(), Failure>>,
}

impl Collecting {
    pub fn start(source: Arc<dyn Source>, item: String, limits: Limits) -> Self {
        let (sink, events) = Sink::new(limits);
        let task = tokio::spawn(async move { source.collect(&item, sink).await });
        Self { events, task }
    }

    /// The next finding; `None` after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Whether all of the item was collected.
    ///
    /// # Errors
    /// As [`Source::collect`].
    pub async fn end(self) -> Result<(), Failure> {
        let joined = self.task.await;
        joined.map_err(|e| Failure::new(FailureKind::Internal, format!("collecting: {e}")))?
    }
}

/// Receives the findings of a source. Sending blocks while the receiver is busy, so that only a few
/// files are in memory at a time; call it from blocking tasks only.
#[derive(Clone, Debug)]
pub struct Sink {
    sender: mpsc::Sender<Event>,
    limits: Limits,
    license: Option<String>,
}

impl Sink {
    /// Creates a sink and its receiver.
    pub fn new(limits: Limits) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(1);
        let license = None;
        let this = Self {
            sender,
            limits,
            license,
        };
        (this, receiver)
    }

    /// A copy of this sink whose files get this license.
    #[must_use]
    pub fn with_license(&self, license: Option<String>) -> Self {
        Self {
            license,
            ..self.clone()
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn send(&self, event: Event) {
        // The receiver is closed when the unit was canceled; the event is no longer needed.
        let _ = self.sender.blocking_send(event);
    }

    /// Reports that something was left out.
    pub fn left_out(&self, origin: &str, reason: impl Into<String>) {
        let origin = printable(origin);
        self.send(Event::LeftOut {
            origin,
            reason: reason.into(),
        });
    }

    /// Reports the license of the whole item.
    pub fn license(&self, license: String) {
        self.send(Event::License(license));
    }

    /// Sends a file or, for an archive, the members that `wants` accepts. The origin of a member is
    /// `origin#path`.
    pub fn offer(
        &self,
        origin: &str,
        path: &str,
        file: std::fs::File,
        wants: &dyn Fn(&str) -> bool,
    ) {
        if let Err(error) = self.try_offer(origin, path, file, wants) {
            self.left_out(origin, format!("cannot be read: {error}"));
        }
    }

    fn try_offer(
        &self,
        origin: &str,
        path: &str,
        mut file: std::fs::File,
        wants: &dyn Fn(&str) -> bool,
    ) -> std::io::Result<()> {
        let size = file.metadata()?.len();
        let mut head = Vec::new();
        (&mut file).take(HEAD as u64).read_to_end(&mut head)?;
        file.seek(SeekFrom::Start(0))?;
        let kind = archive_head(&head);
        if size > self.limits.file && kind.is_none() {
            self.left_out(
                origin,
                format!(
                    "larger than {} MiB; `crawl.file_mib` allows more",
                    self.limits.file >> 20
                ),
            );
            return Ok(());
        }
        if let Some(kind) = kind
            && !is_office(path, size, self.limits.file, &mut file)?
        {
            let mut members = Members {
                sink: self,
                origin,
                wants,
            };
            let bounds = Bounds::new(self.limits.file, self.limits.total);
            archive::open(kind, path, file, size, bounds, &mut members);
            return Ok(());
        }
        let mut bytes = Vec::new();
        file.take(self.limits.file).read_to_end(&mut bytes)?;
        self.send(Event::File {
            origin: printable(origin),
            path: path.to_owned(),
            bytes,
            license: self.license.clone(),
        });
        Ok(())
    }
}

/// Whether a file is an office document. docx and xlsx start with the signature of a zip archive.
fn is_office(path: &str, size: u64, limit: u64, file: &mut std::fs::File) -> std::io::Result<bool> {
    if size > limit {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(!matches!(
        pybench_files::sniff::sniff(path, &bytes),
        pybench_files::sniff::Sniffed::Archive(_)
    ))
}

struct Members<'a> {
    sink: &'a Sink,
    origin: &'a str,
    wants: &'a dyn Fn(&str) -> bool,
}

impl Visitor for Members<'_> {
    fn wants(&self, path: &str) -> bool {
        (self.wants)(path)
    }

    fn file(&mut self, path: &str, bytes: Vec<u8>) {
        let origin = printable(&format!("{}#{path}", self.origin));
        self.sink.send(Event::File {
            origin,
            path: path.to_owned(),
            bytes,
            license: self.sink.license.clone(),
        });
    }

    fn refused(&mut self, path: &str, reason: String) {
        self.sink
            .left_out(&format!("{}#{path}", self.origin), reason);
    }
}

/// Whether the extension is that of a known file type or of an archive.
fn known_extension(path: &str) -> bool {
    let Some((_, extension)) = path.rsplit_once('.') else {
        return false;
    };
    let archive = matches!(
        extension.to_ascii_lowercase().as_str(),
        "zip" | "tar" | "gz" | "tgz"
    );
    archive || pybench_files::sniff::extension_kind(extension).is_some()
}

#[cfg(test)]
mod tests;
