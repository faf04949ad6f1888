//! A dataset made from another by leaving rows out; everything streams.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use pybench::run::ContentStore;

use crate::card::About;
use crate::dataset::{self, FILES, Folder, Written};
use crate::proof::{Root, row_digest};
use crate::scrub::{Report, Scrubber};
use crate::shards::{ShardSettings, Writer};
use crate::split::Split;
use crate::stats::Stats;
use crate::{DatasetError, Row, read};

/// Write the rows of `from` that `keep` names, in their order and splits, as a dataset in `to`, which is
/// replaced in one step. `keep` is asked with the row's number, from 0, once in each of two readings.
///
/// # Errors
/// What is wrong with the shards of `from`; failures of the disk.
pub fn rewrite(
    from: &Path,
    to: &Path,
    keep: impl Fn(usize, &Row) -> bool,
    settings: &ShardSettings,
    about: &About,
) -> Result<Written, DatasetError> {
    let kept = || -> Result<_, DatasetError> {
        let rows = read::dataset(from)?.enumerate();
        Ok(rows.filter_map(|(number, row)| match row {
            Ok((split, row)) => keep(number, &row).then_some(Ok((split, row))),
            Err(error) => Some(Err(error)),
        }))
    };
    let (mut root, mut train, mut test) = (Root::default(), Stats::default(), Stats::default());
    let (mut files, mut seen) = (BTreeMap::new(), HashSet::new());
    for row in kept()? {
        let (split, row) = row?;
        root.add(&split, &row_digest(&row));
        let mut one = Stats::of([&row]);
        one.licences.clear();
        for file in row
            .files
            .iter()
            .filter(|file| seen.insert(file.blake3.seed()))
        {
            let licence = file.licence.clone().unwrap_or_else(|| "not stated".into());
            *one.licences.entry(licence).or_default() += 1;
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
    let mut written = Written {
        digest: root.digest(),
        train,
        test,
        split: Split::default(),
        scrub: Report::default(),
        files: (0, 0),
    };
    let folder = Folder::begin(to)?;
    let data = folder.path().join("data");
    fs::create_dir(&data).map_err(DatasetError::io(&data))?;
    let mut train = Writer::new(&data, "train", written.train.rows, settings)?;
    let mut test = Writer::new(&data, "test", written.test.rows, settings)?;
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
    let carried = from.join(FILES);
    if carried.is_dir() {
        let store = ContentStore::open(&carried)
            .map_err(|error| DatasetError::Setting(format!("{}: {error}", carried.display())))?;
        let to = folder.path().join(FILES);
        dataset::carry_files(&to, files, &store, &Scrubber::of_machine(), &mut written)?;
    }
    folder.finish(about, written, to)
}
