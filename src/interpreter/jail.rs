//! One running sandbox: bubblewrap with everything of the host taken away, and the runner in it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{Gid, Uid};
use serde::Deserialize;

use super::cgroup::Group;
use super::environment::Environment;
use super::workspace::Workspace;
use super::{InterpreterError, Limits};

/// The sandbox's own user and group, as it sees them.
const INSIDE_ID: &str = "1000";

/// How long a killed sandbox may take to go.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// What is the same for all sandboxes of an interpreter.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) bwrap: PathBuf,
    /// Whether this bubblewrap can forbid further user namespaces.
    pub(super) disable_userns: bool,
    pub(super) environment: Environment,
}

/// What one sandbox gets.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) template: &'a Template,
    pub(super) workspace: &'a Workspace,
    pub(super) limits: &'a Limits,
    pub(super) wheelhouse: Option<&'a Path>,
    /// Host user to become first; `None` where we are unprivileged already.
    pub(super) user: Option<u32>,
}

/// A running sandbox. [`Jail::kill`] ends it; dropping alone leaves that to the kernel, at our end.
pub(super) struct Jail {
    /// bubblewrap outside.
    monitor: Child,
    /// The first process inside: all others die with it.
    init: OwnedFd,
    init_pid: u32,
    group: Group,
    /// Frames.
    pub(super) control: UnixStream,
    /// A byte here is a SIGINT there.
    pub(super) interrupt: UnixStream,
    /// The files behind stdout and stderr.
    pub(super) streams: [File; 2],
}

impl Plan<'_> {
    /// Start the sandbox. Must run on a thread of the launcher.
    pub(super) fn launch(&self, group: Group) -> Result<Jail, InterpreterError> {
        self.try_launch(group)
            .map_err(|source| InterpreterError::Start(format!("bubblewrap: {source}")))
    }

    fn try_launch(&self, group: Group) -> io::Result<Jail> {
        let (control, control_inside) = UnixStream::pair()?;
        let (interrupt, interrupt_inside) = UnixStream::pair()?;
        let (mut info, info_inside) = io::pipe()?;
        let filter = memfd("filter")?;
        (&filter).write_all(&super::seccomp::program())?;
        (&filter).rewind()?;
        let streams = [stream("stdout")?, stream("stderr")?];

        let inside: [OwnedFd; 4] = [
            control_inside.into(),
            interrupt_inside.into(),
            info_inside.into(),
            filter.into(),
        ];
        let mut command = Command::new(&self.template.bwrap);
        command
            .args(self.arguments(inside.each_ref().map(AsRawFd::as_raw_fd)))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(streams[0].try_clone()?)
            .stderr(streams[1].try_clone()?);
        let (joins, user) = (group.joins()?, self.user);
        // SAFETY: between fork and exec only system calls are made, on values prepared before; nothing
        // is allocated or locked.
        unsafe { command.pre_exec(move || enter(&joins, &inside, user)) };
        let mut monitor = command.spawn()?;
        drop(command); // and with it our copies of what is inside

        let init = match first_process(&mut info) {
            Ok(init) => init,
            Err(_) => {
                let _ = monitor.kill();
                let _ = monitor.wait();
                return Err(io::Error::other(last_words(&streams[1])));
            }
        };
        Ok(Jail {
            monitor,
            init: init.0,
            init_pid: init.1,
            group,
            control,
            interrupt,
            streams,
        })
    }

    /// The command line; the numbers are the descriptors of control, interrupt, info and filter.
    fn arguments(&self, [control, interrupt, info, filter]: [i32; 4]) -> Vec<OsString> {
        let mut args = Arguments::default();
        args.flags("--unshare-all --unshare-user --die-with-parent --new-session --cap-drop ALL");
        if self.template.disable_userns {
            args.flags("--disable-userns");
        }
        args.flags("--hostname sandbox --clearenv --uid")
            .add(INSIDE_ID)
            .add("--gid")
            .add(INSIDE_ID);
        self.system(&mut args);
        self.temporary(&mut args);
        self.files(&mut args);
        self.variables(&mut args);
        args.flags("--chdir /workspace --remount-ro /");
        args.add("--info-fd").add(info.to_string());
        if filter_exists() {
            args.add("--seccomp").add(filter.to_string());
        }
        args.flags("-- /opt/env/bin/python -P -u -c");
        args.add(format!(
            "import sys; sys.path.insert(0, '/opt/pybench/lib'); \
             from pybench_runner import runner; runner.main({control}, {interrupt})"
        ));
        args.0
    }

    /// Programs and libraries.
    fn system(&self, args: &mut Arguments) {
        args.bind("--ro-bind", "/usr", "/usr");
        for folder in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
            match std::fs::read_link(folder) {
                Ok(target) => {
                    args.add("--symlink").add(target).add(folder);
                }
                Err(_) => args.bind("--ro-bind-try", folder, folder),
            }
        }
        for path in ["/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts"] {
            args.bind("--ro-bind-try", path, path);
        }
        let environment = &self.template.environment;
        if !environment.base.starts_with("/usr") {
            args.bind("--ro-bind", &environment.base, &environment.base);
        }
        args.bind("--ro-bind", &environment.root, "/opt/env");
        args.bind("--ro-bind", &environment.runner, "/opt/pybench");
        for name in ["passwd", "group", "hosts"] {
            let path = environment.runner.join("etc").join(name);
            args.bind("--ro-bind", path, Path::new("/etc").join(name));
        }
    }

    /// Folders that begin empty and vanish, and what set-up has prepared in them.
    fn temporary(&self, args: &mut Arguments) {
        let size = ((self.limits.memory_mib / 2).max(16) << 20).to_string();
        args.flags("--proc /proc --dev /dev");
        for path in ["/dev/shm", "/tmp"] {
            args.add("--size").add(&size).add("--tmpfs").add(path);
        }
        let caches = self.template.environment.root.join("caches");
        args.bind(
            "--ro-bind-try",
            caches.join("jieba.cache"),
            "/tmp/jieba.cache",
        );
        for entry in std::fs::read_dir(caches.join("matplotlib"))
            .into_iter()
            .flatten()
            .flatten()
        {
            args.bind(
                "--ro-bind-try",
                entry.path(),
                Path::new("/tmp/matplotlib").join(entry.file_name()),
            );
        }
    }

    fn files(&self, args: &mut Arguments) {
        let path = self.workspace.path();
        args.bind("--bind", path, "/workspace");
        for inner in self.workspace.read_only() {
            args.bind(
                "--ro-bind",
                path.join(inner),
                Path::new("/workspace").join(inner),
            );
        }
        if let Some(wheelhouse) = self.wheelhouse {
            args.bind("--ro-bind", wheelhouse, "/opt/wheelhouse");
            args.flags("--dir /tmp/packages"); // there from the beginning, or Python would not look again
        }
    }

    fn variables(&self, args: &mut Arguments) {
        let pip: &[(&str, &str)] = match self.wheelhouse {
            None => &[
                ("PATH", "/opt/pybench/bin:/opt/env/bin:/usr/bin:/bin"),
                ("PYTHONPATH", "/opt/pybench/pip"),
            ],
            Some(_) => &[
                ("PATH", "/opt/env/bin:/usr/bin:/bin"),
                ("PYTHONPATH", "/tmp/packages"),
                ("PIP_TARGET", "/tmp/packages"),
                ("PIP_NO_INDEX", "1"),
                ("PIP_FIND_LINKS", "/opt/wheelhouse"),
                ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
                ("PIP_ROOT_USER_ACTION", "ignore"),
            ],
        };
        for (name, value) in VARIABLES.iter().chain(pip) {
            args.add("--setenv").add(name).add(value);
        }
    }
}

/// The whole environment of a session; the host's own stays outside.
const VARIABLES: &[(&str, &str)] = &[
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
    ("LOGNAME", "agent"),
    ("SHELL", "/bin/sh"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("IPYTHONDIR", "/tmp/.ipython"),
    ("MPLCONFIGDIR", "/tmp/matplotlib"),
    ("MPLBACKEND", "module://matplotlib_inline.backend_inline"),
    ("NUMBA_CACHE_DIR", "/tmp/numba"),
    // One thread each: sessions are many, cores are few, and sums come out the same every time.
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("NUMBA_NUM_THREADS", "1"),
];

fn filter_exists() -> bool {
    !super::seccomp::program().is_empty()
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    /// Words without blanks in them.
    fn flags(&mut self, words: &str) -> &mut Self {
        self.0.extend(words.split_whitespace().map(OsString::from));
        self
    }

    fn add(&mut self, word: impl Into<OsString>) -> &mut Self {
        self.0.push(word.into());
        self
    }

    fn bind(&mut self, how: &str, from: impl Into<OsString>, to: impl Into<OsString>) {
        self.add(how).add(from).add(to);
    }
}

/// In the new process, before bubblewrap: join the groups, hand over descriptors, become nobody.
fn enter(joins: &[File], inside: &[OwnedFd], user: Option<u32>) -> io::Result<()> {
    for join in joins {
        rustix::io::write(join, b"0")?;
    }
    for fd in inside {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    }
    // Equal work at equal addresses: `id()` and sets of objects repeat. Where it is refused they do not.
    // SAFETY: changes a flag of this process only.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    if let Some(id) = user {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
    }
    Ok(())
}

fn memfd(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// A file for a stream: every writer appends, and nobody can seal it.
fn stream(name: &str) -> io::Result<File> {
    let file = memfd(name)?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// What bubblewrap tells of the first process inside.
#[derive(Deserialize)]
struct Info {
    #[serde(rename = "child-pid")]
    child_pid: i32,
}

fn first_process(info: &mut io::PipeReader) -> io::Result<(OwnedFd, u32)> {
    let mut text = Vec::new();
    info.take(4096).read_to_end(&mut text)?;
    let started: Info = serde_json::from_slice(&text)?;
    let pid = Pid::from_raw(started.child_pid).ok_or_else(|| io::Error::other("no process"))?;
    let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok((fd, started.child_pid.unsigned_abs()))
}

/// The end of what was written to a stream.
fn last_words(stream: &File) -> String {
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

/// What is known of a sandbox that has ended.
pub(super) struct Remains {
    /// The kernel killed something in it for its memory.
    pub(super) out_of_memory: bool,
    /// The files behind stdout and stderr.
    pub(super) streams: [File; 2],
}

impl Jail {
    /// What it last wrote to stderr.
    pub(super) fn last_words(&self) -> String {
        last_words(&self.streams[1])
    }

    /// Kill everything in it and wait until it is gone. Blocks for some milliseconds.
    pub(super) fn kill(mut self) -> Remains {
        let _ = rustix::process::pidfd_send_signal(&self.init, Signal::KILL);
        let until = Instant::now() + KILL_PATIENCE;
        // bubblewrap reaps its child and ends; only if it does not is it killed itself.
        while matches!(self.monitor.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
        let inside = PathBuf::from(format!("/proc/{}", self.init_pid));
        while inside.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Remains {
            out_of_memory: self.group.out_of_memory(),
            streams: self.streams,
        }
    }
}
