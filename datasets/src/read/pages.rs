//! Pages of column chunks, those of zstd decompressed by one context for a whole shard. Left to itself the crate
//! `parquet` makes two contexts for every chunk, and making one asks the processor what it can do, which on a
//! virtual machine takes microseconds: with our small row groups a quarter of the time of reading.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::CompressionCodec;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size};

use super::COLUMN;

/// What a page may hold whatever its chunk claims: not every writer counts well.
const PAGE: usize = 16 << 20;

/// One context of zstd.
#[derive(Clone)]
pub(super) struct Context(Arc<Mutex<Decompressor<'static>>>);

impl Context {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Decompressor::new()?))))
    }

    /// What the bytes hold, at most `most` bytes of it.
    fn decompressed(&self, bytes: &[u8], most: usize) -> io::Result<Vec<u8>> {
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let one_frame = find_frame_compressed_size(bytes).is_ok_and(|size| size == bytes.len());
        let stated = get_frame_content_size(bytes).ok().flatten();
        let size = stated.filter(|_| one_frame).unwrap_or(u64::MAX);
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(most);
        let mut context = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = context.decompress(bytes, size)?;
        if held.len() < held.capacity() / 2 {
            held.shrink_to_fit();
        }
        Ok(held)
    }
}

/// Some row groups of a shard.
#[derive(Clone)]
pub(super) struct Groups {
    pub(super) file: Arc<File>,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) wanted: Range<usize>,
    pub(super) context: Context,
}

impl Groups {
    fn pages(&self, group: usize, column: usize) -> Result<Box<dyn PageReader>> {
        let group = self.metadata.row_group(group);
        let chunk = group.column(column);
        let rows = usize::try_from(group.num_rows())?;
        let reader = |chunk| SerializedPageReader::new(self.file.clone(), chunk, rows, None);
        if chunk.compression_codec() != CompressionCodec::ZSTD {
            return Ok(Box::new(reader(chunk)?));
        }
        let stored = chunk.clone().into_builder();
        let stored = stored.set_compression_codec(CompressionCodec::UNCOMPRESSED);
        Ok(Box::new(Decompressed {
            stored: reader(&stored.build()?)?,
            column: chunk.column_descr_ptr(),
            most: usize::try_from(chunk.uncompressed_size())?.clamp(PAGE, COLUMN),
            context: self.context.clone(),
        }))
    }
}

impl RowGroups for Groups {
    fn num_rows(&self) -> usize {
        let rows = self.row_groups().map(RowGroupMetaData::num_rows);
        usize::try_from(rows.sum::<i64>()).unwrap_or_default()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(Chunks {
            groups: self.clone(),
            column,
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups()[self.wanted.clone()].iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The chunks of a column that are still to come.
struct Chunks {
    groups: Groups,
    column: usize,
}

impl Iterator for Chunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.groups.wanted.next()?;
        Some(self.groups.pages(group, self.column))
    }
}

impl PageIterator for Chunks {}

/// The pages of a chunk: as they are stored, and then decompressed.
struct Decompressed {
    stored: SerializedPageReader<File>,
    column: ColumnDescPtr,
    /// Most bytes of a page: what the chunk claims for all, within bounds.
    most: usize,
    context: Context,
}

impl Decompressed {
    fn refused(&self, what: &str) -> ParquetError {
        ParquetError::General(format!("column {}: {what}", self.column.path().string()))
    }

    fn page(&self, mut page: Page) -> Result<Page> {
        let (buf, plain) = match &mut page {
            Page::DataPageV2 {
                is_compressed: false,
                ..
            } => return Ok(page),
            // Its levels stand before what is compressed.
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let plain = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                (buf, usize::try_from(plain)?)
            }
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf, 0),
        };
        let Some((levels, compressed)) = buf.split_at_checked(plain) else {
            let size = buf.len();
            return Err(self.refused(&format!("a page of {size} bytes has levels of {plain}")));
        };
        let values = self.context.decompressed(compressed, self.most);
        let values = values.map_err(|error| self.refused(&error.to_string()))?;
        *buf = match levels {
            [] => values.into(),
            levels => [levels, &values].concat().into(),
        };
        Ok(page)
    }
}

impl Iterator for Decompressed {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Decompressed {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.stored.get_next_page()?;
        page.map(|page| self.page(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.stored.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.stored.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.stored.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use zstd::stream::encode_all;

    use super::*;

    #[test]
    fn frames_of_every_kind_are_decompressed_within_bounds() {
        let context = Context::new().unwrap();
        let text = b"the same again, ".repeat(1000);
        let one = zstd::bulk::compress(&text, 3).unwrap();
        let two = [one.clone(), one.clone()].concat();
        let unstated = encode_all(text.as_slice(), 3).unwrap();
        assert_eq!(get_frame_content_size(&unstated).ok().flatten(), None);
        for (bytes, wanted) in [
            (one.clone(), text.clone()),
            (two, text.repeat(2)),
            (unstated, text.clone()),
            (Vec::new(), Vec::new()),
        ] {
            let size = wanted.len();
            assert_eq!(context.decompressed(&bytes, size).unwrap(), wanted);
            assert_eq!(context.decompressed(&bytes, size + 9).unwrap(), wanted);
            if size > 0 {
                assert!(context.decompressed(&bytes, size - 1).is_err());
                assert!(context.decompressed(&bytes[..9], size).is_err());
            }
        }
        // Nor does the frame's own claim decide how much memory is taken.
        let mut claims = one;
        claims[5..7].fill(0xff);
        assert!(context.decompressed(&claims, text.len()).is_err());
        assert!(context.decompressed(b"no zstd", 100).is_err());
    }
}
