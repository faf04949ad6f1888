//! Dataset repositories of the Hub, with a local server in its place.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::Project;
use crate::sources::{code_act, recipe_of};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Answers the four questions that a download asks. Counts the bodies of files that it gave.
struct Hub {
    address: String,
    given: Arc<AtomicUsize>,
}

impl Hub {
    fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&given);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (files, given) = (files.clone(), Arc::clone(&counted));
                std::thread::spawn(move || answer(stream.unwrap(), &files, &given));
            }
        });
        Self { address, given }
    }
}

fn answer(mut stream: TcpStream, files: &BTreeMap<String, Vec<u8>>, given: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = (&mut reader).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("").replace("%2F", "/");
    let json = |value: serde_json::Value| (200, "application/json", value.to_string().into_bytes());
    let resolve = format!("/datasets/someone/acts/resolve/{COMMIT}/");
    let (status, kind, body) = if path.starts_with("/api/datasets/someone/acts/tree/") {
        let entry = |(path, bytes): (&String, &Vec<u8>)| serde_json::json!({"type": "file", "oid": "0".repeat(40), "size": bytes.len(), "path": path});
        json(files.iter().map(entry).collect())
    } else if path.starts_with("/api/datasets/someone/acts") {
        json(serde_json::json!({"id": "someone/acts", "sha": COMMIT}))
    } else if let Some(bytes) = path.strip_prefix(&resolve).and_then(|name| files.get(name)) {
        given.fetch_add(usize::from(method == "GET"), Ordering::SeqCst);
        (200, "application/octet-stream", bytes.clone())
    } else {
        (404, "text/plain", b"no".to_vec())
    };
    let etag = blake3_of(&body);
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    if method != "HEAD" {
        let _ = stream.write_all(&body);
    }
}

fn blake3_of(bytes: &[u8]) -> String {
    // Any name of a content will do as its tag.
    let sum = bytes.iter().fold(7u64, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    format!("{sum:016x}")
}

fn dry_run(project: &Project, endpoint: &str, more: &[(&str, &str)]) -> (bool, String) {
    let output = project
        .command("out")
        .arg("--dry-run")
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HOME", project.path("hub"))
        .env_remove("HF_TOKEN")
        .env("NO_PROXY", "127.0.0.1")
        .envs(more.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), text)
}

fn recipe(project: &Project) {
    let text = format!(
        "name='a'\nmodel='{}'\n[train]\nmax_seq_len=256\nmax_steps=1\n[[data]]\nhub='someone/acts'\nprefix='data/codeact-'\n",
        project.path("start").display()
    );
    recipe_of(&project.path("recipe.toml"), &text);
}

#[test]
fn a_repository_is_fetched_once_and_works_without_network() {
    let project = Project::new("max_steps=1");
    let path = project.path("a.parquet");
    code_act(&path, 30);
    let bytes = std::fs::read(&path).unwrap();
    let files = BTreeMap::from([
        ("README.md".to_owned(), b"card".to_vec()),
        ("data/codeact-00000-of-00001.parquet".to_owned(), bytes),
        (
            "data/general-00000-of-00001.parquet".to_owned(),
            b"not wanted".to_vec(),
        ),
    ]);
    let hub = Hub::start(files);
    recipe(&project);
    let (good, text) = dry_run(&project, &hub.address, &[]);
    assert!(
        good && text.contains("someone/acts") && text.contains("30 documents"),
        "{text}"
    );
    assert_eq!(
        hub.given.load(Ordering::SeqCst),
        1,
        "only what is wanted is fetched"
    );
    // The tokens of this commit are known: nothing is fetched again, not even into an empty cache.
    std::fs::remove_dir_all(project.path("hub/hub/datasets--someone--acts")).unwrap();
    let (good, text) = dry_run(&project, &hub.address, &[]);
    assert!(good && text.contains("30 documents"), "{text}");
    assert_eq!(hub.given.load(Ordering::SeqCst), 1);
    // Without tokens it is fetched again; then without network.
    std::fs::remove_dir_all(project.path("cache/tokens")).unwrap();
    assert!(dry_run(&project, &hub.address, &[]).0);
    assert_eq!(hub.given.load(Ordering::SeqCst), 2);
    std::fs::remove_dir_all(project.path("cache/tokens")).unwrap();
    let (good, text) = dry_run(&project, &hub.address, &[("HF_HUB_OFFLINE", "1")]);
    assert!(
        good && text.contains("30 documents") && text.contains(COMMIT),
        "{text}"
    );
    let (good, text) = dry_run(&project, "http://127.0.0.1:9", &[]);
    assert!(
        good && text.contains("30 documents") && text.contains("note:"),
        "{text}"
    );
    assert_eq!(hub.given.load(Ordering::SeqCst), 2);
}

#[test]
fn a_repository_that_cannot_be_had_is_named() {
    let project = Project::new("max_steps=1");
    recipe(&project);
    let (good, text) = dry_run(&project, "http://127.0.0.1:9", &[("HF_HUB_OFFLINE", "1")]);
    assert!(
        !good && text.contains("someone/acts@main") && text.contains("HF_HUB_OFFLINE"),
        "{text}"
    );
    let hub = Hub::start(BTreeMap::from([("../../evil.parquet".to_owned(), vec![])]));
    let (good, text) = dry_run(&project, &hub.address, &[]);
    assert!(!good && text.contains("unsafe path"), "{text}");
}
