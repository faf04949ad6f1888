//! Selects and prepares the tasks of PyBench.

use std::sync::Arc;

use pybench_datasets::row::category_name;
use pybench_run::{Executor, RunError};

use super::prepare::{Changes, PrepareStage};
use super::spec::TaskSpec;
use super::{Availability, PyBench, REGENERATED};
use crate::record::Headline;
use crate::suite::{EvalTask, Selection, SuiteEnv, TaskList, UnavailableTask, parse_task_ranges};

/// Why a task has no other inputs.
pub(super) const NO_VARIANTS: &str =
    "the task depends on its exact files, so no variant can be generated";

/// Describes the selected tasks for the header of the records.
pub(super) fn describe(suite: &PyBench, selection: &Selection) -> String {
    let tasks = selection.tasks.as_ref();
    let tasks = tasks.map_or(String::new(), |tasks| format!(" tasks {tasks}"));
    let inputs = match (selection.regenerate, selection.perturb) {
        (None, _) if suite.name == REGENERATED => {
            format!(", missing inputs made with seed {}", selection.seed)
        }
        (Some(seed), _) => format!(", inputs regenerated with seed {seed}"),
        (None, true) => String::new(),
        (None, false) => ", inputs as published".to_owned(),
    };
    format!("PyBench{tasks}{inputs}")
}

/// The task files that are selected.
pub(super) fn selected<'a>(
    suite: &'a PyBench,
    selection: &Selection,
) -> Result<Vec<&'a TaskSpec>, RunError> {
    let indexes = selection.tasks.as_deref().map(parse_task_ranges);
    let indexes = indexes.transpose().map_err(RunError::BadInput)?;
    let selected = |spec: &&TaskSpec| indexes.as_ref().is_none_or(|set| set.contains(&spec.index));
    let specs = suite.specs.values().filter(selected).collect();
    Ok(selection.draw(specs, |spec| spec.index.to_string()))
}

/// How the inputs are changed.
pub(super) fn changes(selection: &Selection) -> Changes {
    Changes {
        seed: selection.regenerate.unwrap_or(selection.seed),
        perturb: selection.perturb,
        regenerate: selection.regenerate.is_some(),
    }
}

/// Prepares the selected tasks.
pub(super) async fn prepare(
    suite: &PyBench,
    env: &SuiteEnv,
    selection: &Selection,
) -> Result<TaskList, RunError> {
    let (mut list, mut ready) = (TaskList::default(), Vec::new());
    for spec in selected(suite, selection)? {
        match suite.availability(spec) {
            Availability::Unavailable(reason) => {
                list.unavailable.push(unavailable(suite, spec, reason))
            }
            Availability::Available if selection.regenerate.is_some() && !spec.has_variants() => {
                list.unavailable
                    .push(unavailable(suite, spec, NO_VARIANTS.to_owned()));
            }
            Availability::Available => ready.push(spec),
        }
    }
    let (folder, interpreter) = (env.folder.clone(), env.interpreter.clone());
    let changes = changes(selection);
    let stage = PrepareStage::new(suite.clone(), folder, interpreter, changes, &ready);
    let stage = Arc::new(stage);
    env.executor.run(stage.clone(), &stage.items()).await?;
    let mut results = stage.results()?;
    for spec in ready {
        match results.remove(&spec.index) {
            Some(Ok(prepared)) => list.available.push(EvalTask {
                suite: suite.name.to_owned(),
                name: spec.index.to_string(),
                task: Arc::new(suite.task(spec, &prepared)?),
                category: category_name(spec.category).to_owned(),
                headline: Headline {
                    counts: spec.status.reason().is_none(),
                    reason: spec.status.reason().map(str::to_owned),
                },
                published: selection.regenerate.is_none() && spec.make.is_none(),
            }),
            other => {
                let failure = other.and_then(Result::err).map(|failure| failure.detail);
                let reason = failure.unwrap_or_else(|| "the inputs were not prepared".to_owned());
                list.unavailable.push(unavailable(suite, spec, reason));
            }
        }
    }
    Ok(list)
}

fn unavailable(suite: &PyBench, spec: &TaskSpec, reason: String) -> UnavailableTask {
    let prompt = suite.upstream.row(spec.index).map(|row| row.user.clone());
    UnavailableTask {
        suite: suite.name.to_owned(),
        name: spec.index.to_string(),
        category: category_name(spec.category).to_owned(),
        prompt: prompt.unwrap_or_default(),
        reason,
    }
}
