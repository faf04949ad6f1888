//! Datasets of pybench: accepted trajectories as Parquet shards that `datasets.load_dataset` opens.
//!
//! [`Row`] is one sample with its provenance, [`split`](mod@split) decides what is train and what
//! is test, [`shards`] writes the files, [`card`] describes them, and [`dataset::write`] does all
//! of it in one step. [`samples`] reads datasets of any origin, [`survey`] says what they look like;
//! [`read`] reads our shards back as bytes of strangers, [`proof`] is what rows say of themselves so
//! that others can check it, [`normal`] what is no difference between two runs, and [`scrub`] takes
//! secrets out before anything is written. Nothing here knows of runs.

pub mod card;
pub mod dataset;
pub mod decontaminate;
pub mod dedup;
pub mod exchange;
pub mod licence;
pub mod normal;
pub mod parallel;
pub mod proof;
pub mod read;
pub mod rewrite;
pub mod row;
pub mod samples;
mod schema;
pub mod scrub;
pub mod select;
pub mod shards;
pub mod split;
pub mod stats;
pub mod survey;
pub mod svg;
pub mod text;
pub mod tokens;

pub use row::{
    Attempts, CheckOutcome, Counted, Grading, Row, RowFile, RowInterpreter, RowOutput, RowTokens,
};
pub use schema::schema;

/// Errors of datasets.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// Reading or writing failed.
    #[error("{context}: {source}")]
    Io {
        /// What was tried, with the path.
        context: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// Parquet refused something.
    #[error("{context}: {source}")]
    Parquet {
        /// The file.
        context: String,
        /// Parquet's word.
        source: parquet::errors::ParquetError,
    },
    /// Arrow refused the columns: a bug of ours.
    #[error("the columns do not fit the schema: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// A shard from outside cannot be read; the text names the column and the row.
    #[error("{path}: {reason}")]
    Shard {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong, where, and what was expected.
        reason: String,
    },
    /// A setting cannot be used.
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
