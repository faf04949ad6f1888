//! A run on Temporal, PostgreSQL and S3 with three workers has the bytes of a local run. `just temporal` compiles it.

use std::path::Path;
use std::process::Child;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pybench_run::{Journal, ObjectServer, Profile, TemporalServer};
use pybench_testing::{s3, temporal};

use crate::kill::dataset;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::workers::{
    assert_nothing_is_left, coordinator, drain, local_run, profile, recipe, requests, worker,
};

/// Adds a bucket and a Temporal server to a profile; `false` if one of them cannot be installed.
fn add_servers(profile: &Path) -> bool {
    let (Some(store), Some(temporal)) = (s3::server(), temporal::server()) else {
        return false;
    };
    let mut settings = Profile::load(profile).unwrap();
    settings.store = Some(ObjectServer {
        prefix: "on-temporal".to_owned(),
        ..store
    });
    settings.temporal = Some(TemporalServer {
        // Less than there are units, so that several windows are offered.
        window: 6,
        ..temporal
    });
    std::fs::write(profile, toml::to_string(&settings).unwrap()).unwrap();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn three_workers_on_temporal_give_the_same_bytes() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    if !add_servers(&profile) {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(150)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let (expected, asked) = local_run(&server, &tasks, &text).await;

    let shared = RunFixture::bare(&text);
    let mut workers: Vec<Child> = (0..3)
        .map(|_| worker(&shared, &profile).spawn().unwrap())
        .collect();
    let mut coordinating = coordinator(&shared, &profile).spawn().unwrap();
    let mut ended = 0_u64;
    let status = loop {
        if let Some(status) = coordinating.try_wait().unwrap() {
            break status;
        }
        if shared.folder().join("tasks.jsonl").exists() {
            let journal = Journal::read_run(&shared.folder()).unwrap();
            let members = pybench_run::shared::Member::all(&journal).unwrap();
            ended = ended.max(members.iter().map(|member| member.ended).sum::<u64>());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(status.success(), "{status}");
    assert!(dataset(&shared) == expected, "another dataset");
    assert_eq!(
        (server.calls().len(), requests(&server)),
        (asked, asked as u64),
        "no call is repeated"
    );
    assert!(ended > 0, "no worker did anything");
    for worker in &mut workers {
        drain(worker);
    }
    assert_nothing_is_left(&shared);
}
