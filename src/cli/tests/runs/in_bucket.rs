//! `--runs-dir s3://BUCKET/PREFIX`: a run is made, continued and read in a bucket.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pybench_interpreter::environment::Environment;
use pybench_run::{BucketStore, ExitCode, Journal, ObjectServer, Store};
use rustix::process::{Pid, Signal, kill_process};

use crate::kill::{dataset, dataset_of};
use crate::support::fixture::{RunFixture, interpreter_is_here};
use crate::workers::{bucket_variables, recipe};

fn pybench(server: &ObjectServer, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = crate::support::pybench(arguments[0]);
    command
        .args(&arguments[1..])
        .current_dir(folder)
        .env_remove("PYBENCH_ROOT")
        .envs(bucket_variables(server));
    command
}

/// Reads on a machine that has nothing of the run; what is printed, and the log.
pub(crate) fn read(
    server: &ObjectServer,
    elsewhere: &Path,
    arguments: &[&str],
) -> (String, String) {
    let mut command = pybench(server, elsewhere, arguments);
    command
        .env("PYBENCH_CACHE", elsewhere.join("cache"))
        .env("PYBENCH_ENV", Environment::find().unwrap().root);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Number of input files beside notebooks, each of which has a folder.
pub(crate) fn inputs_of_notebooks(books: &Path) -> usize {
    let books = std::fs::read_dir(books).unwrap();
    let inputs = books.map(|book| book.unwrap().path().join("data"));
    let inputs = inputs.filter(|folder| folder.is_dir());
    inputs
        .map(|folder| std::fs::read_dir(folder).unwrap().count())
        .sum()
}

/// Units of the stage `rollout` that are done in a run folder.
fn attempts(run: &Path) -> u64 {
    match Journal::of_run(run) {
        Ok(Some(journal)) => journal.summary("rollout").map_or(0, |summary| summary.done),
        // It is being created.
        _ => 0,
    }
}

/// Presses Ctrl-C when the first attempts at tasks are done, and waits for the end.
fn interrupt(mut command: Command, run: &Path) -> Option<i32> {
    let mut running = command.spawn().unwrap();
    while attempts(run) == 0 {
        let ended = running.try_wait().unwrap();
        assert!(ended.is_none(), "it ends before an attempt: {ended:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    running.wait().unwrap().code()
}

#[test]
fn a_run_is_made_continued_and_read_in_a_bucket() {
    let server = pybench_testing::s3::server();
    let Some(server) = server.filter(|_| interpreter_is_here()) else {
        return;
    };
    let server = ObjectServer {
        prefix: "kept".to_owned(),
        ..server
    };
    let runs = format!("s3://{}/{}", server.bucket, server.prefix);
    let run = format!("{runs}/t");
    let text = recipe("{ kind = 'expert' }", "");
    let fixture = RunFixture::bare(&text);
    let command = |project: &RunFixture, stage: &str| -> Command {
        let arguments = [stage, "t.toml", "--runs-dir", runs.as_str()];
        pybench(&server, &project.path("."), &arguments)
    };
    let write =
        |project: &RunFixture, stage: &str| -> Output { command(project, stage).output().unwrap() };
    let elsewhere = tempfile::tempdir().unwrap();
    let read = |arguments: &[&str]| read(&server, elsewhere.path(), arguments);

    // A run that has not ended, and that only its own folder continues.
    let crawled = write(&fixture, "crawl");
    assert!(crawled.status.success(), "{crawled:?}");
    let log = String::from_utf8_lossy(&crawled.stderr);
    assert!(log.contains(&format!("kept in {run}")), "{log}");
    let (_, log) = read(&["status", "t", "--runs-dir", &runs]);
    assert!(log.contains("has not ended"), "{log}");
    let refused = write(&RunFixture::bare(&text), "synthesize");
    let log = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(
        refused.status.code(),
        Some(ExitCode::Conflict as i32),
        "{log}"
    );
    assert!(log.contains("data/runs/t on "), "{log}");

    // After Ctrl-C the bucket has what was made.
    let code = interrupt(command(&fixture, "synthesize"), &fixture.folder());
    assert_eq!(code, Some(ExitCode::Interrupted as i32));
    let (copy, log) = read(&["run", "fetch", &run]);
    assert!(log.contains("has not ended"), "{log}");
    let (here, there) = (
        attempts(&fixture.folder()),
        attempts(Path::new(copy.trim())),
    );
    assert!(here > 0 && there == here, "{here} done, {there} copied");

    let made = write(&fixture, "synthesize");
    assert!(made.status.success(), "{made:?}");
    let (status, log) = read(&["status", &run]);
    assert!(status.contains("12") && !log.contains("has not ended"));
    assert!(!read(&["show", "t", "1", "--runs-dir", &runs]).0.is_empty());
    let books = elsewhere.path().join("books");
    let folder = books.to_str().unwrap();
    read(&["show", "t", "--runs-dir", &runs, "--notebook", folder]);
    assert!(inputs_of_notebooks(&books) > 0, "no input file");
    assert!(read(&["publish", &run]).0.contains("Nothing was uploaded"));
    let verified = read(&["verify", &run, "--sample", "0.05"]).0;
    assert!(verified.contains("digest of all rows: "), "{verified}");
    let copy = PathBuf::from(read(&["run", "fetch", &run]).0.trim());
    assert!(dataset_of(&copy) == dataset(&fixture), "another dataset");
    // What a training recipe names.
    let rows = read(&["run", "fetch", &format!("{run}/dataset")]).0;
    assert_eq!(Path::new(rows.trim()), copy.join("dataset"));
    // The held-out tasks of the run, whose files are in the bucket alone.
    let agents = "[agents.a]\nkind = 'script'\nscript = 'reference'\n";
    let eval = format!("name = 'e'\nlibrary = '{run}'\n{agents}");
    std::fs::write(elsewhere.path().join("e.toml"), eval).unwrap();
    let planned = read(&["eval", "./e.toml", "--dry-run", "--runs-dir", "evals"]).0;
    assert!(
        planned.contains(" tasks, 0 that cannot be run"),
        "{planned}"
    );
    let store = BucketStore::new(&server, "t").unwrap();
    for folder in ["files", "artifacts/trajectories.jsonl"] {
        assert!(!store.list(folder).unwrap().is_empty(), "{folder}");
    }
}
