//! What pages follow. One task reads it again and again while any page looks, and sends it when it has changed; the task ends
//! when the last page has left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::stream::{self, Stream};
use tokio::sync::watch;

/// Time between two readings, at least.
const PERIOD: Duration = Duration::from_secs(1);
/// The same as a multiple of the time that a reading takes, so that a large run is not always read.
const PACE: u32 = 10;

/// All that is followed, by name.
pub(crate) struct Watchers {
    watched: Mutex<HashMap<String, watch::Sender<Arc<str>>>>,
    /// Whether the studio ends.
    ended: watch::Sender<bool>,
    period: Duration,
}

impl Default for Watchers {
    fn default() -> Self {
        Self::every(PERIOD)
    }
}

impl Watchers {
    fn every(period: Duration) -> Self {
        Self {
            watched: Mutex::default(),
            ended: watch::Sender::new(false),
            period,
        }
    }

    /// What `read` returns, now and whenever it has changed. If somebody follows this name already, that `read` is used. A
    /// follower that is slow gets the latest text only.
    pub(crate) fn follow<R: FnMut() -> String + Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        read: R,
    ) -> impl Stream<Item = Arc<str>> + Send + use<R> {
        let receiver = self.subscribe(name, read);
        stream::unfold(
            (receiver, self.ended.subscribe()),
            async |(mut receiver, mut ended)| {
                loop {
                    let ends = async {
                        let _ = ended.wait_for(|ended| *ended).await;
                    };
                    tokio::select! {
                        changed = receiver.changed() => changed.ok()?,
                        () = ends => return None,
                    }
                    let text = receiver.borrow_and_update().clone();
                    // It is empty until it was read for the first time.
                    if !text.is_empty() {
                        return Some((text, (receiver, ended)));
                    }
                }
            },
        )
    }

    /// Ends all that follow, since the server waits for its answers.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    fn subscribe(
        self: &Arc<Self>,
        name: &str,
        read: impl FnMut() -> String + Send + 'static,
    ) -> watch::Receiver<Arc<str>> {
        let mut watched = lock(&self.watched);
        if let Some(sender) = watched.get(name) {
            let mut receiver = sender.subscribe();
            receiver.mark_changed();
            return receiver;
        }
        let (sender, receiver) = watch::channel(Arc::from(""));
        watched.insert(name.to_owned(), sender.clone());
        tokio::spawn(self.clone().watch(name.to_owned(), sender, read));
        receiver
    }

    /// Reads until nobody follows.
    async fn watch(
        self: Arc<Self>,
        name: String,
        sender: watch::Sender<Arc<str>>,
        mut read: impl FnMut() -> String + Send + 'static,
    ) {
        loop {
            let started = Instant::now();
            let reading = tokio::task::spawn_blocking(move || (read(), read));
            let Ok((text, again)) = reading.await else {
                tracing::error!("reading `{name}` failed; pages no longer follow it");
                break;
            };
            read = again;
            sender.send_if_modified(|last| {
                let changed = **last != *text;
                if changed {
                    *last = text.into();
                }
                changed
            });
            let pause = self.period.max(started.elapsed() * PACE);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = sender.closed() => {}
            }
            let mut watched = lock(&self.watched);
            if sender.receiver_count() == 0 {
                watched.remove(&name);
                return;
            }
        }
        lock(&self.watched).remove(&name);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::StreamExt as _;

    use super::*;

    /// Counts its readings, and what it reads is set from outside.
    #[derive(Default)]
    struct Source {
        readings: AtomicUsize,
        text: Mutex<String>,
    }

    fn reader(source: &Arc<Source>) -> impl FnMut() -> String + Send + use<> {
        let source = source.clone();
        move || {
            source.readings.fetch_add(1, Ordering::Relaxed);
            lock(&source.text).clone()
        }
    }

    #[tokio::test]
    async fn one_reader_serves_all_followers_and_ends_with_the_last_one() {
        let watchers = Arc::new(Watchers::every(Duration::from_millis(1)));
        let (source, unused) = (Arc::new(Source::default()), Arc::new(Source::default()));
        *lock(&source.text) = "first".to_owned();
        let mut first = Box::pin(watchers.follow("r", reader(&source)));
        assert_eq!(first.next().await.as_deref(), Some("first"));
        // It follows the same reader, and gets what that has read already.
        let mut second = Box::pin(watchers.follow("r", reader(&unused)));
        assert_eq!(second.next().await.as_deref(), Some("first"));
        *lock(&source.text) = "second".to_owned();
        for follower in [&mut first, &mut second] {
            assert_eq!(follower.next().await.as_deref(), Some("second"));
        }
        assert_eq!(unused.readings.load(Ordering::Relaxed), 0);
        drop(first);
        *lock(&source.text) = "third".to_owned();
        assert_eq!(second.next().await.as_deref(), Some("third"));
        drop(second);
        while !lock(&watchers.watched).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let readings = source.readings.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(source.readings.load(Ordering::Relaxed), readings);
    }

    #[tokio::test]
    async fn the_same_text_is_sent_once() {
        let watchers = Arc::new(Watchers::every(Duration::from_millis(1)));
        let source = Arc::new(Source::default());
        *lock(&source.text) = "same".to_owned();
        let mut follower = pin!(watchers.follow("r", reader(&source)));
        assert_eq!(follower.next().await.as_deref(), Some("same"));
        let read_again = async {
            while source.readings.load(Ordering::Relaxed) < 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            more = follower.next() => panic!("{more:?} is sent again"),
            () = read_again => {}
        }
    }

    #[tokio::test]
    async fn followers_end_when_the_studio_does() {
        let watchers = Arc::new(Watchers::every(Duration::from_millis(1)));
        let source = Arc::new(Source::default());
        let mut before = pin!(watchers.follow("r", reader(&source)));
        watchers.end();
        let mut after = pin!(watchers.follow("r", reader(&source)));
        assert_eq!(before.next().await, None);
        assert_eq!(after.next().await, None);
    }
}
