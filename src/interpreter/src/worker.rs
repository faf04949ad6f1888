//! Dedicated threads for the blocking parts of sessions.
//!
//! A child process inherits the mount namespace of the thread that starts it, and gets its parent-death
//! signal when that thread ends. Pool threads come and go, so they cannot be used.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::InterpreterError;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another, or as many at a time as it has threads. They end when all handles are dropped and the
/// last job is done.
#[derive(Clone)]
pub struct Worker(mpsc::Sender<Job>);

impl Worker {
    /// Starts a thread. If a job of another worker calls this, the new thread shares its namespaces.
    pub fn start(name: &str) -> std::io::Result<Self> {
        Self::start_several(name, 1)
    }

    /// Starts `threads` threads, as [`Self::start`].
    pub fn start_several(name: &str, threads: usize) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..threads {
            let jobs = jobs.clone();
            let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let run = move || std::iter::from_fn(|| next().ok()).for_each(|job| job());
            thread::Builder::new().name(name.to_owned()).spawn(run)?;
        }
        Ok(Self(sender))
    }

    /// Runs a job and waits for its result.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, InterpreterError> {
        let (reply, answer) = oneshot::channel();
        self.submit(move || {
            let _ = reply.send(job());
        });
        answer
            .await
            .map_err(|_| InterpreterError::Start("the launcher thread has stopped".to_owned()))
    }

    /// Runs a job and waits for its result on a thread that may block; `None` if the worker has stopped.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::channel();
        self.submit(move || {
            let _ = reply.send(job());
        });
        answer.recv().ok()
    }

    /// Queues a job without waiting for it.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        // The thread ends only when all senders are gone.
        let _ = self.0.send(Box::new(job));
    }
}
