//! Data files inside sdists and wheels of named packages.
//!
//! uv resolves each through the machine's own index, so no address stands here. Archives are
//! checked by SHA-256, kept in the cache by it, and opened; nothing of them is ever built or run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use pybench::run::{Failure, FailureKind, PypiArchive, PypiPackage, RunContext};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::web::{Trouble, Web};
use super::{Event, Limits, Outlet, Source, blocking, disk, known_extension};
use crate::crawl::archive::{self, Bounds, Visitor};
use crate::crawl::sniff::ArchiveKind;

/// One item per package.
pub(super) struct Pypi {
    packages: Vec<PypiPackage>,
    downloads: PathBuf,
    project_root: PathBuf,
    web: Arc<Web>,
}

impl Pypi {
    pub(super) fn new(packages: Vec<PypiPackage>, context: &RunContext, web: Arc<Web>) -> Self {
        Self {
            web,
            packages,
            downloads: context.cache_dir.join("downloads"),
            project_root: context.project_root.clone(),
        }
    }
}

/// The archive of a package, by its SHA-256 from the folder of downloads, or from the index.
pub(crate) async fn fetch(
    package: &PypiPackage,
    web: &Web,
    downloads: &Path,
    project_root: &Path,
    limits: Limits,
) -> Result<File, Failure> {
    let path = downloads.join(package.sha256.to_ascii_lowercase());
    if let Ok(file) = File::open(&path) {
        return Ok(file);
    }
    let place = resolve(&find_uv(project_root), package).await?;
    let whole = Limits {
        file: limits.total,
        ..limits
    };
    let got = match web.get(&place, whole).await {
        Ok(got) => got,
        Err(Trouble::Failed(failure)) => return Err(failure),
        Err(Trouble::Refused(reason)) => return Err(item_failure(package, reason)),
    };
    if !got.sha256.eq_ignore_ascii_case(&package.sha256) {
        return Err(item_failure(
            package,
            format!("the download has SHA-256 {}", got.sha256),
        ));
    }
    blocking(move || keep(got.file, &path)).await
}

#[async_trait]
impl Source for Pypi {
    fn items(&self) -> Vec<String> {
        self.packages.iter().map(item_name).collect()
    }

    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure> {
        let package = self
            .packages
            .iter()
            .find(|package| item_name(package) == item);
        let package = package.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("the recipe has no package `{item}`"),
            )
        })?;
        let (web, downloads, root) = (&self.web, &self.downloads, &self.project_root);
        let file = fetch(package, web, downloads, root, outlet.limits()).await?;
        let package = package.clone();
        blocking(move || open(&package, file, &outlet)).await
    }
}

/// The requirement, with the archive where it is not the usual one; globs make items differ too.
fn item_name(package: &PypiPackage) -> String {
    let archive = match package.archive {
        PypiArchive::Wheel => "",
        PypiArchive::Sdist => "[sdist]",
    };
    format!("{}{archive}", package.requirement)
}

fn item_failure(package: &PypiPackage, reason: impl std::fmt::Display) -> Failure {
    Failure::new(
        FailureKind::Item,
        format!("{}: {reason}", item_name(package)),
    )
}

// --- resolving -----------------------------------------------------------------------------------

/// What of a `pylock.toml` matters here.
#[derive(Deserialize)]
struct Lock {
    packages: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    sdist: Option<Artefact>,
    #[serde(default)]
    wheels: Vec<Artefact>,
}

#[derive(Deserialize)]
struct Artefact {
    url: Option<String>,
    #[serde(default)]
    hashes: std::collections::BTreeMap<String, String>,
}

/// `$UV`, else the one that the project's set-up installed, else the one on the path.
pub(super) fn find_uv(project_root: &Path) -> PathBuf {
    let named = std::env::var_os("UV")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    // Absolute, because it is started in another folder.
    let installed = || project_root.join(".tools/bin/uv").canonicalize().ok();
    named.or_else(installed).unwrap_or_else(|| "uv".into())
}

/// Ask uv where the archive with that checksum lies.
async fn resolve(uv: &Path, package: &PypiPackage) -> Result<String, Failure> {
    let artefacts = archives(uv, package).await?;
    let matching = |(_, hash): &(String, String)| hash.eq_ignore_ascii_case(&package.sha256);
    let found = artefacts.into_iter().find(matching).map(|(url, _)| url);
    found.ok_or_else(|| {
        item_failure(
            package,
            format!(
                "the index has no such archive with SHA-256 {}",
                package.sha256
            ),
        )
    })
}

/// Versions of Python for which uv is asked, until one is new enough for the package. It leaves out what is
/// too old for the one it is told, and its own choice is this machine's: the same recipe must find the same
/// archives with another Python.
const PYTHONS: [&str; 7] = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

/// Address and SHA-256 of every archive of that kind that the index offers of a package.
pub(super) async fn archives(
    uv: &Path,
    package: &PypiPackage,
) -> Result<Vec<(String, String)>, Failure> {
    let (name, version) = split_requirement(package)?;
    let [oldest, newer @ ..] = PYTHONS;
    let mut text = lock(uv, package, name, version, oldest).await;
    for python in newer {
        if !text.as_ref().is_err_and(is_unsatisfiable) {
            break;
        }
        text = lock(uv, package, name, version, python).await;
    }
    let lock: Lock = toml::from_str(&text?)
        .map_err(|e| item_failure(package, format!("uv's answer does not parse: {e}")))?;
    let artefacts = lock
        .packages
        .into_iter()
        .flat_map(|locked| match package.archive {
            PypiArchive::Wheel => locked.wheels,
            PypiArchive::Sdist => locked.sdist.into_iter().collect(),
        });
    let complete = |artefact: Artefact| {
        let mut hashes = artefact.hashes;
        Some((artefact.url?, hashes.remove("sha256")?))
    };
    Ok(artefacts.filter_map(complete).collect())
}

fn split_requirement(package: &PypiPackage) -> Result<(&str, &str), Failure> {
    let plain = |text: &str, more: &[char]| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || more.contains(&c);
        !text.is_empty() && text.chars().all(fits)
    };
    match package.requirement.split_once("==") {
        Some((name, version)) if plain(name, &[]) && plain(version, &['!', '+']) => {
            Ok((name, version))
        }
        _ => Err(item_failure(package, "not of the form `name==version`")),
    }
}

/// `uv pip compile` in a folder whose `uv.toml` gives the package's metadata beforehand: uv then has
/// no reason to build anything, and only lists the archives that the index offers.
async fn lock(
    uv: &Path,
    package: &PypiPackage,
    name: &str,
    version: &str,
    python: &str,
) -> Result<String, Failure> {
    let folder = tempfile::tempdir().map_err(disk(Path::new("temporary folder")))?;
    let metadata = format!(
        "[[dependency-metadata]]\nname = \"{name}\"\nversion = \"{version}\"\nrequires-dist = []\n"
    );
    let config = folder.path().join("uv.toml");
    std::fs::write(&config, metadata).map_err(disk(&config))?;
    let mut child = Command::new(uv)
        .args([
            "pip",
            "compile",
            "-",
            "--no-deps",
            "--universal",
            "--format",
            "pylock.toml",
        ])
        .args([
            "--no-header",
            "--quiet",
            "--no-python-downloads",
            "--color",
            "never",
            "--python-version",
            python,
        ])
        .current_dir(folder.path())
        .env("UV_HTTP_TIMEOUT", "30")
        .env("UV_HTTP_RETRIES", "1") // the executor tries again
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| {
            let detail = format!("uv cannot be started ({e}); install it or set UV to its path");
            Failure::new(FailureKind::Internal, detail)
        })?;
    let talk = async {
        if let Some(mut stdin) = child.stdin.take() {
            // One that ends before it has read says why.
            let _ = stdin.write_all(package.requirement.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let answer = match tokio::time::timeout(Duration::from_secs(120), talk).await {
        Ok(answer) => answer.map_err(disk(Path::new("uv")))?,
        Err(_) => return Err(item_failure(package, "uv took longer than two minutes").retryable()),
    };
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    let said: String = said.trim().chars().take(400).collect();
    let failure = item_failure(package, format!("uv could not resolve it: {said}"));
    Err(if is_unsatisfiable(&failure) {
        failure
    } else {
        failure.retryable()
    })
}

/// Whether uv said that there is no such package, or none for that Python.
fn is_unsatisfiable(failure: &Failure) -> bool {
    failure.detail.contains("No solution found") || failure.detail.contains("unsatisfiable")
}

/// Move a checked download into the cache.
fn keep(mut file: File, path: &Path) -> Result<File, Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(disk(folder))?;
    let mut kept = tempfile::NamedTempFile::new_in(folder).map_err(disk(folder))?;
    std::io::copy(&mut file, &mut kept).map_err(disk(path))?;
    kept.as_file().sync_all().map_err(disk(path))?;
    kept.persist(path).map_err(|e| disk(path)(e.error))?;
    File::open(path).map_err(disk(path))
}

// --- opening -------------------------------------------------------------------------------------

fn open(package: &PypiPackage, file: File, outlet: &Outlet) -> Result<(), Failure> {
    let purl = format!("pkg:pypi/{}", package.requirement.replacen("==", "@", 1));
    let include = globs(package)?;
    let limits = outlet.limits();
    let mut members = Members {
        outlet,
        purl,
        include,
        licence: Mutex::new(None),
    };
    let size = file.metadata().map_err(disk(Path::new("download")))?.len();
    let kind = archive_kind(&file).map_err(disk(Path::new("download")))?;
    let kind = kind.ok_or_else(|| item_failure(package, "neither zip nor tar.gz"))?;
    let bounds = Bounds::new(limits.file, limits.total);
    archive::open(kind, "", file, size, bounds, &mut members);
    let licence = members.licence.into_inner().unwrap_or_default();
    if let Some(licence) = licence {
        outlet.licence(licence);
    }
    Ok(())
}

pub(super) fn archive_kind(mut file: &File) -> std::io::Result<Option<ArchiveKind>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut head = Vec::new();
    file.take(super::HEAD as u64).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(super::archive_head(&head))
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
    outlet: &'a Outlet,
    purl: String,
    include: GlobSet,
    licence: Mutex<Option<String>>,
}

impl Members<'_> {
    /// Globs are written against the path inside the sdist's single top folder.
    fn included(&self, path: &str) -> bool {
        let inside = path.split_once('/').map_or(path, |(_, rest)| rest);
        let outer = path.split('!').next().unwrap_or(path);
        self.include.is_match(path) || self.include.is_match(inside) || {
            // Members of an archive that is itself included.
            outer != path && (self.included(outer) && known_extension(path))
        }
    }
}

/// The package's own metadata: in the wheel's dist-info, or at the top of the sdist.
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
            let found = licence(&String::from_utf8_lossy(&bytes));
            if let Ok(mut licence) = self.licence.lock() {
                *licence = licence.take().or(found);
            }
            return;
        }
        let origin = super::printable(&format!("{}#{path}", self.purl));
        self.outlet.send(Event::File {
            origin,
            path: path.to_owned(),
            bytes,
            licence: None,
        });
    }

    fn refused(&mut self, path: &str, reason: String) {
        self.outlet
            .left_out(&format!("{}#{path}", self.purl), reason);
    }
}

/// The licence that a package's metadata names, as SPDX where that is plain.
fn licence(metadata: &str) -> Option<String> {
    let headers = metadata.split("\n\n").next().unwrap_or_default();
    let mut expression = fields(headers, "License-Expression: ");
    let mut free = fields(headers, "License: ").filter(|text| text.len() <= 60);
    let classifiers = fields(headers, "Classifier: License :: ");
    let classified = classifiers
        .last()
        .map(|c| c.rsplit(" :: ").next().unwrap_or(c));
    let found = expression.next().or_else(|| free.next()).or(classified);
    found.map(|text| spdx(text).to_owned())
}

fn fields<'a>(headers: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    let values = headers
        .lines()
        .filter_map(move |line| line.strip_prefix(start).map(str::trim));
    values.filter(|value| !value.is_empty() && *value != "UNKNOWN")
}

fn spdx(text: &str) -> &str {
    match text {
        "MIT License" | "The MIT License" | "MIT license" => "MIT",
        "Apache Software License" | "Apache License 2.0" | "Apache 2.0" => "Apache-2.0",
        "BSD 3-Clause" | "BSD-3-clause" | "New BSD" | "new BSD" | "BSD 3-Clause License" => {
            "BSD-3-Clause"
        }
        "GNU General Public License v2 or later (GPLv2+)" => "GPL-2.0-or-later",
        "Historical Permission Notice and Disclaimer (HPND)" => "HPND",
        "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication" => "CC0-1.0",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_program::write_program;

    #[test]
    fn licences_are_read_from_metadata() {
        let metadata = |fields: &str| licence(&format!("Name: x\n{fields}\n\nLicense: not me"));
        assert_eq!(metadata("License-Expression: MIT").as_deref(), Some("MIT"));
        assert_eq!(
            metadata("License: new BSD").as_deref(),
            Some("BSD-3-Clause")
        );
        let classifier = "License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License";
        assert_eq!(metadata(classifier).as_deref(), Some("MIT"));
        assert_eq!(metadata(""), None);
    }

    /// Stands in for uv, with a package that wants Python 3.9 and has a wheel for 3.9 alone.
    const UV: &str = r#"#!/bin/sh
cat >/dev/null
for last; do :; done
echo "$last" >>"$0.log"
case "$last" in
    3.8) echo "error: No solution found: the requested Python version (>=3.8) is too old" >&2; exit 1;;
    3.9) echo '[[packages]]'
         echo 'wheels = [{ url = "https://a/b.whl", hashes = { sha256 = "abc" } }]';;
    *) echo '[[packages]]';;
esac
"#;

    #[tokio::test]
    async fn what_is_found_does_not_depend_on_this_machines_python() {
        let folder = tempfile::tempdir().unwrap();
        let uv = folder.path().join("uv");
        write_program(&uv, UV);
        let mut package = PypiPackage {
            requirement: "a==1".into(),
            archive: PypiArchive::Wheel,
            sha256: "ABC".into(),
            include: vec![],
        };
        assert_eq!(resolve(&uv, &package).await.unwrap(), "https://a/b.whl");
        package.sha256 = "abd".into();
        let failure = resolve(&uv, &package).await.unwrap_err();
        assert!(failure.detail.contains("SHA-256 abd"), "{failure:?}");
        let asked = std::fs::read_to_string(folder.path().join("uv.log")).unwrap();
        assert_eq!(asked, "3.8\n3.9\n3.8\n3.9\n");
        write_program(
            &uv,
            "#!/bin/sh\necho 'No solution found: no such version' >&2\nexit 1\n",
        );
        let failure = resolve(&uv, &package).await.unwrap_err();
        assert!(failure.detail.contains("no such version"), "{failure:?}");
        assert!(!failure.retryable);
    }

    #[test]
    fn requirements_are_pinned_and_plain() {
        let split = |requirement: &str| {
            let package = PypiPackage {
                requirement: requirement.into(),
                archive: PypiArchive::Wheel,
                sha256: String::new(),
                include: vec![],
            };
            split_requirement(&package)
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .ok()
        };
        assert_eq!(split("a-b==1.0"), Some(("a-b".into(), "1.0".into())));
        for bad in [
            "a",
            "a>=1",
            "==1",
            "a==",
            "a==1\n-r x",
            "a==1\" x",
            "a @ file:///x==1",
        ] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
