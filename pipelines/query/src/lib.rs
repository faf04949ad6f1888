//! Query: writes tasks for crawled files, from the templates of the task library or by models.
//!
//! Library tasks depend only on the recipe, the files and the library: [`plan`] chooses them first, then
//! each planned task is one unit of work. [`writer`] lets models write tasks. Human decisions ([`review`])
//! apply to both kinds.

pub mod command;
mod diff;
pub mod plan;
pub mod review;
pub mod writer;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_run::artifacts::{FILES, TASKS};
use pybench_run::{
    ContentStore, Executor, Failure, FailureKind, Mode, RunContext, RunError, Stage,
};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::{SourceFile, Task};
use serde_json::Value;

use plan::PlannedTask;
use pybench_attempts::outcomes::wrong_tasks;
use pybench_library::{Draft, DraftError, Library};

/// Name of the stage in the journal.
pub const STAGE: &str = "query";

/// Writes the tasks that the recipe requests to `tasks.jsonl`, from the embedded library or with models. If
/// fewer tasks are possible, it writes those and logs a warning. Tasks whose reference failed in this run are
/// dropped, and other tasks of the library take their places.
///
/// # Errors
/// [`RunError::Incomplete`] if no task can be written; [`RunError::BadInput`] for a wrong recipe.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let library = Library::embedded().map_err(|e| RunError::BadInput(e.to_string()))?;
    run_with(context, Arc::new(library)).await
}

/// Like [`run`], with another library. A dry run with a writer prints the estimated cost and makes no calls.
///
/// # Errors
/// As [`run`].
pub async fn run_with(context: &RunContext, library: Arc<Library>) -> Result<(), RunError> {
    let folder = &context.folder;
    let files: Arc<[SourceFile]> = FILES.read_all(folder.root())?.into();
    let wrong = wrong_tasks(folder.journal())?;
    if let Some(writer) = &context.recipe.query.writer {
        if context.mode == Mode::DryRun {
            return writer::estimate::print(context, writer, &library, &files);
        }
        let (mut tasks, requested) = writer::run(context, writer, &library, &files).await?;
        tasks.retain(|task| !wrong.contains(&task.id));
        let written = finish(context, tasks)?;
        return report_shortfall(
            requested,
            written,
            "`pybench status` shows what was rejected and why",
        );
    }
    let mut dropped = BTreeSet::new();
    let items = loop {
        let items = write_planned(context, &library, &files, &dropped).await?;
        let found = items_of(context, &items, &wrong)?;
        if found.is_empty() {
            break items;
        }
        dropped.extend(found);
    };
    let written = finish_planned(context, &items)?;
    let hint = "crawl more files, add templates, or raise `query.template_share`";
    report_shortfall(context.recipe.query.tasks, written, hint)
}

/// Plans and writes the library tasks without the dropped ones; returns their items in plan order.
async fn write_planned(
    context: &RunContext,
    library: &Arc<Library>,
    files: &Arc<[SourceFile]>,
    dropped: &BTreeSet<String>,
) -> Result<Vec<String>, RunError> {
    let (recipe, store) = (&context.recipe, context.folder.store());
    let plan = plan::plan(library, files, &recipe.query, recipe.seed, store, dropped)?;
    let items: Vec<String> = plan.iter().map(|planned| planned.item.clone()).collect();
    let stage = Arc::new(QueryStage {
        plan: plan.into_iter().map(|p| (p.item.clone(), p)).collect(),
        library: library.clone(),
        files: files.clone(),
        store: store.clone(),
    });
    context.executor().run(stage, &items).await?;
    Ok(items)
}

/// The items whose tasks are among these.
fn items_of(
    context: &RunContext,
    items: &[String],
    tasks: &BTreeSet<Digest>,
) -> Result<Vec<String>, RunError> {
    let mut found = Vec::new();
    for item in items.iter().filter(|_| !tasks.is_empty()) {
        let task: Option<Task> = context.folder.journal().output(STAGE, item)?;
        found.extend(
            task.filter(|task| tasks.contains(&task.id))
                .map(|_| item.clone()),
        );
    }
    Ok(found)
}

/// Writes the artifact: the library tasks that were written, in plan order. They are read one at a time, unless
/// there are review decisions.
fn finish_planned(context: &RunContext, items: &[String]) -> Result<usize, RunError> {
    let journal = context.folder.journal();
    let tasks = journal.outputs_of(STAGE, items);
    match review::has_decisions(journal)? {
        true => finish(context, tasks.collect::<Result<_, _>>()?),
        false => write_tasks(context, tasks),
    }
}

/// Writes the artifact: these tasks in order, with review decisions applied.
fn finish(context: &RunContext, tasks: Vec<Task>) -> Result<usize, RunError> {
    let tasks = review::reviewed(context, tasks)?;
    write_tasks(context, tasks.into_iter().map(Ok))
}

/// Writes the artifact, each task once.
fn write_tasks(
    context: &RunContext,
    tasks: impl Iterator<Item = Result<Task, RunError>>,
) -> Result<usize, RunError> {
    let mut seen = HashSet::new();
    let tasks = tasks.filter(|task| match task {
        Ok(task) => seen.insert(CompactDigest::from(&task.id)),
        Err(_) => true,
    });
    TASKS.write(&context.folder, tasks)?;
    let journal = context.folder.journal();
    journal.set_metadata("tasks", &seen.len().into())?;
    Ok(seen.len())
}

fn report_shortfall(requested: usize, written: usize, hint: &str) -> Result<(), RunError> {
    if written == 0 && requested > 0 {
        return Err(RunError::Incomplete(format!(
            "no task could be written: crawl more files, or add to `query.categories` and \
             `query.keywords` ({hint})"
        )));
    }
    if written < requested {
        tracing::warn!("only {written} of {requested} tasks were written: {hint}");
    }
    Ok(())
}

/// Writes one planned task per unit.
struct QueryStage {
    library: Arc<Library>,
    files: Arc<[SourceFile]>,
    plan: BTreeMap<String, PlannedTask>,
    store: ContentStore,
}

#[async_trait]
impl Stage for QueryStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing = || Failure::new(FailureKind::Internal, format!("`{item}` is not planned"));
        let planned = self.plan.get(item).ok_or_else(missing)?;
        let draft = self.draft(planned).ok_or_else(missing)?;
        let task = draft.write(&self.library, &self.store).map_err(failure)?;
        serde_json::to_value(task).map_err(|e| Failure::new(FailureKind::Internal, e.to_string()))
    }
}

impl QueryStage {
    fn draft(&self, planned: &PlannedTask) -> Option<Draft<'_>> {
        let files = planned.files.iter().map(|index| self.files.get(*index));
        Some(Draft {
            template: self.library.template(&planned.template)?,
            files: files.collect::<Option<_>>()?,
            slots: planned.slots.clone(),
            language: planned.language,
            phrasing: planned.phrasing,
            seed: planned.seed,
        })
    }
}

fn failure(error: DraftError) -> Failure {
    match error {
        DraftError::Run(error) => error.into(),
        other => Failure::new(FailureKind::Item, other.to_string()),
    }
}

/// The first `count` tasks of a run as text.
///
/// # Errors
/// The artifact cannot be read.
pub fn preview(root: &Path, count: usize) -> Result<String, RunError> {
    let tasks = TASKS.read_all(root)?;
    let mut text = String::new();
    for task in tasks.iter().take(count) {
        let names: Vec<_> = task.files.iter().map(|file| file.name.as_str()).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "── {} · {:?} · {} · {:?}\n   files: {}\n   outputs: {}\n{}\n",
            task.id.short(),
            task.category,
            task.keyword,
            task.language,
            names.join(", "),
            task.outputs.join(", "),
            task.query
        );
    }
    Ok(text)
}
