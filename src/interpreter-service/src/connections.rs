//! Accepts connections, with limits on their number and on the time for receiving a request head. Excess
//! connections get status 503, so that existing clients are not affected.

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
    let slots = Arc::new(Semaphore::new(bounds.max_connections));
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
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            connections.spawn(answer(
                stream,
                app.clone(),
                bounds.head,
                ended.clone(),
                slot,
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
    _place: OwnedSemaphorePermit,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD);
    let service = TowerToHyperService::new(app);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Connection errors are ignored: the request ends with its connection.
    let _ = tokio::select! {
        result = connection.as_mut() => result,
        _ = ended.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
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
    #[test]
    fn the_rejection_is_valid_http() {
        let text = std::str::from_utf8(super::TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], 503);
    }
}
