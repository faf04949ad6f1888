//! A session's workspace as its host reaches it: reading, writing and listing files beneath it while
//! the session may be changing it. No link is followed, nothing but regular files is opened, and
//! what is written appears under its name only when it is complete.

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

/// Longest path, bytes.
const MAX_PATH: usize = 1024;
/// Most parts of a path, and deepest folder listed or removed.
const MAX_DEPTH: usize = 32;
/// Most entries listed, removed or measured at once.
const MAX_ENTRIES: usize = 20_000;

/// Where sessions see their workspace; absolute paths below these are accepted. The second is what
/// E2B's clients write.
const ROOTS: [&str; 2] = ["/workspace", "/home/user"];

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Why something could not be done with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path leads out of the workspace or is none.
    #[error("{0:?} is no path in the workspace, which sessions see as /workspace")]
    Path(String),
    /// Nothing is there.
    #[error("{0} does not exist")]
    Missing(String),
    /// Something is there already.
    #[error("{0} exists")]
    Exists(String),
    /// A link, a folder, a pipe or a device.
    #[error("{0} is not what was asked for: a link, or not a regular file or folder")]
    Kind(String),
    /// The workspace or the request is full.
    #[error("{0} does not fit: more than {1} bytes")]
    TooLarge(String, u64),
    /// No space or no room for further names.
    #[error("the workspace is full")]
    Full,
    /// The system refused.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

/// What a directory entry is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Entry {
    /// Relative to the workspace; empty for itself.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
    /// Where a link points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Reads and writes files of one workspace.
#[derive(Clone, Debug)]
pub struct Files {
    root: Arc<OwnedFd>,
    /// Who owns what is made.
    owner: Option<u32>,
    /// Bytes that the workspace may hold, where the kernel does not bound it.
    most: Option<u64>,
}

impl Files {
    pub(super) fn new(root: OwnedFd, owner: Option<u32>, most: Option<u64>) -> Self {
        let root = Arc::new(root);
        Self { root, owner, most }
    }

    /// Open a regular file for reading, and its size.
    pub fn open(&self, path: &str) -> Result<(File, u64), FileError> {
        let place = self.place(path)?;
        let file = open(&*self.root, &place.whole(), OFlags::RDONLY).map_err(place.failed())?;
        let stat = fstat(&file).map_err(place.failed())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::Kind(place.to_string()));
        }
        Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Begin to write a file of at most so many bytes; folders above it are made.
    pub fn create(&self, path: &str, most: u64) -> Result<Upload, FileError> {
        let place = self.place(path)?;
        let name = place
            .name()
            .ok_or_else(|| FileError::Path(path.to_owned()))?;
        let folder = self.folders(place.parents())?;
        if let Ok(stat) = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        {
            return Err(FileError::Kind(place.to_string()));
        }
        let left = match self.most {
            Some(all) => all.saturating_sub(self.used()).min(most),
            None => most,
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hidden = c_string(&format!(".upload-{}-{number}", std::process::id()))
            .map_err(place.failed())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = open(&folder, &hidden, flags).map_err(place.failed())?;
        let upload = Upload {
            files: self.clone(),
            place,
            name,
            folder,
            hidden,
            file: file.into(),
            left,
            most,
            finished: false,
        };
        upload.files.own(&upload.file)?;
        Ok(upload)
    }

    /// Write a whole file.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<Entry, FileError> {
        let mut upload = self.create(path, bytes.len() as u64)?;
        upload.write(bytes)?;
        upload.finish()
    }

    /// What lies at a path; a link is told as such.
    pub fn stat(&self, path: &str) -> Result<Entry, FileError> {
        let place = self.place(path)?;
        let Some(name) = place.name() else {
            let stat = fstat(&*self.root).map_err(place.failed())?;
            return Ok(entry(String::new(), &stat, None));
        };
        let folder = self.folder(place.parents()).map_err(place.failed())?;
        self.look(&folder, &name, place.to_string())
            .map_err(place.failed())
    }

    /// What lies in a folder, so many folders deep, in order; at most some thousands.
    pub fn list(&self, path: &str, depth: usize) -> Result<Vec<Entry>, FileError> {
        let place = self.place(path)?;
        let folder = self.folder(&place.0).map_err(place.failed())?;
        let mut found = Vec::new();
        self.walk(
            &folder,
            &place.to_string(),
            depth.clamp(1, MAX_DEPTH),
            &mut found,
        );
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Make a folder and those above it.
    pub fn make_folder(&self, path: &str) -> Result<Entry, FileError> {
        let place = self.place(path)?;
        if place.name().is_none() || self.folder(&place.0).is_ok() {
            return Err(FileError::Exists(place.to_string()));
        }
        let folder = self.folders(&place.0)?;
        let stat = fstat(&folder).map_err(place.failed())?;
        Ok(entry(place.to_string(), &stat, None))
    }

    /// Give a file or folder another name; what had that name before is replaced where it is a file.
    pub fn rename(&self, from: &str, to: &str) -> Result<Entry, FileError> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let (Some(old), Some(new)) = (from.name(), to.name()) else {
            return Err(FileError::Path("/workspace".to_owned()));
        };
        let source = self.folder(from.parents()).map_err(from.failed())?;
        let target = self.folders(to.parents())?;
        renameat(&source, &old, &target, &new).map_err(from.failed())?;
        self.look(&target, &new, to.to_string())
            .map_err(to.failed())
    }

    /// Remove a file, a link, or a folder with all in it.
    pub fn remove(&self, path: &str) -> Result<(), FileError> {
        let place = self.place(path)?;
        let name = place
            .name()
            .ok_or_else(|| FileError::Path(path.to_owned()))?;
        let folder = self.folder(place.parents()).map_err(place.failed())?;
        let mut left = MAX_ENTRIES;
        remove(&folder, &name, 0, &mut left).map_err(place.failed())
    }

    fn place(&self, path: &str) -> Result<Place, FileError> {
        Place::parse(path).ok_or_else(|| FileError::Path(path.chars().take(200).collect()))
    }

    fn folder(&self, parts: &[String]) -> Result<OwnedFd, Errno> {
        let path = match parts {
            [] => c".".to_owned(),
            parts => c_string(&parts.join("/"))?,
        };
        open(&*self.root, &path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Open a folder, making what is missing on the way.
    fn folders(&self, parts: &[String]) -> Result<OwnedFd, FileError> {
        let failed = Place(parts.to_vec());
        let mut folder = self.folder(&[]).map_err(failed.failed())?;
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
                self.own(&folder)?;
            }
        }
        Ok(folder)
    }

    fn own(&self, file: impl AsFd) -> Result<(), FileError> {
        let Some(owner) = self.owner else {
            return Ok(());
        };
        fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|error| FileError::Io("giving a file to the session".to_owned(), error.into()))
    }

    fn look(&self, folder: &OwnedFd, name: &CString, path: String) -> Result<Entry, Errno> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let target = link.then(|| readlinkat(folder, name, Vec::new()).ok());
        let target = target
            .flatten()
            .map(|text| text.to_string_lossy().into_owned());
        Ok(entry(path, &stat, target))
    }

    fn walk(&self, folder: &OwnedFd, path: &str, depth: usize, found: &mut Vec<Entry>) {
        for name in names(folder) {
            let text = name.to_string_lossy();
            if found.len() >= MAX_ENTRIES || text.starts_with(".upload-") {
                continue;
            }
            let inner = match path {
                "" => text.into_owned(),
                path => format!("{path}/{text}"),
            };
            let Ok(entry) = self.look(folder, &name, inner.clone()) else {
                continue; // gone in the meantime
            };
            let deeper = entry.kind == EntryKind::Folder && depth > 1;
            found.push(entry);
            if deeper && let Ok(inside) = open(folder, &name, OFlags::RDONLY | OFlags::DIRECTORY) {
                self.walk(&inside, &inner, depth - 1, found);
            }
        }
    }

    /// Bytes in the workspace.
    fn used(&self) -> u64 {
        let mut found = Vec::new();
        if let Ok(root) = self.folder(&[]) {
            self.walk(&root, "", MAX_DEPTH, &mut found);
        }
        found.iter().map(|entry| entry.size).sum()
    }
}

/// A file that is being written. Dropped before [`Upload::finish`], it leaves nothing.
#[derive(Debug)]
pub struct Upload {
    files: Files,
    place: Place,
    name: CString,
    folder: OwnedFd,
    hidden: CString,
    file: File,
    left: u64,
    most: u64,
    finished: bool,
}

impl Upload {
    /// Append to it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| FileError::TooLarge(self.place.to_string(), self.most))?;
        self.file.write_all(bytes).map_err(|error| {
            let number = error
                .raw_os_error()
                .map_or(Errno::IO, Errno::from_raw_os_error);
            self.place.failed()(number)
        })
    }

    /// Give it its name.
    pub fn finish(mut self) -> Result<Entry, FileError> {
        renameat(&self.folder, &self.hidden, &self.folder, &self.name)
            .map_err(self.place.failed())?;
        self.finished = true;
        self.files
            .look(&self.folder, &self.name, self.place.to_string())
            .map_err(self.place.failed())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.finished {
            let _ = unlinkat(&self.folder, &self.hidden, AtFlags::empty());
        }
    }
}

/// The parts of a path beneath the workspace.
#[derive(Clone, Debug, PartialEq)]
struct Place(Vec<String>);

impl Place {
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

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::INVAL)
}

/// Open beneath a folder, through no link, without waiting for anybody.
fn open(folder: impl AsFd, path: &CString, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::from_raw_mode(0o644),
        false => Mode::empty(),
    };
    // Opening a device may do something: without its driver there is nothing to read anyway.
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

fn entry(path: String, stat: &Stat, target: Option<String>) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    };
    Entry {
        path,
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified: stat.st_mtime,
        target,
    }
}

/// A descriptor of a folder, for tests that make one without a session.
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
    fn files_go_in_and_come_out_by_any_of_their_names() {
        let (_folder, files) = workspace();
        let entry = files.write("/workspace/a b/中文.csv", b"x,y\n").unwrap();
        assert_eq!((entry.path.as_str(), entry.size), ("a b/中文.csv", 4));
        for path in ["a b/中文.csv", "./a b/中文.csv", "/home/user/a b/中文.csv"] {
            assert_eq!(text(&files, path), "x,y\n");
        }
        files.write("a b/中文.csv", b"new").unwrap();
        assert_eq!(text(&files, "a b/中文.csv"), "new");
        let paths = |entries: Vec<Entry>| entries.into_iter().map(|e| e.path).collect::<Vec<_>>();
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
    fn nothing_outside_is_reached() {
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
    fn pipes_are_not_opened_and_space_is_bounded() {
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
                if let Some(place) = Place::parse(path) {
                    let plain = |part: &String| part != ".." && part != "." && !part.contains('/');
                    assert!(place.0.iter().all(plain), "{place}");
                    assert!(
                        folder
                            .path()
                            .join(place.to_string())
                            .starts_with(folder.path())
                    );
                }
                let _ = files.stat(path);
            });
    }
}
