//! The bucket that a run of this machine is kept in (`--runs-dir s3://BUCKET/PREFIX`).
//!
//! The run folder holds the journal and the work files, and names the bucket. The bucket names the folder, so that no other folder
//! works on the same run. A run with a profile is copied to a bucket; its folder owns the copies in the same way, and the file that
//! names the owner stays a claim.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::path::Path;

use pybench_types::text;
use serde::{Deserialize, Serialize};

use super::Store;
use super::bucket::BucketPath;
use super::bucket_store::BucketStore;
use super::server::ObjectServer;
use crate::RunError;
use crate::artifact_names::{BUCKET, BUCKET_CLAIM, COPIES};
use crate::replace::write_atomically;

/// Key of the name of the folder.
const OWNER: &str = "owner";

/// Maximum size of that name, in bytes.
const MAX_OWNER: u64 = 16 << 10;

/// How this run gets an address that no other run has.
const ANOTHER_ADDRESS: &str = "give this run another name (--run NAME; one that has begun keeps its work if you first rename its \
    folder to NAME and delete bucket.toml in it), or another prefix (--runs-dir, or in the profile)";

/// The bucket of a run folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBucket {
    /// Address of the run.
    pub(crate) address: String,
    /// Folder and machine, with a number that no other folder has.
    owner: String,
}

impl RunBucket {
    /// The bucket of the run folder `root`; `None` if it has none.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file that names it cannot be parsed.
    pub(crate) fn of(root: &Path) -> Result<Option<Self>, RunError> {
        Self::read(&root.join(BUCKET))
    }

    /// Prepares to keep the run folder `root` at an address; [`Self::take`] ends that. The owner of a folder is always the same,
    /// after a kill and at every address, so that a run which leaves an address can come back.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn claim(root: &Path, address: &BucketPath) -> Result<Self, RunError> {
        let (path, address) = (root.join(BUCKET_CLAIM), address.to_string());
        let begun = match Self::read(&path)? {
            Some(begun) if begun.address == address => return Ok(begun),
            Some(begun) => Some(begun),
            None => Self::of(root)?,
        };
        let owner = begun.map_or_else(|| new_owner(root), |begun| Ok(begun.owner))?;
        let new = Self { address, owner };
        let text = toml::to_string(&new).map_err(|error| RunError::Internal(error.to_string()))?;
        let text = format!("# The bucket that this run is kept in.\n{text}");
        write_atomically(&path, text.as_bytes())?;
        Ok(new)
    }

    /// Where the copies of the run folder `root` are, whose profile names `server`. This folder becomes their owner.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another folder is the owner; [`RunError::Store`] if the bucket cannot be written.
    pub(crate) fn own_copies(root: &Path, server: &ObjectServer) -> Result<BucketStore, RunError> {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let store = BucketStore::new(server, &name)?;
        let address = BucketPath::of_copies(server, &name);
        Self::of_copies(root, &address)?.check_owner(&store)?;
        Ok(store)
    }

    /// The owner of the copies of the run folder `root`. A run that was kept at this address before it got a profile goes on
    /// with its owner.
    fn of_copies(root: &Path, address: &BucketPath) -> Result<Self, RunError> {
        let kept = Self::of(root)?.filter(|kept| kept.address == address.to_string());
        kept.map_or_else(|| Self::claim(root, address), Ok)
    }

    /// Makes what was claimed the bucket of the run folder `root`.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn take(root: &Path) -> Result<(), RunError> {
        let path = root.join(BUCKET);
        fs::rename(root.join(BUCKET_CLAIM), &path).map_err(RunError::io(path.display().to_string()))
    }

    /// Makes this folder the owner of the run in `store`, unless it has one.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another folder is the owner; [`RunError::Store`] if the bucket cannot be written.
    pub(crate) fn check_owner(&self, store: &dyn Store) -> Result<(), RunError> {
        let temporary = tempfile::tempdir().map_err(RunError::io("a temporary folder"))?;
        let path = temporary.path().join(OWNER);
        write_atomically(&path, self.owner.as_bytes())?;
        // A key that exists is kept.
        store.put(OWNER, &path)?;
        let is_there = store.fetch_up_to(OWNER, &path, MAX_OWNER)?;
        let owner = fs::read_to_string(&path);
        let owner = owner.map_err(RunError::io(path.display().to_string()))?;
        match is_there && owner == self.owner {
            true => Ok(()),
            false => Err(RunError::Conflict(format!(
                "{address}: this run is made in {}; continue it there, or {ANOTHER_ADDRESS}. If that folder is lost, delete \
                 everything below {address}/ in the bucket, and repeat this command",
                text::line(&owner),
                address = self.address
            ))),
        }
    }

    /// Refuses a folder of the bucket that holds copies of a run with a profile which have no owner, as older versions made them.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if it does; [`RunError::Store`] if the bucket cannot be read.
    pub(crate) fn check_free(&self, store: &dyn Store) -> Result<(), RunError> {
        match store.size(OWNER)?.is_some() || store.list(COPIES)?.is_empty() {
            true => Ok(()),
            false => Err(RunError::Conflict(format!(
                "{address}: there are copies of another run, which has a profile; {ANOTHER_ADDRESS}. If those copies are not \
                 needed, delete everything below {address}/ in the bucket, and repeat this command",
                address = self.address
            ))),
        }
    }

    /// The store at the address.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is no address; [`RunError::Environment`] if an environment variable is missing.
    pub(crate) fn store(&self) -> Result<BucketStore, RunError> {
        match BucketPath::of(Path::new(&self.address)) {
            Some(address) => address.store(),
            None => Err(RunError::BadInput(format!(
                "{BUCKET}: {:?} is no address in a bucket",
                self.address
            ))),
        }
    }

    fn read(path: &Path) -> Result<Option<Self>, RunError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(RunError::io(path.display().to_string()))?,
        };
        let bucket = toml::from_str(&text);
        bucket.map_err(|error| RunError::BadInput(format!("{}: {error}", path.display())))
    }
}

fn new_owner(root: &Path) -> Result<String, RunError> {
    let folder = root
        .canonicalize()
        .map_err(RunError::io(root.display().to_string()))?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let random = RandomState::new().build_hasher().finish();
    Ok(format!(
        "{} on {} ({random:016x})",
        folder.display(),
        host.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::folder::FolderStore;
    use super::*;

    #[test]
    fn one_folder_owns_a_run_in_a_bucket() {
        let [mine, other, bucket] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let address = BucketPath::of(Path::new("s3://b/runs/a")).unwrap();
        let claimed = RunBucket::claim(mine.path(), &address).unwrap();
        claimed.check_owner(&store).unwrap();
        // A process that was killed here repeats the claim.
        assert_eq!(RunBucket::of(mine.path()).unwrap(), None);
        assert_eq!(RunBucket::claim(mine.path(), &address).unwrap(), claimed);
        RunBucket::take(mine.path()).unwrap();
        let taken = RunBucket::of(mine.path()).unwrap().unwrap();
        assert_eq!(taken, claimed);
        taken.check_owner(&store).unwrap();
        let late = RunBucket::claim(other.path(), &address).unwrap();
        let error = late.check_owner(&store).unwrap_err();
        assert_eq!(error.exit_code(), crate::ExitCode::Conflict);
        let folder = mine.path().canonicalize().unwrap();
        let error = error.to_string();
        assert!(error.contains(folder.to_str().unwrap()), "{error}");
        assert!(error.contains("below s3://b/runs/a/ in"), "{error}");
        taken.check_owner(&store).unwrap();
    }

    #[test]
    fn a_run_that_left_an_address_can_come_back() {
        let [mine, bucket] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        for address in ["s3://b/runs/a", "s3://b/runs/b", "s3://b/runs/a"] {
            let address = BucketPath::of(Path::new(address)).unwrap();
            let claimed = RunBucket::claim(mine.path(), &address).unwrap();
            assert_eq!(claimed.address, address.to_string());
            claimed.check_owner(&store).unwrap();
        }
    }

    #[test]
    fn one_folder_owns_the_copies_of_a_run_with_a_profile() {
        let [mine, other, moved, bucket] = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let server = ObjectServer {
            bucket: "b".to_owned(),
            ..ObjectServer::default()
        };
        let address = BucketPath::of_copies(&server, "a");
        assert_eq!(address.to_string(), "s3://b/runs/a");
        // Copies that an older version made get an owner.
        let list = mine.path().join("list");
        write_atomically(&list, b"{}").unwrap();
        store.put("copies/00000001-0f", &list).unwrap();
        let own = RunBucket::of_copies(mine.path(), &address).unwrap();
        own.check_owner(&store).unwrap();
        assert_eq!(RunBucket::of_copies(mine.path(), &address).unwrap(), own);
        assert_eq!(RunBucket::of(mine.path()).unwrap(), None);
        let late = RunBucket::of_copies(other.path(), &address).unwrap();
        let error = late.check_owner(&store).unwrap_err();
        assert_eq!(error.exit_code(), crate::ExitCode::Conflict);
        // A run that was kept there before.
        let kept = RunBucket::claim(moved.path(), &address).unwrap();
        RunBucket::take(moved.path()).unwrap();
        assert_eq!(RunBucket::of_copies(moved.path(), &address).unwrap(), kept);
        let elsewhere = BucketPath::of_copies(&server, "renamed");
        assert_ne!(
            RunBucket::of_copies(moved.path(), &elsewhere).unwrap(),
            kept
        );
    }

    #[test]
    fn copies_without_an_owner_are_kept() {
        let [mine, bucket] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = FolderStore::new(bucket.path());
        let address = BucketPath::of(Path::new("s3://b/runs/a")).unwrap();
        let claimed = RunBucket::claim(mine.path(), &address).unwrap();
        claimed.check_free(&store).unwrap();
        claimed.check_owner(&store).unwrap();
        let list = mine.path().join(BUCKET_CLAIM);
        store.put("copies/00000001-0f", &list).unwrap();
        // Its own copies.
        claimed.check_free(&store).unwrap();
        store.delete(OWNER).unwrap();
        let error = claimed.check_free(&store).unwrap_err();
        assert_eq!(error.exit_code(), crate::ExitCode::Conflict);
        let error = error.to_string();
        for remedy in ["--run NAME", "rename its folder", "below s3://b/runs/a/ in"] {
            assert!(error.contains(remedy), "{error}");
        }
    }
}
