//! A file by the origin that a task names: `pkg:pypi/name@version#member`, or a URL.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use pybench::run::{PypiArchive, PypiPackage};

use super::pypi::{self, find_uv};
use super::web::{Trouble, Web};
use super::{Limits, blocking};
use crate::crawl::archive::{self, Bounds, Visitor};

/// Largest file, and largest archive.
const LIMITS: Limits = Limits {
    file: 1 << 30,
    total: 4 << 30,
};

/// The bytes that lie at that origin now: of an archive's member, whatever stands under its name. The
/// caller knows their digest. `cache` holds downloads.
///
/// # Errors
/// Why there are none, in words; an origin on the machine that crawled it cannot be fetched.
pub(crate) async fn fetch(
    origin: &str,
    cache: &Path,
    project: &Path,
) -> Result<Vec<Vec<u8>>, String> {
    if let Some(rest) = origin.strip_prefix("pkg:pypi/") {
        let parts = rest.split_once('#').and_then(|(purl, member)| {
            let (name, version) = purl.split_once('@')?;
            Some((name, version, member))
        });
        let (name, version, member) = parts.ok_or_else(|| format!("{origin} names no member"))?;
        return of_package(name, version, member, cache, project).await;
    }
    if origin.starts_with("https://") || origin.starts_with("http://") {
        let got = Web::new(cache)
            .get(origin, LIMITS)
            .await
            .map_err(Trouble::in_words)?;
        return Ok(vec![whole(got.file).await?]);
    }
    Err(format!(
        "{origin} lay on the machine that crawled it; give a folder that has it with --files"
    ))
}

async fn whole(mut file: File) -> Result<Vec<u8>, String> {
    let read = blocking(move || {
        let mut bytes = Vec::new();
        let read = (&mut file).take(LIMITS.file + 1).read_to_end(&mut bytes);
        read.map_err(super::disk(Path::new("download")))?;
        Ok(bytes)
    });
    read.await.map_err(|failure| failure.detail)
}

/// A member of a source distribution begins with the folder that all its members lie in.
async fn of_package(
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
    let detail = |failure: pybench::run::Failure| failure.detail;
    let uv = find_uv(project);
    // Wheels of several systems carry the same data: the first will do.
    let found = pypi::archives(&uv, &package).await.map_err(detail)?;
    let missing = || format!("the index has no such archive of {name} {version}");
    let (_, sha256) = found.into_iter().next().ok_or_else(missing)?;
    package.sha256 = sha256;
    let downloads = cache.join("downloads");
    let file = pypi::fetch(&package, &Web::new(cache), &downloads, project, LIMITS).await;
    let (file, member) = (file.map_err(detail)?, member.to_owned());
    let found = blocking(move || {
        let mut wanted = Member {
            path: member,
            found: Vec::new(),
        };
        let size = file
            .metadata()
            .map_err(super::disk(Path::new("download")))?
            .len();
        let kind = pypi::archive_kind(&file).map_err(super::disk(Path::new("download")))?;
        if let Some(kind) = kind {
            let bounds = Bounds::new(LIMITS.file, LIMITS.total);
            archive::open(kind, "", file, size, bounds, &mut wanted);
        }
        Ok(wanted.found)
    });
    found.await.map_err(detail)
}

/// Looks for one member, which may lie in an archive inside.
struct Member {
    path: String,
    found: Vec<Vec<u8>>,
}

impl Visitor for Member {
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
