//! Searches the texts and binary values of Parquet files. Names, statistics and metadata in the footer are neither
//! compressed nor encoded.

use std::fs::File;
use std::sync::Arc;

use ::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use ::parquet::basic::CompressionCodec;
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use ::parquet::data_type::{AsBytes, DataType};
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;

use super::FileScanner;
use crate::pages::{Codec, Context, Groups, PageBudget, check_sizes};

/// Rows decoded at a time.
const BATCH: usize = 1_024;

/// Maximum size of a footer, in bytes.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// Search a whole file in memory.
pub(super) fn search(scanner: &mut FileScanner<'_>, bytes: &[u8]) -> Result<(), String> {
    search_columns(scanner, Bytes::copy_from_slice(bytes))
}

/// Search a file that may be larger than memory: its columns and its footer.
pub(super) fn search_file(scanner: &mut FileScanner<'_>, file: File) -> Result<(), String> {
    let size = Length::len(&file);
    let tail = size
        .checked_sub(8)
        .ok_or_else(|| unreadable("it is too short"))?;
    let tail = file.get_bytes(tail, 8).map_err(unreadable)?;
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let start = (size - 8)
        .checked_sub(length)
        .filter(|_| length <= MAX_FOOTER_BYTES);
    let start = start.ok_or_else(|| unreadable("its footer is too long"))?;
    scanner.bytes(&file.get_bytes(start, length as usize).map_err(unreadable)?);
    search_columns(scanner, file)
}

fn search_columns<R: ChunkReader + 'static>(
    scanner: &mut FileScanner<'_>,
    file: R,
) -> Result<(), String> {
    let options = ArrowReaderOptions::default();
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(unreadable)?;
    // In the footer the schema is encoded as base64.
    scanner.text(&format!("{:?}", metadata.schema()));
    let metadata = metadata.metadata().clone();
    check_sizes(&metadata)?;
    let groups = Groups {
        file: Arc::new(file),
        wanted: 0..metadata.num_row_groups(),
        metadata,
        context: Context::new().map_err(unreadable)?,
    };
    for group in groups.wanted.clone() {
        for column in 0..groups.metadata.row_group(group).num_columns() {
            search_column(scanner, &groups, group, column)?;
        }
    }
    Ok(())
}

fn search_column<R: ChunkReader + 'static>(
    scanner: &mut FileScanner<'_>,
    groups: &Groups<R>,
    group: usize,
    column: usize,
) -> Result<(), String> {
    let chunk = groups.metadata.row_group(group).column(column);
    let codec = chunk.compression_codec();
    if codec != CompressionCodec::UNCOMPRESSED && Codec::new(codec).is_none() {
        return Err(format!("a Parquet file with compression {codec:?}"));
    }
    let pages = groups.pages(group, column).map_err(unreadable)?;
    let budget = &groups.context.budget;
    match get_column_reader(chunk.column_descr_ptr(), pages) {
        ColumnReader::ByteArrayColumnReader(reader) => search_values(scanner, budget, reader),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => {
            search_values(scanner, budget, reader)
        }
        _ => Ok(()),
    }
}

fn search_values<T: DataType>(
    scanner: &mut FileScanner<'_>,
    budget: &PageBudget,
    mut reader: ColumnReaderImpl<T>,
) -> Result<(), String> {
    loop {
        budget.reset();
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let read = reader.read_records(
            BATCH,
            Some(&mut definitions),
            Some(&mut repetitions),
            &mut values,
        );
        let (records, _, _) = read.map_err(unreadable)?;
        if records == 0 || scanner.left == 0 {
            return Ok(());
        }
        for value in &values {
            scanner.bytes(value.as_bytes());
        }
    }
}

fn unreadable(error: impl std::fmt::Display) -> String {
    format!("not a readable Parquet file: {error}")
}
