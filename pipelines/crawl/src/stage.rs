//! One unit of work: the files of one item of one source are typed, stored and profiled.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use pybench_run::{Failure, FailureKind, RunFolder, Stage};
use pybench_types::id::Digest;
use pybench_types::task::{Profile, SourceFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::source::{Collecting, Event, Source};
use pybench_files::name::{printable, safe_name};
use pybench_files::sniff::{Sniffed, extension_kind, sniff};
use pybench_net::Limits;
use pybench_profile::profile_bounded;

/// One line of `crawl-report.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Remark {
    /// What happened to the file.
    pub what: RemarkKind,
    /// Where the file came from, as in [`SourceFile::origin`].
    pub origin: String,
    pub reason: String,
}

/// What happened to a file that the report lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    /// The file is not part of the result.
    LeftOut,
    /// The file is part of the result; its profile says that it is broken.
    Broken,
    /// The file is part of the result under a different name or type.
    Renamed,
}

/// The result of one unit.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Distinct files, in the order found.
    pub files: Vec<SourceFile>,
    pub remarks: Vec<Remark>,
}

/// The stage. Item names start with the prefix of their source: `sources/1/mutagen==1.47.0` belongs to
/// the second source.
pub struct CrawlStage {
    folder: Arc<RunFolder>,
    limits: Limits,
    sources: BTreeMap<String, Arc<dyn Source>>,
    /// Profiling needs much memory, so only one file is profiled at a time.
    profiling: tokio::sync::Mutex<()>,
}

impl CrawlStage {
    /// Creates a stage over sources that are keyed by their prefix (`sources/1/`).
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

    /// All items, in the order of the sources.
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
        let mut collecting = Collecting::start(source, name, self.limits);
        let mut builder = ManifestBuilder::new(self);
        while let Some(event) = collecting.next().await {
            builder.handle(event).await?;
        }
        collecting.end().await?;
        Ok(serde_json::to_value(builder.finish()).map_err(pybench_run::RunError::from)?)
    }
}

/// Builds the manifest of a unit from the events of its source.
struct ManifestBuilder<'a> {
    stage: &'a CrawlStage,
    manifest: Manifest,
    seen: HashSet<Digest>,
    license: Option<String>,
    bytes: u64,
}

impl<'a> ManifestBuilder<'a> {
    fn new(stage: &'a CrawlStage) -> Self {
        Self {
            stage,
            manifest: Manifest::default(),
            seen: HashSet::new(),
            license: None,
            bytes: 0,
        }
    }

    async fn handle(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::File {
                origin,
                path,
                bytes,
                license,
            } => self.add_file(origin, &path, bytes, license).await?,
            Event::LeftOut { origin, reason } => self.remark(RemarkKind::LeftOut, &origin, reason),
            Event::License(license) => self.license = Some(license),
        }
        Ok(())
    }

    async fn add_file(
        &mut self,
        origin: String,
        path: &str,
        bytes: Vec<u8>,
        license: Option<String>,
    ) -> Result<(), Failure> {
        let (kind, broken) = match sniff(path, &bytes) {
            Sniffed::File(kind) => (kind, None),
            Sniffed::Broken(kind, reason) => (kind, Some(reason)),
            Sniffed::Archive(_) => {
                self.remark(
                    RemarkKind::LeftOut,
                    &origin,
                    "an archive that could not be opened".into(),
                );
                return Ok(());
            }
            Sniffed::Unknown(reason) => {
                self.remark(RemarkKind::LeftOut, &origin, reason);
                return Ok(());
            }
        };
        if self.bytes + bytes.len() as u64 > self.stage.limits.total {
            let mib = self.stage.limits.total >> 20;
            self.remark(
                RemarkKind::LeftOut,
                &origin,
                format!("its source exceeds {mib} MiB; `crawl.total_mib` allows more"),
            );
            return Ok(());
        }
        let size = bytes.len() as u64;
        let id = self.stage.folder.store().put(&bytes)?;
        if !self.seen.insert(id.clone()) {
            self.remark(
                RemarkKind::LeftOut,
                &origin,
                "has the same bytes as another file".into(),
            );
            return Ok(());
        }
        self.bytes += size;
        let profile = match broken {
            Some(reason) => Profile::Broken { reason },
            None => {
                let _guard = self.stage.profiling.lock().await;
                profile_bounded(kind, Arc::new(bytes)).await
            }
        };
        if let Profile::Broken { reason } = &profile {
            self.remark(RemarkKind::Broken, &origin, reason.clone());
        }
        let name = safe_name(path, kind);
        self.report_rename(&origin, path, &name, kind);
        self.manifest.files.push(SourceFile {
            id,
            name,
            size,
            kind,
            origin,
            license,
            fetched: pybench_types::clock::now(),
            profile,
        });
        Ok(())
    }

    /// Adds a remark when a file is kept under a different name.
    fn report_rename(
        &mut self,
        origin: &str,
        path: &str,
        name: &str,
        kind: pybench_types::task::FileKind,
    ) {
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
        self.remark(RemarkKind::Renamed, origin, reason);
    }

    fn remark(&mut self, what: RemarkKind, origin: &str, reason: String) {
        let (origin, reason) = (printable(origin), printable(&reason));
        self.manifest.remarks.push(Remark {
            what,
            origin,
            reason,
        });
    }

    fn finish(mut self) -> Manifest {
        for file in &mut self.manifest.files {
            file.license = file.license.take().or_else(|| self.license.clone());
        }
        self.manifest
    }
}
