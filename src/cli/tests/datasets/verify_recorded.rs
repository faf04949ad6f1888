//! `pybench verify` on rows whose code was written by a language model: the replies in upstream's `trajectory.jsonl` are
//! replayed in our sessions with the benchmark's files. Needs `PYBENCH_TRAJECTORIES` (that file), and the benchmark in
//! `PYBENCH_DATA` or `../shared/pybench`.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::fixture::interpreter_is_here;
use async_trait::async_trait;
use futures::StreamExt as _;
use pybench_agent::{PybenchFormat, Solver};
use pybench_attempts::{AttemptStage, RolloutConfig};
use pybench_datasets::Row;
use pybench_datasets::row::file_kind;
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::shards::{self, ShardSettings};
use pybench_interpreter::InterpreterChoice;
use pybench_interpreter::SessionSpec;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::Price;
use pybench_run::{Rollout, RunFolder, Stage as _};
use pybench_testing::skip;
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, Task, TaskFile};
use pybench_types::trajectory::{Message, Role, Trajectory, Verdict};
use serde::Deserialize;
use serde_json::Value;

/// The required fields of a line in upstream's file.
#[derive(Deserialize)]
struct Line {
    user: String,
    file_paths: Vec<String>,
    messages: Vec<Message>,
}

/// Paths of the trajectories and of the benchmark, if they are available.
fn recorded() -> Option<(PathBuf, PathBuf)> {
    let Some(lines) = std::env::var_os("PYBENCH_TRAJECTORIES") else {
        skip::unavailable("PYBENCH_TRAJECTORIES does not name upstream's trajectory.jsonl");
        return None;
    };
    let data = pybench_testing::benchmark::pybench_data()?;
    Some((lines.into(), data.parent()?.to_owned()))
}

/// A model that returns the recorded replies for each query.
struct Recorded(HashMap<String, Vec<String>>);

#[async_trait]
impl ChatModel for Recorded {
    fn name(&self) -> &str {
        "recorded"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let said = request.messages.iter();
        let said = said.filter(|message| message.role == Role::Assistant);
        let query = request.messages.iter().find_map(|m| self.0.get(&m.content));
        let next = query.expect("a recorded query").get(said.count());
        Ok(Reply {
            content: next.cloned().unwrap_or_else(|| "Finished: \n-".to_owned()),
            usage: Default::default(),
            truncated: false,
            repetition: false,
        })
    }
}

/// The task, if all of its files are available.
fn task(line: &Line, data: &Path, folder: &RunFolder) -> Option<Task> {
    let file = |path: &String| {
        let bytes = fs::read(data.join(path.trim_start_matches("./"))).ok()?;
        let extension = Path::new(path).extension().and_then(OsStr::to_str)?;
        Some(TaskFile {
            name: path.strip_prefix("./data/")?.to_owned(),
            id: folder.store().put(&bytes).unwrap(),
            kind: file_kind(extension).unwrap_or(FileKind::Txt),
            origin: path.clone(),
            license: None,
            derived_from: None,
            format: None,
        })
    };
    let files: Option<Vec<_>> = line.file_paths.iter().map(file).collect();
    let mut task = Task {
        query: line.user.clone(),
        files: files?,
        ..pybench_testing::task::task()
    };
    task.id = task.compute_id();
    Some(task)
}

/// Rows made by replaying the recorded replies in our sessions.
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
    let crew = RolloutConfig {
        rollout: Rollout {
            max_turns: 12,
            ..Rollout::default()
        },
        session: SessionSpec {
            limits: choice.limits.clone(),
            ..SessionSpec::default()
        },
        format: &PybenchFormat,
        teacher: Solver::Model(Arc::new(teacher)),
        teacher_mix: Vec::new(),
        escalation: Vec::new(),
        seed: 0,
        interpreter: pybench_interpreter_containers::interpreter(&choice).unwrap(),
        feedback: None,
    };
    let all: Vec<_> = tasks.values().cloned().collect();
    let stage = AttemptStage::from_config(folder.clone(), all, crew);
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
        let mut row = row.with_contents(|id| folder.store().get(id)).unwrap();
        Scrubber::of_machine().row(&mut row);
        row
    });
    made.collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_rows_are_identical_or_differ_for_a_stated_reason() {
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
    let fixture = tempfile::tempdir().unwrap();
    let folder = Arc::new(RunFolder::open(&fixture.path().join("run"), "name = 't'\n").unwrap());
    let rows = rows(&lines, &data, folder.clone()).await;
    let dataset = fixture.path().join("dataset");
    fs::create_dir_all(dataset.join("data")).unwrap();
    shards::write(
        &dataset.join("data"),
        "train",
        &rows,
        &ShardSettings::default(),
    )
    .unwrap();
    let output = crate::support::pybench("verify")
        .arg(&dataset)
        .args(["--json", "--offline", "--no-stamp", "--files"])
        .arg(folder.root().join("files"))
        .arg("--state")
        .arg(fixture.path().join("state"))
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
