//! Archives of Python packages. uv resolves each package through the index that the machine is configured for.
//! Archives are checked by SHA-256 and cached under it; they are never built or run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pybench_files::sniff::{ArchiveKind, HEAD, archive_head};
use pybench_run::{Failure, FailureKind, PypiArchive, PypiPackage, program, replace_file};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::blocking::{blocking, io_failure};
use crate::{FetchError, HttpClient, Limits};

/// The archive of a package, from the folder of downloads (by SHA-256) or from the index.
pub async fn fetch(
    package: &PypiPackage,
    web: &HttpClient,
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
        Err(FetchError::Failed(failure)) => return Err(failure),
        Err(FetchError::Refused(reason)) => return Err(item_failure(package, reason)),
    };
    if !got.sha256.eq_ignore_ascii_case(&package.sha256) {
        return Err(item_failure(
            package,
            format!(
                "the download has SHA-256 {}, which differs from the pinned one",
                got.sha256
            ),
        ));
    }
    blocking(move || store(got.file, &path)).await
}

/// The requirement, with `[sdist]` for source distributions.
pub fn package_name(package: &PypiPackage) -> String {
    let archive = match package.archive {
        PypiArchive::Wheel => "",
        PypiArchive::Sdist => "[sdist]",
    };
    format!("{}{archive}", package.requirement)
}

/// A failure of that package alone.
pub fn item_failure(package: &PypiPackage, reason: impl std::fmt::Display) -> Failure {
    Failure::new(
        FailureKind::Item,
        format!("{}: {reason}", package_name(package)),
    )
}

// --- resolving -----------------------------------------------------------------------------------

/// The relevant part of a `pylock.toml`.
#[derive(Deserialize)]
struct Lock {
    packages: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    sdist: Option<Artifact>,
    #[serde(default)]
    wheels: Vec<Artifact>,
}

#[derive(Deserialize)]
struct Artifact {
    url: Option<String>,
    #[serde(default)]
    hashes: std::collections::BTreeMap<String, String>,
}

/// Path of uv: `$UV`, or the copy that the project's setup installed, or the one beside this program or in `PATH`.
pub fn find_uv(project_root: &Path) -> PathBuf {
    let named = std::env::var_os("UV")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    // An absolute path, because uv is started in another folder.
    let installed = || project_root.join(".tools/bin/uv").canonicalize().ok();
    let beside = || program::find("uv");
    named
        .or_else(installed)
        .or_else(beside)
        .unwrap_or_else(|| "uv".into())
}

/// Asks uv for the URL of the archive with the package's checksum.
async fn resolve(uv: &Path, package: &PypiPackage) -> Result<String, Failure> {
    let artifacts = archives(uv, package).await?;
    let matching = |(_, hash): &(String, String)| hash.eq_ignore_ascii_case(&package.sha256);
    let found = artifacts.into_iter().find(matching).map(|(url, _)| url);
    found.ok_or_else(|| {
        item_failure(
            package,
            format!(
                "the package index has no such archive with SHA-256 {}",
                package.sha256
            ),
        )
    })
}

/// Python versions to resolve for, in order, until one is new enough for the package. By default uv would use
/// this machine's Python and skip archives that do not fit it, but a recipe must find the same archives
/// everywhere.
const PYTHON_VERSIONS: [&str; 7] = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

/// URL and SHA-256 of every archive of the requested kind that the index offers.
pub async fn archives(uv: &Path, package: &PypiPackage) -> Result<Vec<(String, String)>, Failure> {
    let (name, version) = split_requirement(package)?;
    let [oldest, newer @ ..] = PYTHON_VERSIONS;
    let mut text = lock(uv, package, name, version, oldest).await;
    for python in newer {
        if !text.as_ref().is_err_and(is_unsatisfiable) {
            break;
        }
        text = lock(uv, package, name, version, python).await;
    }
    let lock: Lock = toml::from_str(&text?)
        .map_err(|e| item_failure(package, format!("cannot parse the output of uv: {e}")))?;
    let artifacts = lock
        .packages
        .into_iter()
        .flat_map(|locked| match package.archive {
            PypiArchive::Wheel => locked.wheels,
            PypiArchive::Sdist => locked.sdist.into_iter().collect(),
        });
    let complete = |artifact: Artifact| {
        let mut hashes = artifact.hashes;
        Some((artifact.url?, hashes.remove("sha256")?))
    };
    Ok(artifacts.filter_map(complete).collect())
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
        _ => Err(item_failure(
            package,
            "the requirement must have the form `name==version`",
        )),
    }
}

/// Runs `uv pip compile` in a folder whose `uv.toml` supplies the package's metadata, so that uv builds nothing
/// and only lists the archives that the index offers.
async fn lock(
    uv: &Path,
    package: &PypiPackage,
    name: &str,
    version: &str,
    python: &str,
) -> Result<String, Failure> {
    let folder = tempfile::tempdir().map_err(io_failure(Path::new("temporary folder")))?;
    let metadata = format!(
        "[[dependency-metadata]]\nname = \"{name}\"\nversion = \"{version}\"\nrequires-dist = []\n"
    );
    let config = folder.path().join("uv.toml");
    std::fs::write(&config, metadata).map_err(io_failure(&config))?;
    // With a source archive that the metadata above does not describe, uv would run the package's own build.
    let no_build = matches!(package.archive, PypiArchive::Wheel).then_some("--no-build");
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
        ])
        .args(no_build)
        .args(["--python-version", python])
        .current_dir(folder.path())
        .env("UV_HTTP_TIMEOUT", "30")
        .env("UV_HTTP_RETRIES", "1") // the executor retries
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| {
            let detail = format!("cannot start uv ({e}); install uv or set UV to its path");
            Failure::new(FailureKind::Internal, detail)
        })?;
    let run = async {
        if let Some(mut stdin) = child.stdin.take() {
            // If uv exits before reading its input, its exit status reports why.
            let _ = stdin.write_all(package.requirement.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let answer = match tokio::time::timeout(Duration::from_secs(120), run).await {
        Ok(answer) => answer.map_err(io_failure(Path::new("uv")))?,
        Err(_) => return Err(item_failure(package, "uv took longer than two minutes").retryable()),
    };
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    let said: String = said.trim().chars().take(400).collect();
    let failure = item_failure(package, format!("uv could not resolve the package: {said}"));
    Err(if is_unsatisfiable(&failure) {
        failure
    } else {
        failure.retryable()
    })
}

/// Whether uv reported that there is no such package, or none for the Python version.
fn is_unsatisfiable(failure: &Failure) -> bool {
    failure.detail.contains("No solution found") || failure.detail.contains("unsatisfiable")
}

/// Moves a checked download into the cache.
fn store(mut file: File, path: &Path) -> Result<File, Failure> {
    replace_file(path, |out| std::io::copy(&mut file, out).map(drop)).map_err(io_failure(path))?;
    File::open(path).map_err(io_failure(path))
}

pub fn archive_kind(mut file: &File) -> std::io::Result<Option<ArchiveKind>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut head = Vec::new();
    file.take(HEAD as u64).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(archive_head(&head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_testing::program::write_program;

    /// Simulates uv for a package that needs Python 3.9 and has a wheel only for 3.9.
    const UV: &str = r#"#!/bin/sh
cat >/dev/null
for last; do :; done
echo "$last" >>"$0.log"
case "$*" in *" --no-build "*) ;; *) echo "$0: may build" >&2; exit 1;; esac
case "$last" in
    3.8) echo "error: No solution found: the requested Python version (>=3.8) is too old" >&2; exit 1;;
    3.9) echo '[[packages]]'
         echo 'wheels = [{ url = "https://a/b.whl", hashes = { sha256 = "abc" } }]';;
    *) echo '[[packages]]';;
esac
"#;

    #[tokio::test]
    async fn resolution_does_not_depend_on_the_local_python() {
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
    fn requirements_must_be_pinned_and_plain() {
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
