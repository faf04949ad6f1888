//! The file of a task set: where its usable lines are, and what is wrong with the others.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use pybench_files::open_regular;
use pybench_run::{Failure, FailureKind, RunError};
use pybench_types::id::{CompactDigest, Digest};

use super::row::{Answer, Row};
use super::spec::SetSpec;

/// Maximum length of a line, in bytes.
const MAX_LINE: usize = 4 << 20;
/// Maximum number of lines.
const MAX_LINES: u64 = 5_000_000;
/// Unusable lines that a message shows.
const SHOWN: usize = 5;

/// The usable lines of a file.
#[derive(Debug)]
pub(super) struct SetList {
    pub spec: SetSpec,
    pub lines: Vec<SetLine>,
    /// Whether tests of any line call functions: their reference refuses some tests.
    pub has_function_tests: bool,
}

/// A usable line.
#[derive(Clone, Debug)]
pub(super) struct SetLine {
    /// From 1.
    pub number: u64,
    offset: u64,
    bytes: usize,
    digest: Digest,
}

impl SetLine {
    /// Name of its unit of work; a changed line is another unit.
    pub(super) fn item(&self, set: &str) -> String {
        format!("{set}#{}:{}", self.number, self.digest.short())
    }

    /// A digest of set, seed and content that orders lines.
    pub(super) fn draw(&self, seed: u64, set: &str) -> Digest {
        Digest::of_json(&(seed, "task set", set, self.number, &self.digest))
    }
}

impl SetList {
    /// Reads a file and checks every line. Lines are not kept.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file cannot be read or has more unusable lines than the recipe allows.
    pub(super) fn open(spec: SetSpec) -> Result<Self, RunError> {
        let path = spec.path.clone();
        let name = spec.name.clone();
        let unreadable = |error: std::io::Error| {
            RunError::BadInput(format!(
                "query.task_sets, `{name}`: {} cannot be read: {error}; correct `path`, which is relative to the project \
                 root",
                path.display()
            ))
        };
        let mut reader = BufReader::new(open_regular(&path).map_err(unreadable)?);
        let mut found = Found::default();
        let (mut number, mut offset) = (0, 0);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut reader).take(MAX_LINE as u64 + 1);
            let bytes = limited.read_until(b'\n', &mut line).map_err(unreadable)?;
            if bytes == 0 {
                break;
            }
            number += 1;
            if number > MAX_LINES || bytes > MAX_LINE {
                let limit = match bytes > MAX_LINE {
                    true => format!("the line has more than {MAX_LINE} bytes"),
                    false => format!("the file has more than {MAX_LINES} lines"),
                };
                return Err(RunError::BadInput(format!(
                    "{}:{number}: {limit}; split it",
                    path.display()
                )));
            }
            let content = trimmed(&line, number);
            let skipped = content.is_empty() || spec.is_header(number);
            if !skipped {
                let at = SetLine {
                    number,
                    offset,
                    bytes,
                    digest: Digest::of_bytes(content),
                };
                found.take(at, content, &spec);
            }
            offset += bytes as u64;
        }
        found.finish(spec)
    }

    /// Reads a line again.
    ///
    /// # Errors
    /// The file has changed since it was opened.
    pub(super) fn row(&self, line: &SetLine) -> Result<Row, Failure> {
        let path = self.spec.path.display();
        let changed = |reason: String| {
            let text = format!(
                "{path}:{}: {reason}; the file has changed, run the command again",
                line.number
            );
            Failure::new(FailureKind::Item, text)
        };
        let bytes = read_at(&self.spec.path, line.offset, line.bytes)
            .map_err(|error| changed(error.to_string()))?;
        let content = trimmed(&bytes, line.number);
        if Digest::of_bytes(content) != line.digest {
            return Err(changed("the line is another one".into()));
        }
        self.spec.row(content).map_err(changed)
    }
}

fn read_at(path: &Path, offset: u64, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut file: File = open_regular(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut line = vec![0; bytes];
    file.read_exact(&mut line)?;
    Ok(line)
}

/// A line without its end, and the first one without a byte order mark.
fn trimmed(line: &[u8], number: u64) -> &[u8] {
    let line = match number {
        1 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
        _ => line,
    };
    line.trim_ascii()
}

/// What has been found so far.
#[derive(Default)]
struct Found {
    lines: Vec<SetLine>,
    has_function_tests: bool,
    /// The first lines that are unusable, with the reason.
    bad: Vec<(u64, String)>,
    bad_count: usize,
    /// Number of rows of other splits.
    not_training: usize,
    /// Line of each id.
    ids: HashMap<CompactDigest, u64>,
    /// Files that are there, or not.
    files: HashMap<PathBuf, bool>,
}

impl Found {
    fn take(&mut self, line: SetLine, content: &[u8], spec: &SetSpec) {
        let row = spec.row(content);
        if row.as_ref().is_ok_and(|row| !spec.is_training(row)) {
            self.not_training += 1;
            return;
        }
        match self.problem(&line, row, spec) {
            None => self.lines.push(line),
            Some(problem) => {
                self.bad_count += 1;
                if self.bad.len() < SHOWN {
                    self.bad.push((line.number, problem));
                }
            }
        }
    }

    fn problem(
        &mut self,
        line: &SetLine,
        row: Result<Row, String>,
        spec: &SetSpec,
    ) -> Option<String> {
        let row = match row {
            Ok(row) => row,
            Err(problem) => return Some(problem),
        };
        if let Some(problem) = spec.problem(&row) {
            return Some(problem);
        }
        self.has_function_tests |=
            matches!(&row.answer, Answer::Tests(tests) if tests.call_functions());
        let missing = row.files.iter().find(|file| !self.is_there(file, spec));
        if let Some(file) = missing {
            return Some(format!(
                "there is no file {}; correct the path, or set `folder`",
                spec.folder.join(file).display()
            ));
        }
        let id = row.id.as_ref()?;
        let first = self.ids.insert(
            CompactDigest::from(&Digest::of_bytes(id.as_bytes())),
            line.number,
        )?;
        Some(format!("the id `{id}` is that of line {first} too"))
    }

    fn is_there(&mut self, file: &Path, spec: &SetSpec) -> bool {
        if let Some(known) = self.files.get(file) {
            return *known;
        }
        let there = spec.folder.join(file).is_file();
        self.files.insert(file.to_owned(), there);
        there
    }

    fn finish(self, spec: SetSpec) -> Result<SetList, RunError> {
        let (name, path) = (&spec.name, spec.path.display());
        let shown = self
            .bad
            .iter()
            .map(|(number, problem)| format!("\n  {path}:{number}: {problem}"));
        let mut shown: String = shown.collect();
        if self.bad_count > self.bad.len() {
            shown += &format!("\n  … and {} more", self.bad_count - self.bad.len());
        }
        let all = self.bad_count + self.lines.len();
        let count = format!(
            "query.task_sets, `{name}`: {} of {all} lines cannot be used",
            self.bad_count
        );
        if self.bad_count > spec.max_bad_lines {
            return Err(RunError::BadInput(format!(
                "{count}, `max_bad_lines` allows {}:{shown}\ncorrect them, or set `max_bad_lines` to {} or more",
                spec.max_bad_lines, self.bad_count
            )));
        }
        if self.bad_count > 0 {
            tracing::warn!("{count} and are left out:{shown}");
        }
        if self.not_training > 0 {
            tracing::info!(
                "query.task_sets, `{name}`: {} lines are of other splits or of a benchmark, and are not used",
                self.not_training
            );
        }
        if self.lines.is_empty() {
            return Err(RunError::BadInput(format!(
                "query.task_sets, `{name}`: {path} has no usable line"
            )));
        }
        Ok(SetList {
            spec,
            lines: self.lines,
            has_function_tests: self.has_function_tests,
        })
    }
}
