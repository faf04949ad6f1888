//! The recipe of an evaluation, as its options change it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pybench_attempts::model_server;
use pybench_run::project::{default_runs_dir, find_recipe, invocation};
use pybench_run::{RunError, ServeEngine, apply_sets};

use super::run_args::RunArgs;
use crate::agent::config::UpstreamConfig;
use crate::run::{AgentChoice, EvalRecipe};
use crate::suites::entry;

/// Folder of recipes, relative to the project root.
const RECIPES: &str = "pipelines/recipes/eval";

/// Training recipe whose base model is evaluated if nothing has been trained yet.
const DEFAULT_TRAINING_RECIPE: &str = "smollm2";

/// Label of the agent that PyBench's own configuration describes.
pub(super) const UPSTREAM_AGENT: &str = "model";

/// The recipe, as the arguments change it.
pub(super) fn changed_recipe(args: &RunArgs, root: Option<&Path>) -> Result<EvalRecipe, RunError> {
    let mut recipe = load_recipe(args, root)?;
    if !args.set.is_empty() {
        let (name, text) = (format!("{} with --set", recipe.name), recipe.to_toml()?);
        recipe = EvalRecipe::parse(&name, &apply_sets(&name, &text, &args.set)?)?;
    }
    recipe.tasks = args.common.tasks.clone().or(recipe.tasks);
    recipe.max_tasks = args.common.max_tasks.or(recipe.max_tasks);
    if let Some(name) = &args.common.suite {
        entry(name).map_err(RunError::BadInput)?;
        recipe.suites = vec![name.clone()];
    }
    recipe.regenerate = args.common.regenerate.or(recipe.regenerate);
    recipe.budget.usd = args.usd.or(recipe.budget.usd);
    recipe.budget.tokens = args.tokens.or(recipe.budget.tokens);
    Ok(recipe)
}

fn load_recipe(args: &RunArgs, root: Option<&Path>) -> Result<EvalRecipe, RunError> {
    let single_agent = |name: &str, label: &str, choice| {
        EvalRecipe::new(name, BTreeMap::from([(label.to_owned(), choice)]))
    };
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(RunError::io(path.display().to_string()))
    };
    if let Some(path) = &args.config_path {
        // Reject a literal API key before anything is written.
        UpstreamConfig::read(path, |name| std::env::var(name).ok())?;
        let choice = AgentChoice::Config {
            path: absolute(path)?,
            price: None,
        };
        return Ok(single_agent("eval-config", UPSTREAM_AGENT, choice));
    }
    if let Some(path) = &args.trajectories {
        let choice = AgentChoice::Trajectories {
            path: absolute(path)?,
            outputs: args.outputs.as_ref().map(absolute).transpose()?,
        };
        // Other systems ran on the published inputs.
        return Ok(EvalRecipe {
            perturb: false,
            ..single_agent("eval-trajectories", "foreign", choice)
        });
    }
    let recipe = args.recipe.as_deref().unwrap_or(Path::new("default"));
    EvalRecipe::load(&find_recipe(recipe, RECIPES, root)?)
}

/// Adds the newest checkpoint of `just train` and its base model as agents; warns if one is missing.
pub(super) fn add_checkpoints(recipe: &mut EvalRecipe, root: &Path) {
    if model_server::program().is_none() {
        tracing::warn!(
            "`pybench-train` was not found, so no checkpoint and no base model are evaluated; {}",
            model_server::HOW_TO_BUILD
        );
        return;
    }
    let checkpoint = model_server::newest(&default_runs_dir(Some(root)));
    let base = match &checkpoint {
        Some((_, folder)) => model_server::base_of(folder),
        None => model_server::base_of_recipe(root, DEFAULT_TRAINING_RECIPE),
    };
    match &checkpoint {
        Some((run, folder)) => tracing::info!("checkpoint: {run}, {}", folder.display()),
        None => {
            tracing::warn!(
                "no checkpoint found: only the base model is evaluated; run `{} train` to make one",
                invocation()
            )
        }
    }
    let checkpoint = checkpoint.map(|(run, folder)| {
        let about = format!("checkpoint of the training run `{run}`");
        ("checkpoint", folder.display().to_string(), about)
    });
    let base = base.map(|name| {
        (
            "base",
            name.clone(),
            format!("`{name}`, base model of the training run"),
        )
    });
    for (label, model, about) in checkpoint.into_iter().chain(base) {
        let choice = AgentChoice::Checkpoint {
            model,
            base: false,
            dtype: None,
            engine: ServeEngine::default(),
            about: Some(about),
        };
        recipe.agents.entry(label.to_owned()).or_insert(choice);
    }
}
