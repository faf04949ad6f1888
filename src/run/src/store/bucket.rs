//! Paths in buckets: `s3://BUCKET/PATH`, `gs://BUCKET/PATH` and `az://CONTAINER/PATH`, wherever a recipe or a command names
//! files or folders.
//!
//! What a path names is copied into the machine's cache and read there. Environment variables say who may read: those of
//! Amazon (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …), of Google
//! (`GOOGLE_APPLICATION_CREDENTIALS`, …) and of Azure (`AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, …).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt};
use pybench_types::id::Digest;

use super::bucket_store::BucketStore;
use super::check_key;
use super::download::{Object, download};
use super::failure::{StoreError, found};
use super::server::{ObjectServer, StoreKind};
use crate::RunError;

/// Forms of a path in a bucket.
const FORMS: &str = "s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH";

/// Objects below a path that are looked at; a bucket of somebody else may have any number of them.
const MAX_OBJECTS: usize = 1_000_000;

/// A path in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketPath {
    kind: StoreKind,
    pub(crate) bucket: String,
    /// Without a slash at its beginning or end.
    pub(crate) path: String,
}

impl BucketPath {
    /// `None` if the path is not one in a bucket.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let (scheme, rest) = path.to_str()?.split_once("://")?;
        let mut kinds = StoreKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.scheme() == scheme)?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Self {
            kind,
            bucket: bucket.to_owned(),
            path: path.trim_matches('/').to_owned(),
        })
    }

    /// The store at this path.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the bucket has no name; [`RunError::Environment`] if an environment variable is missing.
    pub(crate) fn store(&self) -> Result<BucketStore, RunError> {
        if self.bucket.is_empty() || self.path.is_empty() {
            return Err(RunError::BadInput(format!("{self}: expected {FORMS}")));
        }
        let server = ObjectServer {
            kind: self.kind,
            bucket: self.bucket.clone(),
            ..ObjectServer::default()
        };
        BucketStore::in_folder(&server, self.path.clone())
    }

    /// Where the copies of the run `name` are, if its profile names this server.
    pub(super) fn of_copies(server: &ObjectServer, name: &str) -> Self {
        Self {
            kind: server.kind,
            bucket: server.bucket.clone(),
            path: format!("{}/{name}", server.prefix),
        }
    }

    /// Whether this is the folder in which a server keeps runs.
    pub(crate) fn is_folder_of(&self, server: &ObjectServer) -> bool {
        self.kind == server.kind && self.bucket == server.bucket && self.path == server.prefix
    }

    /// The folder that this is in; `None` at the top of the bucket.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (path, _) = self.path.rsplit_once('/')?;
        Some(Self {
            path: path.to_owned(),
            ..self.clone()
        })
    }

    /// What is called `name` in the folder that this is in.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if that is no key.
    pub(crate) fn beside(&self, name: &str) -> Result<Self, RunError> {
        check_key(name)?;
        let folder = self.path.rsplit_once('/');
        Ok(Self {
            path: folder.map_or_else(|| name.to_owned(), |(path, _)| format!("{path}/{name}")),
            ..self.clone()
        })
    }

    /// Last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl std::fmt::Display for BucketPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = self.kind.scheme();
        write!(formatter, "{scheme}://{}/{}", self.bucket, self.path)
    }
}

/// A local copy of the file or the folder that a path in a bucket names, in `cache`; `None` for other paths. What the cache has
/// is not read again, unless it has changed in the bucket. A download that was interrupted continues where it stopped.
///
/// # Errors
/// [`RunError::BadInput`] if there is nothing of that name, or a folder with more than a million files;
/// [`RunError::Store`] if the server does not answer.
pub fn local_copy(path: &Path, cache: &Path) -> Result<Option<PathBuf>, RunError> {
    local_copy_of(path, cache, |_| true)
}

/// As [`local_copy`], with those files alone whose path below the folder is wanted; it is empty for a file that is named
/// itself.
///
/// # Errors
/// As [`local_copy`].
pub fn local_copy_of(
    path: &Path,
    cache: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<PathBuf>, RunError> {
    let Some(asked) = BucketPath::of(path) else {
        return Ok(None);
    };
    let store = asked.store()?;
    let Some(mut objects) = objects(&store, MAX_OBJECTS)? else {
        return Err(RunError::BadInput(format!(
            "{asked}: the folder has more than {MAX_OBJECTS} files, which are the most that are copied to this machine; name a \
             folder below it, or copy the files to a disk and name their folder there"
        )));
    };
    objects.retain(|object| is_wanted(&object.name));
    if objects.is_empty() {
        return Err(RunError::BadInput(format!(
            "{asked}: there is neither such a file nor a folder with files that can be read here"
        )));
    }
    let id = Digest::of_json(&(asked.to_string(), &objects));
    let folder = cache.join("buckets").join(id.as_str());
    let copy = folder.join(asked.name());
    if !copy.exists() {
        download(&store, &objects, &folder, asked.name())?;
    }
    Ok(Some(copy))
}

/// The object at the path of a store, or those below it, sorted; `None` if there are more than `max`.
fn objects(store: &BucketStore, max: usize) -> Result<Option<Vec<Object>>, RunError> {
    let folder = store.folder().to_owned();
    store.run("listing files".to_owned(), move |client| {
        let folder = folder.clone();
        async move {
            let location =
                Location::parse(&folder).map_err(|error| StoreError::Store(error.into()))?;
            if let Some(object) = found(client.head(&location).await)? {
                return Ok(Some(vec![Object {
                    name: String::new(),
                    key: object.location.to_string(),
                    size: object.size,
                    tag: object.e_tag,
                }]));
            }
            let (mut listed, mut objects) = (client.list(Some(&location)), Vec::new());
            while let Some(object) = listed.try_next().await? {
                let name = object.location.as_ref().strip_prefix(&folder);
                let Some(name) = name.and_then(|name| name.strip_prefix('/')) else {
                    continue;
                };
                if objects.len() == max {
                    return Ok(None);
                }
                objects.push(Object {
                    name: name.to_owned(),
                    key: object.location.to_string(),
                    size: object.size,
                    tag: object.e_tag,
                });
            }
            let mut objects = without_markers(objects);
            objects.sort();
            Ok(Some(objects))
        }
    })
}

/// Leaves out the empty objects that web consoles store for folders.
fn without_markers(mut objects: Vec<Object>) -> Vec<Object> {
    let folders: HashSet<String> = objects
        .iter()
        .flat_map(|object| Path::new(&object.name).ancestors().skip(1))
        .map(|folder| folder.to_string_lossy().into_owned())
        .collect();
    objects.retain(|object| object.size > 0 || !folders.contains(&object.name));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[test]
    fn paths_in_buckets_are_told_from_others() {
        let of = |path: &str| BucketPath::of(Path::new(path));
        let path = of("s3://bucket/a/b/").unwrap();
        assert_eq!(
            (path.bucket.as_str(), path.path.as_str()),
            ("bucket", "a/b")
        );
        assert_eq!(
            (path.name(), path.to_string().as_str()),
            ("b", "s3://bucket/a/b")
        );
        for same in ["gs://b/x", "az://b/x", "az://b/x/y"] {
            assert_eq!(of(same).unwrap().to_string(), same);
        }
        let joined = BucketPath::of(&Path::new("s3://bucket/runs").join("name")).unwrap();
        assert_eq!(joined.path, "runs/name");
        assert_eq!(joined.parent(), of("s3://bucket/runs"));
        assert_eq!(of("s3://bucket/runs").unwrap().parent(), None);
        assert_eq!(joined.beside("other").ok(), of("s3://bucket/runs/other"));
        assert_eq!(of("s3://b/a").unwrap().beside("c").ok(), of("s3://b/c"));
        for bad in ["", "..", "../a", "/a"] {
            assert!(joined.beside(bad).is_err(), "{bad}");
        }
        for other in ["a/b", "/s3/a", "hf://a/b", "s3:/a/b", "gcs://a/b"] {
            assert_eq!(of(other), None, "{other}");
        }
        for wrong in [
            "s3://",
            "s3://bucket",
            "s3:///a",
            "gs://bucket/",
            "az://container",
        ] {
            let error = of(wrong).unwrap().store().unwrap_err().to_string();
            assert!(error.contains("expected s3://BUCKET/PATH"), "{error}");
        }
    }

    #[test]
    fn only_so_many_objects_are_listed() {
        let store = BucketStore::in_memory("data");
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("source");
        std::fs::write(&source, "a").unwrap();
        for name in ["a", "b/c", "d"] {
            store.put(name, &source).unwrap();
        }
        assert_eq!(objects(&store, 2).unwrap(), None);
        let listed = objects(&store, 3).unwrap().unwrap();
        let names: Vec<&str> = listed.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(names, ["a", "b/c", "d"]);
    }

    #[test]
    fn empty_objects_for_folders_are_left_out() {
        let object = |name: &str, size| Object {
            name: name.to_owned(),
            key: format!("k/{name}"),
            size,
            tag: None,
        };
        let listed = vec![
            object("a", 0),
            object("a/b", 0),
            object("a/b/c.csv", 3),
            object("empty.csv", 0),
        ];
        let names = without_markers(listed).into_iter().map(|found| found.name);
        assert_eq!(names.collect::<Vec<_>>(), ["a/b/c.csv", "empty.csv"]);
    }
}
