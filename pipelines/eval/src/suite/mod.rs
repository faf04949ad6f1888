//! PyBench as a suite: our task files together with the upstream files they refer to.

pub mod fetch;
pub mod prepare;
pub mod spec;
pub mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, Language, Task, TaskFile, TaskOrigin};

use prepare::Prepared;
use spec::{TaskSpec, TaskStatus};
use upstream::Upstream;

/// Name of the suite in records.
pub const SUITE: &str = "pybench";

/// The task files and the upstream files.
#[derive(Clone, Debug)]
pub struct Suite {
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

impl Suite {
    /// Combines the embedded task files with upstream's files.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a task file is invalid.
    pub fn new(upstream: Upstream) -> Result<Self, RunError> {
        let specs = spec::embedded().map_err(|error| RunError::BadInput(error.to_string()))?;
        Ok(Self {
            specs: Arc::new(specs),
            upstream: Arc::new(upstream),
        })
    }

    /// Whether a task can be run: it is listed upstream, and its inputs are present and unchanged since the
    /// task file was written. Tasks that need live web pages cannot run in a sandbox without a network.
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
        if !spec.missing.is_empty() {
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
        let mut task = Task {
            id: Digest::of_bytes(b""),
            category: spec.category,
            subcategory: row.category.clone(),
            keyword: row.category.clone(),
            language: language(&row.user),
            query: row.user.clone(),
            files: prepared.files.clone(),
            held_out: prepared.held_out.clone(),
            outputs: spec.outputs.clone(),
            reference: spec.reference.clone(),
            checks: spec.checks.clone(),
            origin: TaskOrigin::Benchmark {
                suite: SUITE.to_owned(),
                index: spec.index.to_string(),
            },
        };
        task.id = task.compute_id();
        Ok(task)
    }
}

/// The PyBench number of a task; `None` for tasks of other suites.
pub fn index(task: &Task) -> Option<u32> {
    match &task.origin {
        TaskOrigin::Benchmark { suite, index } if suite == SUITE => index.parse().ok(),
        _ => None,
    }
}

/// Stores a file and describes it for a task; its kind follows from its name.
pub(crate) fn task_file(
    name: &str,
    bytes: &[u8],
    origin: &str,
    store: &ContentStore,
) -> Result<TaskFile, RunError> {
    let extension = name
        .rsplit_once('.')
        .map_or("", |(_, end)| end)
        .to_lowercase();
    let kind = match extension.as_str() {
        "jpg" => Some(FileKind::Jpeg),
        "xls" => Some(FileKind::Xlsx),
        other => FileKind::ALL.into_iter().find(|kind| kind.name() == other),
    };
    Ok(TaskFile {
        name: name.to_owned(),
        id: store.put(bytes)?,
        kind: kind.unwrap_or(FileKind::Txt),
        origin: origin.to_owned(),
        license: None,
        derived_from: None,
        format: None,
    })
}

fn language(query: &str) -> Language {
    let chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    match query.chars().any(chinese) {
        true => Language::Zh,
        false => Language::En,
    }
}
