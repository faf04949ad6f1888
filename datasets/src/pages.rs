//! Reads pages of column chunks with one zstd context per shard. The crate `parquet` creates two contexts for every
//! chunk, and each queries the CPU's features, which takes microseconds on a virtual machine. With our small row
//! groups this was a quarter of the reading time. Its other decompressors have no limit.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::read::MultiGzDecoder;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::CompressionCodec;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size};

/// Maximum uncompressed size of a column in a row group, in bytes.
const MAX_GROUP_BYTES: i64 = 4 << 30;
/// Maximum number of rows in a row group.
const MAX_GROUP_ROWS: i64 = 10_000_000;
/// Maximum number of values of a column in a row group.
const MAX_GROUP_VALUES: i64 = 10_000_000;
/// Maximum size of the pages that are decompressed for a batch, in bytes.
const MAX_PAGE_BYTES: usize = 128 << 20;
/// Minimum for the size limit of a page, in bytes: some writers state too small sizes for a chunk.
const MIN_PAGE_LIMIT: usize = 16 << 20;

/// Check the sizes stated in the file's metadata.
pub(crate) fn check_sizes(metadata: &ParquetMetaData) -> Result<(), String> {
    for (number, group) in metadata.row_groups().iter().enumerate() {
        if group.num_rows() > MAX_GROUP_ROWS || group.num_rows() < 0 {
            let rows = group.num_rows();
            return Err(format!(
                "row group {number} has {rows} rows; the limit is {MAX_GROUP_ROWS}"
            ));
        }
        for column in group.columns() {
            if column.num_values() > MAX_GROUP_VALUES || column.num_values() < 0 {
                return Err(format!(
                    "column {}: row group {number} has {} values; the limit is {MAX_GROUP_VALUES}",
                    column.column_path().string(),
                    column.num_values(),
                ));
            }
            if column.uncompressed_size() > MAX_GROUP_BYTES || column.uncompressed_size() < 0 {
                return Err(format!(
                    "column {}: row group {number} has {} uncompressed bytes; the limit is {MAX_GROUP_BYTES}",
                    column.column_path().string(),
                    column.uncompressed_size(),
                ));
            }
        }
    }
    Ok(())
}

/// The compression that is undone here, within a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Zstd,
    Gzip,
    Snappy,
}

impl Codec {
    pub(crate) fn new(codec: CompressionCodec) -> Option<Self> {
        match codec {
            CompressionCodec::ZSTD => Some(Self::Zstd),
            CompressionCodec::GZIP => Some(Self::Gzip),
            CompressionCodec::SNAPPY => Some(Self::Snappy),
            _ => None,
        }
    }
}

/// What the readers of a shard share.
#[derive(Clone)]
pub(crate) struct Context {
    zstd: Arc<Mutex<Decompressor<'static>>>,
    pub(crate) budget: PageBudget,
}

/// Counts the bytes of the pages that were read for the current batch.
#[derive(Clone, Default)]
pub(crate) struct PageBudget(Arc<AtomicUsize>);

impl PageBudget {
    /// Start to count for the next batch.
    pub(crate) fn reset(&self) {
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
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            zstd: Arc::new(Mutex::new(Decompressor::new()?)),
            budget: PageBudget::default(),
        })
    }

    /// Decompress `bytes`. Fails if the result is larger than `limit` bytes.
    fn decompress(&self, codec: Codec, bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        match codec {
            _ if bytes.is_empty() => Ok(Vec::new()),
            Codec::Zstd => self.decompress_zstd(bytes, limit),
            Codec::Gzip => gunzip(bytes, limit),
            Codec::Snappy => match snap::raw::decompress_len(bytes)? {
                size if size > limit => Err(too_large(limit)),
                _ => Ok(snap::raw::Decoder::new().decompress_vec(bytes)?),
            },
        }
    }

    fn decompress_zstd(&self, bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
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

fn gunzip(bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    let decoder = MultiGzDecoder::new(bytes);
    decoder.take(limit as u64 + 1).read_to_end(&mut data)?;
    match data.len() > limit {
        true => Err(too_large(limit)),
        false => Ok(data),
    }
}

fn too_large(limit: usize) -> io::Error {
    io::Error::other(format!("a page of more than {limit} bytes"))
}

/// A range of row groups in a file.
pub(crate) struct Groups<R> {
    pub(crate) file: Arc<R>,
    pub(crate) metadata: Arc<ParquetMetaData>,
    pub(crate) wanted: Range<usize>,
    pub(crate) context: Context,
}

impl<R> Clone for Groups<R> {
    fn clone(&self) -> Self {
        Self {
            file: self.file.clone(),
            metadata: self.metadata.clone(),
            wanted: self.wanted.clone(),
            context: self.context.clone(),
        }
    }
}

impl<R: ChunkReader + 'static> Groups<R> {
    pub(crate) fn pages(&self, group: usize, column: usize) -> Result<Box<dyn PageReader>> {
        let group = self.metadata.row_group(group);
        let chunk = group.column(column);
        let rows = usize::try_from(group.num_rows())?;
        let reader = |chunk| SerializedPageReader::new(self.file.clone(), chunk, rows, None);
        let codec = Codec::new(chunk.compression_codec());
        let stored = match codec {
            None => reader(chunk)?,
            Some(_) => {
                let stored = chunk.clone().into_builder();
                let stored = stored.set_compression_codec(CompressionCodec::UNCOMPRESSED);
                reader(&stored.build()?)?
            }
        };
        Ok(Box::new(BoundedReader {
            stored,
            codec,
            column: chunk.column_descr_ptr(),
            limit: usize::try_from(chunk.uncompressed_size())?
                .clamp(MIN_PAGE_LIMIT, MAX_PAGE_BYTES),
            values_left: u64::try_from(chunk.num_values())?,
            context: self.context.clone(),
        }))
    }
}

impl<R: ChunkReader + 'static> RowGroups for Groups<R> {
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
struct Chunks<R> {
    groups: Groups<R>,
    column: usize,
}

impl<R: ChunkReader + 'static> Iterator for Chunks<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.groups.wanted.next()?;
        Some(self.groups.pages(group, self.column))
    }
}

impl<R: ChunkReader + 'static> PageIterator for Chunks<R> {}

/// Reads the pages of a chunk within limits of their sizes and their number of values.
struct BoundedReader<R: ChunkReader> {
    stored: SerializedPageReader<R>,
    codec: Option<Codec>,
    column: ColumnDescPtr,
    /// Maximum size of a page in bytes: the stated size of the chunk, clamped.
    limit: usize,
    /// Number of values that the remaining pages may have.
    values_left: u64,
    context: Context,
}

impl<R: ChunkReader> BoundedReader<R> {
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

    fn decompress_page(&self, codec: Codec, mut page: Page) -> Result<Page> {
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
        let values = self.context.decompress(codec, compressed, self.limit);
        let values = values.map_err(|error| self.error(&error.to_string()))?;
        *buf = match levels {
            [] => values.into(),
            levels => [levels, &values].concat().into(),
        };
        Ok(page)
    }
}

impl<R: ChunkReader> Iterator for BoundedReader<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for BoundedReader<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.stored.get_next_page()? else {
            return Ok(None);
        };
        if let Some(codec) = self.codec {
            page = self.decompress_page(codec, page)?;
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
            assert_eq!(
                context.decompress(Codec::Zstd, &bytes, size).unwrap(),
                wanted
            );
            assert_eq!(
                context.decompress(Codec::Zstd, &bytes, size + 9).unwrap(),
                wanted
            );
            if size > 0 {
                assert!(context.decompress(Codec::Zstd, &bytes, size - 1).is_err());
                assert!(context.decompress(Codec::Zstd, &bytes[..9], size).is_err());
            }
        }
        // The size stated in the frame does not decide how much memory is allocated.
        let mut claims = one;
        claims[5..7].fill(0xff);
        assert!(
            context
                .decompress(Codec::Zstd, &claims, text.len())
                .is_err()
        );
        assert!(context.decompress(Codec::Zstd, b"no zstd", 100).is_err());
    }

    #[test]
    fn every_codec_stops_at_the_limit() {
        use std::io::Write;
        let text = vec![b'x'; 100_000];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&text).unwrap();
        for (codec, bytes) in [
            (Codec::Zstd, zstd::bulk::compress(&text, 3).unwrap()),
            (Codec::Gzip, gzip.finish().unwrap()),
            (
                Codec::Snappy,
                snap::raw::Encoder::new().compress_vec(&text).unwrap(),
            ),
        ] {
            let context = Context::new().unwrap();
            assert_eq!(context.decompress(codec, &bytes, text.len()).unwrap(), text);
            assert!(
                context.decompress(codec, &bytes, text.len() - 1).is_err(),
                "{codec:?}"
            );
        }
    }
}
