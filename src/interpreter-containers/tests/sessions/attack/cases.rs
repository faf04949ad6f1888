//! Attempts to get out of the sandbox, to exhaust the machine, and to deceive the host. Where it is
//! harmless, an attempt is first shown to succeed outside, so that a broken attempt proves nothing.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use pybench_testing::sessions::*;

#[cfg(target_arch = "x86_64")] // calls are made by their numbers
#[path = "attempts.rs"]
mod attempts;
#[path = "neighbors.rs"]
mod neighbors;
#[path = "network.rs"]
mod network;
#[path = "random.rs"]
mod random;
#[cfg(target_arch = "x86_64")]
#[path = "shown.rs"]
mod shown;
use pybench_interpreter::SessionSpec;
use pybench_interpreter::Tier;
use pybench_interpreter::cgroup::Cgroups;
use pybench_types::observation::{Observation, Stopped};

fn tier() -> pybench_interpreter::Tier {
    tier_of(module_path!())
}

async fn start() -> Option<Live> {
    start_with(SessionSpec::default()).await
}

async fn start_with(spec: SessionSpec) -> Option<Live> {
    start_in(tier(), spec).await
}

/// Whether the session's kernel is gVisor's.
fn in_gvisor() -> bool {
    tier_of(module_path!()) == Tier::Gvisor
}

/// `attempt(name, f)` prints what became of it; the answers are compared as one text.
const PRELUDE: &str = "
import ctypes, os, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(f):
    try: return f()
    except OSError as error: return error.strerror or type(error).__name__
def call(number, *arguments):
    return 'done' if libc.syscall(number, *arguments) >= 0 else os.strerror(ctypes.get_errno())
";

async fn attack(code: &str) -> Option<Observation> {
    let mut session = start_with(with_limits(|limits| {
        limits.memory_mib = 512;
        limits.processes = 32;
        limits.cell_seconds = if in_gvisor() { 300 } else { 30 }; // its kernel is slower
    }))
    .await?;
    let seen = session.run(&format!("{PRELUDE}{code}")).await;
    session.close().await;
    Some(seen)
}

async fn answers(code: &str, expected: &str) {
    let Some(seen) = attack(code).await else {
        return;
    };
    assert_eq!(seen.plain(), expected, "{seen:?}");
}

fn outside(code: &str) -> String {
    let output = Command::new("python3").args(["-c", code]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_loopback_is_out_of_reach() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!(
        "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2); print('reached')"
    );
    assert_eq!(outside(&connect), "reached");
    listener.accept().unwrap();
    listener.set_nonblocking(true).unwrap();
    let code = format!("attempt(lambda: socket.create_connection(('127.0.0.1', {port}), 2))");
    answers(&code, "'Connection refused'").await;
    assert!(listener.accept().is_err(), "somebody came in");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_way_out_and_no_name_service() {
    let code = "
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 53)); return 'sent'
attempt(udp), attempt(lambda: socket.getaddrinfo('host.invalid', 80))";
    let Some(seen) = attack(code).await else {
        return;
    };
    // gVisor's kernel has another word for it.
    let ways = ["Network is unreachable", "No route to host"];
    let ways = &ways[..if in_gvisor() { 2 } else { 1 }];
    let none = ways
        .iter()
        .any(|way| seen.plain().starts_with(&format!("('{way}', '")));
    assert!(none, "{seen:?}");
    assert!(
        !seen.plain().contains("[("),
        "a name was resolved: {seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn abstract_sockets_of_the_host_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("pybench-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let connect = format!(
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0{name}'); print('reached')"
    );
    assert_eq!(outside(&connect), "reached");
    drop(listener.accept().unwrap());
    answers(
        &format!("attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))"),
        "'Connection refused'",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_kinds_of_sockets_are_refused() {
    let refused = "Address family not supported by protocol";
    let code = "[attempt(lambda: socket.socket(family, kind) and 'made') for family, kind in
 [(16, 3), (17, 3), (38, 5), (40, 1)]] + [attempt(lambda: socket.socket(2, 3) and 'made')]";
    // A raw socket is refused by the kernel itself, in its own words.
    let raw = if in_gvisor() {
        "Operation not permitted"
    } else {
        "Protocol not supported"
    };
    let expected = format!("['{refused}', '{refused}', '{refused}', '{refused}', '{raw}']");
    let Some(seen) = attack(code).await else {
        return;
    };
    let words: Vec<String> = seen.plain().split_whitespace().map(str::to_owned).collect();
    assert_eq!(words.join(" "), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_files_are_not_there() {
    let secret = shared_folder();
    std::fs::write(secret.path().join("secret"), "x").unwrap();
    let path = secret.path().join("secret");
    let path = path.to_str().unwrap();
    assert_eq!(outside(&format!("print(open('{path}').read())")), "x");
    let code = format!(
        "print(*[attempt(lambda: open(p).read()) for p in ['{path}', '/etc/shadow', '/root/.bashrc', '/proc/1/root/etc/shadow']], sep='|')
print(sorted(os.listdir('/')), sorted(os.listdir('/etc')))
print(os.path.exists('/sys') and os.listdir('/sys') != [], os.path.exists('/var'), os.path.exists('/run'), sorted(os.listdir('/dev')))"
    );
    let Some(seen) = attack(&code).await else {
        return;
    };
    let text = seen.text("stdout");
    let none = "No such file or directory";
    assert!(
        text.starts_with(&format!("{none}|{none}|{none}|")),
        "{text}"
    );
    assert!(!text.contains("root:"), "{text}");
    let root =
        "['bin', 'dev', 'etc', 'lib', 'lib64', 'opt', 'proc', 'sbin', 'tmp', 'usr', 'workspace']";
    let listed: Vec<&str> = text.lines().nth(1).unwrap().split(']').collect();
    for name in listed[0].trim_start_matches('[').split(", ") {
        assert!(
            root.contains(name) || name.starts_with("'lib") || (in_gvisor() && name == "'sys'"),
            "{name} in {text}"
        );
    }
    assert!(text.contains("False False False"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_environment_stays_outside() {
    // SAFETY: set before any session of this test starts; no other test reads it.
    unsafe { std::env::set_var("PYBENCH_TEST_SECRET", "very-secret") };
    let code = "
seen = b''
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    for name in ('environ', 'cmdline'):
        try: seen += open(f'/proc/{pid}/{name}', 'rb').read()
        except OSError: pass
b'very-secret' in seen, 'PYBENCH_TEST_SECRET' in os.environ, b'PYTHONHASHSEED' in seen";
    answers(code, "(False, False, True)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_own_processes_are_seen() {
    let code =
        "sorted(int(p) for p in os.listdir('/proc') if p.isdigit()) == sorted({1, os.getpid()})";
    answers(code, "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_no_privileges() {
    let code = "
kept = {line.split()[0]: line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')}
print({name for name, value in kept.items() if int(value, 16)}, len(kept))
libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0)"; // PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP
    let Some(seen) = attack(code).await else {
        return;
    };
    assert_eq!(seen.plain(), "(1, 2)", "{seen:?}");
    let kinds = if in_gvisor() { 4 } else { 5 }; // it knows no ambient ones
    assert_eq!(seen.text("stdout"), format!("set() {kinds}\n"));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_arch = "x86_64")]
async fn dangerous_calls_are_refused() {
    // Each call with arguments that would do no harm where it is allowed.
    let calls = "unshare:272,0x10000000 ptrace:101,0 bpf:321,0 userfaultfd:323,0 io_uring_setup:425,1 keyctl:250,0 \
                 perf_event_open:298,0 open_by_handle_at:304,3 setns:308,0 mount:165,0 umount2:166,0 pivot_root:155,0 \
                 chroot:161,0 kexec_load:246,0 init_module:175,0 process_vm_readv:310,1 personality:135,0xffffffff \
                 clone_newuser:56,0x10000011 add_key:248,0 fsopen:430,0 mount_setattr:442,0 syslog:103,0";
    let code = format!(
        "[name for name, number, argument in [(*c.split(':')[:1], *c.split(':')[1].split(',')) for c in '{calls}'.split()]
 if call(int(number), ctypes.c_long(int(argument, 0)), 0, 0, 0, 0) != 'Operation not permitted']"
    );
    answers(&code, "[]").await;
    let code = "{call(435, 0, 0), call(9999, 0), call(0x40000000 + 39)}";
    answers(code, "{'Function not implemented'}").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_system_can_be_written() {
    let code = "
import numpy
paths = [os.__file__ + 'x', numpy.__file__ + 'x', '/usr/bin/evil', '/opt/pybench/lib/evil.py', '/etc/evil', '/evil', '/bin/evil',
         '/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/tmp/jieba.cache']
set(attempt(lambda: open(path, 'w') and 'opened') for path in paths) - {'Read-only file system', 'Permission denied', 'No such file or directory'}";
    answers(code, "set()").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_uid_programs_give_nothing() {
    let code = "
open('su', 'wb').write(open('/usr/bin/id', 'rb').read()); os.chmod('su', 0o6755)
subprocess.run(['./su', '-u'], capture_output=True, text=True).stdout.strip(), attempt(lambda: os.setuid(0))";
    answers(code, "('1000', 'Invalid argument')").await;
}

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
    let ticks = session.outputs().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(session.outputs().await, ticks, "it went on without a cell");
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

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_nobody_else() {
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let code = format!(
        "attempt(lambda: os.kill({}, 9)), attempt(lambda: os.kill(-1, 15))",
        other.id()
    );
    if let Some(seen) = attack(&code).await {
        assert!(
            seen.plain().starts_with("('No such process'") || seen.stopped.is_some(),
            "{seen:?}"
        );
    }
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Frames written by the cell itself, past the runner.
const SPOOF: &str = "
import json, struct
def frame(body): return struct.pack('>I', len(body)) + body
def say(**fields): os.write(100, frame(json.dumps(fields).encode()))
";

#[tokio::test(flavor = "multi_thread")]
async fn hostile_frames_cost_only_the_session() {
    let Some(mut session) = start().await else {
        return;
    };
    for hostile in [
        "os.write(100, b'\\xff\\xff\\xff\\xff' + b'x' * 100)",
        "os.write(100, frame(b'not json'))",
        "os.write(100, frame(b'[' * 1_000_000))",
        "os.write(100, frame(b'{\"event\": \"stream\"}'))",
        "say(event='chart', cell=1, at=[0, 0], figure=0, path=[])",
        // Small text, much memory once it is parsed: nested, wide, and large.
        "os.write(100, frame(b'{\"event\":\"chart\",\"cell\":1,\"at\":[0,0],\"figure\":' + b'[' * 1_000_000 + b']' * 1_000_000 + b'}'))",
        "os.write(100, frame(b'{\"event\":\"chart\",\"cell\":1,\"at\":[0,0],\"figure\":[0' + b',{}' * 600_000 + b']}'))",
        "os.write(100, frame(b'{\"event\":\"chart\",\"cell\":1,\"at\":[0,0],\"figure\":{\"a\":[0' + b',{\"\":{}}' * 4_000_000 + b']}}'))",
        "say(event='chart', cell=1, at=[0, 0], path=None, figure='x' * (3 << 20))",
        "say(event='display', cell=1, at=[0, 0], data={str(i): '' for i in range(100_000)})",
        "for _ in range(80): say(event='display', cell=1, at=[0, 0], data={'text/html': 'x' * (1 << 20)})",
    ] {
        let seen = session
            .run(&format!("{PRELUDE}{SPOOF}{hostile}\ntime.sleep(1)"))
            .await;
        assert_eq!(seen.stopped, Some(Stopped::Died), "{hostile}: {seen:?}");
        assert_eq!(session.run("'lives'").await.plain(), "'lives'");
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_end_deceives_no_later_cell() {
    let Some(mut session) = start().await else {
        return;
    };
    let forged = format!(
        "{PRELUDE}{SPOOF}say(event='done', cell=1, at=[1 << 60, 0])\nprint('after'); time.sleep(1)\n1"
    );
    session.run(&forged).await;
    let seen = session.run("'second'").await;
    assert_eq!(seen.plain(), "'second'", "{seen:?}");
    let flood = "for i in range(60_000): say(event='display', cell=3, at=[0, 0], data={'text/plain': 'x' * 50})";
    let seen = session.run(flood).await;
    assert!(seen.outputs.len() < 6000);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tampering_with_its_own_streams_is_harmless() {
    let Some(mut session) = start().await else {
        return;
    };
    for code in [
        "import os; print('x' * 100); os.ftruncate(1, 0); os.pwrite(1, b'y', 1 << 25)",
        "import os; os.close(1); os.close(2); print('gone')",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import fcntl; fcntl.fcntl(1, 1033, 0xf)",
        "import os; os.dup2(os.open('/dev/null', 1), 1); print('nowhere')",
    ] {
        session.run(code).await;
    }
    session.run("import os; os._exit(0)").await;
    assert_eq!(
        session.run("print('again')").await.text("stdout"),
        "again\n"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_survives_the_end() {
    // The other tiers' daemons run beside these.
    let marker = format!("61.{}{}", tier() as u8, std::process::id());
    let daemon = format!(
        "
{PRELUDE}
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)]
            os.execvp('sleep', ['sleep', '{marker}'])
        os._exit(0)
'left'"
    );
    let running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let commands =
            processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let daemon = format!("sleep\0{marker}\0");
        commands
            .filter(|command| *command == daemon.as_bytes())
            .count()
    };
    if in_gvisor() {
        return nothing_of_gvisor_survives(&daemon, &marker).await;
    }
    let Some(mut session) = start_with(goes_on()).await else {
        return;
    };
    assert_eq!(session.run(&daemon).await.plain(), "'left'");
    assert!(becomes(3, running).await);
    session.close().await;
    assert_eq!(running(), 0);

    let Some(mut session) = start_with(goes_on()).await else {
        return;
    };
    session.run(&daemon).await;
    assert!(becomes(3, running).await);
    drop(session);
    assert!(becomes(0, running).await, "dropping ends it, too");
    dropped_ones_have_ended().await;
    let mine = format!("{}-", std::process::id());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.contains(&format!("sessions/{mine}")),
        "a mount is left"
    );
}

/// A session whose processes do not pause before they have begun.
fn goes_on() -> SessionSpec {
    with_limits(|limits| limits.background = true)
}

/// The host ends a tier's sessions one after another: when one that is closed now has gone, groups and
/// folders of those dropped before have, too. If this process ended earlier, they would stay.
async fn dropped_ones_have_ended() {
    if let Some(session) = start().await {
        session.close().await;
    }
}

/// Whether a count gets there within a while.
async fn becomes(wanted: usize, count: impl Fn() -> usize) -> bool {
    for _ in 0..1500 {
        if count() == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// The host sees no process of gVisor's kernel, but the kernel itself.
async fn nothing_of_gvisor_survives(daemon: &str, marker: &str) {
    let kernels = || -> Vec<u32> {
        let below = below(std::process::id()).into_iter();
        below
            .filter_map(|(pid, command)| command.contains("runsc").then_some(pid))
            .collect()
    };
    for close in [true, false] {
        let others = kernels();
        let Some(mut session) = start_with(goes_on()).await else {
            return;
        };
        session.run(daemon).await;
        let count = format!(
            "sum({marker:?} in open(f'/proc/{{p}}/cmdline').read() for p in os.listdir('/proc') if p.isdigit())"
        );
        let mut begun = "0".to_owned();
        for _ in 0..300 {
            begun = session.run(&count).await.plain();
            if begun == "3" {
                break;
            }
        }
        assert_eq!(begun, "3");
        // Some may be of tests that run beside; those go, too.
        let mut left: Vec<u32> = kernels()
            .into_iter()
            .filter(|pid| !others.contains(pid))
            .collect();
        assert!(!left.is_empty());
        match close {
            true => session.close().await,
            false => drop(session),
        }
        for _ in 0..3000 {
            left.retain(|pid| kernels().contains(pid));
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(left, Vec::<u32>::new());
    }
    dropped_ones_have_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_exchanged_while_they_are_collected_deceive_nobody() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
import os, threading
os.makedirs('output/folder', exist_ok=True)
open('output/steady', 'w').write('own')
def exchange():
    while True:
        for make in (lambda p: open(p, 'w').write('own'), lambda p: os.symlink('/etc/passwd', p), lambda p: os.mkfifo(p)):
            make('output/new')
            os.rename('output/new', 'output/folder/x')
            os.rename('output/folder', 'output/moved')
            os.symlink('/etc', 'output/folder')
            os.remove('output/folder')
            os.rename('output/moved', 'output/folder')
threading.Thread(target=exchange, daemon=True).start()";
    session.run(code).await;
    let mut seen = 0;
    for _ in 0..200 {
        for file in session.outputs().await.files {
            assert!(matches!(file.bytes.as_slice(), b"own" | b""), "{file:?}");
            seen += 1;
        }
    }
    assert!(seen >= 200, "what stays is always collected: {seen}");
    session.close().await;
}
