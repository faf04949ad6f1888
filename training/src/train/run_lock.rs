//! The lock of a run folder, in which one trainer writes at a time.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::exit::conflict;

/// How long a trainer waits for another, which may have been told to stop and is completing its step.
const PATIENCE: Duration = Duration::from_secs(600);

/// Holds the lock of a run folder until it is dropped, or the process ends.
#[derive(Debug)]
pub(super) struct RunLock {
    _file: File,
}

impl RunLock {
    /// Waits until no other process trains in this folder.
    ///
    /// # Errors
    /// A conflict if one still does after ten minutes; I/O errors.
    pub(super) fn acquire(out: &Path) -> Result<Self> {
        let path = out.join("lock");
        let at = || path.display().to_string();
        let file = File::create(&path).with_context(at)?;
        let since = Instant::now();
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(conflict(format!(
                        "another process trains in {}; wait for its end, or choose another folder with --out",
                        out.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(error).with_context(at),
            }
            if !told {
                eprintln!(
                    "waiting for another process that trains in {}",
                    out.display()
                );
                told = true;
            }
            sleep(Duration::from_millis(50));
        }
    }
}
