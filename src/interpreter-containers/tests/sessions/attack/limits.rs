//! Memory, processes, processors and files: exhausting them hits only the session.

use std::time::Duration;

use pybench_interpreter::Tier;
use pybench_interpreter::cgroup::Cgroups;
use pybench_testing::sessions::*;
use pybench_types::observation::Stopped;

use super::{PRELUDE, answers, attack, in_gvisor, start_with, tier};

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_bomb_hits_only_itself() {
    let code = "hold = []\nwhile True: hold.append(bytearray(16 << 20))";
    let Some(seen) = attack(code).await else {
        return;
    };
    match seen.stopped {
        Some(Stopped::Died) => assert!(
            seen.error
                .unwrap()
                .evalue
                .contains("more than 512 MiB of memory")
        ),
        // Without control groups the process's own limit holds.
        other => assert_eq!(
            (other, seen.error.unwrap().ename.as_str()),
            (None, "MemoryError")
        ),
    }
    let child = "subprocess.run([sys.executable, '-c', 'hold = []\\nwhile True: hold.append(bytearray(16 << 20))'], stderr=subprocess.DEVNULL).returncode != 0";
    let Some(seen) = attack(child).await else {
        return;
    };
    // gVisor's kernel is one process of the host's, which takes all of it.
    let whole = in_gvisor() && seen.stopped == Some(Stopped::Died);
    assert!(seen.plain() == "True" || whole, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_stopped() {
    let code = "
children = []
try:
    while len(children) < 5000:
        pid = os.fork()
        if pid == 0: time.sleep(60); os._exit(0)
        children.append(pid)
except OSError as error: pass
[os.kill(pid, 9) for pid in children]
len(children) < 40";
    answers(code, "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_connections_hold_little_memory() {
    // Without control groups only a jail limits each connection.
    if !Cgroups::detect().bounds_memory() && tier() != Tier::Jail {
        return;
    }
    let Some(mut session) = start_with(with_limits(|limits| limits.memory_mib = 128)).await else {
        return;
    };
    let code = "
import socket
held, sent = [], 0
def fill(sender):
    global sent
    sender.setblocking(False)
    try:
        while sent < 1 << 30: sent += sender.send(bytes(1 << 15))
    except BlockingIOError: pass
server = socket.create_server(('127.0.0.1', 0))
for _ in range(100):
    client = socket.create_connection(server.getsockname())
    held += [client, server.accept()[0]]
    fill(client)
for _ in range(100):
    held += socket.socketpair()
    fill(held[-1])
sent >> 20";
    let seen = session.run(code).await;
    let sent = seen.plain().parse::<u64>();
    let most = if in_gvisor() { 256 } else { 128 }; // with the memory of its kernel
    assert!(
        sent.is_ok_and(|mib| mib < most) || seen.stopped == Some(Stopped::Died),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spinning_children_get_no_more_than_allowed() {
    // gVisor's kernel counts their time by its own ticks.
    if !Cgroups::detect().bounds_cpus() || in_gvisor() {
        return;
    }
    let spec = with_limits(|limits| {
        limits.cpus = 0.5;
        limits.cell_seconds = 600;
    });
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    let code = "
import os, time
began = time.monotonic()
for _ in range(8):
    if os.fork() == 0:
        while time.monotonic() < began + 1: pass
        os._exit(0)
for _ in range(8): os.wait()
spent = os.times()
(spent.children_user + spent.children_system) / (time.monotonic() - began) < 0.75";
    let seen = session.run(code).await;
    assert_eq!(seen.plain(), "True", "{seen:?}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_spins_pauses_with_its_cell() {
    const SPIN: &str = "
import os, subprocess, sys
spin = 'import time\\nwhile True: print(time.monotonic(), file=open(\"output/ticks\", \"a\"))'
for _ in range(4): child = subprocess.Popen([sys.executable, '-c', spin])
while not os.path.exists('output/ticks'): pass";
    const GROWS: &str = "
before = os.path.getsize('output/ticks')
while os.path.getsize('output/ticks') == before: pass
child.poll()";
    let spec = |background| with_limits(|limits| limits.background = background);
    let Some(mut session) = start_with(spec(false)).await else {
        return;
    };
    session.run(SPIN).await;
    // A process stops at the end of the system call that it is in, which on a busy machine is later.
    let rests = async {
        loop {
            let ticks = session.outputs().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            if session.outputs().await == ticks {
                return;
            }
        }
    };
    let rested = tokio::time::timeout(Duration::from_secs(60), rests).await;
    assert!(rested.is_ok(), "it goes on without a cell");
    let seen = session.run(GROWS).await;
    assert_eq!((seen.plain().as_str(), seen.error), ("", None));
    session.close().await;

    let Some(mut session) = start_with(spec(true)).await else {
        return;
    };
    session.run(SPIN).await;
    let ticks = session.outputs().await;
    while session.outputs().await == ticks {}
    session.close().await;
}

/// Whether this process may fix the least score of others: it has CAP_SYS_RESOURCE.
fn may_fix_scores() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(effective.unwrap().trim(), 16).unwrap() & (1 << 24) != 0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_killer_prefers_it_in_any_case() {
    // gVisor's kernel keeps the number for itself.
    if !may_fix_scores() || in_gvisor() {
        return;
    }
    let code = "
def write(number): return os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), number)
attempt(lambda: write(b'299')), attempt(lambda: write(b'300'))";
    answers(code, "('Permission denied', 3)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_cannot_fill_the_machine() {
    let Some(mut session) = start_with(with_limits(|limits| {
        limits.memory_mib = 256;
        limits.file_mib = 32;
    }))
    .await
    else {
        return;
    };
    let code = format!(
        "{PRELUDE}
def fill(path, count=1):
    written = 0
    try:
        for i in range(count):
            with open(path + str(i), 'wb', buffering=0) as file:
                for _ in range(1024):
                    written += file.write(bytes(1 << 20))
    except OSError: pass
    for i in range(count):
        if os.path.exists(path + str(i)): os.remove(path + str(i))
    return written >> 20
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
print(fill('output/one'))
def inodes():
    try:
        for i in range(200_000): open(f'output/{{i}}', 'w').close()
    except OSError as error: return i < 100_000
inodes()"
    );
    let seen = session.run(&code).await;
    assert_eq!(seen.text("stdout"), "32\n", "{seen:?}");
    assert!(
        seen.plain() == "True" || seen.stopped == Some(Stopped::Died),
        "{seen:?}"
    );
    for (place, most) in [
        ("'output/many', 100", 128),
        ("'/tmp/many', 100", 128),
        ("'/dev/shm/many', 100", 128),
    ] {
        let seen = session
            .run(&format!(
                "{}\nfill({place})",
                code.split("print(").next().unwrap()
            ))
            .await;
        let written = seen.plain().parse::<u64>();
        // Full, or out of memory first: what lies in tmpfs counts.
        assert!(
            written.is_ok_and(|mib| mib <= most) || seen.stopped == Some(Stopped::Died),
            "{place}: {seen:?}"
        );
    }
    session.close().await;
}
