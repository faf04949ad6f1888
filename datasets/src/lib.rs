//! Datasets: accepted trajectories as Parquet shards that `datasets.load_dataset` can open.
//!
//! Writing: [`dataset::write`] scrubs secrets ([`scrub`]), splits the rows into train and test
//! ([`split`](mod@split)), writes the shards ([`shards`]) and renders the dataset card ([`card`]). A [`Row`] is
//! one sample with its provenance.
//!
//! Reading: [`read`] reads our own shards and treats them as untrusted input. [`samples`] reads conversations in
//! any of the usual formats, and [`survey`] summarizes them. [`inspect_log`] reads and writes evaluations as inspect_ai does.
//!
//! Verification: [`row_hashes`] computes the hashes stored with each row, [`split_check`] compares the splits, and
//! [`normalize`] removes differences that do not matter between two runs of the same code.
//!
//! This crate knows nothing about run folders.

pub mod card;
pub mod dataset;
pub mod decontaminate;
pub mod dedup;
pub mod diversity;
pub mod formats;
pub mod inspect_log;
pub mod normalize;
pub mod observed;
mod pages;
pub mod parallel;
pub mod preference;
pub mod read;
pub mod rewrite;
pub mod row;
pub mod row_hashes;
pub mod row_source;
pub mod samples;
mod schema;
pub mod scrub;
mod scrub_row;
pub mod select;
mod self_bleu;
pub mod shards;
pub mod split;
pub mod split_check;
pub mod split_tasks;
pub mod stats;
pub mod survey;
pub mod svg;
pub mod text;
pub mod tokens;
mod write_rows;
mod written;

pub use row::{
    Attempts, CheckOutcome, Counted, Grading, Row, RowFile, RowInterpreter, RowOutput, RowTokens,
};
pub use schema::schema;

#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A file could not be read or written.
    #[error("{context}: {source}")]
    Io {
        /// The operation or the path.
        context: String,
        source: std::io::Error,
    },
    /// The Parquet library returned an error.
    #[error("{context}: {source}")]
    Parquet {
        /// The path of the file.
        context: String,
        source: parquet::errors::ParquetError,
    },
    /// The columns do not match the schema: a bug in this crate.
    #[error("the columns do not match the schema: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A shard is invalid. The reason names the column and the row.
    #[error("{path}: {reason}")]
    Shard {
        path: std::path::PathBuf,
        reason: String,
    },
    /// A setting or a path is invalid.
    #[error("{0}")]
    Setting(String),
}

impl DatasetError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let context = path.display().to_string();
        move |source| Self::Io { context, source }
    }

    pub(crate) fn parquet(
        path: &std::path::Path,
    ) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let context = path.display().to_string();
        move |source| Self::Parquet { context, source }
    }
}
