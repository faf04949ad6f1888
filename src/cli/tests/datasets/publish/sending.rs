//! What is sent, and what is not sent again.

use crate::publish::fixture::{DatasetFixture, REPO, expected, finish, holds};
use crate::publish::hub::{Entry, Hub, TOKEN, What, status};
use axum::http::Method;
use pybench_run::ExitCode;
use pybench_testing::rows as common;

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_nothing_is_written() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let done = fixture.run(&hub, &[]).succeeded();
    for words in [
        "train 60",
        "data/train-00002-of-00003.parquet",
        "license:",
        "dataset_info:",
        "Nothing was uploaded",
    ] {
        assert!(
            done.out.contains(words),
            "{words} is missing in {}",
            done.out
        );
    }
    assert_eq!(hub.inside().log.len(), 0, "nobody was asked");
    let done = fixture.run(&hub, &["--repo", "o/n"]).succeeded();
    assert!(
        done.out.contains("would be created as private"),
        "{}",
        done.out
    );
    let mut command = fixture.publish(&hub, &fixture.dataset(), &["--repo", "o/n"]);
    let done = finish(command.env_remove("HF_TOKEN")).succeeded();
    assert!(
        done.out.contains("cannot be read without a token"),
        "{}",
        done.out
    );
    let inside = hub.inside();
    assert!(inside.repos.is_empty());
    assert!(inside.log.iter().all(|(method, ..)| *method == Method::GET));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_not_sent_again() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let done = fixture.yes(&hub).succeeded();
    assert!(done.out.contains("verified: "), "{}", done.out);
    holds(&hub, &fixture);
    {
        let mut inside = hub.inside();
        assert!(inside.repos[REPO].private);
        assert_eq!(
            inside.repos[REPO].commits.len(),
            2,
            "one commit, after the Hub's own"
        );
        let parquet = |path: &str| path.ends_with(".parquet");
        let tree = &inside.repos[REPO].head().1;
        let mut large = tree.iter().filter(|(path, _)| parquet(path));
        assert!(large.all(|(_, entry)| matches!(entry, Entry::Large { .. })));
        inside.log.clear();
    }
    let done = fixture.yes(&hub).succeeded();
    assert!(done.out.contains("nothing to upload"), "{}", done.out);
    {
        let mut inside = hub.inside();
        assert!(inside.log.iter().all(|(method, ..)| *method == Method::GET));
        assert_eq!(inside.repos[REPO].commits.len(), 2);
        // A file of the owner's.
        inside.commit(REPO, "notes.md", "mine");
        inside.log.clear();
    }

    let before = expected(&fixture.dataset());
    let mut rows = common::rows(60);
    rows[59] = common::row(77);
    fixture.write(rows);
    let after = expected(&fixture.dataset());
    let changed: Vec<&String> = after
        .keys()
        .filter(|path| before[*path] != after[*path])
        .collect();
    assert_eq!(changed, ["data/train-00002-of-00003.parquet"]);
    let dry = fixture.run(&hub, &["--repo", "o/n"]).succeeded();
    let send = dry.out.lines().filter(|line| line.starts_with("  upload"));
    assert!(
        send.clone().any(|line| line.ends_with(changed[0])),
        "{}",
        dry.out
    );
    assert_eq!(
        send.filter(|line| line.contains(".parquet")).count(),
        1,
        "{}",
        dry.out
    );
    hub.inside().log.clear();
    fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
    let mut inside = hub.inside();
    let size = after[changed[0]].len();
    assert_eq!(inside.count(Method::PUT, "/lfs/"), 1);
    assert_eq!(
        inside.bytes(Method::PUT, "/lfs/"),
        size,
        "bytes of the one shard"
    );
    let files = inside.files(REPO);
    assert!(files.contains_key("notes.md"), "what is the owner's stays");
    // The card and what is drawn from all rows, in base64; sessions stay as they are.
    let drawn = files
        .iter()
        .filter(|(path, _)| *path == "README.md" || path.starts_with("plots/"));
    let drawn: usize = drawn.map(|(_, bytes)| bytes.len()).sum();
    let small = inside.bytes(Method::POST, "/commit/");
    assert!(small < drawn * 4 / 3 + 2000, "{small} bytes in the commit");
    inside.log.clear();
    drop(inside);

    fixture.write(common::rows(20));
    fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
    assert!(hub.inside().files(REPO).contains_key("notes.md"));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_go_in_pieces_where_the_hub_wants_it() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    hub.inside().piece = Some(1000);
    hub.fault(Method::PUT, "/lfs/", 2, What::CutAfter(10));
    fixture.yes(&hub).succeeded();
    holds(&hub, &fixture);
    let inside = hub.inside();
    let pieces: usize = expected(&fixture.dataset())
        .values()
        .map(|bytes| bytes.len().div_ceil(1000))
        .sum();
    assert_eq!(inside.count(Method::PUT, "/lfs/"), pieces + 2);
    assert_eq!(inside.count(Method::POST, "/complete"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_private_becomes_public() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    hub.inside().create(REPO, false);
    fixture.yes(&hub).failed(ExitCode::BadInput, "--public");
    assert_eq!(hub.inside().repos[REPO].commits.len(), 1);
    assert_eq!(hub.inside().count(Method::PUT, ""), 0);
    fixture
        .run(&hub, &["--repo", "o/n", "--yes", "--public"])
        .succeeded();
    holds(&hub, &fixture);
    // A Hub that does not listen.
    let deaf = Hub::start().await;
    deaf.inside().deaf = true;
    fixture
        .yes(&deaf)
        .failed(ExitCode::Endpoint, "was created as private");
    assert_eq!(deaf.inside().repos[REPO].commits.len(), 1);
    let open = Hub::start().await;
    fixture
        .run(&open, &["--repo", "o/n", "--yes", "--public"])
        .succeeded();
    assert!(!open.inside().repos[REPO].private);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_found_and_never_told() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let yes = ["--repo", "o/n", "--yes"];
    let mut command = fixture.publish(&hub, &fixture.dataset(), &yes);
    finish(command.env_remove("HF_TOKEN")).failed(ExitCode::Endpoint, "set HF_TOKEN");
    let mut command = fixture.publish(&hub, &fixture.dataset(), &yes);
    finish(command.env("HF_TOKEN", "hf_wrong")).failed(ExitCode::Endpoint, "(401)");
    // A server that says what it was told.
    hub.fault(
        Method::POST,
        "/repos/create",
        1,
        status(403, &format!("you said {TOKEN}")),
    );
    fixture
        .yes(&hub)
        .failed(ExitCode::Endpoint, "you said [secret]");
    let home = fixture.root.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("token"), format!("{TOKEN}\n")).unwrap();
    let mut command = fixture.publish(&hub, &fixture.dataset(), &yes);
    finish(command.env_remove("HF_TOKEN").env("HF_HOME", &home)).succeeded();
    holds(&hub, &fixture);
    let inside = hub.inside();
    assert!(
        inside
            .authorized
            .iter()
            .any(|bearer| bearer == &format!("Bearer {TOKEN}"))
    );
    for (path, bytes) in inside.files(REPO) {
        let found = bytes
            .windows(TOKEN.len())
            .any(|window| window == TOKEN.as_bytes());
        assert!(!found, "{path}");
    }
}
