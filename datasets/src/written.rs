//! What writing a dataset came to.

use std::collections::BTreeMap;

use pybench_types::id::Digest;

use crate::decontaminate::BenchmarkMatches;
use crate::diversity::Diversity;
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
    /// Statistics of further splits, which only a copy of a dataset can have.
    pub others: BTreeMap<String, Stats>,
    /// The assignment of rows to splits.
    pub split: Split,
    /// How varied the rows are; empty for a copy of a dataset.
    pub diversity: Diversity,
    /// Digest of all rows, as stated in the card.
    pub digest: Digest,
    /// What the scrubber removed.
    pub scrub: ScrubReport,
    /// What rows have in common with known benchmarks.
    pub benchmarks: BenchmarkMatches,
    /// Number of input files included in the dataset, and their size in bytes.
    pub files: (usize, u64),
}

impl WrittenDataset {
    /// The splits with their names: train, and the others that have rows.
    pub(crate) fn splits(&self) -> impl Iterator<Item = (&str, &Stats)> {
        let test = Some(("test", &self.test)).filter(|(_, stats)| stats.rows > 0);
        let others = self.others.iter();
        let others = others.map(|(name, stats)| (name.as_str(), stats));
        [("train", &self.train)]
            .into_iter()
            .chain(test)
            .chain(others)
    }
}
