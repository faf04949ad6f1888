//! Archives, opened within bounds: total size, ratio, depth and count of members. Nothing is ever
//! written under a name from inside, so no path can escape; what has such a name is refused.

use std::io::{self, Cursor, Read, Seek};

use super::sniff::{ArchiveKind, HEAD, archive_head};

/// Bounds for one outermost archive and everything nested in it.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Largest member, bytes.
    pub member: u64,
    /// All members read, bytes.
    pub total: u64,
    /// Unpacked size by packed size, once more than a MiB has come out.
    pub ratio: u64,
    /// Archives inside archives.
    pub depth: u32,
    /// Members looked at.
    pub count: u64,
}

impl Bounds {
    /// Bounds for members of at most `member` bytes and `total` bytes together.
    pub fn new(member: u64, total: u64) -> Self {
        Self {
            member,
            total,
            ratio: 200,
            depth: 3,
            count: 50_000,
        }
    }
}

/// Below this much output a ratio says nothing.
const RATIO_FREE: u64 = 1 << 20;

/// What an archive is opened for.
pub trait Visitor {
    /// Whether a member is wanted: others are not even unpacked (in a tar they are skipped).
    /// Archives inside are asked for too.
    fn wants(&self, path: &str) -> bool;
    /// A member's bytes.
    fn file(&mut self, path: &str, bytes: Vec<u8>);
    /// A member, or the rest of the archive, was refused.
    fn refused(&mut self, path: &str, reason: String);
}

/// Open an archive and show its members to `visitor`. `path` is the archive's own name, which
/// refusals of the whole name; members are shown as `outer.zip!inner/path` below the first level.
pub fn open<R: Read + Seek>(
    kind: ArchiveKind,
    path: &str,
    reader: R,
    packed: u64,
    bounds: Bounds,
    visitor: &mut dyn Visitor,
) {
    let mut walk = Walk {
        bounds,
        total: 0,
        count: 0,
        visitor,
    };
    if let Err(reason) = walk.archive(kind, reader, packed, "", path, 1) {
        walk.visitor.refused(path, reason);
    }
}

struct Walk<'a> {
    bounds: Bounds,
    total: u64,
    count: u64,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    fn archive<R: Read + Seek>(
        &mut self,
        kind: ArchiveKind,
        reader: R,
        packed: u64,
        prefix: &str,
        name: &str,
        depth: u32,
    ) -> Result<(), String> {
        if depth > self.bounds.depth {
            return Err(format!("archives nested deeper than {}", self.bounds.depth));
        }
        match kind {
            ArchiveKind::Zip => self.zip(reader, prefix, depth),
            ArchiveKind::Tar => self.tar(reader, prefix, depth),
            ArchiveKind::Gz => self.gz(reader, packed, prefix, name, depth),
        }
    }

    fn zip<R: Read + Seek>(&mut self, reader: R, prefix: &str, depth: u32) -> Result<(), String> {
        let mut archive =
            zip::ZipArchive::new(reader).map_err(|e| format!("not a readable zip: {e}"))?;
        for index in 0..archive.len() {
            self.counted()?;
            let member = match archive.by_index(index) {
                Ok(member) => member,
                Err(error) => {
                    let path = format!("{prefix}member {index}");
                    self.visitor
                        .refused(&path, format!("cannot be read: {error}"));
                    continue;
                }
            };
            let raw = String::from_utf8_lossy(member.name_raw()).into_owned();
            let path = format!("{prefix}{raw}");
            let mode = member.unix_mode().map_or(0, |mode| mode & 0o170_000);
            if member.is_dir() {
                continue;
            }
            if let Err(reason) = check_path(&raw) {
                self.visitor.refused(&path, reason);
            } else if !matches!(mode, 0 | 0o100_000) {
                self.visitor
                    .refused(&path, "a link or a device, not a file".into());
            } else if member.encrypted() {
                self.visitor.refused(&path, "encrypted".into());
            } else if self.visitor.wants(&path) {
                let packed = member.compressed_size();
                self.member(member, packed, &path, depth)?;
            }
        }
        Ok(())
    }

    /// Raw entries, because the crate would read long names of any length into memory.
    fn tar<R: Read>(&mut self, reader: R, prefix: &str, depth: u32) -> Result<(), String> {
        let mut archive = tar::Archive::new(reader);
        let unreadable = |e: io::Error| format!("not a readable tar: {e}");
        let mut long_name = None;
        for entry in archive.entries().map_err(unreadable)?.raw(true) {
            self.counted()?;
            let mut entry = entry.map_err(unreadable)?;
            let kind = entry.header().entry_type();
            if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
                long_name = read_long_name(&mut entry, kind)?.or(long_name);
                continue;
            }
            if kind.is_gnu_longlink() || kind.is_pax_global_extensions() {
                continue;
            }
            let short = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let raw = long_name.take().unwrap_or(short);
            let path = format!("{prefix}{raw}");
            if kind.is_dir() {
                continue;
            }
            if let Err(reason) = check_path(&raw) {
                self.visitor.refused(&path, reason);
            } else if !kind.is_file() {
                self.visitor
                    .refused(&path, "a link or a device, not a file".into());
            } else if self.visitor.wants(&path) {
                let packed = entry.size();
                self.member(entry, packed, &path, depth)?;
            }
        }
        Ok(())
    }

    fn gz<R: Read + Seek>(
        &mut self,
        reader: R,
        packed: u64,
        prefix: &str,
        name: &str,
        depth: u32,
    ) -> Result<(), String> {
        let mut plain = flate2::read::MultiGzDecoder::new(io::BufReader::new(reader));
        let mut head = Vec::new();
        (&mut plain)
            .take(HEAD as u64)
            .read_to_end(&mut head)
            .map_err(|e| format!("not a readable gzip stream: {e}"))?;
        let tar = archive_head(&head) == Some(ArchiveKind::Tar);
        let whole = Cursor::new(head).chain(plain);
        let limit = self.bounds.total - self.total.min(self.bounds.total);
        let whole = Limited::new(whole, packed, self.bounds.ratio, limit);
        if tar {
            return self.tar(whole, prefix, depth);
        }
        self.counted()?;
        let inner = name.rsplit('/').next().unwrap_or(name);
        let inner = inner.strip_suffix(".gz").unwrap_or(inner).to_owned();
        let path = format!("{prefix}{inner}");
        if self.visitor.wants(&path) {
            self.member(whole, packed, &path, depth)
        } else {
            Ok(())
        }
    }

    /// Read one member and show it, or open it when it is an archive itself.
    fn member(
        &mut self,
        reader: impl Read,
        packed: u64,
        path: &str,
        depth: u32,
    ) -> Result<(), String> {
        let left = self.bounds.total.saturating_sub(self.total);
        let mut limited = Limited::new(reader, packed, self.bounds.ratio, u64::MAX)
            .take(self.bounds.member.min(left) + 1);
        let mut bytes = Vec::new();
        let result = limited.read_to_end(&mut bytes);
        self.total += bytes.len() as u64;
        if bytes.len() as u64 > left {
            let mib = self.bounds.total >> 20;
            return Err(format!(
                "unpacks to more than {mib} MiB: the rest is left out"
            ));
        }
        if let Err(error) = result {
            self.visitor
                .refused(path, format!("cannot be unpacked: {error}"));
        } else if bytes.len() as u64 > self.bounds.member {
            let mib = self.bounds.member >> 20;
            self.visitor.refused(path, format!("larger than {mib} MiB"));
        } else {
            self.show(path, bytes, depth);
        }
        Ok(())
    }

    fn show(&mut self, path: &str, bytes: Vec<u8>, depth: u32) {
        let archive = match super::sniff::sniff(path, &bytes) {
            super::sniff::Sniffed::Archive(kind) => kind,
            _ => return self.visitor.file(path, bytes),
        };
        let (packed, prefix) = (bytes.len() as u64, format!("{path}!"));
        let result = self.archive(
            archive,
            Cursor::new(bytes),
            packed,
            &prefix,
            path,
            depth + 1,
        );
        if let Err(reason) = result {
            self.visitor.refused(path, reason);
        }
    }

    fn counted(&mut self) -> Result<(), String> {
        self.count += 1;
        if self.count > self.bounds.count {
            return Err(format!(
                "more than {} members: the rest is left out",
                self.bounds.count
            ));
        }
        Ok(())
    }
}

/// The name in a GNU long-name entry or in the `path` record of a pax header.
fn read_long_name<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    kind: tar::EntryType,
) -> Result<Option<String>, String> {
    const MAX_HEADER: u64 = 1 << 16;
    if entry.size() > MAX_HEADER {
        return Err("a header of more than 64 KiB: the rest is left out".into());
    }
    let mut bytes = Vec::new();
    let unreadable = |e: io::Error| format!("not a readable tar: {e}");
    entry.read_to_end(&mut bytes).map_err(unreadable)?;
    if kind.is_gnu_longname() {
        let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
        return Ok(Some(String::from_utf8_lossy(name).into_owned()));
    }
    let mut records = tar::PaxExtensions::new(&bytes).flatten();
    let path = records.find(|record| record.key_bytes() == b"path");
    Ok(path.map(|record| String::from_utf8_lossy(record.value_bytes()).into_owned()))
}

/// A member's name must stay below where it would be unpacked.
fn check_path(path: &str) -> Result<(), String> {
    let windows_drive = path.as_bytes().get(1) == Some(&b':');
    let absolute = path.starts_with(['/', '\\']) || windows_drive;
    if absolute || path.split(['/', '\\']).any(|part| part == "..") {
        Err("its path escapes the archive".into())
    } else if path.contains('\0') {
        Err("its name holds a NUL".into())
    } else {
        Ok(())
    }
}

/// A reader that fails when more comes out than the ratio or the limit allows.
struct Limited<R> {
    inner: R,
    read: u64,
    packed: u64,
    ratio: u64,
    limit: u64,
}

impl<R> Limited<R> {
    fn new(inner: R, packed: u64, ratio: u64, limit: u64) -> Self {
        Self {
            inner,
            read: 0,
            packed,
            ratio,
            limit,
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read += n as u64;
        if self.read > RATIO_FREE && self.read / self.ratio > self.packed {
            let reason = format!("unpacks to more than {} times its size", self.ratio);
            return Err(io::Error::other(reason));
        }
        if self.read > self.limit {
            return Err(io::Error::other(format!(
                "unpacks to more than {} bytes",
                self.limit
            )));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
