//! The inputs of a task as it is asked: upstream's files, changed where the task file says so.
//!
//! What changes them is Python, run in a session of its own by seed; the same seed gives the same bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::interpreter_failure;
use pybench::id::Digest;
use pybench::interpreter::{CollectedFile, Interpreter, Limits, SessionSpec};
use pybench::run::{Failure, FailureKind, RunError, RunFolder, Stage};
use pybench::task::TaskFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spec::TaskSpec;
use super::{Bench, task_file};

/// Name of the stage in the journal.
pub const STAGE: &str = "prepare";
/// Variations for `--regenerate`.
const VARY: &str = include_str!("../../../pybench/vary.py");
/// Runs in a writable copy of the inputs, which is then collected.
const CELL: &str = "import os, random, shutil, sys
SEED = int(open('seed.txt').read())
os.makedirs('output/work/data')
for name in sorted(os.listdir('data')):
    shutil.copyfile('data/' + name, 'output/work/data/' + name)
sources = [(name, open(name, encoding='utf-8').read()) for name in ('vary.py', 'perturb.py') if os.path.exists(name)]
os.chdir('output/work')
for name, source in sources:
    exec(compile(source, name, 'exec'), {'SEED': SEED, 'random': random.Random(SEED), '__name__': name})
";

/// What is done to the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Seed of every change.
    pub seed: u64,
    /// Whether tasks whose inputs need no work get inputs that do.
    pub perturb: bool,
    /// Whether every task that allows it gets another variant of its inputs.
    pub regenerate: bool,
}

/// The files of a task as it is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Under `data/`.
    pub files: Vec<TaskFile>,
    /// Under `held_out/`, for the checker alone.
    pub held_out: Vec<TaskFile>,
}

/// Prepares tasks; items are digests of all that decides the files.
pub struct PrepareStage {
    bench: Bench,
    folder: Arc<RunFolder>,
    interpreter: Arc<dyn Interpreter>,
    changes: Changes,
    order: Vec<(String, u32)>,
    indexes: HashMap<String, u32>,
}

impl PrepareStage {
    /// For those tasks, in this order.
    pub fn new(
        bench: Bench,
        folder: Arc<RunFolder>,
        interpreter: Arc<dyn Interpreter>,
        changes: Changes,
        specs: &[&TaskSpec],
    ) -> Self {
        let item = |spec: &TaskSpec| {
            let code = changes.perturb.then_some(&spec.perturb);
            let vary = changes.regenerate.then_some((VARY, spec.vary));
            let key = (spec.index, &spec.inputs, code, vary, changes);
            Digest::of_json(&(key, interpreter.environment())).to_string()
        };
        let order: Vec<_> = specs.iter().map(|spec| (item(spec), spec.index)).collect();
        Self {
            indexes: order.iter().cloned().collect(),
            order,
            bench,
            folder,
            interpreter,
            changes,
        }
    }

    /// Every item, in order.
    pub fn items(&self) -> Vec<String> {
        self.order.iter().map(|(item, _)| item.clone()).collect()
    }

    /// What came of them: prepared files, or the failure.
    ///
    /// # Errors
    /// Failures of the journal.
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

    /// The Python that changes this task's inputs: (name in the workspace, source).
    fn code(&self, spec: &TaskSpec) -> Vec<(&'static str, String)> {
        let mut code = Vec::new();
        if let (true, Some(vary)) = (self.changes.regenerate, spec.vary) {
            code.push(("vary.py", format!("{VARY}\nvary({:?})\n", vary.name())));
        }
        if let (true, Some(perturb)) = (self.changes.perturb, &spec.perturb) {
            code.push(("perturb.py", perturb.clone()));
        }
        code
    }

    async fn changed(
        &self,
        spec: &TaskSpec,
        given: &[TaskFile],
        code: Vec<(&'static str, String)>,
    ) -> Result<Vec<CollectedFile>, Failure> {
        let store = self.folder.store();
        let mut inputs: BTreeMap<_, _> = given
            .iter()
            .map(|file| (format!("data/{}", file.name), store.path(&file.id)))
            .collect();
        let seed = self.changes.seed.to_string();
        for (name, text) in code.into_iter().chain([("seed.txt", seed)]) {
            inputs.insert(name.to_owned(), store.path(&store.put(text.as_bytes())?));
        }
        let limits = Limits {
            cell_seconds: 120,
            output_files: 1000,
            output_mib: 512,
            ..Limits::default()
        };
        let spec_of_session = SessionSpec {
            inputs,
            limits,
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(spec_of_session).await;
        let mut session = session.map_err(interpreter_failure)?;
        let seen = session.execute(CELL).await.map_err(interpreter_failure)?;
        let collected = session.read_outputs().await.map_err(interpreter_failure)?;
        session.close().await.map_err(interpreter_failure)?;
        match seen.error {
            None => Ok(collected.files),
            Some(error) => Err(Failure::new(
                FailureKind::Item,
                format!(
                    "task {}: changing its inputs raised {}",
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
            .and_then(|index| self.bench.specs.get(index));
        let spec = spec.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no task has the item {item}"),
            )
        })?;
        let mut prepared = Prepared::default();
        for path in spec.inputs.keys().chain(&spec.missing) {
            let bytes = self.bench.upstream.bytes(path);
            let bytes = bytes.unwrap_or_else(|| Err(format!("{path} is missing")));
            let bytes = bytes.map_err(|text| Failure::new(FailureKind::Item, text))?;
            let name = path.trim_start_matches("data/");
            prepared
                .files
                .push(task_file(name, &bytes, &origin(path), store)?);
        }
        let code = self.code(spec);
        if !code.is_empty() {
            let changed = self.changed(spec, &prepared.files, code).await?;
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
        Ok(serde_json::to_value(prepared).map_err(RunError::from)?)
    }
}

fn origin(path: &str) -> String {
    format!("pybench#{path}")
}
