//! A dedicated thread for the blocking parts of sessions.
//!
//! A child process inherits the mount namespace of the thread that starts it, and gets its parent-death
//! signal when that thread ends. Pool threads come and go, so they cannot be used.

use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::InterpreterError;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another. The thread ends when all handles are dropped and the last job is done.
#[derive(Clone)]
pub struct Worker(mpsc::Sender<Job>);

impl Worker {
    /// Starts a thread. If a job of another worker calls this, the new thread shares its namespaces.
    pub fn start(name: &str) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let run = move || jobs.into_iter().for_each(|job| job());
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
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
