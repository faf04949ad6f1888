//! Ends the sessions of a process that is suspended or hangs.
//!
//! A killed process takes its sessions with it; a suspended one keeps them, although another worker goes on with its units.
//! So a second process waits for signs of life, each of which says how long to wait for the next one. If that does not come, it
//! kills what the launcher thread of the first has started, and the sandboxes end as if the first had been killed. Relays in
//! containers notice the silence themselves; how long they wait is [`lifetime`].
//!
//! The kernel has to list the children of a thread ([`CHILDREN`]), which is an option of its build.

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, kill_process_group};

use super::sandbox::wait_readable;

/// First argument of the program as a guard: `pybench guard-sessions MILLISECONDS PROCESS`.
const GUARD: &str = "guard-sessions";

/// Name of the threads that start the processes of sessions.
pub(super) const LAUNCHER: &str = "sessions";

/// The processes that the calling thread has started; kernels without `CONFIG_PROC_CHILDREN` have no such file.
pub const CHILDREN: &str = "/proc/thread-self/children";

/// Milliseconds of [`lifetime`]; 0 without a guard.
static LIFETIME: AtomicU64 = AtomicU64::new(0);

/// When the sessions have to end at the latest, unless this changes; see [`limit`].
static DEADLINE: Mutex<Option<Instant>> = Mutex::new(None);

/// What the guard was told last, and how often it may have ended the sessions.
static ORDERS: Mutex<Orders> = Mutex::new(Orders { due: None, ends: 0 });

/// Signs of life within the time that the guard waits for one.
const BEATS: u32 = 4;

/// Shortest time between two signs of life.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// How long a guard sleeps at a time after it has ended the sessions.
const LONG: Duration = Duration::from_secs(3600);

/// Ends the sessions of this process when it is silent, until this is dropped.
#[derive(Debug)]
pub struct SessionGuard {
    /// Ends the thread that gives the signs of life.
    _alive: mpsc::Sender<()>,
}

impl SessionGuard {
    /// Starts a guard. `program` is one whose `main` begins with [`run_if_asked`]; sessions end when this process has been
    /// silent for `lifetime`. Where the kernel does not list children, it only warns that no guard can end them.
    ///
    /// # Errors
    /// The process or the thread cannot be started.
    pub fn start(program: &Path, lifetime: Duration) -> io::Result<Self> {
        LIFETIME.store(millis(lifetime), Ordering::Relaxed);
        let (alive, ended) = mpsc::channel();
        if !Path::new(CHILDREN).exists() {
            tracing::warn!(
                "this kernel has no {CHILDREN} (CONFIG_PROC_CHILDREN): if this process is suspended, its sessions stay until it \
                 is continued or killed"
            );
            return Ok(Self { _alive: alive });
        }
        let program = program.to_owned();
        let mut guard = Guard::spawn(&program, lifetime)?;
        let beat = move || {
            while ended.recv_timeout(pause(lifetime)) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = guard.beat(lifetime) {
                    tracing::warn!("the guard of the sessions has ended and is replaced: {error}");
                    match Guard::spawn(&program, lifetime) {
                        Ok(next) => guard = next,
                        Err(error) => tracing::warn!("cannot start a guard: {error}"),
                    }
                }
            }
        };
        thread::Builder::new()
            .name("session-guard".to_owned())
            .spawn(beat)?;
        Ok(Self { _alive: alive })
    }
}

/// How long this process may be silent until its sessions end, if a guard was started in it.
pub fn lifetime() -> Option<Duration> {
    match LIFETIME.load(Ordering::Relaxed) {
        0 => None,
        millis => Some(Duration::from_millis(millis)),
    }
}

/// Lets sessions end after this time, if the process is silent from now on and the time is less than its lifetime. `None`: after the
/// lifetime.
pub fn limit(time: Option<Duration>) {
    *deadline() = time.map(|time| Instant::now() + time);
}

/// When the guard ends the sessions, unless it gets another sign of life before.
struct Orders {
    due: Option<Instant>,
    ends: u64,
}

impl Orders {
    /// A sign of life has been written, `begun` being the time before; the guard waits for the next one as long as it says.
    fn renew(&mut self, begun: Instant, patience: Duration) {
        if self.is_overdue() {
            self.ends += 1;
        }
        self.due = Some(begun + patience);
    }

    fn is_overdue(&self) -> bool {
        self.due.is_some_and(|due| Instant::now() >= due)
    }
}

fn orders() -> MutexGuard<'static, Orders> {
    // Two plain values cannot be left inconsistent by a panic.
    ORDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers since when a session exists, so that its death by the guard is not taken for one of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(u64);

impl Since {
    pub(super) fn now() -> Self {
        Self(orders().ends)
    }

    /// Whether the guard may have ended the sessions since then: this process was silent for as long as it may be.
    pub(super) fn may_have_ended(self) -> bool {
        let orders = orders();
        orders.is_overdue() || orders.ends != self.0
    }
}

fn deadline() -> MutexGuard<'static, Option<Instant>> {
    // A plain value cannot be left inconsistent by a panic.
    DEADLINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the guard waits for the next sign of life.
fn patience(lifetime: Duration) -> Duration {
    deadline().map_or(lifetime, |deadline| {
        lifetime.min(deadline.saturating_duration_since(Instant::now()))
    })
}

/// The time until the next sign of life: when little is left, the guard learns soon if it becomes more.
fn pause(lifetime: Duration) -> Duration {
    (patience(lifetime) / BEATS).max(MIN_PAUSE)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The other process. Dropping it ends it.
struct Guard {
    process: Child,
    /// `None` while it is dropped.
    signs: Option<PipeWriter>,
}

impl Guard {
    fn spawn(program: &Path, lifetime: Duration) -> io::Result<Self> {
        let begun = Instant::now();
        let (input, signs) = io::pipe()?;
        let process = Command::new(program)
            .arg(GUARD)
            .arg(lifetime.as_millis().to_string())
            .arg(std::process::id().to_string())
            .process_group(0) // a signal to our group suspends us, and not the guard
            .stdin(input)
            .stdout(Stdio::null())
            .spawn()?;
        orders().renew(begun, lifetime);
        Ok(Self {
            process,
            signs: Some(signs),
        })
    }

    fn beat(&mut self, lifetime: Duration) -> io::Result<()> {
        let begun = Instant::now();
        if orders().is_overdue() {
            // The sessions were ended for it.
            deadline().take_if(|deadline| *deadline <= begun);
        }
        let patience = patience(lifetime);
        let sign = millis(patience).to_le_bytes();
        if let Some(signs) = &mut self.signs {
            signs.write_all(&sign)?;
        }
        orders().renew(begun, patience);
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.signs = None;
        let _ = self.process.wait(); // it ends at the end of its input
    }
}

/// Is the guard of another process if the arguments of this one say so; returns its exit code. To be called before anything
/// else.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != GUARD {
        return None;
    }
    let numbers: Vec<OsString> = arguments.collect();
    let number = |at: usize| numbers.get(at)?.to_str()?.parse::<u64>().ok();
    let parent = number(1).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let (Some(lifetime), Some(parent)) = (number(0), parent) else {
        let _ = writeln!(io::stderr(), "{GUARD} is a command for pybench itself");
        return Some(ExitCode::from(2));
    };
    guard(parent, Duration::from_millis(lifetime));
    Some(ExitCode::SUCCESS)
}

/// Waits for signs of life on the standard input until `parent` ends.
fn guard(parent: Pid, lifetime: Duration) {
    let input = io::stdin();
    let mut signs = [0; 64];
    // A suspended process starts no further session, so that they are ended once.
    let (mut patience, mut have_ended) = (lifetime, false);
    loop {
        if wait_readable(input.as_fd(), patience) {
            let Ok(count @ 1..) = rustix::io::read(&input, &mut signs) else {
                return;
            };
            (patience, have_ended) = (patience_of(&signs[..count]).unwrap_or(lifetime), false);
        } else if !have_ended {
            if getppid() != Some(parent) {
                return;
            }
            if let ended @ 1.. = end_sessions(parent) {
                let _ = writeln!(
                    io::stderr(),
                    "process {} was silent for {} s: {ended} processes of its sessions are ended",
                    parent.as_raw_nonzero(),
                    patience.as_secs_f64()
                );
            }
            (patience, have_ended) = (LONG, true);
        }
    }
}

/// The time in the last sign of life.
fn patience_of(signs: &[u8]) -> Option<Duration> {
    let last = signs.last_chunk::<8>()?;
    Some(Duration::from_millis(u64::from_le_bytes(*last)))
}

/// Kills what the launcher threads of a process have started; the number of processes.
fn end_sessions(parent: Pid) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
    let tasks = tasks.into_iter().flatten().flatten();
    let launchers = tasks.filter(|task| {
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == LAUNCHER)
    });
    let mut ended = 0;
    for launcher in launchers {
        let children = fs::read_to_string(launcher.path().join("children")).unwrap_or_default();
        let pids = children.split_whitespace();
        let pids = pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        for pid in pids {
            // Each is the first of a process group; its parent, which is silent, has not waited for it.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
            ended += 1;
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_sign_says_how_long_to_wait_for_the_next_one() {
        assert_eq!(patience(SECOND), SECOND);
        limit(Some(SECOND * 60));
        assert_eq!(patience(SECOND), SECOND);
        assert!(patience(SECOND * 90) <= SECOND * 60);
        assert_eq!(pause(SECOND), SECOND / 4);
        limit(Some(Duration::ZERO));
        assert_eq!(patience(SECOND), Duration::ZERO);
        assert_eq!(pause(SECOND), MIN_PAUSE);
        limit(None);
        assert_eq!(patience(SECOND), SECOND);
    }

    #[test]
    fn a_silence_is_remembered() {
        let now = Instant::now();
        let mut orders = Orders { due: None, ends: 0 };
        assert!(!orders.is_overdue(), "there is no guard");
        orders.renew(now, SECOND * 60);
        orders.renew(now, Duration::ZERO);
        assert_eq!((orders.ends, orders.is_overdue()), (0, true));
        orders.renew(now, SECOND * 60);
        assert_eq!((orders.ends, orders.is_overdue()), (1, false));
    }

    #[test]
    fn the_last_sign_counts() {
        let signs = [5_000_u64, 250].map(u64::to_le_bytes).concat();
        assert_eq!(patience_of(&signs), Some(SECOND / 4));
        assert_eq!(patience_of(b"."), None);
    }
}
