//! Replaces files and folders as a whole: they are written beside their destination, under a temporary name,
//! and renamed when they are complete. What is not finished disappears.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

use super::RunError;

const PREFIX: &str = ".tmp-";

/// Replaces a file by these bytes.
///
/// # Errors
/// I/O errors, with the path.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    replace_file(path, |out| out.write_all(bytes)).map_err(RunError::io(path.display().to_string()))
}

/// Replaces a file by what `write` writes. If that fails, the old file stays.
///
/// # Errors
/// The error of `write`, and I/O errors.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<NamedTempFile>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = new_file(path)?;
    write(&mut out)?;
    finish_file(out, path)
}

/// Starts a file that becomes `path` with [`finish_file`]. Creates its folder.
pub(crate) fn new_file(path: &Path) -> io::Result<BufWriter<NamedTempFile>> {
    let parent = parent(path);
    fs::create_dir_all(parent)?;
    // Use the umask as for ordinary files: a sandbox that runs as another user reads inputs from here.
    let file = tempfile::Builder::new()
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)?;
    Ok(BufWriter::new(file))
}

pub(crate) fn finish_file(out: BufWriter<NamedTempFile>, path: &Path) -> io::Result<()> {
    let file = out.into_inner().map_err(|error| error.into_error())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// A folder that is being written. It is removed if it is dropped before [`NewFolder::finish`].
#[derive(Debug)]
pub struct NewFolder {
    staging: TempDir,
    destination: PathBuf,
}

impl NewFolder {
    /// Starts an empty folder that becomes `destination`. Creates the folder above it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(destination: &Path) -> io::Result<Self> {
        let parent = parent(destination);
        fs::create_dir_all(parent)?;
        let staging = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        Ok(Self {
            staging,
            destination: destination.to_owned(),
        })
    }

    /// Where to write the content.
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// Moves the folder to its destination, which must be missing or an empty folder.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(self) -> io::Result<()> {
        // Other users may read it, unlike temporary folders.
        fs::set_permissions(self.path(), Permissions::from_mode(0o755))?;
        fs::rename(self.path(), &self.destination)?;
        // The path no longer exists, so there is nothing to remove.
        let _ = self.staging.keep();
        Ok(())
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_as_it_is_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/file");
        write_atomically(&path, b"old").unwrap();
        let failed = replace_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_appears_when_it_is_complete() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/folder");
        let new = NewFolder::new(&path).unwrap();
        fs::write(new.path().join("x"), "1").unwrap();
        assert!(!path.exists());
        new.finish().unwrap();
        assert_eq!(fs::read(path.join("x")).unwrap(), b"1");
        drop(NewFolder::new(&path).unwrap());
        assert_eq!(fs::read_dir(root.path().join("a")).unwrap().count(), 1);
    }
}
