//! Paths in buckets: `s3://BUCKET/PATH` and `gs://BUCKET/PATH`, wherever a recipe or a command names files or folders.
//!
//! What a path names is copied into the machine's cache and read there. Amazon's environment variables say who may read
//! (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …). Google's buckets are read by their
//! S3-compatible interface, with an HMAC key in the same variables.

use std::path::{Component, Path, PathBuf};

use futures::TryStreamExt;
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt};
use pybench_types::id::Digest;
use serde::Serialize;

use super::failure::{StoreError, found};
use super::s3::{ObjectServer, S3Store, fetch_object};
use crate::{NewFolder, RunError};

/// Where Google's buckets are.
const GOOGLE: &str = "https://storage.googleapis.com";

/// A path in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketPath {
    is_google: bool,
    pub(crate) bucket: String,
    /// Without a slash at its beginning or end.
    pub(crate) path: String,
}

/// An object, so that a changed one is not taken for what is in the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Object {
    /// Path below what was asked for; empty if that is the object.
    name: String,
    key: String,
    size: u64,
    tag: Option<String>,
}

impl BucketPath {
    /// `None` if the path is not one in a bucket.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let (is_google, rest) = match (text.strip_prefix("s3://"), text.strip_prefix("gs://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return None,
        };
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Self {
            is_google,
            bucket: bucket.to_owned(),
            path: path.trim_matches('/').to_owned(),
        })
    }

    /// The store at this path.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the bucket has no name, or the environment variables are wrong.
    pub(crate) fn store(&self) -> Result<S3Store, RunError> {
        if self.bucket.is_empty() || self.path.is_empty() {
            return Err(RunError::BadInput(format!(
                "{self}: expected s3://BUCKET/PATH or gs://BUCKET/PATH"
            )));
        }
        let server = ObjectServer {
            bucket: self.bucket.clone(),
            endpoint: self.is_google.then(|| GOOGLE.to_owned()),
            ..ObjectServer::default()
        };
        S3Store::in_folder(&server, self.path.clone())
    }

    /// Last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl std::fmt::Display for BucketPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_google { "gs" } else { "s3" };
        write!(formatter, "{scheme}://{}/{}", self.bucket, self.path)
    }
}

/// A local copy of the file or the folder that a path in a bucket names, in `cache`; `None` for other paths. What the cache has
/// is not read again, unless it has changed in the bucket.
///
/// # Errors
/// [`RunError::BadInput`] if there is nothing of that name; [`RunError::Store`] if the server does not answer.
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
    let mut objects = objects(&store)?;
    objects.retain(|object| is_wanted(&object.name));
    if objects.is_empty() {
        return Err(RunError::BadInput(format!(
            "{asked}: there is neither such a file nor a folder with files that can be read here"
        )));
    }
    let id = Digest::of_json(&(asked.to_string(), &objects));
    let folder = cache.join("buckets").join(id.as_str());
    let copy = folder.join(asked.name());
    if copy.exists() {
        return Ok(Some(copy));
    }
    let wrap = || RunError::io(folder.display().to_string());
    // An empty folder at most, of a process that was killed.
    let new = NewFolder::new(&folder).map_err(wrap())?;
    for object in &objects {
        let copy = new.path().join(asked.name());
        let to = match object.name.is_empty() {
            true => copy,
            false => copy.join(&object.name),
        };
        fetch(&store, &asked, object, &to)?;
    }
    match new.finish() {
        // Another process was faster.
        Err(_) if copy.exists() => {}
        finished => finished.map_err(wrap())?,
    }
    Ok(Some(copy))
}

/// The object at the path of a store, or those below it, sorted.
fn objects(store: &S3Store) -> Result<Vec<Object>, RunError> {
    let folder = store.folder().to_owned();
    store.run("listing files".to_owned(), move |client| {
        let folder = folder.clone();
        async move {
            let location =
                Location::parse(&folder).map_err(|error| StoreError::Store(error.into()))?;
            if let Some(object) = found(client.head(&location).await)? {
                return Ok(vec![Object {
                    name: String::new(),
                    key: object.location.to_string(),
                    size: object.size,
                    tag: object.e_tag,
                }]);
            }
            let listed: Vec<_> = client.list(Some(&location)).try_collect().await?;
            let objects = listed.into_iter().filter_map(|object| {
                let name = object.location.as_ref().strip_prefix(&folder)?;
                Some(Object {
                    name: name.strip_prefix('/')?.to_owned(),
                    key: object.location.to_string(),
                    size: object.size,
                    tag: object.e_tag,
                })
            });
            let mut objects: Vec<Object> = objects.collect();
            objects.sort();
            Ok(objects)
        }
    })
}

fn fetch(store: &S3Store, asked: &BucketPath, object: &Object, to: &Path) -> Result<(), RunError> {
    let is_below = |name: &str| {
        let mut parts = Path::new(name).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    if !is_below(&object.name) {
        return Err(RunError::BadInput(format!(
            "{asked}: {:?} is no path of a file on this machine",
            object.name
        )));
    }
    let (key, path) = (object.key.clone(), to.to_owned());
    let what = format!("fetching {key} to {}", to.display());
    let there = store.run(what, move |client| {
        let (key, path) = (key.clone(), path.clone());
        async move {
            let location =
                Location::parse(&key).map_err(|error| StoreError::Store(error.into()))?;
            fetch_object(&client, &location, &path).await
        }
    })?;
    match there {
        true => Ok(()),
        false => Err(RunError::Store(format!(
            "{asked}: {} was deleted while the files were read",
            object.key
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of("gs://b/x").unwrap().to_string(), "gs://b/x");
        let joined = BucketPath::of(&Path::new("s3://bucket/runs").join("name")).unwrap();
        assert_eq!(joined.path, "runs/name");
        for other in ["a/b", "/s3/a", "hf://a/b", "s3:/a/b"] {
            assert_eq!(of(other), None, "{other}");
        }
        for wrong in ["s3://", "s3://bucket", "s3:///a", "gs://bucket/"] {
            let error = of(wrong).unwrap().store().unwrap_err().to_string();
            assert!(error.contains("expected s3://BUCKET/PATH"), "{error}");
        }
    }
}
