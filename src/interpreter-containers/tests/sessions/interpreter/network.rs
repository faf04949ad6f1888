//! The way out: who is reached through it, who is not, and what is told of it. All hosts are listeners of
//! the test's own on the loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{start, start_with};
use pybench_interpreter::Tier;
use pybench_interpreter::network::{ProxyRecord, ProxyVerdict};
use pybench_interpreter::{InterpreterError, Network, SessionSpec};
use pybench_testing::sessions::*;

type Visits = Arc<Mutex<Vec<ProxyRecord>>>;

/// The path that sessions ask for. Clients of other tests may connect to a port that they knew as another server's.
const PATH: &str = "/of-this-test";

/// A host that answers each request with `hi`, and how often it was asked for [`PATH`].
fn web() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            if String::from_utf8_lossy(&request[..length]).contains(PATH) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
    });
    (port, asked)
}

/// A session that may reach these, and what is logged of it.
fn reaching(rules: &[String]) -> (SessionSpec, Visits) {
    let visits = Visits::default();
    let sink = visits.clone();
    let network = Network {
        log: Some(Arc::new(move |visit: &ProxyRecord| {
            sink.lock().unwrap().push(visit.clone());
        })),
        ..Network::allow(rules).unwrap().unwrap().for_session("mine")
    };
    let spec = SessionSpec {
        network: Some(network),
        ..SessionSpec::default()
    };
    (spec, visits)
}

/// The log once so many requests have ended.
async fn logged(visits: &Visits, count: usize) -> Vec<ProxyRecord> {
    for _ in 0..1000 {
        let seen = visits.lock().unwrap().clone();
        if seen.len() >= count {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{count} requests are not logged: {visits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_hosts_are_reached_others_are_not_and_all_is_logged() {
    let ((open, asked), (shut, unasked)) = (web(), web());
    let (spec, visits) = reaching(&[format!("127.0.0.1:{open}")]);
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    let code = format!(
        "
import urllib.request, urllib.error, requests, http.client
def tunnel(port):
    connection = http.client.HTTPConnection('127.0.0.1', 3128, timeout=20)
    connection.set_tunnel('127.0.0.1', port)
    connection.request('GET', '{PATH}')
    return connection.getresponse().read()
print(urllib.request.urlopen('http://127.0.0.1:{open}{PATH}').read(), requests.get('http://127.0.0.1:{open}{PATH}').text, tunnel({open}))
print(requests.get('http://127.0.0.1:{shut}{PATH}').status_code)
for refused in (lambda: urllib.request.urlopen('http://127.0.0.1:{shut}{PATH}'), lambda: tunnel({shut})):
    try: print('reached', refused())
    except (urllib.error.HTTPError, OSError) as error: print(error)"
    );
    let seen = session.run(&code).await;
    let expected =
        "b'hi' hi b'hi'\n403\nHTTP Error 403: Forbidden\nTunnel connection failed: 403 Forbidden\n";
    assert_eq!(seen.text("stdout"), expected, "{seen:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(unasked.load(Ordering::SeqCst), 0);
    let log = logged(&visits, 6).await;
    for visit in &log {
        let allowed = visit.verdict == ProxyVerdict::Allowed;
        assert_eq!(
            (visit.session.as_str(), visit.host.as_str(), visit.port),
            ("mine", "127.0.0.1", if allowed { open } else { shut })
        );
        assert_eq!(visit.received > 0 && visit.sent > 0, allowed, "{visit:?}");
    }
    let allowed = log
        .iter()
        .filter(|v| v.verdict == ProxyVerdict::Allowed)
        .count();
    let not_listed = log.iter().filter(|v| v.verdict == ProxyVerdict::NotListed);
    assert_eq!((allowed, not_listed.count()), (3, 3));
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_leads_into_the_host_only_where_the_address_is_listed_too() {
    let (port, asked) = web();
    let code = format!(
        "
import socket
with socket.create_connection(('127.0.0.1', 3128), 20) as s:
    s.sendall(b'GET http://localhost:{port}{PATH} HTTP/1.1\\r\\n\\r\\n')
    answer = s.recv(99)
answer.split(b' ', 2)[1]"
    );
    let name = "localhost".to_owned();
    for (rules, answer, verdict) in [
        (vec![name.clone()], "b'403'", ProxyVerdict::NotPublic),
        (
            vec![name, format!("127.0.0.1:{port}")],
            "b'200'",
            ProxyVerdict::Allowed,
        ),
    ] {
        let (spec, visits) = reaching(&rules);
        let Some(mut session) = start_with(spec).await else {
            return;
        };
        let before = asked.load(Ordering::SeqCst);
        let seen = session.run(&code).await;
        assert_eq!(seen.plain(), answer, "{seen:?}");
        let visit = logged(&visits, 1).await.remove(0);
        assert_eq!((visit.host.as_str(), visit.verdict), ("localhost", verdict));
        let reached = asked.load(Ordering::SeqCst) - before;
        assert_eq!(reached, usize::from(verdict == ProxyVerdict::Allowed));
        session.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_proxy_is_there() {
    let (port, asked) = web();
    let (spec, _visits) = reaching(&[format!("127.0.0.1:{port}")]);
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    let code = format!(
        "
import socket
def tried(f):
    try: return f()
    except OSError as error: return type(error).__name__
tried(lambda: socket.create_connection(('127.0.0.1', {port}), 2)), tried(lambda: socket.create_connection(('192.0.2.1', 80), 2)), \
tried(lambda: socket.getaddrinfo('host.invalid', 80)), tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)))"
    );
    let seen = session.run(&code).await;
    assert_eq!(
        seen.plain(),
        "('ConnectionRefusedError', 'OSError', 'gaierror', 'OSError')",
        "{seen:?}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_there_is_no_proxy() {
    let ((with, _visits), Some(mut without)) = (reaching(&["a.example".to_owned()]), start().await)
    else {
        return;
    };
    let look = "
import os, socket
sum('proxy' in name.lower() for name in os.environ), socket.socket().connect_ex(('127.0.0.1', 3128))";
    assert_eq!(without.run(look).await.plain(), "(0, 111)");
    // Sessions of both kinds live side by side, each from a server of its own.
    let mut with = start_with(with).await.unwrap();
    let seen = with.run(look).await;
    assert_eq!(seen.plain(), "(6, 0)", "{seen:?}");
    assert_eq!(without.run("2").await.plain(), "2");
    with.close().await;
    without.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_session_has_its_network_again() {
    let (port, _asked) = web();
    let (spec, _visits) = reaching(&[format!("127.0.0.1:{port}")]);
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    session.run("import os; os._exit(1)").await;
    let code = format!(
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}{PATH}').read()"
    );
    let seen = session.run(&code).await;
    assert_eq!(seen.plain(), "b'hi'", "{seen:?}");
    session.close().await;
}

/// An index of packages with one wheel in it.
struct Index {
    server: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Index {
    fn serve() -> Self {
        let folder = shared_folder();
        let project = folder.path().join("simple/tinywheel");
        std::fs::create_dir_all(&project).unwrap();
        make_wheel(&project);
        let script = "
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_port, flush=True)
server.serve_forever()";
        let mut server = Command::new("python3")
            .args(["-c", script])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        Self {
            server,
            port: line.trim().parse().unwrap(),
            _folder: folder,
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pip_installs_from_a_listed_index() {
    let index = Index::serve();
    let (mut spec, visits) = reaching(&[format!("127.0.0.1:{}", index.port)]);
    spec.limits.cell_seconds = 600; // pip is slow on a busy machine
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    let from = |port: u16| format!("--index-url http://127.0.0.1:{port}/simple --retries 0");
    let seen = session
        .run(&format!(
            "%pip install -q {} tinywheel\nimport tinywheel\ntinywheel.ANSWER",
            from(index.port)
        ))
        .await;
    assert_eq!(seen.plain(), "42", "{seen:?}");
    let log = logged(&visits, 2).await;
    assert!(
        log.iter()
            .all(|visit| visit.verdict == ProxyVerdict::Allowed),
        "{log:?}"
    );
    let seen = session
        .run(&format!("!pip install -q {} othername", from(1)))
        .await;
    assert!(
        seen.text("stderr").contains("No matching distribution"),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tiers_that_cannot_hold_to_a_list_refuse_it() {
    let Some(interpreter) = interpreter_of(Tier::Unsandboxed) else {
        return;
    };
    let (spec, _visits) = reaching(&["a.example".to_owned()]);
    let refused = interpreter.start(spec).await.err();
    assert!(
        matches!(refused, Some(InterpreterError::Unavailable(_))),
        "{refused:?}"
    );
}
