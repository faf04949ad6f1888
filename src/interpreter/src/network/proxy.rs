//! The HTTP proxy of one session: accepts connections on its socket and forwards those that the list allows.

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

/// Bytes forwarded at a time.
const CHUNK: usize = 16 << 10;

/// Limits on the proxy connections of one session.
#[derive(Clone, Debug)]
pub struct ProxyLimits {
    /// Concurrent connections; more wait.
    pub connections: usize,
    /// Time limit for each step: receiving the request head, resolving the name, connecting.
    pub timeout: Duration,
    /// Time limit of a connection in total.
    pub life: Duration,
    /// Bytes of a connection in each direction.
    pub bytes: u64,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: 16,
            timeout: Duration::from_secs(15),
            life: Duration::from_secs(600),
            bytes: 1 << 30,
        }
    }
}

/// How the proxy handled a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyVerdict {
    /// It was forwarded.
    Allowed,
    /// The host is not on the list.
    NotListed,
    /// The host's addresses are private, and not on the list themselves.
    NotPublic,
    /// It was not a valid request.
    Malformed,
    /// The host could not be reached.
    Unreachable,
}

/// A log record of one request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ProxyRecord {
    /// Name of the session.
    pub session: String,
    /// HTTP method; empty for a malformed request.
    pub method: String,
    pub host: String,
    pub port: u16,
    pub verdict: ProxyVerdict,
    /// Bytes sent to the host.
    pub sent: u64,
    /// Bytes received from the host.
    pub received: u64,
}

/// Called for each request when it has ended.
pub type RequestLog = Arc<dyn Fn(&ProxyRecord) + Send + Sync>;

/// A session's running proxy; it and its connections end when this is dropped.
pub(crate) struct Proxy(JoinHandle<()>);

impl Proxy {
    /// Starts a proxy on a listening socket. Must be called in a tokio runtime.
    pub(crate) fn open(socket: OwnedFd, network: Network) -> io::Result<Self> {
        if !rustix::net::sockopt::socket_acceptconn(&socket)? {
            return Err(io::Error::other(
                "the session passed a socket that is not listening",
            ));
        }
        let listener = Listener::of(socket)?;
        Ok(Self(tokio::spawn(serve(listener, network))))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The listening socket: on the session's loopback, or a [`ProxySocket`](super::ProxySocket).
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection of a session.
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

/// Serves one session's socket until the future is dropped, which also ends its connections.
async fn serve(listener: Listener, network: Network) {
    let network = Arc::new(network);
    let allows = Arc::new(Semaphore::new(network.limits.connections));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = allows.clone().acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let client = match listener.accept().await {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!("accepting a connection on a session's proxy socket: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let network = network.clone();
        connections.spawn(async move {
            let _permit = permit;
            let record = answer(client, &network).await;
            tracing::info!(target: "pybench_types::network", session = record.session, method = record.method, host = record.host, port = record.port, verdict = ?record.verdict, sent = record.sent, received = record.received);
            if let Some(log) = &network.log {
                log(&record);
            }
        });
    }
}

/// Handles one connection.
async fn answer(mut client: impl Client, network: &Network) -> ProxyRecord {
    let limits = &network.limits;
    let mut record = ProxyRecord {
        session: network.session.clone(),
        method: String::new(),
        host: String::new(),
        port: 0,
        verdict: ProxyVerdict::Malformed,
        sent: 0,
        received: 0,
    };
    let head = timeout(limits.timeout, read_head(&mut client)).await;
    let Ok(Some((request, rest))) = head else {
        refuse(
            &mut client,
            "400 Bad Request",
            "this is no request to a proxy",
        )
        .await;
        return record;
    };
    (record.method, record.host, record.port) =
        (request.method.clone(), request.host.clone(), request.port);
    match reach(&request, &network.allowed, limits).await {
        Ok(server) => {
            record.verdict = ProxyVerdict::Allowed;
            let exchanged = exchange(client, server, request.forwarded_head, &rest, limits).await;
            (record.sent, record.received) = exchanged;
        }
        Err(verdict) => {
            record.verdict = verdict;
            let (status, text) = match verdict {
                ProxyVerdict::Unreachable => ("502 Bad Gateway", "the host could not be reached"),
                ProxyVerdict::NotPublic => (
                    "403 Forbidden",
                    "the host's address is not public, and not on the session's list itself",
                ),
                _ => ("403 Forbidden", "this host is not on the session's list"),
            };
            refuse(&mut client, status, text).await;
        }
    }
    record
}

/// Reads the request head; also returns the bytes after it.
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
    // The client may have closed the connection.
    let _ = client.write_all(answer.as_bytes()).await;
}

/// Connects to the requested host.
async fn reach(
    request: &Request,
    allowed: &AllowList,
    limits: &ProxyLimits,
) -> Result<TcpStream, ProxyVerdict> {
    if !allowed.allows(&request.host, request.port) {
        return Err(ProxyVerdict::NotListed);
    }
    let addresses = timeout(limits.timeout, resolve(request)).await;
    let addresses = addresses.ok().and_then(Result::ok).unwrap_or_default();
    if addresses.is_empty() {
        return Err(ProxyVerdict::Unreachable);
    }
    // Connect to the checked addresses; do not resolve the name again.
    let public = addresses
        .iter()
        .filter(|a| allowed.allows_address(a.ip(), a.port()));
    let public: Vec<SocketAddr> = public.copied().collect();
    if public.is_empty() {
        return Err(ProxyVerdict::NotPublic);
    }
    let connected = timeout(limits.timeout, TcpStream::connect(&public[..])).await;
    connected
        .ok()
        .and_then(Result::ok)
        .ok_or(ProxyVerdict::Unreachable)
}

async fn resolve(request: &Request) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = request.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, request.port)]);
    }
    let found = tokio::net::lookup_host((request.host.as_str(), request.port)).await?;
    Ok(found.take(16).collect())
}

/// Forwards bytes both ways until the end, a limit or the timeout; returns bytes sent and received.
async fn exchange(
    client: impl Client,
    mut server: TcpStream,
    head: Option<Vec<u8>>,
    rest: &[u8],
    limits: &ProxyLimits,
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
    let out = carry(&mut from_client, &mut to_server, limits.bytes, &sent);
    let back = carry(&mut from_server, &mut to_client, limits.bytes, &received);
    // On timeout, dropping the sockets closes both directions.
    let _ = timeout(limits.life, async { tokio::join!(out, back) }).await;
    (sent.into_inner(), received.into_inner())
}

/// Forwards bytes one way until the end, `max_bytes`, or an error; then shuts down the output.
async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    max_bytes: u64,
    count: &AtomicU64,
) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let so_far = count.fetch_add(read as u64, Ordering::Relaxed);
        if so_far + read as u64 > max_bytes || to.write_all(&chunk[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A proxy, a server that greets each client and echoes its input, and the log.
    struct TestProxy {
        socket: SocketAddr,
        port: u16,
        log: Arc<Mutex<Vec<ProxyRecord>>>,
        tasks: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Drop for TestProxy {
        fn drop(&mut self) {
            self.tasks.iter().for_each(|task| task.abort());
        }
    }

    async fn proxy(rules: impl Fn(u16) -> Vec<String>, limits: ProxyLimits) -> TestProxy {
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
        let write: RequestLog = Arc::new(move |record| sink.lock().unwrap().push(record.clone()));
        let network = Network {
            limits,
            log: Some(write),
            ..Network::allow(&rules(port))
                .unwrap()
                .unwrap()
                .for_session("mine")
        };
        let proxy = serve(Listener::Tcp(listener), network);
        TestProxy {
            socket,
            port,
            log,
            tasks: vec![tokio::spawn(echo), tokio::spawn(proxy)],
        }
    }

    impl TestProxy {
        /// Sends a text, then reads the whole answer.
        async fn ask(&self, text: &str) -> String {
            let mut client = TcpStream::connect(self.socket).await.unwrap();
            // A refused connection may be closed while we write.
            let _ = client.write_all(text.as_bytes()).await;
            let _ = client.shutdown().await;
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        }

        /// The log after `count` requests have ended.
        async fn visits(&self, count: usize) -> Vec<ProxyRecord> {
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
    async fn only_listed_hosts_are_reachable() {
        let proxy = proxy(
            |port| vec![format!("127.0.0.1:{port}"), "localhost".to_owned()],
            ProxyLimits::default(),
        )
        .await;
        let port = proxy.port;
        let answer = proxy
            .ask(&format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nabc"))
            .await;
        assert_eq!(
            answer,
            "HTTP/1.1 200 Connection established\r\n\r\nhello abc"
        );
        let answer = proxy
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
            let answer = proxy
                .ask(&format!("CONNECT {target} HTTP/1.1\r\n\r\n"))
                .await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{target}: {answer}"
            );
        }
        let verdicts: Vec<ProxyVerdict> = proxy
            .visits(5)
            .await
            .iter()
            .map(|record| record.verdict)
            .collect();
        let expected = [
            ProxyVerdict::Allowed,
            ProxyVerdict::Allowed,
            ProxyVerdict::NotListed,
            ProxyVerdict::NotListed,
            ProxyVerdict::Malformed,
        ];
        assert_eq!(verdicts, expected);
        let first = &proxy.visits(5).await[0];
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
    async fn a_listed_name_with_a_listed_private_address_is_reachable() {
        let rules = |port| vec!["localhost".to_owned(), format!("127.0.0.1:{port}")];
        let proxy = proxy(rules, ProxyLimits::default()).await;
        let ask = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", proxy.port);
        let answer = proxy.ask(&ask).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(proxy.visits(1).await[0].verdict, ProxyVerdict::Allowed);
    }

    #[tokio::test]
    async fn a_listed_name_with_a_private_address_is_refused() {
        let proxy = proxy(|_| vec!["localhost".to_owned()], ProxyLimits::default()).await;
        let answer = proxy
            .ask(&format!(
                "CONNECT localhost:{} HTTP/1.1\r\n\r\n",
                proxy.port
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert_eq!(proxy.visits(1).await[0].verdict, ProxyVerdict::NotPublic);
    }

    #[tokio::test]
    async fn bytes_and_time_are_limited() {
        let limits = ProxyLimits {
            bytes: 1000,
            timeout: Duration::from_millis(300),
            ..ProxyLimits::default()
        };
        let proxy = proxy(|port| vec![format!("127.0.0.1:{port}")], limits).await;
        let flood = "x".repeat(100_000);
        let answer = proxy
            .ask(&format!(
                "CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n{flood}",
                proxy.port
            ))
            .await;
        assert!(answer.len() < 2000, "{}", answer.len());
        // Clients that send nothing or too much are disconnected.
        let mut silent = TcpStream::connect(proxy.socket).await.unwrap();
        let mut answer = String::new();
        silent.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let answer = proxy
            .ask(&format!("GET http://a/ HTTP/1.1\r\nA: {flood}\r\n\r\n"))
            .await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{answer}"
        );
    }
}
