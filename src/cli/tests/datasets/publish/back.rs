//! What others get: `just verify` from the Hub, the Hub's own Python clients, and the true Hub.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::http::Method;
use pybench_run::ExitCode;
use serde_json::Value;

use crate::publish::fixture::{
    DatasetFixture, Done, REPO, finish, publish, python, read_back, reads_back, texts, with_hub,
};
use crate::publish::hub::{Hub, What, status};
use crate::support::fixture::{self, interpreter_is_here};
use pybench_testing::rows as common;

/// Six tasks, some on a picture.
const RECIPE: &str = "name = 't'\nseed = 7\nteacher = { kind = 'expert' }\n\n\
    [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n\n\
    [query]\ntasks = 6\ntemplate_share = 0.5\nkeywords = ['rotate image', 'derivative', 'integral']\n\n\
    [shard]\nheld_out_templates = 0\ntest_fraction = 0.0\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_comes_back_is_what_it_was() {
    if !interpreter_is_here() {
        return;
    }
    let hub = Hub::start().await;
    let run = fixture::RunFixture::bare(RECIPE);
    finish(&mut run.program("synthesize", &[])).succeeded();
    let root = tempfile::tempdir().unwrap();
    let all = "100 % of rows re-executed identically";
    let state = root.path().join("before");
    let mut here = verify(
        root.path(),
        &hub,
        run.folder().to_str().unwrap(),
        &["--offline"],
    );
    let done = finish(here.arg("--state").arg(state)).succeeded();
    assert!(done.out.contains(all), "{}", done.out);
    let yes = ["--repo", "o/n", "--yes"];
    finish(&mut publish(root.path(), &hub, &run.folder(), &yes)).succeeded();
    let commit = {
        let inside = hub.inside();
        let files = inside.files(REPO);
        let card = std::str::from_utf8(&files["README.md"]).unwrap();
        assert!(card.contains(all), "{card}");
        assert!(files.contains_key("proof.json"));
        assert!(
            files.keys().any(|path| path.starts_with("files/")),
            "inputs go with the rows"
        );
        inside.repos[REPO].head().0.clone()
    };
    // Another machine has nothing but the Hub: no run, and an empty cache.
    drop(run);
    let from_hub = |name: &str, more: &[&str]| {
        hub.inside().log.clear();
        let mut command = verify(root.path(), &hub, name, more);
        finish(command.arg("--state").arg(root.path().join("after")))
    };
    let done = from_hub("o/n", &[]).succeeded();
    assert!(
        done.out.contains(all) && done.out.contains(&commit),
        "{}",
        done.out
    );
    assert_eq!(
        hub.inside().count(Method::GET, "/plots/"),
        0,
        "only what is needed"
    );
    // Once more, nothing comes again; of a commit nobody is even asked.
    from_hub("hf://datasets/o/n@main", &[]).succeeded();
    assert_eq!(hub.inside().count(Method::GET, ""), 1, "which commit it is");
    let pinned = format!("hf://datasets/o/n@{commit}");
    let done = from_hub(&pinned, &["--offline"]).succeeded();
    assert!(done.out.contains(all), "{}", done.out);
    assert_eq!(hub.inside().log.len(), 0);
}

/// `pybench-verify` on a machine with empty caches, that Hub and nothing else of the network.
fn verify(fixture: &Path, hub: &Hub, what: &str, more: &[&str]) -> Command {
    let mut command = with_hub("verify", fixture, hub);
    command.arg(what).args(more);
    command.arg("--downloads").arg(fixture.join("downloads"));
    command
}

/// Downloads a dataset. Its rows have no environment, so they are not executed again.
fn download(fixture: &DatasetFixture, hub: &Hub, what: &str) -> Done {
    let root = fixture.root.path();
    let mut command = verify(root, hub, what, &["--sample", "1%"]);
    finish(command.arg("--state").arg(root.join("state")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_off_goes_on_where_it_did() {
    if !interpreter_is_here() {
        return;
    }
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    fixture.yes(&hub).succeeded();
    hub.fault(Method::GET, "train-00001", 1, What::CutBody(500));
    hub.fault(Method::GET, "README.md", 1, status(503, ""));
    hub.fault(Method::GET, "train-00002", 1, What::Hang);
    let mut command = verify(fixture.root.path(), &hub, "o/n", &["--sample", "1%"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    hub.hangs().await;
    let downloads = fixture.root.path().join("downloads/hub/datasets/o--n");
    let there = |name: &str| {
        let commits = std::fs::read_dir(&downloads).into_iter().flatten();
        commits
            .flatten()
            .any(|commit| commit.path().join(name).is_file())
    };
    let mut waited = 0;
    while !(there("data/train-00001-of-00003.parquet") && there("README.md")) {
        waited += 1;
        assert!(waited < 3000, "the others do not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    {
        let mut inside = hub.inside();
        let resumed = inside
            .ranges
            .iter()
            .find(|(path, _)| path.contains("train-00001"));
        assert_eq!(resumed.unwrap().1, "bytes=500-");
        inside.log.clear();
    }
    download(&fixture, &hub, "o/n").succeeded();
    let inside = hub.inside();
    assert_eq!(inside.count(Method::GET, "train-00002"), 1);
    assert_eq!(inside.count(Method::GET, "train-00001"), 0, "it was there");
    assert_eq!(inside.count(Method::GET, "README.md"), 0, "so was this");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hub_has_not_or_has_otherwise_is_told() {
    if !interpreter_is_here() {
        return;
    }
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    fixture.yes(&hub).succeeded();
    let missing = "no such dataset or revision";
    for name in ["o/other", "o/n@v1"] {
        download(&fixture, &hub, name).failed(ExitCode::BadInput, missing);
    }
    for name in ["only-a-name", "hf://o/n", "hf://datasets/o/n@"] {
        let words = if name.contains(':') {
            "expected [hf://"
        } else {
            "OWNER/NAME"
        };
        download(&fixture, &hub, name).failed(ExitCode::BadInput, words);
    }
    let mut command = verify(fixture.root.path(), &hub, "o/n", &[]);
    finish(command.env_remove("HF_TOKEN")).failed(ExitCode::Endpoint, "set HF_TOKEN");
    let mut command = verify(fixture.root.path(), &hub, "o/n", &["--offline"]);
    finish(&mut command).failed(ExitCode::BadInput, "not on this machine");
    hub.inside().create("datasets/o/empty", true);
    download(&fixture, &hub, "o/empty").failed(ExitCode::BadInput, "no data/*.parquet");
    // Other bytes than the listing says, of a small file and of a large one.
    let card = hub.inside().files(REPO)["README.md"].clone();
    let mut other = String::from_utf8(card.to_vec()).unwrap();
    other.replace_range(5..6, "X");
    for (part, other, words) in [
        ("README.md", other, "other bytes than its listing"),
        ("train-00000", "PAR1".to_owned(), "but the listing says"),
    ] {
        // What arrived beside the file that was refused is kept, and would not be asked for again.
        let _ = std::fs::remove_dir_all(fixture.root.path().join("downloads"));
        hub.inside().faults.clear();
        hub.fault(Method::GET, part, 99, What::Status(200, vec![], other));
        download(&fixture, &hub, "o/n").failed(ExitCode::Endpoint, words);
    }
    hub.inside().faults.clear();
    download(&fixture, &hub, "o/n").succeeded();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_own_clients_read_what_was_sent() {
    let Some(python) = tokio::task::block_in_place(python) else {
        return;
    };
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    hub.inside().page = 1000;
    fixture.yes(&hub).succeeded();
    reads_back(&python, &hub, &fixture, &common::rows(60));
    let mut rows = common::rows(60);
    rows[59] = common::row(77);
    fixture.write(rows.clone());
    fixture.yes(&hub).succeeded();
    reads_back(&python, &hub, &fixture, &rows);
}

/// On the true Hub: `HF_TOKEN` that may write, and in `PYBENCH_HUB_REPO` a private dataset repository
/// (OWNER/NAME) to write into.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes to the true Hub: give HF_TOKEN and PYBENCH_HUB_REPO"]
async fn the_true_hub_takes_and_gives_back() {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(token), Some(repo)) = (given("HF_TOKEN"), given("PYBENCH_HUB_REPO")) else {
        pybench_testing::skip::unavailable("no HF_TOKEN and PYBENCH_HUB_REPO");
        return;
    };
    let fixture = DatasetFixture::new();
    let publish = || {
        let mut command = crate::support::pybench("publish");
        command
            .arg(fixture.dataset())
            .args(["--repo", &repo, "--yes"]);
        let done = Done::of(tokio::task::block_in_place(|| command.output().unwrap()));
        assert!(!done.out.contains(&token) && !done.err.contains(&token));
        done.succeeded()
    };
    publish();
    let again = publish();
    assert!(again.out.contains("nothing to upload"), "{}", again.out);
    let mut rows = common::rows(60);
    rows[59] = common::row(77);
    fixture.write(rows.clone());
    let changed = publish();
    assert!(
        changed.out.contains("uploaded 1 large files"),
        "{}",
        changed.out
    );
    if let Some(python) = tokio::task::block_in_place(python) {
        let endpoint = given("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let seen = read_back(
            &python,
            &endpoint,
            &token,
            &repo,
            &fixture.root.path().join("hf"),
        );
        assert_eq!(seen["rows"]["train"], Value::from(texts(&rows)));
    }
}
