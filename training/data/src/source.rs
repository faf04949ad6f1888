//! The data sources of a recipe: local files or a dataset repository of the Hub, read as a stream.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::reader::{EXTENSIONS, RecordKind, Records, SourceError, io};
use crate::record::{Conversation, Record};
use crate::remote::fetch_remote;
use crate::{hub_dataset, lines, notebook, table};

const MAX_FILES: usize = 1_000_000;
const MAX_FOLDER_DEPTH: usize = 16;

/// Where documents are read from: `path` or `hub`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Name in reports. Default: the path or repository.
    #[serde(default)]
    pub name: Option<String>,
    /// A file, or a folder whose files are read in order of their paths; also in a bucket (`s3://`, `gs://`, `az://`) or on
    /// the Hub (`hf://`).
    #[serde(default)]
    pub path: PathBuf,
    /// A dataset repository of the Hub, `owner/name`, instead of `path`.
    #[serde(default)]
    pub hub: Option<String>,
    /// Branch, tag or commit of the repository. Default: `main`.
    #[serde(default)]
    pub revision: Option<String>,
    /// Reads only files whose paths in the folder or repository start with this.
    #[serde(default)]
    pub prefix: String,
    /// How often each document occurs in an epoch: 0.5 uses half of the documents (the other half in the
    /// next epoch), 2 uses each twice.
    #[serde(default = "one")]
    pub weight: f64,
    #[serde(default)]
    pub kind: RecordKind,
    /// The column with the messages or the text. Default: `messages` or `conversations`; `content` or `text`.
    #[serde(default)]
    pub column: Option<String>,
    /// The known size, so that a dry run can estimate tokens and steps without the data.
    #[serde(default)]
    pub size_hint: Option<SizeHint>,
}

/// The size of a source. Used only by a dry run without the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeHint {
    #[serde(default)]
    pub documents: Option<u64>,
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Bytes of text; used if `tokens` is unknown.
    #[serde(default)]
    pub bytes: Option<u64>,
}

fn one() -> f64 {
    1.0
}

impl Source {
    /// A local file or folder.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            weight: 1.0,
            ..Self::default()
        }
    }

    /// The name for reports.
    pub fn title(&self) -> String {
        let default = || match &self.hub {
            Some(hub) => hub.clone(),
            None => self.path.display().to_string(),
        };
        self.name.clone().unwrap_or_else(default)
    }

    /// Lists the files of the source.
    pub fn resolve(&self) -> Result<ResolvedSource, SourceError> {
        let ambiguous = |has| {
            Err(SourceError::Ambiguous {
                name: self.title(),
                has,
            })
        };
        let (mut files, commit) = match (&self.hub, self.path.as_os_str().is_empty()) {
            (Some(_), false) => return ambiguous("both"),
            (None, true) => return ambiguous("neither"),
            (None, false) => {
                let copy = fetch_remote(&self.path)?;
                let path = copy.as_deref().unwrap_or(&self.path);
                (local_files(path, &self.prefix)?, None)
            }
            (Some(repository), true) => {
                let revision = self.revision.as_deref().unwrap_or("main");
                let snapshot = hub_dataset::snapshot(repository, revision)?;
                let is_selected =
                    |path: &String| path.starts_with(&self.prefix) && is_data(Path::new(path));
                let commit = snapshot.commit().to_owned();
                let files = snapshot.files(is_selected);
                let files = files.into_iter().map(DataFile::Remote).collect();
                (files, Some(commit))
            }
        };
        files.sort_by(|one, other| one.name().cmp(other.name()));
        if files.is_empty() {
            return Err(SourceError::Empty {
                name: self.title(),
                prefix: match self.prefix.as_str() {
                    "" => String::new(),
                    prefix => format!(" whose path starts with {prefix}"),
                },
            });
        }
        Ok(ResolvedSource {
            files,
            commit,
            kind: self.kind,
            column: self.column.clone(),
        })
    }
}

/// A file of a source; a remote one may have to be downloaded.
#[derive(Clone, Debug)]
pub(crate) enum DataFile {
    Local { path: PathBuf, name: String },
    Remote(hub_dataset::RemoteFile),
}

impl DataFile {
    fn name(&self) -> &str {
        match self {
            Self::Local { name, .. } => name,
            Self::Remote(file) => file.name(),
        }
    }

    fn fetch(&self) -> Result<PathBuf, SourceError> {
        match self {
            Self::Local { path, .. } => Ok(path.clone()),
            Self::Remote(file) => Ok(file.fetch()?),
        }
    }
}

/// The files of a source.
#[derive(Clone, Debug)]
pub struct ResolvedSource {
    files: Vec<DataFile>,
    commit: Option<String>,
    kind: RecordKind,
    column: Option<String>,
}

impl ResolvedSource {
    /// A hash of everything that determines the records: contents of local files, the commit of a
    /// repository, file names, and the way they are read.
    pub fn digest(&self) -> Result<String, SourceError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{:?} {:?} {:?}", self.kind, self.column, self.commit).as_bytes());
        for file in &self.files {
            hasher.update(&(file.name().len() as u64).to_le_bytes());
            hasher.update(file.name().as_bytes());
            if let DataFile::Local { path, .. } = file {
                let mut content = blake3::Hasher::new();
                let read = std::fs::File::open(path)
                    .and_then(|file| content.update_reader(file).map(|_| ()));
                read.map_err(io(path))?;
                hasher.update(content.finalize().as_bytes());
            }
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// The records in order of files and rows.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, SourceError>> + '_ {
        self.files.iter().flat_map(move |file| {
            let records = file.fetch().and_then(|path| self.open(path));
            // A file that cannot be opened yields one error.
            records.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
        })
    }

    fn open(&self, path: PathBuf) -> Result<Records, SourceError> {
        let column = self.column.clone();
        match extension(&path) {
            "ipynb" => Ok(Box::new(std::iter::once(notebook::read(&path)))),
            "parquet" => table::read(&path, self.kind, column),
            "json" => lines::read_array(&path, self.kind, column),
            _ => lines::read(&path, self.kind, column),
        }
    }
}

/// The conversations of a source in order; plain texts are skipped.
pub fn read(source: &Source) -> Result<Vec<Conversation>, SourceError> {
    let located = source.resolve()?;
    let conversation = |record| match record {
        Ok(Record::Conversation(conversation)) => Some(Ok(conversation)),
        Ok(Record::Text { .. } | Record::Preference(_)) => None,
        Err(error) => Some(Err(error)),
    };
    located.records().filter_map(conversation).collect()
}

/// The difficulty of each conversation of a source that has one, by its location.
///
/// # Errors
/// As when the source is read.
pub fn difficulties(source: &Source) -> Result<HashMap<String, u32>, SourceError> {
    let located = source.resolve()?;
    let level = |record| match record {
        Ok(Record::Conversation(conversation)) if conversation.difficulty > 0 => {
            Some(Ok((conversation.location, conversation.difficulty)))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    };
    located.records().filter_map(level).collect()
}

fn extension(path: &Path) -> &str {
    let ending = path.extension().and_then(|end| end.to_str());
    ending.unwrap_or_default()
}

fn is_data(path: &Path) -> bool {
    EXTENSIONS.contains(&extension(path))
}

/// The files in a folder, or the file itself. Hidden folders (notebook checkpoints) and linked folders are
/// skipped.
fn local_files(root: &Path, prefix: &str) -> Result<Vec<DataFile>, SourceError> {
    if root.is_file() {
        let name = root.file_name().unwrap_or_default();
        return Ok(vec![DataFile::Local {
            path: root.into(),
            name: name.to_string_lossy().into_owned(),
        }]);
    }
    let mut files = vec![];
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(io(&folder))? {
            let entry = entry.map_err(io(&folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(io(&folder))?);
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && !hidden && depth < MAX_FOLDER_DEPTH {
                folders.push((path, depth + 1));
                continue;
            }
            let name = path.strip_prefix(root).unwrap_or(&path);
            let name = name.to_string_lossy().into_owned();
            if path.is_file() && is_data(&path) && name.starts_with(prefix) {
                files.push(DataFile::Local { path, name });
            }
            if files.len() > MAX_FILES {
                let reason = format!("more than {MAX_FILES} files");
                let path = root.into();
                return Err(SourceError::Broken { path, reason });
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_the_order_of_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("b/.ipynb_checkpoints")).unwrap();
        for name in [
            "b/z.ipynb",
            "b/.ipynb_checkpoints/z.ipynb",
            "a.jsonl",
            "c.txt",
        ] {
            std::fs::write(at(name), "").unwrap();
        }
        let found = Source::from_path(folder.path()).resolve().unwrap();
        let names: Vec<_> = found.files.iter().map(DataFile::name).collect();
        assert_eq!(names, ["a.jsonl", "b/z.ipynb"]);
        let found = Source {
            prefix: "b/".into(),
            ..Source::from_path(folder.path())
        };
        assert_eq!(found.resolve().unwrap().files.len(), 1);
        let none = Source {
            prefix: "x".into(),
            ..Source::from_path(folder.path())
        };
        let error = none.resolve().unwrap_err().to_string();
        assert!(error.contains("starts with x"), "{error}");
    }

    #[test]
    fn the_digest_depends_on_the_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let digest = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Source::from_path(&path)
                .resolve()
                .unwrap()
                .digest()
                .unwrap()
        };
        let first = digest("one");
        assert_ne!(first, digest("two"));
        assert_eq!(first, digest("one"));
    }

    #[test]
    fn a_source_has_a_path_or_a_repository() {
        assert!(Source::default().resolve().is_err());
        let both = Source {
            hub: Some("a/b".into()),
            ..Source::from_path("x")
        };
        assert!(both.resolve().unwrap_err().to_string().contains("both"));
    }
}
