//! Searches SQLite databases page by page, so that neither the schema is executed nor a deleted row missed.
//! The format: <https://www.sqlite.org/fileformat2.html>.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

use super::FileScanner;

const HEADER_BYTES: usize = 100;
/// Types of pages whose cells hold records.
const TABLE_LEAF: u8 = 0x0d;
const INDEX_LEAF: u8 = 0x0a;
const INDEX_INTERIOR: u8 = 0x02;
const DAMAGED: &str = "a damaged SQLite database";

pub(super) fn search(scanner: &mut FileScanner<'_>, bytes: &[u8]) -> Result<(), String> {
    let database = Database::new(bytes).ok_or(DAMAGED)?;
    for number in 1..=bytes.len() / database.page_size {
        if !database.is_pointer_map(number) {
            database.search_page(scanner, number).ok_or(DAMAGED)?;
        }
    }
    Ok(())
}

struct Database<'a> {
    bytes: &'a [u8],
    page_size: usize,
    /// Bytes of a page that SQLite uses.
    usable: usize,
    /// The encoding of texts, unless it is UTF-8.
    wide: Option<&'static Encoding>,
    has_pointer_maps: bool,
}

impl<'a> Database<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let page_size = match be16(bytes, 16)? {
            1 => 1 << 16,
            size => size,
        };
        let usable = page_size.checked_sub(usize::from(*bytes.get(20)?))?;
        let wide = match bytes.get(59)? {
            2 => Some(UTF_16LE),
            3 => Some(UTF_16BE),
            _ => None,
        };
        (page_size.is_power_of_two() && page_size >= 512 && usable >= 480).then_some(Self {
            bytes,
            page_size,
            usable,
            wide,
            has_pointer_maps: be32(bytes, 52)? != 0,
        })
    }

    /// The bytes of a page; pages are numbered from 1.
    fn page(&self, number: usize) -> Option<&'a [u8]> {
        let at = number.checked_sub(1)?.checked_mul(self.page_size)?;
        self.bytes.get(at..at.checked_add(self.page_size)?)
    }

    /// Pointer maps, which hold no records, precede the pages that they are about.
    fn is_pointer_map(&self, number: usize) -> bool {
        self.has_pointer_maps && number >= 2 && (number - 2).is_multiple_of(self.usable / 5 + 1)
    }

    /// `None` if the page is damaged. Pages without records are skipped.
    fn search_page(&self, scanner: &mut FileScanner<'_>, number: usize) -> Option<()> {
        let page = self.page(number)?;
        let header = if number == 1 { HEADER_BYTES } else { 0 };
        let kind = page[header];
        let pointers = match kind {
            TABLE_LEAF | INDEX_LEAF => header + 8,
            INDEX_INTERIOR => header + 12,
            _ => return Some(()),
        };
        for cell in 0..be16(page, header + 3)? {
            if scanner.left == 0 {
                break;
            }
            let at = be16(page, pointers + 2 * cell)?;
            let record = self.record(page, at, kind)?;
            if scanner.take(record.len()) {
                self.search_record(scanner, &record)?;
            }
        }
        Some(())
    }

    /// The record of a cell, with the part that lies on overflow pages.
    fn record(&self, page: &[u8], mut at: usize, kind: u8) -> Option<Vec<u8>> {
        if kind == INDEX_INTERIOR {
            at += 4;
        }
        let size = usize::try_from(varint(page, &mut at)?).ok()?;
        if kind == TABLE_LEAF {
            varint(page, &mut at)?;
        }
        if size > self.bytes.len() {
            return None;
        }
        let local = self.local_bytes(size, kind);
        let mut record = page.get(at..at.checked_add(local)?)?.to_vec();
        let mut next = match local < size {
            true => be32(page, at + local)?,
            false => 0,
        };
        while record.len() < size {
            let overflow = self.page(next)?;
            let content = &overflow[4..self.usable];
            record.extend_from_slice(&content[..content.len().min(size - record.len())]);
            next = be32(overflow, 0)?;
        }
        Some(record)
    }

    /// How many bytes of a record of this size are stored in its cell.
    fn local_bytes(&self, size: usize, kind: u8) -> usize {
        let most = match kind {
            TABLE_LEAF => self.usable - 35,
            _ => (self.usable - 12) * 64 / 255 - 23,
        };
        let least = (self.usable - 12) * 32 / 255 - 23;
        if size <= most {
            return size;
        }
        match least + (size - least) % (self.usable - 4) {
            local if local <= most => local,
            _ => least,
        }
    }

    fn search_record(&self, scanner: &mut FileScanner<'_>, record: &[u8]) -> Option<()> {
        let mut at = 0;
        let mut value = usize::try_from(varint(record, &mut at)?).ok()?;
        let types_end = value;
        while at < types_end {
            let kind = varint(record, &mut at)?;
            let size = usize::try_from(value_size(kind)).ok()?;
            let bytes = record.get(value..value.checked_add(size)?)?;
            match (kind, self.wide) {
                (0..12, _) => {}
                (_, Some(wide)) if kind % 2 == 1 => {
                    scanner.text(&wide.decode_without_bom_handling(bytes).0);
                }
                _ if kind % 2 == 1 => scanner.bytes(bytes),
                _ => scanner.inner_file(bytes),
            }
            value += size;
        }
        Some(())
    }
}

/// The size of a value of this serial type in bytes.
fn value_size(kind: u64) -> u64 {
    match kind {
        0..=4 => kind,
        5 => 6,
        6 | 7 => 8,
        8..12 => 0,
        _ => (kind - 12) / 2,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 2)?;
    Some(usize::from(bytes[0]) << 8 | usize::from(bytes[1]))
}

fn be32(bytes: &[u8], at: usize) -> Option<usize> {
    Some(be16(bytes, at)? << 16 | be16(bytes, at + 2)?)
}

/// Reads a number of 1 to 9 bytes, seven bits in each of the first eight.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for count in 1..=9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if count == 9 {
            return Some(number << 8 | u64::from(byte));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}
