//! Sessions of a pipeline: as many cells run at the same time as there are cores.

use std::future::Future;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use pybench_types::observation::Observation;
use tokio::sync::Semaphore;

use super::{
    Collected, Files, Interpreter, InterpreterError, InterruptHandle, Session, SessionSpec, Watcher,
};

/// Cells that run at the same time in this process, whatever interpreter they are of.
static CELLS: LazyLock<Semaphore> = LazyLock::new(one_per_core);
/// Sessions that start at the same time. Half of such a start is waiting for the kernel.
static STARTS: LazyLock<Semaphore> = LazyLock::new(one_per_core);

fn one_per_core() -> Semaphore {
    Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))
}

/// Does work once it is its turn.
async fn within<T>(limit: &Semaphore, work: impl Future<Output = T>) -> T {
    // The semaphore is never closed; without a permit the work is only less well paced.
    let _permit = limit.acquire().await;
    work.await
}

/// An interpreter that runs as many cells at the same time as there are cores, and starts as many sessions. Between
/// cells, while a model writes the next one, a session occupies no core, so there may be many more sessions. Sessions
/// end on threads of the interpreter's own.
pub struct PacedInterpreter(Arc<dyn Interpreter>);

impl PacedInterpreter {
    /// Paces the sessions of `interpreter`.
    pub fn new(interpreter: Arc<dyn Interpreter>) -> Self {
        Self(interpreter)
    }
}

#[async_trait]
impl Interpreter for PacedInterpreter {
    async fn start(&self, spec: SessionSpec) -> Result<Box<dyn Session>, InterpreterError> {
        let session = within(&STARTS, self.0.start(spec)).await?;
        Ok(Box::new(PacedSession(session)))
    }

    fn environment(&self) -> &str {
        self.0.environment()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

struct PacedSession(Box<dyn Session>);

#[async_trait]
impl Session for PacedSession {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        within(&CELLS, self.0.execute(code)).await
    }

    async fn execute_live(
        &mut self,
        code: &str,
        watcher: Watcher,
    ) -> Result<Observation, InterpreterError> {
        within(&CELLS, self.0.execute_live(code, watcher)).await
    }

    fn files(&self) -> Option<Files> {
        self.0.files()
    }

    async fn sibling(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        let sibling = within(&STARTS, self.0.sibling()).await?;
        Ok(Box::new(Self(sibling)))
    }

    fn interrupt_handle(&self) -> InterruptHandle {
        self.0.interrupt_handle()
    }

    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
        within(&CELLS, self.0.read_outputs()).await
    }

    async fn fork(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        let copy = within(&STARTS, self.0.fork()).await?;
        Ok(Box::new(Self(copy)))
    }

    async fn close(self: Box<Self>) -> Result<(), InterpreterError> {
        self.0.close().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    /// Counts sessions that do something at the same time.
    #[derive(Clone, Default)]
    struct Counting {
        working: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl Counting {
        async fn work(&self) {
            let working = self.working.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(working, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.working.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[async_trait]
    impl Interpreter for Counting {
        async fn start(&self, _: SessionSpec) -> Result<Box<dyn Session>, InterpreterError> {
            self.work().await;
            Ok(Box::new(self.clone()))
        }

        fn environment(&self) -> &str {
            "counting"
        }

        fn warnings(&self) -> Vec<String> {
            Vec::new()
        }
    }

    #[async_trait]
    impl Session for Counting {
        async fn execute(&mut self, _: &str) -> Result<Observation, InterpreterError> {
            self.work().await;
            Ok(Observation::default())
        }

        fn interrupt_handle(&self) -> InterruptHandle {
            InterruptHandle::new().0
        }

        async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
            self.work().await;
            Ok(Collected::default())
        }

        async fn close(self: Box<Self>) -> Result<(), InterpreterError> {
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_sessions_start_or_run_cells_than_there_are_cores() {
        let counting = Counting::default();
        let paced = PacedInterpreter::new(Arc::new(counting.clone()));
        let started = (0..40).map(|_| paced.start(SessionSpec::default()));
        let sessions = join_all(started).await;
        let live = sessions.len();
        join_all(sessions.into_iter().map(async |session| {
            let mut session = session.unwrap();
            session.execute("").await.unwrap();
            session.read_outputs().await.unwrap();
            session.close().await.unwrap();
        }))
        .await;
        let cores = std::thread::available_parallelism().unwrap().get();
        assert_eq!(counting.most.load(Ordering::SeqCst), cores.min(live));
    }
}
