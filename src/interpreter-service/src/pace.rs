//! How fast clients send their requests and read their responses.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

/// The pace that is expected of every client, bytes per second.
const RATE: u32 = 4 << 10;

/// How long a client may keep us waiting for what it reads, beyond the time that it takes at that pace.
const MAX_UNREAD: Duration = Duration::from_secs(30);

/// The time that we waited for a client beyond what its bytes take at the expected pace.
#[derive(Debug, Default)]
struct Pace {
    /// When the present wait began.
    since: Option<Instant>,
    behind: Duration,
}

impl Pace {
    fn wait(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn moved(&mut self, bytes: usize) {
        let earned = Duration::from_secs_f64(bytes as f64 / f64::from(RATE));
        self.behind = self.behind().saturating_sub(earned);
        self.since = self.since.map(|_| Instant::now());
    }

    fn stop(&mut self) {
        self.behind = self.behind();
        self.since = None;
    }

    fn behind(&self) -> Duration {
        self.behind + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// The client of a connection.
#[derive(Debug, Default)]
pub(super) struct Peer {
    receiving: Mutex<Pace>,
    sending: Mutex<Pace>,
    evicted: Notify,
}

fn lock(pace: &Mutex<Pace>) -> MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request is being awaited or received; afterwards nothing is, until its response has ended.
pub(super) struct Receiving(Arc<Peer>);

/// A response is being made and sent; afterwards a request is awaited.
pub(super) struct Answering(Arc<Peer>);

impl Drop for Receiving {
    fn drop(&mut self) {
        *lock(&self.0.receiving) = Pace::default();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        lock(&self.0.receiving).wait();
    }
}

impl Peer {
    /// A client whose first request is awaited.
    pub(super) fn new() -> Arc<Self> {
        let peer = Arc::<Self>::default();
        lock(&peer.receiving).wait();
        peer
    }

    pub(super) fn receiving(self: &Arc<Self>) -> Receiving {
        Receiving(self.clone())
    }

    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        Answering(self.clone())
    }

    /// How long it has kept us waiting; zero while the service works for it.
    pub(super) fn behind(&self) -> Duration {
        let (receiving, sending) = (lock(&self.receiving), lock(&self.sending));
        receiving.behind().max(sending.behind())
    }

    /// Ends its connection.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// A connection that counts its bytes, and fails when its client does not read.
pub(super) struct PacedStream<S = TcpStream> {
    stream: S,
    peer: Arc<Peer>,
    /// Runs while a write waits.
    unread: Option<Pin<Box<Sleep>>>,
}

impl<S> PacedStream<S> {
    pub(super) fn new(stream: S, peer: Arc<Peer>) -> Self {
        Self {
            stream,
            peer,
            unread: None,
        }
    }

    fn write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut pace = lock(&self.peer.sending);
        if let Poll::Ready(written) = written {
            self.unread = None;
            pace.moved(*written.as_ref().unwrap_or(&0));
            pace.stop();
            return Poll::Ready(written);
        }
        pace.wait();
        let left = MAX_UNREAD.saturating_sub(pace.behind());
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(left)));
        ready!(unread.as_mut().poll(context));
        let text = "the client does not read its response";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        lock(&self.peer.receiving).moved(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_let_go_and_one_that_reads_is_not() {
        let (mut client, stream) = tokio::io::duplex(64 << 10);
        let mut stream = PacedStream::new(stream, Peer::new());
        let large = vec![0; 1 << 20];
        // Together these pauses are twice what it may keep us waiting.
        let reads = async {
            let mut part = vec![0; 64 << 10];
            for _ in 0..large.len() / part.len() {
                sleep(MAX_UNREAD / 8).await;
                client.read_exact(&mut part).await.unwrap();
            }
        };
        let (sent, ()) = tokio::join!(stream.write_all(&large), reads);
        sent.unwrap();
        let began = Instant::now();
        let error = stream.write_all(&large).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= MAX_UNREAD);
    }

    #[test]
    fn bytes_make_up_for_the_wait() {
        let seconds = Duration::from_secs;
        let mut pace = Pace {
            since: None,
            behind: seconds(10),
        };
        pace.moved(4 * RATE as usize);
        assert_eq!(pace.behind(), seconds(6));
        pace.wait();
        pace.moved(0);
        assert!(pace.behind() >= seconds(6) && pace.since.is_some());
        pace.stop();
        pace.moved(1 << 20);
        assert_eq!((pace.behind(), pace.since), (seconds(0), None));
    }
}
