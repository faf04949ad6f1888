//! Copies a dataset without some of its rows. Rows are streamed.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use pybench_run::ContentStore;

use crate::card::CardInfo;
use crate::dataset::{self, FILES_DIR, StagingFolder, WrittenDataset};
use crate::row_hashes::{DatasetDigest, row_digest};
use crate::scrub::{ScrubReport, Scrubber};
use crate::shards::{ShardSettings, ShardWriter};
use crate::split::Split;
use crate::stats::Stats;
use crate::{DatasetError, Row, read};

/// Write those rows of the dataset `from` for which `keep` returns true to the dataset `to`, in the same order
/// and splits. An existing `to` is replaced atomically. The dataset is read twice, so `keep` is called twice per
/// row, with the row's number from 0.
///
/// # Errors
/// Invalid shards in `from`; I/O errors.
pub fn rewrite(
    from: &Path,
    to: &Path,
    keep: impl Fn(usize, &Row) -> bool,
    settings: &ShardSettings,
    info: &CardInfo,
) -> Result<WrittenDataset, DatasetError> {
    let kept = || -> Result<_, DatasetError> {
        let rows = read::dataset(from)?.enumerate();
        Ok(rows.filter_map(|(number, row)| match row {
            Ok((split, row)) => keep(number, &row).then_some(Ok((split, row))),
            Err(error) => Some(Err(error)),
        }))
    };
    let (mut digest, mut train, mut test) =
        (DatasetDigest::default(), Stats::default(), Stats::default());
    let (mut files, mut seen) = (BTreeMap::new(), HashSet::new());
    for row in kept()? {
        let (split, row) = row?;
        digest.add(&split, &row_digest(&row));
        let mut one = Stats::of([&row]);
        one.licenses.clear();
        for file in row
            .files
            .iter()
            .filter(|file| seen.insert(file.blake3.seed()))
        {
            let license = file.license.clone().unwrap_or_else(|| "not stated".into());
            *one.licenses.entry(license).or_default() += 1;
        }
        let stats = match split == "train" {
            true => &mut train,
            false => &mut test,
        };
        stats.merge(&one);
        let all = row.files.iter().map(|file| file.as_task_file());
        for file in all.chain(row.grading.held_out) {
            files.entry(file.id.clone()).or_insert(file);
        }
    }
    let mut written = WrittenDataset {
        digest: digest.digest(),
        train,
        test,
        split: Split::default(),
        scrub: ScrubReport::default(),
        files: (0, 0),
    };
    let folder = StagingFolder::create(to)?;
    let data = folder.path().join("data");
    fs::create_dir(&data).map_err(DatasetError::io(&data))?;
    let mut train = ShardWriter::new(&data, "train", written.train.rows, settings)?;
    let mut test = ShardWriter::new(&data, "test", written.test.rows, settings)?;
    for row in kept()? {
        let (split, row) = row?;
        let writer = match split == "train" {
            true => &mut train,
            false => &mut test,
        };
        writer.add(row)?;
    }
    train.finish()?;
    if written.test.rows > 0 {
        test.finish()?;
    }
    let included = from.join(FILES_DIR);
    if included.is_dir() {
        let store = ContentStore::open(&included)
            .map_err(|error| DatasetError::Setting(format!("{}: {error}", included.display())))?;
        let to = folder.path().join(FILES_DIR);
        dataset::copy_input_files(&to, files, &store, &Scrubber::of_machine(), &mut written)?;
    }
    folder.finish(info, written, to)
}
