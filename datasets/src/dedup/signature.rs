//! MinHash signatures, in memory and on disk.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::DatasetError;
use crate::text::mix;

/// Number of minima in a signature.
pub const HASHES: usize = 128;
const BYTES: usize = HASHES * 4;

/// Value of a bin without shingles.
const EMPTY: u32 = u32::MAX;

/// A MinHash signature of a set of shingles, computed by one-permutation hashing with optimal densification
/// (Shrivastava 2017). Each shingle is hashed once, into one of [`HASHES`] bins, and each bin keeps its minimum. An
/// empty bin borrows the value of another bin; all sets probe the bins in the same order. Two sets agree in a bin
/// with a probability equal to their Jaccard similarity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(pub [u32; HASHES]);

impl Signature {
    /// The signature of a set of shingles. Duplicates are allowed. Check [`Signature::is_empty`] before comparing:
    /// the empty set is not similar to anything.
    pub fn of(shingles: &[u64]) -> Self {
        let mut own = [EMPTY; HASHES];
        for shingle in shingles {
            let hash = mix(*shingle);
            let least = &mut own[bin(hash)];
            *least = (*least).min((hash as u32).min(EMPTY - 1));
        }
        if shingles.is_empty() {
            return Self(own);
        }
        let filled = |at: usize| {
            let mut probe = at as u64;
            let mut value = own[at];
            while value == EMPTY {
                probe = mix(probe);
                value = own[bin(probe)];
            }
            value
        };
        Self(std::array::from_fn(filled))
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|least| *least == EMPTY)
    }

    /// The share of equal minima: an estimate of the Jaccard similarity with a standard deviation of at most 0.045.
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

fn bin(hash: u64) -> usize {
    (hash >> 32) as usize % HASHES
}

/// Writes signatures to disk.
pub(super) struct SignatureWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl SignatureWriter {
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
    /// Read the signature of one text.
    pub(super) fn get(&self, text: u32) -> Result<Signature, DatasetError> {
        let mut bytes = [0; BYTES];
        let at = u64::from(text) * BYTES as u64;
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(DatasetError::io(&self.path))?;
        Ok(Signature::from_bytes(&bytes))
    }

    /// Read all signatures in order.
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
