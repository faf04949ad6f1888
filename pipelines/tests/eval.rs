//! Evaluations end to end: real sandbox, real tests, a small benchmark of our own making; and the true one
//! where it is (`PYBENCH_DATA` or `../shared/pybench`, upstream's tests by `PYBENCH_UPSTREAM`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pybench::grade::Checker;
use pybench::interpreter::{Interpreter, environment_python, interpreter};
use pybench::run::{ExecutorOptions, Interrupt, LocalExecutor, Progress, RunError, RunFolder};
use pybench_pipelines::eval::agent::Script;
use pybench_pipelines::eval::audit::{Audit, audit, markdown, summary};
use pybench_pipelines::eval::bench::prepare::Changes;
use pybench_pipelines::eval::bench::spec;
use pybench_pipelines::eval::bench::upstream::{Upstream, find};
use pybench_pipelines::eval::bench::{Bench, Ready};
use pybench_pipelines::eval::record::{Attempt, Evaluation, Outcome};
use pybench_pipelines::eval::run::{AgentChoice, EvalRecipe, RESULTS, Setup, run};
use serde_json::{Value, json};

/// A stand-in for upstream's file, of the same interface: `test_task_N(trajectory)`.
const TESTS: &str = r#"
import os
import pickle

import numpy as np
import pandas as pd
from mutagen.mp3 import MP3
from PIL import Image


def last(trajectory):
    return trajectory[-1]["content"]


def test_task_1(trajectory):
    assert "42" in last(trajectory)

def test_task_2(trajectory):
    frame = pd.read_csv("./output/2.csv")
    assert frame.duplicated().sum() == 0

def test_task_3(trajectory):
    assert os.path.exists("./output/3.png")

def test_task_4(trajectory):
    with Image.open("./output/4.png") as image:
        assert image.size == (4, 2)

def test_task_5(trajectory):
    assert pd.read_csv("./output/5.csv")

def test_task_6(trajectory):
    assert os.path.exists(no_such_name)

def test_task_7(trajectory):
    # The output of another task.
    assert os.path.exists("./output/3.png")

def test_task_8(trajectory):
    with open("./output/8.pkl", "rb") as file:
        pickle.load(file)

def test_task_9(trajectory):
    assert any(name.endswith(".html") for name in os.listdir("./output/9"))

def test_task_10(trajectory):
    assert os.path.exists("./output/10/")

def test_task_11(trajectory):
    os.path.exists("./output/11.png")

def test_task_12(trajectory):
    assert np.asarray(Image.open("./output/12.png").convert("L")).mean() < 100

def test_task_12(trajectory):
    assert np.asarray(Image.open("./output/12.png").convert("L")).mean() > 100

def test_task_13(trajectory):
    assert "猪" in last(trajectory) or "pig" in last(trajectory)

def test_task_14(trajectory):
    frame = pd.read_csv("./output/14.csv")
    assert frame.equals(frame.sort_values(by="a", ascending=False))

def test_task_15(trajectory):
    raise SystemExit(0)

def test_task_16(trajectory):
    assert MP3("./output/16.mp3").info.length > 1

def test_task_17(trajectory):
    assert len(trajectory) == 4

def test_task_18(trajectory):
    assert open("./data/18.txt").read() == "given"

def test_task_19(trajectory):
    assert "x" in last(trajectory)

def test_task_20(trajectory):
    assert len(pd.read_excel("./output/20.xlsx")) == 2

def test_task_21(trajectory):
    assert not os.listdir("./output")

def test_task_22(trajectory):
    with open("./output/22.txt") as file:
        assert file.read().strip() == last(trajectory).split(":")[-1].strip()
"#;
const TASKS: u32 = 23;

/// A folder like upstream's, with our tests in it.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("bench/data");
        fs::create_dir_all(data.join("meta")).unwrap();
        fs::create_dir_all(data.join("unit_test")).unwrap();
        fs::write(data.join("unit_test/tests.py"), TESTS).unwrap();
        fs::write(data.join("18.txt"), "given").unwrap();
        let row = |index: u32| {
            let files: Vec<_> = (index == 18)
                .then_some("./data/18.txt")
                .into_iter()
                .collect();
            json!({"index": index.to_string(), "category1": "c", "user": format!("prompt {index}"), "file_paths": files, "attachments": []})
        };
        let rows: Vec<Value> = (1..=TASKS + 1).map(row).collect();
        fs::write(data.join("meta/task.json"), json!(rows).to_string()).unwrap();
        Self { root }
    }

    fn bench(&self) -> Bench {
        let digest = blake3::hash(b"given").to_hex();
        let texts: Vec<(String, String)> = (1..=TASKS + 1)
            .map(|index| {
                let mut text = format!(
                    "index = {index}\ncategory = 'text'\nstatus = 'judge'\nreason = 'made for a test'\noutputs = []\n"
                );
                match index {
                    18 => text += &format!("[inputs]\n'data/18.txt' = '{digest}'\n"),
                    24 => text += "missing = ['data/absent.csv']\n",
                    _ => {}
                }
                (format!("{index:03}.toml"), text)
            })
            .collect();
        let texts = texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()));
        Bench {
            specs: Arc::new(spec::load(texts).unwrap()),
            upstream: Arc::new(Upstream::open(&self.root.path().join("bench")).unwrap()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

fn tools() -> Option<Arc<dyn Interpreter>> {
    match interpreter(&Default::default()) {
        Ok(interpreter) => Some(interpreter),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn setup(
    place: &Place,
    folder: &str,
    bench: Bench,
    recipe: EvalRecipe,
    interpreter: &Arc<dyn Interpreter>,
) -> Setup {
    let frozen = recipe.to_toml().unwrap();
    Setup {
        folder: Arc::new(RunFolder::open(&place.path(folder), &frozen).unwrap()),
        recipe,
        bench: Some(bench),
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter: interpreter.clone(),
        options: ExecutorOptions {
            concurrency: 2,
            ..ExecutorOptions::default()
        },
        progress: Progress::hidden(),
        interrupt: Interrupt::new(),
        project_root: place.root.path().to_owned(),
    }
}

fn recipe(name: &str, agents: &[(&str, AgentChoice)]) -> EvalRecipe {
    let agents = agents
        .iter()
        .map(|(label, choice)| ((*label).to_owned(), choice.clone()));
    EvalRecipe::new(name, agents.collect::<BTreeMap<_, _>>())
}

fn foreign(path: &Path) -> AgentChoice {
    AgentChoice::Trajectories {
        path: path.to_owned(),
        outputs: None,
    }
}

fn script(script: Script) -> AgentChoice {
    AgentChoice::Script { script }
}

/// What another system left: a trajectory for every task but the last, and one shared `output/`.
fn others(folder: &Path) {
    let python = environment_python().unwrap();
    let make = r#"
import os, pickle, sys
import pandas as pd
from PIL import Image
os.makedirs("output/9"); os.makedirs("output/10")
pd.DataFrame({"a": [3, 2, 1]}).to_csv("output/2.csv", index=False)
Image.new("RGB", (4, 2), "white").save("output/3.png")
Image.new("RGB", (4, 2), "white").save("output/4.png")
pd.DataFrame({"a": [1]}).to_csv("output/5.csv", index=False)
pickle.dump({"a": 1}, open("output/8.pkl", "wb"))
open("output/9/index.html", "w").write("<script>alert(1)</script>")
open("output/10/a.txt", "w").write("a")
Image.new("RGB", (4, 2), "white").save("output/12.png")
pd.DataFrame({"a": [3, 2, 1]}).to_csv("output/14.csv", index=False)
open("output/16.mp3", "wb").write(b"\0" * 100)
pd.DataFrame({"a": [1, 2]}).to_excel("output/20.xlsx", index=False)
open("output/22.txt", "w").write("7\n")
"#;
    fs::create_dir_all(folder).unwrap();
    let made = Command::new(python)
        .args(["-c", make])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut lines = String::new();
    for index in 1..=TASKS {
        let answer = match index {
            1 => "Finished: 42 \u{1b}[2J<script>",
            22 => "Finished: 7",
            _ => "Finished: nothing",
        };
        let messages = json!([
            {"role": "system", "content": "s"}, {"role": "user", "content": "[INFO]The data is uploaded to "},
            {"role": "user", "content": "q"}, {"role": "assistant", "content": answer},
        ]);
        let _ = writeln!(
            lines,
            "{}",
            json!({"messages": messages, "index": index.to_string()})
        );
    }
    fs::write(folder.join("trajectory.jsonl"), lines).unwrap();
}

/// Upstream's own way: the folder of the outputs, one process for each test.
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

fn of<'a>(evaluation: &'a Evaluation, agent: &str, task: &str) -> &'a Attempt {
    let mut found = evaluation
        .attempts
        .iter()
        .filter(|a| a.agent == agent && a.task == task);
    found
        .next()
        .unwrap_or_else(|| panic!("{agent} has no record of {task}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_says_what_its_tests_say_by_hand() {
    let Some(interpreter) = tools() else { return };
    let place = Place::new();
    others(&place.path("theirs"));
    let recipe = recipe("t", &[("theirs", foreign(&place.path("theirs")))]);
    let setup = setup(&place, "run", place.bench(), recipe, &interpreter);
    let evaluation = run(&setup).await.unwrap();
    let (mut compared, mut passed) = (0, 0);
    let bench = place.path("bench/data");
    for index in 1..=22 {
        let index = index.to_string();
        let attempt = of(&evaluation, "theirs", &index);
        assert_eq!(attempt.outcome, Outcome::Ran, "{index}");
        let theirs = by_hand(
            &bench.join("unit_test/tests.py"),
            &bench,
            &place.path("theirs"),
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
    let read = Evaluation::read(&place.path("run").join(RESULTS)).unwrap();
    assert_eq!(read, evaluation);
}

/// The same with the true benchmark: what our solutions leave, graded as another system's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_says_what_its_true_tests_say_by_hand() {
    let Some(interpreter) = tools() else { return };
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let upstream = match find(None, Path::new("/nowhere"), Some(&project)) {
        Ok(upstream) if upstream.tests().is_some() => upstream,
        Ok(_) => {
            return eprintln!("skipped: PYBENCH_UPSTREAM names no checkout with upstream's tests");
        }
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let tests = upstream.tests().unwrap().path.clone();
    let data = upstream
        .task_file()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let place = Place::new();
    let bench = Bench::new(upstream).unwrap();
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
    let made = setup(&place, "made", bench.clone(), first.clone(), &interpreter);
    run(&made).await.unwrap();
    drop(made);
    let (mut compared, mut passed) = (0, 0);
    for agent in ["reference", "do-nothing"] {
        let left = place.path("made/upstream").join(agent);
        let mut second = recipe("second", &[("theirs", foreign(&left))]);
        second.tasks = first.tasks.clone();
        second.perturb = false;
        let setup = setup(
            &place,
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

/// Tasks without inputs need nothing but our task files.
const ALONE: [u32; 5] = [115, 134, 135, 136, 138];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_strict_score_proves_itself() {
    let Some(interpreter) = tools() else { return };
    let place = Place::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": format!("a prompt for task {index}"), "file_paths": []}))
        .collect();
    fs::write(
        place.path("bench/data/meta/task.json"),
        json!(rows).to_string(),
    )
    .unwrap();
    let bench = Bench::new(Upstream::open(&place.path("bench")).unwrap()).unwrap();
    let specs: Vec<_> = ALONE
        .iter()
        .map(|index| bench.specs[index].clone())
        .collect();
    assert!(specs.iter().all(|spec| bench.ready(spec) == Ready::Yes));
    let folder = Arc::new(RunFolder::open(&place.path("audit"), "").unwrap());
    let options = ExecutorOptions {
        concurrency: 2,
        ..ExecutorOptions::default()
    };
    let executor = LocalExecutor::new(
        folder.clone(),
        options,
        Progress::hidden(),
        Interrupt::new(),
    );
    let work = || Audit {
        bench: bench.clone(),
        folder: folder.clone(),
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter: interpreter.clone(),
        changes: Changes {
            seed: 7,
            perturb: true,
            regenerate: false,
        },
        quick: false,
    };
    let rows = audit(work(), &specs, &executor, |_| ()).await.unwrap();
    assert!(
        rows.iter().all(|row| row.holds()),
        "{}\n{}",
        summary(&rows),
        markdown(&rows)
    );
    let nulls = rows.iter().map(|row| row.proof.as_ref().unwrap().nulls);
    assert!(
        nulls.min() >= Some(8),
        "the checker's own and the five agents"
    );
    let again = audit(work(), &specs, &executor, |_| {
        panic!("nothing is done twice")
    })
    .await
    .unwrap();
    assert_eq!(again, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_anywhere_the_records_are_equal() {
    let Some(interpreter) = tools() else { return };
    let place = Place::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| json!({"index": index.to_string(), "user": "q", "file_paths": []}))
        .collect();
    fs::write(
        place.path("bench/data/meta/task.json"),
        json!(rows).to_string(),
    )
    .unwrap();
    let tests: String = ALONE.iter().fold(String::new(), |mut text, index| {
        let _ = writeln!(
            text,
            "def test_task_{index}(trajectory):\n    assert trajectory[-1]['content']\n"
        );
        text
    });
    fs::write(place.path("bench/data/unit_test/tests.py"), tests).unwrap();
    let bench = Bench::new(Upstream::open(&place.path("bench")).unwrap()).unwrap();
    let mut recipe = recipe(
        "t",
        &[
            ("reference", script(Script::Reference)),
            ("echo", script(Script::Echo)),
        ],
    );
    recipe.tasks = Some("115,134-136,138".to_owned());
    let setup = |folder: &str| setup(&place, folder, bench.clone(), recipe.clone(), &interpreter);
    let whole = untimed(run(&setup("whole")).await.unwrap());
    assert_eq!(
        whole
            .attempts
            .iter()
            .filter(|a| a.agent == "reference" && a.scores.strict == Some(true))
            .count(),
        5
    );
    assert!(
        whole
            .attempts
            .iter()
            .filter(|a| a.agent == "echo")
            .all(|a| a.scores.strict == Some(false))
    );
    let mut interrupted = 0;
    for delay in [50, 200, 400, 800, 1600] {
        let setup = setup("parts");
        let interrupt = setup.interrupt.clone();
        let alarm = tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
            interrupt.raise();
            interrupt.raise();
        });
        match run(&setup).await {
            Err(RunError::Interrupted) => interrupted += 1,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
        alarm.abort();
    }
    assert!(interrupted > 0, "nothing was interrupted");
    assert_eq!(untimed(run(&setup("parts")).await.unwrap()), whole);
}

/// Wall time is the one thing that differs.
fn untimed(mut evaluation: Evaluation) -> Evaluation {
    evaluation
        .attempts
        .iter_mut()
        .for_each(|attempt| attempt.seconds = 0.0);
    evaluation
}

/// What could hurt whoever grades it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_trajectories_are_graded_within_limits() {
    let Some(interpreter) = tools() else { return };
    let place = Place::new();
    let theirs = place.path("theirs");
    others(&theirs);
    let make = r#"
import os, pickle
class Bomb:
    def __reduce__(self):
        return (os.system, ("touch /tmp/pybench-eval-bomb; kill -9 $PPID",))
pickle.dump(Bomb(), open("output/8.pkl", "wb"))
from PIL import Image
Image.new("1", (10000, 10000), 1).save("output/4.png")
with open("output/2.csv", "wb") as file:
    file.truncate(1 << 30)
os.unlink("output/12.png"); os.symlink("/etc/passwd", "output/12.png")
os.mkfifo("output/14_pipe.csv")
"#;
    let made = Command::new(environment_python().unwrap())
        .args(["-c", make])
        .current_dir(&theirs)
        .output();
    assert!(made.unwrap().status.success());
    let recipe = recipe("t", &[("theirs", foreign(&theirs))]);
    let setup = setup(&place, "run", place.bench(), recipe, &interpreter);
    let evaluation = run(&setup).await.unwrap();
    let score = |task: &str| of(&evaluation, "theirs", task).scores.upstream;
    assert_eq!(score("1"), Some(true), "an answer with control characters");
    assert_eq!(score("2"), Some(false), "a table of a gibibyte is left out");
    assert_eq!(
        score("4"),
        Some(false),
        "a large picture is opened within limits"
    );
    assert_eq!(score("12"), Some(false), "a link is not followed");
    assert_eq!(score("14"), Some(true), "a pipe beside it hurts nobody");
    assert!(score("8").is_some() || !of(&evaluation, "theirs", "8").ran());
    assert!(
        !Path::new("/tmp/pybench-eval-bomb").exists(),
        "a pickle reached the host"
    );
    let links = of(&evaluation, "theirs", "12").outputs.len();
    assert_eq!(links, 0);
}
