//! What is to be in a repository: files with their hashes, the card, and what was found out on the way.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use pybench::run::RunError;

use crate::hub::{Content, Kind};

/// Most files told one by one.
const SHOWN: usize = 40;

/// A repository as it is to be.
#[derive(Clone, Debug)]
pub struct Package {
    /// What it holds.
    pub kind: Kind,
    /// What it is called.
    pub title: String,
    /// The files, by path.
    pub contents: Vec<Content>,
    /// The card.
    pub card: String,
    /// What was checked, and what was left out, in words.
    pub notes: Vec<String>,
    /// Whether a path of the repository is one that this program writes: what it no longer has is deleted
    /// there, and nothing else is.
    pub owns: fn(&str) -> bool,
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
        }
    }

    /// Add a file of this machine.
    pub(super) fn file(&mut self, path: &str, file: &Path) -> Result<(), RunError> {
        let content = Content::of_file(path.to_owned(), file.to_owned());
        let content = content.map_err(RunError::io(file.display().to_string()))?;
        self.contents.push(content);
        Ok(())
    }

    /// Add these bytes.
    pub(super) fn bytes(&mut self, path: &str, bytes: impl Into<Bytes>) -> Result<(), RunError> {
        let content = Content::of_bytes(path, bytes).map_err(RunError::io(path))?;
        self.contents.push(content);
        Ok(())
    }

    /// With its card, in the order of paths.
    pub(super) fn with_card(mut self, card: String) -> Result<Self, RunError> {
        self.bytes("README.md", card.clone())?;
        self.card = card;
        self.contents.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self)
    }

    /// All bytes.
    pub fn size(&self) -> u64 {
        self.contents.iter().map(|content| content.size).sum()
    }

    /// What would be sent: notes, files, card.
    pub fn told(&self) -> String {
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

/// Files with their sizes, the first of them by name.
pub(super) fn list<'a>(text: &mut String, files: impl Iterator<Item = (&'a str, u64)>, word: &str) {
    let mut left = (0_usize, 0);
    for (number, (path, size)) in files.enumerate() {
        match number < SHOWN {
            true => {
                let _ = writeln!(text, "  {word}{:>10}  {path}", bytes(size));
            }
            false => left = (left.0 + 1, left.1 + size),
        }
    }
    if left.0 > 0 {
        let _ = writeln!(text, "  {word}{:>10}  in {} more", bytes(left.1), left.0);
    }
}

/// A number of bytes for people.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}
