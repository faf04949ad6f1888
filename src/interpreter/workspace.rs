//! The folder a session works in: inputs that cannot be changed, an `output` that can, and a bound on
//! what fits into it.
//!
//! As root, workspaces are tmpfs mounts of bounded size in a mount namespace that only the launcher's
//! thread has: nobody else on the machine sees them, and the kernel removes them when this process
//! ends, however it ends. Otherwise they are folders on disk, which the session's host looks at from
//! time to time.

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

/// Most files and folders in a workspace.
const MAX_INODES: u64 = 20_000;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Where workspaces are made.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    base: PathBuf,
    /// A mount namespace of our own, with one tmpfs per workspace.
    private: bool,
}

impl Storage {
    /// Prepare the calling thread, which must then start all sessions.
    pub(super) fn prepare(cache: &Path) -> io::Result<Self> {
        let base = cache.join("sessions");
        make_base(&base)?;
        if rustix::process::geteuid().is_root() && mount_private(&base).is_ok() {
            let private = true;
            return Ok(Self { base, private });
        }
        Self::on_disk(cache)
    }

    /// As [`Storage::prepare`], where others than us must reach workspaces: on disk.
    pub(super) fn on_disk(cache: &Path) -> io::Result<Self> {
        let base = cache.join("sessions");
        make_base(&base)?;
        sweep(&base);
        let private = false;
        Ok(Self { base, private })
    }

    /// The folder that holds all workspaces.
    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    /// Whether the size of a workspace is bounded by the kernel.
    pub(super) fn is_bounded(&self) -> bool {
        self.private
    }

    /// Make a workspace owned by `owner` and fill it.
    pub(super) fn create(
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
        fs::create_dir(&path).map_err(failed("making the workspace"))?;
        let most = bytes(&spec.limits) + input_bytes;
        if self.private {
            let options = format!(
                "size={most},nr_inodes={},mode=0755",
                MAX_INODES + spec.inputs.len() as u64
            );
            mount_tmpfs(&path, &options).map_err(failed("mounting the workspace"))?;
        }
        let fd = File::open(&path)
            .map_err(failed("opening the workspace"))?
            .into();
        let mut workspace = Workspace {
            fd,
            most,
            mounted: self.private,
            read_only: vec!["data".to_owned()],
            companion: OnceLock::new(),
            path,
        };
        workspace.fill(&spec.inputs, owner)?;
        Ok(workspace)
    }
}

fn make_base(base: &Path) -> io::Result<()> {
    fs::create_dir_all(base)?;
    fs::set_permissions(base, Permissions::from_mode(0o755))
}

/// Bytes that a session may keep in its workspace.
fn bytes(limits: &Limits) -> u64 {
    (limits.memory_mib / 2).max(limits.file_mib) << 20
}

fn mount_private(base: &Path) -> io::Result<()> {
    // SAFETY: files and working directory are used by this thread alone from here on; no file
    // descriptor table is unshared, so none held elsewhere is affected.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", propagation)?;
    mount_tmpfs(base, "mode=0711,size=1m")?;
    // Workspaces mounted there later appear in the namespace of the warm server, too.
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

/// Remove what processes that are gone have left.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&entry.path());
        }
    }
}

/// Remove a folder, even where its owner has made parts of it unreadable or very deep.
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

/// One session's workspace. Dropping it removes it; that must happen on a thread of the launcher.
#[derive(Debug)]
pub(super) struct Workspace {
    path: PathBuf,
    fd: OwnedFd,
    most: u64,
    mounted: bool,
    read_only: Vec<String>,
    companion: OnceLock<Box<dyn Companion>>,
}

/// What an engine keeps as long as a workspace is there.
pub(super) trait Companion: Any + Debug + Send + Sync {}

impl Workspace {
    /// Where the launcher's threads see it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Below [`Storage::base`].
    pub(super) fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// Bytes that it may hold.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Keep something as long as this; what was kept before stays instead.
    pub(super) fn keep(&self, companion: impl Companion) {
        let _ = self.companion.set(Box::new(companion));
    }

    /// What is kept.
    pub(super) fn kept<T: Companion>(&self) -> Option<&T> {
        let kept: &dyn Any = self.companion.get()?.as_ref();
        kept.downcast_ref()
    }

    /// For every thread.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What the session's host may do with the files in it; what it makes belongs to `owner`.
    pub(super) fn files(&self, owner: Option<u32>) -> Option<Files> {
        let root = self.fd.try_clone().ok()?;
        Some(Files::new(
            root,
            owner,
            (!self.mounted).then_some(self.most),
        ))
    }

    /// What the session must see read-only, relative to the workspace.
    pub(super) fn read_only(&self) -> &[String] {
        &self.read_only
    }

    /// Whether the session has put in more than it may; known by itself where the kernel bounds it.
    pub(super) fn is_over(&self) -> bool {
        !self.mounted && !fits(&self.path, self.most)
    }

    fn fill(
        &mut self,
        inputs: &BTreeMap<String, PathBuf>,
        owner: Option<u32>,
    ) -> Result<(), InterpreterError> {
        let io_error = |context: String| move |source| InterpreterError::Io { context, source };
        for folder in ["data", "output"] {
            make_folder(&self.path.join(folder)).map_err(io_error(format!("making {folder}")))?;
        }
        for (relative, source) in inputs {
            self.copy(relative, source).map_err(io_error(format!(
                "putting {} into the session as {relative}",
                source.display()
            )))?;
            self.protect(relative);
        }
        if let Some(owner) = owner {
            for folder in [self.path.clone(), self.path.join("output")] {
                chown(&folder, Some(owner), Some(owner))
                    .map_err(io_error(format!("owning {}", folder.display())))?;
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

    /// Inputs are read-only by the folder at the top that holds them; in `output`, one by one.
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

/// Whether a folder holds no more than so many bytes and [`MAX_INODES`] entries.
fn fits(path: &Path, most: u64) -> bool {
    let (mut bytes, mut entries) = (0, 0);
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            }; // of a link, the link's own
            entries += 1;
            bytes += metadata.len();
            if bytes > most || entries > MAX_INODES {
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

    fn storage() -> (tempfile::TempDir, Storage) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().to_owned();
        let private = false;
        (folder, Storage { base, private })
    }

    fn with(path: &str) -> SessionSpec {
        SessionSpec {
            inputs: BTreeMap::from([(path.to_owned(), PathBuf::from(file!()))]),
            ..SessionSpec::default()
        }
    }

    #[test]
    fn any_relative_path_works() {
        let (_folder, storage) = storage();
        for path in [
            "data/a b/中文.csv",
            "candidate/output/y.png",
            "top.csv",
            "output/given.txt",
        ] {
            let workspace = storage.create(&with(path), None).unwrap();
            let copied = fs::read(workspace.path().join(path)).unwrap();
            assert_eq!(copied, fs::read(file!()).unwrap());
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
    fn escaping_paths_are_refused_and_leave_nothing() {
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
    fn too_much_is_noticed() {
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
