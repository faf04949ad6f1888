//! The folder of the indexes.

use std::fs::{File, read_dir, remove_file};
use std::path::Path;

use crate::index::UNFINISHED;

/// Says that this process makes indexes in the folder, until it is dropped. The first process deletes those that a kill left
/// unfinished; where folders cannot be locked, they stay.
pub(super) struct CacheClaim {
    _folder: File,
}

impl CacheClaim {
    /// `None` where folders cannot be locked.
    pub(super) fn take(cache: &Path) -> Option<Self> {
        let folder = File::open(cache).ok()?;
        if folder.try_lock().is_ok() {
            delete(cache, |name| name.ends_with(UNFINISHED));
            folder.unlock().ok()?;
        }
        folder.lock_shared().ok()?;
        Some(Self { _folder: folder })
    }
}

/// Deletes indexes of earlier states of the same source. A process that has one open keeps it.
pub(super) fn delete_older(cache: &Path, place: &str, current: &str) {
    delete(cache, |name| {
        name.starts_with(place) && name.ends_with(".sqlite") && name != current
    });
}

fn delete(cache: &Path, is_old: impl Fn(&str) -> bool) {
    for entry in read_dir(cache).into_iter().flatten().flatten() {
        if is_old(&entry.file_name().to_string_lossy()) {
            let _ = remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_deletes_what_is_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let (left, whole) = (
            folder.path().join("a.1.part"),
            folder.path().join("a.sqlite"),
        );
        let write = || {
            std::fs::write(&left, "").unwrap();
            std::fs::write(&whole, "").unwrap();
        };
        write();
        let first = CacheClaim::take(folder.path()).unwrap();
        assert!(!left.exists() && whole.exists());
        write();
        let second = CacheClaim::take(folder.path()).unwrap();
        assert!(left.exists());
        drop((first, second));
        CacheClaim::take(folder.path()).unwrap();
        assert!(!left.exists() && whole.exists());
    }
}
