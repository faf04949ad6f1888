//! How many calls were paid for, in a file next to the journal. If the journal has fewer, it lost some: its write-ahead
//! log was deleted, or an older copy was put in its place. A run that went on would pay again, beyond its budget.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::RunError;

/// Digits of the number. It is written in place, in one piece.
const DIGITS: usize = 19;

/// The file, and the number in it.
#[derive(Debug)]
pub(super) struct PaidCalls {
    file: File,
    path: PathBuf,
    count: AtomicU64,
}

impl PaidCalls {
    /// Opens or creates the file beside a journal that has `count` paid calls.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the journal lost calls; I/O errors.
    pub(super) fn open(path: &Path, journal: &str, count: u64) -> Result<Self, RunError> {
        let path = path.to_owned();
        let io = || RunError::io(path.display().to_string());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(io())?;
        let mut digits = [0; DIGITS];
        let read = file.read_at(&mut digits, 0).map_err(io())?;
        let noted = String::from_utf8_lossy(&digits[..read]);
        // A file that another program wrote says nothing.
        let noted: u64 = noted.trim().parse().unwrap_or(0);
        if noted > count {
            let path = path.display();
            return Err(RunError::BadInput(format!(
                "{journal} lost {} of {noted} paid calls: restore it from a backup (a SQLite file together with its -wal file), or \
                 start a new run with --run NAME; to go on and pay for these calls again, delete {path}",
                noted - count
            )));
        }
        let paid = Self {
            file,
            path,
            count: AtomicU64::new(count),
        };
        paid.write(count)?;
        Ok(paid)
    }

    /// Counts one more call, which the journal has committed.
    pub(super) fn add(&self) -> Result<(), RunError> {
        self.write(self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn write(&self, count: u64) -> Result<(), RunError> {
        let text = format!("{count:0DIGITS$}\n");
        let written = self.file.write_all_at(text.as_bytes(), 0);
        written.map_err(RunError::io(self.path.display().to_string()))
    }
}
