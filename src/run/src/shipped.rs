//! The files that come with the program, by their paths in a checkout: recipes and the sample files that the quickstart
//! falls back on. They let a project be any folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pybench_types::id::Digest;

use super::replace::NewFolder;

type File = (&'static str, &'static [u8]);

/// The folders, and their files; a debug build has no files and reads the checkout.
const SHIPPED: (&[&str], Option<&[File]>) = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The path of a file or folder that comes with the program; `None` if there is no such one. Embedded files are
/// unpacked into the machine's cache, once for each version.
///
/// # Errors
/// I/O errors of the cache.
pub(super) fn find(path: &Path) -> io::Result<Option<PathBuf>> {
    let (folders, files) = SHIPPED;
    if !folders.iter().any(|folder| path.starts_with(folder)) {
        return Ok(None);
    }
    let root = match files {
        None => PathBuf::from(CHECKOUT),
        Some(files) => unpack(files, &super::default_cache_dir())?,
    };
    Ok(Some(root.join(path)).filter(|path| path.exists()))
}

/// The folder with the files, below `cache`.
fn unpack(files: &[File], cache: &Path) -> io::Result<PathBuf> {
    let mut all = Vec::new();
    for (name, bytes) in files {
        all.extend_from_slice(name.as_bytes());
        all.extend_from_slice(Digest::of_bytes(bytes).as_str().as_bytes());
    }
    let folder = cache.join("shipped").join(Digest::of_bytes(&all).short());
    if folder.is_dir() {
        return Ok(folder);
    }
    let new = NewFolder::new(&folder)?;
    for (name, bytes) in files {
        let path = new.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(new.path()))?;
        fs::write(path, bytes)?;
    }
    match new.finish() {
        // Another process has unpacked the same files in the meantime.
        Err(_) if folder.is_dir() => Ok(folder),
        done => done.map(|()| folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_unpacked_once_for_each_content() {
        let cache = tempfile::tempdir().unwrap();
        let files: [File; 2] = [("a/b/one.toml", b"1"), ("a/two", b"2")];
        let folder = unpack(&files, cache.path()).unwrap();
        assert_eq!(fs::read(folder.join("a/b/one.toml")).unwrap(), b"1");
        assert_eq!(unpack(&files, cache.path()).unwrap(), folder);
        assert_ne!(unpack(&files[..1], cache.path()).unwrap(), folder);
        let shipped = fs::read_dir(cache.path().join("shipped")).unwrap();
        assert_eq!(shipped.count(), 2);
    }

    #[test]
    fn recipes_and_samples_come_with_the_program() {
        for path in ["pipelines/recipes/quickstart.toml", "data/samples/files"] {
            assert!(find(Path::new(path)).unwrap().is_some(), "{path}");
        }
        assert_eq!(find(Path::new("src/run")).unwrap(), None);
    }
}
