//! What writing a dataset came to.

use pybench_types::id::Digest;

use crate::scrub::ScrubReport;
use crate::split::Split;
use crate::stats::Stats;

/// Summary of a written dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenDataset {
    /// Statistics of the train split.
    pub train: Stats,
    /// Statistics of the test split.
    pub test: Stats,
    /// The assignment of rows to splits.
    pub split: Split,
    /// Digest of all rows, as stated in the card.
    pub digest: Digest,
    /// What the scrubber removed.
    pub scrub: ScrubReport,
    /// Number of input files included in the dataset, and their size in bytes.
    pub files: (usize, u64),
}
