//! Access to a session's workspace from the host: reads, writes and lists files while the session may be
//! changing them. Links are not followed, only regular files are opened, and a written file appears under
//! its name only when it is complete.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, fchown, fstat, mkdirat,
    openat2, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// Maximum length of a path, bytes.
const MAX_PATH: usize = 1024;
/// Maximum number of path components, and maximum depth of listing and removing.
const MAX_DEPTH: usize = 32;
/// Maximum number of entries that one call lists, removes or measures.
const MAX_ENTRIES: usize = 20_000;

/// Absolute paths below these are accepted. Sessions see their workspace as `/workspace`; E2B's clients use
/// `/home/user`.
const ROOTS: [&str; 2] = ["/workspace", "/home/user"];

static NEXT: AtomicU64 = AtomicU64::new(0);

/// An error in accessing a workspace file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path is invalid or leads out of the workspace.
    #[error("{0:?} is not a path in the workspace: use a relative path, or one below /workspace")]
    Path(String),
    /// The file does not exist.
    #[error("{0} does not exist")]
    Missing(String),
    /// The file exists already.
    #[error("{0} exists already")]
    Exists(String),
    /// The path names a link, a pipe, a device, or a folder where a file is needed (or the reverse).
    #[error("{0} is a symbolic link, or not a file or folder of the expected type")]
    Kind(String),
    /// The file exceeds the size limit.
    #[error("{0} is too large: the limit is {1} bytes, or the workspace is full")]
    TooLarge(String, u64),
    /// The workspace has no space or inodes left.
    #[error("the workspace is full")]
    Full,
    /// Another system error.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

/// The type of a directory entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Folder,
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct FileEntry {
    /// Path relative to the workspace; empty for the workspace itself.
    pub path: String,
    /// Type of the entry.
    pub kind: EntryKind,
    /// Size, bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change, seconds since 1970.
    pub modified: i64,
    /// Target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Reads and writes the files of one workspace.
#[derive(Clone, Debug)]
pub struct Files {
    root: Arc<OwnedFd>,
    /// Owner of created files.
    owner: Option<u32>,
    /// Capacity of the workspace in bytes, if the kernel does not enforce it.
    max_bytes: Option<u64>,
}

impl Files {
    pub(super) fn new(root: OwnedFd, owner: Option<u32>, max_bytes: Option<u64>) -> Self {
        let root = Arc::new(root);
        Self {
            root,
            owner,
            max_bytes,
        }
    }

    /// Opens a regular file for reading; also returns its size in bytes.
    pub fn open(&self, path: &str) -> Result<(File, u64), FileError> {
        let target = self.parse_path(path)?;
        let file = open(&*self.root, &target.whole(), OFlags::RDONLY).map_err(target.failed())?;
        let stat = fstat(&file).map_err(target.failed())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::Kind(target.to_string()));
        }
        Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Starts writing a file of at most `max_bytes`; creates parent folders.
    pub fn create(&self, path: &str, max_bytes: u64) -> Result<Upload, FileError> {
        let target = self.parse_path(path)?;
        let name = target
            .name()
            .ok_or_else(|| FileError::Path(path.to_owned()))?;
        let folder = self.create_folders(target.parents())?;
        if let Ok(stat) = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        {
            return Err(FileError::Kind(target.to_string()));
        }
        let left = match self.max_bytes {
            Some(all) => all.saturating_sub(self.used()).min(max_bytes),
            None => max_bytes,
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hidden = c_string(&format!(".upload-{}-{number}", std::process::id()))
            .map_err(target.failed())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = open(&folder, &hidden, flags).map_err(target.failed())?;
        let upload = Upload {
            files: self.clone(),
            target,
            name,
            folder,
            hidden,
            file: file.into(),
            left,
            max_bytes,
            finished: false,
        };
        upload.files.set_owner(&upload.file)?;
        Ok(upload)
    }

    /// Writes a whole file.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<FileEntry, FileError> {
        let mut upload = self.create(path, bytes.len() as u64)?;
        upload.write(bytes)?;
        upload.finish()
    }

    /// Describes the entry at a path, without following a link.
    pub fn stat(&self, path: &str) -> Result<FileEntry, FileError> {
        let target = self.parse_path(path)?;
        let Some(name) = target.name() else {
            let stat = fstat(&*self.root).map_err(target.failed())?;
            return Ok(entry(String::new(), &stat, None));
        };
        let folder = self
            .open_folder(target.parents())
            .map_err(target.failed())?;
        self.stat_entry(&folder, &name, target.to_string())
            .map_err(target.failed())
    }

    /// Lists a folder up to `depth` levels, sorted by path; at most [`MAX_ENTRIES`].
    pub fn list(&self, path: &str, depth: usize) -> Result<Vec<FileEntry>, FileError> {
        let target = self.parse_path(path)?;
        let folder = self.open_folder(&target.0).map_err(target.failed())?;
        let mut found = Vec::new();
        self.walk(
            &folder,
            &target.to_string(),
            depth.clamp(1, MAX_DEPTH),
            &mut found,
        );
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Creates a folder and its parents.
    pub fn make_folder(&self, path: &str) -> Result<FileEntry, FileError> {
        let target = self.parse_path(path)?;
        if target.name().is_none() || self.open_folder(&target.0).is_ok() {
            return Err(FileError::Exists(target.to_string()));
        }
        let folder = self.create_folders(&target.0)?;
        let stat = fstat(&folder).map_err(target.failed())?;
        Ok(entry(target.to_string(), &stat, None))
    }

    /// Renames a file or folder; replaces an existing file.
    pub fn rename(&self, from: &str, to: &str) -> Result<FileEntry, FileError> {
        let (from, to) = (self.parse_path(from)?, self.parse_path(to)?);
        let (Some(old), Some(new)) = (from.name(), to.name()) else {
            return Err(FileError::Path("/workspace".to_owned()));
        };
        let source = self.open_folder(from.parents()).map_err(from.failed())?;
        let target = self.create_folders(to.parents())?;
        renameat(&source, &old, &target, &new).map_err(from.failed())?;
        self.stat_entry(&target, &new, to.to_string())
            .map_err(to.failed())
    }

    /// Removes a file, a link, or a folder with its contents.
    pub fn remove(&self, path: &str) -> Result<(), FileError> {
        let target = self.parse_path(path)?;
        let name = target
            .name()
            .ok_or_else(|| FileError::Path(path.to_owned()))?;
        let folder = self
            .open_folder(target.parents())
            .map_err(target.failed())?;
        let mut left = MAX_ENTRIES;
        remove(&folder, &name, 0, &mut left).map_err(target.failed())
    }

    fn parse_path(&self, path: &str) -> Result<WorkspacePath, FileError> {
        WorkspacePath::parse(path).ok_or_else(|| FileError::Path(path.chars().take(200).collect()))
    }

    fn open_folder(&self, parts: &[String]) -> Result<OwnedFd, Errno> {
        let path = match parts {
            [] => c".".to_owned(),
            parts => c_string(&parts.join("/"))?,
        };
        open(&*self.root, &path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a folder; creates missing parents.
    fn create_folders(&self, parts: &[String]) -> Result<OwnedFd, FileError> {
        let failed = WorkspacePath(parts.to_vec());
        let mut folder = self.open_folder(&[]).map_err(failed.failed())?;
        for part in parts {
            let name = c_string(part).map_err(failed.failed())?;
            let made = match mkdirat(&folder, &name, Mode::from_raw_mode(0o755)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(failed.failed()(error)),
            };
            folder = open(&folder, &name, OFlags::RDONLY | OFlags::DIRECTORY)
                .map_err(failed.failed())?;
            if made {
                self.set_owner(&folder)?;
            }
        }
        Ok(folder)
    }

    fn set_owner(&self, file: impl AsFd) -> Result<(), FileError> {
        let Some(owner) = self.owner else {
            return Ok(());
        };
        fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|error| FileError::Io("changing the owner of a file".to_owned(), error.into()))
    }

    fn stat_entry(
        &self,
        folder: &OwnedFd,
        name: &CString,
        path: String,
    ) -> Result<FileEntry, Errno> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let target = link.then(|| readlinkat(folder, name, Vec::new()).ok());
        let target = target
            .flatten()
            .map(|text| text.to_string_lossy().into_owned());
        Ok(entry(path, &stat, target))
    }

    fn walk(&self, folder: &OwnedFd, path: &str, depth: usize, found: &mut Vec<FileEntry>) {
        for name in names(folder) {
            let text = name.to_string_lossy();
            if found.len() >= MAX_ENTRIES || text.starts_with(".upload-") {
                continue;
            }
            let inner = match path {
                "" => text.into_owned(),
                path => format!("{path}/{text}"),
            };
            let Ok(entry) = self.stat_entry(folder, &name, inner.clone()) else {
                continue; // removed in the meantime
            };
            let deeper = entry.kind == EntryKind::Folder && depth > 1;
            found.push(entry);
            if deeper && let Ok(inside) = open(folder, &name, OFlags::RDONLY | OFlags::DIRECTORY) {
                self.walk(&inside, &inner, depth - 1, found);
            }
        }
    }

    /// Bytes used in the workspace.
    fn used(&self) -> u64 {
        let mut found = Vec::new();
        if let Ok(root) = self.open_folder(&[]) {
            self.walk(&root, "", MAX_DEPTH, &mut found);
        }
        found.iter().map(|entry| entry.size).sum()
    }
}

/// A file that is being written. Dropping it before [`Upload::finish`] discards it.
#[derive(Debug)]
pub struct Upload {
    files: Files,
    target: WorkspacePath,
    name: CString,
    folder: OwnedFd,
    hidden: CString,
    file: File,
    left: u64,
    max_bytes: u64,
    finished: bool,
}

impl Upload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| FileError::TooLarge(self.target.to_string(), self.max_bytes))?;
        self.file.write_all(bytes).map_err(|error| {
            let number = error
                .raw_os_error()
                .map_or(Errno::IO, Errno::from_raw_os_error);
            self.target.failed()(number)
        })
    }

    /// Moves the complete file to its name.
    pub fn finish(mut self) -> Result<FileEntry, FileError> {
        renameat(&self.folder, &self.hidden, &self.folder, &self.name)
            .map_err(self.target.failed())?;
        self.finished = true;
        self.files
            .stat_entry(&self.folder, &self.name, self.target.to_string())
            .map_err(self.target.failed())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.finished {
            let _ = unlinkat(&self.folder, &self.hidden, AtFlags::empty());
        }
    }
}

/// The components of a path relative to the workspace.
#[derive(Clone, Debug, PartialEq)]
struct WorkspacePath(Vec<String>);

impl WorkspacePath {
    fn parse(path: &str) -> Option<Self> {
        if path.len() > MAX_PATH || path.contains('\0') {
            return None;
        }
        let path = Path::new(path);
        let path = ROOTS
            .iter()
            .find_map(|root| path.strip_prefix(root).ok())
            .unwrap_or(path);
        let mut parts = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_str()?.to_owned()),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        (parts.len() <= MAX_DEPTH).then_some(Self(parts))
    }

    fn parents(&self) -> &[String] {
        self.0.split_last().map_or(&[], |(_, parents)| parents)
    }

    fn name(&self) -> Option<CString> {
        c_string(self.0.last()?).ok()
    }

    fn whole(&self) -> CString {
        match self.0[..] {
            [] => c".".to_owned(),
            _ => c_string(&self.to_string()).unwrap_or_default(),
        }
    }

    fn failed(&self) -> impl Fn(Errno) -> FileError + use<> {
        let path = self.to_string();
        move |error| match error {
            Errno::NOENT => FileError::Missing(path.clone()),
            Errno::EXIST | Errno::NOTEMPTY => FileError::Exists(path.clone()),
            Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO => {
                FileError::Kind(path.clone())
            }
            Errno::NOSPC | Errno::DQUOT => FileError::Full,
            Errno::INVAL | Errno::NAMETOOLONG => FileError::Path(path.clone()),
            error => FileError::Io(path.clone(), error.into()),
        }
    }
}

impl std::fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::INVAL)
}

/// Opens a path beneath a folder without following links and without blocking on pipes.
fn open(folder: impl AsFd, path: &CString, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::from_raw_mode(0o644),
        false => Mode::empty(),
    };
    // Opening a device can have side effects, so the type is checked first.
    if !flags.contains(OFlags::CREATE) && !flags.contains(OFlags::DIRECTORY) {
        let peek = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat = fstat(openat2(&folder, path, peek, Mode::empty(), resolve)?)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::NXIO),
        }
    }
    openat2(folder, path, flags, mode, resolve)
}

fn names(folder: &OwnedFd) -> Vec<CString> {
    let entries = Dir::read_from(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        .take(MAX_ENTRIES)
        .collect()
}

fn remove(folder: &OwnedFd, name: &CString, depth: usize, left: &mut usize) -> Result<(), Errno> {
    *left = left.checked_sub(1).ok_or(Errno::FBIG)?;
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) if depth < MAX_DEPTH => {}
        result => return result,
    }
    let inside = open(folder, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    for inner in names(&inside) {
        remove(&inside, &inner, depth + 1, left)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}

fn entry(path: String, stat: &Stat, target: Option<String>) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    };
    FileEntry {
        path,
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified: stat.st_mtime,
        target,
    }
}

/// A descriptor of a folder, for tests without a session.
#[cfg(test)]
fn descriptor(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn workspace() -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(descriptor(folder.path()), None, Some(1 << 20));
        (folder, files)
    }

    fn text(files: &Files, path: &str) -> String {
        let mut text = String::new();
        files
            .open(path)
            .unwrap()
            .0
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn files_are_written_and_read_by_all_path_forms() {
        let (_folder, files) = workspace();
        let entry = files.write("/workspace/a b/中文.csv", b"x,y\n").unwrap();
        assert_eq!((entry.path.as_str(), entry.size), ("a b/中文.csv", 4));
        for path in ["a b/中文.csv", "./a b/中文.csv", "/home/user/a b/中文.csv"] {
            assert_eq!(text(&files, path), "x,y\n");
        }
        files.write("a b/中文.csv", b"new").unwrap();
        assert_eq!(text(&files, "a b/中文.csv"), "new");
        let paths =
            |entries: Vec<FileEntry>| entries.into_iter().map(|e| e.path).collect::<Vec<_>>();
        assert_eq!(paths(files.list("", 1).unwrap()), ["a b"]);
        assert_eq!(paths(files.list("", 5).unwrap()), ["a b", "a b/中文.csv"]);
        assert_eq!(files.rename("a b", "c").unwrap().path, "c");
        assert_eq!(paths(files.list("c", 1).unwrap()), ["c/中文.csv"]);
        assert!(matches!(files.make_folder("c"), Err(FileError::Exists(_))));
        files.make_folder("d/e/f").unwrap();
        files.remove("c").unwrap();
        assert!(matches!(files.stat("c"), Err(FileError::Missing(_))));
    }

    #[test]
    fn nothing_outside_the_workspace_is_accessible() {
        let (folder, files) = workspace();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink("/etc/passwd", folder.path().join("link")).unwrap();
        for path in [
            "../x",
            "/etc/passwd",
            "a/../../x",
            "/workspace/../etc",
            "a\0b",
        ] {
            assert!(
                matches!(files.open(path), Err(FileError::Path(_))),
                "{path}"
            );
            assert!(files.write(path, b"x").is_err() && files.remove(path).is_err());
        }
        for path in ["out/secret", "link"] {
            assert!(
                matches!(files.open(path), Err(FileError::Kind(_))),
                "{path}"
            );
        }
        assert!(files.write("out/new", b"x").is_err());
        assert!(files.list("out", 3).is_err() && files.make_folder("out/x").is_err());
        assert!(files.rename("link", "out/moved").is_err());
        assert_eq!(files.stat("link").unwrap().target.unwrap(), "/etc/passwd");
        // Writing to a link replaces the link, not what it points to.
        files.write("link", b"mine").unwrap();
        assert_eq!(text(&files, "link"), "mine");
        files.remove("out").unwrap();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn pipes_are_not_opened_and_space_is_limited() {
        let (folder, files) = workspace();
        rustix::fs::mknodat(
            descriptor(folder.path()),
            "fifo",
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(matches!(files.open("fifo"), Err(FileError::Kind(_))));
        files.write("half", &[0; 600_000]).unwrap();
        let error = files.write("more", &[0; 600_000]).unwrap_err();
        assert!(matches!(error, FileError::TooLarge(..)), "{error}");
        let mut upload = files.create("cut", 10).unwrap();
        assert!(upload.write(&[0; 11]).is_err());
        drop(upload);
        let names: Vec<_> = files.list("", 1).unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    #[test]
    fn fuzz_paths() {
        let (folder, files) = workspace();
        bolero::check!()
            .with_type::<String>()
            .for_each(|path: &String| {
                if let Some(target) = WorkspacePath::parse(path) {
                    let plain = |part: &String| part != ".." && part != "." && !part.contains('/');
                    assert!(target.0.iter().all(plain), "{target}");
                    assert!(
                        folder
                            .path()
                            .join(target.to_string())
                            .starts_with(folder.path())
                    );
                }
                let _ = files.stat(path);
            });
    }
}
