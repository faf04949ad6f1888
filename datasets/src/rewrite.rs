//! Copies a dataset without some of its rows. Rows are streamed.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use pybench_run::ContentStore;
use pybench_types::id::Digest;
use pybench_types::task::TaskFile;

use crate::card::CardInfo;
use crate::dataset::{self, FILES_DIR, StagingFolder, WrittenDataset};
use crate::decontaminate::{BenchmarkSearch, FileSearch, RowPrint};
use crate::diversity::Diversity;
use crate::row_hashes::{DatasetDigest, row_digest};
use crate::scrub::{ScrubReport, Scrubber};
use crate::shards::{ShardSettings, ShardWriter};
use crate::split::Split;
use crate::stats::Stats;
use crate::{DatasetError, Row, read};

/// Write those rows of the dataset `from` for which `keep` returns true to the dataset `to`, in the same order
/// and splits, scrubbed by [`Scrubber::of_machine`]. An existing `to` is replaced atomically. The dataset is read twice,
/// so `keep` is called twice per row, with the row's number from 0. The kept rows are compared with the known benchmarks.
///
/// # Errors
/// Invalid shards in `from`, or a split whose name `load_dataset` would refuse; I/O errors.
pub fn rewrite(
    from: &Path,
    to: &Path,
    keep: impl Fn(usize, &Row) -> bool,
    settings: &ShardSettings,
    info: &CardInfo,
    file_search: &FileSearch,
) -> Result<WrittenDataset, DatasetError> {
    let kept = || -> Result<_, DatasetError> {
        let rows = read::dataset(from)?.enumerate();
        Ok(rows.filter_map(|(number, row)| match row {
            Ok((split, row)) => keep(number, &row).then_some(Ok((split, row))),
            Err(error) => Some(Err(error)),
        }))
    };
    let mut counts = BTreeMap::from([("train".to_owned(), 0)]);
    for row in kept()? {
        *counts.entry(row?.0).or_default() += 1;
    }
    let folder = StagingFolder::create(to)?;
    let data = folder.path().join("data");
    fs::create_dir(&data).map_err(DatasetError::io(&data))?;
    let scrubber = Scrubber::of_machine();
    let mut copy = Copy::new(&data, counts, settings, (&scrubber, file_search))?;
    for row in kept()? {
        let (split, row) = row?;
        copy.add(&split, row)?;
    }
    let (mut written, files) = copy.finish()?;
    let included = from.join(FILES_DIR);
    if included.is_dir() {
        let store = ContentStore::open(&included)
            .map_err(|error| DatasetError::Setting(format!("{}: {error}", included.display())))?;
        let to = folder.path().join(FILES_DIR);
        dataset::copy_input_files(&to, files, &store, &scrubber, &mut written)?;
    }
    folder.finish(info, written, to)
}

/// The rows written so far.
struct Copy<'a> {
    scrubber: &'a Scrubber,
    file_search: &'a FileSearch,
    splits: BTreeMap<String, (ShardWriter, Stats)>,
    digest: DatasetDigest,
    scrub: ScrubReport,
    search: BenchmarkSearch,
    /// Input files by digest.
    files: BTreeMap<Digest, TaskFile>,
    /// Files whose licenses were counted.
    licensed: HashSet<u64>,
}

impl<'a> Copy<'a> {
    fn new(
        folder: &Path,
        counts: BTreeMap<String, usize>,
        settings: &ShardSettings,
        (scrubber, file_search): (&'a Scrubber, &'a FileSearch),
    ) -> Result<Self, DatasetError> {
        let splits = counts.into_iter().map(|(name, rows)| {
            if !is_split_name(&name) {
                return Err(DatasetError::Setting(format!(
                    "invalid name of a split: {name:?}; rename its shards with letters, digits and underscores"
                )));
            }
            let writer = ShardWriter::new(folder, &name, rows, settings)?;
            Ok((name, (writer, Stats::default())))
        });
        Ok(Self {
            scrubber,
            file_search,
            splits: splits.collect::<Result<_, _>>()?,
            digest: DatasetDigest::default(),
            scrub: ScrubReport::default(),
            search: BenchmarkSearch::default(),
            files: BTreeMap::new(),
            licensed: HashSet::new(),
        })
    }

    fn add(&mut self, split: &str, mut row: Row) -> Result<(), DatasetError> {
        let found = self.scrubber.row(&mut row);
        self.scrub.rows += usize::from(found.total() > 0);
        self.scrub.found.merge(&found);
        self.digest.add(split, &row_digest(&row));
        self.search.add(RowPrint::of(&row, self.file_search));
        let mut one = Stats::of([&row]);
        one.licenses.clear();
        for file in &row.files {
            if self.licensed.insert(file.blake3.seed()) {
                let license = file.license.clone().unwrap_or_else(|| "not stated".into());
                *one.licenses.entry(license).or_default() += 1;
            }
        }
        for file in row.all_files() {
            self.files.entry(file.id.clone()).or_insert(file);
        }
        let of_split = self.splits.get_mut(split);
        let (writer, stats) = of_split.ok_or_else(|| changed(split))?;
        stats.merge(&one);
        writer.add(row)
    }

    fn finish(self) -> Result<(WrittenDataset, BTreeMap<Digest, TaskFile>), DatasetError> {
        let mut splits = BTreeMap::new();
        for (name, (writer, stats)) in self.splits {
            writer.finish()?;
            splits.insert(name, stats);
        }
        let mut of_split = |name| splits.remove(name).unwrap_or_default();
        let written = WrittenDataset {
            train: of_split("train"),
            test: of_split("test"),
            others: splits,
            digest: self.digest.digest(),
            split: Split::default(),
            diversity: Diversity::default(),
            scrub: self.scrub,
            benchmarks: self.search.finish(self.file_search),
            files: (0, 0),
        };
        Ok((written, self.files))
    }
}

/// The rule of the Python library `datasets`.
fn is_split_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut characters = word.bytes();
        !word.is_empty() && characters.all(|c| c.is_ascii_alphanumeric() || c == b'_')
    };
    name.split('.').all(is_word)
}

fn changed(split: &str) -> DatasetError {
    DatasetError::Setting(format!(
        "the dataset changed while it was read: the split {split} is new"
    ))
}
