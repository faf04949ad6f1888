//! What tests of the interpreter share.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use pybench_interpreter::Tier;
use pybench_interpreter::{
    Collected, Interpreter, InterpreterError, Limits, LocalInterpreter, Session, SessionSpec,
};
use pybench_types::observation::{Observation, Output};

/// The machine's interpreter; `None`, with a printed reason, where there is none.
pub fn interpreter() -> Option<Arc<dyn Interpreter>> {
    interpreter_of(Tier::Jail)
}

/// One interpreter per tier and process; `None`, with a printed reason, where it cannot run.
pub fn interpreter_of(tier: Tier) -> Option<Arc<dyn Interpreter>> {
    static JAIL: OnceLock<Found> = OnceLock::new();
    static BWRAP: OnceLock<Found> = OnceLock::new();
    static NONE: OnceLock<Found> = OnceLock::new();
    static GVISOR: OnceLock<Found> = OnceLock::new();
    let (cell, made): (_, fn() -> Result<LocalInterpreter, InterpreterError>) = match tier {
        Tier::Jail => (&JAIL, LocalInterpreter::jail),
        Tier::Bwrap => (&BWRAP, LocalInterpreter::bwrap),
        Tier::Gvisor => (&GVISOR, pybench_interpreter_containers::gvisor),
        Tier::Docker | Tier::Podman | Tier::Kubernetes => panic!("see containers.rs"),
        Tier::Unsandboxed => (&NONE, LocalInterpreter::unsandboxed),
    };
    let make = || made().map(|interpreter| Arc::new(interpreter) as Arc<dyn Interpreter>);
    once(cell, make)
}

/// The interpreter of a recipe that names none, one per process; `None`, with a printed reason, where there is
/// none.
pub fn default_interpreter() -> Option<Arc<dyn Interpreter>> {
    static DEFAULT: OnceLock<Found> = OnceLock::new();
    once(&DEFAULT, || {
        pybench_interpreter_containers::interpreter(&Default::default())
    })
}

/// Whether programs that a test starts would have that interpreter; prints why not.
pub fn default_interpreter_works() -> bool {
    static WORKS: OnceLock<Result<(), String>> = OnceLock::new();
    let works = WORKS.get_or_init(|| {
        let made = pybench_interpreter_containers::interpreter(&Default::default());
        made.map(drop).map_err(|error| error.to_string())
    });
    works.as_ref().map_err(crate::skip::missing_tool).is_ok()
}

type Found = Result<Arc<dyn Interpreter>, String>;

fn once(
    cell: &OnceLock<Found>,
    make: impl FnOnce() -> Result<Arc<dyn Interpreter>, InterpreterError>,
) -> Option<Arc<dyn Interpreter>> {
    let found = cell.get_or_init(|| match make() {
        Ok(interpreter) => Ok(interpreter),
        Err(InterpreterError::Unavailable(reason)) => Err(reason),
        Err(error) => panic!("{error}"),
    });
    found.clone().map_err(crate::skip::missing_tool).ok()
}

/// The tier that a module of cases runs in, by the module's own name.
pub fn tier_of(module: &str) -> Tier {
    let is = |name| module.split("::").any(|part| part == name);
    match (is("bwrap"), is("gvisor")) {
        (true, _) => Tier::Bwrap,
        (_, true) => Tier::Gvisor,
        _ => Tier::Jail,
    }
}

/// A session with a few shorthands.
pub struct Live {
    pub inner: Box<dyn Session>,
}

pub async fn start_in(tier: Tier, spec: SessionSpec) -> Option<Live> {
    let interpreter = interpreter_of(tier)?;
    let inner = interpreter.start(spec).await.unwrap();
    Some(Live { inner })
}

pub fn with_limits(change: impl FnOnce(&mut Limits)) -> SessionSpec {
    let mut spec = SessionSpec::default();
    change(&mut spec.limits);
    spec
}

impl Live {
    pub async fn run(&mut self, code: &str) -> Observation {
        self.inner.execute(code).await.unwrap()
    }

    pub async fn outputs(&mut self) -> Collected {
        self.inner.read_outputs().await.unwrap()
    }

    pub async fn close(self) {
        self.inner.close().await.unwrap();
    }
}

pub trait Look {
    /// Everything on one stream.
    fn text(&self, stream: &str) -> String;
    /// `text/plain` of the result; empty without one.
    fn plain(&self) -> String;
    /// What was put out, in order: stream name, `display` or `result`, and its text.
    fn brief(&self) -> Vec<(&str, &str)>;
}

impl Look for Observation {
    fn text(&self, stream: &str) -> String {
        let pieces = self.outputs.iter().filter_map(|output| match output {
            Output::Stream { name, text } if name == stream => Some(text.as_str()),
            _ => None,
        });
        pieces.collect()
    }

    fn plain(&self) -> String {
        let result = self.outputs.iter().find_map(|output| match output {
            Output::Result { data } => data.get("text/plain"),
            _ => None,
        });
        result.cloned().unwrap_or_default()
    }

    fn brief(&self) -> Vec<(&str, &str)> {
        self.outputs
            .iter()
            .filter_map(|output| match output {
                Output::Stream { name, text } => Some((name.as_str(), text.as_str())),
                Output::Display { data } => Some(("display", data.get("text/plain")?.as_str())),
                Output::Result { data } => Some(("result", data.get("text/plain")?.as_str())),
                Output::Chart { .. } => None,
            })
            .collect()
    }
}

/// A temporary folder that the sandbox's user can read.
pub fn shared_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The smallest wheel: a module `tinywheel` with `ANSWER = 42`.
pub fn make_wheel(folder: &Path) {
    let script = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/tinywheel-1.0-py3-none-any.whl", "w") as wheel:
    info = "tinywheel-1.0.dist-info/"
    files = {"tinywheel.py": "ANSWER = 42\n", info + "METADATA": "Metadata-Version: 2.1\nName: tinywheel\nVersion: 1.0\n",
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    for name, text in files.items():
        wheel.writestr(name, text)
    wheel.writestr(info + "RECORD", "".join(f"{name},,\n" for name in [*files, info + "RECORD"]))
"#;
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(folder)
        .status();
    assert!(status.unwrap().success());
}

/// All processes below one, nearest first, with their command lines.
pub fn below(root: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    let mut parents = HashSet::from([root]);
    loop {
        let before = found.len();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let read = |name| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let parent = read("stat")
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
            if parent.is_some_and(|parent| parents.contains(&parent)) && parents.insert(pid) {
                found.push((pid, read("cmdline").replace('\0', " ")));
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// What a process that ran sessions has left: processes below it, mounts, control groups, workspaces.
pub fn left(pid: u32) -> Vec<String> {
    let mine = format!("{pid}-");
    let below = below(pid).into_iter().map(|(_, command)| command);
    let mut left: Vec<String> = below.collect();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_mine = |line: &&str| line.contains(&format!("sessions/{mine}"));
    left.extend(mounts.lines().filter(of_mine).map(str::to_owned));
    let groups = mounts.lines().filter(|line| line.contains("cgroup"));
    let mut folders: Vec<(String, String)> = groups
        .filter_map(|line| {
            Some((
                line.split(' ').nth(4)?.to_owned(),
                format!("pybench-{mine}"),
            ))
        })
        .collect();
    let cache = std::env::var("PYBENCH_CACHE").unwrap_or("/var/cache/pybench".to_owned());
    folders.push((format!("{cache}/sessions"), mine));
    for (folder, prefix) in folders {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_mine = names.filter(|name| name.starts_with(&prefix));
        left.extend(of_mine.map(|name| format!("{folder}/{name}")));
    }
    left
}
