//! Query: writes tasks for crawled files, from the templates of the task library or by models.
//!
//! Library tasks depend only on the recipe, the files and the library: [`plan`] chooses them first, then
//! each planned task is one unit of work. [`composed`] tasks are drawn, one draw a unit. Tasks of [`task_sets`] are made of lists of
//! questions with answers, a row a unit. [`writer`] lets models write tasks. Human decisions ([`review`]) apply to all kinds.

mod apart_from;
pub mod command;
pub mod composed;
mod diff;
pub mod plan;
pub mod review;
mod task_sets;
pub mod writer;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_checks::{Checker, check_failure};
use pybench_interpreter_containers::paced;
use pybench_run::artifacts::{FILES, TASKS};
use pybench_run::project::invocation;
use pybench_run::run_selection::run_argument;
use pybench_run::{
    ContentStore, Executor, Failure, FailureKind, Mode, RunContext, RunError, Stage,
};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::{Language, SourceFile, Task};
use serde_json::Value;

pub use apart_from::APART_FROM;
use apart_from::Apart;
use plan::{PlannedTask, Planner};
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
    composed::stage::validate(&context.recipe)?;
    let folder = &context.folder;
    let mut apart = Apart::of(context).await?;
    let files = apart.keep_files(FILES.read_all(folder.root())?);
    let files: Arc<[SourceFile]> = files.into();
    let wrong = wrong_tasks(folder.journal())?;
    if let Some(writer) = &context.recipe.query.writer {
        if context.mode == Mode::DryRun {
            return writer::estimate::print(context, writer, &library, &files);
        }
        apart.begin(context)?;
        let (mut tasks, requested) = writer::run(context, writer, &library, &files).await?;
        tasks.retain(|task| !wrong.contains(&task.id) && !apart.drops(task));
        apart.record(context)?;
        let written = finish(context, tasks)?;
        return report_shortfall(
            requested,
            written,
            &format!(
                "`{} status {}` shows what was rejected and why",
                invocation(),
                run_argument(folder.root())
            ),
        );
    }
    apart.begin(context)?;
    let recipe = &context.recipe;
    let mut planner = Planner::new(&library, &files, &recipe.query, recipe.seed, folder.store())?;
    planner.leave_out(&apart.templates);
    let mut planned = planner.plan(plan::languages(&recipe.query, recipe.seed));
    let mut written = Vec::new();
    while !planned.is_empty() {
        let unmade = write_planned(context, &library, &files, &planned).await?;
        written.append(&mut planned);
        // Each task that cannot be made is replaced by another one in its language.
        planned = planner.plan(unmade);
        if planned.is_empty() {
            // Wrong ones are replaced last, so that all others stay as they are.
            let wrong = take_wrong(context, &mut written, &wrong)?;
            planned = wrong
                .iter()
                .filter_map(|task| planner.replace(task))
                .collect();
        }
    }
    let is_wrong = |task: &Task| wrong.contains(&task.id) || apart.drops(task);
    let parts = &apart.parts;
    let composed = composed::stage::write(context, &library, (&files[..], parts), is_wrong).await?;
    let items = written.into_iter().map(|planned| planned.item);
    let from_sets = task_sets::write(context, is_wrong).await?;
    let items: Vec<String> = items.chain(composed).chain(from_sets).collect();
    apart.record(context)?;
    let written = finish_planned(context, &items)?;
    let hint = "crawl more files, add templates or rows of task sets, or raise `query.template_share` or `query.composed`";
    report_shortfall(recipe.query.tasks, written, hint)
}

/// Writes planned tasks. Returns the languages of those that cannot be made.
async fn write_planned(
    context: &RunContext,
    library: &Arc<Library>,
    files: &Arc<[SourceFile]>,
    planned: &[PlannedTask],
) -> Result<Vec<Language>, RunError> {
    let stage = QueryStage::new(context, library, files, planned)?;
    let items: Vec<String> = planned.iter().map(|planned| planned.item.clone()).collect();
    context.executor().run(Arc::new(stage), &items).await?;
    unmade(context, planned)
}

/// Removes the plans of these tasks, and returns them.
fn take_wrong(
    context: &RunContext,
    written: &mut Vec<PlannedTask>,
    tasks: &BTreeSet<Digest>,
) -> Result<Vec<PlannedTask>, RunError> {
    let mut wrong = Vec::new();
    if tasks.is_empty() {
        return Ok(wrong);
    }
    let mut right = Vec::with_capacity(written.len());
    for planned in written.drain(..) {
        let task: Option<Task> = context.folder.journal().output(STAGE, &planned.item)?;
        match task.is_some_and(|task| tasks.contains(&task.id)) {
            true => wrong.push(planned),
            false => right.push(planned),
        }
    }
    *written = right;
    Ok(wrong)
}

/// The languages of the planned tasks that cannot be made, in their order. Logs how many there are, by reason.
fn unmade(context: &RunContext, planned: &[PlannedTask]) -> Result<Vec<Language>, RunError> {
    let failures = context.folder.journal().failures()?.into_iter();
    let bad = failures
        .filter(|unit| unit.stage == STAGE && unit.last && unit.failure.kind == FailureKind::Item);
    let bad: HashSet<String> = bad.map(|unit| unit.item).collect();
    let replaced = planned.iter().filter(|task| bad.contains(&task.item));
    let languages: Vec<Language> = replaced.map(|task| task.language).collect();
    if !languages.is_empty() {
        // The executor has logged why.
        tracing::info!("planned tasks that are replaced: {}", languages.len());
    }
    Ok(languages)
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
    /// Runs the references that may refuse files; absent if no planned task has one.
    checker: Option<Checker>,
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
        if let Some(checker) = self
            .checker
            .as_ref()
            .filter(|_| draft.template.may_refuse())
        {
            checker
                .check_fit(&task, &self.store)
                .await
                .map_err(check_failure)?;
        }
        serde_json::to_value(task).map_err(|e| Failure::new(FailureKind::Internal, e.to_string()))
    }
}

impl QueryStage {
    fn new(
        context: &RunContext,
        library: &Arc<Library>,
        files: &Arc<[SourceFile]>,
        planned: &[PlannedTask],
    ) -> Result<Self, RunError> {
        let templates = planned
            .iter()
            .filter_map(|task| library.template(&task.template));
        let checker = match templates.into_iter().any(|template| template.may_refuse()) {
            true => Some(checker(context)?),
            false => None,
        };
        Ok(Self {
            library: library.clone(),
            files: files.clone(),
            plan: planned
                .iter()
                .map(|task| (task.item.clone(), task.clone()))
                .collect(),
            store: context.folder.store().clone(),
            checker,
        })
    }

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

/// A checker with sessions of the recipe's interpreter.
fn checker(context: &RunContext) -> Result<Checker, RunError> {
    let environment = |error: &dyn std::fmt::Display| RunError::Environment(error.to_string());
    let mut choice = context.recipe.interpreter.clone();
    // The checker needs no extra wheels.
    choice.wheelhouse = None;
    let interpreter = paced(&choice).map_err(|error| environment(&error))?;
    Checker::new(interpreter).map_err(|error| environment(&error))
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
