//! A folder on this machine.

use std::fs::File;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use pybench::run::{Failure, FailureKind};

use super::{Outlet, Source, blocking, known_extension};

/// Files of a folder, in the order of their paths. `.gitignore` and `.ignore` are heeded, hidden
/// files left alone, links never followed.
pub(super) struct Local {
    root: PathBuf,
    ignore: Vec<String>,
    licence: Option<String>,
}

impl Local {
    pub(super) fn new(root: PathBuf, ignore: Vec<String>, licence: Option<String>) -> Self {
        Self {
            root,
            ignore,
            licence,
        }
    }
}

#[async_trait]
impl Source for Local {
    fn items(&self) -> Vec<String> {
        vec!["folder".into()]
    }

    async fn collect(&self, _: &str, outlet: Outlet) -> Result<(), Failure> {
        let (root, ignore, licence) =
            (self.root.clone(), self.ignore.clone(), self.licence.clone());
        blocking(move || {
            if let Some(licence) = licence {
                outlet.licence(licence);
            }
            walk(&root, &ignore, &outlet)
        })
        .await
    }
}

fn walk(root: &Path, ignore: &[String], outlet: &Outlet) -> Result<(), Failure> {
    let wrong = |pattern: &str, e: ignore::Error| {
        Failure::new(
            FailureKind::Item,
            format!("crawl: the ignore pattern `{pattern}`: {e}"),
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
            Ok(entry) => look(root, &entry, outlet),
            Err(error) => outlet.left_out("", format!("cannot be read: {error}")),
        }
    }
    Ok(())
}

fn look(root: &Path, entry: &ignore::DirEntry, outlet: &Outlet) {
    let relative = entry.path().strip_prefix(root).unwrap_or(entry.path());
    let origin = relative.to_string_lossy();
    match entry.file_type() {
        Some(kind) if kind.is_dir() => {}
        Some(kind) if kind.is_symlink() => outlet.left_out(&origin, "a symbolic link"),
        Some(kind) if kind.is_file() => match File::open(entry.path()) {
            Ok(file) => outlet.offer(&origin, &origin, file, &known_extension),
            Err(error) => outlet.left_out(&origin, format!("cannot be opened: {error}")),
        },
        _ => outlet.left_out(&origin, "no regular file"),
    }
}
