//! Selects and prepares the tasks of an evaluation.

use std::sync::Arc;

use pybench_run::RunError;
use pybench_run::project::invocation;
use pybench_types::task::{Category, Task};

use super::recipe::parse_task_ranges;
use super::{Setup, library};
use crate::record::Headline;
use crate::suite::prepare::{Changes, PrepareStage};
use crate::suite::spec::TaskSpec;
use crate::suite::{Availability, SUITE, Suite};

/// A task of the evaluation.
pub(super) struct EvalTask {
    pub(super) suite: String,
    /// Name of the task in the suite.
    pub(super) name: String,
    pub(super) task: Arc<Task>,
    /// Number of the task in PyBench; `None` for library tasks.
    pub(super) index: Option<u32>,
    pub(super) headline: Headline,
    /// Whether the inputs are the published ones, which upstream's tests require.
    pub(super) published: bool,
}

impl EvalTask {
    /// The keyword of a library task. The digests that name these tasks say nothing to a reader.
    pub(super) fn keyword(&self) -> Option<String> {
        self.index.is_none().then(|| self.task.keyword.clone())
    }
}

/// A task that cannot be run, with the reason.
pub(super) struct UnavailableTask {
    pub(super) name: String,
    pub(super) category: Category,
    pub(super) prompt: String,
    pub(super) reason: String,
}

/// The tasks of an evaluation.
#[derive(Default)]
pub(super) struct TaskList {
    pub(super) available: Vec<EvalTask>,
    pub(super) unavailable: Vec<UnavailableTask>,
}

/// Describes the task set for the header of the records.
pub(super) fn describe(setup: &Setup) -> String {
    let recipe = &setup.recipe;
    let mut parts = Vec::new();
    if setup.suite.is_some() && recipe.pybench {
        let tasks = recipe
            .tasks
            .as_ref()
            .map_or(String::new(), |tasks| format!(" tasks {tasks}"));
        let inputs = match (recipe.regenerate, recipe.perturb) {
            (Some(seed), _) => format!(", inputs regenerated with seed {seed}"),
            (None, true) => String::new(),
            (None, false) => ", inputs as published".to_owned(),
        };
        parts.push(format!("PyBench{tasks}{inputs}"));
    }
    if recipe.library.is_some() {
        parts.push("task library, held-out split".to_owned());
    }
    parts.join(" and ")
}

/// Prepares and lists the tasks: those of PyBench by number, then those of the library.
pub(super) async fn prepare(setup: &Setup) -> Result<TaskList, RunError> {
    let mut list = TaskList::default();
    if let (Some(suite), true) = (&setup.suite, setup.recipe.pybench) {
        prepare_suite(setup, suite, &mut list).await?;
    }
    if let Some(run) = &setup.recipe.library {
        let tasks = library::held_out(&setup.project_root.join(run), setup.folder.store())?;
        list.available
            .extend(tasks.into_iter().map(|held_out| EvalTask {
                suite: held_out.suite,
                name: held_out.task.id.short().to_owned(),
                task: Arc::new(held_out.task),
                index: None,
                headline: Headline::default(),
                published: false,
            }));
    }
    if list.available.is_empty() {
        return Err(RunError::BadInput(format!(
            "no tasks to run: the PyBench files were not found (run `{} eval fetch` or pass `--pybench DIR`), or `tasks` selects none that can be run, and the recipe names no `library` run with held-out tasks",
            invocation()
        )));
    }
    Ok(list)
}

async fn prepare_suite(setup: &Setup, suite: &Suite, list: &mut TaskList) -> Result<(), RunError> {
    let recipe = &setup.recipe;
    let indexes = recipe
        .tasks
        .as_deref()
        .map(parse_task_ranges)
        .transpose()
        .map_err(RunError::BadInput)?;
    let selected = |spec: &&TaskSpec| indexes.as_ref().is_none_or(|set| set.contains(&spec.index));
    let mut ready = Vec::new();
    for spec in suite.specs.values().filter(selected) {
        match suite.availability(spec) {
            Availability::Unavailable(reason) => {
                list.unavailable.push(unavailable(suite, spec, reason))
            }
            Availability::Available if recipe.regenerate.is_some() && spec.vary.is_none() => {
                let reason = "the task depends on its exact files, so no variant can be generated"
                    .to_owned();
                list.unavailable.push(unavailable(suite, spec, reason));
            }
            Availability::Available => ready.push(spec),
        }
    }
    let changes = Changes {
        seed: recipe.regenerate.unwrap_or(recipe.seed),
        perturb: recipe.perturb,
        regenerate: recipe.regenerate.is_some(),
    };
    let (folder, interpreter) = (setup.folder.clone(), setup.interpreter.clone());
    let stage = Arc::new(PrepareStage::new(
        suite.clone(),
        folder,
        interpreter,
        changes,
        &ready,
    ));
    setup.execute(stage.clone(), &stage.items()).await?;
    let mut results = stage.results()?;
    for spec in ready {
        match results.remove(&spec.index) {
            Some(Ok(prepared)) => list.available.push(EvalTask {
                suite: SUITE.to_owned(),
                name: spec.index.to_string(),
                task: Arc::new(suite.task(spec, &prepared)?),
                index: Some(spec.index),
                headline: Headline {
                    counts: spec.status.reason().is_none(),
                    reason: spec.status.reason().map(str::to_owned),
                },
                published: recipe.regenerate.is_none(),
            }),
            other => {
                let failure = other.and_then(Result::err).map(|failure| failure.detail);
                let reason = failure.unwrap_or_else(|| "the inputs were not prepared".to_owned());
                list.unavailable.push(unavailable(suite, spec, reason));
            }
        }
    }
    Ok(())
}

fn unavailable(suite: &Suite, spec: &TaskSpec, reason: String) -> UnavailableTask {
    let prompt = suite.upstream.row(spec.index).map(|row| row.user.clone());
    UnavailableTask {
        name: spec.index.to_string(),
        category: spec.category,
        prompt: prompt.unwrap_or_default(),
        reason,
    }
}
