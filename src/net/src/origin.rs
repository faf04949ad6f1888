//! Fetches a file from the origin that a task names: `pkg:pypi/name@version#member` or a URL.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use pybench_run::{PypiArchive, PypiPackage};

use pybench_files::archive::{self, Bounds, Visitor};

use crate::blocking::{blocking, io_failure};
use crate::pypi::{self, find_uv};
use crate::{FetchError, HttpClient, Limits};

/// Maximum sizes of files and archives.
const LIMITS: Limits = Limits {
    file: 1 << 30,
    total: 4 << 30,
};

/// Fetches the current content of an origin, which comes from a dataset: packages of the machine's index, and URLs at
/// public addresses. An archive may contain several members of the same name; the
/// caller compares their digests. Downloads are cached in `cache`.
///
/// # Errors
/// The reason as text. Files from a local folder cannot be fetched.
pub async fn fetch(origin: &str, cache: &Path, project: &Path) -> Result<Vec<Vec<u8>>, String> {
    if let Some(rest) = origin.strip_prefix("pkg:pypi/") {
        let parts = rest.split_once('#').and_then(|(purl, member)| {
            let (name, version) = purl.split_once('@')?;
            Some((name, version, member))
        });
        let (name, version, member) =
            parts.ok_or_else(|| format!("{origin}: the member is missing after `#`"))?;
        if !is_plain(name) || !is_plain(version) {
            return Err(format!("{origin}: not the name and version of a package"));
        }
        return fetch_from_package(name, version, member, cache, project).await;
    }
    if origin.starts_with("https://") || origin.starts_with("http://") {
        let got = HttpClient::public_only(cache)
            .get(origin, LIMITS)
            .await
            .map_err(FetchError::into_message)?;
        return Ok(vec![read_all(got.file).await?]);
    }
    Err(format!(
        "{origin} is a local file of the machine that crawled it; pass a folder that contains it with --files"
    ))
}

/// Whether a text can be the name or the version of a package. A requirement may also name a URL or options.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+!".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

async fn read_all(mut file: File) -> Result<Vec<u8>, String> {
    let read = blocking(move || {
        let mut bytes = Vec::new();
        let read = (&mut file).take(LIMITS.file + 1).read_to_end(&mut bytes);
        read.map_err(io_failure(Path::new("download")))?;
        Ok(bytes)
    });
    read.await.map_err(|failure| failure.detail)
}

/// The path of a member of a source distribution starts with the distribution's top-level folder.
async fn fetch_from_package(
    name: &str,
    version: &str,
    member: &str,
    cache: &Path,
    project: &Path,
) -> Result<Vec<Vec<u8>>, String> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '.'], "-");
    let top = member.split('/').next().unwrap_or_default();
    let archive = match plain(top) == plain(&format!("{name}-{version}")) {
        true => PypiArchive::Sdist,
        false => PypiArchive::Wheel,
    };
    let mut package = PypiPackage {
        requirement: format!("{name}=={version}"),
        archive,
        sha256: String::new(),
        include: Vec::new(),
    };
    let detail = |failure: pybench_run::Failure| failure.detail;
    let uv = find_uv(project);
    // Wheels for different systems contain the same data, so the first one is used.
    let found = pypi::archives(&uv, &package).await.map_err(detail)?;
    let missing = || format!("the package index has no {archive:?} archive of {name} {version}");
    let (_, sha256) = found.into_iter().next().ok_or_else(missing)?;
    package.sha256 = sha256;
    let downloads = cache.join("downloads");
    let file = pypi::fetch(
        &package,
        &HttpClient::new(cache),
        &downloads,
        project,
        LIMITS,
    )
    .await;
    let (file, member) = (file.map_err(detail)?, member.to_owned());
    let found = blocking(move || {
        let mut wanted = MemberFinder {
            path: member,
            found: Vec::new(),
        };
        let size = file
            .metadata()
            .map_err(io_failure(Path::new("download")))?
            .len();
        let kind = pypi::archive_kind(&file).map_err(io_failure(Path::new("download")))?;
        if let Some(kind) = kind {
            let bounds = Bounds::new(LIMITS.file, LIMITS.total);
            archive::open(kind, "", file, size, bounds, &mut wanted);
        }
        Ok(wanted.found)
    });
    found.await.map_err(detail)
}

/// Looks for one member, which may be in a nested archive.
struct MemberFinder {
    path: String,
    found: Vec<Vec<u8>>,
}

impl Visitor for MemberFinder {
    fn wants(&self, path: &str) -> bool {
        self.path == path || self.path.starts_with(&format!("{path}!"))
    }

    fn file(&mut self, path: &str, bytes: Vec<u8>) {
        if path == self.path {
            self.found.push(bytes);
        }
    }

    fn refused(&mut self, _path: &str, _reason: String) {}
}
