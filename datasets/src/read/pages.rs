//! Reads pages of column chunks with one zstd context per shard. The crate `parquet` creates two contexts for every
//! chunk, and each queries the CPU's features, which takes microseconds on a virtual machine. With our small row
//! groups this was a quarter of the reading time.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
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

use super::MAX_PAGE_BYTES;

/// Minimum for the size limit of a page, in bytes: some writers state too small sizes for a chunk.
const MIN_PAGE_LIMIT: usize = 16 << 20;

/// What the readers of a shard share.
#[derive(Clone)]
pub(super) struct Context {
    zstd: Arc<Mutex<Decompressor<'static>>>,
    pub(super) budget: PageBudget,
}

/// Counts the bytes of the pages that were read for the current batch.
#[derive(Clone, Default)]
pub(super) struct PageBudget(Arc<AtomicUsize>);

impl PageBudget {
    /// Start to count for the next batch.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Count a page; false if the pages take too much.
    fn take(&self, bytes: usize) -> bool {
        self.0
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes)
            <= MAX_PAGE_BYTES
    }
}

impl Context {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            zstd: Arc::new(Mutex::new(Decompressor::new()?)),
            budget: PageBudget::default(),
        })
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
        let mut context = self.zstd.lock().unwrap_or_else(PoisonError::into_inner);
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
        let is_zstd = chunk.compression_codec() == CompressionCodec::ZSTD;
        let stored = match is_zstd {
            false => reader(chunk)?,
            true => {
                let stored = chunk.clone().into_builder();
                let stored = stored.set_compression_codec(CompressionCodec::UNCOMPRESSED);
                reader(&stored.build()?)?
            }
        };
        Ok(Box::new(BoundedReader {
            stored,
            is_zstd,
            column: chunk.column_descr_ptr(),
            limit: usize::try_from(chunk.uncompressed_size())?
                .clamp(MIN_PAGE_LIMIT, MAX_PAGE_BYTES),
            values_left: u64::try_from(chunk.num_values())?,
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

/// Reads the pages of a chunk within limits of their sizes and their number of values. Decompresses zstd itself.
struct BoundedReader {
    stored: SerializedPageReader<File>,
    is_zstd: bool,
    column: ColumnDescPtr,
    /// Maximum size of a page in bytes: the stated size of the chunk, clamped.
    limit: usize,
    /// Number of values that the remaining pages may have.
    values_left: u64,
    context: Context,
}

impl BoundedReader {
    fn error(&self, what: &str) -> ParquetError {
        ParquetError::General(format!("column {}: {what}", self.column.path().string()))
    }

    /// Check a page that has been read.
    fn count(&mut self, page: Page) -> Result<Page> {
        if !matches!(page, Page::DictionaryPage { .. }) {
            let left = self.values_left.checked_sub(u64::from(page.num_values()));
            self.values_left =
                left.ok_or_else(|| self.error("its pages have more values than it states"))?;
        }
        match self.context.budget.take(page.buffer().len()) {
            true => Ok(page),
            false => Err(self.error(&format!(
                "the pages of a few rows take more than {MAX_PAGE_BYTES} bytes"
            ))),
        }
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

impl Iterator for BoundedReader {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for BoundedReader {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.stored.get_next_page()? else {
            return Ok(None);
        };
        if self.is_zstd {
            page = self.decompress_page(page)?;
        }
        self.count(page).map(Some)
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
