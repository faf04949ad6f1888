//! A file while it is fetched from a store: its bytes are counted and digested as they arrive.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use pybench_types::id::DigestBuilder;
use tempfile::NamedTempFile;

use super::ExpectedFile;
use super::failure::StoreError;
use crate::replace::{finish_file, new_file};

/// Has a temporary name in the folder of its path, and is deleted if it is dropped before [`FetchedFile::finish`].
pub(super) struct FetchedFile<'a> {
    out: BufWriter<NamedTempFile>,
    size: u64,
    digest: DigestBuilder,
    expected: &'a ExpectedFile,
}

impl<'a> FetchedFile<'a> {
    pub(super) fn new(path: &Path, expected: &'a ExpectedFile) -> io::Result<Self> {
        Ok(Self {
            out: new_file(path)?,
            size: 0,
            digest: DigestBuilder::default(),
            expected,
        })
    }

    /// Moves the file to its path.
    ///
    /// # Errors
    /// [`StoreError::OtherDigest`] if it is not the expected one; I/O errors.
    pub(super) fn finish(self, path: &Path) -> Result<(), StoreError> {
        let found = self.digest.finish();
        match &self.expected.digest {
            Some(expected) if *expected != found => Err(StoreError::OtherDigest {
                expected: expected.clone(),
                found,
            }),
            _ => Ok(finish_file(self.out, path)?),
        }
    }
}

impl Write for FetchedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let max = self.expected.max;
        if bytes.len() as u64 > max - self.size {
            return Err(io::Error::other(StoreError::TooLarge(max)));
        }
        let written = self.out.write(bytes)?;
        self.size += written as u64;
        self.digest.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use pybench_types::id::Digest;

    use super::*;

    #[test]
    fn a_file_of_another_size_or_digest_does_not_appear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let expected = ExpectedFile {
            max: 3,
            ..ExpectedFile::with_digest(&Digest::of_bytes(b"abc"))
        };
        let fetch = |parts: &[&[u8]]| -> Result<(), StoreError> {
            let mut file = FetchedFile::new(&path, &expected)?;
            for part in parts {
                file.write_all(part)?;
            }
            file.finish(&path)
        };
        let error = fetch(&[b"ab", b"cd"]).unwrap_err();
        assert!(matches!(error, StoreError::TooLarge(3)), "{error}");
        for damaged in [&b"abd"[..], b"ab", b""] {
            let error = fetch(&[damaged]).unwrap_err().to_string();
            for digest in [&b"abc"[..], damaged].map(Digest::of_bytes) {
                assert!(error.contains(digest.as_str()), "{error}");
            }
        }
        // Nor does a temporary file stay.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        fetch(&[b"a", b"bc"]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    }
}
