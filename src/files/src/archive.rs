//! Reads archives within limits on total size, compression ratio, nesting depth and number of members.
//! Nothing is written to disk under a member's name. Members whose path would escape are refused.

use std::io::{self, Cursor, Read, Seek};

use super::sniff::{ArchiveKind, HEAD, archive_head};

/// Limits for one outermost archive and everything nested in it.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Largest member, in bytes.
    pub member: u64,
    /// Total size of all members that are read, in bytes.
    pub total: u64,
    /// Unpacked size divided by packed size; checked once more than a MiB was unpacked.
    pub ratio: u64,
    /// Nesting depth of archives inside archives.
    pub depth: u32,
    /// Number of members that are visited.
    pub count: u64,
}

impl Bounds {
    /// Limits for members of at most `member` bytes each and `total` bytes together.
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

/// The ratio is not checked up to this many unpacked bytes, because it means little for small files.
const RATIO_FREE: u64 = 1 << 20;

/// Receives the members of an archive.
pub trait Visitor {
    /// Whether a member is wanted. Other members are not unpacked (in a tar they are skipped).
    /// Nested archives are passed to this function too.
    fn wants(&self, path: &str) -> bool;
    /// Called with the content of a wanted member.
    fn file(&mut self, path: &str, bytes: Vec<u8>);
    /// Called when a member or the rest of the archive was refused.
    fn refused(&mut self, path: &str, reason: String);
}

/// Reads an archive and passes its members to `visitor`. `path` is the archive's own name, used when the
/// whole archive is refused. Below the first level, members are named `outer.zip!inner/path`.
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
            self.count_member()?;
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

    /// Reads raw entries: otherwise the crate reads long names of any length into memory.
    fn tar<R: Read>(&mut self, reader: R, prefix: &str, depth: u32) -> Result<(), String> {
        let mut archive = tar::Archive::new(reader);
        let unreadable = |e: io::Error| format!("not a readable tar: {e}");
        let mut long_name = None;
        for entry in archive.entries().map_err(unreadable)?.raw(true) {
            self.count_member()?;
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
        self.count_member()?;
        let inner = name.rsplit('/').next().unwrap_or(name);
        let inner = inner.strip_suffix(".gz").unwrap_or(inner).to_owned();
        let path = format!("{prefix}{inner}");
        if self.visitor.wants(&path) {
            self.member(whole, packed, &path, depth)
        } else {
            Ok(())
        }
    }

    /// Reads one member and passes it to the visitor, or opens it if it is an archive.
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
            self.visit(path, bytes, depth);
        }
        Ok(())
    }

    fn visit(&mut self, path: &str, bytes: Vec<u8>, depth: u32) {
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

    fn count_member(&mut self) -> Result<(), String> {
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

/// Reads the name in a GNU long-name entry or in the `path` record of a pax header.
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

/// Refuses member names that would lead outside of the folder they are unpacked to.
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

/// A reader that fails when the output exceeds the ratio or the limit.
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
