//! Tasks made of lists of questions with answers: the recipe's `query.task_sets`.

mod apart;
mod checkout;
mod list;
mod program_tests;
mod published;
mod row;
mod spec;
mod task;
#[cfg(test)]
mod tests;
mod wiki;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_checks::{Checker, check_failure};
use pybench_run::{Executor, Failure, FailureKind, RunContext, RunError, Stage, TaskSetChoice};
use pybench_types::task::Task;
use serde_json::Value;

use crate::{STAGE, checker};
use list::{SetLine, SetList};
use row::Answer;
use spec::SetSpec;
use task::Places;

/// Writes the tasks of all sets. Returns the items of those that were made, for each set at most as many as the recipe
/// asks for, in the order in which the seed draws them. A row that gives no task, or one that `is_wrong`, is followed by
/// another.
///
/// # Errors
/// A list cannot be used; errors of the executor.
pub(crate) async fn write(
    context: &RunContext,
    is_wrong: impl Fn(&Task) -> bool,
) -> Result<Vec<String>, RunError> {
    let query = &context.recipe.query;
    let mut made = Vec::new();
    if query.task_sets.is_empty() {
        return Ok(made);
    }
    let places = Arc::new(Places {
        store: context.folder.store().clone(),
        max_bytes: context.recipe.crawl.file_mib << 20,
        test_tables: wiki::test_tables(&context.cache_dir),
    });
    for (choice, wanted) in query.task_sets.iter().zip(query.set_tasks()) {
        made.extend(write_set(context, choice, wanted, &places, &is_wrong).await?);
    }
    Ok(made)
}

async fn write_set(
    context: &RunContext,
    choice: &TaskSetChoice,
    wanted: usize,
    places: &Arc<Places>,
    is_wrong: impl Fn(&Task) -> bool,
) -> Result<Vec<String>, RunError> {
    let list = SetList::open(SetSpec::new(context, choice).await?)?;
    let name = list.spec.name.clone();
    let seed = context.recipe.seed;
    let mut lines = list.lines.clone();
    lines.sort_by_cached_key(|line| line.draw(seed, &name));
    if lines.len() < wanted {
        tracing::warn!(
            "query.task_sets, `{name}`: {wanted} tasks are requested, but the list has {} usable rows; lower `query.tasks` \
             or the set's `share`",
            lines.len()
        );
    }
    let items: Vec<String> = lines.iter().map(|line| line.item(&name)).collect();
    let checker = match list.has_function_tests {
        true => Some(checker(context)?),
        false => None,
    };
    let stage = Arc::new(SetStage {
        checker,
        lines: items.iter().cloned().zip(lines).collect(),
        list,
        places: places.clone(),
    });
    let mut made = Vec::new();
    let mut rest = items.as_slice();
    while made.len() < wanted && !rest.is_empty() {
        let (drawn, later) = rest.split_at(rest.len().min(wanted - made.len()));
        rest = later;
        context.executor().run(stage.clone(), &drawn).await?;
        for item in drawn {
            let task: Option<Task> = context.folder.journal().output(STAGE, item)?;
            if task.is_some_and(|task| !is_wrong(&task)) {
                made.push(item.clone());
            }
        }
    }
    Ok(made)
}

/// Makes one task per unit.
struct SetStage {
    list: SetList,
    lines: HashMap<String, SetLine>,
    places: Arc<Places>,
    /// Runs the references of tests that call functions; absent if no line has any.
    checker: Option<Checker>,
}

#[async_trait]
impl Stage for SetStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let internal = |reason: String| Failure::new(FailureKind::Internal, reason);
        let line = self.lines.get(item);
        let line = line.ok_or_else(|| internal(format!("`{item}` is not planned")))?;
        let row = self.list.row(line)?;
        let spec = &self.list.spec;
        let name = row
            .id
            .clone()
            .unwrap_or_else(|| format!("line-{}", line.number));
        let made = task::make(&row, spec, name, &self.places).await;
        let at_line = |failure: Failure| Failure {
            detail: format!(
                "{}:{}: {}",
                spec.path.display(),
                line.number,
                failure.detail
            ),
            ..failure
        };
        let task = made.map_err(at_line)?;
        if let (Answer::Tests(tests), Some(checker)) = (&row.answer, &self.checker)
            && tests.call_functions()
        {
            let fit = checker.check_fit(&task, &self.places.store).await;
            fit.map_err(check_failure).map_err(at_line)?;
        }
        serde_json::to_value(task).map_err(|error| internal(error.to_string()))
    }
}
