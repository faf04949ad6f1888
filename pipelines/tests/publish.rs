//! `pybench-publish` against a Hub on the loopback: what it sends, what it does not send again, and what it
//! leaves behind when something goes wrong, which is the old state or the new one.

#[path = "../../datasets/tests/common/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod common;
#[path = "support/hub.rs"]
mod hub;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use axum::body::Bytes;
use axum::http::Method;
use hub::{Entry, Hub, TOKEN, What, status};
use pybench::run::ExitCode;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::split::SplitSettings;
use pybench_datasets::{Row, dataset};
use serde_json::Value;
use support::place::{self, interpreter_is_here};

const REPO: &str = "datasets/o/n";

/// A dataset of sixty rows in three shards.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            root: tempfile::tempdir().unwrap(),
        };
        place.write(common::rows(60));
        place
    }

    fn dataset(&self) -> PathBuf {
        self.root.path().join("dataset")
    }

    fn write(&self, rows: Vec<Row>) {
        let split = SplitSettings {
            test_fraction: 0.0,
            held_out_templates: 0,
            seed: 1,
        };
        let shards = ShardSettings {
            shard_rows: 20,
            row_group_rows: 10,
            ..ShardSettings::default()
        };
        dataset::write(&self.dataset(), rows, &split, &shards, &common::about()).unwrap();
    }

    /// The program, knowing that Hub and nothing else of the network.
    fn publish(&self, hub: &Hub, what: &Path, more: &[&str]) -> Command {
        publish(self.root.path(), hub, what, more)
    }

    fn yes(&self, hub: &Hub) -> Done {
        self.run(hub, &["--repo", "o/n", "--yes"])
    }

    fn run(&self, hub: &Hub, more: &[&str]) -> Done {
        let mut command = self.publish(hub, &self.dataset(), more);
        finish(&mut command)
    }
}

fn publish(place: &Path, hub: &Hub, what: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-publish"));
    command
        .arg(what)
        .args(more)
        .current_dir(place)
        .env("HF_ENDPOINT", hub.endpoint())
        .env("HF_TOKEN", TOKEN)
        .env("HF_HOME", place.join("no-home"))
        .env_remove("HF_TOKEN_PATH")
        .env_remove("PYBENCH_ROOT")
        .env("NO_PROXY", "127.0.0.1");
    command
}

fn finish(command: &mut Command) -> Done {
    tokio::task::block_in_place(|| Done::of(command.output().unwrap()))
}

/// How a command ended.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    fn of(output: Output) -> Self {
        let done = Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert!(
            !done.out.contains(TOKEN) && !done.err.contains(TOKEN),
            "{done:?}"
        );
        done
    }

    #[track_caller]
    fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    fn failed(self, code: ExitCode, words: &str) -> Self {
        assert_eq!(self.code, Some(code as i32), "{}\n{}", self.out, self.err);
        assert!(
            self.err.contains(words),
            "{words} is missing in {}",
            self.err
        );
        self
    }
}

/// What the repository has to hold: the files of the folder, with its card in its place.
fn expected(folder: &Path) -> BTreeMap<String, Bytes> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("data")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        files.insert(format!("data/{name}"), std::fs::read(&path).unwrap().into());
    }
    files
}

#[track_caller]
fn holds(hub: &Hub, place: &Place) {
    let files = hub.inside().files(REPO);
    for (path, bytes) in expected(&place.dataset()) {
        assert_eq!(files.get(&path), Some(&bytes), "{path}");
    }
    let shards = files.keys().filter(|path| path.starts_with("data/"));
    assert_eq!(shards.count(), expected(&place.dataset()).len());
    let card = std::str::from_utf8(&files["README.md"]).unwrap();
    assert!(card.contains("load_dataset(\"o/n\""), "{card}");
    assert!(card.contains("![turns](plots/turns.svg)"), "{card}");
    assert!(files.contains_key("plots/turns.svg"));
    let trace = std::str::from_utf8(&files["traces/session-000001.jsonl"]).unwrap();
    let header: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    assert_eq!(header["type"], "session");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_nothing_is_written() {
    let (hub, place) = (Hub::start().await, Place::new());
    let done = place.run(&hub, &[]).succeeded();
    for words in [
        "train 60",
        "data/train-00002-of-00003.parquet",
        "license:",
        "dataset_info:",
        "Nothing was sent",
    ] {
        assert!(
            done.out.contains(words),
            "{words} is missing in {}",
            done.out
        );
    }
    assert_eq!(hub.inside().log.len(), 0, "nobody was asked");
    let done = place.run(&hub, &["--repo", "o/n"]).succeeded();
    assert!(
        done.out.contains("would be created, private"),
        "{}",
        done.out
    );
    let mut command = place.publish(&hub, &place.dataset(), &["--repo", "o/n"]);
    let done = finish(command.env_remove("HF_TOKEN")).succeeded();
    assert!(
        done.out.contains("cannot be looked at without a token"),
        "{}",
        done.out
    );
    let inside = hub.inside();
    assert!(inside.repos.is_empty());
    assert!(inside.log.iter().all(|(method, ..)| *method == Method::GET));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_not_sent_again() {
    let (hub, place) = (Hub::start().await, Place::new());
    let done = place.yes(&hub).succeeded();
    assert!(done.out.contains("read back"), "{}", done.out);
    holds(&hub, &place);
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
    let done = place.yes(&hub).succeeded();
    assert!(done.out.contains("nothing to send"), "{}", done.out);
    {
        let mut inside = hub.inside();
        assert!(inside.log.iter().all(|(method, ..)| *method == Method::GET));
        assert_eq!(inside.repos[REPO].commits.len(), 2);
        // A file of the owner's.
        inside.commit(REPO, "notes.md", "mine");
        inside.log.clear();
    }

    let before = expected(&place.dataset());
    let mut rows = common::rows(60);
    rows[59] = common::row(77);
    place.write(rows);
    let after = expected(&place.dataset());
    let changed: Vec<&String> = after
        .keys()
        .filter(|path| before[*path] != after[*path])
        .collect();
    assert_eq!(changed, ["data/train-00002-of-00003.parquet"]);
    let dry = place.run(&hub, &["--repo", "o/n"]).succeeded();
    let send = dry.out.lines().filter(|line| line.starts_with("  send"));
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
    place.yes(&hub).succeeded();
    holds(&hub, &place);
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

    place.write(common::rows(20));
    place.yes(&hub).succeeded();
    holds(&hub, &place);
    assert!(hub.inside().files(REPO).contains_key("notes.md"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_says_what_it_is_and_leaves_nothing_half_done() {
    let place = Place::new();
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
        place.yes(&hub).failed(code, words);
        {
            let mut inside = hub.inside();
            let commits = inside.repos.get(REPO).map_or(1, |repo| repo.commits.len());
            assert_eq!(commits, 1, "{part} {words}: nothing is visible");
            inside.faults.clear();
        }
        place.yes(&hub).succeeded();
        holds(&hub, &place);
        assert_eq!(hub.inside().repos[REPO].commits.len(), 2, "{part} {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_tried_again() {
    let place = Place::new();
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
        place.yes(&hub).succeeded();
        holds(&hub, &place);
        let inside = hub.inside();
        assert_eq!(inside.faults[0].times, 0, "{told}: it happened");
        assert_eq!(inside.repos[REPO].commits.len(), 2, "{told}: one commit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_somebody_else_is_not_run_over() {
    let (hub, place) = (Hub::start().await, Place::new());
    hub.fault(Method::POST, "/commit/", 1, What::Overtake);
    place.yes(&hub).failed(ExitCode::Conflict, "somebody else");
    {
        let inside = hub.inside();
        let files = inside.files(REPO);
        assert_eq!(files.len(), 2, "theirs and the Hub's: {:?}", files.keys());
    }
    hub.inside().log.clear();
    place.yes(&hub).succeeded();
    holds(&hub, &place);
    assert_eq!(
        hub.inside().count(Method::PUT, "/lfs/"),
        0,
        "the large files were there"
    );
    assert!(hub.inside().files(REPO).contains_key("theirs.md"));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_commit_it_ends_in_the_same_state() {
    let (hub, place) = (Hub::start().await, Place::new());
    hub.fault(Method::POST, "/commit/", 1, What::Hang);
    let mut command = place.publish(&hub, &place.dataset(), &["--repo", "o/n", "--yes"]);
    let mut child: Child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    hub.hangs().await;
    child.kill().unwrap();
    child.wait().unwrap();
    {
        let mut inside = hub.inside();
        assert_eq!(inside.repos[REPO].commits.len(), 1, "nothing is visible");
        assert_eq!(inside.objects.len(), 3, "the shards are there");
        inside.log.clear();
    }
    place.yes(&hub).succeeded();
    assert_eq!(
        hub.inside().count(Method::PUT, "/lfs/"),
        0,
        "no shard is sent twice"
    );
    holds(&hub, &place);
    let undisturbed = Hub::start().await;
    place.yes(&undisturbed).succeeded();
    let (disturbed, undisturbed) = (hub.inside().files(REPO), undisturbed.inside().files(REPO));
    assert_eq!(disturbed, undisturbed);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_among_the_large_files_it_goes_on_after_them() {
    let (hub, place) = (Hub::start().await, Place::new());
    // One of three; the others go at the same time.
    hub.fault(Method::PUT, "/lfs/", 1, What::Hang);
    let mut command = place.publish(&hub, &place.dataset(), &["--repo", "o/n", "--yes"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    hub.hangs().await;
    while hub.inside().objects.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    hub.inside().log.clear();
    place.yes(&hub).succeeded();
    assert_eq!(
        hub.inside().count(Method::PUT, "/lfs/"),
        1,
        "only the one that was missing"
    );
    holds(&hub, &place);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_go_in_pieces_where_the_hub_wants_it() {
    let (hub, place) = (Hub::start().await, Place::new());
    hub.inside().piece = Some(1000);
    hub.fault(Method::PUT, "/lfs/", 2, What::CutAfter(10));
    place.yes(&hub).succeeded();
    holds(&hub, &place);
    let inside = hub.inside();
    let pieces: usize = expected(&place.dataset())
        .values()
        .map(|bytes| bytes.len().div_ceil(1000))
        .sum();
    assert_eq!(inside.count(Method::PUT, "/lfs/"), pieces + 2);
    assert_eq!(inside.count(Method::POST, "/complete"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_private_becomes_public() {
    let (hub, place) = (Hub::start().await, Place::new());
    hub.inside().create(REPO, false);
    place.yes(&hub).failed(ExitCode::BadInput, "--public");
    assert_eq!(hub.inside().repos[REPO].commits.len(), 1);
    assert_eq!(hub.inside().count(Method::PUT, ""), 0);
    place
        .run(&hub, &["--repo", "o/n", "--yes", "--public"])
        .succeeded();
    holds(&hub, &place);
    // A Hub that does not listen.
    let deaf = Hub::start().await;
    deaf.inside().deaf = true;
    place
        .yes(&deaf)
        .failed(ExitCode::Endpoint, "was to be private");
    assert_eq!(deaf.inside().repos[REPO].commits.len(), 1);
    let open = Hub::start().await;
    place
        .run(&open, &["--repo", "o/n", "--yes", "--public"])
        .succeeded();
    assert!(!open.inside().repos[REPO].private);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_found_and_never_told() {
    let (hub, place) = (Hub::start().await, Place::new());
    let yes = ["--repo", "o/n", "--yes"];
    let mut command = place.publish(&hub, &place.dataset(), &yes);
    finish(command.env_remove("HF_TOKEN")).failed(ExitCode::Endpoint, "set HF_TOKEN");
    let mut command = place.publish(&hub, &place.dataset(), &yes);
    finish(command.env("HF_TOKEN", "hf_wrong")).failed(ExitCode::Endpoint, "(401)");
    // A server that says what it was told.
    hub.fault(
        Method::POST,
        "/repos/create",
        1,
        status(403, &format!("you said {TOKEN}")),
    );
    place
        .yes(&hub)
        .failed(ExitCode::Endpoint, "you said [secret]");
    let home = place.root.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("token"), format!("{TOKEN}\n")).unwrap();
    let mut command = place.publish(&hub, &place.dataset(), &yes);
    finish(command.env_remove("HF_TOKEN").env("HF_HOME", &home)).succeeded();
    holds(&hub, &place);
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

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_its_checks_does_not_leave() {
    let hub = Hub::start().await;
    let refused = |change: &dyn Fn(&Path), words: &str| {
        let place = Place::new();
        change(&place.dataset());
        place.yes(&hub).failed(ExitCode::BadInput, words);
    };
    let shard = |folder: &Path| folder.join("data/train-00001-of-00003.parquet");
    refused(
        &|folder| std::fs::remove_file(shard(folder)).unwrap(),
        "are missing",
    );
    refused(
        &|folder| std::fs::remove_dir_all(folder.join("data")).unwrap(),
        "neither a dataset",
    );
    refused(
        &|folder| std::fs::remove_file(folder.join("README.md")).unwrap(),
        "no README.md",
    );
    refused(
        &|folder| {
            let (from, to) = (
                folder.join("data/train-00000-of-00003.parquet"),
                shard(folder),
            );
            std::fs::copy(from, to).unwrap();
        },
        "card of other rows",
    );
    refused(
        &|folder| {
            let bytes = std::fs::read(shard(folder)).unwrap();
            std::fs::write(shard(folder), &bytes[..bytes.len() / 2]).unwrap();
        },
        "train-00001-of-00003.parquet",
    );
    refused(
        &|folder| {
            let away = folder.join("away");
            std::fs::rename(shard(folder), &away).unwrap();
            std::os::unix::fs::symlink(&away, shard(folder)).unwrap();
        },
        "a link?",
    );
    refused(
        &|folder| {
            let card = folder.join("README.md");
            let text = std::fs::read_to_string(&card).unwrap();
            let secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789";
            std::fs::write(card, text + "\nHF_TOKEN=" + secret + "\n").unwrap();
        },
        "README.md holds",
    );
    refused(
        &|folder| std::fs::write(folder.join("proof.json"), "{\"digest\": \"x\"}").unwrap(),
        "proof.json is of other rows",
    );
    refused(
        &|folder| {
            let files = folder.join("files/ab");
            std::fs::create_dir_all(&files).unwrap();
            std::fs::write(files.join("ab".repeat(32)), "other").unwrap();
        },
        "has other bytes than its name says",
    );
    assert_eq!(hub.inside().log.len(), 0, "nobody was asked");
    let place = Place::new();
    let wrong = place.run(&hub, &["--repo", "only-a-name", "--yes"]);
    wrong.failed(ExitCode::BadInput, "OWNER/NAME");
    place
        .run(&hub, &["--yes"])
        .failed(ExitCode::Usage, "--repo");
}

/// A row changed in its shard, its own hashes made to fit, the card left as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_tampered_row_does_not_leave() {
    use pybench_datasets::{read, shards};
    let (hub, place) = (Hub::start().await, Place::new());
    let rows = read::dataset(&place.dataset()).unwrap();
    let mut rows: Vec<Row> = rows.map(|row| row.unwrap().1).collect();
    rows[3].messages[1]
        .content
        .push_str(" mail me: ann.smith@corp-internal.com");
    let settings = ShardSettings {
        shard_rows: 20,
        row_group_rows: 10,
        ..ShardSettings::default()
    };
    for shard in read::shards(&place.dataset()).unwrap() {
        std::fs::remove_file(shard.path).unwrap();
    }
    shards::write(&place.dataset().join("data"), "train", &rows, &settings).unwrap();
    let done = place
        .yes(&hub)
        .failed(ExitCode::BadInput, "card of other rows");
    assert!(done.err.contains("train row 4 holds"), "{}", done.err);
    assert!(!done.err.contains("ann.smith"), "{}", done.err);
}

/// A model of two tensors.
fn model(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let header = r#"{"a": {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}}"#;
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend_from_slice(header.as_bytes());
    weights.resize(weights.len() + 400, 0);
    std::fs::write(folder.join("model.safetensors"), weights).unwrap();
    for (name, text) in [
        (
            "config.json",
            r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#,
        ),
        (
            "tokenizer.json",
            r#"{"version": "1.0", "model": {"type": "BPE"}}"#,
        ),
        (
            "chat_template.jinja",
            "{% for m in messages %}{{ m.content }}{% endfor %}",
        ),
        ("optimizer.bin", "not for others"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_goes_with_its_lineage() {
    let (hub, place) = (Hub::start().await, Place::new());
    let run = place.root.path().join("run");
    model(&run.join("model"));
    let results = r#"{"recipe": "abc", "steps": 16, "before": {"unseen_files": 2.0}, "after": {"unseen_files": 1.5},
        "mixture": [{"source": "/home/ann.smith/rows", "records": 3, "tokens": 5, "trained": 2, "weight": 1.0, "share": 1.0}]}"#;
    std::fs::write(run.join("results.json"), results).unwrap();
    std::fs::write(run.join("loss.svg"), "<svg/>").unwrap();
    let report = place.root.path().join("report");
    std::fs::create_dir(&report).unwrap();
    std::fs::write(report.join("report.md"), "# Strict\n\n50 %\n").unwrap();
    std::fs::write(report.join("report.json"), "{}").unwrap();
    std::fs::write(place.root.path().join("r.toml"), "name = 'x'\n").unwrap();
    let all = [
        "--repo",
        "o/m",
        "--yes",
        "--licence",
        "mit",
        "--base-model",
        "b/m",
        "--recipe",
        "r.toml",
        "--report",
        "report",
    ];
    let publish = || finish(&mut place.publish(&hub, &run, &all));
    let without = ["--repo", "o/m", "--yes"];
    finish(&mut place.publish(&hub, &run, &without)).failed(ExitCode::BadInput, "--licence");
    publish().succeeded();
    let files = hub.inside().files("o/m");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            ".gitattributes",
            "README.md",
            "chat_template.jinja",
            "config.json",
            "evaluation/report.json",
            "evaluation/report.md",
            "model.safetensors",
            "tokenizer.json",
            "training/loss.svg",
            "training/recipe.toml",
            "training/results.json",
        ]
    );
    let card = std::str::from_utf8(&files["README.md"]).unwrap();
    for words in [
        "license: \"mit\"",
        "base_model:\n- \"b/m\"",
        "name = 'x'",
        "## Evaluation",
        "### Strict",
        "1.5000",
    ] {
        assert!(card.contains(words), "{words} is missing in {card}");
    }
    assert!(!card.contains("ann.smith"), "{card}");
    assert_eq!(
        files["model.safetensors"],
        std::fs::read(run.join("model/model.safetensors")).unwrap()
    );
    hub.inside().log.clear();
    let again = publish().succeeded();
    assert!(again.out.contains("nothing to send"), "{}", again.out);
    assert_eq!(hub.inside().count(Method::POST, ""), 0);
    let path = run.join("model/model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    publish().failed(ExitCode::BadInput, "its header says 400");
}

/// Six tasks, some on a picture.
const RECIPE: &str = "name = 't'\nseed = 7\nteacher = { kind = 'expert' }\n\n\
    [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicence = 'CC0-1.0'\n\n\
    [query]\ntasks = 6\ntemplate_share = 0.5\nkeywords = ['rotate image', 'derivative', 'integral']\n\n\
    [shard]\nheld_out_templates = 0\ntest_fraction = 0.0\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_comes_back_is_what_it_was() {
    if !interpreter_is_here() {
        return;
    }
    let hub = Hub::start().await;
    let run = place::Place::bare(RECIPE);
    finish(&mut run.program(env!("CARGO_BIN_EXE_pybench-synthesize"), &[])).succeeded();
    let root = tempfile::tempdir().unwrap();
    let verify = |dataset: &Path, state: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-verify"));
        command.arg(dataset).args(["--offline", "--state"]);
        command
            .arg(root.path().join(state))
            .current_dir(root.path());
        let done = finish(command.env_remove("PYBENCH_ROOT")).succeeded();
        assert!(
            done.out.contains("100 % of rows re-executed identically"),
            "{}",
            done.out
        );
    };
    verify(&run.folder(), "before");
    let yes = ["--repo", "o/n", "--yes"];
    finish(&mut publish(root.path(), &hub, &run.folder(), &yes)).succeeded();
    let files = hub.inside().files(REPO);
    let card = std::str::from_utf8(&files["README.md"]).unwrap();
    assert!(
        card.contains("100 % of rows re-executed identically"),
        "{card}"
    );
    assert!(files.contains_key("proof.json"));
    assert!(
        files.keys().any(|path| path.starts_with("files/")),
        "inputs go with the rows"
    );
    // On another machine: nothing but what was published.
    let back = root.path().join("back");
    for (path, bytes) in files {
        let path = back.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    drop(run);
    verify(&back, "after");
}

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// The interpreter of the small environment with `datasets`; `None`, and why, where it cannot be had.
fn python() -> Option<PathBuf> {
    let setup = format!("{TESTS}/../../datasets/tests/setup");
    let output = Command::new(setup).output().expect("sh runs");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        eprintln!("SKIPPED: the Python package `datasets` cannot be installed here: {why}");
        return None;
    }
    let path = String::from_utf8(output.stdout).expect("a path");
    Some(path.trim().into())
}

/// What the Hub's own clients read of a repository.
fn read_back(python: &Path, endpoint: &str, token: &str, repo: &str, scratch: &Path) -> Value {
    let mut command = Command::new(python);
    command
        .arg(format!("{TESTS}/hub_read.py"))
        .arg(repo)
        .env("HF_ENDPOINT", endpoint)
        .env("HF_TOKEN", token)
        .env("HF_HOME", scratch)
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .env("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        .env("NO_PROXY", "127.0.0.1");
    let output = tokio::task::block_in_place(|| command.output().unwrap());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Rows as both sides have them: what is compared of each.
fn texts(rows: &[Row]) -> Vec<Value> {
    let row = |row: &Row| {
        let messages = row.messages.iter();
        let messages: Vec<_> = messages
            .map(|m| serde_json::json!({"role": m.role, "content": m.content}))
            .collect();
        serde_json::json!({
            "trajectory_id": row.trajectory_id, "query": row.query, "messages": messages,
            "row": pybench_datasets::proof::row_digest(row),
        })
    };
    rows.iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_own_clients_read_what_was_sent() {
    let Some(python) = tokio::task::block_in_place(python) else {
        return;
    };
    let (hub, place) = (Hub::start().await, Place::new());
    hub.inside().page = 1000;
    place.yes(&hub).succeeded();
    let scratch = place.root.path().join("hf");
    let check = |rows: Vec<Row>| {
        let seen = read_back(&python, &hub.endpoint(), TOKEN, "o/n", &scratch);
        assert_eq!(
            seen["features"], true,
            "the card's features are the shards'"
        );
        assert_eq!(seen["rows"]["train"], Value::from(texts(&rows)));
        let files = hub.inside().files(REPO);
        let sizes: BTreeMap<_, _> = files.iter().map(|(p, b)| (p.clone(), b.len())).collect();
        assert_eq!(seen["files"], serde_json::to_value(sizes).unwrap());
    };
    check(common::rows(60));
    let mut rows = common::rows(60);
    rows[59] = common::row(77);
    place.write(rows.clone());
    place.yes(&hub).succeeded();
    check(rows);
}

/// On the true Hub: `HF_TOKEN` that may write, and in `PYBENCH_HUB_REPO` a private dataset repository
/// (OWNER/NAME) to write into.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes to the true Hub: give HF_TOKEN and PYBENCH_HUB_REPO"]
async fn the_true_hub_takes_and_gives_back() {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(token), Some(repo)) = (given("HF_TOKEN"), given("PYBENCH_HUB_REPO")) else {
        eprintln!("SKIPPED: no HF_TOKEN and PYBENCH_HUB_REPO");
        return;
    };
    let place = Place::new();
    let publish = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-publish"));
        command
            .arg(place.dataset())
            .args(["--repo", &repo, "--yes"]);
        let done = Done::of(tokio::task::block_in_place(|| command.output().unwrap()));
        assert!(!done.out.contains(&token) && !done.err.contains(&token));
        done.succeeded()
    };
    publish();
    let again = publish();
    assert!(again.out.contains("nothing to send"), "{}", again.out);
    let mut rows = common::rows(60);
    rows[59] = common::row(77);
    place.write(rows.clone());
    let changed = publish();
    assert!(
        changed.out.contains("sent 1 large files"),
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
            &place.root.path().join("hf"),
        );
        assert_eq!(seen["rows"]["train"], Value::from(texts(&rows)));
    }
}
