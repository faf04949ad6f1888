//! Folders that appear when they are complete.

use std::fs;
use std::path::Path;

/// Replaces a folder by one that `write` fills. What a killed process left of an earlier try is deleted.
pub(super) fn replace_folder<E: From<std::io::Error>>(
    folder: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let building = folder.with_file_name(format!(".building-{name}"));
    let remove = |path: &Path| match path.exists() {
        true => fs::remove_dir_all(path),
        false => Ok(()),
    };
    remove(&building)?;
    fs::create_dir_all(&building)?;
    if let Err(error) = write(&building) {
        let _ = remove(&building); // the error of `write` says more
        return Err(error);
    }
    remove(folder)?;
    fs::rename(&building, folder)?;
    Ok(())
}
