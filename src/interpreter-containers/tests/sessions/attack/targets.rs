//! What attempts aim at: listeners, files and processes of the test's own.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Attempts that one of the tiers' tests shows outside of a jail: one proof serves every tier.
static CLAIMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Whether the caller is the first to show this attempt outside.
pub(crate) fn claim(attempt: &'static str) -> bool {
    CLAIMED.lock().unwrap().insert(attempt)
}

/// Defines the targets for Python.
pub(crate) fn prelude() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(make)
}

fn make() -> String {
    let pid = std::process::id();
    let folder = pybench_testing::sessions::shared_folder().keep();
    std::fs::write(folder.join("secret"), "x").unwrap();
    let shm = PathBuf::from(format!("/dev/shm/pybench-test-{pid}"));
    std::fs::write(&shm, "x").unwrap();
    let text = format!(
        "TCP, TCP6, UDP, HOST = {}, {}, {}, {:?}\nABSTRACT, SOCKET = {:?}, {:?}\nFOLDER, SHM, PID, QUEUE = {:?}, {:?}, {pid}, {}\nJOURNAL, FIFO, CACHE, ENVIRONMENT = {:?}, {:?}, {:?}, {:?}\n",
        tcp("127.0.0.1:0"),
        tcp("[::1]:0"),
        udp(),
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap()
            .trim(),
        abstract_socket(pid),
        path_socket(&folder),
        folder,
        shm,
        queue(pid),
        journal(&folder),
        fifo(&folder),
        cache(),
        environment(),
    );
    clean_up_after(pid, &[folder, shm]);
    text + PRELUDE
}

/// A watcher removes what was made when this process has ended, however it ends.
fn clean_up_after(pid: u32, paths: &[PathBuf]) {
    let script = format!(
        "(while kill -0 {pid} 2>/dev/null; do sleep 0.2; done; rm -rf \"$@\"; ipcrm -Q {}) >/dev/null 2>&1 &",
        0x7079_0000 + (pid & 0xffff)
    );
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", &script, "sh"]).args(paths);
    assert!(command.stdin(Stdio::null()).status().unwrap().success());
}

/// Says what it hears; 0 where there is no such network.
fn tcp(address: &str) -> u16 {
    let Ok(listener) = TcpListener::bind(address) else {
        return 0;
    };
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() {
                let _ = stream.write_all(&byte);
            }
        }
    });
    port
}

fn udp() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((count, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..count], from);
        }
    });
    port
}

fn serve(listener: UnixListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"!");
        }
    });
}

fn abstract_socket(pid: u32) -> String {
    let name = format!("pybench-attack-{pid}");
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    serve(UnixListener::bind_addr(&address).unwrap());
    name
}

fn path_socket(folder: &std::path::Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("socket");
    serve(UnixListener::bind(&path).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    path
}

/// A run's journal, which this process holds open as a run does.
fn journal(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("journal.sqlite");
    std::fs::write(&path, "SQLite format 3\0").unwrap();
    std::mem::forget(std::fs::File::open(&path).unwrap());
    path
}

fn fifo(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("fifo");
    let made = Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    path
}

/// What the host keeps workspaces in, which are made here where no session has been started yet, and the
/// runner.
fn cache() -> PathBuf {
    let path = pybench_interpreter::default_cache_dir();
    std::fs::create_dir_all(path.join("sessions")).unwrap();
    path
}

/// The sessions' Python environment; empty where there is none, and with it no session.
fn environment() -> PathBuf {
    let python = pybench_interpreter::environment_python().unwrap_or_default();
    python
        .ancestors()
        .nth(2)
        .map(PathBuf::from)
        .unwrap_or_default()
}

/// A System V message queue that everybody may use.
fn queue(pid: u32) -> u32 {
    let key = 0x7079_0000 + (pid & 0xffff);
    // SAFETY: no memory is involved.
    let made = unsafe { libc::msgget(key.cast_signed(), libc::IPC_CREAT | 0o666) };
    assert!(made >= 0);
    key
}

const PRELUDE: &str = "
import ctypes, errno, fcntl, glob, os, resource, signal, socket, stat, struct, subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True
def apart(f):
    'In a child, whose namespaces and rights are its own.'
    pid = os.fork()
    if pid == 0:
        try: os._exit(0 if f() else 1)
        except BaseException as error: print(repr(error)); os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
def paused():
    'A child that waits to be attacked.'
    pid = os.fork()
    if pid == 0: time.sleep(20); os._exit(0)
    return pid
def opened(path, flags=os.O_RDWR):
    try: return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY) > 0
    except OSError: return False
def swap(f, pid):
    try: return f(pid)
    finally: os.kill(pid, 9); os.waitpid(pid, 0)
";
