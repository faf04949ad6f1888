//! Every template proves its check, with the real interpreter and the real checker.

use std::path::Path;
use std::sync::Arc;

use pybench::grade::Checker;
use pybench::interpreter::interpreter;
use pybench::run::InterpreterChoice;
use pybench_pipelines::library::Library;
use pybench_pipelines::library::audit::fixtures::Fixtures;
use pybench_pipelines::library::audit::{AuditOptions, Bench, audit, summary, table};

fn bench(library: Library) -> Option<Bench> {
    let interpreter = match interpreter(&InterpreterChoice::default()) {
        Ok(interpreter) => interpreter,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/samples");
    Some(Bench {
        library: Arc::new(library),
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter,
        fixtures: Fixtures::read(&samples).unwrap(),
    })
}

fn options() -> AuditOptions {
    AuditOptions {
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        ..AuditOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_template_is_sound() {
    let library = Library::embedded().unwrap();
    let Some(bench) = bench(library) else { return };
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    assert!(
        rows.iter().all(|row| row.sound()),
        "{}\n{}",
        table(&rows),
        summary(&rows)
    );
    assert!(rows.len() >= bench.library.templates().len());
}

/// The audit finds a check that accepts what is wrong.
#[tokio::test]
async fn a_weak_check_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("library");
    let text = std::fs::read_to_string(root.join("templates/math/math-derivative.toml")).unwrap();
    let weak = text.replace(
        "expected = \"expected\"",
        "expected = \"expected\"\nrtol = 100.0",
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("templates/math/math-derivative.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, weak).unwrap();
    let Some(bench) = bench(Library::read(folder.path()).unwrap()) else {
        return;
    };
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    assert!(!rows[0].sound());
    assert!(table(&rows).contains("passes, though it is wrong: own: the second derivative"));
}

/// What `pybench library new` writes is sound before anything is changed.
#[tokio::test]
async fn a_new_template_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let mut new = std::process::Command::new(env!("CARGO_BIN_EXE_pybench-library"));
    new.arg("--library").arg(folder.path());
    assert!(new.args(["new", "my-own"]).status().unwrap().success());
    let Some(bench) = bench(Library::read(folder.path()).unwrap()) else {
        return;
    };
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    assert!(rows.iter().all(|row| row.sound()), "{}", table(&rows));
    assert_eq!(rows.len(), 1);
}
