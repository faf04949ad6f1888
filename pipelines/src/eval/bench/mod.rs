//! The benchmark: our task files, and the upstream files that they speak of.

pub mod fetch;
pub mod prepare;
pub mod spec;
pub mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pybench::id::Digest;
use pybench::run::{ContentStore, RunError};
use pybench::task::{FileKind, Language, Task, TaskFile, TaskOrigin};

use prepare::Prepared;
use spec::{Status, TaskSpec};
use upstream::Upstream;

/// Name of the suite in records.
pub const SUITE: &str = "pybench";

/// Task files and upstream's files.
#[derive(Clone, Debug)]
pub struct Bench {
    /// By number.
    pub specs: Arc<BTreeMap<u32, TaskSpec>>,
    /// Prompts, inputs and tests.
    pub upstream: Arc<Upstream>,
}

/// Whether a task can be run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Its inputs are here.
    Yes,
    /// Why not.
    No(String),
}

impl Bench {
    /// The embedded task files with those upstream files.
    ///
    /// # Errors
    /// [`RunError::BadInput`] where a task file is wrong.
    pub fn new(upstream: Upstream) -> Result<Self, RunError> {
        let specs = spec::embedded().map_err(|error| RunError::BadInput(error.to_string()))?;
        Ok(Self {
            specs: Arc::new(specs),
            upstream: Arc::new(upstream),
        })
    }

    /// Whether that task can be run: listed upstream, inputs there and as they were when the task file
    /// was written. Live pages are out of reach of a sandbox without a network.
    pub fn ready(&self, spec: &TaskSpec) -> Ready {
        let no = |text: String| Ready::No(text);
        if self.upstream.row(spec.index).is_none() {
            return no(format!(
                "{} does not list it",
                self.upstream.task_file().display()
            ));
        }
        if let Status::Live(reason) = &spec.status {
            return no(format!("live-only: {reason}"));
        }
        if !spec.missing.is_empty() {
            let absent = spec
                .missing
                .iter()
                .filter(|path| self.upstream.input(path).is_none());
            let absent: Vec<_> = absent.map(String::as_str).collect();
            if !absent.is_empty() {
                return no(format!("missing inputs: {}", absent.join(", ")));
            }
        }
        for (path, digest) in &spec.inputs {
            match self.upstream.digest(path) {
                None => return no(format!("missing inputs: {path}")),
                Some(Err(error)) => return no(error),
                Some(Ok(found)) if found != *digest => {
                    return no(format!(
                        "{path} is another file than the task was written for"
                    ));
                }
                Some(Ok(_)) => {}
            }
        }
        Ready::Yes
    }

    /// Every input that is absent, with the tasks that need it.
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

    /// The task as agents are asked it and as the checker judges it.
    ///
    /// # Errors
    /// [`RunError::BadInput`] where upstream does not list it.
    pub fn task(&self, spec: &TaskSpec, prepared: &Prepared) -> Result<Task, RunError> {
        let row = self.upstream.row(spec.index).ok_or_else(|| {
            RunError::BadInput(format!("task {} is not listed upstream", spec.index))
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

/// The number of a task of the benchmark; `None` for a task of another suite.
pub fn index(task: &Task) -> Option<u32> {
    match &task.origin {
        TaskOrigin::Benchmark { suite, index } if suite == SUITE => index.parse().ok(),
        _ => None,
    }
}

/// A file as tasks hold it: its bytes in the store, its kind by its name.
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
        licence: None,
    })
}

fn language(query: &str) -> Language {
    let chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    match query.chars().any(chinese) {
        true => Language::Zh,
        false => Language::En,
    }
}
