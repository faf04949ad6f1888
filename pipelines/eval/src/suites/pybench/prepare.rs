//! Prepares the inputs of tasks: upstream's files, perturbed or varied where the task file says so, or files
//! that are made where upstream has none.
//!
//! The changes are Python code that runs in its own session with a seed; the same seed gives the same
//! bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use pybench_interpreter::{CollectedFile, Interpreter, Limits, SessionSpec};
use pybench_run::interpreter_failure;
use pybench_run::{Failure, FailureKind, RunError, RunFolder, Stage};
use pybench_types::id::Digest;
use pybench_types::task::TaskFile;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PyBench;
use super::spec::TaskSpec;
use crate::suite::task_file;

/// Name of the stage in the journal.
pub const STAGE: &str = "prepare";
/// Python code that varies inputs for `--regenerate`.
const VARY: &str = include_str!("../../../../suites/pybench/vary.py");
/// Python code that task files with made inputs build on.
const MAKE: &str = include_str!("../../../../suites/pybench/make.py");
/// Cell that applies the changes to a writable copy of the inputs; the result is collected from output/.
const CELL: &str = "import os, random, shutil, sys
SEED = int(open('seed.txt').read())
os.makedirs('output/work/data')
for name in sorted(os.listdir('data')) if os.path.isdir('data') else []:
    shutil.copyfile('data/' + name, 'output/work/data/' + name)
sources = [(name, open(name, encoding='utf-8').read()) for name in ('make.py', 'vary.py', 'perturb.py') if os.path.exists(name)]
os.chdir('output/work')
for name, source in sources:
    exec(compile(source, name, 'exec'), {'SEED': SEED, 'random': random.Random(SEED), '__name__': name})
";

/// Which changes are made to the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub seed: u64,
    /// Whether to perturb the inputs of tasks that could be passed without doing any work.
    pub perturb: bool,
    /// Whether to generate new variants of the inputs for all tasks that support it.
    pub regenerate: bool,
}

/// The files of a prepared task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Files under `data/`, for the agent.
    pub files: Vec<TaskFile>,
    /// Files under `held_out/`, for the checker only.
    pub held_out: Vec<TaskFile>,
}

impl Prepared {
    /// Whether the input `data/NAME` is there.
    fn has(&self, path: &str) -> bool {
        self.files
            .iter()
            .any(|file| path.strip_prefix("data/") == Some(&file.name))
    }
}

/// Stage that prepares tasks. Items are digests of everything that determines the files.
pub struct PrepareStage {
    suite: PyBench,
    folder: Arc<RunFolder>,
    interpreter: Arc<dyn Interpreter>,
    changes: Changes,
    order: Vec<(String, u32)>,
    indexes: HashMap<String, u32>,
}

impl PrepareStage {
    /// Creates a stage for these tasks, in this order.
    pub fn new(
        suite: PyBench,
        folder: Arc<RunFolder>,
        interpreter: Arc<dyn Interpreter>,
        changes: Changes,
        specs: &[&TaskSpec],
    ) -> Self {
        let item = |spec: &TaskSpec| {
            let code = changes.perturb.then_some(&spec.perturb);
            let vary = changes.regenerate.then_some((VARY, &spec.vary));
            let make = spec.make.as_ref().map(|make| (MAKE, make));
            let key = (spec.index, &spec.inputs, make, code, vary, changes);
            Digest::of_json(&(key, interpreter.environment())).to_string()
        };
        let order: Vec<_> = specs.iter().map(|spec| (item(spec), spec.index)).collect();
        Self {
            indexes: order.iter().cloned().collect(),
            order,
            suite,
            folder,
            interpreter,
            changes,
        }
    }

    /// All items, in order.
    pub fn items(&self) -> Vec<String> {
        self.order.iter().map(|(item, _)| item.clone()).collect()
    }

    /// The prepared files of each task, or why preparing them failed.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn results(&self) -> Result<BTreeMap<u32, Result<Prepared, Failure>>, RunError> {
        let mut results = BTreeMap::new();
        for unit in self.folder.journal().units(STAGE)? {
            let Some(index) = self.indexes.get(&unit.item) else {
                continue;
            };
            let result = match (unit.output, unit.failure) {
                (Some(output), _) => Ok(serde_json::from_value(output)?),
                (None, Some(failure)) => Err(failure),
                (None, None) => continue,
            };
            results.insert(*index, result);
        }
        Ok(results)
    }

    /// The Python code that changes the inputs of a task, as (name in the workspace, source).
    fn change_code(&self, spec: &TaskSpec) -> Vec<(&'static str, String)> {
        let mut code = Vec::new();
        if let Some(make) = &spec.make {
            code.push(("make.py", format!("{MAKE}\n{make}\n")));
        }
        if self.changes.regenerate && !spec.vary.is_empty() {
            let ways = json!(spec.vary);
            code.push(("vary.py", format!("{VARY}\nvary({ways})\n")));
        }
        if let (true, Some(perturb)) = (self.changes.perturb, &spec.perturb) {
            code.push(("perturb.py", perturb.clone()));
        }
        code
    }

    async fn change_inputs(
        &self,
        spec: &TaskSpec,
        files: &[TaskFile],
        code: Vec<(&'static str, String)>,
    ) -> Result<Vec<CollectedFile>, Failure> {
        let store = self.folder.store();
        let mut inputs: BTreeMap<_, _> = files
            .iter()
            .map(|file| Ok((format!("data/{}", file.name), store.checked_path(&file.id)?)))
            .collect::<Result<_, RunError>>()?;
        let seed = self.changes.seed.to_string();
        for (name, text) in code.into_iter().chain([("seed.txt", seed)]) {
            let id = store.put(text.as_bytes())?;
            inputs.insert(name.to_owned(), store.path(&id));
        }
        let limits = Limits {
            cell_seconds: 120,
            output_files: 1000,
            output_mib: 512,
            ..Limits::default()
        };
        let session_spec = SessionSpec {
            inputs,
            limits,
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(session_spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let seen = session.execute(CELL).await.map_err(interpreter_failure)?;
        let collected = session.read_outputs().await.map_err(interpreter_failure)?;
        session.close().await.map_err(interpreter_failure)?;
        match seen.error {
            None => Ok(collected.files),
            Some(error) => Err(Failure::new(
                FailureKind::Item,
                format!(
                    "task {}: the code that changes its inputs failed: {}",
                    spec.index, error.traceback
                ),
            )),
        }
    }
}

#[async_trait]
impl Stage for PrepareStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let store = self.folder.store();
        let spec = self
            .indexes
            .get(item)
            .and_then(|index| self.suite.specs.get(index));
        let spec = spec.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no task for the item {item}"),
            )
        })?;
        let mut prepared = Prepared::default();
        let missing = spec.missing.iter().filter(|_| spec.make.is_none());
        for path in spec.inputs.keys().chain(missing) {
            let bytes = self.suite.upstream.bytes(path);
            let bytes = bytes.unwrap_or_else(|| Err(format!("the input file {path} is missing")));
            let bytes = bytes.map_err(|text| Failure::new(FailureKind::Item, text))?;
            let name = path.trim_start_matches("data/");
            prepared
                .files
                .push(task_file(name, &bytes, &origin(path), store)?);
        }
        let code = self.change_code(spec);
        if !code.is_empty() {
            let changed = self.change_inputs(spec, &prepared.files, code).await?;
            prepared = Prepared::default();
            for file in changed {
                let path = file.path.trim_start_matches("output/work/");
                let (files, name) = match path.split_once('/') {
                    Some(("data", name)) => (&mut prepared.files, name),
                    Some(("held_out", name)) => (&mut prepared.held_out, name),
                    _ => continue,
                };
                files.push(task_file(name, &file.bytes, &origin(path), store)?);
            }
        }
        if let Some(path) = spec.missing.iter().find(|path| !prepared.has(path)) {
            let text = format!("task {}: `make` has not made {path}", spec.index);
            return Err(Failure::new(FailureKind::Item, text));
        }
        Ok(serde_json::to_value(prepared).map_err(RunError::from)?)
    }
}

fn origin(path: &str) -> String {
    format!("pybench#{path}")
}
