//! Random system calls in a session, while another session and the host check that they are untouched.

use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use super::start;
use pybench_testing::sessions::*;
use tempfile::TempDir;

/// Processes that make random calls with arguments that mean something, for a second: eight at a time, which are ended
/// after a moment with all that they have started.
const STRIKE: &str = "
import ctypes, os, random, signal, time
libc, rng, end, count = ctypes.CDLL(None), random.Random(SEED), time.monotonic() + 1, 0
buffer = ctypes.create_string_buffer(1 << 16)
START = ctypes.addressof(buffer)
FLAGS = [1 << bit for bit in range(32)]
NUMBERS = [n for n in range(460) if n not in (15, 34, 58, 60, 61, 128, 130, 231, 247)] # those end the child, or it waits
PATHS = [b'/proc/self/mem', b'/dev/shm/x', b'output/x', b'/', b'/proc/1/root', b'/dev/ptmx', b'/usr/bin/env', b'data']
def argument():
    return rng.choice([
        lambda: rng.randrange(-2, 20), lambda: rng.choice([PID, os.getpid(), 1]), lambda: rng.choice(FLAGS),
        lambda: rng.choice(FLAGS) | rng.choice(FLAGS), lambda: START + rng.randrange(1 << 15), lambda: START,
        lambda: rng.getrandbits(64), lambda: 0,
    ])()
def strike(seed):
    rng.seed(seed)
    os.setsid()
    signal.alarm(1)
    for _ in range(200):
        content = rng.choice([*PATHS, rng.randbytes(64)]) + bytes(8)
        ctypes.memmove(START, content, len(content))
        libc.syscall(ctypes.c_long(rng.choice(NUMBERS)), *[ctypes.c_long(argument()) for _ in range(6)])
while time.monotonic() < end:
    for count in range(count + 1, count + 9):
        seed, child = rng.random(), os.fork()
        if child == 0:
            try: strike(seed)
            finally: os._exit(0)
    time.sleep(0.05)
    try: os.kill(-1, signal.SIGKILL)
    except ProcessLookupError: pass
    try:
        while os.waitpid(-1, 0): pass
    except ChildProcessError: pass
count";

/// Something of another session that a call could change.
const VICTIM: &str = "
import os, socket
open('output/own', 'w').write('own'); open('/tmp/own', 'w').write('own')
listener = socket.create_server(('127.0.0.1', 0))
child = os.fork()
if child == 0: listener.accept(); os._exit(0)
def state():
    os.kill(child, 0)
    return open('output/own').read(), open('/tmp/own').read(), sorted(os.listdir('/tmp')), listener.getsockname()
known = state()";

/// What the host looks at: a file, a process, the clock, settings of the kernel, mounts.
struct Host {
    folder: TempDir,
    child: Child,
    settings: String,
    clock: (SystemTime, Instant),
}

impl Host {
    fn new() -> Self {
        let folder = shared_folder();
        std::fs::write(folder.path().join("own"), "own").unwrap();
        Self {
            folder,
            child: Command::new("sleep").arg("86400").spawn().unwrap(),
            settings: settings(),
            clock: (SystemTime::now(), Instant::now()),
        }
    }

    fn check(&mut self) {
        let file = std::fs::read_to_string(self.folder.path().join("own"));
        assert_eq!(file.unwrap(), "own");
        assert!(self.child.try_wait().unwrap().is_none(), "it was killed");
        assert_eq!(settings(), self.settings);
        let passed = SystemTime::now().duration_since(self.clock.0).unwrap();
        let drift = passed.abs_diff(self.clock.1.elapsed());
        assert!(drift < Duration::from_secs(60), "the clock was set");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Settings of the kernel, and mounts but those of sessions.
fn settings() -> String {
    let names = [
        "hostname",
        "core_pattern",
        "domainname",
        "randomize_va_space",
        "modprobe",
    ];
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let settings: String = names
        .map(|name| read(format!("/proc/sys/kernel/{name}")))
        .concat();
    let mounts = read("/proc/self/mountinfo".to_owned());
    let mounts = mounts.lines().filter(|line| !line.contains("sessions/"));
    settings + &mounts.collect::<Vec<_>>().join("\n")
}

/// `just attack --random SECONDS` sets both; the seed of each second is said.
fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn random_calls_touch_nobody_else() {
    let (Some(mut attacker), Some(mut victim)) = (start().await, start().await) else {
        return;
    };
    let mut host = Host::new();
    let first = number("PYBENCH_ATTACK_SEED", 1);
    victim.run(VICTIM).await;
    for seed in first..first + number("PYBENCH_ATTACK_SECONDS", 1) {
        let known = format!("SEED, PID = {seed}, {}", std::process::id());
        let seen = attacker.run(&format!("{known}{STRIKE}")).await;
        let processes = seen.plain();
        let stopped = seen.stopped;
        eprintln!("PYBENCH_ATTACK_SEED={seed}: {processes} processes, session {stopped:?}");
        host.check();
        let seen = victim.run("state() == known").await;
        assert_eq!(seen.plain(), "True", "{seen:?}");
    }
    assert_eq!(attacker.run("'lives'").await.plain(), "'lives'");
    attacker.close().await;
    victim.close().await;
}
