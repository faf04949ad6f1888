//! Finds other programs of this project.

use std::path::PathBuf;

/// The program `name`, next to the running program or in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let folder = own.as_deref().and_then(std::path::Path::parent);
    // Test binaries are one folder below the programs.
    let above = folder
        .filter(|folder| folder.ends_with("deps"))
        .and_then(std::path::Path::parent);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let folders = folder.into_iter().chain(above).map(PathBuf::from);
    let files = folders.chain(listed).map(|folder| folder.join(name));
    files.into_iter().find(|file| file.is_file())
}
