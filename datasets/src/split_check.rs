//! Checks that no two splits of a dataset have something in common.

use std::collections::{BTreeMap, HashMap};

use pybench_types::id::{CompactDigest, Digest};
use serde::Serialize;

use crate::dedup::{RowDeduplicator, RowTexts};
use crate::row::shared_keys;
use crate::{DatasetError, Row};

/// What rows of different splits have in common, as messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SplitLeaks {
    /// Files with the same digest or origin, or parts of one file.
    pub files: Vec<String>,
    /// Pictures that look the same.
    pub pictures: Vec<String>,
    /// Rows with nearly the same query and code.
    pub near_duplicates: Vec<String>,
}

impl SplitLeaks {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.pictures.is_empty() && self.near_duplicates.is_empty()
    }
}

/// Compares the splits of a dataset: add all rows, then call [`SplitCheck::finish`].
pub struct SplitCheck {
    files: Uses,
    pictures: Uses,
    texts: RowDeduplicator,
    /// Digest and split of each row.
    rows: Vec<(CompactDigest, u32)>,
    splits: Vec<String>,
    scratch: tempfile::TempDir,
}

impl SplitCheck {
    /// # Errors
    /// I/O errors of temporary files.
    pub fn new() -> Result<Self, DatasetError> {
        let scratch = tempfile::tempdir();
        let scratch = scratch.map_err(DatasetError::io("temporary folder".as_ref()))?;
        Ok(Self {
            files: Uses::default(),
            pictures: Uses::default(),
            texts: RowDeduplicator::by_both(scratch.path())?,
            rows: Vec::new(),
            splits: Vec::new(),
            scratch,
        })
    }

    /// Add the next row, with its digest and the keys of its pictures.
    ///
    /// # Errors
    /// I/O errors of temporary files.
    pub fn add(
        &mut self,
        split: &str,
        row: &Row,
        digest: &Digest,
        pictures: impl Iterator<Item = String>,
    ) -> Result<(), DatasetError> {
        let known = self.splits.iter().position(|name| name == split);
        let split = known.unwrap_or_else(|| {
            self.splits.push(split.to_owned());
            self.splits.len() - 1
        }) as u32;
        let name = || digest.short().to_owned();
        for key in shared_keys(row.all_files()) {
            self.files.add(key, split, name);
        }
        for key in pictures {
            self.pictures.add(key, split, name);
        }
        self.texts.add(&RowTexts::of(row), 0)?;
        self.rows.push((digest.into(), split));
        Ok(())
    }

    /// Compare the splits.
    ///
    /// # Errors
    /// I/O errors of temporary files.
    pub fn finish(self) -> Result<SplitLeaks, DatasetError> {
        let mut near_duplicates = Uses::default();
        for (keeper, members) in self.texts.finish()?.groups() {
            for row in members {
                let (digest, split) = &self.rows[row as usize];
                let name = || Digest::from(*digest).short().to_owned();
                near_duplicates.add(format!("cluster {keeper}"), *split, name);
            }
        }
        drop(self.scratch);
        Ok(SplitLeaks {
            files: self.files.leaks(&self.splits),
            pictures: self.pictures.leaks(&self.splits),
            near_duplicates: near_duplicates.leaks(&self.splits),
        })
    }
}

/// The splits in which each key occurs, with the first row there.
#[derive(Default)]
struct Uses(HashMap<String, BTreeMap<u32, String>>);

impl Uses {
    fn add(&mut self, key: String, split: u32, row: impl FnOnce() -> String) {
        let splits = self.0.entry(key).or_default();
        splits.entry(split).or_insert_with(row);
    }

    /// The keys that occur in more than one split, as `KEY: row ROW in train, row ROW in test`.
    fn leaks(self, names: &[String]) -> Vec<String> {
        let leaking = self.0.into_iter().filter(|(_, splits)| splits.len() > 1);
        let leaks = leaking.map(|(key, splits)| {
            let rows = splits.iter();
            let rows = rows.map(|(split, row)| format!("row {row} in {}", names[*split as usize]));
            format!("{key}: {}", rows.collect::<Vec<_>>().join(", "))
        });
        let mut leaks: Vec<String> = leaks.collect();
        leaks.sort();
        leaks
    }
}
