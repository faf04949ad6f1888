//! A folder that appears under its name when it is complete.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pybench::run::RunError;
use tempfile::TempDir;

/// What is written, beside where it goes.
pub(super) struct Tree {
    staging: TempDir,
    out: PathBuf,
}

impl Tree {
    /// Begin, where nothing or an empty folder is.
    ///
    /// # Errors
    /// [`RunError::Conflict`] where something is.
    pub(super) fn begin(out: &Path) -> Result<Self, RunError> {
        let shown = out.display();
        match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => {
                let text = format!("{shown} is there already; give --out a new folder");
                return Err(RunError::Conflict(text));
            }
        }
        let parent = match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(RunError::io(parent.display().to_string()))?;
        let staging = tempfile::Builder::new()
            .prefix(".pybench-export-")
            .tempdir_in(parent)
            .map_err(RunError::io(format!("a folder beside {shown}")))?;
        Ok(Self {
            staging,
            out: out.to_owned(),
        })
    }

    /// A file; its folders are made.
    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), RunError> {
        let full = self.staging.path().join(path);
        let wrap = || RunError::io(full.display().to_string());
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(wrap())?;
        }
        fs::write(&full, content).map_err(wrap())
    }

    /// A file that can be run.
    pub(super) fn program(&self, path: &str, content: &str) -> Result<(), RunError> {
        self.file(path, content)?;
        self.mode(path)
    }

    /// Everything is written.
    pub(super) fn finish(self) -> Result<(), RunError> {
        self.mode("")?;
        let wrap = || RunError::io(self.out.display().to_string());
        fs::rename(self.staging.path(), &self.out).map_err(wrap())?;
        // Nothing lies under the old name any more.
        let _ = self.staging.keep();
        Ok(())
    }

    fn mode(&self, path: &str) -> Result<(), RunError> {
        let full = self.staging.path().join(path);
        fs::set_permissions(&full, Permissions::from_mode(0o755))
            .map_err(RunError::io(full.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench::run::ExitCode;

    #[test]
    fn a_tree_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/out");
        let tree = Tree::begin(&out).unwrap();
        tree.file("x/y.txt", "1").unwrap();
        tree.program("run.sh", "#!/bin/sh\n").unwrap();
        assert!(!out.exists());
        tree.finish().unwrap();
        assert_eq!(fs::read_to_string(out.join("x/y.txt")).unwrap(), "1");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&out.join("run.sh")), 0o755);
        assert_eq!(mode(&out), 0o755);
        let error = Tree::begin(&out).err().unwrap();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        drop(Tree::begin(&folder.path().join("a/other")).unwrap());
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
