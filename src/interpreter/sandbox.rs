//! One running sandbox, whoever built it: the sockets and files through which the host deals with it,
//! and the one way to end it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::process::{Pid, Signal};

use super::cgroup::Group;
use super::server::Server;

/// How long a killed sandbox may take to go.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// The host's ends of a sandbox, and the ends to hand over.
pub(super) struct Ends {
    /// Frames.
    pub(super) control: UnixStream,
    /// A byte here is a SIGINT there.
    pub(super) interrupt: UnixStream,
    /// The files behind stdout and stderr.
    pub(super) streams: [File; 2],
}

impl Ends {
    /// Make them; second are the sandbox's control and interrupt sockets.
    pub(super) fn make() -> io::Result<(Self, [OwnedFd; 2])> {
        let (control, control_inside) = UnixStream::pair()?;
        let (interrupt, interrupt_inside) = UnixStream::pair()?;
        let ends = Self {
            control,
            interrupt,
            streams: [stream("stdout")?, stream("stderr")?],
        };
        Ok((ends, [control_inside.into(), interrupt_inside.into()]))
    }

    /// What it last wrote to stderr.
    pub(super) fn last_words(&self) -> String {
        last_words(&self.streams[1])
    }
}

/// A running sandbox. [`Sandbox::kill`] ends it and waits; dropping it lets the kernel end it.
pub(super) struct Sandbox {
    pub(super) ends: Ends,
    /// The first process inside: all others die with it.
    pub(super) init: First,
    pub(super) group: Group,
    pub(super) keeper: Keeper,
    /// Where its connections to the proxy come in; `None` where it hands over a socket of its own.
    pub(super) door: Option<OwnedFd>,
}

/// The pidfd of a sandbox's first process, which is killed when this is dropped.
pub(super) struct First(pub(super) OwnedFd);

impl First {
    fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.0, Signal::KILL); // it may have ended
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What must be kept while a sandbox lives.
pub(super) enum Keeper {
    /// bubblewrap outside, which waits for the first process.
    Bubblewrap(Child),
    /// The runner itself, without a sandbox.
    Bare(Child),
    /// The engine's program that is attached to a container, and what removes the container.
    Container {
        monitor: Child,
        remove: Box<dyn FnOnce() + Send>,
    },
    /// The server it was forked from, in whose process namespace it is.
    Server { _alive: Arc<Server> },
}

/// What is known of a sandbox that has ended.
pub(super) struct Remains {
    /// The kernel killed something in it for its memory.
    pub(super) out_of_memory: bool,
    /// The files behind stdout and stderr.
    pub(super) streams: [File; 2],
}

impl Sandbox {
    /// Kill everything in it and wait until it is gone. Blocks for some milliseconds.
    pub(super) fn kill(self) -> Remains {
        self.init.kill();
        let until = Instant::now() + KILL_PATIENCE;
        // The first process ends after all others of its namespace.
        if !wait_readable(self.init.0.as_fd(), KILL_PATIENCE) {
            tracing::warn!("a killed session has not ended");
        }
        match self.keeper {
            Keeper::Bubblewrap(monitor) => end(monitor, until),
            Keeper::Container { monitor, remove } => {
                end(monitor, until);
                remove();
            }
            Keeper::Bare(mut runner) => {
                if let Some(group) = Pid::from_raw(runner.id().cast_signed()) {
                    let _ = rustix::process::kill_process_group(group, Signal::KILL);
                }
                let _ = runner.wait();
            }
            Keeper::Server { .. } => {}
        }
        Remains {
            out_of_memory: self.group.out_of_memory(),
            streams: self.ends.streams,
        }
    }
}

/// A monitor reaps its child and ends; only if it does not is it killed itself.
fn end(mut monitor: Child, until: Instant) {
    while matches!(monitor.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = monitor.kill();
    let _ = monitor.wait();
}

/// Wait until a descriptor is readable, which a process's is from its end on.
fn wait_readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
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

pub(super) fn memfd(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// A file for a stream: every writer appends, and nobody can seal it.
pub(super) fn stream(name: &str) -> io::Result<File> {
    let file = memfd(name)?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// The end of what was written to a stream.
pub(super) fn last_words(stream: &File) -> String {
    let size = stream.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; 2000];
    let count = stream
        .read_at(&mut bytes, size.saturating_sub(2000))
        .unwrap_or(0);
    match String::from_utf8_lossy(&bytes[..count]).trim() {
        "" => "it ended without a word".to_owned(),
        words => words.to_owned(),
    }
}
