//! The tasks of an evaluation: those of its suites, then those of a library.

use std::sync::Arc;

use pybench_datasets::row::category_name;
use pybench_run::RunError;
use pybench_run::project::invocation;

use super::{Setup, library};
use crate::record::Headline;
use crate::suite::{EvalTask, TaskList, name_in};

/// The keyword of a library task. The digests that name these tasks say nothing to a reader.
pub(super) fn keyword(eval_task: &EvalTask) -> Option<String> {
    let library = name_in(&eval_task.suite, &eval_task.task).is_none();
    library.then(|| eval_task.task.keyword.clone())
}

/// Describes the task set for the header of the records.
pub(super) fn describe(setup: &Setup) -> String {
    let selection = setup.recipe.selection();
    let suites = setup.suites.iter();
    let mut parts: Vec<_> = suites.map(|suite| suite.describe(&selection)).collect();
    if setup.recipe.library.is_some() {
        let library = "task library, held-out split";
        parts.push(match selection.max_tasks {
            Some(max) => format!(
                "{library}, of each suite at most {max} tasks drawn with seed {}",
                selection.seed
            ),
            None => library.to_owned(),
        });
    }
    parts.join(" and ")
}

/// Prepares and lists the tasks.
pub(super) async fn prepare(setup: &Setup) -> Result<TaskList, RunError> {
    let mut list = TaskList::default();
    let selection = setup.recipe.selection();
    for suite in &setup.suites {
        let found = suite.tasks(&setup.env(), &selection).await?;
        list.available.extend(found.available);
        list.unavailable.extend(found.unavailable);
    }
    if let Some(run) = &setup.recipe.library {
        let tasks = library::held_out(setup, run).await?;
        let tasks = library::draw(tasks, &selection);
        list.available
            .extend(tasks.into_iter().map(|held_out| EvalTask {
                suite: library::suite(held_out.unseen),
                name: held_out.task.id.short().to_owned(),
                category: category_name(held_out.task.category).to_owned(),
                task: Arc::new(held_out.task),
                headline: Headline::default(),
                published: false,
            }));
    }
    if list.available.is_empty() {
        return Err(RunError::BadInput(format!(
            "no tasks to run: `suites` and `tasks` of the recipe select none that can be run, and it names no `library` run with held-out tasks; `{} eval fetch` downloads PyBench, and with `--suite NAME` another benchmark",
            invocation()
        )));
    }
    Ok(list)
}
