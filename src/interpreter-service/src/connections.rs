//! Accepts connections, with limits on their number and on the time for receiving a request head. When all
//! places are taken, a new connection gets that of the client which is furthest behind with its request or
//! with reading its response; while the service works for all of them, it gets status 503.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::pace::{PacedStream, Peer};
use super::tied_body::TiedBody;

/// Maximum size of a request head, bytes.
const MAX_HEAD: usize = 64 << 10;

/// Maximum number of connections that are being rejected with status 503.
const MAX_REJECTING: usize = 64;

/// Time limit for rejecting a connection.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Wait after a failed accept, which usually means that there are no file descriptors left.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Content-Length: 62\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    {\"code\":503,\"message\":\"too many connections, come back later\"}";

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of open connections.
    pub(super) max_connections: usize,
    /// Time limit for receiving a request head, including idle time between requests.
    pub(super) head: Duration,
}

/// Serves until `stop` resolves and running requests are answered.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Places::new(bounds.max_connections));
    let rejecting = Arc::new(Semaphore::new(MAX_REJECTING));
    let (ending, ended) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("accepting a connection: {error}");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        if let Some(place) = places.take() {
            connections.spawn(answer(
                stream,
                app.clone(),
                bounds.head,
                ended.clone(),
                place,
            ));
        } else if let Ok(slot) = rejecting.clone().try_acquire_owned() {
            connections.spawn(reject(stream, slot));
        }
    }
    drop((listener, ending));
    while connections.join_next().await.is_some() {}
}

async fn answer(
    stream: TcpStream,
    app: Router,
    head: Duration,
    mut ended: watch::Receiver<()>,
    place: Place,
) {
    let peer = &place.peer;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD);
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request: Request<Incoming>| {
        let answering = peer.answering();
        let answer = app.call(request.map(|body| TiedBody::new(body, peer.receiving())));
        async {
            Ok::<_, std::convert::Infallible>(
                answer.await?.map(|body| TiedBody::new(body, answering)),
            )
        }
    });
    let stream = TokioIo::new(PacedStream::new(stream, peer.clone()));
    let mut connection = pin!(builder.serve_connection(stream, service));
    let closing = async {
        tokio::select! {
            result = connection.as_mut() => result,
            _ = ended.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    // Connection errors are ignored: the request ends with its connection.
    tokio::select! {
        _ = closing => {}
        () = peer.evicted() => {}
    }
}

/// The open connections, by number.
struct Places {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    peers: HashMap<u64, Arc<Peer>>,
}

/// The place of one connection, free again when it is dropped.
struct Place {
    places: Arc<Places>,
    number: u64,
    peer: Arc<Peer>,
}

impl Places {
    fn new(max: usize) -> Self {
        let taken = Mutex::default();
        Self { max, taken }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free place, or that of the client which keeps the service waiting most; `None` if none does.
    fn take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.lock();
        if taken.peers.len() >= self.max {
            let slowest = taken.peers.iter().max_by_key(|(_, peer)| peer.behind());
            let number = *slowest.filter(|(_, peer)| !peer.behind().is_zero())?.0;
            taken.peers.remove(&number)?.evict();
        }
        let (number, peer) = (taken.next, Peer::new());
        taken.next += 1;
        taken.peers.insert(number, peer.clone());
        let places = self.clone();
        Some(Place {
            places,
            number,
            peer,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().peers.remove(&self.number);
    }
}

async fn reject(mut stream: TcpStream, _place: OwnedSemaphorePermit) {
    let farewell = async {
        stream.write_all(TOO_MANY_CONNECTIONS).await?;
        stream.shutdown().await?;
        // Read everything first: closing with unread data would reset the connection and lose the answer.
        let mut piece = [0; 4096];
        while stream.read(&mut piece).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(REJECT_TIMEOUT, farewell).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Places;

    #[tokio::test]
    async fn a_place_is_taken_from_the_slowest_client_only() {
        let wait = || tokio::time::sleep(Duration::from_millis(5));
        let places = Arc::new(Places::new(2));
        let slow = places.take().unwrap();
        wait().await;
        let quick = places.take().unwrap();
        wait().await;
        let third = places.take().unwrap();
        slow.peer.evicted().await;
        drop(slow);
        // Both requests have arrived; the service is at work.
        drop((quick.peer.receiving(), third.peer.receiving()));
        wait().await;
        assert!(places.take().is_none());
        // One response has been sent, and the next request is awaited.
        drop(quick.peer.answering());
        wait().await;
        let fourth = places.take().unwrap();
        quick.peer.evicted().await;
        drop((third, fourth, quick));
        assert!(places.lock().peers.is_empty());
    }

    #[test]
    fn the_rejection_is_valid_http() {
        let text = std::str::from_utf8(super::TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], 503);
    }
}
