//! Writes a folder atomically: it appears under its name only when it is complete.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pybench_run::{NewFolder, RunError};

/// A folder being written, staged next to its destination.
pub(super) struct Tree {
    staging: NewFolder,
    /// The destination, for messages.
    shown: String,
}

impl Tree {
    /// Starts a folder at `out`, which must not exist or must be empty.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if `out` exists and is not an empty folder.
    pub(super) fn create(out: &Path) -> Result<Self, RunError> {
        let shown = out.display();
        match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => {
                let text =
                    format!("{shown} already exists; choose a new or empty folder with --out");
                return Err(RunError::Conflict(text));
            }
        }
        let staging =
            NewFolder::new(out).map_err(RunError::io(format!("a folder beside {shown}")))?;
        Ok(Self {
            staging,
            shown: shown.to_string(),
        })
    }

    /// Writes a file and creates its parent folders.
    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), RunError> {
        let full = self.staging.path().join(path);
        let wrap = || RunError::io(full.display().to_string());
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(wrap())?;
        }
        fs::write(&full, content).map_err(wrap())
    }

    /// Writes an executable file.
    pub(super) fn program(&self, path: &str, content: &str) -> Result<(), RunError> {
        self.file(path, content)?;
        let full = self.staging.path().join(path);
        fs::set_permissions(&full, Permissions::from_mode(0o755))
            .map_err(RunError::io(full.display().to_string()))
    }

    /// Moves the complete folder to its destination.
    pub(super) fn finish(self) -> Result<(), RunError> {
        self.staging.finish().map_err(RunError::io(self.shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_run::ExitCode;

    #[test]
    fn a_tree_appears_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/out");
        let tree = Tree::create(&out).unwrap();
        tree.file("x/y.txt", "1").unwrap();
        tree.program("run.sh", "#!/bin/sh\n").unwrap();
        assert!(!out.exists());
        tree.finish().unwrap();
        assert_eq!(fs::read_to_string(out.join("x/y.txt")).unwrap(), "1");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&out.join("run.sh")), 0o755);
        assert_eq!(mode(&out), 0o755);
        let error = Tree::create(&out).err().unwrap();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        drop(Tree::create(&folder.path().join("a/other")).unwrap());
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
