//! A socket for sessions in containers, which cannot hand over one of their own: it lies in a folder that
//! is mounted into the container, where the relay (`python/way.py`) forwards to it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use tempfile::TempDir;

/// The socket's name in its folder.
const NAME: &str = "socket";

/// A listening socket and the folder that it lies in, which goes when this is dropped.
#[derive(Debug)]
pub(in crate::interpreter) struct Door {
    folder: TempDir,
    socket: OwnedFd,
}

impl Door {
    /// Make one below `base`, where nobody but `owner` (or this user) may connect.
    pub(in crate::interpreter) fn make(base: &Path, owner: Option<u32>) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        fs::set_permissions(base, Permissions::from_mode(0o711))?;
        sweep(base);
        let prefix = format!("{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(base)?;
        // The address of a socket has room for a short path only.
        let opened = File::open(folder.path())?;
        let short = format!("/proc/self/fd/{}/{NAME}", opened.as_raw_fd());
        let socket = UnixListener::bind(short)?;
        let path = folder.path().join(NAME);
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if owner.is_some() {
            chown(&path, owner, owner)?;
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
        let socket = socket.into();
        Ok(Self { folder, socket })
    }

    /// What is mounted into the container.
    pub(in crate::interpreter) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The socket, to answer on, and the folder, to keep as long as the container is there.
    pub(in crate::interpreter) fn open(self) -> (OwnedFd, TempDir) {
        (self.socket, self.folder)
    }
}

/// Remove what processes that are gone have left.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-'));
        if owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_door_is_its_owners_and_goes_with_its_folder() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(120));
        fs::create_dir_all(deep.join("999999999-gone")).unwrap();
        let door = Door::make(&deep, None).unwrap();
        assert!(!deep.join("999999999-gone").exists());
        let inside = File::open(door.folder()).unwrap();
        let at = format!("/proc/self/fd/{}/{NAME}", inside.as_raw_fd());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(door.folder()), mode(at.as_ref())), (0o711, 0o600));
        assert!(UnixStream::connect(&at).is_ok());
        let (_socket, folder) = door.open();
        drop(folder);
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }
}
