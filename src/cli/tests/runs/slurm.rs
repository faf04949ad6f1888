//! The scripts of `deploy/slurm` on a Slurm of one machine: the bytes of a local run, although a worker is cancelled.

mod server;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::kill::dataset;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::workers::{assert_nothing_is_left, local_run, profile, recipe, requests};
use server::{Slurm, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn an_array_of_workers_of_which_one_is_cancelled_gives_the_same_bytes() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let Some(slurm) = Slurm::start() else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(400)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let shared = RunFixture::bare(&text);
    // Workers may start before the run.
    let profile = profile.to_str().unwrap();
    let folder = ["--runs-dir", "data/runs"];
    let workers = slurm.submit(
        &shared.path("."),
        &["--array=1-2"],
        "workers.sbatch",
        &[&["t", profile, "--slots", "2"][..], &folder[..]].concat(),
    );
    let (expected, asked) = local_run(&server, &tasks, &text).await;

    let coordinator = slurm.submit(
        &shared.path("."),
        &[],
        "coordinator.sbatch",
        &[&["t.toml", profile][..], &folder[..]].concat(),
    );
    let (cancelled, other) = (format!("{workers}_1"), format!("{workers}_2"));
    let log = |worker: &str| {
        let path = shared.path(&format!("pybench-worker-{worker}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    };
    wait_until("a worker works", || {
        requests(&server) >= 4 && log(&cancelled).contains("working on the stage rollout")
    });
    assert!(slurm.is_active(&coordinator), "the run is over too early");
    slurm.cancel(&cancelled);
    server.answer_after(Duration::ZERO);
    wait_until("the run ends", || !slurm.is_active(&coordinator));
    assert_eq!(slurm.state(&coordinator), "COMPLETED");
    assert!(dataset(&shared) == expected, "another dataset");
    assert_eq!(
        (server.calls().len(), requests(&server)),
        (asked, asked as u64),
        "a call is repeated"
    );
    slurm.cancel(&other);
    for worker in [&cancelled, &other] {
        wait_until("the worker ends", || !slurm.is_active(worker));
        assert_eq!(slurm.state(worker), "CANCELLED");
    }
    let said = log(&cancelled);
    assert!(
        said.contains("drained: the units of this worker go on elsewhere"),
        "{said}"
    );
    assert_nothing_is_left(&shared);
}
