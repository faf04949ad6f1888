//! Data files inside the sdists and wheels of packages.
//!
//! uv resolves each package through the package index that the machine is configured with. Archives are
//! verified and cached by SHA-256 and unpacked; nothing in them is ever built or run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use pybench_run::{Failure, FailureKind, PypiPackage, RunContext};

use super::{Event, Sink, Source, blocking, known_extension};
use pybench_files::archive;
use pybench_files::archive::{Bounds, Visitor};
use pybench_net::HttpClient;
use pybench_net::blocking::io_failure;
use pybench_net::pypi::{archive_kind, fetch, item_failure, package_name};
use pybench_types::license::spdx;

/// One item per package.
pub(super) struct Pypi {
    packages: Vec<PypiPackage>,
    downloads: PathBuf,
    project_root: PathBuf,
    web: Arc<HttpClient>,
}

impl Pypi {
    pub(super) fn new(
        packages: Vec<PypiPackage>,
        context: &RunContext,
        web: Arc<HttpClient>,
    ) -> Self {
        Self {
            web,
            packages,
            downloads: context.cache_dir.join("downloads"),
            project_root: context.project_root.clone(),
        }
    }
}

#[async_trait]
impl Source for Pypi {
    fn items(&self) -> Vec<String> {
        self.packages.iter().map(package_name).collect()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let package = self
            .packages
            .iter()
            .find(|package| package_name(package) == item);
        let package = package.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("the recipe has no package `{item}`"),
            )
        })?;
        let (web, downloads, root) = (&self.web, &self.downloads, &self.project_root);
        let file = fetch(package, web, downloads, root, sink.limits()).await?;
        let package = package.clone();
        blocking(move || open(&package, file, &sink)).await
    }
}

// --- opening -------------------------------------------------------------------------------------

fn open(package: &PypiPackage, file: File, sink: &Sink) -> Result<(), Failure> {
    let purl = format!("pkg:pypi/{}", package.requirement.replacen("==", "@", 1));
    let include = globs(package)?;
    let limits = sink.limits();
    let mut members = Members {
        sink,
        purl,
        include,
        license: Mutex::new(None),
    };
    let size = file
        .metadata()
        .map_err(io_failure(Path::new("download")))?
        .len();
    let kind = archive_kind(&file).map_err(io_failure(Path::new("download")))?;
    let kind = kind.ok_or_else(|| item_failure(package, "neither zip nor tar.gz"))?;
    let bounds = Bounds::new(limits.file, limits.total);
    archive::open(kind, "", file, size, bounds, &mut members);
    let license = members.license.into_inner().unwrap_or_default();
    if let Some(license) = license {
        sink.license(license);
    }
    Ok(())
}

fn globs(package: &PypiPackage) -> Result<GlobSet, Failure> {
    let mut set = GlobSetBuilder::new();
    for pattern in &package.include {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|e| item_failure(package, format!("include: {e}")))?);
    }
    set.build()
        .map_err(|e| item_failure(package, format!("include: {e}")))
}

struct Members<'a> {
    sink: &'a Sink,
    purl: String,
    include: GlobSet,
    license: Mutex<Option<String>>,
}

impl Members<'_> {
    /// Globs match the path inside the single top folder of an sdist.
    fn included(&self, path: &str) -> bool {
        let inside = path.split_once('/').map_or(path, |(_, rest)| rest);
        let outer = path.split('!').next().unwrap_or(path);
        self.include.is_match(path) || self.include.is_match(inside) || {
            // A member of an included archive.
            outer != path && (self.included(outer) && known_extension(path))
        }
    }
}

/// Whether a path is the package's metadata file: in the dist-info of a wheel, or at the top of an sdist.
fn is_metadata(path: &str) -> bool {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(folder), Some("METADATA"), None) => folder.ends_with(".dist-info"),
        (Some(_), Some("PKG-INFO"), None) => true,
        _ => false,
    }
}

impl Visitor for Members<'_> {
    fn wants(&self, path: &str) -> bool {
        let any = self.include.is_empty() && known_extension(path);
        is_metadata(path) || any || self.included(path)
    }

    fn file(&mut self, path: &str, bytes: Vec<u8>) {
        if is_metadata(path) {
            let found = license(&String::from_utf8_lossy(&bytes));
            if let Ok(mut license) = self.license.lock() {
                *license = license.take().or(found);
            }
            return;
        }
        let origin = super::printable(&format!("{}#{path}", self.purl));
        self.sink.send(Event::File {
            origin,
            path: path.to_owned(),
            bytes,
            license: None,
        });
    }

    fn refused(&mut self, path: &str, reason: String) {
        self.sink.left_out(&format!("{}#{path}", self.purl), reason);
    }
}

/// The license in a package's metadata, as an SPDX identifier if it is known.
fn license(metadata: &str) -> Option<String> {
    let headers = metadata.split("\n\n").next().unwrap_or_default();
    let mut expression = fields(headers, "License-Expression: ");
    let mut free = fields(headers, "License: ").filter(|text| text.len() <= 60);
    let classifiers = fields(headers, "Classifier: License :: ");
    let classified = classifiers
        .last()
        .map(|c| c.rsplit(" :: ").next().unwrap_or(c));
    let named = || free.next().or(classified).and_then(spdx);
    expression.next().map(str::to_owned).or_else(named)
}

fn fields<'a>(headers: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    let values = headers
        .lines()
        .filter_map(move |line| line.strip_prefix(start).map(str::trim));
    values.filter(|value| !value.is_empty() && *value != "UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licenses_are_read_from_metadata() {
        let metadata = |fields: &str| license(&format!("Name: x\n{fields}\n\nLicense: not me"));
        assert_eq!(metadata("License-Expression: MIT").as_deref(), Some("MIT"));
        assert_eq!(
            metadata("License: new BSD").as_deref(),
            Some("BSD-3-Clause")
        );
        let classifier = "License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License";
        assert_eq!(metadata(classifier).as_deref(), Some("MIT"));
        assert_eq!(metadata(""), None);
    }
}
