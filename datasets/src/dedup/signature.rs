//! Signatures, in memory and on disk.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::DatasetError;
use crate::text::mix;

/// Minima of a signature.
pub const HASHES: usize = 128;
const BYTES: usize = HASHES * 4;

/// The mark of a place that no shingle fell into.
const EMPTY: u32 = u32::MAX;

/// One permutation of all shingles, cut into [`HASHES`] places: of each the least value of a set. A place
/// without one borrows that of another, and every set looks for it in the same order, so that two sets
/// agree in any place with a probability of the share of shingles that they have in common (optimal
/// densification, Shrivastava 2017). One hash a shingle, where as many functions would take 128.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(pub [u32; HASHES]);

impl Signature {
    /// The signature of a set, in which shingles may be repeated; that of the empty set is like no other,
    /// not even itself.
    pub fn of(shingles: &[u64]) -> Self {
        let mut own = [EMPTY; HASHES];
        for shingle in shingles {
            let hash = mix(*shingle);
            let least = &mut own[place(hash)];
            *least = (*least).min((hash as u32).min(EMPTY - 1));
        }
        if shingles.is_empty() {
            return Self(own);
        }
        let filled = |at: usize| {
            let mut turn = at as u64;
            let mut value = own[at];
            while value == EMPTY {
                turn = mix(turn);
                value = own[place(turn)];
            }
            value
        };
        Self(std::array::from_fn(filled))
    }

    /// Whether it is that of the empty set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|least| *least == EMPTY)
    }

    /// The share of minima that two have in common: an estimate of the share of shingles in common,
    /// with a standard deviation of at most 0.045.
    pub fn similarity(&self, other: &Self) -> f64 {
        let equal = self.0.iter().zip(&other.0).filter(|(a, b)| a == b);
        equal.count() as f64 / HASHES as f64
    }

    fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (four, least) in bytes.chunks_exact_mut(4).zip(self.0) {
            four.copy_from_slice(&least.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let mut fours = bytes.chunks_exact(4);
        Self(std::array::from_fn(|_| {
            let four = fours.next().and_then(|four| four.try_into().ok());
            u32::from_le_bytes(four.unwrap_or_default())
        }))
    }
}

/// The place that a hash falls into.
fn place(hash: u64) -> usize {
    (hash >> 32) as usize % HASHES
}

/// Signatures on their way to disk.
pub(super) struct Writer {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Writer {
    pub(super) fn new(folder: &Path) -> Result<Self, DatasetError> {
        let path = folder.join("signatures");
        let file = File::create(&path).map_err(DatasetError::io(&path))?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            path,
        })
    }

    pub(super) fn add(&mut self, signature: &Signature) -> Result<(), DatasetError> {
        let written = self.file.write_all(&signature.to_bytes());
        written.map_err(DatasetError::io(&self.path))
    }

    pub(super) fn finish(mut self) -> Result<Signatures, DatasetError> {
        self.file.flush().map_err(DatasetError::io(&self.path))?;
        let file = File::open(&self.path).map_err(DatasetError::io(&self.path))?;
        Ok(Signatures {
            file,
            path: self.path,
        })
    }
}

/// Signatures on disk.
pub(super) struct Signatures {
    file: File,
    pub(super) path: PathBuf,
}

impl Signatures {
    /// That of one text.
    pub(super) fn get(&self, text: u32) -> Result<Signature, DatasetError> {
        let mut bytes = [0; BYTES];
        let at = u64::from(text) * BYTES as u64;
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(DatasetError::io(&self.path))?;
        Ok(Signature::from_bytes(&bytes))
    }

    /// All, in order.
    pub(super) fn all(
        &self,
    ) -> Result<impl Iterator<Item = Result<Signature, DatasetError>>, DatasetError> {
        let file = File::open(&self.path).map_err(DatasetError::io(&self.path))?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let path = self.path.clone();
        Ok(std::iter::from_fn(move || {
            let mut bytes = [0; BYTES];
            match file.read_exact(&mut bytes) {
                Ok(()) => Some(Ok(Signature::from_bytes(&bytes))),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
                Err(error) => Some(Err(DatasetError::io(&path)(error))),
            }
        }))
    }
}
