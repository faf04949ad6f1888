//! Where the task and the recorded trajectory of a row are found.

use std::path::{Path, PathBuf};

use pybench_run::FolderStore;
use pybench_show::TrajectorySource;
use pybench_types::task::{FileKind, TaskFile};
use serde_json::json;

use super::*;
use crate::edit::subject::Subject;
use crate::sources::Opened;

/// The run of the bench, with its task.
fn run_with_task(bench: &Bench) -> PathBuf {
    let run = bench.folder.path().join("runs/r");
    std::fs::write(run.join("tasks.jsonl"), json!(task()).to_string() + "\n").unwrap();
    run.canonicalize().unwrap()
}

/// Finds what a row of a dataset in this folder needs.
fn find_row(bench: &Bench, dataset: &Path, runs_dir: &Path) -> Result<Subject, RunError> {
    std::fs::create_dir_all(dataset).unwrap();
    let row = json!({"messages": [
        {"role": "user", "content": "Count."}, {"role": "assistant", "content": "2"}]});
    std::fs::write(dataset.join("train.jsonl"), row.to_string()).unwrap();
    let source = TrajectorySource::Dataset(dataset.to_owned());
    let what = What::One {
        name: "d".into(),
        source,
    };
    let sources = Sources::new(what, bench.folder.path().join("cache"));
    let opened = sources.open("d").unwrap().unwrap();
    let record = json!({"dataset": {
        "location": "train.jsonl:1", "format": "pybench", "metadata": {"trajectory_id": recorded().id}, "kinds": [],
        "files": [], "messages": []}});
    Subject::find(&opened, serde_json::from_value(record).unwrap(), runs_dir)
}

#[test]
fn a_row_is_edited_in_the_run_that_made_it() {
    let bench = Bench::new(LONG);
    let (folder, none) = (bench.folder.path(), bench.folder.path().join("none"));
    let elsewhere = folder.join("elsewhere/d");
    let problem = |found: Result<Subject, RunError>| text_of(found.err().unwrap());
    let found = find_row(&bench, &elsewhere, &folder.join("runs"));
    assert!(problem(found).contains("the task of this trajectory"));

    let run = run_with_task(&bench);
    let found = find_row(&bench, &run.join("dataset"), &none).unwrap();
    assert_eq!(found.saved_in, SavePlace::Run(run));
    assert_eq!(
        (found.recorded.id, found.task.id),
        (recorded().id, task().id)
    );
    let runs = folder.join("runs");
    let found = find_row(&bench, &elsewhere, &runs).unwrap();
    assert_eq!(found.saved_in, SavePlace::Run(runs.join("r")));
    let found = find_row(&bench, &elsewhere, &none);
    assert!(problem(found).contains("has the recorded trajectory of this row"));
}

/// An evaluation beside the run of the bench, whose library that run is.
fn write_evaluation(bench: &Bench) -> PathBuf {
    let evaluation = bench.folder.path().join("runs/e");
    std::fs::create_dir_all(&evaluation).unwrap();
    crate::evaluation::tests::write(&evaluation, &[("a", "1", Some(false))]);
    let recipe = "name = 'e'\nlibrary = 'data/runs/r'\n[agents.a]\nkind = 'openai'\nmodel = 'm'\nbase_url = 'http://h/v1'\n";
    std::fs::write(evaluation.join("recipe.toml"), recipe).unwrap();
    evaluation
}

/// Finds what an attempt at a task of the library needs.
fn find_attempt(opened: &Opened) -> Result<Subject, RunError> {
    let attempt = json!({
        "agent": "a", "suite": "library", "task": "7", "category": "chart", "seed": 0, "turns": 3, "max_turns": 10,
        "outcome": {"outcome": "ran"}, "scores": {"strict": false}});
    let record =
        json!({"evaluation": {"attempt": attempt, "trajectory": recorded(), "problem": ""}});
    Subject::find(
        opened,
        serde_json::from_value(record).unwrap(),
        Path::new("none"),
    )
}

#[test]
fn an_attempt_at_a_task_of_a_library_is_edited_and_not_saved() {
    let bench = Bench::new(LONG);
    write_evaluation(&bench);
    let opened = bench.sources.open("e").unwrap().unwrap();
    let find = || find_attempt(&opened);
    let problem = text_of(find().err().unwrap());
    assert!(problem.contains("`library`"), "{problem}");
    run_with_task(&bench);
    let found = find().unwrap();
    assert_eq!((found.task.id, found.is_rejected), (task().id, true));
    assert_eq!(found.saved_in, SavePlace::Nowhere);
}

#[test]
fn an_attempt_of_an_evaluation_in_a_bucket_has_its_task_and_files() {
    let bench = Bench::new(LONG);
    let evaluation = write_evaluation(&bench);
    let bucket = tempfile::tempdir().unwrap();
    let files = ContentStore::open(&bucket.path().join("files")).unwrap();
    let file = |name: &str| TaskFile {
        name: name.to_owned(),
        id: files.put(name.as_bytes()).unwrap(),
        kind: FileKind::Csv,
        origin: String::new(),
        license: None,
        derived_from: None,
        format: None,
    };
    let task = Task {
        files: vec![file("input.csv")],
        held_out: vec![file("held_out.csv")],
        ..task()
    };
    let line = serde_json::to_string(&task).unwrap();
    std::fs::write(evaluation.join("tasks.jsonl"), line + "\n").unwrap();
    let what = What::Runs(bench.folder.path().join("runs"));
    let sources = Sources::new(what, bench.folder.path().join("cache"));
    let sources = sources.with_bucket(Some(Arc::new(FolderStore::new(bucket.path()))));
    let opened = sources.open("e").unwrap().unwrap();
    let found = find_attempt(&opened).unwrap();
    assert_eq!(found.task, task);
    for file in task.files.iter().chain(&task.held_out) {
        let bytes = std::fs::read(found.store.path(&file.id)).unwrap();
        assert_eq!(bytes, file.name.as_bytes());
    }
}
