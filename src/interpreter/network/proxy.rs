//! The proxy of one session: takes connections from its socket, and lets out those that the list
//! permits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::AddressFamily;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::request::{MAX_HEAD, Request, end_of_head, parse};
use super::{AllowList, Network};

/// Bytes carried at once.
const PIECE: usize = 16 << 10;

/// What one session may use.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once; more wait.
    pub connections: usize,
    /// For the head of a request, for a name's addresses, and for a connection to stand.
    pub patience: Duration,
    /// For one connection in all.
    pub life: Duration,
    /// Bytes of one connection, in each direction.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 16,
            patience: Duration::from_secs(15),
            life: Duration::from_secs(600),
            bytes: 1 << 30,
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was let out.
    Allowed,
    /// The list does not permit the host.
    NotListed,
    /// The host's addresses are not public, and not on the list themselves.
    NotPublic,
    /// It was no request.
    Malformed,
    /// The host could not be reached.
    Unreachable,
}

/// One request, for the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Visit {
    /// Whose it was.
    pub session: String,
    /// Its method; empty where it was none.
    pub method: String,
    /// Whom it asked for.
    pub host: String,
    /// On which port.
    pub port: u16,
    /// What became of it.
    pub verdict: Verdict,
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
}

/// Told of each request when it has ended.
pub type Log = Arc<dyn Fn(&Visit) + Send + Sync>;

/// A session's proxy at work; it and its connections end when this is dropped.
pub(in crate::interpreter) struct Way(JoinHandle<()>);

impl Way {
    /// Answer on a socket that a session listens on. Needs a runtime.
    pub(in crate::interpreter) fn open(socket: OwnedFd, network: Network) -> io::Result<Self> {
        if !rustix::net::sockopt::socket_acceptconn(&socket)? {
            return Err(io::Error::other("the session does not listen"));
        }
        let listener = Listener::of(socket)?;
        Ok(Self(tokio::spawn(serve(listener, network))))
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where a session's connections come in: on its own loopback, or at a [`Door`](super::Door).
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// One of them.
trait Client: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Client for T {}

impl Listener {
    fn of(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(match rustix::net::sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Self::Unix(UnixListener::from_std(socket.into())?),
            _ => Self::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    async fn accept(&self) -> io::Result<Box<dyn Client>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Serve one session's socket until the future is dropped, which ends its connections too.
async fn serve(listener: Listener, network: Network) {
    let network = Arc::new(network);
    let permits = Arc::new(Semaphore::new(network.bounds.connections));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let client = match listener.accept().await {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!("the proxy's socket: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let network = network.clone();
        connections.spawn(async move {
            let _permit = permit;
            let visit = answer(client, &network).await;
            tracing::info!(target: "pybench::network", session = visit.session, method = visit.method, host = visit.host, port = visit.port, verdict = ?visit.verdict, sent = visit.sent, received = visit.received);
            if let Some(log) = &network.log {
                log(&visit);
            }
        });
    }
}

/// Answer one connection.
async fn answer(mut client: impl Client, network: &Network) -> Visit {
    let bounds = &network.bounds;
    let mut visit = Visit {
        session: network.session.clone(),
        method: String::new(),
        host: String::new(),
        port: 0,
        verdict: Verdict::Malformed,
        sent: 0,
        received: 0,
    };
    let head = timeout(bounds.patience, read_head(&mut client)).await;
    let Ok(Some((request, rest))) = head else {
        refuse(
            &mut client,
            "400 Bad Request",
            "this is no request to a proxy",
        )
        .await;
        return visit;
    };
    (visit.method, visit.host, visit.port) =
        (request.method.clone(), request.host.clone(), request.port);
    match reach(&request, &network.allowed, bounds).await {
        Ok(server) => {
            visit.verdict = Verdict::Allowed;
            let exchanged = exchange(client, server, request.head, &rest, bounds).await;
            (visit.sent, visit.received) = exchanged;
        }
        Err(verdict) => {
            visit.verdict = verdict;
            let (status, text) = match verdict {
                Verdict::Unreachable => ("502 Bad Gateway", "the host could not be reached"),
                Verdict::NotPublic => (
                    "403 Forbidden",
                    "the host's address is not public, and not on the session's list itself",
                ),
                _ => ("403 Forbidden", "this host is not on the session's list"),
            };
            refuse(&mut client, status, text).await;
        }
    }
    visit
}

/// The request, and what came after its head.
async fn read_head(client: &mut impl Client) -> Option<(Request, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = end_of_head(&bytes) {
            return Some((parse(&bytes[..end])?, bytes[end..].to_vec()));
        }
        if bytes.len() >= MAX_HEAD || client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn refuse(client: &mut impl Client, status: &str, text: &str) {
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{text}"
    );
    // A client that has gone needs no answer.
    let _ = client.write_all(answer.as_bytes()).await;
}

/// A connection to the host that was asked for.
async fn reach(
    request: &Request,
    allowed: &AllowList,
    bounds: &Bounds,
) -> Result<TcpStream, Verdict> {
    if !allowed.permits(&request.host, request.port) {
        return Err(Verdict::NotListed);
    }
    let addresses = timeout(bounds.patience, resolve(request)).await;
    let addresses = addresses.ok().and_then(Result::ok).unwrap_or_default();
    if addresses.is_empty() {
        return Err(Verdict::Unreachable);
    }
    // The address that was judged is the one that is connected to.
    let public = addresses
        .iter()
        .filter(|a| allowed.permits_address(a.ip(), a.port()));
    let public: Vec<SocketAddr> = public.copied().collect();
    if public.is_empty() {
        return Err(Verdict::NotPublic);
    }
    let connected = timeout(bounds.patience, TcpStream::connect(&public[..])).await;
    connected
        .ok()
        .and_then(Result::ok)
        .ok_or(Verdict::Unreachable)
}

async fn resolve(request: &Request) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = request.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, request.port)]);
    }
    let found = tokio::net::lookup_host((request.host.as_str(), request.port)).await?;
    Ok(found.take(16).collect())
}

/// Carry bytes both ways until an end, a bound, or the time; how many went out and came back.
async fn exchange(
    client: impl Client,
    mut server: TcpStream,
    head: Option<Vec<u8>>,
    rest: &[u8],
    bounds: &Bounds,
) -> (u64, u64) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let begun = match &head {
        Some(head) => server.write_all(head).await,
        None => {
            to_client
                .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                .await
        }
    };
    if begun.is_err() || server.write_all(rest).await.is_err() {
        return (0, 0);
    }
    let sent = AtomicU64::new((head.map_or(0, |head| head.len()) + rest.len()) as u64);
    let received = AtomicU64::new(0);
    let (mut from_server, mut to_server) = server.split();
    let out = carry(&mut from_client, &mut to_server, bounds.bytes, &sent);
    let back = carry(&mut from_server, &mut to_client, bounds.bytes, &received);
    // Where the time is over both ways are closed by what is dropped.
    let _ = timeout(bounds.life, async { tokio::join!(out, back) }).await;
    (sent.into_inner(), received.into_inner())
}

/// Carry bytes one way until their end, `most` of them, or an error; then say that no more come.
async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    most: u64,
    count: &AtomicU64,
) {
    let mut piece = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        let so_far = count.fetch_add(read as u64, Ordering::Relaxed);
        if so_far + read as u64 > most || to.write_all(&piece[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A proxy on a socket of its own, a host that answers each connection with `answer`, and the log.
    struct World {
        socket: SocketAddr,
        port: u16,
        log: Arc<Mutex<Vec<Visit>>>,
        tasks: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Drop for World {
        fn drop(&mut self) {
            self.tasks.iter().for_each(|task| task.abort());
        }
    }

    async fn world(rules: impl Fn(u16) -> Vec<String>, bounds: Bounds) -> World {
        let host = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = host.local_addr().unwrap().port();
        let echo = async move {
            while let Ok((mut stream, _)) = host.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    to.write_all(b"hello ").await.unwrap();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = log.clone();
        let write: Log = Arc::new(move |visit| sink.lock().unwrap().push(visit.clone()));
        let network = Network {
            bounds,
            log: Some(write),
            ..Network::to(&rules(port)).unwrap().unwrap().of("mine")
        };
        let proxy = serve(Listener::Tcp(listener), network);
        World {
            socket,
            port,
            log,
            tasks: vec![tokio::spawn(echo), tokio::spawn(proxy)],
        }
    }

    impl World {
        /// Send all, then hear all.
        async fn ask(&self, text: &str) -> String {
            let mut client = TcpStream::connect(self.socket).await.unwrap();
            // One that is refused early hears no more.
            let _ = client.write_all(text.as_bytes()).await;
            let _ = client.shutdown().await;
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        }

        /// The log, once so many requests have ended.
        async fn visits(&self, count: usize) -> Vec<Visit> {
            loop {
                let seen = self.log.lock().unwrap().clone();
                if seen.len() >= count {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    #[tokio::test]
    async fn listed_hosts_are_reached_and_others_are_not() {
        let world = world(
            |port| vec![format!("127.0.0.1:{port}"), "localhost".to_owned()],
            Bounds::default(),
        )
        .await;
        let port = world.port;
        let answer = world
            .ask(&format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nabc"))
            .await;
        assert_eq!(
            answer,
            "HTTP/1.1 200 Connection established\r\n\r\nhello abc"
        );
        let answer = world
            .ask(&format!(
                "GET http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: y\r\n\r\n"
            ))
            .await;
        assert!(
            answer.starts_with("hello GET /x HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{answer}"
        );
        for (target, status) in [
            (format!("127.0.0.1:{}", port ^ 1), 403),
            (format!("other.example:{port}"), 403),
            ("nonsense".to_owned(), 400),
        ] {
            let answer = world
                .ask(&format!("CONNECT {target} HTTP/1.1\r\n\r\n"))
                .await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{target}: {answer}"
            );
        }
        let verdicts: Vec<Verdict> = world
            .visits(5)
            .await
            .iter()
            .map(|visit| visit.verdict)
            .collect();
        let expected = [
            Verdict::Allowed,
            Verdict::Allowed,
            Verdict::NotListed,
            Verdict::NotListed,
            Verdict::Malformed,
        ];
        assert_eq!(verdicts, expected);
        let first = &world.visits(5).await[0];
        assert_eq!(
            (
                first.session.as_str(),
                first.method.as_str(),
                first.port,
                first.sent,
                first.received
            ),
            ("mine", "CONNECT", port, 3, 9)
        );
    }

    #[tokio::test]
    async fn a_listed_name_leads_into_the_host_where_the_address_is_listed_too() {
        let rules = |port| vec!["localhost".to_owned(), format!("127.0.0.1:{port}")];
        let world = world(rules, Bounds::default()).await;
        let ask = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", world.port);
        let answer = world.ask(&ask).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(world.visits(1).await[0].verdict, Verdict::Allowed);
    }

    #[tokio::test]
    async fn a_listed_name_does_not_lead_into_the_host() {
        let world = world(|_| vec!["localhost".to_owned()], Bounds::default()).await;
        let answer = world
            .ask(&format!(
                "CONNECT localhost:{} HTTP/1.1\r\n\r\n",
                world.port
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert_eq!(world.visits(1).await[0].verdict, Verdict::NotPublic);
    }

    #[tokio::test]
    async fn bytes_and_time_are_bounded() {
        let bounds = Bounds {
            bytes: 1000,
            patience: Duration::from_millis(300),
            ..Bounds::default()
        };
        let world = world(|port| vec![format!("127.0.0.1:{port}")], bounds).await;
        let flood = "x".repeat(100_000);
        let answer = world
            .ask(&format!(
                "CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n{flood}",
                world.port
            ))
            .await;
        assert!(answer.len() < 2000, "{}", answer.len());
        // A client that says nothing is let go, and one that says too much.
        let mut silent = TcpStream::connect(world.socket).await.unwrap();
        let mut answer = String::new();
        silent.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let answer = world
            .ask(&format!("GET http://a/ HTTP/1.1\r\nA: {flood}\r\n\r\n"))
            .await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{answer}"
        );
    }
}
