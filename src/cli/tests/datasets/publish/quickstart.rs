//! The whole dataset of `./justw synthesize`, where this project has one: too long to make for a test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use axum::http::Method;
use pybench_datasets::row_hashes::{self, DatasetDigest};
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::{Row, card, read, shards};
use serde_json::Value;

use crate::publish::fixture::{REPO, finish, publish, python, read_back, texts, until_it_hangs};
use crate::publish::hub::{Hub, TOKEN, What};

type Splits = BTreeMap<String, Vec<Row>>;

/// The run's dataset; `None`, and why, where there is none of this version.
fn dataset() -> Option<PathBuf> {
    let named = std::env::var_os("PYBENCH_QUICKSTART").map(PathBuf::from);
    let here = Path::new(pybench_testing::ROOT).join("data/runs/quickstart");
    let folder = named.unwrap_or(here).join("dataset");
    let rows = read::dataset(&folder).and_then(|mut rows| rows.next().transpose());
    let why = match rows {
        Ok(Some((_, row))) if row_hashes::problems(&row).is_empty() => return Some(folder),
        Ok(_) => "its rows carry no hashes".to_owned(),
        Err(error) => error.to_string(),
    };
    pybench_testing::skip::unavailable(format_args!(
        "no dataset of `./justw synthesize` of this version, here or in $PYBENCH_QUICKSTART: {why}"
    ));
    None
}

fn splits(folder: &Path) -> Splits {
    let mut splits = Splits::new();
    for row in read::dataset(folder).unwrap() {
        let (split, row) = row.unwrap();
        splits.entry(split).or_default().push(row);
    }
    splits
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(&path, &to).unwrap()),
        }
    }
}

/// The rows of the test split in another order: one shard is another, every row is what it was.
fn turn_round(folder: &Path) -> PathBuf {
    let mut all = splits(folder);
    all.get_mut("test").unwrap().reverse();
    let old: Vec<PathBuf> = read::shards(folder)
        .unwrap()
        .into_iter()
        .map(|s| s.path)
        .collect();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let of_test: Vec<_> = old
        .iter()
        .filter(|path| name(path).starts_with("test-"))
        .collect();
    assert_eq!(of_test.len(), 1, "{of_test:?}");
    std::fs::remove_file(of_test[0]).unwrap();
    let data = folder.join("data");
    shards::write(&data, "test", &all["test"], &ShardSettings::default()).unwrap();
    let mut root = DatasetDigest::default();
    for split in ["train", "test"] {
        for row in &all[split] {
            root.add(split, &row_hashes::row_digest(row));
        }
    }
    let path = folder.join("README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let named = card::digest(&text).unwrap().to_owned();
    std::fs::write(&path, text.replace(&named, root.digest().as_str())).unwrap();
    let _ = std::fs::remove_file(folder.join("proof.json")); // of the order before
    of_test[0].clone()
}

/// What `load_dataset` gets.
fn same_rows(python: Option<&Path>, hub: &Hub, rows: &Splits, scratch: &Path) {
    let Some(python) = python else { return };
    let seen = read_back(python, &hub.endpoint(), TOKEN, "o/n", scratch);
    for (split, rows) in rows {
        assert_eq!(seen["rows"][split], Value::from(texts(rows)), "{split}");
    }
    let count = seen["rows"].as_object().unwrap().len();
    assert_eq!((count, &seen["features"]), (rows.len(), &Value::from(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_dataset_of_the_quickstart_goes_and_comes_back() {
    let Some(made) = dataset() else { return };
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("dataset");
    copy(&made, &folder);
    let python = tokio::task::block_in_place(python);
    let yes = ["--repo", "o/n", "--yes"];
    let scratch = root.path().join("hf");

    // Killed in the middle and repeated, it ends where it would have.
    let hub = Hub::start().await;
    hub.fault(Method::PUT, "/lfs/", 1, What::Hang);
    let mut command = publish(root.path(), &hub, &folder, &yes);
    let mut child = until_it_hangs(&mut command, &hub).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        hub.inside().repos[REPO].commits.len(),
        1,
        "nothing is visible"
    );
    finish(&mut publish(root.path(), &hub, &folder, &yes)).succeeded();
    let undisturbed = Hub::start().await;
    hub.inside().page = 1000;
    finish(&mut publish(root.path(), &undisturbed, &folder, &yes)).succeeded();
    let (one, other) = (hub.inside().files(REPO), undisturbed.inside().files(REPO));
    assert_eq!(one, other);
    let rows = splits(&folder);
    same_rows(python.as_deref(), &hub, &rows, &scratch);
    let count: usize = rows.values().map(Vec::len).sum();
    println!("{count} rows in {} files", one.len());

    // One shard changed: that goes, and nothing else that is large.
    let changed = turn_round(&folder);
    hub.inside().log.clear();
    finish(&mut publish(root.path(), &hub, &folder, &yes)).succeeded();
    {
        let inside = hub.inside();
        assert_eq!(inside.count(Method::PUT, "/lfs/"), 1);
        let size = std::fs::metadata(&changed).unwrap().len() as usize;
        assert_eq!(inside.bytes(Method::PUT, "/lfs/"), size);
        let (before, after) = (one, inside.files(REPO));
        let differs = |path: &&String| before.get(*path) != after.get(*path);
        let others = after.keys().filter(differs).map(String::as_str);
        let others: Vec<&str> = others.filter(|path| !path.starts_with("data/")).collect();
        let drawn = |path: &&str| *path == "README.md" || path.starts_with("plots/");
        assert!(others.iter().all(drawn), "{others:?}");
    }
    same_rows(python.as_deref(), &hub, &splits(&folder), &scratch);
}
