//! Files of a cache that nobody has changed for a long time.

use std::path::Path;
use std::time::Duration;

/// Deletes the files of a folder that were not changed for this time.
pub(super) fn delete_older(folder: &Path, age: Duration) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        let since = changed.ok().and_then(|time| time.elapsed().ok());
        if since.is_some_and(|since| since > age) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
