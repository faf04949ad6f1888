//! The file of records: bounded when it is read, replaced in one step when it is written.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use pybench::id::Digest;
use serde::Deserialize;

use super::{Attempt, Evaluation, Frozen};
use crate::eval::lines::FileError;

/// Longest line that is read, bytes.
pub(super) const MOST_LINE: u64 = 4 << 20;
/// Most records of one file.
const MOST_RECORDS: usize = 1_000_000;
/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 4 << 30;

impl Evaluation {
    /// Read a file of records, within bounds.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let io = FileError::io(path);
        let file = File::open(path).map_err(io)?;
        read_lines(BufReader::new(file)).map_err(|problem| match problem {
            Problem::Io(source) => io(source),
            Problem::Line(line, problem) => FileError::line(path)((line, problem)),
        })
    }

    /// Write the file whole: the header, then a line each.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let io = FileError::io(path);
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        self.write_to(&mut file).map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }

    pub(super) fn write_to(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(out);
        serde_json::to_writer(&mut out, &self.frozen)?;
        writeln!(out)?;
        for attempt in &self.attempts {
            serde_json::to_writer(&mut out, attempt)?;
            writeln!(out)?;
        }
        out.flush()
    }
}

/// What is wrong with a stream of lines.
#[derive(Debug)]
pub(super) enum Problem {
    Io(std::io::Error),
    Line(usize, String),
}

pub(super) fn read_lines(reader: impl BufRead) -> Result<Evaluation, Problem> {
    let mut lines = Lines {
        reader: reader.take(MOST_BYTES),
        number: 0,
    };
    let header = lines.next_line()?;
    let header = header.ok_or_else(|| lines.problem("the file is empty: the header is missing"))?;
    let frozen: Frozen = lines.parse(&header)?;
    let (mut attempts, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(line) = lines.next_line()? {
        let attempt: Attempt = lines.parse(&line)?;
        if attempts.len() == MOST_RECORDS {
            return Err(lines.problem(&format!("more than {MOST_RECORDS} records")));
        }
        if let Some(problem) = attempt.problem(&frozen) {
            return Err(lines.problem(&problem));
        }
        let key = (&attempt.agent, &attempt.suite, &attempt.task, attempt.seed);
        if !seen.insert(Digest::of_json(&key)) {
            return Err(lines.problem("agent, suite, task and seed have a record already"));
        }
        attempts.push(attempt);
    }
    if lines.reader.limit() == 0 {
        return Err(lines.problem(&format!("the file exceeds {MOST_BYTES} bytes")));
    }
    Ok(Evaluation::new(frozen, attempts))
}

/// Lines of bounded length.
struct Lines<R> {
    reader: std::io::Take<R>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not blank.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut self.reader).take(MOST_LINE + 1);
            bounded.read_until(b'\n', &mut line).map_err(Problem::Io)?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 > MOST_LINE {
                return Err(self.problem(&format!("longer than {MOST_LINE} bytes")));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn parse<T: for<'a> Deserialize<'a>>(&self, line: &[u8]) -> Result<T, Problem> {
        serde_json::from_slice(line).map_err(|error| self.problem(&error.to_string()))
    }

    fn problem(&self, problem: &str) -> Problem {
        Problem::Line(self.number.max(1), problem.to_owned())
    }
}
