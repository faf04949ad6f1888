//! Programs of this project that others of it start.

use std::path::PathBuf;

/// The program of that name, beside this one or in the path.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let folder = own.as_deref().and_then(std::path::Path::parent);
    // Tests lie one folder below the programs.
    let above = folder
        .filter(|folder| folder.ends_with("deps"))
        .and_then(std::path::Path::parent);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let folders = folder.into_iter().chain(above).map(PathBuf::from);
    let files = folders.chain(listed).map(|folder| folder.join(name));
    files.into_iter().find(|file| file.is_file())
}
