//! A project folder with a small recipe, its tasks written, ready for `pybench-rollout`.

#![allow(dead_code, unreachable_pub)] // each test binary uses a part of it

use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use image::{ImageFormat, Rgb, RgbImage};
use pybench_agent as agent;
use pybench_agent::ScriptedSolver as _;
use pybench_library::{Expert, Library};
use pybench_query as query;
use pybench_run::{FormatChoice, Journal, Recipe, RunContext, RunFolder, Spent, Unit};
use pybench_types::task::{FileKind, ImageProfile, Profile, SourceFile, Task};
use pybench_types::trajectory::{Message, Trajectory};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::endpoint::{Answer, Endpoint};

/// A temporary project with the run folder `data/runs/t`.
pub struct RunFixture {
    root: tempfile::TempDir,
    pub recipe: Recipe,
    pub tasks: Vec<Task>,
}

/// A recipe of `tasks` light tasks, half of them on a picture; `rest` holds `[rollout]` and so on.
pub fn recipe(tasks: usize, teacher: &str, rest: &str) -> String {
    format!(
        "name = 't'\nseed = 7\nteacher = {teacher}\n\n[crawl]\nsources = []\n\n[query]\ntasks = {tasks}\n\
         template_share = 0.5\nkeywords = ['rotate image', 'derivative', 'integral']\n\n{rest}"
    )
}

/// The teacher at an endpoint on this machine that costs nothing.
pub fn openai(base_url: &str, more: &str) -> String {
    format!("{{ kind = 'openai', model = 'm', base_url = '{base_url}'{more} }}")
}

/// Numbers of the pictures.
const PICTURES: std::ops::RangeInclusive<u32> = 1..=3;

pub const FREE: &str = ", price = { prompt = 0.0, completion = 0.0 }";

impl RunFixture {
    /// With the files crawled and the tasks written.
    pub async fn new(text: &str) -> Self {
        let mut fixture = Self::bare(text);
        let context = fixture.context();
        write_files(&context.folder);
        query::run(&context).await.unwrap();
        fixture.tasks = fixture.lines("tasks.jsonl");
        fixture
    }

    /// With the recipe alone, and in `files/` what it may crawl.
    pub fn bare(text: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("t.toml"), text).unwrap();
        std::fs::create_dir(root.path().join("files")).unwrap();
        for n in PICTURES {
            let path = root.path().join(format!("files/picture{n}.png"));
            std::fs::write(path, picture_bytes(n)).unwrap();
        }
        Self {
            root,
            recipe: Recipe::parse("t.toml", text, &[]).unwrap(),
            tasks: Vec::new(),
        }
    }

    /// A project of its own with the same files. No process may work on this one.
    pub fn copy(&self) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut copy = Command::new("cp");
        let from = self.root.path().join(".");
        copy.arg("-a").arg(from).arg(root.path());
        assert!(copy.status().unwrap().success());
        Self {
            root,
            recipe: self.recipe.clone(),
            tasks: self.tasks.clone(),
        }
    }

    /// One more file that may be crawled.
    pub fn add(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path("files").join(name), bytes).unwrap();
    }

    /// A path in the project.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn folder(&self) -> PathBuf {
        self.root.path().join("data/runs/t")
    }

    /// Opens the run folder in this process; nobody else may hold it.
    pub fn context(&self) -> RunContext {
        let frozen = self.recipe.to_toml().unwrap();
        let folder = RunFolder::open(&self.folder(), &frozen).unwrap();
        RunContext {
            project_root: self.root.path().into(),
            ..RunContext::new(Arc::new(folder), self.recipe.clone())
        }
    }

    /// `pybench rollout t.toml` in the project.
    pub fn rollout(&self, args: &[&str]) -> Command {
        self.program("rollout", args)
    }

    /// That command with `t.toml` in the project.
    pub fn program(&self, command: &str, args: &[&str]) -> Command {
        let mut command = super::pybench(command);
        command.arg("t.toml").args(args);
        command.args(["--runs-dir", "data/runs"]);
        command
            .current_dir(self.root.path())
            .env_remove("PYBENCH_ROOT");
        command
    }

    pub fn journal(&self) -> Journal {
        Journal::open_read_only(&self.folder().join("journal.sqlite")).unwrap()
    }

    pub fn units(&self) -> Vec<Unit> {
        self.journal().units("rollout").unwrap()
    }

    pub fn spent(&self) -> Spent {
        self.journal().spent().unwrap()
    }

    /// What calls in that state cost, in millionths of a dollar.
    pub fn cost(&self, state: &str) -> u64 {
        let journal = self.folder().join("journal.sqlite");
        let journal = rusqlite::Connection::open(journal).unwrap();
        let sum = "SELECT coalesce(sum(micro_usd), 0) FROM call WHERE state = ?1";
        journal.query_row(sum, [state], |row| row.get(0)).unwrap()
    }

    /// The artifact, byte by byte.
    pub fn artifact(&self) -> String {
        std::fs::read_to_string(self.folder().join("trajectories.jsonl")).unwrap()
    }

    pub fn trajectories(&self) -> Vec<Trajectory> {
        self.lines("trajectories.jsonl")
    }

    /// An artifact of the run, a value per line.
    pub fn lines<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        let text = std::fs::read_to_string(self.folder().join(name)).unwrap();
        let values = text.lines().map(serde_json::from_str);
        values.collect::<Result<_, _>>().unwrap()
    }
}

/// Three pictures without any symmetry.
fn write_files(folder: &RunFolder) {
    let lines: Vec<String> = PICTURES
        .map(|n| serde_json::to_string(&picture(folder, n)).unwrap())
        .collect();
    folder
        .write("files.jsonl", lines.join("\n").as_bytes())
        .unwrap();
}

fn size(n: u32) -> (u32, u32) {
    (30 + n, 20 + n)
}

fn picture_bytes(n: u32) -> Vec<u8> {
    let (width, height) = size(n);
    let color = |x: u32, y: u32| Rgb([(x * 7) as u8, (y * 11) as u8, (x * y + n) as u8]);
    let mut bytes = Cursor::new(Vec::new());
    RgbImage::from_fn(width, height, color)
        .write_to(&mut bytes, ImageFormat::Png)
        .unwrap();
    bytes.into_inner()
}

fn picture(folder: &RunFolder, n: u32) -> SourceFile {
    let (width, height) = size(n);
    let bytes = picture_bytes(n);
    SourceFile {
        id: folder.store().put(&bytes).unwrap(),
        name: format!("picture{n}.png"),
        size: bytes.len() as u64,
        kind: FileKind::Png,
        origin: format!("picture{n}.png"),
        license: None,
        fetched: "2026-01-01T00:00:00Z".into(),
        profile: Profile::Image(ImageProfile {
            width,
            height,
            mode: "RGB".into(),
            frames: 1,
            symmetric: false,
            uniform: false,
        }),
    }
}

pub use pybench_testing::sessions::default_interpreter_works as interpreter_is_here;

pub fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// The library's expert behind HTTP: it knows a task by its query, and stops at stop sequences.
pub struct ExpertServer(Expert);

impl ExpertServer {
    pub fn new() -> Self {
        let library = Arc::new(Library::embedded().unwrap());
        Self(Expert::new(library, agent::format(FormatChoice::Pybench)))
    }

    pub fn answer(&self, tasks: &[Task], request: &Value) -> Answer {
        let messages: Vec<Message> = serde_json::from_value(request["messages"].clone()).unwrap();
        let task = find_task(tasks, &messages);
        let reply = self.0.reply(task, 0, &messages);
        let last = messages.last().map(|message| &message.content);
        let reply = reply.unwrap_or_else(|error| panic!("{error}; the last message: {last:?}"));
        let spoken = reply.split(agent::END).next();
        Answer::Content(spoken.unwrap_or_default().to_owned())
    }
}

pub fn find_task<'a>(tasks: &'a [Task], messages: &[Message]) -> &'a Task {
    let asks = |task: &&Task| messages.iter().any(|m| m.content == task.query);
    tasks.iter().find(asks).expect("a query of these tasks")
}

/// An endpoint at which the expert answers after `delay`; `tasks` come later.
pub async fn expert_endpoint(
    tasks: Arc<std::sync::OnceLock<Vec<Task>>>,
    delay: std::time::Duration,
) -> Endpoint {
    let expert = ExpertServer::new();
    let endpoint = Endpoint::start(move |request| {
        std::future::ready(expert.answer(tasks.get().unwrap(), &request))
    });
    let endpoint = endpoint.await;
    endpoint.answer_after(delay);
    endpoint
}
