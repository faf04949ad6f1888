//! Sets of shingles on disk, for the exact similarity of candidates.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::DatasetError;

/// Size of a shingle on disk. 32 bits of its hash are enough: within one text, hardly any two agree in them.
const SHINGLE_BYTES: usize = 4;
/// Size of the end of a set in the file of ends.
const END_BYTES: usize = 8;

/// A set of shingles, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShingleSet(Vec<u32>);

impl ShingleSet {
    pub(crate) fn of(shingles: &[u64]) -> Self {
        let mut set: Vec<u32> = shingles.iter().map(|hash| (hash >> 32) as u32).collect();
        set.sort_unstable();
        set.dedup();
        Self(set)
    }

    /// Number of distinct shingles.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The Jaccard similarity: common shingles by all shingles.
    pub(crate) fn jaccard(&self, other: &Self) -> f64 {
        let (mut a, mut b) = (self.0.as_slice(), other.0.as_slice());
        let mut common = 0;
        while let ([first, rest_a @ ..], [second, rest_b @ ..]) = (a, b) {
            match first.cmp(second) {
                Ordering::Less => a = rest_a,
                Ordering::Greater => b = rest_b,
                Ordering::Equal => {
                    common += 1;
                    (a, b) = (rest_a, rest_b);
                }
            }
        }
        let all = self.0.len() + other.0.len() - common;
        common as f64 / all.max(1) as f64
    }
}

/// Writes sets to disk: one file with all shingles, one with the end of each set.
pub(super) struct SetWriter {
    shingles: BufWriter<File>,
    ends: BufWriter<File>,
    end: u64,
    path: PathBuf,
}

impl SetWriter {
    pub(super) fn new(folder: &Path) -> Result<Self, DatasetError> {
        let path = folder.join("shingles");
        let create = |path: &Path| {
            let file = File::create(path).map_err(DatasetError::io(path))?;
            Ok::<_, DatasetError>(BufWriter::with_capacity(1 << 20, file))
        };
        Ok(Self {
            shingles: create(&path)?,
            ends: create(&path.with_file_name("ends"))?,
            end: 0,
            path,
        })
    }

    pub(super) fn add(&mut self, set: &ShingleSet) -> Result<(), DatasetError> {
        self.end += set.0.len() as u64;
        let mut shingles = set.0.iter();
        let written = shingles
            .try_for_each(|shingle| self.shingles.write_all(&shingle.to_le_bytes()))
            .and_then(|()| self.ends.write_all(&self.end.to_le_bytes()));
        written.map_err(DatasetError::io(&self.path))
    }

    pub(super) fn finish(mut self) -> Result<Sets, DatasetError> {
        let flushed = self.shingles.flush().and_then(|()| self.ends.flush());
        flushed.map_err(DatasetError::io(&self.path))?;
        let open = |path: &Path| File::open(path).map_err(DatasetError::io(path));
        Ok(Sets {
            shingles: open(&self.path)?,
            ends: open(&self.path.with_file_name("ends"))?,
            path: self.path,
        })
    }
}

/// Sets on disk.
pub(super) struct Sets {
    shingles: File,
    ends: File,
    path: PathBuf,
}

impl Sets {
    /// Read the set of one text.
    pub(super) fn get(&self, text: u32) -> Result<ShingleSet, DatasetError> {
        let set = self.read(u64::from(text));
        set.map_err(DatasetError::io(&self.path))
    }

    fn read(&self, text: u64) -> std::io::Result<ShingleSet> {
        let from = match text {
            0 => 0,
            _ => self.end(text - 1)?,
        };
        let count = (self.end(text)? - from) as usize;
        let mut bytes = vec![0; count * SHINGLE_BYTES];
        self.shingles
            .read_exact_at(&mut bytes, from * SHINGLE_BYTES as u64)?;
        let (fours, _) = bytes.as_chunks::<SHINGLE_BYTES>();
        Ok(ShingleSet(
            fours.iter().map(|four| u32::from_le_bytes(*four)).collect(),
        ))
    }

    fn end(&self, text: u64) -> std::io::Result<u64> {
        let mut end = [0; END_BYTES];
        self.ends.read_exact_at(&mut end, text * END_BYTES as u64)?;
        Ok(u64::from_le_bytes(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::mix;

    #[test]
    fn sets_are_read_back_and_compared() {
        let sets = [0..0, 0..4, 2..6, 10..11].map(|numbers: std::ops::Range<u64>| {
            ShingleSet::of(&numbers.clone().chain(numbers).map(mix).collect::<Vec<_>>())
        });
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SetWriter::new(folder.path()).unwrap();
        sets.iter().for_each(|set| writer.add(set).unwrap());
        let read = writer.finish().unwrap();
        let read: Vec<_> = (0..4).map(|text| read.get(text).unwrap()).collect();
        assert_eq!(read, sets);
        assert_eq!(sets[1].jaccard(&sets[2]), 2.0 / 6.0);
        assert_eq!(sets[1].jaccard(&sets[1]), 1.0);
        assert_eq!(sets[1].jaccard(&sets[3]), 0.0);
    }
}
