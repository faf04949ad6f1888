//! The query stage in a run folder.

use std::path::Path;
use std::sync::Arc;

use pybench_query as query;
use pybench_run::{Recipe, RunContext, RunFolder};
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, ImageProfile, Profile, SourceFile, Task};

const RECIPE: &str = "
name = 'q'
seed = 4
[crawl]
sources = []
[query]
tasks = 12
template_share = 0.5
keywords = ['rotate image', 'derivative']
[teacher]
kind = 'expert'
";

fn picture(index: u32) -> SourceFile {
    SourceFile {
        id: Digest::of_bytes(&index.to_le_bytes()),
        name: format!("p{index}.png"),
        size: 10,
        kind: FileKind::Png,
        origin: format!("p{index}.png"),
        license: None,
        fetched: "2026-01-01T00:00:00Z".into(),
        profile: Profile::Image(ImageProfile {
            width: 40,
            height: 30,
            mode: "RGB".into(),
            frames: 1,
            symmetric: false,
            uniform: false,
        }),
    }
}

fn context(root: &Path, files: u32) -> RunContext {
    let folder = RunFolder::open(root, RECIPE).unwrap();
    let lines: Vec<_> = (0..files)
        .map(|i| serde_json::to_string(&picture(i)).unwrap())
        .collect();
    folder
        .write("files.jsonl", lines.join("\n").as_bytes())
        .unwrap();
    let recipe: Recipe = toml::from_str(RECIPE).unwrap();
    RunContext::new(Arc::new(folder), recipe)
}

async fn tasks(root: &Path, files: u32) -> Vec<u8> {
    let context = context(root, files);
    query::run(&context).await.unwrap();
    std::fs::read(root.join("tasks.jsonl")).unwrap()
}

#[tokio::test]
async fn writes_exactly_as_many_and_the_same_bytes_again() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = tasks(a.path(), 8).await;
    let text = String::from_utf8(bytes.clone()).unwrap();
    let parsed: Vec<Task> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(parsed.len(), 12);
    assert!(parsed.iter().all(|task| task.id == task.compute_id()));
    assert_eq!(bytes, tasks(b.path(), 8).await);
    assert_eq!(
        bytes,
        tasks(a.path(), 8).await,
        "a second run in the same folder"
    );
    let preview = query::preview(a.path(), 2).unwrap();
    assert_eq!(preview.matches("── ").count(), 2, "{preview}");
    assert!(!text.contains("2026-01-01"), "times never enter a task");
}

#[tokio::test]
async fn no_possible_task_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = RECIPE.replace("'rotate image', 'derivative'", "'rotate image'");
    let run = RunFolder::open(folder.path(), &recipe).unwrap();
    run.write("files.jsonl", b"").unwrap();
    let context = RunContext::new(Arc::new(run), toml::from_str(&recipe).unwrap());
    let error = query::run(&context).await.unwrap_err().to_string();
    assert!(error.contains("no task could be written"), "{error}");
}

/// Where a violation of a requirement would leave the same result, another task is made.
#[tokio::test]
async fn tasks_that_their_reference_refuses_are_replaced() {
    if pybench_testing::sessions::default_interpreter().is_none() {
        return;
    }
    let folder = Path::new("templates/math");
    let root = Path::new(pybench_testing::ROOT)
        .join("pipelines/library")
        .join(folder);
    let condition = "abs(round(last, 1) - last) > 0.007";
    let library = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(library.path().join(folder)).unwrap();
    for name in ["savings-plan.toml", "math-derivative.toml"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        assert_eq!(text.contains(condition), name == "savings-plan.toml");
        let path = library.path().join(folder).join(name);
        std::fs::write(path, text.replace(condition, "last % 2 > 1")).unwrap();
    }
    let library = Arc::new(pybench_library::Library::read(library.path()).unwrap());
    let recipe = RECIPE
        .replace("'rotate image'", "'finance'")
        .replace("template_share = 0.5", "template_share = 1.0")
        .replace("tasks = 12", "tasks = 6");
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::open(folder.path(), &recipe).unwrap();
    run.write("files.jsonl", b"").unwrap();
    let context = RunContext::new(Arc::new(run), toml::from_str(&recipe).unwrap());
    query::run_with(&context, library.clone()).await.unwrap();
    let tasks = || std::fs::read_to_string(folder.path().join("tasks.jsonl")).unwrap();
    let first = tasks();
    assert_eq!(first.lines().count(), 6);
    let refused = context.folder.journal().failures().unwrap();
    assert!(!refused.is_empty());
    for unit in refused {
        let reason =
            "the files do not suit the task: a violation of `digits` gives the same result";
        assert_eq!(unit.failure.detail, reason);
    }
    query::run_with(&context, library).await.unwrap();
    assert_eq!(tasks(), first, "a repeated command makes the same tasks");
}
