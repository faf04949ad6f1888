//! Sizes of the splits, which the Python library `datasets` expects in the card.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::metadata::ParquetMetaDataReader;

use crate::{DatasetError, read};

/// Sizes by split.
pub(crate) type SplitSizes = BTreeMap<String, SplitSize>;

/// Size of the shards of a split, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitSize {
    /// Size of the files.
    pub(crate) files: u64,
    /// Size of the columns after decompression.
    pub(crate) decompressed: u64,
}

/// The sizes of the splits of a dataset that this program has written.
pub(crate) fn split_sizes(dataset: &Path) -> Result<SplitSizes, DatasetError> {
    let mut sizes = SplitSizes::new();
    for shard in read::shards(dataset)? {
        let file = File::open(&shard.path).map_err(DatasetError::io(&shard.path))?;
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file);
        let metadata = metadata.map_err(DatasetError::parquet(&shard.path))?;
        let groups = metadata.row_groups().iter();
        let decompressed: i64 = groups.map(|group| group.total_byte_size()).sum();
        let files = file
            .metadata()
            .map_err(DatasetError::io(&shard.path))?
            .len();
        let size = sizes.entry(shard.split).or_default();
        size.files += files;
        size.decompressed += decompressed.unsigned_abs();
    }
    Ok(sizes)
}
