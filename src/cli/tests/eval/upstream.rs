//! The score `upstream` agrees with running upstream's tests by hand.

use std::fs;
use std::path::Path;
use std::process::Command;

use pybench_eval::agent::Script;
use pybench_eval::record::{Evaluation, Outcome};
use pybench_eval::run::{RESULTS, run};
use pybench_eval::suites::pybench::PyBench;
use pybench_eval::suites::pybench::upstream::find;
use pybench_interpreter::environment_python;
use pybench_testing::skip;
use serde_json::Value;

use crate::fixture::{SuiteFixture, foreign, of, others, recipe, script, setup, tools};

/// Runs a test like upstream: in the folder of the outputs, one process per test.
fn by_hand(tests: &Path, data: &Path, outputs: &Path, index: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let link = |from: &Path, name: &str| {
        std::os::unix::fs::symlink(fs::canonicalize(from).unwrap(), folder.path().join(name))
            .unwrap();
    };
    link(data, "data");
    link(tests, "tests.py");
    fs::create_dir_all(outputs.join("output")).unwrap();
    link(&outputs.join("output"), "output");
    fs::create_dir(folder.path().join("absent")).unwrap();
    fs::create_dir(folder.path().join("absent/mutagen")).unwrap();
    fs::write(folder.path().join("absent/mutagen/__init__.py"), "").unwrap();
    let stub = "class MP3:\n    def __init__(self, *_):\n        raise ImportError('absent')\n";
    fs::write(folder.path().join("absent/mutagen/mp3.py"), stub).unwrap();
    let lines = fs::read_to_string(outputs.join("trajectory.jsonl")).unwrap();
    let mut lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages = lines.rfind(|line| line["index"] == index).unwrap();
    fs::write(
        folder.path().join("messages.json"),
        messages["messages"].to_string(),
    )
    .unwrap();
    let code = format!(
        "import json, sys\nsys.path.append('absent')\nimport tests\ntry:\n    tests.test_task_{index}(json.load(open('messages.json')))\n    print('Pass')\nexcept BaseException:\n    print('Failed')\n"
    );
    let mut command = Command::new(environment_python().unwrap());
    command
        .args(["-W", "ignore", "-c", &code])
        .current_dir(folder.path())
        .env("MPLBACKEND", "agg");
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    match text.lines().last() {
        Some("Pass") => true,
        Some("Failed") => false,
        _ => panic!("{index}: {text}{}", String::from_utf8_lossy(&said.stderr)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_score_agrees_with_the_tests_run_by_hand() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    others(&fixture.path("theirs"));
    let recipe = recipe("t", &[("theirs", foreign(&fixture.path("theirs")))]);
    let setup = setup(&fixture, "run", fixture.bench(), recipe, &interpreter);
    let evaluation = run(&setup).await.unwrap();
    let (mut compared, mut passed) = (0, 0);
    let bench = fixture.path("bench/data");
    for index in 1..=22 {
        let index = index.to_string();
        let attempt = of(&evaluation, "theirs", &index);
        assert_eq!(attempt.outcome, Outcome::Ran, "{index}");
        let theirs = by_hand(
            &bench.join("unit_test/tests.py"),
            &bench,
            &fixture.path("theirs"),
            &index,
        );
        // Upstream's folder is never empty; a task alone sees only its own outputs.
        if index != "21" {
            assert_eq!(
                attempt.scores.upstream,
                Some(theirs),
                "{index}: {:?}",
                attempt.checks
            );
        }
        compared += 1;
        passed += usize::from(theirs);
    }
    assert!(
        compared >= 20 && passed >= 10 && passed < compared,
        "{passed} of {compared}"
    );
    assert_eq!(
        of(&evaluation, "theirs", "23").scores.upstream,
        None,
        "no test of that number"
    );
    assert_eq!(
        of(&evaluation, "theirs", "7").scores.fixed,
        Some(false),
        "alone it has no output of another"
    );
    let absent = of(&evaluation, "theirs", "24");
    assert!(
        matches!(&absent.outcome, Outcome::NotRun { reason } if reason.contains("data/absent.csv"))
    );
    let read = Evaluation::read(&fixture.path("run").join(RESULTS)).unwrap();
    assert_eq!(read, evaluation);
}

/// The same with the real benchmark: grades the artifacts of the reference solutions as those of another system.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_score_agrees_with_the_real_tests_run_by_hand() {
    let Some(interpreter) = tools() else { return };
    let project = std::path::PathBuf::from(pybench_testing::ROOT);
    let upstream = match find(None, Path::new("/nowhere"), Some(&project)) {
        Ok(upstream) if upstream.tests().is_some() => upstream,
        Ok(_) => {
            return skip::unavailable("PYBENCH_UPSTREAM names no checkout with upstream's tests");
        }
        Err(error) => return skip::unavailable(error),
    };
    let tests = upstream.tests().unwrap().path.clone();
    let data = upstream
        .task_file()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let fixture = SuiteFixture::new();
    let bench = PyBench::new(upstream).unwrap();
    let tasks = "5,7,12,14-16,18-22,27-28,67-68,78,80-82,85-86,92-93,100,115,134-136,138,140";
    let mut first = recipe(
        "first",
        &[
            ("reference", script(Script::Reference)),
            ("do-nothing", script(Script::DoNothing)),
        ],
    );
    first.tasks = Some(tasks.to_owned());
    first.perturb = false;
    let made = setup(&fixture, "made", bench.clone(), first.clone(), &interpreter);
    run(&made).await.unwrap();
    drop(made);
    let (mut compared, mut passed) = (0, 0);
    for agent in ["reference", "do-nothing"] {
        let left = fixture.path("made/upstream").join(agent);
        let mut second = recipe("second", &[("theirs", foreign(&left))]);
        second.tasks = first.tasks.clone();
        second.perturb = false;
        let setup = setup(
            &fixture,
            &format!("again-{agent}"),
            bench.clone(),
            second,
            &interpreter,
        );
        let evaluation = run(&setup).await.unwrap();
        for attempt in evaluation.attempts.iter().filter(|attempt| attempt.ran()) {
            let theirs = by_hand(&tests, &data, &left, &attempt.task);
            assert_eq!(
                attempt.scores.upstream,
                Some(theirs),
                "{agent} {}: {:?}",
                attempt.task,
                attempt.checks
            );
            compared += 1;
            passed += usize::from(theirs);
        }
    }
    eprintln!("{compared} compared, {passed} of them passed");
    assert!(compared >= 40, "{compared}");
}
