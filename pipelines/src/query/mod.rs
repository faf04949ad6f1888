//! Query: writes tasks for crawled files, from the templates of the task library or by models.
//!
//! Which tasks the library writes follows from the recipe, the files and the library alone: a plan is
//! made first ([`plan`]), then every planned task is a unit of work. [`writer`] asks models. What people
//! decided on a task ([`review`]) holds for both.

pub mod command;
mod diff;
pub mod plan;
pub mod review;
pub mod writer;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::run::{
    ContentStore, Executor, Failure, FailureKind, Mode, RunContext, RunError, Stage, UnitState,
};
use pybench::task::{SourceFile, Task};
use serde_json::Value;

use crate::library::{Draft, DraftError, Library};
use plan::Planned;

/// Name of the stage in the journal.
pub const STAGE: &str = "query";
/// What crawl wrote.
const FILES: &str = "files.jsonl";
/// What this stage writes.
const TASKS: &str = "tasks.jsonl";

/// Writes the tasks the recipe asks for into `tasks.jsonl`, from the embedded library. Where fewer
/// are possible it writes those and says so; none at all is an error.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let library = Library::embedded().map_err(|e| RunError::BadInput(e.to_string()))?;
    run_with(context, Arc::new(library)).await
}

/// The same, from another library. In a dry run nothing is paid for: a writer's cost is printed instead.
pub async fn run_with(context: &RunContext, library: Arc<Library>) -> Result<(), RunError> {
    let folder = &context.folder;
    let files: Vec<SourceFile> = read_lines(&folder.root().join(FILES))?;
    if let Some(writer) = &context.recipe.query.writer {
        if context.mode == Mode::DryRun {
            return writer::estimate::print(context, writer, &library, &files);
        }
        let (tasks, asked) = writer::run(context, writer, &library, &files).await?;
        let written = finish(context, tasks)?;
        return report_shortfall(
            asked,
            written,
            "see `pybench status` for what was left out and why",
        );
    }
    let recipe = &context.recipe;
    let plan = plan::plan(&library, &files, &recipe.query, recipe.seed, folder.store())?;
    let items: Vec<String> = plan.iter().map(|planned| planned.item.clone()).collect();
    let stage = Arc::new(QueryStage {
        plan: plan.into_iter().map(|p| (p.item.clone(), p)).collect(),
        library,
        files,
        store: folder.store().clone(),
    });
    context.executor().run(stage, &items).await?;
    let written = finish(context, planned_tasks(context, &items)?)?;
    let way_out = "more files, more templates or a higher `query.template_share` would allow more";
    report_shortfall(recipe.query.tasks, written, way_out)
}

/// The tasks of the library that came to be, in plan order.
fn planned_tasks(context: &RunContext, items: &[String]) -> Result<Vec<Task>, RunError> {
    let units = context.folder.journal().units(STAGE)?.into_iter();
    let done = units.filter(|unit| unit.state == UnitState::Done);
    let outputs: HashMap<_, _> = done.map(|unit| (unit.item, unit.output)).collect();
    let outputs = items.iter().filter_map(|item| outputs.get(item)?.clone());
    Ok(outputs
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()?)
}

/// Writes the artefact: these tasks in their order, as reviewed, each id once.
fn finish(context: &RunContext, tasks: Vec<Task>) -> Result<usize, RunError> {
    let mut seen = std::collections::HashSet::new();
    let mut tasks = review::reviewed(context, tasks)?;
    tasks.retain(|task| seen.insert(task.id.clone()));
    context
        .folder
        .write(TASKS, task_lines(&tasks)?.as_bytes())?;
    let journal = context.folder.journal();
    journal.set_fact("tasks", &tasks.len().into())?;
    Ok(tasks.len())
}

/// Tasks as lines. Serialised from the type, so that the order of keys is the type's.
fn task_lines(tasks: &[Task]) -> Result<String, RunError> {
    let mut lines = String::new();
    for task in tasks {
        lines += &serde_json::to_string(task)?;
        lines.push('\n');
    }
    Ok(lines)
}

fn report_shortfall(asked: usize, written: usize, way_out: &str) -> Result<(), RunError> {
    if written == 0 && asked > 0 {
        return Err(RunError::Incomplete(format!(
            "no task could be written: crawl more files, or widen `query.categories` and \
             `query.keywords` ({way_out})"
        )));
    }
    if written < asked {
        tracing::warn!("{written} of {asked} tasks could be written: {way_out}");
    }
    Ok(())
}

/// Reads a file of JSON lines.
fn read_lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    let text = std::fs::read_to_string(path).map_err(RunError::io(path.display().to_string()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Writes one planned task per unit.
struct QueryStage {
    library: Arc<Library>,
    files: Vec<SourceFile>,
    plan: BTreeMap<String, Planned>,
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
    fn draft(&self, planned: &Planned) -> Option<Draft<'_>> {
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

/// The first tasks of a run, as a person reads them.
pub fn preview(root: &Path, count: usize) -> Result<String, RunError> {
    let tasks: Vec<Task> = read_lines(&root.join(TASKS))?;
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
