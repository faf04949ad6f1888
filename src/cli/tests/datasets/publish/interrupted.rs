//! Killed and stopped in the middle: nothing is half done, and the same command ends where it would have.

use std::process::Child;
use std::time::Duration;

use axum::http::Method;
use pybench_run::ExitCode;
use rustix::process::{Pid, Signal, kill_process};

use crate::publish::fixture::{DatasetFixture, REPO, holds, until_it_hangs};
use crate::publish::hub::{Hub, What};

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_commit_it_ends_in_the_same_state() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    hub.fault(Method::POST, "/commit/", 1, What::Hang);
    let mut command = fixture.publish(&hub, &fixture.dataset(), &["--repo", "o/n", "--yes"]);
    let mut child = until_it_hangs(&mut command, &hub).await;
    child.kill().unwrap();
    child.wait().unwrap();
    {
        let mut inside = hub.inside();
        assert_eq!(inside.repos[REPO].commits.len(), 1, "nothing is visible");
        assert_eq!(inside.objects.len(), 3, "the shards are there");
        inside.log.clear();
    }
    fixture.yes(&hub).succeeded();
    assert_eq!(
        hub.inside().count(Method::PUT, "/lfs/"),
        0,
        "no shard is sent twice"
    );
    holds(&hub, &fixture);
    let undisturbed = Hub::start().await;
    fixture.yes(&undisturbed).succeeded();
    let (disturbed, undisturbed) = (hub.inside().files(REPO), undisturbed.inside().files(REPO));
    assert_eq!(disturbed, undisturbed);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_among_the_large_files_it_goes_on_after_them() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    // One of three; the others go at the same time.
    hub.fault(Method::PUT, "/lfs/", 1, What::Hang);
    let mut command = fixture.publish(&hub, &fixture.dataset(), &["--repo", "o/n", "--yes"]);
    let mut child = until_it_hangs(&mut command, &hub).await;
    while hub.inside().objects.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    hub.inside().log.clear();
    fixture.yes(&hub).succeeded();
    assert_eq!(
        hub.inside().count(Method::PUT, "/lfs/"),
        1,
        "only the one that was missing"
    );
    holds(&hub, &fixture);
}

/// The program, on its way to a request that hangs.
pub async fn hanging(
    hub: &Hub,
    fixture: &DatasetFixture,
    method: Method,
    part: &'static str,
) -> Child {
    hub.fault(method, part, 1, What::Hang);
    let mut command = fixture.publish(hub, &fixture.dataset(), &["--repo", "o/n", "--yes"]);
    until_it_hangs(&mut command, hub).await
}

pub fn ctrl_c(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Signals of one kind that arrive together count once: they are sent until it ends.
pub async fn ctrl_c_until_it_ends(child: &mut Child) {
    while child.try_wait().unwrap().is_none() {
        ctrl_c(child);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Its exit code; nobody waits for ever.
pub async fn ended(child: &mut Child) -> Option<i32> {
    for _ in 0..3000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().unwrap();
    panic!("it did not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_before_the_commit_leaves_nothing_visible() {
    for (method, part) in [
        (Method::GET, "/api/datasets"),
        (Method::POST, "/repos/create"),
        (Method::POST, "/preupload/"),
        (Method::POST, "/objects/batch"),
        (Method::PUT, "/lfs/"),
        (Method::POST, "/verify"),
    ] {
        let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
        let mut child = hanging(&hub, &fixture, method, part).await;
        ctrl_c(&child);
        let code = ended(&mut child).await;
        assert_eq!(code, Some(ExitCode::Interrupted as i32), "{part}");
        let commits = hub.inside().repos.get(REPO).map_or(1, |r| r.commits.len());
        assert_eq!(commits, 1, "{part}: nothing is visible");
        fixture.yes(&hub).succeeded();
        holds(&hub, &fixture);
        assert_eq!(
            hub.inside().repos[REPO].commits.len(),
            2,
            "{part}: one commit"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_during_the_commit_waits_for_it_and_a_second_one_does_not() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    hub.fault(Method::POST, "/commit/", 1, What::DoneAndWait);
    let mut command = fixture.publish(&hub, &fixture.dataset(), &["--repo", "o/n", "--yes"]);
    let mut child = until_it_hangs(&mut command, &hub).await;
    ctrl_c(&child);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        child.try_wait().unwrap().is_none(),
        "the commit is waited for"
    );
    hub.let_go();
    assert_eq!(ended(&mut child).await, Some(0), "it is seen to its end");
    holds(&hub, &fixture);

    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let mut child = hanging(&hub, &fixture, Method::POST, "/commit/").await;
    ctrl_c_until_it_ends(&mut child).await;
    let code = ended(&mut child).await;
    assert_eq!(code, Some(ExitCode::Interrupted as i32));
    assert_eq!(
        hub.inside().repos[REPO].commits.len(),
        1,
        "nothing is visible"
    );
    fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
}
