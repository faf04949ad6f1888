//! Servers that fail: proxies on loopback in front of an S3 server and of PostgreSQL.
//!
//! What fails is decided by random numbers from a seed, so that a test that fails can be repeated with the same share of
//! faults; which request meets which fault depends on the order in which they arrive.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum length of the head of a request.
const MAX_HEAD: usize = 64 << 10;

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
struct Random(AtomicU64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number from 0 to 1.
    fn part(&self) -> f64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }

    /// A time whose mean is `mean`; short ones are more frequent.
    fn time(&self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.part()).max(1e-9).ln())
    }
}

/// What a proxy in front of an S3 server does.
#[derive(Clone, Copy, Debug)]
pub struct S3Faults {
    /// Part of the requests that are answered with status 500. The server executes every other one of them.
    pub errors: f64,
    /// Part of the requests that are answered late.
    pub slow: f64,
    /// How late.
    pub delay: Duration,
    pub seed: u64,
}

impl S3Faults {
    /// 5 % of the requests fail, and one in a hundred is answered after 30 seconds.
    pub fn full(seed: u64) -> Self {
        Self {
            errors: 0.05,
            slow: 0.01,
            delay: Duration::from_secs(30),
            seed,
        }
    }
}

/// A proxy in front of an S3 server.
pub struct S3Proxy {
    address: SocketAddr,
    shared: Arc<S3Shared>,
}

/// Decides what happens to a request, by its first line.
type Decide = dyn Fn(&str) -> Fate + Send + Sync;

struct S3Shared {
    server: SocketAddr,
    decide: Box<Decide>,
    delay: Duration,
    requests: AtomicU64,
    errors: AtomicU64,
    slow: AtomicU64,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passed,
    /// Passed after a time.
    Slow,
    /// Answered with 500, and never executed.
    Refused,
    /// Executed, and answered with 500.
    ReplyLost,
}

impl S3Proxy {
    /// Starts a proxy in front of the server at `endpoint`, an `http://` address. It ends with this process.
    pub fn start(endpoint: &str, faults: S3Faults) -> Self {
        let (random, failed) = (Random::new(faults.seed), AtomicU64::new(0));
        Self::with(endpoint, faults.delay, move |_| {
            let part = random.part();
            if part >= faults.errors + faults.slow {
                return Fate::Passed;
            }
            if part >= faults.errors {
                return Fate::Slow;
            }
            match failed.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => Fate::Refused,
                _ => Fate::ReplyLost,
            }
        })
    }

    /// As [`S3Proxy::start`]; `decide` gets the first line of each request, and `delay` is that of slow ones.
    pub fn with(
        endpoint: &str,
        delay: Duration,
        decide: impl Fn(&str) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let server = endpoint.strip_prefix("http://").unwrap();
        let server = server.trim_end_matches('/').parse().unwrap();
        let shared = Arc::new(S3Shared {
            server,
            decide: Box::new(decide),
            delay,
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            slow: AtomicU64::new(0),
        });
        let serving = shared.clone();
        let address = listen(move |client| {
            let serving = serving.clone();
            // A client that has gone away is no fault of this proxy.
            std::thread::spawn(move || serving.serve(client).ok());
        });
        Self { address, shared }
    }

    /// The address to use instead of the server's.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Requests that were answered with 500.
    pub fn errors(&self) -> u64 {
        self.shared.errors.load(Ordering::Relaxed)
    }

    /// Requests that were answered late.
    pub fn slow(&self) -> u64 {
        self.shared.slow.load(Ordering::Relaxed)
    }
}

impl S3Shared {
    fn fate(&self, line: &str) -> Fate {
        let fate = (self.decide)(line);
        add_one(&self.requests);
        match fate {
            Fate::Passed => {}
            Fate::Slow => add_one(&self.slow),
            Fate::Refused | Fate::ReplyLost => add_one(&self.errors),
        }
        fate
    }

    /// Serves one connection, which carries one request: both ends are told to close it then.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let (head, begun) = read_head(&mut client)?;
        let line = head.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
        let fate = self.fate(String::from_utf8_lossy(&head[..line]).trim_end());
        if fate == Fate::Refused {
            let rest = content_length(&head).saturating_sub(begun.len() as u64);
            io::copy(&mut (&client).take(rest), &mut io::sink())?;
            return refuse(&mut client);
        }
        if fate == Fate::Slow {
            std::thread::sleep(self.delay);
        }
        let mut server = TcpStream::connect(self.server)?;
        server.write_all(&head[..line])?;
        server.write_all(b"Connection: close\r\n")?;
        server.write_all(&head[line..])?;
        server.write_all(&begun)?;
        let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
        let sending = std::thread::spawn(move || io::copy(&mut from_client, &mut to_server).ok());
        let mut answered = match fate {
            Fate::ReplyLost => {
                let read = io::copy(&mut server, &mut io::sink());
                read.and_then(|_| refuse(&mut client))
            }
            _ => io::copy(&mut server, &mut client).map(|_| ()),
        };
        // The client may be gone already.
        if let Err(error) = client.shutdown(Shutdown::Both)
            && error.kind() != ErrorKind::NotConnected
        {
            answered = Err(error);
        }
        let _ = sending.join();
        answered
    }
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The head of a request, with the empty line, and what was read of its body.
fn read_head(client: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(at) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let body = read.split_off(at + 4);
            return Ok((read, body));
        }
        let count = client.read(&mut buffer)?;
        if count == 0 || read.len() > MAX_HEAD {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&buffer[..count]);
    }
}

/// Bytes of the body of a request.
fn content_length(head: &[u8]) -> u64 {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length:"));
    length.map_or(0, |length| length.trim().parse().unwrap())
}

fn refuse(client: &mut TcpStream) -> io::Result<()> {
    let answer =
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    client.write_all(answer.as_bytes())
}

/// A proxy that cuts each connection after a random time, in the middle of whatever it carries.
pub struct CuttingProxy {
    address: SocketAddr,
    shared: Arc<CuttingShared>,
}

struct CuttingShared {
    server: SocketAddr,
    /// Mean time after which a connection is cut.
    mean: Duration,
    random: Random,
    /// Open connections: when they are cut, and both ends.
    open: Mutex<Vec<(Instant, TcpStream, TcpStream)>>,
    cuts: AtomicU64,
    has_stopped: AtomicBool,
}

impl CuttingProxy {
    /// Starts a proxy in front of a server on this machine. It ends with this process.
    pub fn start(server: SocketAddr, mean: Duration, seed: u64) -> Self {
        let shared = Arc::new(CuttingShared {
            server,
            mean,
            random: Random::new(seed),
            open: Mutex::default(),
            cuts: AtomicU64::new(0),
            has_stopped: AtomicBool::new(false),
        });
        let serving = shared.clone();
        let address = listen(move |client| {
            let _ = serving.serve(client);
        });
        let cutting = shared.clone();
        std::thread::spawn(move || {
            loop {
                cutting.cut();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { address, shared }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections that were cut while they were open.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    /// Cuts all connections that are open now.
    pub fn cut_all(&self) {
        for (_, client, server) in self.shared.open.lock().unwrap().drain(..) {
            let cut = client.shutdown(Shutdown::Both).is_ok();
            let _ = server.shutdown(Shutdown::Both);
            self.shared
                .cuts
                .fetch_add(u64::from(cut), Ordering::Relaxed);
        }
    }

    /// Cuts no more connections.
    pub fn stop_cutting(&self) {
        self.shared.has_stopped.store(true, Ordering::Relaxed);
    }
}

impl CuttingShared {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.server)?;
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
        }
        let until = Instant::now() + self.random.time(self.mean);
        let ends = (client.try_clone()?, server.try_clone()?);
        self.open.lock().unwrap().push((until, ends.0, ends.1));
        for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            std::thread::spawn(move || pass(from, to));
        }
        Ok(())
    }

    fn cut(&self) {
        if self.has_stopped.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        self.open.lock().unwrap().retain(|(until, client, server)| {
            let is_over = *until <= now;
            if is_over {
                // A connection that has ended by itself cannot be shut down any more.
                let cut = client.shutdown(Shutdown::Both).is_ok();
                let _ = server.shutdown(Shutdown::Both);
                self.cuts.fetch_add(u64::from(cut), Ordering::Relaxed);
            }
            !is_over
        });
    }
}

/// Passes bytes on until one side ends; then the other one ends too.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    for socket in [&from, &to] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Accepts connections on a free port of loopback, in a thread.
fn listen(accept: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            accept(client);
        }
    });
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each request with its path, and counts them.
    fn server(count: Arc<AtomicU64>) -> SocketAddr {
        listen(move |mut client| {
            let (head, begun) = read_head(&mut client).unwrap();
            let rest = content_length(&head) - begun.len() as u64;
            io::copy(&mut (&client).take(rest), &mut io::sink()).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let head = String::from_utf8(head).unwrap();
            assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
            let path = head.split(' ').nth(1).unwrap();
            let length = path.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}");
            client.write_all(answer.as_bytes()).unwrap();
        })
    }

    fn ask(proxy: &S3Proxy, body: &[u8]) -> String {
        let mut socket = TcpStream::connect(proxy.address).unwrap();
        let head = format!(
            "PUT /key HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_are_passed_refused_or_executed_without_a_reply() {
        let executed = Arc::new(AtomicU64::new(0));
        let server = format!("http://{}", server(executed.clone()));
        let faults = |errors, slow| S3Faults {
            errors,
            slow,
            delay: Duration::from_millis(50),
            seed: 7,
        };
        let body = vec![1; 300_000];
        let proxy = S3Proxy::start(&server, faults(0.0, 0.0));
        let answer = ask(&proxy, &body);
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("/key"),
            "{answer}"
        );
        let proxy = S3Proxy::start(&server, faults(1.0, 0.0));
        for _ in 0..4 {
            let answer = ask(&proxy, &body);
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        }
        assert_eq!((proxy.requests(), proxy.errors()), (4, 4));
        // One passed, and two of the failed ones.
        assert_eq!(executed.load(Ordering::Relaxed), 3);
        let (proxy, since) = (S3Proxy::start(&server, faults(0.0, 1.0)), Instant::now());
        assert!(ask(&proxy, &[]).ends_with("/key"));
        assert!(since.elapsed() >= Duration::from_millis(50));
        assert_eq!((proxy.slow(), proxy.errors()), (1, 0));
    }

    #[test]
    fn connections_are_cut() {
        let echo = listen(|client| {
            std::thread::spawn(move || pass(client.try_clone().unwrap(), client));
        });
        let proxy = CuttingProxy::start(echo, Duration::from_millis(30), 7);
        while proxy.cuts() < 3 {
            let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
            let mut byte = [0];
            // Until the connection is cut, each byte comes back.
            while socket.write_all(b"x").is_ok() && socket.read_exact(&mut byte).is_ok() {
                assert_eq!(&byte, b"x");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        proxy.stop_cutting();
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        socket.write_all(b"y").unwrap();
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");
    }
}
