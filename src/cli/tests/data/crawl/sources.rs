//! The stage over real sources: a folder, a loopback server that misbehaves, the fallback, and a
//! second call that costs nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use pybench_crawl as crawl;
use pybench_crawl::stage::Remark;
use pybench_run::artifacts::FILES;
use pybench_run::{Recipe, RunContext, RunFolder};
use pybench_types::task::{FileKind, SourceFile};

fn context(root: &Path, crawl: &str) -> RunContext {
    let text =
        format!("name = 't'\n[crawl]\n{crawl}\n[query]\ntasks = 1\n[teacher]\nkind = 'expert'\n");
    let recipe: Recipe = toml::from_str(&text).unwrap();
    let folder = RunFolder::open(&root.join("run"), &text).unwrap();
    let mut context = RunContext::new(Arc::new(folder), recipe);
    context.project_root = pybench_testing::ROOT.into();
    context.cache_dir = root.join("cache");
    context.options.backoff = Duration::from_millis(1);
    context
}

fn files(context: &RunContext) -> Vec<SourceFile> {
    lines(context, FILES.name)
}

fn lines<T: serde::de::DeserializeOwned>(context: &RunContext, name: &str) -> Vec<T> {
    let text = std::fs::read_to_string(context.folder.root().join(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const SAMPLES: &str =
    "[[crawl.sources]]\nsource = 'local'\npath = 'data/samples/files'\nlicense = 'CC0-1.0'";

#[tokio::test]
async fn the_same_folder_gives_the_same_files_and_a_second_call_does_nothing() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (context(one.path(), SAMPLES), context(two.path(), SAMPLES));
    crawl::run(&first).await.unwrap();
    crawl::run(&second).await.unwrap();
    let without_time = |context: &RunContext| {
        let mut files = files(context);
        files.iter_mut().for_each(|file| file.fetched.clear());
        files
    };
    let found = without_time(&first);
    assert_eq!(found, without_time(&second));
    for file in &found {
        let bytes = first.folder.store().get(&file.id).unwrap();
        assert_eq!(bytes.len() as u64, file.size, "{}", file.name);
        assert_eq!(file.license.as_deref(), Some("CC0-1.0"));
    }
    assert_eq!(
        first.folder.journal().metadata("files").unwrap(),
        Some(found.len().into())
    );
    let before = std::fs::read(first.folder.root().join(FILES.name)).unwrap();
    crawl::run(&first).await.unwrap();
    assert_eq!(
        before,
        std::fs::read(first.folder.root().join(FILES.name)).unwrap()
    );
}

#[tokio::test]
async fn the_samples_suffice_for_a_run_without_a_network() {
    let root = tempfile::tempdir().unwrap();
    let context = context(root.path(), SAMPLES);
    crawl::run(&context).await.unwrap();
    let found = files(&context);
    let of = |kind| found.iter().filter(|file| file.kind == kind).count();
    for (kind, least) in [
        (FileKind::Csv, 9),
        (FileKind::Xlsx, 2),
        (FileKind::Json, 2),
        (FileKind::Jsonl, 2),
        (FileKind::Txt, 6),
        (FileKind::Pdf, 4),
        (FileKind::Docx, 3),
        (FileKind::Png, 5),
        (FileKind::Gif, 2),
        (FileKind::Wav, 3),
        (FileKind::Mp3, 2),
        (FileKind::Mp4, 1),
    ] {
        assert!(of(kind) >= least, "{kind:?}: {}", of(kind));
    }
    let broken: Vec<Remark> = lines(&context, crawl::REPORT);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[derive(Clone, Default)]
struct Hits(Arc<AtomicUsize>);

async fn server(hits: Hits) -> String {
    let flaky = move || {
        let hits = hits.clone();
        async move {
            match hits.0.fetch_add(1, Ordering::SeqCst) {
                0 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                _ => "a,b\n1,x\n2,y\n".into_response(),
            }
        }
    };
    let endless = || async {
        let chunk = bytes::Bytes::from(vec![b'x'; 1 << 16]);
        let chunks = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
        Body::from_stream(chunks)
    };
    let broken_off = || async {
        let chunks = [Ok("a,b\n1,"), Err(std::io::Error::other("gone"))];
        Body::from_stream(futures::stream::iter(chunks))
    };
    let named = || async {
        let headers = [(
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"../../cities.csv\"",
        )];
        (headers, "city,people\nOster,12\nQuarn,30\n").into_response()
    };
    let router = Router::new()
        .route("/flaky.csv", get(flaky))
        .route("/endless.txt", get(endless))
        .route("/broken-off.csv", get(broken_off))
        .route("/download", get(named))
        .route(
            "/typed",
            get(|| async { ([(header::CONTENT_TYPE, "text/csv")], "k,v\n1,2\n") }),
        )
        .route(
            "/moved.csv",
            get(|| async { Redirect::temporary("/download") }),
        )
        .route(
            "/loop.csv",
            get(|| async { Redirect::temporary("/loop.csv") }),
        )
        .route(
            "/error.csv",
            get(|| async { StatusCode::INTERNAL_SERVER_ERROR }),
        )
        .route(
            "/page.csv",
            get(|| async { "<!DOCTYPE html><h1>Please log in</h1>" }),
        )
        .fallback(|| async { Response::builder().status(404).body(Body::empty()).unwrap() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}")
}

#[tokio::test]
async fn a_server_that_misbehaves_is_met_with_reasons() {
    let hits = Hits::default();
    let base = server(hits.clone()).await;
    let paths = [
        "flaky.csv",
        "endless.txt",
        "broken-off.csv",
        "download",
        "typed",
        "moved.csv",
        "loop.csv",
        "error.csv",
        "page.csv",
        "gone.csv",
    ];
    let mut urls: Vec<String> = paths
        .iter()
        .map(|path| format!("'{base}/{path}'"))
        .collect();
    urls.push("'ftp://127.0.0.1/x.csv'".into());
    urls.push("'http://127.0.0.1:1/refused.csv'".into());
    let root = tempfile::tempdir().unwrap();
    let crawl = format!(
        "file_mib = 1\n[[crawl.sources]]\nsource = 'http'\nurls = [{}]",
        urls.join(",")
    );
    let context = context(root.path(), &crawl);
    crawl::run(&context).await.unwrap();
    let mut names: Vec<_> = files(&context).into_iter().map(|file| file.name).collect();
    names.sort();
    assert_eq!(names, ["cities.csv", "flaky.csv", "page.html", "typed.csv"]);
    assert_eq!(
        hits.0.load(Ordering::SeqCst),
        2,
        "one failure, one success, nothing again"
    );
    let remarks: Vec<Remark> = lines(&context, crawl::REPORT);
    for (origin, reason) in [
        ("endless.txt", "larger than 1 MiB"),
        ("broken-off.csv", "closed before message completed"),
        ("loop.csv", "redirect"),
        ("error.csv", "500"),
        ("gone.csv", "404"),
        ("ftp:", "neither http nor https"),
        ("refused.csv", "refused"),
        ("moved.csv", "the same bytes"),
    ] {
        let found = remarks
            .iter()
            .any(|r| r.origin.contains(origin) && r.reason.contains(reason));
        assert!(found, "{origin}: {reason}\n{remarks:#?}");
    }
    crawl::run(&context).await.unwrap();
    assert_eq!(hits.0.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn damaged_input_files_are_fetched_again() {
    let root = tempfile::tempdir().unwrap();
    let base = server(Hits::default()).await;
    let source = root.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let names = ["emptied.txt", "flipped.txt", "deleted.txt", "changed.txt"];
    for name in names {
        std::fs::write(source.join(name), format!("the text of {name}")).unwrap();
    }
    let crawl = format!(
        "[[crawl.sources]]\nsource = 'local'\npath = '{}'\n[[crawl.sources]]\nsource = 'http'\nurls = ['{base}/download']",
        source.display()
    );
    let context = context(root.path(), &crawl);
    crawl::run(&context).await.unwrap();
    let store = context.folder.store();
    let id = |name: &str| {
        let mut files = files(&context).into_iter();
        files.find(|file| file.name == name).unwrap().id
    };
    let write = |name: &str, bytes: &[u8]| std::fs::write(store.path(&id(name)), bytes).unwrap();
    write("emptied.txt", b"");
    write("flipped.txt", b"the text of flipped.txu");
    std::fs::remove_file(store.path(&id("deleted.txt"))).unwrap();
    write("cities.csv", b"city,people\n");
    write("changed.txt", b"");
    std::fs::write(source.join("changed.txt"), "another text").unwrap();
    let artifact = std::fs::read(FILES.path(context.folder.root())).unwrap();

    crawl::run(&context).await.unwrap();
    for name in ["emptied.txt", "flipped.txt", "deleted.txt"] {
        let expected = format!("the text of {name}");
        assert_eq!(store.get(&id(name)).unwrap(), expected.as_bytes());
    }
    let expected = "city,people\nOster,12\nQuarn,30\n";
    assert_eq!(store.get(&id("cities.csv")).unwrap(), expected.as_bytes());
    let error = store.get(&id("changed.txt")).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
    assert_eq!(
        artifact,
        std::fs::read(FILES.path(context.folder.root())).unwrap()
    );
    // When the source has the bytes again, the same command gets them.
    std::fs::write(source.join("changed.txt"), "the text of changed.txt").unwrap();
    crawl::run(&context).await.unwrap();
    assert!(store.get(&id("changed.txt")).is_ok());
}

#[tokio::test]
async fn without_a_network_the_fallback_is_used_and_said() {
    let root = tempfile::tempdir().unwrap();
    let crawl = "[[crawl.sources]]\nsource = 'http'\nurls = ['http://127.0.0.1:1/x.csv']\n\
        [[crawl.fallback]]\nsource = 'local'\npath = 'data/samples/files'\n";
    let context = context(root.path(), crawl);
    crawl::run(&context).await.unwrap();
    assert!(files(&context).len() > 50);
    assert_eq!(
        context.folder.journal().metadata("crawl_fallback").unwrap(),
        Some(true.into())
    );
    let remarks: Vec<Remark> = lines(&context, crawl::REPORT);
    assert!(
        remarks.iter().any(|r| r.origin.contains("x.csv")),
        "{remarks:#?}"
    );
}

#[tokio::test]
async fn wrong_recipes_are_refused_before_any_work() {
    for (crawl, reason) in [
        (
            "[[crawl.sources]]\nsource = 'local'\npath = 'no/such'",
            "no folder",
        ),
        (
            "[[crawl.sources]]\nsource = 'http'\nurls = ['http://h/x', 'http://h/x']",
            "listed twice",
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        let error = crawl::run(&context(root.path(), crawl))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{error}");
    }
}
