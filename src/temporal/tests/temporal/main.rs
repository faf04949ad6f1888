//! Real servers on loopback: Temporal, and PostgreSQL where several processes share a run. As in `pybench-cluster`, a test is
//! skipped where a server cannot be installed.

mod executor;
mod queue;
mod workers;

use std::time::Duration;

use pybench_run::shared::Round;
use pybench_run::{BudgetCap, RunQueue, TemporalServer};
use pybench_temporal::TemporalQueue;
use pybench_types::id::Digest;

/// The queue of a run that no other test has.
async fn queue(server: &TemporalServer, run: &str, lease: u64) -> TemporalQueue {
    let place = RunQueue {
        server: server.clone(),
        run: run.to_owned(),
        lease: Duration::from_secs(lease),
    };
    TemporalQueue::connect(&place).await.unwrap()
}

fn round(id: &str, version: &str) -> Round {
    Round {
        id: id.to_owned(),
        stage: "rollout".to_owned(),
        code: Digest::of_bytes(b"program"),
        stage_version: version.to_owned(),
        recipe: Digest::of_bytes(b"recipe"),
        tasks: Digest::of_bytes(b"tasks"),
        budget: BudgetCap::default(),
        attempts: 4,
        unit_limit: None,
        is_queued: true,
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("item-{number}")).collect()
}
