//! Tokenised documents on disk, mapped: a safetensors file of our own with the tokens of all
//! documents one after another, so that any of them is at hand without holding them in memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};
use tempfile::NamedTempFile;
use thiserror::Error;

use super::Facts;

/// What a token is to the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Prompts and the template's words.
    Prompt = 0,
    /// What a tool or the interpreter said.
    Observation = 1,
    /// What the model must produce.
    Trained = 2,
}

/// Why tokens cannot be kept or read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum StoreError {
    #[error("{path}: {error}; PYBENCH_CACHE names another place for the cache")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {reason}; delete it")]
    Broken { path: PathBuf, reason: String },
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + '_ {
    move |error| StoreError::Io {
        path: path.into(),
        error,
    }
}

/// Documents as tokens.
#[derive(Debug)]
pub struct TokenStore {
    map: Mmap,
    ids: Range<usize>,
    classes: Range<usize>,
    places: Range<usize>,
    /// One past each document's last token, and one past the last byte of its place.
    ends: Vec<(u64, u64)>,
    facts: Facts,
    key: String,
}

impl TokenStore {
    /// Opens a file that [`Writer`] wrote under this key.
    pub fn open(path: &Path, key: &str) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(io(path))?;
        // SAFETY: files of the cache are written aside, put in place by a rename and never changed.
        let map = unsafe { Mmap::map(&file) }.map_err(io(path))?;
        let broken = |reason: String| StoreError::Broken {
            path: path.into(),
            reason,
        };
        let parse = || {
            let (_, header) =
                SafeTensors::read_metadata(&map).map_err(|error| error.to_string())?;
            let tensors = SafeTensors::deserialize(&map).map_err(|error| error.to_string())?;
            let metadata = header.metadata().clone().unwrap_or_default();
            if metadata.get("key").map(String::as_str) != Some(key) {
                return Err("made of something else".to_owned());
            }
            let facts = metadata.get("facts").map_or("", String::as_str);
            let facts: Facts = serde_json::from_str(facts).map_err(|error| error.to_string())?;
            let range = |name: &str, dtype: Dtype| -> Result<Range<usize>, String> {
                let tensor = tensors.tensor(name).map_err(|error| error.to_string())?;
                if tensor.dtype() != dtype {
                    return Err(format!("{name} is {:?}", tensor.dtype()));
                }
                let start = tensor.data().as_ptr() as usize - map.as_ptr() as usize;
                Ok(start..start + tensor.data().len())
            };
            let (ids, classes) = (range("ids", Dtype::U32)?, range("classes", Dtype::U8)?);
            let places = range("places", Dtype::U8)?;
            let numbers = |range: Range<usize>| {
                let bytes = map[range].chunks_exact(8);
                bytes
                    .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
                    .collect::<Vec<_>>()
            };
            let token_ends = numbers(range("token_ends", Dtype::U64)?);
            let place_ends = numbers(range("place_ends", Dtype::U64)?);
            let sorted = token_ends.is_sorted() && place_ends.is_sorted();
            let whole = ids.len() == 4 * classes.len()
                && token_ends.len() == place_ends.len()
                && token_ends.last().copied().unwrap_or(0) == classes.len() as u64
                && place_ends.last().copied().unwrap_or(0) == places.len() as u64;
            if !(sorted && whole) {
                return Err("its parts do not fit together".into());
            }
            let ends = token_ends.into_iter().zip(place_ends).collect();
            Ok((ids, classes, places, ends, facts))
        };
        let (ids, classes, places, ends, facts) = parse().map_err(broken)?;
        Ok(Self {
            map,
            ids,
            classes,
            places,
            ends,
            facts,
            key: key.to_owned(),
        })
    }

    /// What it was made of, as a hash.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What tokenising saw.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn tokens(&self, document: usize) -> Range<usize> {
        let start = document
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].0);
        start as usize..self.ends[document].0 as usize
    }

    /// Tokens of a document.
    pub fn length(&self, document: usize) -> usize {
        self.tokens(document).len()
    }

    /// A document's tokens.
    pub fn ids(&self, document: usize) -> impl Iterator<Item = u32> + '_ {
        let tokens = self.tokens(document);
        let bytes = &self.map[self.ids.clone()][4 * tokens.start..4 * tokens.end];
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        bytes.chunks_exact(4).map(number)
    }

    /// What each of its tokens is to the loss, as numbers of [`Class`].
    pub fn classes(&self, document: usize) -> &[u8] {
        &self.map[self.classes.clone()][self.tokens(document)]
    }

    /// Where it came from.
    pub fn place(&self, document: usize) -> String {
        let start = document
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].1);
        let bytes = &self.map[self.places.clone()][start as usize..self.ends[document].1 as usize];
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Writes a [`TokenStore`], document by document.
pub(super) struct Writer {
    path: PathBuf,
    folder: PathBuf,
    ids: BufWriter<NamedTempFile>,
    classes: BufWriter<NamedTempFile>,
    places: BufWriter<NamedTempFile>,
    token_ends: Vec<u8>,
    place_ends: Vec<u8>,
    tokens: u64,
    place_bytes: u64,
}

impl Writer {
    /// A writer of that file; nothing stands there before [`Self::finish`].
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        let part = || {
            NamedTempFile::new_in(&folder)
                .map(BufWriter::new)
                .map_err(io(&folder))
        };
        Ok(Self {
            path: path.into(),
            ids: part()?,
            classes: part()?,
            places: part()?,
            folder,
            token_ends: vec![],
            place_ends: vec![],
            tokens: 0,
            place_bytes: 0,
        })
    }

    /// Adds a document.
    pub(super) fn add(
        &mut self,
        ids: &[u32],
        classes: &[u8],
        place: &str,
    ) -> Result<(), StoreError> {
        let mut write = || {
            for id in ids {
                self.ids.write_all(&id.to_le_bytes())?;
            }
            self.classes.write_all(classes)?;
            self.places.write_all(place.as_bytes())
        };
        write().map_err(io(&self.path))?;
        self.tokens += ids.len() as u64;
        self.place_bytes += place.len() as u64;
        self.token_ends.extend(self.tokens.to_le_bytes());
        self.place_ends.extend(self.place_bytes.to_le_bytes());
        Ok(())
    }

    /// Puts the file in place and opens it.
    pub(super) fn finish(self, key: &str, facts: &Facts) -> Result<TokenStore, StoreError> {
        let path = self.path;
        let tokens = self.tokens as usize;
        let (ids, classes) = (Part::close(self.ids), Part::close(self.classes));
        let (ids, classes) = (ids.map_err(io(&path))?, classes.map_err(io(&path))?);
        let places = Part::close(self.places).map_err(io(&path))?;
        let broken = |reason: String| StoreError::Broken {
            path: path.clone(),
            reason,
        };
        let documents = self.token_ends.len() / 8;
        let parts = [
            ("ids", Dtype::U32, tokens, ids.bytes()),
            ("classes", Dtype::U8, tokens, classes.bytes()),
            ("places", Dtype::U8, places.bytes().len(), places.bytes()),
            ("token_ends", Dtype::U64, documents, &self.token_ends[..]),
            ("place_ends", Dtype::U64, documents, &self.place_ends[..]),
        ];
        let views = parts.into_iter().map(|(name, dtype, length, bytes)| {
            TensorView::new(dtype, vec![length], bytes).map(|view| (name, view))
        });
        let views = views.collect::<Result<Vec<_>, _>>();
        let views = views.map_err(|error| broken(error.to_string()))?;
        let facts = serde_json::to_string(facts).map_err(|error| broken(error.to_string()))?;
        let metadata = HashMap::from([
            ("key".to_owned(), key.to_owned()),
            ("facts".to_owned(), facts),
        ]);
        let whole = NamedTempFile::new_in(&self.folder).map_err(io(&self.folder))?;
        serialize_to_file(views, Some(metadata), whole.path())
            .map_err(|error| broken(error.to_string()))?;
        let sync = || File::open(whole.path())?.sync_all();
        sync().map_err(io(&path))?;
        whole
            .persist(&path)
            .map_err(|error| io(&path)(error.error))?;
        TokenStore::open(&path, key)
    }
}

/// A written part, mapped; an empty file cannot be.
struct Part {
    map: Option<Mmap>,
    _file: NamedTempFile,
}

impl Part {
    fn close(writer: BufWriter<NamedTempFile>) -> std::io::Result<Self> {
        let file = writer.into_inner().map_err(|error| error.into_error())?;
        let empty = file.as_file().metadata()?.len() == 0;
        if empty {
            return Ok(Self {
                map: None,
                _file: file,
            });
        }
        // SAFETY: a temporary file of this process that nothing writes to any more.
        let map = unsafe { Mmap::map(file.as_file()) }?;
        Ok(Self {
            map: Some(map),
            _file: file,
        })
    }

    fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_broken_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/tokens");
        let documents: [(&[u32], &[u8], &str); 3] = [
            (&[7, 70_000, u32::MAX], &[0, 1, 2], "数据.jsonl:1"),
            (&[], &[], ""),
            (&[5], &[2], "x"),
        ];
        let mut writer = Writer::new(&path).unwrap();
        for (ids, classes, place) in documents {
            writer.add(ids, classes, place).unwrap();
        }
        let facts = Facts {
            records: 3,
            ..Facts::default()
        };
        writer.finish("key", &facts).unwrap();
        let store = TokenStore::open(&path, "key").unwrap();
        assert_eq!((store.len(), store.facts()), (3, &facts));
        for (number, (ids, classes, place)) in documents.into_iter().enumerate() {
            assert_eq!(store.ids(number).collect::<Vec<_>>(), ids);
            assert_eq!(
                (store.classes(number), store.place(number).as_str()),
                (classes, place)
            );
        }
        assert!(TokenStore::open(&path, "other").is_err());
        let bytes = fs::read(&path).unwrap();
        for length in [0, 8, 100, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(TokenStore::open(&path, "key").is_err(), "{length}");
        }
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "parts are left"
        );
    }

    #[test]
    fn a_store_without_documents_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let store = Writer::new(&path)
            .unwrap()
            .finish("key", &Facts::default())
            .unwrap();
        assert!(store.is_empty());
    }

    #[test]
    fn fuzz_token_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        bolero::check!().for_each(|noise: &[u8]| {
            fs::write(&path, noise).unwrap();
            let _ = TokenStore::open(&path, "key");
        });
    }
}
