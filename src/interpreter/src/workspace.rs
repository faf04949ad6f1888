//! A session's working folder: read-only inputs, a writable `output`, and a size limit.
//!
//! As root, each workspace is a tmpfs of limited size in a mount namespace that only the launcher thread
//! has: other processes do not see it, and the kernel removes it when this process ends in any way.
//! Otherwise workspaces are folders on disk whose size the host measures from time to time.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use super::{Files, InterpreterError, Limits, SessionSpec};

/// Maximum number of files and folders in a workspace.
const MAX_INODES: u64 = 20_000;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The place where workspaces are created.
#[derive(Clone, Debug)]
pub struct Storage {
    base: PathBuf,
    /// Whether each workspace is a tmpfs in a private mount namespace.
    in_memory: bool,
}

impl Storage {
    /// Prepares the calling thread, which must then start all sessions.
    pub(super) fn prepare(cache: &Path) -> io::Result<Self> {
        let base = make_base(cache)?;
        if rustix::process::geteuid().is_root() && mount_in_memory(&base).is_ok() {
            let in_memory = true;
            return Ok(Self { base, in_memory });
        }
        Self::on_disk(cache)
    }

    /// Storage on disk, for engines whose daemon must access workspaces.
    pub fn on_disk(cache: &Path) -> io::Result<Self> {
        let base = make_base(cache)?;
        remove_stale(&base);
        let in_memory = false;
        Ok(Self { base, in_memory })
    }

    /// The folder that holds all workspaces.
    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    /// Whether the kernel enforces the size of a workspace.
    pub(super) fn is_bounded(&self) -> bool {
        self.in_memory
    }

    /// Creates a workspace owned by `owner` and copies the inputs into it.
    pub fn create(
        &self,
        spec: &SessionSpec,
        owner: Option<u32>,
    ) -> Result<Workspace, InterpreterError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.base.join(format!("{}-{number}", std::process::id()));
        let input_bytes: u64 = spec
            .inputs
            .values()
            .map(|p| fs::metadata(p).map_or(0, |m| m.len()))
            .sum();
        let failed = |what: &str| {
            let context = format!("{what} {}", path.display());
            move |source| InterpreterError::Io { context, source }
        };
        fs::create_dir(&path).map_err(failed("creating the workspace"))?;
        let capacity = bytes(&spec.limits) + input_bytes;
        if self.in_memory {
            let options = format!(
                "size={capacity},nr_inodes={},mode=0755",
                MAX_INODES + spec.inputs.len() as u64
            );
            mount_tmpfs(&path, &options).map_err(failed("mounting the workspace"))?;
        }
        let fd = File::open(&path)
            .map_err(failed("opening the workspace"))?
            .into();
        let mut workspace = Workspace {
            fd,
            capacity,
            mounted: self.in_memory,
            read_only: vec!["data".to_owned()],
            companion: OnceLock::new(),
            path,
        };
        workspace.fill(&spec.inputs, owner)?;
        Ok(workspace)
    }
}

/// Its path has no symbolic links, for the reason that [`MountSpec::binds`](super::mount_spec::MountSpec::binds) has none.
fn make_base(cache: &Path) -> io::Result<PathBuf> {
    let base = cache.join("sessions");
    fs::create_dir_all(&base)?;
    fs::set_permissions(&base, Permissions::from_mode(0o755))?;
    base.canonicalize()
}

/// Capacity of a session's workspace, bytes, without its inputs.
fn bytes(limits: &Limits) -> u64 {
    (limits.memory_mib / 2).max(limits.file_mib) << 20
}

fn mount_in_memory(base: &Path) -> io::Result<()> {
    // SAFETY: only this thread's mount namespace and working directory change; the file descriptor table
    // stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", propagation)?;
    mount_tmpfs(base, "mode=0711,size=1m")?;
    // Workspaces mounted here later must also appear in the warm server's namespace.
    Ok(rustix::mount::mount_change(
        base,
        MountPropagationFlags::SHARED,
    )?)
}

fn mount_tmpfs(path: &Path, options: &str) -> io::Result<()> {
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount(
        "tmpfs",
        path,
        "tmpfs",
        flags,
        options.as_c_str(),
    )?)
}

/// Removes workspaces that dead processes have left.
fn remove_stale(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&entry.path());
        }
    }
}

/// Removes a folder, even if parts of it are unreadable or very deep.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    for command in [["chmod", "-R", "u+rwX"].as_slice(), &["rm", "-rf"]] {
        let _ = std::process::Command::new(command[0])
            .args(&command[1..])
            .arg("--")
            .arg(path)
            .status();
    }
    if path.exists() {
        tracing::warn!("the workspace {} could not be removed", path.display());
    }
}

/// One session's workspace. Dropping it removes the folder; this must happen on a launcher thread.
#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
    fd: OwnedFd,
    capacity: u64,
    mounted: bool,
    read_only: Vec<String>,
    companion: OnceLock<Box<dyn WorkspaceResource>>,
}

/// A resource that an engine keeps as long as a workspace exists, for example a pod.
pub trait WorkspaceResource: Any + Debug + Send + Sync {}

impl Workspace {
    /// The path as launcher threads see it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folder name below [`Storage::base`].
    pub fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// Maximum size, bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Keeps a resource as long as the workspace; does nothing if there is one already.
    pub fn attach(&self, companion: impl WorkspaceResource) {
        let _ = self.companion.set(Box::new(companion));
    }

    pub fn attached<T: WorkspaceResource>(&self) -> Option<&T> {
        let attached: &dyn Any = self.companion.get()?.as_ref();
        attached.downcast_ref()
    }

    /// A descriptor of the folder that works on every thread.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Access to the files from the host; created files belong to `owner`.
    pub(super) fn files(&self, owner: Option<u32>) -> Option<Files> {
        let root = self.fd.try_clone().ok()?;
        Some(Files::new(
            root,
            owner,
            (!self.mounted).then_some(self.capacity),
        ))
    }

    /// Paths relative to the workspace that are read-only in the session.
    pub fn read_only(&self) -> &[String] {
        &self.read_only
    }

    /// Whether the session has written more than it may; always false if the kernel enforces the limit.
    pub(super) fn exceeds_capacity(&self) -> bool {
        !self.mounted && !fits(&self.path, self.capacity)
    }

    fn fill(
        &mut self,
        inputs: &BTreeMap<String, PathBuf>,
        owner: Option<u32>,
    ) -> Result<(), InterpreterError> {
        let io_error = |context: String| move |source| InterpreterError::Io { context, source };
        for folder in ["data", "output"] {
            make_folder(&self.path.join(folder)).map_err(io_error(format!("creating {folder}")))?;
        }
        for (relative, source) in inputs {
            self.copy(relative, source).map_err(io_error(format!(
                "copying {} into the workspace as {relative}",
                source.display()
            )))?;
            self.protect(relative);
        }
        if let Some(owner) = owner {
            for folder in [self.path.clone(), self.path.join("output")] {
                chown(&folder, Some(owner), Some(owner)).map_err(io_error(format!(
                    "changing the owner of {}",
                    folder.display()
                )))?;
            }
        }
        Ok(())
    }

    fn copy(&self, relative: &str, source: &Path) -> io::Result<()> {
        let escapes = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path leads out of the workspace",
            )
        };
        let path = Path::new(relative);
        let plain = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !plain
            || relative.is_empty()
            || relative.ends_with('/')
            || relative == "output"
            || relative == "data"
        {
            return Err(escapes());
        }
        let mut folder = self.path.clone();
        for part in path.parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            make_folder(&folder)?;
        }
        let mut from = File::open(source)?;
        if !from.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let mut to = File::create_new(self.path.join(path))?;
        io::copy(&mut from, &mut to)?;
        to.set_permissions(Permissions::from_mode(0o444))
    }

    /// Marks an input as read-only: its top-level folder, or the file itself below `output`.
    fn protect(&mut self, relative: &str) {
        let top = relative.split('/').next().unwrap_or(relative);
        let path = if top == "output" { relative } else { top };
        if !self.read_only.iter().any(|known| known == path) {
            self.read_only.push(path.to_owned());
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.mounted {
            if let Err(error) = rustix::mount::unmount(&self.path, UnmountFlags::DETACH) {
                tracing::warn!("unmounting {}: {error}", self.path.display());
            }
            let _ = fs::remove_dir(&self.path);
        } else {
            remove(&self.path);
        }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        result => result?,
    }
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Whether a folder contains at most `capacity` bytes and [`MAX_INODES`] entries.
fn fits(path: &Path, capacity: u64) -> bool {
    let (mut bytes, mut entries) = (0, 0);
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            }; // for a link: of the link itself
            entries += 1;
            bytes += metadata.len();
            if bytes > capacity || entries > MAX_INODES {
                return false;
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any file on the host.
    const THIS_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

    fn storage() -> (tempfile::TempDir, Storage) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().to_owned();
        let in_memory = false;
        (folder, Storage { base, in_memory })
    }

    fn with(path: &str) -> SessionSpec {
        SessionSpec {
            inputs: BTreeMap::from([(path.to_owned(), PathBuf::from(THIS_FILE))]),
            ..SessionSpec::default()
        }
    }

    #[test]
    fn inputs_may_have_any_relative_path() {
        let (_folder, storage) = storage();
        for path in [
            "data/a b/中文.csv",
            "candidate/output/y.png",
            "top.csv",
            "output/given.txt",
        ] {
            let workspace = storage.create(&with(path), None).unwrap();
            let copied = fs::read(workspace.path().join(path)).unwrap();
            assert_eq!(copied, fs::read(THIS_FILE).unwrap());
            let protected = workspace
                .read_only()
                .iter()
                .any(|top| path.starts_with(top.as_str()));
            assert!(protected, "{path} is not protected");
            assert!(!workspace.read_only().contains(&"output".to_owned()));
            let at = workspace.path().to_owned();
            drop(workspace);
            assert!(!at.exists());
        }
    }

    #[test]
    fn paths_out_of_the_workspace_are_refused_and_leave_nothing() {
        let (folder, storage) = storage();
        for path in [
            "../x",
            "/etc/x",
            "data/../../x",
            "",
            "data/",
            "output",
            "data/./../../y",
            "a\0b",
        ] {
            assert!(
                storage.create(&with(path), None).is_err(),
                "{path:?} was accepted"
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn exceeding_the_capacity_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        File::create(folder.path().join("a/big"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        assert!(fits(folder.path(), 2 << 30));
        assert!(!fits(folder.path(), 1 << 20));
    }
}
