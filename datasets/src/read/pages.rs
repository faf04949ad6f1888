//! Reads pages of column chunks with one zstd context per shard. The crate `parquet` creates two contexts for every
//! chunk, and each queries the CPU's features, which takes microseconds on a virtual machine. With our small row
//! groups this was a quarter of the reading time.

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

use super::MAX_COLUMN_BYTES;

/// Minimum for the size limit of a page, in bytes: some writers state too small sizes for a chunk.
const MIN_PAGE_LIMIT: usize = 16 << 20;

/// A shared zstd decompression context.
#[derive(Clone)]
pub(super) struct Context(Arc<Mutex<Decompressor<'static>>>);

impl Context {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Decompressor::new()?))))
    }

    /// Decompress `bytes`. Fails if the result is larger than `limit` bytes.
    fn decompress(&self, bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let one_frame = find_frame_compressed_size(bytes).is_ok_and(|size| size == bytes.len());
        let stated = get_frame_content_size(bytes).ok().flatten();
        let size = stated.filter(|_| one_frame).unwrap_or(u64::MAX);
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(limit);
        let mut context = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut data = context.decompress(bytes, size)?;
        if data.len() < data.capacity() / 2 {
            data.shrink_to_fit();
        }
        Ok(data)
    }
}

/// A range of row groups in a shard.
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
        Ok(Box::new(DecompressingReader {
            stored: reader(&stored.build()?)?,
            column: chunk.column_descr_ptr(),
            limit: usize::try_from(chunk.uncompressed_size())?
                .clamp(MIN_PAGE_LIMIT, MAX_COLUMN_BYTES),
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

/// Iterator over the remaining chunks of a column.
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

/// Reads the stored pages of a chunk and decompresses them.
struct DecompressingReader {
    stored: SerializedPageReader<File>,
    column: ColumnDescPtr,
    /// Maximum size of a page in bytes: the stated size of the chunk, clamped.
    limit: usize,
    context: Context,
}

impl DecompressingReader {
    fn error(&self, what: &str) -> ParquetError {
        ParquetError::General(format!("column {}: {what}", self.column.path().string()))
    }

    fn decompress_page(&self, mut page: Page) -> Result<Page> {
        let (buf, plain) = match &mut page {
            Page::DataPageV2 {
                is_compressed: false,
                ..
            } => return Ok(page),
            // The levels precede the compressed data and are not compressed.
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
            return Err(self.error(&format!(
                "a page of {size} bytes has {plain} bytes of levels"
            )));
        };
        let values = self.context.decompress(compressed, self.limit);
        let values = values.map_err(|error| self.error(&error.to_string()))?;
        *buf = match levels {
            [] => values.into(),
            levels => [levels, &values].concat().into(),
        };
        Ok(page)
    }
}

impl Iterator for DecompressingReader {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for DecompressingReader {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.stored.get_next_page()?;
        page.map(|page| self.decompress_page(page)).transpose()
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
    fn all_kinds_of_frames_are_decompressed_within_the_limit() {
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
            assert_eq!(context.decompress(&bytes, size).unwrap(), wanted);
            assert_eq!(context.decompress(&bytes, size + 9).unwrap(), wanted);
            if size > 0 {
                assert!(context.decompress(&bytes, size - 1).is_err());
                assert!(context.decompress(&bytes[..9], size).is_err());
            }
        }
        // The size stated in the frame does not decide how much memory is allocated.
        let mut claims = one;
        claims[5..7].fill(0xff);
        assert!(context.decompress(&claims, text.len()).is_err());
        assert!(context.decompress(b"no zstd", 100).is_err());
    }
}
