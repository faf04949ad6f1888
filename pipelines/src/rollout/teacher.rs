//! The teacher that a recipe names.

use std::sync::Arc;

use pybench::agent;
use pybench::llm::{Completions, Metered, OpenAi, OpenAiOptions, Teacher, TeacherError};
use pybench::run::{RunContext, RunError, TeacherChoice};

use super::money;
use crate::library::{Expert, Library};

/// Replies that the runs of a project share.
const COMPLETIONS: &str = "data/cache/completions";

/// The teacher of that run. A key is read from the environment only when the recipe names it.
pub(super) fn of(context: &RunContext) -> Result<Arc<dyn Teacher>, RunError> {
    let recipe = &context.recipe;
    let format = agent::format(recipe.rollout.format);
    if let TeacherChoice::Expert { faults } = recipe.teacher {
        let library = Library::embedded().map_err(|e| RunError::BadInput(e.to_string()))?;
        let expert = Expert::new(Arc::new(library), format).with_faults(faults, recipe.seed);
        return Ok(Arc::new(expert));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let options = OpenAiOptions::from_recipe(&recipe.teacher, variable).map_err(refused)?;
    let options = options.ok_or_else(|| RunError::Internal("no such teacher".to_owned()))?;
    let endpoint = format!("{} {}", options.base_url, options.model);
    let teacher = OpenAi::new(options).map_err(refused)?;
    let (folder, cap) = (context.folder.clone(), money::cap(&recipe.budget));
    let metered = Metered::new(teacher, folder, cap, format.name());
    if !recipe.rollout.reuse {
        return Ok(Arc::new(metered));
    }
    let root = context.project_root.join(COMPLETIONS);
    let completions = Completions::new(&root, &endpoint);
    Ok(Arc::new(metered.sharing(completions)))
}

fn refused(error: TeacherError) -> RunError {
    match error {
        TeacherError::Rejected(text) => RunError::BadInput(text),
        other => RunError::Endpoint(other.to_string()),
    }
}
