//! One running sandbox of any engine: the sockets and files that connect it with the host, and how it is
//! killed.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::process::{Pid, Signal};

use super::cgroup::Group;

/// How long a killed sandbox may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The host's ends of the sockets and streams of a sandbox.
pub struct HostIo {
    /// Frames of the runner protocol.
    pub(super) control: UnixStream,
    /// Each byte written here sends a SIGINT to the runner.
    pub(super) interrupt: UnixStream,
    /// The files that receive stdout and stderr.
    pub streams: [File; 2],
}

impl HostIo {
    /// Creates them; also returns the sandbox's ends of the control and interrupt sockets.
    pub fn make() -> io::Result<(Self, [OwnedFd; 2])> {
        let (control, control_inside) = UnixStream::pair()?;
        let (interrupt, interrupt_inside) = UnixStream::pair()?;
        let host_io = Self {
            control,
            interrupt,
            streams: [stream("stdout")?, stream("stderr")?],
        };
        Ok((host_io, [control_inside.into(), interrupt_inside.into()]))
    }

    /// The end of the sandbox's stderr.
    pub fn stderr_tail(&self) -> String {
        stderr_tail(&self.streams[1])
    }
}

/// A running sandbox. [`Sandbox::kill`] ends it and waits; dropping it kills it without waiting.
pub struct Sandbox {
    pub host_io: HostIo,
    /// The first process inside: all others are killed when it ends.
    pub init: InitProcess,
    pub group: Group,
    pub child_guard: ChildGuard,
    /// The socket for connections to the proxy; `None` if the sandbox passes its own socket.
    pub proxy_socket: Option<OwnedFd>,
}

/// The pidfd of a sandbox's first process, which is killed when this is dropped.
pub struct InitProcess(pub OwnedFd);

impl InitProcess {
    fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.0, Signal::KILL); // it may have ended
    }
}

impl Drop for InitProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Processes outside a sandbox that must be kept as long as it runs.
pub enum ChildGuard {
    /// The outer bubblewrap process, which waits for the first process inside.
    Bubblewrap(Child),
    /// The runner, without a sandbox.
    Unsandboxed(Child),
    /// The client program that is attached to a container, and a function that removes the container.
    Container {
        monitor: Child,
        remove: Box<dyn FnOnce() + Send>,
    },
    /// The warm server that the sandbox was forked from; they share a process namespace.
    WarmServer { _alive: Arc<dyn Any + Send + Sync> },
}

/// Information about a sandbox that has ended.
pub(super) struct ExitInfo {
    /// Whether the OOM killer killed one of its processes.
    pub(super) out_of_memory: bool,
    /// The files that receive stdout and stderr.
    pub(super) streams: [File; 2],
}

impl Sandbox {
    /// Kills all its processes and waits for their end. Blocks for some milliseconds.
    pub(super) fn kill(self) -> ExitInfo {
        self.init.kill();
        let until = Instant::now() + KILL_TIMEOUT;
        // The first process ends after all others in its namespace.
        if !wait_readable(self.init.0.as_fd(), KILL_TIMEOUT) {
            tracing::warn!("a killed session has not ended");
        }
        match self.child_guard {
            ChildGuard::Bubblewrap(monitor) => wait_for_exit(monitor, until),
            ChildGuard::Container { monitor, remove } => {
                wait_for_exit(monitor, until);
                remove();
            }
            ChildGuard::Unsandboxed(mut runner) => {
                if let Some(group) = Pid::from_raw(runner.id().cast_signed()) {
                    let _ = rustix::process::kill_process_group(group, Signal::KILL);
                }
                let _ = runner.wait();
            }
            ChildGuard::WarmServer { .. } => {}
        }
        ExitInfo {
            out_of_memory: self.group.out_of_memory(),
            streams: self.host_io.streams,
        }
    }
}

/// Waits for a monitor, which ends after its child; kills it after `until`.
fn wait_for_exit(mut monitor: Child, until: Instant) {
    while matches!(monitor.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = monitor.kill();
    let _ = monitor.wait();
}

/// Waits until a descriptor is readable. A pidfd becomes readable when its process ends.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid structure, for the length of the call.
        let found =
            unsafe { libc::poll(&raw mut poll, 1, i32::try_from(left).unwrap_or(i32::MAX)) };
        let again = found < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !again {
            return found > 0;
        }
    }
}

pub fn memfd(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// A file for stdout or stderr: opened for appending, and not sealable.
pub fn stream(name: &str) -> io::Result<File> {
    let file = memfd(name)?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// The last 2000 bytes of a stream.
pub(super) fn stderr_tail(stream: &File) -> String {
    let size = stream.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; 2000];
    let count = stream
        .read_at(&mut bytes, size.saturating_sub(2000))
        .unwrap_or(0);
    match String::from_utf8_lossy(&bytes[..count]).trim() {
        "" => "it ended without an error message".to_owned(),
        text => text.to_owned(),
    }
}

/// Removes folders `<pid>-…` that dead processes have left.
pub fn remove_stale(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-'));
        if owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
