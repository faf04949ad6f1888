//! What fails its checks does not leave.

use std::path::Path;

use pybench_datasets::Row;
use pybench_datasets::shards::ShardSettings;
use pybench_run::ExitCode;
use pybench_types::id::Digest;

use crate::publish::fixture::{DatasetFixture, REPO};
use crate::publish::hub::Hub;

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_benchmark_leave_only_when_they_are_allowed() {
    let Some(queries) = pybench_testing::benchmark::pybench_queries() else {
        return;
    };
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let mut rows = pybench_testing::rows::rows(60);
    rows[7] = pybench_testing::rows::row_with_query(7, format!("Hello! {}", queries[0]));
    let name = rows[7].trajectory_id.short().to_owned();
    fixture.write(rows);
    let expected = "1 of 60 rows match tasks or files of benchmarks (PyBench 1)";
    let sent = fixture.yes(&hub).succeeded();
    for words in [
        format!("{expected} and are left out").as_str(),
        "--allow-contaminated",
        name.as_str(),
    ] {
        assert!(sent.err.contains(words), "{words}: {}", sent.err);
    }
    let first = hub.inside().files(REPO);
    let card = std::str::from_utf8(&first["README.md"]).unwrap();
    for words in [
        "1 of them match tasks or files of a benchmark (PyBench 1) and were left out.",
        format!("| `{name}` | pybench/").as_str(),
        "| rows | 59 |",
        "groups (connected components) of rows",
    ] {
        assert!(card.contains(words), "{words}: {card}");
    }
    let is_shard = |path: &&String| path.starts_with("data/");
    assert_eq!(first.keys().filter(is_shard).count(), 1, "59 rows");
    fixture.yes(&hub).succeeded();
    assert_eq!(hub.inside().files(REPO), first, "the same rows and card");

    let allowed = fixture.run(&hub, &["--repo", "o/n", "--allow-contaminated"]);
    let text = allowed.succeeded().out;
    for words in [
        &format!("warning: {expected}"),
        &format!("**Warning:** {expected}"),
        "They were kept on purpose (`--allow-contaminated`).",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(text.matches("\n## Benchmarks\n").count(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_its_checks_does_not_leave() {
    let hub = Hub::start().await;
    let refused = |change: &dyn Fn(&Path), words: &str| {
        let fixture = DatasetFixture::new();
        change(&fixture.dataset());
        fixture.yes(&hub).failed(ExitCode::BadInput, words);
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
        "not a regular file",
    );
    refused(
        &|folder| {
            let card = folder.join("README.md");
            let text = std::fs::read_to_string(&card).unwrap();
            let secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789";
            std::fs::write(card, text + "\nHF_TOKEN=" + secret + "\n").unwrap();
        },
        "README.md contains",
    );
    refused(
        &|folder| std::fs::write(folder.join("proof.json"), "{\"digest\": \"x\"}").unwrap(),
        "proof.json is of other rows",
    );
    refused(
        &|folder| {
            let text = r#"{"differences": ["jane.doe@corp-internal.com"]}"#;
            std::fs::write(folder.join("proof.json"), text).unwrap();
        },
        "proof.json contains secrets or personal data: [MAIL]",
    );
    let input = |folder: &Path, bytes: &[u8]| {
        let id = Digest::of_bytes(bytes).to_string();
        let files = folder.join("files").join(&id[..2]);
        std::fs::create_dir_all(&files).unwrap();
        std::fs::write(files.join(id), bytes).unwrap();
    };
    refused(
        &|folder| input(folder, b"caf\xe9,jane.doe@corp-internal.com\n"),
        "contains secrets or personal data: [MAIL]",
    );
    refused(
        &|folder| input(folder, b"\xfd7zXZ\0\0\0"),
        "cannot be searched for secrets",
    );
    refused(
        &|folder| {
            let files = folder.join("files/ab");
            std::fs::create_dir_all(&files).unwrap();
            std::fs::write(files.join("ab".repeat(32)), "other").unwrap();
        },
        "contents do not match the name",
    );
    assert_eq!(hub.inside().log.len(), 0, "nobody was asked");
    let fixture = DatasetFixture::new();
    let wrong = fixture.run(&hub, &["--repo", "only-a-name", "--yes"]);
    wrong.failed(ExitCode::BadInput, "OWNER/NAME");
    fixture
        .run(&hub, &["--yes"])
        .failed(ExitCode::Usage, "--repo");
}

/// A row changed in its shard, its own hashes made to fit, the card left as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_tampered_row_does_not_leave() {
    use pybench_datasets::{read, shards};
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let rows = read::dataset(&fixture.dataset()).unwrap();
    let mut rows: Vec<Row> = rows.map(|row| row.unwrap().1).collect();
    rows[3].messages[1]
        .content
        .push_str(" mail me: ann.smith@corp-internal.com");
    let settings = ShardSettings {
        shard_rows: 20,
        row_group_rows: 10,
        ..ShardSettings::default()
    };
    for shard in read::shards(&fixture.dataset()).unwrap() {
        std::fs::remove_file(shard.path).unwrap();
    }
    shards::write(&fixture.dataset().join("data"), "train", &rows, &settings).unwrap();
    let done = fixture
        .yes(&hub)
        .failed(ExitCode::BadInput, "card of other rows");
    assert!(done.err.contains("train row 4 contains"), "{}", done.err);
    assert!(!done.err.contains("ann.smith"), "{}", done.err);
}
