//! The shared executor over a journal in PostgreSQL.

use std::path::PathBuf;

use pybench_run::*;
use pybench_testing::postgres;

#[path = "../../../run/src/conformance.rs"]
mod conformance;

struct Shared {
    profile: PathBuf,
}

impl conformance::Factory for Shared {
    type Executor = SharedExecutor;

    fn open(&self, root: &std::path::Path) -> RunFolder {
        RunFolder::open_in_profile(root, "", &WhenChanged::default(), Some(&self.profile)).unwrap()
    }

    fn make(
        &self,
        folder: &std::sync::Arc<RunFolder>,
        options: ExecutorOptions,
        interrupt: &Interrupt,
    ) -> SharedExecutor {
        SharedExecutor::new(
            folder.clone(),
            options,
            Progress::hidden(),
            interrupt.clone(),
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    if let Some(profile) = postgres::profile() {
        conformance::all(&Shared { profile }).await;
    }
}
