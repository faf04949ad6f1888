//! What belongs to the host: its network, files, processes and privileges.

use std::net::TcpListener;
use std::process::Command;

use pybench_testing::sessions::*;

use super::{answers, attack, in_gvisor, outside};

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
