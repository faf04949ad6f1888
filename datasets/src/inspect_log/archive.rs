//! The members of an `.eval` log, within limits on their size and on that of all of them.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use pybench_files::open_regular;
use serde::de::DeserializeOwned;
use zip::{CompressionMethod, ZipArchive};

use super::python_json::PythonJson;
use crate::samples::ReadError;

/// Maximum unpacked size of a member, in bytes.
const MAX_MEMBER: u64 = 1 << 30;
/// Maximum number of members.
const MAX_MEMBERS: usize = 4_000_000;
/// Limit on the unpacked size of all members: so many bytes, and so many for each byte of the log.
const FREE: u64 = 256 << 20;
const MAX_RATIO: u64 = 1000;

/// An open `.eval` log.
pub(super) struct LogArchive {
    archive: ZipArchive<BufReader<File>>,
    path: PathBuf,
    /// Bytes that may still be unpacked.
    left: u64,
}

impl LogArchive {
    /// Opens a log and reads the list of its members.
    ///
    /// # Errors
    /// The file cannot be read or is no zip.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let size = std::fs::metadata(path).map_or(0, |found| found.len());
        Self::within(path, FREE.saturating_add(size.saturating_mul(MAX_RATIO)))
    }

    /// As [`LogArchive::open`], where at most so many bytes are unpacked.
    pub(super) fn within(path: &Path, left: u64) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let file = open_regular(path).map_err(io)?;
        let archive = ZipArchive::new(BufReader::new(file));
        let archive = archive.map_err(|error| ReadError::Invalid {
            path: path.to_owned(),
            reason: format!(
                "not a readable zip ({error}); if its evaluation was killed, `inspect log recover` repairs it"
            ),
        })?;
        let log = Self {
            archive,
            path: path.to_owned(),
            left,
        };
        match log.archive.len() > MAX_MEMBERS {
            true => Err(log.invalid(format!("it has more than {MAX_MEMBERS} members"))),
            false => Ok(log),
        }
    }

    /// Names of the members, in the order of the log.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.archive.file_names_raw();
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).ok();
        names.filter_map(text).collect()
    }

    /// A member as JSON; `None` if the log does not have it.
    ///
    /// # Errors
    /// It cannot be unpacked or parsed, or exceeds the limits.
    pub(super) fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ReadError> {
        let Some(index) = self.archive.index_for_name_raw(name.as_bytes()) else {
            return Ok(None);
        };
        let mut limit = MAX_MEMBER.min(self.left);
        let before = limit;
        let parsed = parse(&mut self.archive, index, &mut limit);
        self.left -= before - limit;
        match parsed {
            Ok(value) => Ok(Some(value)),
            Err(reason) => Err(self.invalid(format!("member {name}: {reason}"))),
        }
    }

    pub(super) fn invalid(&self, reason: String) -> ReadError {
        ReadError::Invalid {
            path: self.path.clone(),
            reason,
        }
    }
}

/// Unpacks and parses a member; `limit` is the number of bytes that may be unpacked, and becomes what is left of it.
fn parse<T: DeserializeOwned>(
    archive: &mut ZipArchive<BufReader<File>>,
    index: usize,
    limit: &mut u64,
) -> Result<T, String> {
    let member = archive
        .by_index_raw(index)
        .map_err(|error| error.to_string())?;
    if member.encrypted() {
        return Err("it is encrypted".to_owned());
    }
    // The crate `zip` would need another feature for zstd, in which inspect_ai writes.
    let method = member.compression();
    let unpacked: Box<dyn Read + '_> = if method == CompressionMethod::Stored {
        Box::new(member)
    } else if method == CompressionMethod::Deflated {
        Box::new(DeflateDecoder::new(member))
    } else if method == CompressionMethod::ZSTD {
        Box::new(zstd::stream::read::Decoder::new(member).map_err(|error| error.to_string())?)
    } else {
        return Err(format!(
            "it is packed with {method:?}; expected zstd or deflate"
        ));
    };
    let limited = Limited {
        inner: unpacked,
        left: limit,
    };
    let json = BufReader::new(PythonJson::new(limited));
    serde_json::from_reader(json).map_err(|error| error.to_string())
}

/// Reads at most `left` bytes; more are an error.
struct Limited<'a, R> {
    inner: R,
    left: &'a mut u64,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if *self.left == 0 {
            let more = self.inner.read(&mut [0])?;
            return match more {
                0 => Ok(0),
                _ => Err(io::Error::other(
                    "it unpacks to more bytes than a member, or all of them, may have",
                )),
            };
        }
        let most = usize::try_from(*self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let read = self.inner.read(&mut buffer[..most])?;
        *self.left -= read as u64;
        Ok(read)
    }
}
