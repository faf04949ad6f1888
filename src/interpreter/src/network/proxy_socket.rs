//! A Unix socket for sessions in containers, which cannot pass a socket to the host: its folder is mounted
//! into the container, where the relay (`python/way.py`) forwards connections to it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use tempfile::TempDir;

use crate::sandbox::remove_stale;

/// File name of the socket.
const NAME: &str = "socket";

/// A listening socket and its folder, which is removed when this is dropped.
#[derive(Debug)]
pub struct ProxySocket {
    folder: TempDir,
    socket: OwnedFd,
}

impl ProxySocket {
    /// Creates a socket below `base` to which only `owner` (or this user) can connect.
    pub fn make(base: &Path, owner: Option<u32>) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        fs::set_permissions(base, Permissions::from_mode(0o711))?;
        remove_stale(base);
        let prefix = format!("{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(base)?;
        // A socket address holds only a short path.
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

    /// The folder to mount into the container.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the listening socket, and the folder, which must be kept as long as the container.
    pub fn open(self) -> (OwnedFd, TempDir) {
        (self.socket, self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_owner_can_connect_and_the_folder_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(120));
        fs::create_dir_all(deep.join("999999999-gone")).unwrap();
        let proxy_socket = ProxySocket::make(&deep, None).unwrap();
        assert!(!deep.join("999999999-gone").exists());
        let inside = File::open(proxy_socket.folder()).unwrap();
        let at = format!("/proc/self/fd/{}/{NAME}", inside.as_raw_fd());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(
            (mode(proxy_socket.folder()), mode(at.as_ref())),
            (0o711, 0o600)
        );
        assert!(UnixStream::connect(&at).is_ok());
        let (_socket, folder) = proxy_socket.open();
        drop(folder);
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }
}
