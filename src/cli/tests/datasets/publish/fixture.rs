//! A dataset to publish, the program, and the Hub's own Python clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use axum::body::Bytes;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::split::SplitSettings;
use pybench_datasets::{Row, dataset};
use pybench_run::ExitCode;
use pybench_types::trajectory::Role;
use serde_json::Value;

use crate::publish::hub::{Hub, TOKEN};
use pybench_testing::rows as common;

pub const REPO: &str = "datasets/o/n";

/// A dataset of sixty rows in three shards.
pub struct DatasetFixture {
    pub root: tempfile::TempDir,
}

impl DatasetFixture {
    pub fn new() -> Self {
        let fixture = Self {
            root: tempfile::tempdir().unwrap(),
        };
        fixture.write(common::rows(60));
        fixture
    }

    pub fn dataset(&self) -> PathBuf {
        self.root.path().join("dataset")
    }

    pub fn write(&self, rows: Vec<Row>) {
        self.write_in(rows, 20, 10);
    }

    /// So many rows in a shard, and in a group of rows.
    pub fn write_in(&self, rows: Vec<Row>, shard_rows: usize, row_group_rows: usize) {
        let split = SplitSettings {
            test_fraction: 0.0,
            held_out_templates: 0,
            seed: 1,
            shares: None,
        };
        let shards = ShardSettings {
            shard_rows,
            row_group_rows,
            ..ShardSettings::default()
        };
        dataset::write(&self.dataset(), rows, &split, &shards, &common::about()).unwrap();
    }

    /// The program, knowing that Hub and nothing else of the network.
    pub fn publish(&self, hub: &Hub, what: &Path, more: &[&str]) -> Command {
        publish(self.root.path(), hub, what, more)
    }

    pub fn yes(&self, hub: &Hub) -> Done {
        self.run(hub, &["--repo", "o/n", "--yes"])
    }

    pub fn run(&self, hub: &Hub, more: &[&str]) -> Done {
        let mut command = self.publish(hub, &self.dataset(), more);
        finish(&mut command)
    }
}

pub fn publish(fixture: &Path, hub: &Hub, what: &Path, more: &[&str]) -> Command {
    let mut command = with_hub("publish", fixture, hub);
    command.arg(what).args(more);
    command
}

/// A command in the folder `fixture` that finds this Hub, and no token of the machine.
pub fn with_hub(name: &str, fixture: &Path, hub: &Hub) -> Command {
    let mut command = crate::support::pybench(name);
    command
        .current_dir(fixture)
        .env("HF_ENDPOINT", hub.endpoint())
        .env("HF_TOKEN", TOKEN)
        .env("HF_HOME", fixture.join("no-home"))
        .env_remove("HF_TOKEN_PATH")
        .env_remove("PYBENCH_ROOT")
        .env("NO_PROXY", "127.0.0.1");
    command
}

pub fn finish(command: &mut Command) -> Done {
    tokio::task::block_in_place(|| Done::of(command.output().unwrap()))
}

/// Starts a command, and waits until a request of it hangs.
pub async fn until_it_hangs(command: &mut Command, hub: &Hub) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    hub.hangs().await;
    child
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Done {
    pub fn of(output: Output) -> Self {
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
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn failed(self, code: ExitCode, words: &str) -> Self {
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
pub fn expected(folder: &Path) -> BTreeMap<String, Bytes> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("data")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        files.insert(format!("data/{name}"), std::fs::read(&path).unwrap().into());
    }
    files
}

#[track_caller]
pub fn holds(hub: &Hub, fixture: &DatasetFixture) {
    let files = hub.inside().files(REPO);
    for (path, bytes) in expected(&fixture.dataset()) {
        assert_eq!(files.get(&path), Some(&bytes), "{path}");
    }
    let shards = files.keys().filter(|path| path.starts_with("data/"));
    assert_eq!(shards.count(), expected(&fixture.dataset()).len());
    let card = std::str::from_utf8(&files["README.md"]).unwrap();
    assert!(card.contains("load_dataset(\"o/n\""), "{card}");
    assert!(card.contains("![turns](plots/turns.svg)"), "{card}");
    assert!(files.contains_key("plots/turns.svg"));
    let trace = std::str::from_utf8(&files["traces/session-000001.jsonl"]).unwrap();
    let header: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    assert_eq!(header["type"], "session");
}

pub const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// The interpreter of the small environment with `datasets`; `None`, and why, where it cannot be had.
pub fn python() -> Option<PathBuf> {
    pybench_testing::python::environment("datasets")
}

/// What the Hub's own clients read of a repository.
pub fn read_back(python: &Path, endpoint: &str, token: &str, repo: &str, scratch: &Path) -> Value {
    let mut command = Command::new(python);
    command
        .arg(format!("{TESTS}/datasets/hub_read.py"))
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

/// What the Hub's own clients read are these rows, the features that the card states, and files of the right sizes.
pub fn reads_back(python: &Path, hub: &Hub, fixture: &DatasetFixture, rows: &[Row]) {
    let scratch = fixture.root.path().join("hf");
    let seen = read_back(python, &hub.endpoint(), TOKEN, "o/n", &scratch);
    assert_eq!(
        seen["features"], true,
        "the card's features are the shards'"
    );
    assert_eq!(seen["rows"]["train"], Value::from(texts(rows)));
    let files = hub.inside().files(REPO);
    let sizes: BTreeMap<_, _> = files.iter().map(|(p, b)| (p.clone(), b.len())).collect();
    assert_eq!(seen["files"], serde_json::to_value(sizes).unwrap());
}

/// Rows as both sides have them: what is compared of each.
pub fn texts(rows: &[Row]) -> Vec<Value> {
    let row = |row: &Row| {
        let messages = row.messages.iter();
        let messages: Vec<_> = messages
            .map(|m| {
                let weight = (m.role == Role::Assistant).then_some(u32::from(m.trained));
                serde_json::json!({"role": m.role, "content": m.content, "weight": weight})
            })
            .collect();
        serde_json::json!({
            "trajectory_id": row.trajectory_id, "query": row.query, "messages": messages,
            "row": pybench_datasets::row_hashes::row_digest(row),
        })
    };
    rows.iter().map(row).collect()
}
