//! A run on Temporal, PostgreSQL and S3 with three workers has the bytes of a local run.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pybench_run::shared::Member;
use pybench_run::{Journal, ObjectServer, Profile, TemporalServer};
use pybench_testing::{ROOT, s3, temporal};

use crate::kill::dataset_of;
use crate::shared_run::SharedRun;
use crate::support::fixture::interpreter_is_here;
use crate::support::pybench;
use crate::workers::{LEASE, drain, profile};

/// Adds a bucket, and a Temporal server that has `window` activities of a run open, to a profile; `false` if one of them cannot be
/// installed.
fn add_servers(profile: &Path, window: u32, lease_seconds: u32) -> bool {
    let (Some(store), Some(temporal)) = (s3::server(), temporal::server()) else {
        return false;
    };
    let mut settings = Profile::load(profile).unwrap();
    settings.store = Some(ObjectServer {
        prefix: "on-temporal".to_owned(),
        ..store
    });
    settings.temporal = Some(TemporalServer { window, ..temporal });
    settings.workers.lease_seconds = lease_seconds;
    std::fs::write(profile, toml::to_string(&settings).unwrap()).unwrap();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn three_workers_on_temporal_give_the_same_bytes() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    // Fewer than there are units, so that several windows are offered.
    if !add_servers(&profile, 6, LEASE) {
        return;
    }
    let mut run = SharedRun::begin(settings.path(), &profile, Duration::from_millis(150)).await;
    let mut ended = 0_u64;
    run.follow(|run| {
        let folder = run.fixture.folder();
        if folder.join("tasks.jsonl").exists() {
            let journal = Journal::read_run(&folder).unwrap();
            let members = Member::all(&journal).unwrap();
            ended = ended.max(members.iter().map(|member| member.ended).sum::<u64>());
        }
    });
    assert!(ended > 0, "no worker did anything");
    run.end();
}

/// `synthesize quickstart` or a worker of it, with its run folder in `runs`.
fn quickstart(command: &str, runs: &Path) -> Command {
    let mut program = pybench(command);
    program
        .args(["--run", "quickstart", "--runs-dir"])
        .arg(runs)
        .current_dir(ROOT)
        .env_remove("PYBENCH_ROOT")
        .process_group(0);
    program
}

#[test]
#[ignore = "takes minutes; `just soak cluster` makes it"]
fn the_quickstart_on_temporal_has_the_same_bytes() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    if !add_servers(&profile, 100, 60) {
        return;
    }
    let [alone, shared] = ["alone", "shared"].map(|name| settings.path().join(name));
    let local = quickstart("synthesize", &alone).status().unwrap();
    assert!(local.success(), "{local}");
    let mut workers: Vec<_> = (0..3)
        .map(|_| {
            let mut worker = quickstart("worker", &shared);
            worker.args(["--slots", "2", "--idle-seconds", "3600"]);
            worker.arg("--profile").arg(&profile).spawn().unwrap()
        })
        .collect();
    let mut coordinator = quickstart("synthesize", &shared);
    let status = coordinator.arg("--profile").arg(&profile).status().unwrap();
    assert!(status.success(), "{status}");
    for worker in &mut workers {
        drain(worker);
    }
    let [expected, files] = [alone, shared].map(|runs| dataset_of(&runs.join("quickstart")));
    assert!(!expected.is_empty() && files.keys().eq(expected.keys()));
    let mut names = expected.keys();
    let other = names.find(|name| files[*name] != expected[*name]);
    assert_eq!(other, None, "it differs");
}
