//! Reading and writing the file of records. Reading enforces size limits; writing is atomic.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use pybench_run::replace_file;
use pybench_types::id::Digest;
use serde::Deserialize;

use super::{Attempt, EvalFingerprint, Evaluation};
use crate::file_error::FileError;

/// Maximum line length, in bytes.
pub(super) const MAX_LINE: u64 = 4 << 20;
/// Maximum number of records per file.
const MAX_RECORDS: usize = 1_000_000;
/// Maximum file size, in bytes.
const MAX_BYTES: u64 = 4 << 30;

impl Evaluation {
    /// Reads a file of records.
    ///
    /// # Errors
    /// I/O errors, invalid records, and files beyond the size limits, with the line.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let io = FileError::io(path);
        let file = File::open(path).map_err(io)?;
        read_lines(BufReader::new(file)).map_err(|problem| match problem {
            ReadError::Io(source) => io(source),
            ReadError::Line(line, problem) => FileError::line(path)((line, problem)),
        })
    }

    /// Writes the header and the records, replacing the file atomically.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let io = FileError::io(path);
        replace_file(path, |out| self.write_to(out)).map_err(io)
    }

    pub(super) fn write_to(&self, out: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, &self.fingerprint)?;
        writeln!(out)?;
        for attempt in &self.attempts {
            serde_json::to_writer(&mut *out, attempt)?;
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Why records could not be read: an I/O error, or a line and what is wrong with it.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(std::io::Error),
    Line(usize, String),
}

pub(super) fn read_lines(reader: impl BufRead) -> Result<Evaluation, ReadError> {
    let mut lines = LineReader {
        reader: reader.take(MAX_BYTES),
        number: 0,
    };
    let header = lines.next_line()?;
    let header =
        header.ok_or_else(|| lines.problem("the file is empty; expected a header line"))?;
    let fingerprint: EvalFingerprint = lines.parse(&header)?;
    let (mut attempts, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(line) = lines.next_line()? {
        let attempt: Attempt = lines.parse(&line)?;
        if attempts.len() == MAX_RECORDS {
            return Err(lines.problem(&format!("the file has more than {MAX_RECORDS} records")));
        }
        if let Some(problem) = attempt.problem(&fingerprint) {
            return Err(lines.problem(&problem));
        }
        let key = (&attempt.agent, &attempt.suite, &attempt.task, attempt.seed);
        if !seen.insert(Digest::of_json(&key)) {
            return Err(lines.problem(
                "duplicate record: agent, suite, task and seed already occur in this file",
            ));
        }
        attempts.push(attempt);
    }
    if lines.reader.limit() == 0 {
        return Err(lines.problem(&format!("the file is larger than {MAX_BYTES} bytes")));
    }
    Ok(Evaluation::new(fingerprint, attempts))
}

/// Reads lines of limited length and counts them.
struct LineReader<R> {
    reader: std::io::Take<R>,
    number: usize,
}

impl<R: BufRead> LineReader<R> {
    /// Returns the next line that is not blank.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut self.reader).take(MAX_LINE + 1);
            bounded
                .read_until(b'\n', &mut line)
                .map_err(ReadError::Io)?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 > MAX_LINE {
                return Err(self.problem(&format!("the line is longer than {MAX_LINE} bytes")));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn parse<T: for<'a> Deserialize<'a>>(&self, line: &[u8]) -> Result<T, ReadError> {
        serde_json::from_slice(line).map_err(|error| self.problem(&error.to_string()))
    }

    fn problem(&self, problem: &str) -> ReadError {
        ReadError::Line(self.number.max(1), problem.to_owned())
    }
}
