//! Which tasks are asked, and which cannot be.

use std::sync::Arc;

use pybench::run::RunError;
use pybench::task::{Category, Task};

use super::recipe::ranges;
use super::{Setup, library};
use crate::eval::bare::bare_task;
use crate::eval::bench::prepare::{Changes, PrepareStage};
use crate::eval::bench::spec::TaskSpec;
use crate::eval::bench::{Bench, Ready, SUITE};
use crate::eval::record::Headline;

/// A task that agents are asked.
pub(super) struct Question {
    pub(super) suite: String,
    /// Its name in the suite.
    pub(super) name: String,
    pub(super) task: Arc<Task>,
    /// Its number in the benchmark.
    pub(super) index: Option<u32>,
    pub(super) headline: Headline,
    /// Whether upstream's tests know its inputs.
    pub(super) published: bool,
}

/// A task that cannot be run here.
pub(super) struct Absent {
    pub(super) name: String,
    pub(super) category: Category,
    pub(super) prompt: String,
    pub(super) reason: String,
}

/// What is asked.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) questions: Vec<Question>,
    pub(super) absent: Vec<Absent>,
}

/// What is asked, in words.
pub(super) fn name(setup: &Setup) -> String {
    let recipe = &setup.recipe;
    let mut parts = Vec::new();
    if setup.bench.is_some() && recipe.pybench {
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

/// Prepare and list them: the benchmark's by number, then the library's.
pub(super) async fn ask(setup: &Setup) -> Result<Asked, RunError> {
    let mut asked = Asked::default();
    if let (Some(bench), true) = (&setup.bench, setup.recipe.pybench) {
        of_bench(setup, bench, &mut asked).await?;
    }
    if let Some(run) = &setup.recipe.library {
        let tasks = library::held_out(&setup.project_root.join(run), setup.folder.store())?;
        asked
            .questions
            .extend(tasks.into_iter().map(|task| Question {
                suite: "library".to_owned(),
                name: task.id.short().to_owned(),
                task: Arc::new(task),
                index: None,
                headline: Headline::default(),
                published: false,
            }));
    }
    if asked.questions.is_empty() {
        return Err(RunError::BadInput(
            "there is nothing to ask: the benchmark's files are not here (`pybench-eval fetch`, `--pybench DIR`) and the recipe names no `library` run with held-out tasks".to_owned(),
        ));
    }
    Ok(asked)
}

async fn of_bench(setup: &Setup, bench: &Bench, asked: &mut Asked) -> Result<(), RunError> {
    let recipe = &setup.recipe;
    let wanted = recipe
        .tasks
        .as_deref()
        .map(ranges)
        .transpose()
        .map_err(RunError::BadInput)?;
    let wanted = |spec: &&TaskSpec| wanted.as_ref().is_none_or(|set| set.contains(&spec.index));
    let mut ready = Vec::new();
    for spec in bench.specs.values().filter(wanted) {
        match bench.ready(spec) {
            Ready::No(reason) => asked.absent.push(absent(bench, spec, reason)),
            Ready::Yes if recipe.regenerate.is_some() && spec.vary.is_none() => {
                let reason = "it is about its very files: no other variant can be made".to_owned();
                asked.absent.push(absent(bench, spec, reason));
            }
            Ready::Yes => ready.push(spec),
        }
    }
    let changes = Changes {
        seed: recipe.regenerate.unwrap_or(recipe.seed),
        perturb: recipe.perturb,
        regenerate: recipe.regenerate.is_some(),
    };
    let (folder, interpreter) = (setup.folder.clone(), setup.interpreter.clone());
    let stage = Arc::new(PrepareStage::new(
        bench.clone(),
        folder,
        interpreter,
        changes,
        &ready,
    ));
    setup.execute(stage.clone(), &stage.items()).await?;
    let mut results = stage.results()?;
    for spec in ready {
        match results.remove(&spec.index) {
            Some(Ok(prepared)) => asked.questions.push(Question {
                suite: SUITE.to_owned(),
                name: spec.index.to_string(),
                task: Arc::new(bench.task(spec, &prepared)?),
                index: Some(spec.index),
                headline: Headline {
                    counts: spec.status.reason().is_none(),
                    reason: spec.status.reason().map(str::to_owned),
                },
                published: recipe.regenerate.is_none(),
            }),
            other => {
                let failure = other.and_then(Result::err).map(|failure| failure.detail);
                let reason = failure.unwrap_or_else(|| "its inputs were not prepared".to_owned());
                asked.absent.push(absent(bench, spec, reason));
            }
        }
    }
    Ok(())
}

fn absent(bench: &Bench, spec: &TaskSpec, reason: String) -> Absent {
    let prompt = bench.upstream.row(spec.index).map(|row| row.user.clone());
    Absent {
        name: spec.index.to_string(),
        category: spec.category,
        prompt: prompt.unwrap_or_default(),
        reason,
    }
}

/// A task of no content, to see how a format opens.
pub(super) fn blank_task() -> Task {
    bare_task("", Category::Chart, "")
}
