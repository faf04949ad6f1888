//! The contents to publish: files with their hashes, the card, and notes about the checks.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pybench_run::RunError;
use tempfile::TempDir;

use pybench_hub::{Kind, UploadFile};

/// Maximum number of files listed individually.
const MAX_LISTED: usize = 40;

/// The contents of a repository to publish.
#[derive(Clone, Debug)]
pub struct Package {
    /// Whether it is a dataset or a model.
    pub kind: Kind,
    pub title: String,
    /// The files, sorted by path.
    pub contents: Vec<UploadFile>,
    /// Text of README.md.
    pub card: String,
    /// Notes for the user: what was checked, and what is missing.
    pub notes: Vec<String>,
    /// Whether this program manages a path in the repository. Managed files that are not in the package are deleted
    /// from the repository; other files are never deleted.
    pub owns: fn(&str) -> bool,
    /// A temporary folder with some of the files, which is deleted with the package.
    _temporary: Option<Arc<TempDir>>,
}

impl Package {
    pub(super) fn new(kind: Kind, title: String, owns: fn(&str) -> bool) -> Self {
        Self {
            kind,
            title,
            contents: Vec::new(),
            card: String::new(),
            notes: Vec::new(),
            owns,
            _temporary: None,
        }
    }

    /// Keep this folder until the files are sent.
    pub(super) fn keeping(mut self, temporary: Option<TempDir>) -> Self {
        self._temporary = temporary.map(Arc::new);
        self
    }

    /// Add a local file.
    pub(super) fn file(&mut self, path: &str, file: &Path) -> Result<(), RunError> {
        let content = UploadFile::of_file(path.to_owned(), file.to_owned());
        let content = content.map_err(RunError::io(file.display().to_string()))?;
        self.contents.push(content);
        Ok(())
    }

    /// Add a file with the given bytes.
    pub(super) fn bytes(&mut self, path: &str, bytes: impl Into<Bytes>) -> Result<(), RunError> {
        let content = UploadFile::of_bytes(path, bytes).map_err(RunError::io(path))?;
        self.contents.push(content);
        Ok(())
    }

    /// Add the card and sort the files.
    pub(super) fn with_card(mut self, card: String) -> Result<Self, RunError> {
        self.bytes("README.md", card.clone())?;
        self.card = card;
        self.contents.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self)
    }

    /// Total size in bytes.
    pub fn size(&self) -> u64 {
        self.contents.iter().map(|content| content.size).sum()
    }

    /// Describe the package: notes, files and card.
    pub fn summary(&self) -> String {
        let mut text = format!("{} {}\n", self.kind.word(), self.title);
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        let _ = writeln!(
            text,
            "{} files, {}:",
            self.contents.len(),
            bytes(self.size())
        );
        list(
            &mut text,
            self.contents.iter().map(|c| (c.path.as_str(), c.size)),
            "",
        );
        let _ = writeln!(
            text,
            "\n--- README.md ---\n{}--- end of README.md ---\n",
            self.card
        );
        text
    }
}

/// List files with their sizes. Only the first ones are listed individually.
pub(super) fn list<'a>(
    text: &mut String,
    files: impl Iterator<Item = (&'a str, u64)>,
    prefix: &str,
) {
    let mut left = (0_usize, 0);
    for (number, (path, size)) in files.enumerate() {
        match number < MAX_LISTED {
            true => {
                let _ = writeln!(text, "  {prefix}{:>10}  {path}", bytes(size));
            }
            false => left = (left.0 + 1, left.1 + size),
        }
    }
    if left.0 > 0 {
        let _ = writeln!(text, "  {prefix}{:>10}  in {} more", bytes(left.1), left.0);
    }
}

/// Format a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}
