//! `pybench-verify` on rows whose code a language model wrote: the replies in upstream's `trajectory.jsonl`, said
//! again word for word to sessions of ours with the benchmark's files. Needs `PYBENCH_TRAJECTORIES`, that file, and the
//! benchmark in `PYBENCH_DATA` or `../shared/pybench`; nothing of either is kept.

mod support;
#[path = "../../tests/support/task.rs"]
mod task;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use pybench::agent::PybenchFormat;
use pybench::id::Digest;
use pybench::interpreter::SessionSpec;
use pybench::llm::{ChatRequest, Price, Reply, Teacher, TeacherError};
use pybench::run::{InterpreterChoice, Rollout, RunFolder, Stage as _};
use pybench::task::{FileKind, Task, TaskFile};
use pybench::trajectory::{Message, Role, Trajectory, Verdict};
use pybench_datasets::Row;
use pybench_datasets::row::file_kind;
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::shards::{self, ShardSettings};
use pybench_pipelines::rollout::{Crew, RolloutStage};
use serde::Deserialize;
use serde_json::Value;
use support::place::interpreter_is_here;

/// A line of upstream's file, as far as it is needed.
#[derive(Deserialize)]
struct Line {
    user: String,
    file_paths: Vec<String>,
    messages: Vec<Message>,
}

/// Where trajectories and files lie, if they do.
fn recorded() -> Option<(PathBuf, PathBuf)> {
    let Some(lines) = std::env::var_os("PYBENCH_TRAJECTORIES") else {
        eprintln!("SKIPPED: PYBENCH_TRAJECTORIES does not name upstream's trajectory.jsonl");
        return None;
    };
    let named = std::env::var_os("PYBENCH_DATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/pybench");
    let data = named.unwrap_or(beside);
    if !data.join("data").is_dir() {
        eprintln!("SKIPPED: no benchmark in {}", data.display());
        return None;
    }
    Some((lines.into(), data))
}

/// Says to each query what was said to it.
struct Recorded(HashMap<String, Vec<String>>);

#[async_trait]
impl Teacher for Recorded {
    fn name(&self) -> &str {
        "recorded"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let said = request.messages.iter();
        let said = said.filter(|message| message.role == Role::Assistant);
        let next = self.0[&request.task.query].get(said.count());
        Ok(Reply {
            content: next.cloned().unwrap_or_else(|| "Finished: \n-".to_owned()),
            usage: Default::default(),
            truncated: false,
            fault: None,
        })
    }
}

/// The task, where all of its files are here.
fn task(line: &Line, data: &Path, folder: &RunFolder) -> Option<Task> {
    let file = |path: &String| {
        let bytes = fs::read(data.join(path.trim_start_matches("./"))).ok()?;
        let extension = Path::new(path).extension().and_then(OsStr::to_str)?;
        Some(TaskFile {
            name: path.strip_prefix("./data/")?.to_owned(),
            id: folder.store().put(&bytes).unwrap(),
            kind: file_kind(extension).unwrap_or(FileKind::Txt),
            origin: path.clone(),
            licence: None,
        })
    };
    let files: Option<Vec<_>> = line.file_paths.iter().map(file).collect();
    let mut task = Task {
        query: line.user.clone(),
        files: files?,
        ..task::task()
    };
    task.id = task.compute_id();
    Some(task)
}

/// What our sessions show and keep when these replies are said again.
async fn rows(lines: &[Line], data: &Path, folder: Arc<RunFolder>) -> Vec<Row> {
    let replies = |line: &Line| {
        let replies = line.messages.iter().filter(|m| m.role == Role::Assistant);
        replies.map(|message| message.content.clone()).collect()
    };
    let teacher = Recorded(lines.iter().map(|l| (l.user.clone(), replies(l))).collect());
    let tasks = lines.iter().filter_map(|line| task(line, data, &folder));
    let tasks: BTreeMap<Digest, Arc<Task>> = tasks
        .map(|task| (task.id.clone(), Arc::new(task)))
        .collect();
    let choice = InterpreterChoice::default();
    let crew = Crew {
        how: Rollout {
            max_turns: 12,
            ..Rollout::default()
        },
        session: SessionSpec {
            limits: choice.limits.clone(),
            ..SessionSpec::default()
        },
        format: &PybenchFormat,
        teacher: Arc::new(teacher),
        mix: Vec::new(),
        stronger: Vec::new(),
        seed: 0,
        interpreter: pybench::interpreter::interpreter(&choice).unwrap(),
    };
    let stage = RolloutStage::with(folder.clone(), tasks.values().cloned().collect(), crew);
    let items = stage.items();
    let tries = items.iter().map(|item| stage.run(item));
    let made = futures::stream::iter(tries).buffered(2).map(|made| {
        let trajectory: Trajectory = serde_json::from_value(made.unwrap()).unwrap();
        let verdict = Verdict {
            trajectory: trajectory.id.clone(),
            findings: Vec::new(),
            accepted: true,
            opinion: None,
            checker: String::new(),
        };
        let row = Row::new(&tasks[&trajectory.task], &trajectory, &verdict).in_interpreter(&choice);
        let mut row = row.with_contents(|id| folder.store().get(id).ok());
        Scrubber::of_machine().row(&mut row);
        row
    });
    made.collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_recorded_model_are_the_same_again_or_differ_for_a_stated_reason() {
    let Some((path, data)) = recorded() else {
        return;
    };
    if !interpreter_is_here() {
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(RunFolder::open(&place.path().join("run"), "name = 't'\n").unwrap());
    let rows = rows(&lines, &data, folder.clone()).await;
    let dataset = place.path().join("dataset");
    fs::create_dir_all(dataset.join("data")).unwrap();
    shards::write(
        &dataset.join("data"),
        "train",
        &rows,
        &ShardSettings::default(),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pybench-verify"))
        .arg(&dataset)
        .args(["--json", "--offline", "--no-stamp", "--files"])
        .arg(folder.root().join("files"))
        .arg("--state")
        .arg(place.path().join("state"))
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells: usize = rows.iter().map(|row| row.cells.len()).sum();
    println!(
        "{} of {} trajectories have their files: {cells} cells",
        rows.len(),
        lines.len()
    );
    println!("{report:#}");
    let identical = report["identical"].as_u64().unwrap() as usize;
    let stated = report["differing"].as_object().unwrap().len();
    assert_eq!(identical + stated, rows.len());
    assert!(identical * 100 >= rows.len() * 95);
}
