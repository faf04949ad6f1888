//! The scores `upstream` and `fixed`: runs functions `test_task_N(trajectory)`, each in its own session.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_interpreter::{Interpreter, Limits, SessionSpec};
use pybench_run::interpreter_failure;
use pybench_run::{Failure, FailureKind, RunError, RunFolder, Stage};
use pybench_types::id::Digest;
use pybench_types::observation::Observation;
use pybench_types::task::Task;
use pybench_types::trajectory::{OutputFile, Trajectory};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::upstream::{UnitTests, Upstream, functions};
use crate::record::MAX_SHOWN;
use pybench_types::text::cut;

/// Name of the stage in the journal.
pub const STAGE: &str = "unit tests";
/// Repaired versions of upstream's broken tests.
pub const REPAIRED: &str = include_str!("../../../../suites/pybench/fixed.py");
/// Folder in the session that contains `data` and `output` of a test.
const FOLDER: &str = "run";
/// Stub of a package that is not in the environment; only two tests with missing inputs use it.
const NO_MUTAGEN: &str = "class MP3:\n    def __init__(self, *_):\n        raise ImportError('mutagen is not in this environment')\n";
/// Time limit of one test, in seconds.
const TEST_SECONDS: u64 = 120;

/// Verdict of a unit test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTestVerdict {
    /// Whether the test returned without an exception.
    pub passed: bool,
    /// Exception of the test, or why it was stopped; empty if it passed.
    pub detail: String,
}

/// Which of the two scores a test belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitTestKind {
    Upstream,
    Fixed,
}

/// A test to run, with its files.
struct UnitTest {
    index: u32,
    /// `tests` or `fixed`.
    module: &'static str,
    /// Host file by path below [`FOLDER`].
    files: BTreeMap<String, PathBuf>,
}

/// Stage that runs unit tests. Items are digests of everything a test sees, so a test that both scores run
/// on the same files runs once.
pub struct UnitTestStage {
    folder: Arc<RunFolder>,
    interpreter: Arc<dyn Interpreter>,
    upstream: Arc<Upstream>,
    repaired: BTreeMap<u32, String>,
    tests: HashMap<String, UnitTest>,
}

impl UnitTestStage {
    /// Creates a stage without tests.
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
            tests: HashMap::new(),
        }
    }

    /// Adds the test of an attempt and returns its item; `None` if the task has no test. `shared_outputs` are
    /// the agent's outputs for all tasks; upstream's tests see those that they mention.
    ///
    /// # Errors
    /// The content store cannot be written.
    pub fn add(
        &mut self,
        kind: UnitTestKind,
        index: u32,
        task: &Task,
        trajectory: &Trajectory,
        shared_outputs: &BTreeMap<String, OutputFile>,
    ) -> Result<Option<String>, RunError> {
        let repaired = kind == UnitTestKind::Fixed && self.repaired.contains_key(&index);
        let tests = self.upstream.tests();
        let source = tests.and_then(|tests| tests.function(index));
        if source.is_none() && !repaired {
            return Ok(None);
        }
        let module = if repaired { "fixed" } else { "tests" };
        let store = self.folder.store();
        let mut seen: BTreeMap<String, Digest> = BTreeMap::new();
        if let (UnitTestKind::Upstream, Some(source)) = (kind, source) {
            for file in shared_outputs
                .values()
                .filter(|file| mentions(source, &file.path))
            {
                seen.insert(file.path.clone(), file.id.clone());
            }
            for path in mentioned_inputs(source) {
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
        let files = seen.into_iter();
        let files = files.map(|(path, id)| Ok((path, store.checked_path(&id)?)));
        let test = UnitTest {
            index,
            module,
            files: files.collect::<Result<_, RunError>>()?,
        };
        self.tests.insert(item.to_string(), test);
        Ok(Some(item.to_string()))
    }

    /// The Python sources of a test, as (path, text).
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

/// Whether the source of a test mentions an output file.
fn mentions(source: &str, path: &str) -> bool {
    let rest = path.strip_prefix("output/").unwrap_or(path);
    let name = rest.split('/').next().unwrap_or(rest);
    source.contains(&format!("output/{name}"))
}

/// Input files that the source of a test mentions, such as `./data/81.jpeg`.
fn mentioned_inputs(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("./data/") {
        let rest = &source[at + 2..];
        let end = rest.find(['"', '\'', '\n']).unwrap_or(rest.len());
        found.push(rest[..end].to_owned());
    }
    found
}

/// The cell that runs a test. The folder of inputs is read-only, so the test runs in a folder of symlinks to
/// them. Stub packages come last on the path, so that installed ones take precedence.
fn cell(module: &str, index: u32) -> String {
    format!(
        "import json, os, sys\nos.mkdir('here')\nfor name in os.listdir({FOLDER:?}):\n    \
         os.symlink(os.path.join('..', {FOLDER:?}, name), os.path.join('here', name))\n\
         os.chdir('here')\nos.makedirs('output', exist_ok=True)\n\
         sys.path.insert(0, os.getcwd())\nsys.path.append(os.path.join(os.getcwd(), 'absent'))\n\
         import {module}\n{module}.test_task_{index}(json.load(open('trajectory.json', encoding='utf-8')))\n"
    )
}

fn verdict(observation: &Observation) -> UnitTestVerdict {
    let detail = match (&observation.error, observation.stopped) {
        (_, Some(stopped)) => format!("the test was stopped: {stopped:?}"),
        (Some(error), None) => format!("{}: {}", error.ename, error.evalue),
        (None, None) => String::new(),
    };
    UnitTestVerdict {
        passed: detail.is_empty(),
        detail: cut(&detail, MAX_SHOWN),
    }
}

#[async_trait]
impl Stage for UnitTestStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let test = self.tests.get(item).ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no attempt has the item {item}"),
            )
        })?;
        let files = test.files.iter();
        let spec = SessionSpec {
            inputs: files
                .map(|(path, file)| (format!("{FOLDER}/{path}"), file.clone()))
                .collect(),
            limits: Limits {
                cell_seconds: TEST_SECONDS,
                memory_mib: 4096,
                ..Limits::default()
            },
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let observation = session.execute(&cell(test.module, test.index)).await;
        session.close().await.map_err(interpreter_failure)?;
        let verdict = verdict(&observation.map_err(interpreter_failure)?);
        Ok(serde_json::to_value(verdict).map_err(RunError::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_sees_the_files_it_mentions() {
        let source = "def test_task_82(t):\n    a = \"./output/81.png\"\n    b = './data/81.jpeg'\n    c = \"./output/141\"\n";
        assert!(mentions(source, "output/81.png"));
        assert!(mentions(source, "output/141/index.html"));
        assert!(!mentions(source, "output/82.png"));
        assert_eq!(mentioned_inputs(source), ["data/81.jpeg"]);
    }

    #[test]
    fn every_repaired_test_has_a_reason() {
        let repaired = functions(REPAIRED);
        assert!(repaired.len() >= 20, "{}", repaired.len());
        for (index, source) in repaired {
            let reason = source.lines().nth(1).unwrap_or_default().trim();
            assert!(reason.starts_with("\"\"\"Upstream"), "{index}: {reason}");
        }
    }
}
