//! Opens files whose kind somebody else chose.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. Links are followed; devices, pipes and folders are refused without waiting for
/// them.
///
/// # Errors
/// The file is missing, cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let checked = |regular: bool| match regular {
        true => Ok(()),
        false => Err(io::Error::other("not a regular file")),
    };
    // Opening a device can have side effects, so the kind is checked before, and again after it.
    checked(fs::metadata(path)?.is_file())?;
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    checked(file.metadata()?.is_file())?;
    Ok(file)
}

/// Reads a regular file of at most `max_bytes`.
///
/// # Errors
/// As [`open_regular`], or the file is larger.
pub fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(path)?;
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(io::Error::other(format!("more than {max_bytes} bytes"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode};
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_regular(&at(name), 4).unwrap(), b"text");
            let error = read_regular(&at(name), 3).unwrap_err();
            assert_eq!(error.to_string(), "more than 3 bytes");
        }
        for name in ["zero", "fifo", "."] {
            let error = read_regular(&at(name), 4).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{name}");
        }
        assert_eq!(
            read_regular(&at("none"), 4).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
