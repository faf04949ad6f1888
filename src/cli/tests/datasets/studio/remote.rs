//! Datasets of the Hub and of S3.

use std::path::Path;

use pybench_run::{BucketStore, ObjectServer, Store as _};
use serde_json::json;

use super::{Studio, one_row};
use crate::publish::fixture::DatasetFixture;
use crate::publish::hub::{Hub, TOKEN};

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_of_the_hub_opens() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    fixture.yes(&hub).succeeded();
    let (endpoint, home) = (hub.endpoint(), fixture.root.path().join("no-home"));
    let variables = [
        ("HF_ENDPOINT", &*endpoint),
        ("HF_TOKEN", TOKEN),
        ("HF_HOME", home.to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    let studio = Studio::start_with(&[Path::new("hf://datasets/o/n")], &variables).await;
    assert!(studio.link.contains("/data/n?token="), "{}", studio.link);
    let list = studio.json("/api/data").await;
    assert_eq!(
        json!([list[0]["name"], list[0]["kind"]]),
        json!(["n", "dataset"])
    );
    assert_eq!(studio.json("/api/data/n").await["total"], 60);
    let view = studio.json("/api/data/n/1").await;
    assert!(
        view["location"].as_str().unwrap().contains(".parquet:1"),
        "{view}"
    );
}

/// Environment variables by which Amazon's clients find this server.
fn variables(server: &ObjectServer) -> [(&'static str, String); 6] {
    let secret = std::fs::read_to_string(server.secret_key_file.as_ref().unwrap()).unwrap();
    [
        ("AWS_ENDPOINT_URL", server.endpoint.clone().unwrap()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_DEFAULT_REGION", server.region.clone().unwrap()),
        ("AWS_ACCESS_KEY_ID", server.access_key.clone().unwrap()),
        ("AWS_SECRET_ACCESS_KEY", secret.trim().to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_of_s3_opens() {
    let server = tokio::task::spawn_blocking(pybench_testing::s3::server);
    let Some(server) = server.await.unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let rows = one_row(folder.path());
    let store = BucketStore::new(&server, "studio").unwrap();
    for key in ["d/data/train.jsonl", "d/notes.txt", "rows.jsonl"] {
        store.put(key, &rows).unwrap();
    }
    let variables = variables(&server);
    let variables = variables.each_ref().map(|(name, value)| (*name, &**value));
    for (path, name) in [("d", "d"), ("rows.jsonl", "rows.jsonl")] {
        let address = format!("s3://{}/{}/studio/{path}", server.bucket, server.prefix);
        let studio = Studio::start_with(&[Path::new(&address)], &variables).await;
        assert!(
            studio.link.contains(&format!("/data/{name}?token=")),
            "{}",
            studio.link
        );
        let page = studio.json(&format!("/api/data/{name}")).await;
        assert_eq!(
            json!([page["total"], page["rows"][0]["query"]]),
            json!([1, "Count."])
        );
        let fetched = studio._cache.path().join("buckets");
        let copied = |name: &str| {
            let mut entries = fetched.read_dir().unwrap().flatten();
            entries.any(|entry| entry.path().join(name).exists())
        };
        assert!(copied(path) && !copied("d/notes.txt"));
    }
    // What is not there is said before a browser opens.
    let mut command = crate::support::pybench("studio");
    command.arg(format!("s3://{}/nothing/here", server.bucket));
    command.envs(variables).env("PYBENCH_CACHE", folder.path());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("there is neither such a file"),
        "{stderr}"
    );
}
