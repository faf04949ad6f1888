//! A file to upload, with the hashes that identify it on the Hub.

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

/// Length of the sample by which the Hub decides how to store a file, in bytes.
const SAMPLE_SIZE: usize = 512;
/// Read size, in bytes.
const CHUNK_SIZE: usize = 256 << 10;

/// Where the bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentSource {
    File(PathBuf),
    Bytes(Bytes),
}

/// A file to upload to a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadFile {
    /// The path inside the repository.
    pub path: String,
    pub source: ContentSource,
    /// Size in bytes.
    pub size: u64,
    /// Identifies large files.
    pub sha256: String,
    /// The hash of the git blob; identifies small files.
    pub blob: String,
    /// The first 512 bytes.
    pub(super) sample: Vec<u8>,
}

impl UploadFile {
    /// Hashes a local file, which is read once.
    ///
    /// # Errors
    /// The file cannot be read, or it changes while it is read.
    pub fn of_file(path: String, file: PathBuf) -> io::Result<Self> {
        let opened = File::open(&file)?;
        let size = opened.metadata()?.len();
        Self::read(path, ContentSource::File(file), opened, size)
    }

    /// Hashes bytes in memory.
    ///
    /// # Errors
    /// None in practice.
    pub fn of_bytes(path: &str, bytes: impl Into<Bytes>) -> io::Result<Self> {
        let bytes = bytes.into();
        let (size, copy) = (bytes.len() as u64, bytes.clone());
        Self::read(
            path.to_owned(),
            ContentSource::Bytes(bytes),
            copy.as_ref(),
            size,
        )
    }

    fn read(
        path: String,
        source: ContentSource,
        mut bytes: impl Read,
        size: u64,
    ) -> io::Result<Self> {
        let (mut sha256, mut blob) = (Sha256::new(), Sha1::new());
        blob.update(format!("blob {size}\0"));
        let (mut sample, mut piece, mut count) = (Vec::new(), vec![0; CHUNK_SIZE], 0);
        loop {
            let read = match bytes.read(&mut piece)? {
                0 => break,
                read => &piece[..read],
            };
            let wanted = SAMPLE_SIZE.saturating_sub(sample.len()).min(read.len());
            sample.extend_from_slice(&read[..wanted]);
            sha256.update(read);
            blob.update(read);
            count += read.len() as u64;
        }
        if count != size {
            return Err(io::Error::other("the file changed while it was read"));
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

    /// Reads the whole content; for small files.
    pub(super) fn bytes(&self) -> io::Result<Bytes> {
        match &self.source {
            ContentSource::Bytes(bytes) => Ok(bytes.clone()),
            ContentSource::File(path) => Ok(std::fs::read(path)?.into()),
        }
    }

    /// Streams a part of the content. Adds the number of bytes handed out to `sent`.
    pub(super) fn part(
        &self,
        from: u64,
        length: u64,
        sent: Arc<AtomicU64>,
    ) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
        let source: Box<dyn Read + Send> = match &self.source {
            ContentSource::Bytes(bytes) => {
                let end = (from + length).min(self.size) as usize;
                Box::new(io::Cursor::new(bytes.slice(from as usize..end)))
            }
            ContentSource::File(path) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(from))?;
                Box::new(file.take(length))
            }
        };
        Ok(pieces(source, sent))
    }
}

/// Streams the bytes of a reader. Adds the number of bytes handed out to `sent`.
pub(super) fn pieces(
    source: Box<dyn Read + Send>,
    sent: Arc<AtomicU64>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(source, move |mut source| {
        let sent = sent.clone();
        async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; CHUNK_SIZE];
                let read = source.read(&mut piece)?;
                piece.truncate(read);
                Ok::<_, io::Error>((Bytes::from(piece), source))
            });
            let (piece, source) = read.await.map_err(io::Error::other)??;
            sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Ok::<_, io::Error>((!piece.is_empty()).then_some((piece, source)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt as _;

    #[test]
    fn hashes_match_git_and_sha256() {
        let empty = UploadFile::of_bytes("a", "").unwrap();
        assert_eq!(empty.blob, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        let hello = UploadFile::of_bytes("a", "hello\n").unwrap();
        assert_eq!(hello.blob, "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(
            hello.sha256,
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
        );
        assert_eq!((hello.size, hello.sample.as_slice()), (6, &b"hello\n"[..]));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "hello\n").unwrap();
        let same = UploadFile::of_file("a".into(), file.clone()).unwrap();
        assert_eq!(
            (&same.blob, &same.sha256, &same.sample),
            (&hello.blob, &hello.sha256, &hello.sample)
        );
        let missing = UploadFile::of_file("a".into(), folder.path().join("no"));
        assert!(missing.is_err());
    }

    #[tokio::test]
    async fn parts_of_a_file_are_streamed() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..CHUNK_SIZE * 2 + 77).map(|n| (n % 251) as u8).collect();
        let file = folder.path().join("f");
        std::fs::write(&file, &bytes).unwrap();
        let of_file = UploadFile::of_file("f".into(), file).unwrap();
        let of_bytes = UploadFile::of_bytes("f", bytes.clone()).unwrap();
        let size = bytes.len() as u64;
        for content in [&of_file, &of_bytes] {
            for (from, length) in [(0, size), (5, 1000), (size - 3, 100), (size, 9), (0, 0)] {
                let sent = Arc::new(AtomicU64::new(0));
                let stream = content.part(from, length, sent.clone()).unwrap();
                let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
                let end = (from + length).min(size) as usize;
                assert_eq!(pieces.concat(), bytes[from as usize..end]);
                assert_eq!(sent.load(Ordering::Relaxed), end as u64 - from);
            }
        }
    }
}
