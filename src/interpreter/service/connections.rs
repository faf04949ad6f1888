//! Connections of clients: how many there may be, and how long the head of a request may take. What is
//! above the bound is told so and let go, so that those who are served notice nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Largest head of a request, bytes.
const MAX_HEAD: usize = 64 << 10;

/// Connections that are being told that there is no place.
const TURNED_AWAY: usize = 64;

/// How long telling them may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long to wait when a connection could not be taken, for want of descriptors above all.
const AGAIN: Duration = Duration::from_millis(100);

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Content-Length: 62\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    {\"code\":503,\"message\":\"too many connections, come back later\"}";

/// What clients may do to us with connections alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Open ones.
    pub(super) most: usize,
    /// For the head of a request to come, the wait for the next one on an open connection included.
    pub(super) head: Duration,
}

/// Serve until `stop` resolves and what is being answered has been.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(bounds.most));
    let turned = Arc::new(Semaphore::new(TURNED_AWAY));
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
                tracing::warn!("taking a connection: {error}");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if let Ok(place) = places.clone().try_acquire_owned() {
            connections.spawn(answer(
                stream,
                app.clone(),
                bounds.head,
                ended.clone(),
                place,
            ));
        } else if let Ok(place) = turned.clone().try_acquire_owned() {
            connections.spawn(turn_away(stream, place));
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
    _place: OwnedSemaphorePermit,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD);
    let service = TowerToHyperService::new(app);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a connection broke concerns nobody: what was asked over it has ended with it.
    let _ = tokio::select! {
        result = connection.as_mut() => result,
        _ = ended.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}

async fn turn_away(mut stream: TcpStream, _place: OwnedSemaphorePermit) {
    let farewell = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        // Closed with something unread, the answer would be lost.
        let mut piece = [0; 4096];
        while stream.read(&mut piece).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(FAREWELL, farewell).await;
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_refusal_is_what_it_says() {
        let text = std::str::from_utf8(super::FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], 503);
    }
}
