//! Downloads objects of a bucket into a folder of the cache. What was read stays when a process ends, so the next one
//! continues: whole files by name, large ones by their parts.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use object_store::path::Path as Location;
use object_store::{GetOptions, ObjectStore};
use pybench_types::text;
use serde::Serialize;

use super::Store;
use super::bucket_store::{BucketStore, PART, replaced, write_body};
use super::failure::StoreError;
use crate::RunError;

/// An object, so that a changed one is not taken for what is in the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Object {
    /// Path below what was asked for; empty if that is the object.
    pub(super) name: String,
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) tag: Option<String>,
}

impl Object {
    /// Where the object is copied to, if `root` is what was asked for.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if its name leads elsewhere.
    fn copy(&self, root: &Path) -> Result<PathBuf, RunError> {
        let mut parts = Path::new(&self.name).components();
        if !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(RunError::BadInput(format!(
                "{}: {:?} is no path of a file on this machine",
                self.key, self.name
            )));
        }
        Ok(match self.name.is_empty() {
            true => root.to_owned(),
            false => root.join(&self.name),
        })
    }
}

/// Downloads objects into `folder/name`. The folder appears when it is complete. Another process that downloads the same is
/// waited for.
///
/// # Errors
/// [`RunError::BadInput`] if an object has no path on this machine; [`RunError::Store`] if the server does not answer; the
/// cache cannot be written.
pub(super) fn download(
    store: &BucketStore,
    objects: &[Object],
    folder: &Path,
    name: &str,
) -> Result<(), RunError> {
    let [lock, work, parts] = ["lock", "files", "parts"].map(|end| folder.with_extension(end));
    let wrap = || RunError::io(work.display().to_string());
    fs::create_dir_all(folder.parent().unwrap_or(folder)).map_err(wrap())?;
    let lock = File::create(lock).map_err(wrap())?;
    lock.lock().map_err(wrap())?;
    if folder.join(name).exists() {
        return Ok(());
    }
    fs::create_dir_all(&work).map_err(wrap())?;
    fs::create_dir_all(&parts).map_err(wrap())?;
    let total: u64 = objects.iter().map(|object| object.size).sum();
    tracing::info!(
        "downloading {}: files: {}, {}",
        store.describe(),
        objects.len(),
        text::size(total)
    );
    for (number, object) in objects.iter().enumerate() {
        let to = object.copy(&work.join(name))?;
        // Files appear when they are complete.
        if !to.is_file() {
            fetch(store, object, &parts.join(number.to_string()), &to)?;
        }
    }
    fs::remove_dir_all(&parts).map_err(wrap())?;
    fs::rename(&work, folder).map_err(wrap())
}

/// Downloads one object to `to`, in parts; `part` holds them until they are complete.
fn fetch(store: &BucketStore, object: &Object, part: &Path, to: &Path) -> Result<(), RunError> {
    let wrap = || RunError::io(part.display().to_string());
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(part)
        .map_err(wrap())?;
    let begun = file.metadata().map_err(wrap())?.len();
    let done = whole_parts(begun, object.size);
    file.set_len(done).map_err(wrap())?;
    file.seek(SeekFrom::Start(done)).map_err(wrap())?;
    if done > 0 {
        tracing::info!(
            "{}: {} of {} are here",
            object.key,
            text::size(done),
            text::size(object.size)
        );
    }
    for start in (done..object.size).step_by(PART) {
        let bytes = fetch_range(store, object, start)?;
        file.write_all(&bytes).map_err(wrap())?;
        // A later process believes the length that it finds, also after a power cut.
        file.sync_data().map_err(wrap())?;
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(wrap())?;
    }
    fs::rename(part, to).map_err(wrap())
}

/// Bytes of a file of `size` that need not be read again if `begun` are there.
fn whole_parts(begun: u64, size: u64) -> u64 {
    let part = PART as u64;
    begun.min(size) / part * part
}

/// One part of an object, which must not have changed since it was listed.
fn fetch_range(store: &BucketStore, object: &Object, start: u64) -> Result<Vec<u8>, RunError> {
    let range = start..(start + PART as u64).min(object.size);
    let object = object.clone();
    store.run(format!("fetching {}", object.key), move |client| {
        let (object, range) = (object.clone(), range.clone());
        async move {
            let location = location(&object.key)?;
            let length = range.end - range.start;
            let options = GetOptions::new().with_range(Some(range));
            let part = client.get_opts(&location, options).await?;
            if !is_same_tag(part.meta.e_tag.as_deref(), object.tag.as_deref()) {
                return Err(replaced(&location));
            }
            let mut bytes = Vec::new();
            write_body(part, length, &mut bytes).await?;
            Ok(bytes)
        }
    })
}

/// Whether tags are equal; lists and replies write them with other quotes.
fn is_same_tag(one: Option<&str>, other: Option<&str>) -> bool {
    let plain = |tag: &str| tag.trim_start_matches("W/").trim_matches('"').to_owned();
    match (one, other) {
        (Some(one), Some(other)) => plain(one) == plain(other),
        _ => true,
    }
}

fn location(key: &str) -> Result<Location, StoreError> {
    Location::parse(key).map_err(|error| StoreError::Store(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> Object {
        Object {
            name: name.to_owned(),
            key: format!("k/{name}"),
            size: 1,
            tag: None,
        }
    }

    #[test]
    fn copies_stay_within_the_cache() {
        let root = Path::new("cache/data");
        assert_eq!(object("").copy(root).unwrap(), root);
        assert_eq!(object("a/b").copy(root).unwrap(), root.join("a/b"));
        for bad in ["..", "a/../../b", "/etc/passwd"] {
            assert!(object(bad).copy(root).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_download_continues_at_the_last_whole_part() {
        let part = PART as u64;
        assert_eq!(whole_parts(0, 3 * part), 0);
        assert_eq!(whole_parts(part - 1, 3 * part), 0);
        assert_eq!(whole_parts(2 * part + 5, 3 * part), 2 * part);
        // A part of an older program that is longer than the file.
        assert_eq!(whole_parts(9 * part, 2 * part + 1), 2 * part);
    }

    #[test]
    fn what_an_interrupted_download_has_read_is_kept() {
        let store = BucketStore::in_memory("data");
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("source");
        let bytes: Vec<u8> = (0..2 * PART + 5).map(|n| (n % 251) as u8).collect();
        fs::write(&source, &bytes).unwrap();
        store.put("large", &source).unwrap();
        store.put("small/a", &source).unwrap();
        let object = |name: &str| Object {
            name: name.to_owned(),
            key: format!("data/{name}"),
            size: bytes.len() as u64,
            tag: None,
        };
        let objects = [object("large"), object("small/a")];
        // One whole part, which shows that it is not read again, and the beginning of another.
        let folder = root.path().join("id");
        let parts = folder.with_extension("parts");
        fs::create_dir_all(&parts).unwrap();
        fs::write(parts.join("0"), vec![255; PART + 3]).unwrap();
        for _ in 0..2 {
            download(&store, &objects, &folder, "data").unwrap();
        }
        let large = fs::read(folder.join("data/large")).unwrap();
        assert!(large[..PART].iter().all(|byte| *byte == 255));
        assert!(large[PART..] == bytes[PART..]);
        assert!(fs::read(folder.join("data/small/a")).unwrap() == bytes);
        assert!(!parts.exists());
    }

    #[test]
    fn a_file_that_has_changed_since_it_was_listed_is_refused() {
        let store = BucketStore::in_memory("data");
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("source");
        fs::write(&source, "a").unwrap();
        store.put("small", &source).unwrap();
        let listed = Object {
            key: "data/small".to_owned(),
            tag: Some("another".to_owned()),
            ..object("small")
        };
        let folder = root.path().join("id");
        let error = download(&store, &[listed], &folder, "data").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("data/small was replaced"), "{error}");
        assert!(!folder.exists());
    }

    #[test]
    fn tags_are_compared_without_quotes() {
        assert!(is_same_tag(Some("\"0x8D\""), Some("0x8D")));
        assert!(is_same_tag(Some("W/\"a\""), Some("\"a\"")));
        assert!(!is_same_tag(Some("\"a\""), Some("\"b\"")));
        assert!(is_same_tag(None, Some("a")));
    }
}
