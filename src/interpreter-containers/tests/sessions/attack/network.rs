//! Attempts of sessions that have a way out: to go where the list does not lead, and to take the proxy over.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{PRELUDE, in_gvisor, outside, start_with};
use pybench_interpreter::{Network, SessionSpec};
use pybench_testing::sessions::*;

/// A host that answers, and how often it was reached.
fn host() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    (port, reached)
}

async fn reaching(rules: &[String]) -> Option<Live> {
    let spec = SessionSpec {
        network: Network::allow(rules).unwrap(),
        ..with_limits(|limits| limits.processes = 64)
    };
    start_with(spec).await
}

/// `said(bytes)` is what the proxy answers.
const ASK: &str = "
def said(text):
    with socket.create_connection(('127.0.0.1', 3128), 20) as s:
        s.settimeout(20)
        s.sendall(text.encode())
        answer = b''
        try:
            while piece := s.recv(4096): answer += piece
        except OSError: pass
    return answer.decode(errors='replace')
";

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_not_listed_stay_out_of_reach() {
    let ((open, asked), (shut, reached)) = (host(), host());
    let direct = format!(
        "import socket\nprint(socket.create_connection(('127.0.0.1', {shut}), 5).connect_ex)"
    );
    assert!(outside(&direct).starts_with("<built-in"));
    // The thread that accepts may count later than Python has connected.
    let until = Instant::now() + Duration::from_secs(60);
    while reached.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = reached.load(Ordering::SeqCst);
    assert_eq!(before, 1);
    // A name is listed too, but leads to an address that is not.
    let rules = [format!("127.0.0.1:{open}"), "localhost".to_owned()];
    let Some(mut session) = reaching(&rules).await else {
        return;
    };
    let code = format!(
        "{PRELUDE}{ASK}
open, shut, end = 'http://127.0.0.1:{open}/', '127.0.0.1:{shut}', '\\r\\n\\r\\n'
tries = [f'CONNECT {{host}}:{shut} HTTP/1.1{{end}}' for host in (
    '127.0.0.1', '127.1', '0x7f.0.0.1', '0177.0.0.1', '2130706433', '[::1]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '0.0.0.0', '[::]',
    'localhost', 'LOCALHOST.', '127.0.0.1.', f'127.0.0.1:{open}@127.0.0.1', f'127.0.0.1:{open}#@127.0.0.1', '127.0.0.1\\0.a.example', '')]
tries += [f'GET http://{{shut}}/ HTTP/1.1{{end}}', f'GET http://localhost:{shut}/ HTTP/1.1{{end}}', f'GET / HTTP/1.1\\r\\nHost: {{shut}}{{end}}',
    f'GET http://127.0.0.1:{open}@{{shut}}/ HTTP/1.1{{end}}', f'GET https://{{shut}}/ HTTP/1.1{{end}}', f'GET file:///etc/passwd HTTP/1.1{{end}}',
    f'GET gopher://{{shut}}/ HTTP/1.1{{end}}', f'PRI * HTTP/2.0{{end}}']
refused = [said(text).startswith(('HTTP/1.1 4', 'HTTP/1.1 502')) for text in tries]
# These go to the listed host, whatever else they say.
led = [said(f'GET {{open}} HTTP/1.1\\r\\nHost: {{shut}}{{end}}'), said(f'GET {{open}} HTTP/1.1{{end}}GET http://{{shut}}/ HTTP/1.1{{end}}'),
    said(f'GET {{open}} HTTP/1.1\\r\\nX: y\\r\\nProxy-Connection: keep-alive\\r\\nForwarded: host={{shut}}{{end}}')]
print([text for text, was in zip(tries, refused) if not was], all(' 200 OK' in answer for answer in led))
attempt(lambda: socket.create_connection(('127.0.0.1', {shut}), 2)), attempt(lambda: socket.getaddrinfo('localhost.example', 80))"
    );
    let seen = session.run(&code).await;
    assert_eq!(seen.text("stdout"), "[] True\n", "{seen:?}");
    assert!(
        seen.plain().starts_with("('Connection refused', '") && !seen.plain().contains("[("),
        "{seen:?}"
    );
    assert_eq!(reached.load(Ordering::SeqCst), before, "somebody came in");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_hits_only_itself() {
    let (open, _asked) = host();
    let rules = [format!("127.0.0.1:{open}")];
    let (Some(mut flood), Some(mut other)) = (reaching(&rules).await, reaching(&rules).await)
    else {
        return;
    };
    let code = format!(
        "{PRELUDE}{ASK}
held = []
for i in range(400):
    s = socket.socket(); s.setblocking(False)
    s.connect_ex(('127.0.0.1', 3128)); held.append(s)
for s in held:
    try: s.send(b'GET http://127.0.0.1:{open}/ HTTP/1.1\\r\\nX: ' + b'y' * 100_000)
    except OSError: pass
'held'"
    );
    let seen = flood.run(&code).await;
    assert_eq!(seen.plain(), "'held'", "{seen:?}");
    let ask =
        format!("{PRELUDE}{ASK}said('GET http://127.0.0.1:{open}/ HTTP/1.1\\r\\n\\r\\n')[-2:]");
    let seen = other.run(&ask).await;
    assert_eq!(seen.plain(), "'hi'", "{seen:?}");
    assert_eq!(flood.run("'lives'").await.plain(), "'lives'");
    flood.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_stays_the_hosts() {
    let (open, _asked) = host();
    let Some(mut session) = reaching(&[format!("127.0.0.1:{open}")]).await else {
        return;
    };
    let code = format!(
        "{PRELUDE}
def take(*options):
    s = socket.socket()
    for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind(('127.0.0.1', 3128)); s.listen()
    return 'taken'
def listens(fd):
    try: return socket.socket(fileno=os.dup(fd)).getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError: return 0
sum(listens(int(fd)) for fd in os.listdir('/proc/self/fd')), {{attempt(take), attempt(lambda: take(socket.SO_REUSEADDR)), attempt(lambda: take(socket.SO_REUSEPORT))}}"
    );
    let seen = session.run(&code).await;
    assert_eq!(seen.plain(), "(0, {'Address already in use'})", "{seen:?}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_leads_to_the_proxy_and_cannot_be_moved() {
    let ((open, _asked), (shut, reached)) = (host(), host());
    let Some(mut session) = reaching(&[format!("127.0.0.1:{open}")]).await else {
        return;
    };
    if !in_gvisor() {
        // Only containers have one.
        let seen = session.run("import os; os.path.exists('/opt/door')").await;
        assert_eq!(seen.plain(), "False", "{seen:?}");
        return session.close().await;
    }
    let code = format!(
        "{PRELUDE}
door = '/opt/door/socket'
def at_the_door(port):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(door)
        s.sendall(f'GET http://127.0.0.1:{{port}}/ HTTP/1.1\\r\\n\\r\\n'.encode())
        return s.recv(4096).split(b' ')[1]
def replaced():
    os.unlink(door)
    return 'replaced'
def put():
    with socket.socket(socket.AF_UNIX) as s: s.bind('/opt/door/other')
    return 'put'
attempt(lambda: os.listdir('/opt/door')), at_the_door({open}), at_the_door({shut}), {{attempt(replaced), attempt(put), attempt(lambda: os.rename('/opt/door', '/tmp/door'))}} & {{'replaced', 'put', None}}"
    );
    let seen = session.run(&code).await;
    assert_eq!(
        seen.plain(),
        "('Permission denied', b'200', b'403', set())",
        "{seen:?}"
    );
    assert_eq!(reached.load(Ordering::SeqCst), 0, "somebody came in");
    session.close().await;
}
