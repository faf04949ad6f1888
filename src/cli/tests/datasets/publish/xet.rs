//! Large files by Xet: `pybench-xet` with hf-hub, and behind the Hub Hugging Face's own store of chunks.

use axum::http::Method;
use pybench_run::ExitCode;

use crate::publish::fixture::{DatasetFixture, REPO, expected, finish, holds, python, reads_back};
use crate::publish::hub::{Cas, Hub, TOKEN, What, status};
use crate::publish::interrupted::{ctrl_c, ctrl_c_until_it_ends, ended, hanging};
use pybench_testing::rows as common;

/// A Hub that takes large files by Xet.
async fn start() -> Option<Hub> {
    let cas = Cas::start()?;
    let hub = Hub::start().await;
    hub.inside().xet = Some(cas);
    Some(hub)
}

fn commits(hub: &Hub) -> usize {
    hub.inside().repos.get(REPO).map_or(1, |r| r.commits.len())
}

fn stored(hub: &Hub) -> u64 {
    let mut inside = hub.inside();
    inside.settle();
    inside.xet.as_ref().unwrap().stored
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_changed_shard_only_the_new_chunks_are_sent() {
    let (Some(hub), fixture) = (start().await, DatasetFixture::new()) else {
        return;
    };
    let mut rows: Vec<_> = (0..600).map(|n| common::long_row(n, 4000)).collect();
    fixture.write_in(rows.clone(), 300, 20);
    let before = expected(&fixture.dataset());
    let done = fixture.yes(&hub).succeeded();
    assert!(done.out.contains("by Xet, "), "{}", done.out);
    holds(&hub, &fixture);
    let first = stored(&hub);
    assert_eq!(hub.inside().count(Method::PUT, "/lfs/"), 0);
    assert_eq!(commits(&hub), 2, "one commit, after the Hub's own");

    rows[450] = common::long_row(7777, 4000);
    fixture.write_in(rows, 300, 20);
    let after = expected(&fixture.dataset());
    let changed = |(path, bytes): &(&String, &axum::body::Bytes)| before[*path] != **bytes;
    let changed: Vec<_> = after.iter().filter(changed).collect();
    assert_eq!(changed.len(), 1);
    let done = fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
    let (more, size) = (stored(&hub) - first, changed[0].1.len() as u64);
    eprintln!(
        "{more} bytes of chunks for one row in a shard of {size}: {}",
        done.out
    );
    assert!(more > 0 && more * 2 < size, "{more} of {size} bytes");
    assert!(done.out.contains("uploaded 1 large files"), "{}", done.out);
    let done = fixture.yes(&hub).succeeded();
    assert!(done.out.contains("nothing to upload"), "{}", done.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_own_clients_get_it_by_xet() {
    let (Some(hub), fixture) = (start().await, DatasetFixture::new()) else {
        return;
    };
    let Some(python) = tokio::task::block_in_place(python) else {
        return;
    };
    hub.inside().page = 1000;
    fixture.yes(&hub).succeeded();
    hub.inside().log.clear();
    reads_back(&python, &hub, &fixture, &common::rows(60));
    let inside = hub.inside();
    assert!(inside.count(Method::GET, "/xet-read-token/") > 0);
    assert_eq!(inside.count(Method::GET, ".parquet"), 0, "none but by Xet");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_or_stopped_it_ends_in_the_same_state() {
    let Some(undisturbed) = start().await else {
        return;
    };
    let fixture = DatasetFixture::new();
    fixture.yes(&undisturbed).succeeded();
    for (method, part) in [
        (Method::POST, "/objects/batch"),
        (Method::GET, "/xet-write-token/"),
        (Method::POST, "/commit/"),
    ] {
        for kill in [true, false] {
            let Some(hub) = start().await else { return };
            let mut child = hanging(&hub, &fixture, method.clone(), part).await;
            match (kill, part) {
                (true, _) => child.kill().unwrap(),
                // During the commit it is waited for; a second one does not.
                (false, "/commit/") => ctrl_c_until_it_ends(&mut child).await,
                (false, _) => ctrl_c(&child),
            }
            let code = ended(&mut child).await;
            let stopped = (!kill).then_some(ExitCode::Interrupted as i32);
            assert_eq!(code, stopped, "{part}");
            assert_eq!(commits(&hub), 1, "{part}: nothing is visible");
            let done = fixture.yes(&hub).succeeded();
            if part == "/commit/" {
                let words = "by Xet, 0 B sent over the network";
                assert!(done.out.contains(words), "{}", done.out);
            }
            holds(&hub, &fixture);
            assert_eq!(commits(&hub), 2, "{part}: one commit");
            assert_eq!(hub.inside().files(REPO), undisturbed.inside().files(REPO));
            assert_eq!(stored(&hub), stored(&undisturbed), "{part}: no chunk twice");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_and_leave_nothing_half_done() {
    let fixture = DatasetFixture::new();
    let full = "Private repository storage limit reached, please upgrade your plan";
    let endpoint = ExitCode::Endpoint;
    let cases = [
        (
            Method::GET,
            "/xet-write-token/",
            status(401, "expired"),
            endpoint,
            "expired",
        ),
        (
            Method::GET,
            "/xet-write-token/",
            status(403, ""),
            endpoint,
            "right to write",
        ),
        (
            Method::POST,
            "/commit/",
            status(403, full),
            ExitCode::Budget,
            "storage",
        ),
        (
            Method::POST,
            "/commit/",
            status(409, ""),
            ExitCode::Conflict,
            "(409)",
        ),
        (
            Method::POST,
            "/commit/",
            status(413, ""),
            ExitCode::BadInput,
            "(413)",
        ),
        (
            Method::POST,
            "/commit/",
            status(418, "teapot"),
            endpoint,
            "teapot",
        ),
        (Method::POST, "/commit/", status(503, ""), endpoint, "(503)"),
        (
            Method::POST,
            "/commit/",
            status(403, &format!("you are {TOKEN}")),
            endpoint,
            "[secret]",
        ),
        (
            Method::POST,
            "/commit/",
            What::Overtake,
            ExitCode::Conflict,
            "somebody else",
        ),
    ];
    let Some(hub) = start().await else { return };
    for (method, part, what, code, words) in cases {
        let theirs = matches!(what, What::Overtake);
        hub.fault(method, part, if theirs { 1 } else { 99 }, what);
        fixture.yes(&hub).failed(code, words);
        hub.inside().faults.clear();
        assert_eq!(commits(&hub), if theirs { 2 } else { 1 }, "{part} {words}");
    }
    fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
    // The store is gone: what it is, where it is, and nothing is visible.
    fixture.write(common::rows(50));
    hub.inside().xet.as_mut().unwrap().stop();
    let mut command = fixture.publish(&hub, &fixture.dataset(), &["--repo", "o/n", "--yes"]);
    command.env("HF_XET_CLIENT_RETRY_MAX_ATTEMPTS", "1");
    finish(&mut command).failed(ExitCode::Endpoint, "by Xet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found() {
    let fixture = DatasetFixture::new();
    for what in [What::DoneAndCut, What::DoneAnd500] {
        let Some(hub) = start().await else { return };
        hub.fault(Method::POST, "/commit/", 1, what);
        fixture.yes(&hub).succeeded();
        holds(&hub, &fixture);
        assert_eq!(hub.inside().faults[0].times, 0, "it happened");
        assert_eq!(commits(&hub), 2, "one commit");
    }
}
