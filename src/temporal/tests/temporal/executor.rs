//! The conformance tests of executors.

use std::sync::Arc;

use pybench_run::*;
use pybench_temporal::TemporalQueue;
use pybench_testing::temporal;
use pybench_types::id::Digest;

#[path = "../../../run/src/conformance.rs"]
mod conformance;

struct Temporal {
    server: TemporalServer,
}

impl conformance::Factory for Temporal {
    type Executor = SharedExecutor;

    fn make(
        &self,
        folder: &Arc<RunFolder>,
        options: ExecutorOptions,
        interrupt: &Interrupt,
    ) -> SharedExecutor {
        // Temporal keeps no order, which some of these tests look at: no more units are open than are in work.
        let server = TemporalServer {
            window: options.concurrency.unwrap_or(1) as u32,
            ..self.server.clone()
        };
        let root = folder.root().display().to_string();
        let place = RunQueue {
            server,
            run: format!("run_{}", Digest::of_bytes(root.as_bytes()).short()),
            lease: options.lease,
        };
        let connect = TemporalQueue::connect(&place);
        let runtime = tokio::runtime::Handle::current();
        let queue = tokio::task::block_in_place(|| runtime.block_on(connect)).unwrap();
        let executor = SharedExecutor::new(
            folder.clone(),
            options,
            Progress::hidden(),
            interrupt.clone(),
        );
        executor.with_queue(Some(Arc::new(queue)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    if let Some(server) = temporal::server() {
        conformance::all(&Temporal { server }).await;
    }
}
