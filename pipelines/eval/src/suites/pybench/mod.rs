//! PyBench: our task files together with the upstream files they refer to.

pub mod audit;
pub mod prepare;
mod scores;
pub mod spec;
mod tasks;
pub mod unit;
pub mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::task::Task;
use serde_json::Value;

use super::{Entry, Place};
use crate::suite::{
    AttemptScores, AuditOptions, Origin, Selection, Solution, Suite, SuiteAttempt, SuiteAudit,
    SuiteEnv, TaskList, benchmark_task, name_in,
};
use prepare::Prepared;
use spec::{TaskSpec, TaskStatus};
use upstream::Upstream;

/// Name of the suite in records.
pub const SUITE: &str = "pybench";

/// The repository, at the commit that the task files were written for.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/Mercury7353/PyBench.git",
    commit: "fa90fae282a23cb38279c2d5074ccaf2062629bf",
    files: &[],
    license: "none stated in the repository; use the files for evaluation only",
    cache: "pybench-upstream",
};

/// PyBench in the list of suites.
pub const ENTRY: Entry = Entry {
    name: SUITE,
    origin: &ORIGIN,
    open: |place| Ok(Arc::new(PyBench::find(place)?)),
};

/// Name of the suite of tasks for whose own inputs there are no checks, with inputs that are made here.
pub const REGENERATED: &str = "pybench-regenerated";

/// The tasks with made inputs in the list of suites.
pub const REGENERATED_ENTRY: Entry = Entry {
    name: REGENERATED,
    origin: &ORIGIN,
    open: |place| Ok(Arc::new(PyBench::find(place)?.regenerated()?)),
};

/// The task files and the upstream files.
#[derive(Clone, Debug)]
pub struct PyBench {
    /// Name of the suite in records: [`SUITE`] or [`REGENERATED`].
    pub name: &'static str,
    /// Task files by task number.
    pub specs: Arc<BTreeMap<u32, TaskSpec>>,
    /// Prompts, inputs and unit tests.
    pub upstream: Arc<Upstream>,
}

/// Whether a task can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// All inputs are present.
    Available,
    /// Why it cannot be run.
    Unavailable(String),
}

impl PyBench {
    /// Opens PyBench at a place that the user names, or where it is usually found.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is not found or invalid.
    pub fn find(place: &Place<'_>) -> Result<Self, RunError> {
        let fetched = ORIGIN.checkout_dir(place.cache);
        let upstream = upstream::find(place.pybench, &fetched, place.project)?;
        Self::new(match place.pybench_tasks {
            Some(path) => upstream.with_tasks(path)?,
            None => upstream,
        })
    }

    /// Combines the embedded task files with upstream's files.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a task file is invalid.
    pub fn new(upstream: Upstream) -> Result<Self, RunError> {
        let specs = spec::embedded().map_err(|error| RunError::BadInput(error.to_string()))?;
        Ok(Self {
            name: SUITE,
            specs: Arc::new(specs),
            upstream: Arc::new(upstream),
        })
    }

    /// The tasks whose missing inputs are made, instead of the others.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a task file is invalid.
    pub fn regenerated(self) -> Result<Self, RunError> {
        let specs = spec::regenerated().map_err(|error| RunError::BadInput(error.to_string()))?;
        Ok(Self {
            name: REGENERATED,
            specs: Arc::new(specs),
            ..self
        })
    }

    /// Whether a task can be run: it is listed upstream, and its inputs are present and unchanged since the
    /// task file was written. Tasks that need live web pages cannot run in a sandbox without a network. Tasks without a
    /// check do not run even if their inputs are present: the tasks are the same with every checkout.
    pub fn availability(&self, spec: &TaskSpec) -> Availability {
        if self.upstream.row(spec.index).is_none() {
            return Availability::Unavailable(format!(
                "the task is not listed in {}",
                self.upstream.task_file().display()
            ));
        }
        if let TaskStatus::Live(reason) = &spec.status {
            return Availability::Unavailable(format!("needs live web pages: {reason}"));
        }
        if let TaskStatus::Missing(reason) = &spec.status {
            return Availability::Unavailable(reason.clone());
        }
        if spec.make.is_none() {
            let absent = spec
                .missing
                .iter()
                .filter(|path| self.upstream.input(path).is_none());
            let absent: Vec<_> = absent.map(String::as_str).collect();
            if !absent.is_empty() {
                return Availability::Unavailable(format!("missing inputs: {}", absent.join(", ")));
            }
        }
        for (path, digest) in &spec.inputs {
            match self.upstream.digest(path) {
                None => return Availability::Unavailable(format!("missing inputs: {path}")),
                Some(Err(error)) => return Availability::Unavailable(error),
                Some(Ok(found)) if found != *digest => {
                    return Availability::Unavailable(format!(
                        "{path} differs from the file that the task was written for"
                    ));
                }
                Some(Ok(_)) => {}
            }
        }
        Availability::Available
    }

    /// Missing input files, with the tasks that need them.
    pub fn missing(&self) -> BTreeMap<String, Vec<u32>> {
        let mut missing: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for spec in self.specs.values() {
            let paths: BTreeSet<_> = spec.inputs.keys().chain(&spec.missing).collect();
            for path in paths {
                if self.upstream.input(path).is_none() {
                    missing.entry(path.clone()).or_default().push(spec.index);
                }
            }
        }
        missing
    }

    /// The task that agents solve and the checker grades.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if upstream does not list it.
    pub fn task(&self, spec: &TaskSpec, prepared: &Prepared) -> Result<Task, RunError> {
        let row = self.upstream.row(spec.index).ok_or_else(|| {
            RunError::BadInput(format!(
                "task {} is not listed in upstream's task.json",
                spec.index
            ))
        })?;
        let (index, category) = (spec.index.to_string(), (spec.category, &*row.category));
        let files = prepared.files.clone();
        let mut task = benchmark_task((self.name, &index), category, &row.user, files);
        task.held_out.clone_from(&prepared.held_out);
        task.outputs.clone_from(&spec.outputs);
        task.reference.clone_from(&spec.reference);
        task.checks.clone_from(&spec.checks);
        task.id = task.compute_id();
        Ok(task)
    }

    /// The PyBench number of a task; `None` for tasks of other suites.
    fn index(&self, task: &Task) -> Option<u32> {
        name_in(self.name, task)?.parse().ok()
    }
}

#[async_trait]
impl Suite for PyBench {
    fn name(&self) -> &'static str {
        self.name
    }

    fn origin(&self) -> &'static Origin {
        &ORIGIN
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn describe(&self, selection: &Selection) -> String {
        tasks::describe(self, selection)
    }

    async fn tasks(&self, env: &SuiteEnv, selection: &Selection) -> Result<TaskList, RunError> {
        tasks::prepare(self, env, selection).await
    }

    async fn contents(&self, _: &SuiteEnv) -> Result<Vec<BenchmarkTask>, RunError> {
        self.upstream.contents()
    }

    async fn score(
        &self,
        env: &SuiteEnv,
        attempts: &[SuiteAttempt<'_>],
    ) -> Result<Vec<AttemptScores>, RunError> {
        scores::score(self, env, attempts).await
    }

    fn scorer(&self) -> Digest {
        let tests = self.upstream.tests().map(|tests| &tests.digest);
        Digest::of_json(&(tests, unit::REPAIRED))
    }

    fn solution(&self, task: &Task) -> Result<Solution, String> {
        let number = self
            .index(task)
            .ok_or("the task belongs to another suite")?;
        let spec = self.specs.get(&number);
        let solution = spec.and_then(|spec| spec.solution.clone());
        solution.ok_or_else(|| format!("the task file of task {number} has no solution"))
    }

    fn upstream_row(&self, task: &str) -> Option<Value> {
        let row = self.upstream.row(task.parse().ok()?)?;
        serde_json::to_value(row).ok()
    }

    async fn audit(&self, env: &SuiteEnv, options: &AuditOptions) -> Result<SuiteAudit, RunError> {
        audit::of_suite(self, env, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_a_check_is_not_run_even_if_its_input_is_there() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("meta")).unwrap();
        let rows = r#"[{"index": "13", "category1": "c", "user": "Draw it.", "file_paths": [], "attachments": []}]"#;
        std::fs::write(root.path().join("meta/task.json"), rows).unwrap();
        std::fs::write(root.path().join("action.csv"), "a\n1\n").unwrap();
        let suite = PyBench::new(Upstream::open(root.path()).unwrap()).unwrap();
        assert!(suite.upstream.input("data/action.csv").is_some());
        let found = suite.availability(&suite.specs[&13]);
        let Availability::Unavailable(reason) = &found else {
            panic!("{found:?}")
        };
        assert!(reason.contains("no check has been written"), "{reason}");
    }
}
