//! `upstream` and `fixed`: functions `test_task_N(trajectory)`, each run in a session of its own.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::interpreter_failure;
use pybench::id::Digest;
use pybench::interpreter::{Interpreter, Limits, Observation, SessionSpec};
use pybench::run::{Failure, FailureKind, RunError, RunFolder, Stage};
use pybench::task::Task;
use pybench::trajectory::{OutputFile, Trajectory};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::eval::bench::upstream::{UnitTests, Upstream, functions};
use crate::eval::record::{MOST_SHOWN, cut};

/// Name of the stage in the journal.
pub const STAGE: &str = "unit tests";
/// What upstream's tests get wrong, repaired.
pub const REPAIRED: &str = include_str!("../../../pybench/fixed.py");
/// Folder of the session in which a test finds `./data` and `./output`.
const FOLDER: &str = "run";
/// Stands in for a package that only two tests on absent inputs use.
const NO_MUTAGEN: &str = "class MP3:\n    def __init__(self, *_):\n        raise ImportError('mutagen is not in this environment')\n";
/// Seconds that one test may take.
const SECONDS: u64 = 120;

/// What a test said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// It returned.
    pub passed: bool,
    /// What it raised, or why it was stopped; empty where it passed.
    pub detail: String,
}

/// Which of the two scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Upstream,
    Fixed,
}

/// Who reads what: the files of one test.
struct Work {
    index: u32,
    /// `tests` or `fixed`.
    module: &'static str,
    /// Path below [`FOLDER`] → host file.
    files: BTreeMap<String, PathBuf>,
}

/// Verdicts of tests; items are digests of all that a test sees, so that a test which both scores run on
/// the same files is run once.
pub struct UnitStage {
    folder: Arc<RunFolder>,
    interpreter: Arc<dyn Interpreter>,
    upstream: Arc<Upstream>,
    repaired: BTreeMap<u32, String>,
    work: HashMap<String, Work>,
}

impl UnitStage {
    /// With nothing to do yet.
    pub fn new(
        folder: Arc<RunFolder>,
        interpreter: Arc<dyn Interpreter>,
        upstream: Arc<Upstream>,
    ) -> Self {
        Self {
            folder,
            interpreter,
            upstream,
            repaired: functions(REPAIRED),
            work: HashMap::new(),
        }
    }

    /// One more attempt; its item. `beside` are outputs that the same agent left for other tasks, which
    /// upstream's tests find where they name them. `None` where no test has that number.
    ///
    /// # Errors
    /// The content store cannot be written.
    pub fn add(
        &mut self,
        kind: Kind,
        index: u32,
        task: &Task,
        trajectory: &Trajectory,
        beside: &BTreeMap<String, OutputFile>,
    ) -> Result<Option<String>, RunError> {
        let repaired = kind == Kind::Fixed && self.repaired.contains_key(&index);
        let tests = self.upstream.tests();
        let source = tests.and_then(|tests| tests.function(index));
        if source.is_none() && !repaired {
            return Ok(None);
        }
        let module = if repaired { "fixed" } else { "tests" };
        let store = self.folder.store();
        let mut seen: BTreeMap<String, Digest> = BTreeMap::new();
        if let (Kind::Upstream, Some(source)) = (kind, source) {
            for file in beside.values().filter(|file| names(source, &file.path)) {
                seen.insert(file.path.clone(), file.id.clone());
            }
            for path in named_inputs(source) {
                if let Some(Ok(bytes)) = self.upstream.bytes(&path) {
                    seen.insert(path, store.put(&bytes)?);
                }
            }
        }
        seen.extend(
            task.files
                .iter()
                .map(|file| (format!("data/{}", file.name), file.id.clone())),
        );
        seen.extend(
            trajectory
                .outputs
                .iter()
                .map(|file| (file.path.clone(), file.id.clone())),
        );
        let messages = serde_json::to_vec(&trajectory.messages)?;
        seen.insert("trajectory.json".to_owned(), store.put(&messages)?);
        for (path, text) in self.sources(module, tests) {
            seen.insert(path.to_owned(), store.put(text.as_ref())?);
        }
        let item = Digest::of_json(&(module, index, &seen, self.interpreter.environment()));
        let files = seen.into_iter().map(|(path, id)| (path, store.path(&id)));
        let work = Work {
            index,
            module,
            files: files.collect(),
        };
        self.work.insert(item.to_string(), work);
        Ok(Some(item.to_string()))
    }

    /// The Python that a test needs: (path, text).
    fn sources(&self, module: &str, tests: Option<&UnitTests>) -> Vec<(&'static str, Vec<u8>)> {
        if module == "fixed" {
            return vec![("fixed.py", REPAIRED.as_bytes().to_vec())];
        }
        let source = tests.map(|tests| std::fs::read(&tests.path).unwrap_or_default());
        vec![
            ("tests.py", source.unwrap_or_default()),
            ("absent/mutagen/__init__.py", Vec::new()),
            ("absent/mutagen/mp3.py", NO_MUTAGEN.as_bytes().to_vec()),
        ]
    }
}

/// Whether a test's source names that output.
fn names(source: &str, path: &str) -> bool {
    let rest = path.strip_prefix("output/").unwrap_or(path);
    let name = rest.split('/').next().unwrap_or(rest);
    source.contains(&format!("output/{name}"))
}

/// Inputs that a test's source names: `./data/81.jpeg`.
fn named_inputs(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("./data/") {
        let rest = &source[at + 2..];
        let end = rest.find(['"', '\'', '\n']).unwrap_or(rest.len());
        found.push(rest[..end].to_owned());
    }
    found
}

/// The cell of a test: inputs cannot be written beside, so it works in a folder of links to them. What the environment has comes before what
/// stands in for it.
fn cell(module: &str, index: u32) -> String {
    format!(
        "import json, os, sys\nos.mkdir('here')\nfor name in os.listdir({FOLDER:?}):\n    \
         os.symlink(os.path.join('..', {FOLDER:?}, name), os.path.join('here', name))\n\
         os.chdir('here')\nos.makedirs('output', exist_ok=True)\n\
         sys.path.insert(0, os.getcwd())\nsys.path.append(os.path.join(os.getcwd(), 'absent'))\n\
         import {module}\n{module}.test_task_{index}(json.load(open('trajectory.json', encoding='utf-8')))\n"
    )
}

fn verdict(seen: &Observation) -> Verdict {
    let detail = match (&seen.error, seen.stopped) {
        (_, Some(stopped)) => format!("it was stopped: {stopped:?}"),
        (Some(error), None) => format!("{}: {}", error.ename, error.evalue),
        (None, None) => String::new(),
    };
    Verdict {
        passed: detail.is_empty(),
        detail: cut(&detail, MOST_SHOWN),
    }
}

#[async_trait]
impl Stage for UnitStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let work = self.work.get(item).ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no attempt has the item {item}"),
            )
        })?;
        let files = work.files.iter();
        let spec = SessionSpec {
            inputs: files
                .map(|(path, file)| (format!("{FOLDER}/{path}"), file.clone()))
                .collect(),
            limits: Limits {
                cell_seconds: SECONDS,
                memory_mib: 4096,
                ..Limits::default()
            },
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let seen = session.execute(&cell(work.module, work.index)).await;
        session.close().await.map_err(interpreter_failure)?;
        let verdict = verdict(&seen.map_err(interpreter_failure)?);
        Ok(serde_json::to_value(verdict).map_err(RunError::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_sees_what_it_names() {
        let source = "def test_task_82(t):\n    a = \"./output/81.png\"\n    b = './data/81.jpeg'\n    c = \"./output/141\"\n";
        assert!(names(source, "output/81.png"));
        assert!(names(source, "output/141/index.html"));
        assert!(!names(source, "output/82.png"));
        assert_eq!(named_inputs(source), ["data/81.jpeg"]);
    }

    #[test]
    fn what_is_repaired_is_known() {
        let repaired = functions(REPAIRED);
        assert!(repaired.len() >= 20, "{}", repaired.len());
        for (index, source) in repaired {
            let reason = source.lines().nth(1).unwrap_or_default().trim();
            assert!(reason.starts_with("\"\"\"Upstream"), "{index}: {reason}");
        }
    }
}
