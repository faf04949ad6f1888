//! The table of attempts. Each is the body of a Python function that returns true when it got through.

use super::{start_with, with_limits};
use crate::attack::targets;
use pybench_interpreter::SessionSpec;
use pybench_interpreter::Tier;
use pybench_testing::sessions::{Look, start_in, tier_of};

/// What is known of an attempt outside of a jail. Whatever is harmless is shown there first.
#[derive(Clone, Copy)]
pub(super) enum Outside {
    /// It succeeds.
    Works,
    /// It succeeds for root; others have not the right to it outside either.
    WorksForRoot,
    /// It succeeds in a session without a jail, tier `unsandboxed`: it aims at what only sessions have.
    WorksInNone,
    /// It is tried, and succeeds where the kernel has it.
    Depends,
    /// It is not tried, for the reason that follows.
    NotTried(Reason),
}

/// Why an attempt is not shown to succeed outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// It would take all memory or processes of the machine.
    Bomb,
    /// It would fill the machine with files, text, threads or the like.
    Flood,
    /// It would change or stop the machine.
    Machine,
    /// It would end processes of others.
    Signal,
    /// It aims at the host's own handling of a session, which only a jailed one has.
    Inside,
    /// It looks at what a jail is made of; outside there is none to look at.
    Jail,
}
use Outside::*;
use Reason::*;

/// Attempts that say nothing in a tier, and why.
const SENSELESS: &[(Tier, &str, &str)] = &[
    (
        Tier::Gvisor,
        "a_higher_priority",
        "its kernel keeps the number and schedules nothing by it",
    ),
    (
        Tier::Gvisor,
        "safety_from_the_memory_killer",
        "its kernel keeps the number; the host's takes a sandbox as a whole",
    ),
    (
        Tier::Gvisor,
        "a_flood_of_terminals",
        "its kernel makes them, and no other session has them",
    ),
    (
        Tier::Bwrap,
        "a_flood_of_terminals",
        "bubblewrap mounts its own without a limit (docs/security.md)",
    ),
];

async fn fails_inside(name: &str, outside: Outside, body: &str) {
    let tier = tier_of(module_path!());
    let senseless = SENSELESS
        .iter()
        .find(|(of, attempt, _)| (*of, *attempt) == (tier, name));
    if let Some((_, _, why)) = senseless {
        eprintln!("{name} does not apply to the tier {tier:?}: {why}");
        return;
    }
    let lines: String = body
        .trim()
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let code = format!(
        "{}\ndef attack():\n{lines}\ntry: outcome = bool(attack())\nexcept Exception as error: outcome = False; print(repr(error))\n",
        targets::prelude()
    );
    if !targets::is_shown(name) {
        show_outside(outside, &code).await;
        targets::set_shown(name);
    }
    let limits = with_limits(|limits| {
        limits.memory_mib = 512;
        limits.processes = 48;
        limits.cell_seconds = 30;
        limits.file_mib = 32;
    });
    let Some(mut session) = start_with(limits).await else {
        return;
    };
    let seen = session.run(&format!("{code}outcome")).await;
    session.close().await;
    assert!(
        seen.plain() == "False" || seen.stopped.is_some(),
        "it got through: {seen:?}"
    );
}

/// Show that it succeeds where nothing stands in its way, as far as that is harmless.
async fn show_outside(outside: Outside, code: &str) {
    let plain = || super::outside(&format!("{code}print(outcome)"));
    let (worked, seen) = match outside {
        WorksForRoot if !rustix::process::geteuid().is_root() => return,
        NotTried(reason) => {
            eprintln!("not tried outside: {reason:?}");
            return;
        }
        Works | WorksForRoot | Depends => {
            let seen = plain();
            (seen.lines().last() == Some("True"), seen)
        }
        WorksInNone => {
            let Some(mut session) = start_in(Tier::Unsandboxed, SessionSpec::default()).await
            else {
                return;
            };
            let seen = session.run(&format!("{code}outcome")).await;
            session.close().await;
            (seen.plain() == "True", format!("{seen:?}"))
        }
    };
    match (worked, outside) {
        (true, _) => {}
        (false, Depends) => eprintln!("this kernel refuses it outside, too: {seen}"),
        (false, _) => panic!("it does not even work outside, so it shows nothing: {seen}"),
    }
}

macro_rules! attempts {
    ($($name:ident: $outside:expr, $body:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                fails_inside(stringify!($name), $outside, $body).await;
            }
        )*
    };
}

attempts! {
    // The network.
    tcp_to_the_host: Works, "s = socket.create_connection(('127.0.0.1', TCP), 5); s.send(b'x'); return s.recv(1) == b'x'";
    tcp_over_version_6: Depends, "s = socket.create_connection(('::1', TCP6), 5); s.send(b'x'); return s.recv(1) == b'x'";
    tcp_to_all_addresses_of_this_host: Works, "s = socket.create_connection(('0.0.0.0', TCP), 5); s.send(b'x'); return s.recv(1) == b'x'";
    udp_to_the_host: Works, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.connect(('127.0.0.1', UDP)); s.send(b'x'); return s.recv(1) == b'x'";
    // With IP_RECVERR a refusal is told at once, and not waited for.
    a_name_server_of_ones_own: Works, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.setsockopt(socket.IPPROTO_IP, 11, 1)
s.sendto(b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1x\\0\\0\\1\\0\\1', ('127.0.0.1', UDP)); return len(s.recv(99)) > 12";
    the_resolvers_configuration: Works, "return os.path.exists('/etc/resolv.conf')";
    raw_sockets: WorksForRoot, "return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno() > 0";
    packet_sockets: WorksForRoot, "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno() > 0";
    netlink_sockets: Works, "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).fileno() > 0";
    vsock_sockets: Depends, "return socket.socket(40, socket.SOCK_STREAM).fileno() > 0";
    crypto_sockets: Depends, "return socket.socket(38, socket.SOCK_SEQPACKET).fileno() > 0";
    bluetooth_sockets: Depends, "return socket.socket(31, socket.SOCK_RAW, 1).fileno() > 0";
    multipath_sockets: Depends, "return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).fileno() > 0";
    udp_lite_sockets: Depends, "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).fileno() > 0";
    udp_lite_sockets_over_version_6: Depends, "return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 136).fileno() > 0";
    ping_sockets: Depends, "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).fileno() > 0";
    pairs_of_other_sockets: Depends, "return check(libc.socketpair(30, 1, 0, ctypes.create_string_buffer(8)))";
    abstract_sockets: Works, "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + ABSTRACT); return s.recv(1) == b'!'";
    sockets_in_the_file_system: Works, "s = socket.socket(socket.AF_UNIX); s.connect(SOCKET); return s.recv(1) == b'!'";
    a_low_port_on_the_hosts_network: WorksForRoot, "s = socket.socket(); s.bind(('127.0.0.1', 0)); return apart(lambda: s.setsockopt(socket.SOL_SOCKET, 33, 1) is None)";

    // Files of the host.
    a_file_of_the_host: Works, "return open(FOLDER + '/secret').read() == 'x'";
    a_file_by_way_of_the_first_process: Works, "return open(f'/proc/{os.getppid()}/root{FOLDER}/secret').read() == 'x' or open(f'/proc/1/root{FOLDER}/secret').read() == 'x'";
    a_file_by_way_of_a_parent_folder: Works, "return open('../' * 40 + FOLDER + '/secret').read() == 'x'";
    a_file_by_way_of_a_link: Works, "os.symlink(FOLDER, tempfile.gettempdir() + f'/link{os.getpid()}'); path = tempfile.gettempdir() + f'/link{os.getpid()}'
try: return open(path + '/secret').read() == 'x'
finally: os.remove(path)";
    shared_memory_of_the_host: Works, "return open(SHM).read() == 'x'";
    the_password_file: WorksForRoot, "return ':' in open('/etc/shadow').read()";
    the_users_of_the_host: Works, "return 'root' in open('/etc/passwd').read()";
    the_log_of_the_kernel: Depends, "return len(os.read(os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK), 9999)) > 0";
    sysfs: Works, "return os.path.exists('/sys/kernel')";
    control_groups: Works, "return bool(glob.glob('/sys/fs/cgroup/*'))";
    block_devices: Depends, "return any(os.open(d, os.O_RDONLY) for d in glob.glob('/dev/*') if stat.S_ISBLK(os.stat(d).st_mode))";
    devices_of_ones_own: WorksForRoot, "path = tempfile.mkdtemp() + '/null'; os.mknod(path, 0o20666, os.makedev(1, 3)); return os.write(os.open(path, 1), b'x') == 1";
    memory_of_the_kernel: Depends, "return len(os.pread(os.open('/proc/kcore', 0), 4, 0)) == 4";
    folders_that_hold_workspaces: Works, "return any(os.path.isdir(p) for p in ['/sessions', '/old', '/view', CACHE + '/sessions', '/workspace/../sessions'])";
    the_journal_of_a_run: Works, "return open(JOURNAL, 'rb').read(6) == b'SQLite'";
    the_journal_of_the_system: Works, "return bool(glob.glob('/var/log/*') + glob.glob('/run/log/journal/*'))";
    a_pipe_of_the_host: Works, "return os.open(FIFO, os.O_RDONLY | os.O_NONBLOCK) > 0";
    descriptors_that_others_hold: Works, "def held(p):
    try: return os.readlink(p) == JOURNAL and open(p, 'rb').read(6) == b'SQLite'
    except OSError: return False # others close theirs meanwhile
return any(held(p) for p in glob.glob(f'/proc/{PID}/fd/*'))";
    a_link_to_a_file_of_the_host: Works, "os.link(FOLDER + '/secret', FOLDER + f'/link{os.getpid()}'); os.remove(FOLDER + f'/link{os.getpid()}'); return True";

    // Writing where it should not.
    a_program: WorksForRoot, "return open('/usr/bin/env', 'ab').close() is None";
    a_library_of_python: WorksForRoot, "return open(os.__file__, 'ab').close() is None";
    the_runner: WorksForRoot, "path = sys.modules['pybench_runner.runner'].__file__ if 'pybench_runner.runner' in sys.modules else glob.glob(CACHE + '/runner/*/lib/pybench_runner/runner.py')[0]
return open(path, 'ab').close() is None";
    a_file_in_the_root: WorksForRoot, "path = f'/pybench-test-{os.getpid()}'; open(path, 'w').close(); os.remove(path); return True";
    a_file_among_devices: WorksForRoot, "path = f'/dev/pybench-test-{os.getpid()}'; open(path, 'w').close(); os.remove(path); return True";
    a_setting_of_the_kernel: WorksForRoot, "return os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY) > 0";
    the_system_request_key: Depends, "return os.open('/proc/sysrq-trigger', os.O_WRONLY) > 0";
    prepared_caches: WorksForRoot, "return open(os.environ.get('MPLCONFIGDIR', ENVIRONMENT + '/caches/matplotlib') + '/matplotlibrc', 'ab').close() is None";
    given_inputs: WorksInNone, "os.rename('data', 'moved'); return True";
    mode_bits_of_the_system: WorksForRoot, "os.chmod('/usr/bin/env', stat.S_IMODE(os.stat('/usr/bin/env').st_mode)); return True";

    // Privileges.
    capabilities: WorksForRoot, "return int(next(l for l in open('/proc/self/status') if l.startswith('CapBnd')).split()[1], 16) != 0";
    new_privileges: Works, "return 'NoNewPrivs:\\t0' in open('/proc/self/status').read()";
    becoming_root: WorksForRoot, "return apart(lambda: os.setuid(0) is None)";
    becoming_another: WorksForRoot, "return apart(lambda: os.setuid(1001) is None)";
    other_groups: WorksForRoot, "return apart(lambda: os.setgroups([0]) is None)";
    a_set_uid_program: WorksForRoot, "path = tempfile.mkdtemp() + '/id'; open(path, 'wb').write(open('/usr/bin/id', 'rb').read()); os.chown(path, 0, 0); os.chmod(path, 0o6755)
return subprocess.run([path, '-u'], capture_output=True, text=True).stdout == '0\\n'";
    a_higher_priority: WorksForRoot, "return apart(lambda: os.nice(-1) < 0)";
    higher_limits: Works, "return apart(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)) is None)";
    safety_from_the_memory_killer: Depends, "return apart(lambda: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000') > 0)";
    the_hosts_name: WorksForRoot, "return socket.sethostname(socket.gethostname()) is None";
    the_clock: NotTried(Machine), "time.clock_settime(time.CLOCK_REALTIME, time.time()); return True";
    a_restart: NotTried(Machine), "return call(169, 0, 0, 0) or True";

    // Namespaces and mounts.
    a_user_namespace: Depends, "return apart(lambda: check(libc.unshare(0x10000000)))";
    a_mount_namespace: WorksForRoot, "return apart(lambda: check(libc.unshare(0x20000)))";
    a_network_namespace: WorksForRoot, "return apart(lambda: check(libc.unshare(0x40000000)))";
    a_child_in_a_user_namespace: Depends, "pid = call(56, 0x10000011, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); return True";
    entering_a_namespace: WorksForRoot, "fd = os.open('/proc/self/ns/net', 0); return apart(lambda: check(libc.setns(fd, 0)))";
    a_mount: WorksForRoot, "path = tempfile.mkdtemp(); return apart(lambda: check(libc.unshare(0x20000)) and check(libc.mount(b'x', path.encode(), b'tmpfs', 0, None)))";
    a_writable_remount: NotTried(Machine), "return check(libc.mount(None, b'/usr', None, 4096 | 32, None))";
    unmounting_what_covers: NotTried(Machine), "return any(libc.umount2(p, 2) == 0 for p in [b'/tmp', b'/proc', b'/workspace', b'/workspace/data', b'/dev/shm'])";
    the_new_way_to_mount: WorksForRoot, "return call(430, b'tmpfs', 0) > 0";
    cloning_a_mount: WorksForRoot, "return call(428, -100, b'/', 1) > 0";
    another_root: WorksForRoot, "path = tempfile.mkdtemp(); return apart(lambda: os.chroot(path) is None)";
    file_handles: Works, "handle = struct.pack('Ii', 128, 0) + bytes(128); buffer = ctypes.create_string_buffer(handle); mount = ctypes.c_int(); return call(303, -100, b'/', buffer, ctypes.byref(mount), 0) == 0";

    // Parts of the kernel.
    tracing_ones_own_child: Works, "return swap(lambda pid: call(101, 16, pid, 0, 0) == 0, paused())";
    memory_of_a_child_by_a_call: Works, "data = ctypes.create_string_buffer(8); iov = struct.pack('PN', ctypes.addressof(data), 8)
return swap(lambda pid: call(310, pid, iov, ctypes.c_ulong(1), iov, ctypes.c_ulong(1), ctypes.c_ulong(0)) == 8, paused())";
    descriptors_of_a_child: Works, "return swap(lambda pid: call(438, os.pidfd_open(pid), 0, 0) > 0, paused())";
    bpf_programs: Depends, "return call(321, 0, struct.pack('IIIII', 2, 4, 8, 1, 0) + bytes(100), 120) > 0";
    faults_in_user_space: Depends, "return call(323, 0) > 0";
    io_uring: Depends, "return call(425, 1, ctypes.create_string_buffer(200)) > 0";
    performance_counters: Depends, "return call(298, struct.pack('IIQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0) > 0";
    keys_of_the_kernel: Depends, "return call(248, b'user', b'pybench', b'x', 1, -2) > 0";
    the_execution_domain: Works, "return call(135, 0xffffffff) >= 0";
    secret_memory: Depends, "return call(447, 0) > 0";
    kernel_modules: NotTried(Machine), "return call(175, b'', 0, b'') == 0";
    another_kernel: NotTried(Machine), "return call(246, 0, 0, 0, 0) == 0";
    reading_the_kernels_messages: WorksForRoot, "return call(103, 10, 0, 0) >= 0";
    calls_of_the_other_word_size: Depends, "return call(0x40000000 + 39) > 0";

    // Other processes.
    a_signal_to_the_host: Works, "return os.kill(PID, 0) is None";
    a_descriptor_of_the_host: Works, "return os.pidfd_open(PID) > 0";
    the_environment_of_the_host: Works, "return len(open(f'/proc/{PID}/environ', 'rb').read()) > 0";
    the_memory_of_the_host: WorksForRoot, "return os.open(f'/proc/{PID}/mem', os.O_RDONLY) > 0";
    limits_of_the_host: Works, "return len(resource.prlimit(PID, resource.RLIMIT_NOFILE)) == 2";
    processors_of_the_host: Works, "return os.sched_setaffinity(PID, os.sched_getaffinity(PID)) is None";
    what_others_do_with_shared_files: Works, "watch = libc.inotify_init1(0o4000); check(watch)
check(libc.inotify_add_watch(watch, os.__file__.encode(), 0x20)); open(os.__file__).close(); return len(os.read(watch, 99)) > 0";
    what_was_installed_by_hand: Depends, "return any(os.path.isfile(p) for p in glob.glob('/usr/local/*/*'))";
    message_queues_of_the_host: Works, "return libc.msgget(QUEUE, 0) >= 0";

    // Floods.
    a_flood_of_threads: NotTried(Flood), "started = 0
try:
    for _ in range(2000): threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); started += 1
except RuntimeError: pass
return started > 100";
    a_flood_of_descriptors: NotTried(Flood), "opened = []
try:
    while len(opened) < 100_000: opened.append(os.dup(0))
except OSError: pass
count = len(opened)
for fd in opened: os.close(fd)
return count > 2000";
    a_flood_of_text: NotTried(Flood), "written = 0
try:
    for _ in range(100): written += os.write(1, b'x' * (1 << 20))
except OSError: os.ftruncate(1, 0)
return written > 64 << 20";
    a_flood_of_shared_memory: NotTried(Flood), "written = 0
with open('/dev/shm/flood', 'wb', buffering=0) as file:
    while written < 2 << 30: written += file.write(bytes(1 << 20))
return True";
    a_flood_of_mapped_memory: NotTried(Flood), "import mmap
held = [mmap.mmap(-1, 64 << 20) for _ in range(32)]
for m in held:
    for i in range(0, len(m), 4096): m[i] = 1
return True";
    a_flood_of_folders: NotTried(Flood), "path = 'output'
for i in range(200_000): os.mkdir(f'output/{i}')
return True";
    a_very_deep_folder: NotTried(Flood), "os.chdir('output')
for _ in range(100_000): os.mkdir('d'); os.chdir('d')
return True";
    contexts_of_asynchronous_input: Depends, "return call(206, 32, ctypes.byref(ctypes.c_ulong())) >= 0";
    queues_of_the_other_kind: Depends, "name = f'pybench-{os.getpid()}'.encode(); check(call(240, name, 0o102, 0o600, 0)); return call(241, name) == 0";
    a_flood_of_pending_signals: Works, "def flood():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    return all(libc.sigqueue(os.getpid(), signal.SIGRTMIN, 0) == 0 for _ in range(2000))
return apart(flood)";
    a_flood_of_terminals: Works, "opened = []
try:
    while len(opened) < 200: opened.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError: pass
for fd in opened: os.close(fd)
return len(opened) == 200";
    a_flood_of_queues: NotTried(Flood), "made = 0
while made < 50_000:
    check(libc.msgget(0, 0o1600)); made += 1
return True";
    endless_recursion: NotTried(Bomb), "sys.setrecursionlimit(10**9)
def f(): f()
f(); return True";
}
