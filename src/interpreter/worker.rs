//! A thread of our own for the blocking parts of sessions.
//!
//! The kernel ties two things to the thread that starts a process: the mount namespace it inherits,
//! and the signal it gets when its parent dies. A pool's threads come and go, so they will not do.

use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::InterpreterError;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another; ends when it is dropped and the last job is done.
#[derive(Clone)]
pub(super) struct Worker(mpsc::Sender<Job>);

impl Worker {
    /// Start a thread. Started from a job of another worker, it shares that one's namespaces.
    pub(super) fn start(name: &str) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let run = move || jobs.into_iter().for_each(|job| job());
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Run a job and wait for what it returns.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, InterpreterError> {
        let (reply, answer) = oneshot::channel();
        self.submit(move || {
            let _ = reply.send(job());
        });
        answer
            .await
            .map_err(|_| InterpreterError::Start("the launcher has ended".to_owned()))
    }

    /// The same from a thread that may block.
    pub(super) fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::channel();
        self.submit(move || {
            let _ = reply.send(job());
        });
        answer.recv().ok()
    }

    /// Run a job some time.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        // The thread ends only when all senders are gone.
        let _ = self.0.send(Box::new(job));
    }
}
