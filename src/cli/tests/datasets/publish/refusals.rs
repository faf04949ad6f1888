//! What the Hub refuses, what passes, and commits of others.

use axum::http::Method;
use pybench_run::ExitCode;

use crate::publish::fixture::{DatasetFixture, REPO, holds};
use crate::publish::hub::{Hub, What, status};

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_says_what_it_is_and_leaves_nothing_half_done() {
    let fixture = DatasetFixture::new();
    let full = "Private repository storage limit reached, please upgrade your plan";
    let post = Method::POST;
    let long = What::Status(429, vec![("retry-after", "3600".into())], String::new());
    let cases = [
        (
            post.clone(),
            "/repos/create",
            status(403, "no right"),
            ExitCode::Endpoint,
            "no right",
        ),
        (
            Method::GET,
            "/api/datasets",
            status(401, ""),
            ExitCode::Endpoint,
            "(401)",
        ),
        (
            post.clone(),
            "/preupload/",
            status(401, "expired"),
            ExitCode::Endpoint,
            "expired",
        ),
        (
            post.clone(),
            "/preupload/",
            status(403, ""),
            ExitCode::Endpoint,
            "right to write",
        ),
        (
            post.clone(),
            "/objects/batch",
            status(403, full),
            ExitCode::Budget,
            "storage",
        ),
        (
            post.clone(),
            "/objects/batch",
            status(404, ""),
            ExitCode::BadInput,
            "(404)",
        ),
        (
            Method::PUT,
            "/lfs/",
            status(413, ""),
            ExitCode::BadInput,
            "smaller shards",
        ),
        (
            Method::PUT,
            "/lfs/",
            status(403, "signature"),
            ExitCode::Endpoint,
            "signature",
        ),
        (
            post.clone(),
            "/verify",
            status(507, ""),
            ExitCode::Budget,
            "used up",
        ),
        (
            post.clone(),
            "/commit/",
            status(409, ""),
            ExitCode::Conflict,
            "(409)",
        ),
        (
            post.clone(),
            "/commit/",
            status(413, ""),
            ExitCode::BadInput,
            "(413)",
        ),
        (
            post.clone(),
            "/commit/",
            status(402, ""),
            ExitCode::Budget,
            "used up",
        ),
        (
            post.clone(),
            "/commit/",
            status(418, "teapot"),
            ExitCode::Endpoint,
            "teapot",
        ),
        (
            post.clone(),
            "/preupload/",
            long,
            ExitCode::Endpoint,
            "3600 s",
        ),
        (
            post.clone(),
            "/objects/batch",
            status(503, ""),
            ExitCode::Endpoint,
            "(503)",
        ),
        (
            post.clone(),
            "/commit/",
            status(500, ""),
            ExitCode::Endpoint,
            "(500)",
        ),
        (
            post,
            "/preupload/",
            What::Status(200, vec![], "<html>".into()),
            ExitCode::Endpoint,
            "is HF_ENDPOINT a Hub?",
        ),
    ];
    for (method, part, what, code, words) in cases {
        let hub = Hub::start().await;
        hub.fault(method, part, 99, what);
        fixture.yes(&hub).failed(code, words);
        {
            let mut inside = hub.inside();
            let commits = inside.repos.get(REPO).map_or(1, |repo| repo.commits.len());
            assert_eq!(commits, 1, "{part} {words}: nothing is visible");
            inside.faults.clear();
        }
        fixture.yes(&hub).succeeded();
        holds(&hub, &fixture);
        assert_eq!(hub.inside().repos[REPO].commits.len(), 2, "{part} {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_tried_again() {
    let fixture = DatasetFixture::new();
    let soon = What::Status(429, vec![("retry-after", "0".into())], String::new());
    let cases = [
        (Method::GET, "/tree/", status(502, "")),
        (Method::POST, "/preupload/", soon.clone()),
        (Method::POST, "/repos/create", status(500, "")),
        (Method::PUT, "/lfs/", status(503, "")),
        (Method::PUT, "/lfs/", What::CutAfter(100)),
        (Method::PUT, "/lfs/", What::DoneAndCut),
        (Method::POST, "/objects/batch", What::CutAfter(0)),
        (Method::POST, "/commit/", status(503, "")),
        (Method::POST, "/commit/", soon),
        (Method::POST, "/commit/", What::CutAfter(1000)),
        // It was done, and nobody said so.
        (Method::POST, "/commit/", What::DoneAndCut),
        (Method::POST, "/commit/", What::DoneAnd500),
    ];
    for (method, part, what) in cases {
        let told = format!("{method} {part} {what:?}");
        let hub = Hub::start().await;
        hub.fault(method, part, 1, what);
        fixture.yes(&hub).succeeded();
        holds(&hub, &fixture);
        let inside = hub.inside();
        assert_eq!(inside.faults[0].times, 0, "{told}: it happened");
        assert_eq!(inside.repos[REPO].commits.len(), 2, "{told}: one commit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_somebody_else_is_not_run_over() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    hub.fault(Method::POST, "/commit/", 1, What::Overtake);
    fixture
        .yes(&hub)
        .failed(ExitCode::Conflict, "somebody else");
    {
        let inside = hub.inside();
        let files = inside.files(REPO);
        assert_eq!(files.len(), 2, "theirs and the Hub's: {:?}", files.keys());
    }
    hub.inside().log.clear();
    fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
    assert_eq!(
        hub.inside().count(Method::PUT, "/lfs/"),
        0,
        "the large files were there"
    );
    assert!(hub.inside().files(REPO).contains_key("theirs.md"));
}
