//! The unit of work: one item of one source, typed, stored and profiled.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use pybench::id::Digest;
use pybench::run::{Failure, FailureKind, RunFolder, Stage};
use pybench::task::{Profile, SourceFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::name::{printable, safe_name};
use super::profile::profile_bounded;
use super::sniff::{Sniffed, extension_kind, sniff};
use super::source::{Event, Limits, Outlet, Source};

/// One line of `crawl-report.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Remark {
    /// What became of it.
    pub what: What,
    /// Where it came from, as in [`SourceFile::origin`].
    pub origin: String,
    /// Why, in words.
    pub reason: String,
}

/// What became of a file that the report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It is not among the files.
    LeftOut,
    /// It is, with a profile that says that it is broken.
    Broken,
    /// It is, under another name or type than it came with.
    Renamed,
}

/// What one unit found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Files, each once, in the order found.
    pub files: Vec<SourceFile>,
    /// The rest.
    pub remarks: Vec<Remark>,
}

/// Collects items; the item `sources/1/mutagen==1.47.0` is one of the second source.
pub struct CrawlStage {
    folder: Arc<RunFolder>,
    limits: Limits,
    sources: BTreeMap<String, Arc<dyn Source>>,
    /// Profiles need memory: one at a time.
    profiling: tokio::sync::Mutex<()>,
}

impl CrawlStage {
    /// A stage over sources by their prefix (`sources/1/`).
    pub fn new(
        folder: Arc<RunFolder>,
        limits: Limits,
        sources: BTreeMap<String, Arc<dyn Source>>,
    ) -> Self {
        Self {
            folder,
            limits,
            sources,
            profiling: tokio::sync::Mutex::new(()),
        }
    }

    /// Every item, in the order of the sources.
    pub fn items(&self, prefixes: &[String]) -> Vec<String> {
        let mut items = Vec::new();
        for prefix in prefixes {
            let source = self.sources.get(prefix);
            let names = source.map(|source| source.items()).unwrap_or_default();
            items.extend(names.iter().map(|name| format!("{prefix}{name}")));
        }
        items
    }
}

#[async_trait]
impl Stage for CrawlStage {
    fn name(&self) -> &'static str {
        "crawl"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let found = self.sources.iter().find_map(|(prefix, source)| {
            item.strip_prefix(prefix.as_str())
                .map(|name| (source.clone(), name.to_owned()))
        });
        let (source, name) = found.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no source for the item `{item}`"),
            )
        })?;
        let (outlet, mut events) = Outlet::new(self.limits);
        let collecting = tokio::spawn(async move { source.collect(&name, outlet).await });
        let mut intake = Intake::new(self);
        while let Some(event) = events.recv().await {
            intake.take(event).await?;
        }
        let joined = collecting.await;
        joined.map_err(|e| Failure::new(FailureKind::Internal, format!("collecting: {e}")))??;
        Ok(serde_json::to_value(intake.finish()).map_err(pybench::run::RunError::from)?)
    }
}

/// Takes what a source found.
struct Intake<'a> {
    stage: &'a CrawlStage,
    manifest: Manifest,
    seen: HashSet<Digest>,
    licence: Option<String>,
    bytes: u64,
}

impl<'a> Intake<'a> {
    fn new(stage: &'a CrawlStage) -> Self {
        Self {
            stage,
            manifest: Manifest::default(),
            seen: HashSet::new(),
            licence: None,
            bytes: 0,
        }
    }

    async fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::File {
                origin,
                path,
                bytes,
                licence,
            } => self.file(origin, &path, bytes, licence).await?,
            Event::LeftOut { origin, reason } => self.remark(What::LeftOut, &origin, reason),
            Event::Licence(licence) => self.licence = Some(licence),
        }
        Ok(())
    }

    async fn file(
        &mut self,
        origin: String,
        path: &str,
        bytes: Vec<u8>,
        licence: Option<String>,
    ) -> Result<(), Failure> {
        let (kind, broken) = match sniff(path, &bytes) {
            Sniffed::File(kind) => (kind, None),
            Sniffed::Broken(kind, reason) => (kind, Some(reason)),
            Sniffed::Archive(_) => {
                self.remark(
                    What::LeftOut,
                    &origin,
                    "an archive that could not be opened".into(),
                );
                return Ok(());
            }
            Sniffed::Unknown(reason) => {
                self.remark(What::LeftOut, &origin, reason);
                return Ok(());
            }
        };
        if self.bytes + bytes.len() as u64 > self.stage.limits.total {
            let mib = self.stage.limits.total >> 20;
            self.remark(
                What::LeftOut,
                &origin,
                format!("its source holds more than {mib} MiB"),
            );
            return Ok(());
        }
        let size = bytes.len() as u64;
        let id = self.stage.folder.store().put(&bytes)?;
        if !self.seen.insert(id.clone()) {
            self.remark(
                What::LeftOut,
                &origin,
                "the same bytes as another file".into(),
            );
            return Ok(());
        }
        self.bytes += size;
        let profile = match broken {
            Some(reason) => Profile::Broken { reason },
            None => {
                let _turn = self.stage.profiling.lock().await;
                profile_bounded(kind, Arc::new(bytes)).await
            }
        };
        if let Profile::Broken { reason } = &profile {
            self.remark(What::Broken, &origin, reason.clone());
        }
        let name = safe_name(path, kind);
        self.note_name(&origin, path, &name, kind);
        self.manifest.files.push(SourceFile {
            id,
            name,
            size,
            kind,
            origin,
            licence,
            fetched: super::clock::now(),
            profile,
        });
        Ok(())
    }

    /// Say so when a file is known under another name than it came with.
    fn note_name(&mut self, origin: &str, path: &str, name: &str, kind: pybench::task::FileKind) {
        let last = path.rsplit('/').next().unwrap_or(path);
        if last == name || last.to_ascii_lowercase() == name {
            return;
        }
        let named = last.rsplit_once('.').and_then(|(_, e)| extension_kind(e));
        let reason = if named.is_some_and(|named| named != kind) {
            format!("its content is {}: kept as `{name}`", kind.name())
        } else {
            format!("kept as `{name}`")
        };
        self.remark(What::Renamed, origin, reason);
    }

    fn remark(&mut self, what: What, origin: &str, reason: String) {
        let (origin, reason) = (printable(origin), printable(&reason));
        self.manifest.remarks.push(Remark {
            what,
            origin,
            reason,
        });
    }

    fn finish(mut self) -> Manifest {
        for file in &mut self.manifest.files {
            file.licence = file.licence.take().or_else(|| self.licence.clone());
        }
        self.manifest
    }
}
