//! The teacher that a recipe names.

use std::path::Path;
use std::sync::Arc;

use pybench::agent;
use pybench::id::Digest;
use pybench::llm::{Completions, Metered, OpenAi, OpenAiOptions, Teacher, TeacherError};
use pybench::run::{Budget, RunContext, RunError, RunFolder, TeacherChoice};

use super::money;
use crate::embedded::{Embedded, Model};
use crate::library::{Expert, Library};

/// Replies that the runs of a project share.
pub(crate) const COMPLETIONS: &str = "data/cache/completions";

/// The teacher of that run. A key is read from the environment only when the recipe names it.
pub(super) fn of(context: &RunContext) -> Result<Arc<dyn Teacher>, RunError> {
    let recipe = &context.recipe;
    let format = agent::format(recipe.rollout.format);
    if let TeacherChoice::Expert { faults } = recipe.teacher {
        let library = Library::embedded().map_err(|e| RunError::BadInput(e.to_string()))?;
        let expert = Expert::new(Arc::new(library), format).with_faults(faults, recipe.seed);
        return Ok(Arc::new(expert));
    }
    if let TeacherChoice::Embedded {
        model,
        sha256,
        context: tokens,
    } = &recipe.teacher
    {
        let teacher = Embedded::pinned(Model {
            model: model.clone(),
            sha256: sha256.clone(),
            context: *tokens,
            root: context.project_root.clone(),
            cache: context.cache_dir.clone(),
        })?;
        let cap = money::cap(&recipe.budget);
        return Ok(teacher.metered(context.folder.clone(), cap, format.name()));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let options = OpenAiOptions::from_recipe(&recipe.teacher, variable).map_err(refused)?;
    let options = options.ok_or_else(|| RunError::Internal("no such teacher".to_owned()))?;
    let shared = recipe
        .rollout
        .reuse
        .then(|| context.project_root.join(COMPLETIONS));
    let folder = context.folder.clone();
    metered(
        options,
        folder,
        &recipe.budget,
        format.name(),
        shared.as_deref(),
    )
}

/// A model behind an endpoint, its calls journaled and within the budget; replies are shared with other
/// runs through the folder `shared`.
pub(crate) fn metered(
    options: OpenAiOptions,
    folder: Arc<RunFolder>,
    budget: &Budget,
    format: &'static str,
    shared: Option<&Path>,
) -> Result<Arc<dyn Teacher>, RunError> {
    let mut endpoint = format!("{} {}", options.base_url, options.model);
    if !options.extra.is_empty() {
        endpoint += &format!(" {}", Digest::of_json(&options.extra));
    }
    let teacher = OpenAi::new(options).map_err(refused)?;
    let metered = Metered::new(teacher, folder, money::cap(budget), format);
    Ok(match shared {
        None => Arc::new(metered),
        Some(root) => Arc::new(metered.sharing(Completions::new(root, &endpoint))),
    })
}

pub(crate) fn refused(error: TeacherError) -> RunError {
    match error {
        TeacherError::Rejected(text) => RunError::BadInput(text),
        other => RunError::Endpoint(other.to_string()),
    }
}
