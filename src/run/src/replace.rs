//! Replaces files and folders as a whole: they are written beside their destination, under a temporary name,
//! and renamed when they are complete. What is not finished disappears.

use std::fs::{self, File, Permissions};
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

/// Replaces the output of a command by these bytes, as [`NewFile`] does.
///
/// # Errors
/// I/O errors, with the path.
pub fn write_output(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let write = || {
        let mut file = NewFile::new(path)?;
        file.write_all(bytes)?;
        file.finish()
    };
    write().map_err(RunError::io(path.display().to_string()))
}

/// The output file of a command, which may be its input too: the old file stays until [`NewFile::finish`]. What a link
/// points to is replaced, not the link. Pipes and devices are written as they are.
#[derive(Debug)]
pub enum NewFile {
    Staged(BufWriter<NamedTempFile>, PathBuf),
    Direct(BufWriter<File>),
}

impl NewFile {
    /// Starts the file. Creates the folder above it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(path: &Path) -> io::Result<Self> {
        let destination = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&destination).is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(path)?;
            return Ok(Self::Direct(BufWriter::new(file)));
        }
        Ok(Self::Staged(new_file(&destination)?, destination))
    }

    /// Moves the file to its destination.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Staged(out, destination) => finish_file(out, &destination),
            Self::Direct(mut out) => out.flush(),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Staged(out, _) => out.write(bytes),
            Self::Direct(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Staged(out, _) => out.flush(),
            Self::Direct(out) => out.flush(),
        }
    }
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
    fn an_output_replaces_what_a_link_points_to_and_keeps_special_files() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, device] = ["file", "link", "device"].map(|name| folder.path().join(name));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        let mut new = NewFile::new(&link).unwrap();
        new.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        new.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        write_output(&device, b"x").unwrap();
        for link in [link, device] {
            assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        }
        assert!(write_output(folder.path(), b"x").is_err());
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
