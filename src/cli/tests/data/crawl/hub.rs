//! The real binary over a service on the loopback: what is found is recorded with revision and license, and a
//! second run asks only whether it has changed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pybench_types::task::SourceFile;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TREE: &str = r#"[{"type": "file", "oid": "1", "size": 37, "path": "data/cities.csv"},
    {"type": "file", "oid": "2", "size": 9, "path": "run.sh"}]"#;
const CITIES: &str = "city,people\nOster,12\nQuarn,30\nVell,7\n";

/// Status and path of each answer, and the tokens that came.
#[derive(Default)]
struct Log {
    answers: Vec<String>,
    tokens: Vec<String>,
}

async fn serve(State(log): State<Arc<Mutex<Log>>>, request: Request) -> Response {
    let answers: HashMap<String, &str> = [
        (
            format!("/api/datasets/o/n/revision/{COMMIT}"),
            r#"{"cardData": {"license": "cc-by-4.0"}}"#,
        ),
        (format!("/api/datasets/o/n/tree/{COMMIT}"), TREE),
        (
            format!("/datasets/o/n/resolve/{COMMIT}/data/cities.csv"),
            CITIES,
        ),
    ]
    .into();
    let path = request.uri().path().to_owned();
    let said = |headers: &HeaderMap, name| {
        let value: Option<&axum::http::HeaderValue> = headers.get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let response = match answers.get(&path) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(_) if said(request.headers(), header::IF_NONE_MATCH).is_some() => {
            StatusCode::NOT_MODIFIED.into_response()
        }
        Some(body) => ([(header::ETAG, "\"1\"")], (*body).to_owned()).into_response(),
    };
    let mut log = log.lock().unwrap();
    log.answers
        .push(format!("{} {path}", response.status().as_u16()));
    log.tokens
        .extend(said(request.headers(), header::AUTHORIZATION));
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_is_crawled_with_revision_and_license() {
    let log = Arc::<Mutex<Log>>::default();
    let router = Router::new().fallback(serve).with_state(log.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let root = tempfile::tempdir().unwrap();
    let recipe = format!(
        "name = 'NAME'\n[crawl]\n[[crawl.sources]]\nsource = 'hub'\ndatasets = ['o/n@{COMMIT}']\n\
         [query]\ntasks = 1\n[teacher]\nkind = 'expert'\n"
    );
    let crawl = |name: &str| {
        let path = root.path().join("recipe.toml");
        std::fs::write(&path, recipe.replace("NAME", name)).unwrap();
        let output = crate::support::pybench("crawl")
            .arg(&path)
            .args(["--runs-dir", "runs"])
            .current_dir(root.path())
            .env("PYBENCH_CACHE", root.path().join("cache"))
            .env("HF_ENDPOINT", &endpoint)
            .env("HF_TOKEN", "hf_s3cret")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
        files(&root.path().join("runs").join(name))
    };
    let (first, second) = tokio::task::block_in_place(|| (crawl("one"), crawl("two")));
    assert_eq!(first.len(), 1);
    assert_eq!(
        first[0].origin,
        format!("hf:datasets/o/n@{COMMIT}#data/cities.csv")
    );
    assert_eq!(first[0].license.as_deref(), Some("CC-BY-4.0"));
    assert_eq!(first[0].id, second[0].id);
    let log = log.lock().unwrap();
    let statuses: Vec<&str> = log.answers.iter().map(|answer| &answer[..3]).collect();
    assert_eq!(
        statuses,
        ["200", "200", "200", "304", "304", "304"],
        "{:?}",
        log.answers
    );
    assert!(log.tokens.len() == 6 && log.tokens.iter().all(|token| token == "Bearer hf_s3cret"));
    for entry in walk(root.path()) {
        let bytes = std::fs::read(&entry).unwrap_or_default();
        let found = bytes.windows(6).any(|window| window == b"s3cret");
        assert!(!found, "the token is in {}", entry.display());
    }
}

fn files(run: &Path) -> Vec<SourceFile> {
    let text = std::fs::read_to_string(run.join("files.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// All files below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => found.extend(walk(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}
