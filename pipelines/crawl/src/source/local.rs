//! A folder on this machine.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use pybench_run::{Failure, FailureKind};

use super::{Sink, Source, blocking, known_extension};

/// Collects the files of a folder in the order of their paths. Respects `.gitignore` and `.ignore`, skips
/// hidden files and never follows links.
pub(super) struct Local {
    root: PathBuf,
    ignore: Vec<String>,
    license: Option<String>,
}

impl Local {
    pub(super) fn new(root: PathBuf, ignore: Vec<String>, license: Option<String>) -> Self {
        Self {
            root,
            ignore,
            license,
        }
    }
}

#[async_trait]
impl Source for Local {
    fn items(&self) -> Vec<String> {
        vec!["folder".into()]
    }

    async fn collect(&self, _: &str, sink: Sink) -> Result<(), Failure> {
        let (root, ignore, license) =
            (self.root.clone(), self.ignore.clone(), self.license.clone());
        blocking(move || {
            if let Some(license) = license {
                sink.license(license);
            }
            walk(&root, &ignore, &sink)
        })
        .await
    }
}

fn walk(root: &Path, ignore: &[String], sink: &Sink) -> Result<(), Failure> {
    let wrong = |pattern: &str, e: ignore::Error| {
        Failure::new(
            FailureKind::Item,
            format!("crawl: invalid ignore pattern `{pattern}`: {e}"),
        )
    };
    let mut overrides = OverrideBuilder::new(root);
    for pattern in ignore {
        overrides
            .add(&format!("!{pattern}"))
            .map_err(|e| wrong(pattern, e))?;
    }
    let overrides = overrides.build().map_err(|e| wrong("", e))?;
    let walk = WalkBuilder::new(root)
        .overrides(overrides)
        .require_git(false)
        .parents(false)
        .follow_links(false)
        .sort_by_file_path(|a, b| a.cmp(b))
        .build();
    for entry in walk {
        match entry {
            Ok(entry) => collect_entry(root, &entry, sink),
            Err(error) => sink.left_out("", format!("cannot be read: {error}")),
        }
    }
    Ok(())
}

/// A file that Word, Excel or LibreOffice keep beside a document while it is open.
fn is_lock_file(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"~$") || name.starts_with(b".~lock.")
}

fn collect_entry(root: &Path, entry: &ignore::DirEntry, sink: &Sink) {
    let relative = entry.path().strip_prefix(root).unwrap_or(entry.path());
    let origin = relative.to_string_lossy();
    match entry.file_type() {
        Some(kind) if kind.is_dir() => {}
        Some(_) if is_lock_file(entry.file_name()) => {}
        Some(kind) if kind.is_symlink() => sink.left_out(&origin, "a symbolic link"),
        Some(kind) if kind.is_file() => match File::open(entry.path()) {
            Ok(file) => sink.offer(&origin, &origin, file, &known_extension),
            Err(error) => sink.left_out(&origin, format!("cannot be opened: {error}")),
        },
        _ => sink.left_out(&origin, "not a regular file"),
    }
}
