//! Collects `./output` from the host: regular files only, without following links, limited in depth, number
//! and size. The contents are untrusted.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::{Collected, CollectedFile, Limits};

/// Maximum depth of folders below `./output`.
const MAX_DEPTH: usize = 16;
/// Maximum number of directory entries read.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of skipped files reported.
const MAX_REFUSED: usize = 200;

/// Collects the folder `output` of a workspace.
pub(super) fn collect(workspace: BorrowedFd<'_>, limits: &Limits) -> Collected {
    let mut collector = Collector {
        limits,
        entries: 0,
        bytes: 0,
        found: Collected::default(),
    };
    match open(workspace, c"output", OFlags::DIRECTORY) {
        Ok(folder) => collector.folder(&folder, "output", 0),
        Err(error) => collector.refuse("output", &cannot_open(error)),
    }
    collector.found.files.sort_by(|a, b| a.path.cmp(&b.path));
    collector.found.refused.sort();
    collector.found
}

struct Collector<'a> {
    limits: &'a Limits,
    entries: usize,
    bytes: u64,
    found: Collected,
}

impl Collector<'_> {
    fn folder(&mut self, folder: &OwnedFd, path: &str, depth: usize) {
        let names = match names(folder, MAX_ENTRIES.saturating_sub(self.entries)) {
            Ok(names) => names,
            Err(error) => return self.refuse(path, &error.to_string()),
        };
        if names.more {
            self.refuse(
                path,
                &format!("more than {MAX_ENTRIES} entries; the rest was left"),
            );
        }
        self.entries += names.list.len();
        for name in names.list {
            let Ok(text) = name.to_str() else {
                self.refuse(
                    &format!("{path}/{}", name.to_string_lossy()),
                    "the name is not UTF-8",
                );
                continue;
            };
            self.entry(folder, &name, &format!("{path}/{text}"), depth);
        }
    }

    fn entry(&mut self, folder: &OwnedFd, name: &CString, path: &str, depth: usize) {
        // Check the type before opening, because opening a device can have side effects. Check again
        // after opening, because the entry may have been replaced.
        let kind = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(error) => return self.refuse(path, &error.to_string()),
        };
        match kind {
            FileType::Directory if depth >= MAX_DEPTH => {
                self.refuse(path, &format!("deeper than {MAX_DEPTH} folders"));
            }
            FileType::Directory => match open(folder.as_fd(), name, OFlags::DIRECTORY) {
                Ok(inner) => self.folder(&inner, path, depth + 1),
                Err(error) => self.refuse(path, &cannot_open(error)),
            },
            FileType::RegularFile => match self.file(folder, name) {
                Ok(bytes) => self.found.files.push(CollectedFile {
                    path: path.to_owned(),
                    bytes,
                }),
                Err(reason) => self.refuse(path, &reason),
            },
            FileType::Symlink => self.refuse(path, "a symbolic link"),
            FileType::Fifo => self.refuse(path, "a named pipe"),
            FileType::Socket => self.refuse(path, "a socket"),
            _ => self.refuse(path, "a device"),
        }
    }

    fn file(&mut self, folder: &OwnedFd, name: &CString) -> Result<Vec<u8>, String> {
        if self.found.files.len() >= self.limits.output_files {
            return Err(format!("more than {} files", self.limits.output_files));
        }
        let file = File::from(open(folder.as_fd(), name, OFlags::empty()).map_err(cannot_open)?);
        let stat = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("not a regular file".to_owned());
        }
        if stat.st_nlink > 1 {
            return Err("a hard link".to_owned());
        }
        let max_bytes = (self.limits.output_mib << 20).saturating_sub(self.bytes);
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let too_large = || format!("more than {} MiB in all", self.limits.output_mib);
        if size > max_bytes {
            return Err(too_large());
        }
        let mut bytes = Vec::new(); // grows with the bytes read, not with the size that a sparse file has
        // The file may grow while it is read.
        let read = file.take(max_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
        if bytes.len() as u64 > max_bytes {
            return Err(too_large());
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }

    fn refuse(&mut self, path: &str, reason: &str) {
        if self.found.refused.len() < MAX_REFUSED {
            self.found.refused.push(format!("{path}: {reason}"));
        }
    }
}

fn cannot_open(error: Errno) -> String {
    match error {
        Errno::LOOP | Errno::XDEV => "a symbolic link".to_owned(),
        Errno::NOENT => "does not exist".to_owned(),
        Errno::NOTDIR => "a symbolic link or not a folder".to_owned(),
        error => error.to_string(),
    }
}

/// Opens a path beneath a folder without following links and without blocking on pipes; for reading unless
/// `flags` say otherwise.
pub(super) fn open(
    folder: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, name, flags, Mode::empty(), resolve)
}

pub(super) struct Names {
    pub(super) list: Vec<CString>,
    /// Whether there are more.
    pub(super) more: bool,
}

/// The sorted names in a folder, at most `max_count`.
pub(super) fn names(folder: &OwnedFd, max_count: usize) -> Result<Names, Errno> {
    let mut list = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        more = list.len() >= max_count;
        if more {
            break;
        }
        list.push(name);
    }
    list.sort();
    Ok(Names { list, more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn workspace(fill: impl FnOnce(&std::path::Path)) -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("output")).unwrap();
        fill(&folder.path().join("output"));
        let fd = File::open(folder.path()).unwrap().into();
        (folder, fd)
    }

    fn paths(found: &Collected) -> Vec<&str> {
        found.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn regular_files_are_collected_in_order() {
        let (_folder, fd) = workspace(|output| {
            fs::create_dir_all(output.join("图 表/a")).unwrap();
            fs::write(output.join("图 表/a/结果 1.csv"), "x").unwrap();
            fs::write(output.join("b.txt"), "y").unwrap();
        });
        let found = collect(fd.as_fd(), &Limits::default());
        assert_eq!(paths(&found), ["output/b.txt", "output/图 表/a/结果 1.csv"]);
        assert!(found.refused.is_empty());
    }

    #[test]
    fn links_and_pipes_are_refused() {
        let (_folder, fd) = workspace(|output| {
            symlink("/etc/passwd", output.join("link")).unwrap();
            symlink("/etc", output.join("folder")).unwrap();
            symlink("../../..", output.join("up")).unwrap();
            fs::write(output.join("one"), "x").unwrap();
            fs::hard_link(output.join("one"), output.join("two")).unwrap();
            let fifo = CString::new(output.join("fifo").to_str().unwrap()).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
            drop(std::os::unix::net::UnixListener::bind(output.join("socket")).unwrap());
        });
        let found = collect(fd.as_fd(), &Limits::default());
        assert_eq!(paths(&found), Vec::<&str>::new());
        let expected = [
            "output/fifo: a named pipe",
            "output/folder: a symbolic link",
            "output/link: a symbolic link",
            "output/one: a hard link",
            "output/socket: a socket",
            "output/two: a hard link",
            "output/up: a symbolic link",
        ];
        assert_eq!(found.refused, expected);
    }

    #[test]
    fn output_itself_may_be_a_link() {
        let (folder, fd) = workspace(|output| fs::remove_dir(output).unwrap());
        symlink("/etc", folder.path().join("output")).unwrap();
        let found = collect(fd.as_fd(), &Limits::default());
        assert_eq!(found.refused, ["output: a symbolic link or not a folder"]);
    }

    #[test]
    fn number_size_and_depth_are_limited() {
        let limits = Limits {
            output_files: 2,
            output_mib: 1,
            ..Limits::default()
        };
        let (_folder, fd) = workspace(|output| {
            let sparse = File::create(output.join("a-sparse")).unwrap();
            sparse.set_len(1 << 40).unwrap();
            for name in ["b", "c", "d"] {
                fs::write(output.join(name), name).unwrap();
            }
            fs::create_dir_all(output.join("x/".repeat(40))).unwrap();
        });
        let found = collect(fd.as_fd(), &limits);
        assert_eq!(paths(&found), ["output/b", "output/c"]);
        assert_eq!(found.refused[0], "output/a-sparse: more than 1 MiB in all");
        assert_eq!(found.refused[1], "output/d: more than 2 files");
        assert!(found.refused[2].ends_with("deeper than 16 folders"));
    }
}
