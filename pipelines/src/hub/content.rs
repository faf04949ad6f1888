//! A file on its way to a repository, and the hashes by which the Hub knows it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, Stream};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::hexadecimal;

/// Bytes at the beginning of a file by which the Hub decides how to keep it.
const SAMPLE: usize = 512;
/// Bytes read at once.
const PIECE: usize = 256 << 10;

/// Where the bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// Here.
    Bytes(Bytes),
}

/// A file of a repository, as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The path inside the repository.
    pub path: String,
    /// Its bytes.
    pub source: Source,
    /// How many they are.
    pub size: u64,
    /// By which large files are known.
    pub sha256: String,
    /// Git's hash of a blob, by which small files are known.
    pub blob: String,
    /// The first bytes.
    pub(super) sample: Vec<u8>,
}

impl Content {
    /// The bytes of a file, which is read once.
    ///
    /// # Errors
    /// Where it cannot be read, or changes meanwhile.
    pub fn of_file(path: String, file: PathBuf) -> io::Result<Self> {
        let opened = File::open(&file)?;
        let size = opened.metadata()?.len();
        Self::read(path, Source::File(file), opened, size)
    }

    /// Those bytes.
    ///
    /// # Errors
    /// None in practice.
    pub fn of_bytes(path: &str, bytes: impl Into<Bytes>) -> io::Result<Self> {
        let bytes = bytes.into();
        let (size, copy) = (bytes.len() as u64, bytes.clone());
        Self::read(path.to_owned(), Source::Bytes(bytes), copy.as_ref(), size)
    }

    fn read(path: String, source: Source, mut bytes: impl Read, size: u64) -> io::Result<Self> {
        let (mut sha256, mut blob) = (Sha256::new(), Sha1::new());
        blob.update(format!("blob {size}\0"));
        let (mut sample, mut piece, mut count) = (Vec::new(), vec![0; PIECE], 0);
        loop {
            let read = match bytes.read(&mut piece)? {
                0 => break,
                read => &piece[..read],
            };
            let wanted = SAMPLE.saturating_sub(sample.len()).min(read.len());
            sample.extend_from_slice(&read[..wanted]);
            sha256.update(read);
            blob.update(read);
            count += read.len() as u64;
        }
        if count != size {
            return Err(io::Error::other("the file changes while it is read"));
        }
        Ok(Self {
            path,
            source,
            size,
            sha256: hexadecimal(&sha256.finalize()),
            blob: hexadecimal(&blob.finalize()),
            sample,
        })
    }

    /// All bytes at once: for small files.
    pub(super) fn bytes(&self) -> io::Result<Bytes> {
        match &self.source {
            Source::Bytes(bytes) => Ok(bytes.clone()),
            Source::File(path) => Ok(std::fs::read(path)?.into()),
        }
    }

    /// That part of the bytes as they are read; what was handed out is added to `out`.
    pub(super) fn part(
        &self,
        from: u64,
        length: u64,
        out: Arc<AtomicU64>,
    ) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
        let source: Box<dyn Read + Send> = match &self.source {
            Source::Bytes(bytes) => {
                let end = (from + length).min(self.size) as usize;
                Box::new(io::Cursor::new(bytes.slice(from as usize..end)))
            }
            Source::File(path) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(from))?;
                Box::new(file.take(length))
            }
        };
        Ok(pieces(source, out))
    }
}

/// Bytes as they are read; how many were handed out is added to `out`.
pub(super) fn pieces(
    source: Box<dyn Read + Send>,
    out: Arc<AtomicU64>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(source, move |mut source| {
        let out = out.clone();
        async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; PIECE];
                let read = source.read(&mut piece)?;
                piece.truncate(read);
                Ok::<_, io::Error>((Bytes::from(piece), source))
            });
            let (piece, source) = read.await.map_err(io::Error::other)??;
            out.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Ok::<_, io::Error>((!piece.is_empty()).then_some((piece, source)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt as _;

    #[test]
    fn hashes_are_gits_and_sha256() {
        let empty = Content::of_bytes("a", "").unwrap();
        assert_eq!(empty.blob, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        let hello = Content::of_bytes("a", "hello\n").unwrap();
        assert_eq!(hello.blob, "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(
            hello.sha256,
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
        );
        assert_eq!((hello.size, hello.sample.as_slice()), (6, &b"hello\n"[..]));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "hello\n").unwrap();
        let same = Content::of_file("a".into(), file.clone()).unwrap();
        assert_eq!(
            (&same.blob, &same.sha256, &same.sample),
            (&hello.blob, &hello.sha256, &hello.sample)
        );
        let missing = Content::of_file("a".into(), folder.path().join("no"));
        assert!(missing.is_err());
    }

    #[tokio::test]
    async fn parts_are_parts() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..PIECE * 2 + 77).map(|n| (n % 251) as u8).collect();
        let file = folder.path().join("f");
        std::fs::write(&file, &bytes).unwrap();
        let of_file = Content::of_file("f".into(), file).unwrap();
        let of_bytes = Content::of_bytes("f", bytes.clone()).unwrap();
        let size = bytes.len() as u64;
        for content in [&of_file, &of_bytes] {
            for (from, length) in [(0, size), (5, 1000), (size - 3, 100), (size, 9), (0, 0)] {
                let out = Arc::new(AtomicU64::new(0));
                let stream = content.part(from, length, out.clone()).unwrap();
                let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
                let end = (from + length).min(size) as usize;
                assert_eq!(pieces.concat(), bytes[from as usize..end]);
                assert_eq!(out.load(Ordering::Relaxed), end as u64 - from);
            }
        }
    }
}
