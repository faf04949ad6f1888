//! Copies file contents from one workspace to another in which the same cells have run.
//!
//! Sessions control both workspaces. So the comparison follows no links and has limits, and only the
//! contents of existing regular files are written.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, readlinkat, statat};

use super::collect::{names, open};

/// Maximum depth of folders.
const MAX_DEPTH: usize = 64;
/// Maximum number of directory entries.
const MAX_ENTRIES: usize = 50_000;

/// Gives the files in `copy` the contents of those in `original`.
///
/// # Errors
/// A description of any other difference: names, file types, link targets, permissions.
pub(super) fn sync_contents(original: BorrowedFd<'_>, copy: BorrowedFd<'_>) -> Result<(), String> {
    let mut entries = 0;
    let folder = |root| open(root, c".", OFlags::DIRECTORY).map_err(|error| error.to_string());
    folders(&folder(original)?, &folder(copy)?, "", 0, &mut entries)
}

fn folders(
    original: &OwnedFd,
    copy: &OwnedFd,
    path: &str,
    depth: usize,
    entries: &mut usize,
) -> Result<(), String> {
    let inside = |folder| names(folder, MAX_ENTRIES).map_err(|error| format!("{path}: {error}"));
    let (ours, theirs) = (inside(original)?, inside(copy)?);
    *entries += ours.list.len();
    if depth > MAX_DEPTH || ours.more || *entries > MAX_ENTRIES {
        return Err("the workspace is too large".to_owned());
    }
    if ours.list != theirs.list {
        return Err(format!("./{path} contains other files than before"));
    }
    for name in &ours.list {
        let path = format!("{path}{}", name.to_string_lossy());
        let kind = entry(original, copy, name).map_err(|error| format!("./{path}: {error}"))?;
        if kind == FileType::Directory {
            let inner = |folder: &OwnedFd| open(folder.as_fd(), name, OFlags::DIRECTORY);
            let (Ok(ours), Ok(theirs)) = (inner(original), inner(copy)) else {
                return Err(format!("./{path} cannot be opened"));
            };
            folders(&ours, &theirs, &format!("{path}/"), depth + 1, entries)?;
        }
    }
    Ok(())
}

/// Compares one entry and copies the contents of a regular file.
fn entry(original: &OwnedFd, copy: &OwnedFd, name: &CString) -> io::Result<FileType> {
    let look = |folder: &OwnedFd| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let (ours, theirs) = (look(original)?, look(copy)?);
    if ours.st_mode != theirs.st_mode {
        return Err(io::Error::other("another file type or other permissions"));
    }
    let kind = FileType::from_raw_mode(ours.st_mode);
    match kind {
        FileType::RegularFile => file(original, copy, name)?,
        FileType::Symlink => {
            let target = |folder: &OwnedFd| readlinkat(folder, name, Vec::new());
            if target(original)? != target(copy)? {
                return Err(io::Error::other("another link target"));
            }
        }
        _ => {}
    }
    Ok(kind)
}

fn file(original: &OwnedFd, copy: &OwnedFd, name: &CString) -> io::Result<()> {
    let mut from = regular(original, name, OFlags::RDONLY)?;
    let mut to = regular(copy, name, OFlags::RDONLY)?;
    if equal(&mut from, &mut to)? {
        return Ok(());
    }
    let mut to = regular(copy, name, OFlags::RDWR)?;
    from.seek(SeekFrom::Start(0))?;
    to.set_len(0)?;
    let most = from.metadata()?.len(); // it may grow while it is read
    io::copy(&mut from.take(most), &mut to)?;
    Ok(())
}

fn regular(folder: &OwnedFd, name: &CString, flags: OFlags) -> io::Result<File> {
    let file = File::from(open(folder.as_fd(), name, flags)?);
    let stat: Stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        return Err(io::Error::other(
            "not a regular file with exactly one hard link",
        ));
    }
    Ok(file)
}

fn equal(one: &mut File, other: &mut File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = one.read(&mut a)?;
        if count == 0 {
            return Ok(true);
        }
        match other.read_exact(&mut b[..count]) {
            Ok(()) if a[..count] == b[..count] => {}
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn pair(fill: impl Fn(&std::path::Path, bool)) -> [(tempfile::TempDir, OwnedFd); 2] {
        [true, false].map(|first| {
            let folder = tempfile::tempdir().unwrap();
            fill(folder.path(), first);
            let fd = File::open(folder.path()).unwrap().into();
            (folder, fd)
        })
    }

    #[test]
    fn contents_are_copied() {
        let [original, copy] = pair(|folder, first| {
            fs::create_dir_all(folder.join("output/深")).unwrap();
            let text = if first { "at 12:00" } else { "at 12:00:01" };
            fs::write(folder.join("output/深/a"), text).unwrap();
            symlink("a", folder.join("output/link")).unwrap();
        });
        sync_contents(original.1.as_fd(), copy.1.as_fd()).unwrap();
        let text = fs::read_to_string(copy.0.path().join("output/深/a")).unwrap();
        assert_eq!(text, "at 12:00");
    }

    #[test]
    fn other_differences_are_errors() {
        let told = |fill: &dyn Fn(&std::path::Path, bool)| {
            let [original, copy] = pair(fill);
            sync_contents(original.1.as_fd(), copy.1.as_fd()).unwrap_err()
        };
        let missing = told(&|folder, first| {
            if first {
                fs::write(folder.join("a"), "").unwrap();
            }
        });
        assert_eq!(missing, "./ contains other files than before");
        let link = told(&|folder, first| {
            let target = if first { "/etc/hosts" } else { "/etc/passwd" };
            symlink(target, folder.join("a")).unwrap();
        });
        assert_eq!(link, "./a: another link target");
        let kind = told(&|folder, first| {
            if first {
                fs::write(folder.join("a"), "x").unwrap();
            } else {
                symlink("/etc/passwd", folder.join("a")).unwrap();
            }
        });
        assert!(kind.starts_with("./a: another file type"), "{kind}");
        let hard = told(&|folder, first| {
            fs::write(folder.join("a"), if first { "x" } else { "y" }).unwrap();
            fs::hard_link(folder.join("a"), folder.join("b")).unwrap();
        });
        assert!(hard.contains("one hard link"), "{hard}");
    }
}
