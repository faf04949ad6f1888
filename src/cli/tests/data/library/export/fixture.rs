//! Exports made once, and a folder that stands in for Harbor's container.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use pybench_interpreter::environment_python;
use pybench_run::ExitCode;
use pybench_testing::sessions::default_interpreter_works as interpreter_is_here;
use serde_json::{Value, json};
use tempfile::TempDir;

/// One of each way in which a check comes to its verdict: tables, pixels, recorded charts and clouds, models
/// and programs of the agent.
pub(crate) const TEMPLATES: &str =
    "cli-text-filter,csv-group-mean,image-steps,model-price,plot-bar-mean,word-cloud";

/// `pybench-library`, in the project.
pub(crate) fn library(args: &[&str]) -> Command {
    let mut command = crate::support::pybench("library");
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// The sandbox's Python; `None`, with the reason printed, where no session can be had.
pub(crate) fn python() -> Option<PathBuf> {
    if !interpreter_is_here() {
        return None;
    }
    environment_python()
        .map_err(pybench_testing::skip::missing_tool)
        .ok()
}

/// The tasks of [`TEMPLATES`] in that format, exported once.
pub(crate) fn exported(format: &'static str) -> Option<&'static Path> {
    static HARBOR: OnceLock<PathBuf> = OnceLock::new();
    static VERIFIERS: OnceLock<PathBuf> = OnceLock::new();
    python()?;
    let cell = if format == "harbor" {
        &HARBOR
    } else {
        &VERIFIERS
    };
    Some(cell.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("library-export/{format}"));
        let _ = fs::remove_dir_all(&out);
        let output = export(format, &out, &["--templates", TEMPLATES, "--seed", "3"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("6 of 6 tasks are in"), "{said}");
        out
    }))
}

pub(crate) fn export(format: &str, out: &Path, more: &[&str]) -> Output {
    let out = out.to_str().unwrap();
    let mut command = library(&["export", "--format", format, "--out", out]);
    command.args(more).output().unwrap()
}

/// Exports a task of every template for Harbor. A template may find no fitting task with these files and seeds; the
/// warnings, which are printed, name it.
pub(crate) fn export_every_template(out: &Path) {
    let output = export("harbor", out, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    let codes = [ExitCode::Success as i32, ExitCode::Incomplete as i32];
    assert!(codes.contains(&output.status.code().unwrap()), "{said}");
    eprintln!("{said}");
}

/// The task folders of an export, sorted.
pub(crate) fn tasks(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out).unwrap();
    let mut tasks: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    tasks.sort();
    tasks
}

/// What a container would hold: `/app` with the task's files, and `/logs`.
pub(crate) struct Container {
    folder: TempDir,
    task: PathBuf,
}

impl Container {
    pub(crate) fn new(task: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("app/data");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(folder.path().join("app/output")).unwrap();
        let given = task.join("environment/data");
        for file in given.read_dir().into_iter().flatten().flatten() {
            fs::copy(file.path(), data.join(file.file_name())).unwrap();
        }
        let task = task.to_owned();
        Self { folder, task }
    }

    pub(crate) fn app(&self) -> PathBuf {
        self.folder.path().join("app")
    }

    /// Runs a script of the task as the image would: its Python, its environment, its recorder of charts.
    fn run(&self, script: &str) -> Output {
        let bin = python().unwrap().parent().unwrap().to_owned();
        let mut command = Command::new(self.task.join(script));
        command
            .current_dir(self.app())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("HOME", self.folder.path())
            .env("PYTHONPATH", self.task.join("environment/record"))
            .env("PYBENCH_APP", self.app())
            .env("PYBENCH_LOGS", self.folder.path().join("logs"))
            .envs([("MPLBACKEND", "Agg"), ("PYTHONHASHSEED", "0")])
            // Tests share the exported folder, and one compares the list of its files.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs([("LANG", "C.UTF-8"), ("TZ", "UTC")]);
        command.output().unwrap()
    }

    /// The expert's solution.
    pub(crate) fn solve(&self) {
        let output = self.run("solution/solve.sh");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", self.task.display());
    }

    /// The verifier: what it wrote as reward, if it did, and what it printed.
    pub(crate) fn verify(&self) -> (Option<String>, String) {
        let output = self.run("tests/test.sh");
        let reward = fs::read_to_string(self.folder.path().join("logs/reward.txt"));
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(reward.is_ok(), output.status.success(), "{said}");
        (reward.ok().map(|text| text.trim().to_owned()), said)
    }

    /// What lies in it, as the reward service is asked.
    pub(crate) fn request(&self) -> Value {
        use base64::Engine as _;
        let mut files = Vec::new();
        for path in files_below(&self.app().join("output")) {
            let bytes = fs::read(self.app().join("output").join(&path)).unwrap();
            let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
            files.push(json!({"path": format!("output/{path}"), "base64": base64}));
        }
        let claims = fs::read_to_string(self.app().join(".charts.jsonl")).unwrap_or_default();
        let claims = claims
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        json!({
            "task": key(&self.task),
            "answer": fs::read_to_string(self.app().join("answer.txt")).unwrap_or_default(),
            "files": files,
            "claims": claims.collect::<Vec<Value>>(),
        })
    }
}

/// Template, language and seed of a task folder.
pub(crate) fn key(task: &Path) -> Value {
    let metadata = &settings(task)["metadata"];
    let seed: u64 = metadata["seed"].as_str().unwrap().parse().unwrap();
    json!({
        "template": metadata["template"].as_str().unwrap(),
        "language": metadata["language"].as_str().unwrap(),
        "seed": seed,
    })
}

pub(crate) fn settings(task: &Path) -> toml::Table {
    let text = fs::read_to_string(task.join("task.toml")).unwrap();
    text.parse().unwrap()
}

/// Paths of the files below a folder, sorted.
pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name().to_str().unwrap().to_owned();
        match entry.path().is_dir() {
            true => found.extend(
                files_below(&entry.path())
                    .into_iter()
                    .map(|below| format!("{name}/{below}")),
            ),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

/// A program that serves until it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    /// Starts it; its first line ends with the address.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{line:?}");
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
