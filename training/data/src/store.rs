//! Tokenized documents in a memory-mapped safetensors file, so that any document can be read without loading
//! the others.

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

use crate::token_stats::TokenStats;

/// Determines the weight of a token in the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenClass {
    /// Prompts and template text.
    Prompt = 0,
    /// Output of a tool or of the interpreter.
    Observation = 1,
    /// Text that the model must produce.
    Trained = 2,
    /// A reply with the weight 0, which never has a loss.
    Context = 3,
}

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("{path}: {error}; set PYBENCH_CACHE to use another folder for the cache")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {reason}; delete the file and run again")]
    Broken { path: PathBuf, reason: String },
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + '_ {
    move |error| StoreError::Io {
        path: path.into(),
        error,
    }
}

#[derive(Debug)]
pub struct TokenStore {
    map: Mmap,
    ids: Range<usize>,
    classes: Range<usize>,
    locations: Range<usize>,
    /// End of each document in the tokens, and end of its text in the locations.
    ends: Vec<(u64, u64)>,
    stats: TokenStats,
    key: String,
}

impl TokenStore {
    /// Opens a file that [`TokenStoreWriter`] wrote with this key.
    pub fn open(path: &Path, key: &str) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(io(path))?;
        // SAFETY: cache files are renamed into place when complete, and never modified.
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
                return Err("it was made from other inputs".to_owned());
            }
            let stats = metadata.get("stats").map_or("", String::as_str);
            let stats: TokenStats =
                serde_json::from_str(stats).map_err(|error| error.to_string())?;
            let range = |name: &str, dtype: Dtype| -> Result<Range<usize>, String> {
                let tensor = tensors.tensor(name).map_err(|error| error.to_string())?;
                if tensor.dtype() != dtype {
                    return Err(format!("{name} is {:?}", tensor.dtype()));
                }
                let start = tensor.data().as_ptr() as usize - map.as_ptr() as usize;
                Ok(start..start + tensor.data().len())
            };
            let (ids, classes) = (range("ids", Dtype::U32)?, range("classes", Dtype::U8)?);
            let locations = range("locations", Dtype::U8)?;
            let numbers = |range: Range<usize>| {
                let bytes = map[range].chunks_exact(8);
                bytes
                    .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
                    .collect::<Vec<_>>()
            };
            let token_ends = numbers(range("token_ends", Dtype::U64)?);
            let location_ends = numbers(range("location_ends", Dtype::U64)?);
            let sorted = token_ends.is_sorted() && location_ends.is_sorted();
            let whole = ids.len() == 4 * classes.len()
                && token_ends.len() == location_ends.len()
                && token_ends.last().copied().unwrap_or(0) == classes.len() as u64
                && location_ends.last().copied().unwrap_or(0) == locations.len() as u64;
            if !(sorted && whole) {
                return Err("its tensors are inconsistent".into());
            }
            let ends = token_ends.into_iter().zip(location_ends).collect();
            Ok((ids, classes, locations, ends, stats))
        };
        let (ids, classes, locations, ends, stats) = parse().map_err(broken)?;
        Ok(Self {
            map,
            ids,
            classes,
            locations,
            ends,
            stats,
            key: key.to_owned(),
        })
    }

    /// The hash of the inputs.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn stats(&self) -> &TokenStats {
        &self.stats
    }

    fn tokens(&self, document: usize) -> Range<usize> {
        let start = document
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].0);
        start as usize..self.ends[document].0 as usize
    }

    pub fn length(&self, document: usize) -> usize {
        self.tokens(document).len()
    }

    pub fn ids(&self, document: usize) -> impl Iterator<Item = u32> + '_ {
        let tokens = self.tokens(document);
        let bytes = &self.map[self.ids.clone()][4 * tokens.start..4 * tokens.end];
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        bytes.chunks_exact(4).map(number)
    }

    /// The [`TokenClass`] of each token, as a number.
    pub fn classes(&self, document: usize) -> &[u8] {
        &self.map[self.classes.clone()][self.tokens(document)]
    }

    /// `file:row` of the source.
    pub fn location(&self, document: usize) -> String {
        let start = document
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].1);
        let bytes =
            &self.map[self.locations.clone()][start as usize..self.ends[document].1 as usize];
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Writes a [`TokenStore`] document by document.
pub(crate) struct TokenStoreWriter {
    path: PathBuf,
    folder: PathBuf,
    ids: BufWriter<NamedTempFile>,
    classes: BufWriter<NamedTempFile>,
    locations: BufWriter<NamedTempFile>,
    token_ends: Vec<u8>,
    location_ends: Vec<u8>,
    tokens: u64,
    location_bytes: u64,
}

impl TokenStoreWriter {
    /// The file appears at `path` when [`Self::finish`] is called.
    pub(crate) fn new(path: &Path) -> Result<Self, StoreError> {
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
            locations: part()?,
            folder,
            token_ends: vec![],
            location_ends: vec![],
            tokens: 0,
            location_bytes: 0,
        })
    }

    pub(crate) fn add(
        &mut self,
        ids: &[u32],
        classes: &[u8],
        location: &str,
    ) -> Result<(), StoreError> {
        let mut write = || {
            for id in ids {
                self.ids.write_all(&id.to_le_bytes())?;
            }
            self.classes.write_all(classes)?;
            self.locations.write_all(location.as_bytes())
        };
        write().map_err(io(&self.path))?;
        self.tokens += ids.len() as u64;
        self.location_bytes += location.len() as u64;
        self.token_ends.extend(self.tokens.to_le_bytes());
        self.location_ends.extend(self.location_bytes.to_le_bytes());
        Ok(())
    }

    /// Moves the file into place and opens it.
    pub(crate) fn finish(self, key: &str, stats: &TokenStats) -> Result<TokenStore, StoreError> {
        let path = self.path;
        let tokens = self.tokens as usize;
        let (ids, classes) = (TempPart::close(self.ids), TempPart::close(self.classes));
        let (ids, classes) = (ids.map_err(io(&path))?, classes.map_err(io(&path))?);
        let locations = TempPart::close(self.locations).map_err(io(&path))?;
        let broken = |reason: String| StoreError::Broken {
            path: path.clone(),
            reason,
        };
        let documents = self.token_ends.len() / 8;
        let parts = [
            ("ids", Dtype::U32, tokens, ids.bytes()),
            ("classes", Dtype::U8, tokens, classes.bytes()),
            (
                "locations",
                Dtype::U8,
                locations.bytes().len(),
                locations.bytes(),
            ),
            ("token_ends", Dtype::U64, documents, &self.token_ends[..]),
            (
                "location_ends",
                Dtype::U64,
                documents,
                &self.location_ends[..],
            ),
        ];
        let views = parts.into_iter().map(|(name, dtype, length, bytes)| {
            TensorView::new(dtype, vec![length], bytes).map(|view| (name, view))
        });
        let views = views.collect::<Result<Vec<_>, _>>();
        let views = views.map_err(|error| broken(error.to_string()))?;
        let stats = serde_json::to_string(stats).map_err(|error| broken(error.to_string()))?;
        let metadata = HashMap::from([
            ("key".to_owned(), key.to_owned()),
            ("stats".to_owned(), stats),
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

/// A complete temporary file, mapped unless it is empty.
struct TempPart {
    map: Option<Mmap>,
    _file: NamedTempFile,
}

impl TempPart {
    fn close(writer: BufWriter<NamedTempFile>) -> std::io::Result<Self> {
        let file = writer.into_inner().map_err(|error| error.into_error())?;
        let empty = file.as_file().metadata()?.len() == 0;
        if empty {
            return Ok(Self {
                map: None,
                _file: file,
            });
        }
        // SAFETY: a temporary file of this process, to which nothing writes any more.
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
    fn files_survive_a_round_trip_and_broken_ones_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/tokens");
        let documents: [(&[u32], &[u8], &str); 3] = [
            (&[7, 70_000, u32::MAX], &[0, 1, 2], "数据.jsonl:1"),
            (&[], &[], ""),
            (&[5], &[2], "x"),
        ];
        let mut writer = TokenStoreWriter::new(&path).unwrap();
        for (ids, classes, location) in documents {
            writer.add(ids, classes, location).unwrap();
        }
        let stats = TokenStats {
            records: 3,
            ..TokenStats::default()
        };
        writer.finish("key", &stats).unwrap();
        let store = TokenStore::open(&path, "key").unwrap();
        assert_eq!((store.len(), store.stats()), (3, &stats));
        for (number, (ids, classes, location)) in documents.into_iter().enumerate() {
            assert_eq!(store.ids(number).collect::<Vec<_>>(), ids);
            assert_eq!(
                (store.classes(number), store.location(number).as_str()),
                (classes, location)
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
    fn an_empty_store_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let store = TokenStoreWriter::new(&path)
            .unwrap()
            .finish("key", &TokenStats::default())
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
