//! A thread that does something again and again. Unlike a task, it is not delayed by what blocks the runtime.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::RunError;

/// A thread that ends when this is dropped, which waits for it.
#[derive(Debug)]
pub(super) struct Periodic {
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts a thread that waits for `pause` before each call of `act`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        name: &str,
        pause: Duration,
        mut act: impl FnMut() + Send + 'static,
    ) -> Result<Self, RunError> {
        let (alive, ended) = mpsc::channel();
        let repeat = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                act();
            }
        };
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(repeat).map_err(RunError::io("a thread"))?;
        Ok(Self {
            alive: Some(alive),
            thread: Some(thread),
        })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn it_repeats_until_it_is_dropped() {
        let (sender, receiver) = mpsc::channel();
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        let act = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = sender.send(());
        };
        let periodic = Periodic::start("test", Duration::from_millis(1), act).unwrap();
        for _ in 0..3 {
            receiver.recv().unwrap();
        }
        drop(periodic);
        let ended = count.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(count.load(Ordering::SeqCst), ended);
        // The thread owns the sender.
        assert!(receiver.iter().count() < ended as usize);
    }
}
