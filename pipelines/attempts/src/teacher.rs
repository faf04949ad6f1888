//! Builds the teachers and other models that a recipe names: journaled, within the budget, with shared replies.

use std::path::Path;
use std::sync::Arc;

use pybench_agent as agent;
use pybench_agent::Solver;
use pybench_llm::{
    Batches, BudgetLedger, ChatError, ChatModel, Embedder, Limits, Metered, OpenAi, OpenAiOptions,
    ResponseCache,
};
use pybench_run::{
    Budget, BudgetCap, CodeIdiom, Interrupt, ModelChoice, Recipe, RunContext, RunError, RunFolder,
    SolutionStyle,
};
use pybench_types::id::Digest;

use crate::model_server::ServeOptions;
use crate::request_options::RequestOptions;
use crate::served::{self, Served};
use pybench_embedded_client::{Embedded, Model};
use pybench_library::{Expert, Library};

/// Folder of the response cache that the runs of a project share, relative to the project root.
pub const RESPONSE_CACHE: &str = "data/cache/completions";

/// Builds the teachers of a run, in the order of [`Recipe::teachers`](pybench_run::Recipe::teachers). An
/// API key is read from the environment only if the recipe names its variable.
///
/// # Errors
/// As [`chat_model`]; [`RunError::BadInput`] if two teachers have the same name.
pub fn teachers(context: &RunContext) -> Result<Vec<Solver>, RunError> {
    distinct(context, &Arc::default(), ModelChoice::clone)
}

/// Like [`teachers`], but without batches. The teachers share the budget with the other models of `ledger`.
///
/// # Errors
/// As [`teachers`].
pub fn live_teachers(
    context: &RunContext,
    ledger: &Arc<BudgetLedger>,
) -> Result<Vec<Solver>, RunError> {
    distinct(context, ledger, ModelChoice::live)
}

fn distinct(
    context: &RunContext,
    ledger: &Arc<BudgetLedger>,
    change: fn(&ModelChoice) -> ModelChoice,
) -> Result<Vec<Solver>, RunError> {
    let mut teachers: Vec<Solver> = Vec::new();
    for (path, choice) in context.recipe.teachers() {
        let teacher = solver(context, &change(choice), ledger)?;
        if teachers.iter().any(|other| other.name() == teacher.name()) {
            let name = teacher.name();
            return Err(RunError::BadInput(format!(
                "`{path}`: another teacher is also named `{name}`, so their trajectories would be \
                 indistinguishable; remove one, or use another model"
            )));
        }
        teachers.push(teacher);
    }
    Ok(teachers)
}

/// Builds one teacher: the expert, by itself or as the one that corrects, or a chat model.
fn solver(
    context: &RunContext,
    choice: &ModelChoice,
    ledger: &Arc<BudgetLedger>,
) -> Result<Solver, RunError> {
    let format = agent::format(context.recipe.rollout.format);
    let expert = || -> Result<Expert, RunError> {
        let library = Library::embedded().map_err(|e| RunError::BadInput(e.to_string()))?;
        Ok(Expert::new(Arc::new(library), format))
    };
    match choice {
        ModelChoice::Expert {
            faults,
            recoveries,
            idioms,
            style,
        } => {
            let expert = expert()?.with_faults(*faults, context.recipe.seed);
            let expert = expert.with_recoveries(*recoveries).with_idioms(idioms);
            let expert = expert.with_style(*style);
            return Ok(Solver::Script(Arc::new(expert)));
        }
        ModelChoice::Correction { idioms, style } => {
            let idioms = correction_idioms(&context.recipe, idioms);
            let style = correction_style(&context.recipe, *style);
            let expert = expert()?.with_idioms(idioms).with_style(style);
            return Ok(Solver::Correction(Arc::new(expert)));
        }
        ModelChoice::Openai { .. }
        | ModelChoice::Embedded { .. }
        | ModelChoice::Checkpoint { .. } => {}
    }
    let request_options = RequestOptions::of_rollout(format, &context.recipe.rollout);
    chat_model(context, choice, &request_options, ledger).map(Solver::Model)
}

/// The idioms in which the expert corrects: `own`, or those of the teacher `expert`. An empty list means all.
fn correction_idioms<'a>(recipe: &'a Recipe, own: &'a [CodeIdiom]) -> &'a [CodeIdiom] {
    let mut teachers = recipe.teachers().into_iter();
    let expert = teachers.find_map(|(_, choice)| match choice {
        ModelChoice::Expert { idioms, .. } => Some(idioms.as_slice()),
        _ => None,
    });
    match own {
        [] => expert.unwrap_or_default(),
        own => own,
    }
}

/// The style in which the expert corrects: `own`, or that of the teacher `expert`.
fn correction_style(recipe: &Recipe, own: Option<SolutionStyle>) -> SolutionStyle {
    let mut teachers = recipe.teachers().into_iter();
    let expert = teachers.find_map(|(_, choice)| match choice {
        ModelChoice::Expert { style, .. } => Some(*style),
        _ => None,
    });
    own.or(expert).unwrap_or_default()
}

/// Builds one chat model. It shares the budget with the other models of `ledger`.
///
/// # Errors
/// [`RunError::BadInput`] for a wrong choice or a missing key; [`RunError::Internal`] for the expert;
/// [`RunError::Environment`] if the program for GGUF models is not built.
pub fn chat_model(
    context: &RunContext,
    choice: &ModelChoice,
    request_options: &RequestOptions,
    ledger: &Arc<BudgetLedger>,
) -> Result<Arc<dyn ChatModel>, RunError> {
    if let ModelChoice::Embedded {
        model,
        sha256,
        context: tokens,
    } = choice
    {
        let teacher = Embedded::pinned(Model {
            model: model.clone(),
            sha256: sha256.clone(),
            context: *tokens,
            root: context.project_root.clone(),
            cache: context.cache_dir.clone(),
        })?;
        let metered = local(
            context,
            teacher,
            pybench_embedded_client::LIMITS,
            request_options.name,
        );
        return Ok(Arc::new(metered.with_ledger(ledger.clone())));
    }
    if let ModelChoice::Checkpoint {
        model,
        dtype,
        engine,
    } = choice
    {
        let path = checkpoint(context, model);
        let options = ServeOptions {
            base: false,
            dtype: *dtype,
            engine: *engine,
        };
        let teacher = Served::new(model, options, path, request_options.clone())?;
        let metered = local(context, teacher, served::LIMITS, request_options.name);
        return Ok(Arc::new(metered.with_ledger(ledger.clone())));
    }
    let options = options(choice, request_options)?;
    let batches = batches(context, choice, &options)?;
    let (name, build) = (request_options.name, Metered::with_keys);
    let metered = endpoint(context, choice, options, name, OpenAi::new, build)?;
    let metered = metered.with_ledger(ledger.clone());
    Ok(match batches {
        None => Arc::new(metered),
        Some(batches) => Arc::new(metered.with_batches(batches)),
    })
}

/// Meters a model that runs on this machine. `name` is the journal name of its calls.
fn local<T: ChatModel>(
    context: &RunContext,
    model: T,
    limits: Limits,
    name: &'static str,
) -> Metered<T> {
    let (folder, cap) = (context.folder.clone(), context.options.budget);
    Metered::with_keys(model, Vec::new(), limits, folder, cap, name)
        .with_interrupt(context.interrupt.clone())
}

/// The folder of a checkpoint, or its name if that is one of the trainer's catalog.
fn checkpoint(context: &RunContext, model: &str) -> String {
    let folder = context.project_root.join(model);
    match folder.is_dir() {
        true => folder.display().to_string(),
        false => model.to_owned(),
    }
}

/// The batch queue of an endpoint whose recipe entry sets `batch`.
fn batches(
    context: &RunContext,
    choice: &ModelChoice,
    options: &OpenAiOptions,
) -> Result<Option<Batches>, RunError> {
    let ModelChoice::Openai { batch: true, .. } = choice else {
        return Ok(None);
    };
    let attempts = context.recipe.rollout.attempts;
    let batches = Batches::new(options.clone(), context.folder.clone(), attempts);
    batches.map(Some).map_err(setup_error)
}

/// Builds an embedding endpoint. It shares the budget with the other models of `ledger`; `name` is the journal
/// name of its calls.
///
/// # Errors
/// As [`chat_model`].
pub fn embedder(
    context: &RunContext,
    choice: &ModelChoice,
    name: &'static str,
    ledger: &Arc<BudgetLedger>,
) -> Result<Metered<Embedder>, RunError> {
    let options = options(choice, &RequestOptions::plain(name))?;
    let (new, build) = (Embedder::new, Metered::embedder);
    let metered = endpoint(context, choice, options, name, new, build)?;
    Ok(metered.with_ledger(ledger.clone()))
}

/// The connection settings of an endpoint of the recipe.
fn options(
    choice: &ModelChoice,
    request_options: &RequestOptions,
) -> Result<OpenAiOptions, RunError> {
    let options = OpenAiOptions::from_recipe(choice, variable).map_err(setup_error)?;
    let options =
        options.ok_or_else(|| RunError::Internal("this model has no endpoint".to_owned()))?;
    Ok(request_options.apply(options))
}

/// Checks that the API keys and headers of all models of a recipe are in the environment, so that a missing one is
/// found before any work.
///
/// # Errors
/// [`RunError::Endpoint`] names the variable and the path of the model in the recipe.
pub fn check_keys(recipe: &Recipe) -> Result<(), RunError> {
    for (path, choice) in recipe.models() {
        let options = OpenAiOptions::from_recipe(choice, variable);
        let keys = options.and_then(|options| match options {
            Some(options) => options.with_additional_keys(choice, variable),
            None => Ok(Vec::new()),
        });
        keys.map_err(|error| RunError::Endpoint(format!("`{path}`: {error}")))?;
    }
    Ok(())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Meters a model that is called with several keys.
type Build<T> = fn(T, Vec<T>, Limits, Arc<RunFolder>, BudgetCap, &'static str) -> Metered<T>;

/// Builds a model behind an endpoint of the recipe, with all keys that the recipe names. `name` is the journal
/// name of its calls.
fn endpoint<T>(
    context: &RunContext,
    choice: &ModelChoice,
    options: OpenAiOptions,
    name: &'static str,
    new: fn(OpenAiOptions) -> Result<T, ChatError>,
    build: Build<T>,
) -> Result<Metered<T>, RunError> {
    let recipe = &context.recipe;
    let more = options
        .with_additional_keys(choice, variable)
        .map_err(setup_error)?;
    let endpoint = endpoint_name(&options);
    let more: Result<Vec<_>, _> = more.into_iter().map(new).collect();
    let (model, more) = (
        new(options).map_err(setup_error)?,
        more.map_err(setup_error)?,
    );
    let (folder, cap) = (context.folder.clone(), context.options.budget);
    let processes = folder.workers().map_or(1, |workers| workers.processes());
    let limits = Limits::of(choice).shared_by(processes);
    let metered =
        build(model, more, limits, folder, cap, name).with_interrupt(context.interrupt.clone());
    Ok(match recipe.rollout.reuse {
        false => metered,
        true => {
            let root = context.project_root.join(RESPONSE_CACHE);
            metered.with_cache(ResponseCache::new(&root, &endpoint))
        }
    })
}

/// Builds a model behind an endpoint, with its calls journaled and within the budget. If `shared` is given,
/// replies are shared with other runs through that folder.
///
/// # Errors
/// [`RunError::BadInput`] for invalid options.
pub fn metered(
    options: OpenAiOptions,
    folder: Arc<RunFolder>,
    budget: &Budget,
    format: &'static str,
    shared: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<Arc<dyn ChatModel>, RunError> {
    let endpoint = endpoint_name(&options);
    let teacher = OpenAi::new(options).map_err(setup_error)?;
    let metered = Metered::new(teacher, folder, BudgetCap::of(budget), format)
        .with_interrupt(interrupt.clone());
    Ok(match shared {
        None => Arc::new(metered),
        Some(root) => Arc::new(metered.with_cache(ResponseCache::new(root, &endpoint))),
    })
}

/// Identifies an endpoint in the response cache: URL, model and extra parameters.
fn endpoint_name(options: &OpenAiOptions) -> String {
    let mut endpoint = format!("{} {}", options.base_url, options.model);
    if !options.extra.is_empty() {
        endpoint += &format!(" {}", Digest::of_json(&options.extra));
    }
    endpoint
}

/// The error of a run whose model cannot be set up.
pub fn setup_error(error: ChatError) -> RunError {
    match error {
        ChatError::Rejected(text) => RunError::BadInput(text),
        other => RunError::Endpoint(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_have_idioms_and_a_style_of_their_own_or_those_of_the_expert() {
        let recipe = |teacher: &str| -> Recipe {
            let text = format!(
                "name = 't'\ncrawl = {{ sources = [] }}\nquery = {{ tasks = 1 }}\nteacher = {teacher}"
            );
            toml::from_str(&text).unwrap()
        };
        let expert = recipe("{ kind = 'expert', idioms = ['pandas'], style = 'uniform' }");
        let own = [CodeIdiom::Plain];
        assert_eq!(correction_idioms(&expert, &[]), [CodeIdiom::Pandas]);
        assert_eq!(correction_idioms(&expert, &own), own);
        let (varied, uniform) = (SolutionStyle::Varied, SolutionStyle::Uniform);
        assert_eq!(correction_style(&expert, None), uniform);
        assert_eq!(correction_style(&expert, Some(varied)), varied);
        let student = recipe("{ kind = 'checkpoint', model = 'm' }");
        assert!(correction_idioms(&student, &[]).is_empty());
        assert_eq!(correction_style(&student, None), varied);
        assert_eq!(correction_style(&student, Some(uniform)), uniform);
    }
}
