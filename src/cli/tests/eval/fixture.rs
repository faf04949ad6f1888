//! A small benchmark made for these tests, and trajectories and outputs of another system for it.

#![allow(unreachable_pub)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_eval::agent::Script;
use pybench_eval::record::{Attempt, Evaluation};
use pybench_eval::run::{AgentChoice, EvalRecipe, Setup};
use pybench_eval::suites::pybench::upstream::Upstream;
use pybench_eval::suites::pybench::{PyBench, SUITE, spec};
use pybench_interpreter::{Interpreter, environment_python};
use pybench_run::{ExecutorOptions, Interrupt, Progress, RunFolder};
use serde_json::{Value, json};

/// A replacement for upstream's tests with the same interface: `test_task_N(trajectory)`.
pub const TESTS: &str = r#"
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
pub const TASKS: u32 = 23;

/// A folder with the layout of upstream's repository and the tests above.
pub struct SuiteFixture {
    pub root: tempfile::TempDir,
}

impl SuiteFixture {
    pub fn new() -> Self {
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

    pub fn bench(&self) -> PyBench {
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
        PyBench {
            name: SUITE,
            specs: Arc::new(spec::load(texts).unwrap()),
            upstream: Arc::new(Upstream::open(&self.root.path().join("bench")).unwrap()),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

pub fn tools() -> Option<Arc<dyn Interpreter>> {
    pybench_testing::sessions::default_interpreter()
}

pub fn setup(
    fixture: &SuiteFixture,
    folder: &str,
    bench: PyBench,
    recipe: EvalRecipe,
    interpreter: &Arc<dyn Interpreter>,
) -> Setup {
    let frozen = recipe.to_toml().unwrap();
    Setup {
        folder: Arc::new(RunFolder::open(&fixture.path(folder), &frozen).unwrap()),
        recipe,
        suites: vec![Arc::new(bench)],
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter: interpreter.clone(),
        options: ExecutorOptions {
            concurrency: Some(2),
            ..ExecutorOptions::default()
        },
        progress: Progress::hidden(),
        interrupt: Interrupt::new(),
        project_root: fixture.root.path().to_owned(),
    }
}

pub fn recipe(name: &str, agents: &[(&str, AgentChoice)]) -> EvalRecipe {
    let agents = agents
        .iter()
        .map(|(label, choice)| ((*label).to_owned(), choice.clone()));
    EvalRecipe::new(name, agents.collect::<BTreeMap<_, _>>())
}

pub fn foreign(path: &Path) -> AgentChoice {
    AgentChoice::Trajectories {
        path: path.to_owned(),
        outputs: None,
    }
}

pub fn script(script: Script) -> AgentChoice {
    AgentChoice::Script { script }
}

/// Writes the files of another system: a trajectory for every task but the last, and one shared `output/`.
pub fn others(folder: &Path) {
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

pub fn of<'a>(evaluation: &'a Evaluation, agent: &str, task: &str) -> &'a Attempt {
    let mut found = evaluation
        .attempts
        .iter()
        .filter(|a| a.agent == agent && a.task == task);
    found
        .next()
        .unwrap_or_else(|| panic!("{agent} has no record of {task}"))
}

/// PyBench tasks without inputs, which need only our task files.
pub const ALONE: [u32; 5] = [115, 134, 135, 136, 138];
