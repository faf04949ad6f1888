//! Where files come from. A source is asked item by item, each a unit of work of its own.

mod arxiv;
mod github;
mod http;
mod hub;
mod kaggle;
mod licence;
mod listing;
mod local;
#[cfg(test)]
mod mock;
pub(crate) mod origin;
pub(crate) mod pypi;
pub(crate) mod web;
mod zenodo;

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::run::{Crawl, Failure, FailureKind, RunContext, SourceChoice};
use tokio::sync::mpsc;

use super::archive::{self, Bounds, Visitor};
use super::name::printable;
use super::sniff::{HEAD, archive_head};
pub use web::Web;

/// One source of files.
#[async_trait]
pub trait Source: Send + Sync {
    /// What can be collected separately, by names that stay the same from run to run.
    fn items(&self) -> Vec<String>;

    /// Collect one item into `outlet`, and return once all of it is there.
    ///
    /// What is wrong with a single file is said to the outlet. Errors are those that keep the whole
    /// item away: no network, an archive with another checksum.
    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure>;
}

/// The source that a recipe names. `web` is what it shares with the others of the run.
///
/// # Errors
/// Credentials that can be none; an endpoint in a variable that is no URL.
pub fn open(
    choice: &SourceChoice,
    context: &RunContext,
    web: &Arc<Web>,
) -> Result<Box<dyn Source>, Failure> {
    Ok(match choice {
        SourceChoice::Local {
            path,
            ignore,
            licence,
        } => Box::new(local::Local::new(
            context.resolve(path),
            ignore.clone(),
            licence.clone(),
        )),
        SourceChoice::Http { urls, licence } => {
            Box::new(http::Http::new(urls.clone(), licence.clone(), web.clone()))
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

/// What a source found.
#[derive(Debug)]
pub enum Event {
    /// A file, not an archive.
    File {
        /// As in [`pybench::task::SourceFile::origin`].
        origin: String,
        /// Its path or name, as found.
        path: String,
        /// All of it.
        bytes: Vec<u8>,
        /// Its own licence, where it is not that of the item.
        licence: Option<String>,
    },
    /// Something left out, and why.
    LeftOut {
        /// As for a file.
        origin: String,
        /// In words.
        reason: String,
    },
    /// The licence of everything in this item that has none of its own.
    Licence(String),
}

/// Bounds on what is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest single file, bytes.
    pub file: u64,
    /// All files of an item, and its download, bytes.
    pub total: u64,
}

impl Limits {
    /// As the recipe asks.
    pub fn of(crawl: &Crawl) -> Self {
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        Self {
            file: bytes(crawl.file_mib),
            total: bytes(crawl.total_mib),
        }
    }
}

/// Where a source puts what it finds. It waits while the other side is busy, so that only a few
/// files are in memory at any time. Its blocking methods belong into blocking tasks.
#[derive(Clone, Debug)]
pub struct Outlet {
    sender: mpsc::Sender<Event>,
    limits: Limits,
    licence: Option<String>,
}

impl Outlet {
    /// An outlet and its other side.
    pub fn new(limits: Limits) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(1);
        let licence = None;
        let this = Self {
            sender,
            limits,
            licence,
        };
        (this, receiver)
    }

    /// The same for files that have this licence.
    #[must_use]
    pub fn under(&self, licence: Option<String>) -> Self {
        Self {
            licence,
            ..self.clone()
        }
    }

    /// Bounds on what is read.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn send(&self, event: Event) {
        // The other side is gone when the unit was given up: nothing is left to do with it.
        let _ = self.sender.blocking_send(event);
    }

    /// Say that something was left out.
    pub fn left_out(&self, origin: &str, reason: impl Into<String>) {
        let origin = printable(origin);
        self.send(Event::LeftOut {
            origin,
            reason: reason.into(),
        });
    }

    /// Say which licence everything in this item has.
    pub fn licence(&self, licence: String) {
        self.send(Event::Licence(licence));
    }

    /// Put a file in, or the members of an archive that `wants` accepts. `origin` is the file's;
    /// members have `origin#path`.
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
                format!("larger than {} MiB", self.limits.file >> 20),
            );
            return Ok(());
        }
        if let Some(kind) = kind
            && !is_office(path, size, self.limits.file, &mut file)?
        {
            let mut members = Members {
                outlet: self,
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
            licence: self.licence.clone(),
        });
        Ok(())
    }
}

/// docx, xlsx and their like begin as archives do.
fn is_office(path: &str, size: u64, limit: u64, file: &mut std::fs::File) -> std::io::Result<bool> {
    if size > limit {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(!matches!(
        super::sniff::sniff(path, &bytes),
        super::sniff::Sniffed::Archive(_)
    ))
}

struct Members<'a> {
    outlet: &'a Outlet,
    origin: &'a str,
    wants: &'a dyn Fn(&str) -> bool,
}

impl Visitor for Members<'_> {
    fn wants(&self, path: &str) -> bool {
        (self.wants)(path)
    }

    fn file(&mut self, path: &str, bytes: Vec<u8>) {
        let origin = printable(&format!("{}#{path}", self.origin));
        self.outlet.send(Event::File {
            origin,
            path: path.to_owned(),
            bytes,
            licence: self.outlet.licence.clone(),
        });
    }

    fn refused(&mut self, path: &str, reason: String) {
        self.outlet
            .left_out(&format!("{}#{path}", self.origin), reason);
    }
}

/// Run a source's blocking part.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Failure::new(
            FailureKind::Internal,
            format!("collecting: {error}"),
        )),
    }
}

/// Whether a member looks like a file of a known type or like an archive.
fn known_extension(path: &str) -> bool {
    let Some((_, extension)) = path.rsplit_once('.') else {
        return false;
    };
    let archive = matches!(
        extension.to_ascii_lowercase().as_str(),
        "zip" | "tar" | "gz" | "tgz"
    );
    archive || super::sniff::extension_kind(extension).is_some()
}

fn disk(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| {
        Failure::new(
            FailureKind::Internal,
            format!("{}: {error}", path.display()),
        )
    }
}

#[cfg(test)]
mod tests;
