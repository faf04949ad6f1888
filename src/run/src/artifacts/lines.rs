//! The lines of an artifact, one at a time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::checksum::{Checksum, ChecksumBuilder};
use crate::RunError;

/// The lines of an artifact, which are compared at the end with what was written.
pub(super) struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    checksum: ChecksumBuilder,
    /// Empty if an older version wrote the file.
    written: Vec<Checksum>,
    remedy: String,
    text: String,
    /// Number of the current line, from 1.
    number: usize,
    /// Offset of the end of the current line.
    end: u64,
}

impl Lines {
    /// Reads `file`, which is at `path`. `remedy` says what to do if it is not as it was written.
    pub(super) fn new(file: File, path: &Path, written: Vec<Checksum>, remedy: String) -> Self {
        Self {
            reader: BufReader::with_capacity(1 << 16, file),
            path: path.into(),
            checksum: ChecksumBuilder::default(),
            written,
            remedy,
            text: String::new(),
            number: 0,
            end: 0,
        }
    }

    /// The current line, with its end.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Offset of the current line.
    pub(super) fn start(&self) -> u64 {
        self.end - self.text.len() as u64
    }

    /// Path and number of the current line, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.number)
    }

    /// Reads the next line that is not empty.
    pub(super) fn next_line(&mut self) -> Result<Option<()>, RunError> {
        loop {
            self.text.clear();
            let read = self.reader.read_line(&mut self.text);
            let read = read.map_err(RunError::io(self.path.display().to_string()))?;
            if read == 0 {
                return self.check().map(|()| None);
            }
            self.number += 1;
            self.end += read as u64;
            self.checksum.add(self.text.as_bytes());
            if !self.text.trim().is_empty() {
                return Ok(Some(()));
            }
        }
    }

    fn check(&mut self) -> Result<(), RunError> {
        let found = std::mem::take(&mut self.checksum).finish();
        let Some(written) = self.written.last() else {
            return Ok(());
        };
        if self.written.contains(&found) {
            return Ok(());
        }
        let (path, remedy) = (self.path.display(), &self.remedy);
        Err(RunError::BadInput(match found.lines == written.lines {
            true => format!("{path} is not as it was written: its digest differs; {remedy}"),
            false => format!(
                "{path} has {} lines, but {} were written; {remedy}",
                found.lines, written.lines
            ),
        }))
    }
}
