//! Where a recipe's documents come from, read one after another: nothing is held but the row at hand
//! and its batch.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::hub::{self, HubError};
use super::{Conversation, Message, Record, lines, notebook, table};

/// Most files of one source.
const FILES: usize = 1_000_000;
/// Most folders below one another.
const DEPTH: usize = 16;
/// Most messages of one conversation.
pub(super) const MESSAGES: usize = 10_000;
/// Kinds of files that are read.
const ENDINGS: [&str; 4] = ["parquet", "jsonl", "json", "ipynb"];

/// Where documents are read from: `path` or `hub`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What reports call it; the path or repository otherwise.
    #[serde(default)]
    pub name: Option<String>,
    /// A file, or a folder whose files are taken in order of their paths.
    #[serde(default)]
    pub path: PathBuf,
    /// A dataset repository of the Hub, `owner/name`, instead of `path`.
    #[serde(default)]
    pub hub: Option<String>,
    /// Branch, tag or commit of the repository; `main` otherwise.
    #[serde(default)]
    pub revision: Option<String>,
    /// Only files whose paths below the folder or in the repository begin so.
    #[serde(default)]
    pub prefix: String,
    /// How often its documents are seen in one epoch, relative to the others: 0.5 takes half of
    /// them (others in the next epoch), 2 takes each twice.
    #[serde(default = "one")]
    pub weight: f64,
    /// What its rows are.
    #[serde(default)]
    pub kind: Kind,
    /// The column with the messages or the text; found by itself where it has its usual name.
    #[serde(default)]
    pub column: Option<String>,
    /// What is known of it, so that a dry run can tell tokens and steps before it is there.
    #[serde(default)]
    pub about: Option<About>,
}

/// Known sizes of a source. Only a dry run without the data uses them, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Rows.
    #[serde(default)]
    pub documents: Option<u64>,
    /// Tokens of all.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Bytes of text, where nobody has counted tokens.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// What the rows of a source are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Conversations.
    #[default]
    Messages,
    /// Texts, such as the `content` column of starcoderdata, and notebooks (.ipynb).
    Text,
}

fn one() -> f64 {
    1.0
}

/// Why a source cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SourceError {
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{name}: no {} file{prefix}", ENDINGS.map(|e| format!(".{e}")).join(", "))]
    Empty { name: String, prefix: String },
    #[error("a source has `path` or `hub`: {name} has {has}")]
    Ambiguous { name: String, has: &'static str },
    #[error("{path}: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error("{place}: {reason}")]
    Row { place: String, reason: String },
    #[error(transparent)]
    Hub(#[from] HubError),
}

impl Source {
    /// A file or folder of conversations.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            weight: 1.0,
            ..Self::default()
        }
    }

    /// What reports call it.
    pub fn title(&self) -> String {
        let place = || match &self.hub {
            Some(hub) => hub.clone(),
            None => self.path.display().to_string(),
        };
        self.name.clone().unwrap_or_else(place)
    }

    /// Finds its files, and what they are called by content.
    pub fn locate(&self) -> Result<Located, SourceError> {
        let ambiguous = |has| {
            Err(SourceError::Ambiguous {
                name: self.title(),
                has,
            })
        };
        let (mut files, commit) = match (&self.hub, self.path.as_os_str().is_empty()) {
            (Some(_), false) => return ambiguous("both"),
            (None, true) => return ambiguous("neither"),
            (None, false) => (local(&self.path, &self.prefix)?, None),
            (Some(repository), true) => {
                let revision = self.revision.as_deref().unwrap_or("main");
                let snapshot = hub::snapshot(repository, revision)?;
                let wanted =
                    |path: &String| path.starts_with(&self.prefix) && is_data(Path::new(path));
                let commit = snapshot.commit().to_owned();
                (snapshot.files(wanted), Some(commit))
            }
        };
        files.sort_by(|one, other| one.name().cmp(other.name()));
        if files.is_empty() {
            return Err(SourceError::Empty {
                name: self.title(),
                prefix: match self.prefix.as_str() {
                    "" => String::new(),
                    prefix => format!(" that begins with {prefix}"),
                },
            });
        }
        Ok(Located {
            files,
            commit,
            kind: self.kind,
            column: self.column.clone(),
        })
    }
}

/// A file of a source, which may have to be fetched first.
#[derive(Clone, Debug)]
pub(super) enum DataFile {
    Local { path: PathBuf, name: String },
    Remote(hub::RemoteFile),
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
pub struct Located {
    files: Vec<DataFile>,
    commit: Option<String>,
    kind: Kind,
    column: Option<String>,
}

impl Located {
    /// A hash of all that its records depend on: contents of local files, the commit of a
    /// repository, names, and how they are read.
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

    /// Its records, in the order of its files and rows.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, SourceError>> + '_ {
        self.files.iter().flat_map(move |file| {
            let records = file.fetch().and_then(|path| self.open(path));
            // A file that cannot be opened is one error among the records.
            records.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
        })
    }

    fn open(&self, path: PathBuf) -> Result<Records, SourceError> {
        let column = self.column.clone();
        match ending(&path) {
            "ipynb" => Ok(Box::new(std::iter::once(notebook::read(&path)))),
            "parquet" => table::read(&path, self.kind, column),
            "json" => lines::read_array(&path, self.kind, column),
            _ => lines::read(&path, self.kind, column),
        }
    }
}

/// Records of one file.
pub(super) type Records = Box<dyn Iterator<Item = Result<Record, SourceError>> + Send>;

/// The conversations of a source, in the order of its files and rows; texts are left out.
pub fn read(source: &Source) -> Result<Vec<Conversation>, SourceError> {
    let located = source.locate()?;
    let conversation = |record| match record {
        Ok(Record::Conversation(conversation)) => Some(Ok(conversation)),
        Ok(Record::Text { .. }) => None,
        Err(error) => Some(Err(error)),
    };
    located.records().filter_map(conversation).collect()
}

pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> SourceError + '_ {
    move |error| SourceError::Io {
        path: path.into(),
        error,
    }
}

fn ending(path: &Path) -> &str {
    let ending = path.extension().and_then(|end| end.to_str());
    ending.unwrap_or_default()
}

fn is_data(path: &Path) -> bool {
    ENDINGS.contains(&ending(path))
}

/// Files below a folder, or the file itself. Hidden folders (checkpoints of notebooks) and links are
/// left alone.
fn local(root: &Path, prefix: &str) -> Result<Vec<DataFile>, SourceError> {
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
            if kind.is_dir() && !hidden && depth < DEPTH {
                folders.push((path, depth + 1));
                continue;
            }
            let name = path.strip_prefix(root).unwrap_or(&path);
            let name = name.to_string_lossy().into_owned();
            if path.is_file() && is_data(&path) && name.starts_with(prefix) {
                files.push(DataFile::Local { path, name });
            }
            if files.len() > FILES {
                let reason = format!("more than {FILES} files");
                let path = root.into();
                return Err(SourceError::Broken { path, reason });
            }
        }
    }
    Ok(files)
}

/// ShareGPT's names for the common roles.
pub(super) fn role(name: &str) -> &str {
    match name {
        "human" => "user",
        "gpt" => "assistant",
        other => other,
    }
}

/// Whether a column holds what is asked for, where no column was named.
pub(super) fn is_usual(kind: Kind, name: &str) -> bool {
    match kind {
        Kind::Messages => ["messages", "conversations"].contains(&name),
        Kind::Text => ["content", "text"].contains(&name),
    }
}

/// What to say where there is no such column.
pub(super) fn usual(kind: Kind) -> &'static str {
    match kind {
        Kind::Messages => "messages or conversations",
        Kind::Text => "content or text",
    }
}

/// A conversation with its bounds checked.
pub(super) fn conversation(
    messages: Vec<Message>,
    held_out_template: bool,
    place: String,
) -> Result<Record, SourceError> {
    if messages.len() > MESSAGES {
        let reason = format!("{} messages, more than {MESSAGES}", messages.len());
        return Err(SourceError::Row { place, reason });
    }
    Ok(Record::Conversation(Conversation {
        messages,
        held_out_template,
        place,
    }))
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
        let found = Source::at(folder.path()).locate().unwrap();
        let names: Vec<_> = found.files.iter().map(DataFile::name).collect();
        assert_eq!(names, ["a.jsonl", "b/z.ipynb"]);
        let found = Source {
            prefix: "b/".into(),
            ..Source::at(folder.path())
        };
        assert_eq!(found.locate().unwrap().files.len(), 1);
        let none = Source {
            prefix: "x".into(),
            ..Source::at(folder.path())
        };
        let error = none.locate().unwrap_err().to_string();
        assert!(error.contains("begins with x"), "{error}");
    }

    #[test]
    fn the_digest_is_that_of_the_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let digest = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Source::at(&path).locate().unwrap().digest().unwrap()
        };
        let first = digest("one");
        assert_ne!(first, digest("two"));
        assert_eq!(first, digest("one"));
    }

    #[test]
    fn a_source_has_one_place() {
        assert!(Source::default().locate().is_err());
        let both = Source {
            hub: Some("a/b".into()),
            ..Source::at("x")
        };
        assert!(both.locate().unwrap_err().to_string().contains("both"));
    }
}
