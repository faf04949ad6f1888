//! The teachers that a recipe names.

use std::path::Path;
use std::sync::Arc;

use pybench::agent::{self, Format};
use pybench::id::Digest;
use pybench::llm::{
    Batches, Completions, Embeddings, Limits, Metered, OpenAi, OpenAiOptions, Reserves, Teacher,
    TeacherError,
};
use pybench::run::{Budget, FormatChoice, RunContext, RunError, RunFolder, TeacherChoice};

use super::money;
use crate::embedded::{Embedded, Model};
use crate::library::{Expert, Library};

/// Replies that the runs of a project share.
pub(crate) const COMPLETIONS: &str = "data/cache/completions";

/// The teachers of that run, as [`Recipe::teachers`](pybench::run::Recipe::teachers) lists them. A key
/// is read from the environment only when the recipe names it.
pub(crate) fn all(context: &RunContext) -> Result<Vec<Arc<dyn Teacher>>, RunError> {
    let reserves = Arc::default();
    let (speech, teachers) = (Speech::of(context), context.recipe.teachers());
    let teachers = teachers.into_iter();
    distinct(teachers.map(|(path, choice)| (path, one(context, choice, &speech, &reserves))))
}

/// The same, each answering at once, sharing the budget with the other models that hold these reserves.
pub(crate) fn beside(
    context: &RunContext,
    reserves: &Arc<Reserves>,
) -> Result<Vec<Arc<dyn Teacher>>, RunError> {
    let (speech, teachers) = (Speech::of(context), context.recipe.teachers());
    let teachers = teachers.into_iter();
    let live = |choice: &TeacherChoice| one(context, &choice.live(), &speech, reserves);
    distinct(teachers.map(|(path, choice)| (path, live(choice))))
}

fn distinct(
    made: impl Iterator<Item = (String, Result<Arc<dyn Teacher>, RunError>)>,
) -> Result<Vec<Arc<dyn Teacher>>, RunError> {
    let mut teachers: Vec<Arc<dyn Teacher>> = Vec::new();
    for (path, teacher) in made {
        let teacher = teacher?;
        if teachers.iter().any(|other| other.name() == teacher.name()) {
            let name = teacher.name();
            return Err(RunError::BadInput(format!(
                "`{path}`: another teacher is called `{name}` too, and trajectories could not be told \
                 apart"
            )));
        }
        teachers.push(teacher);
    }
    Ok(teachers)
}

/// How a model is spoken to.
pub(crate) struct Speech {
    /// Name under which its calls stand in the journal.
    name: &'static str,
    format: &'static dyn Format,
    tools: Option<serde_json::Value>,
}

impl Speech {
    /// In the message format of a run.
    fn of(context: &RunContext) -> Self {
        let format = agent::format(context.recipe.rollout.format);
        Self {
            name: format.name(),
            tools: format.tools(),
            format,
        }
    }

    /// In questions without tools.
    pub(crate) fn plain(name: &'static str) -> Self {
        Self {
            name,
            tools: None,
            format: agent::format(FormatChoice::default()),
        }
    }
}

/// One of them; it shares the budget with the others.
pub(crate) fn one(
    context: &RunContext,
    choice: &TeacherChoice,
    speech: &Speech,
    reserves: &Arc<Reserves>,
) -> Result<Arc<dyn Teacher>, RunError> {
    let recipe = &context.recipe;
    if let TeacherChoice::Expert { faults } = choice {
        let library = Library::embedded().map_err(|e| RunError::BadInput(e.to_string()))?;
        let expert =
            Expert::new(Arc::new(library), speech.format).with_faults(*faults, recipe.seed);
        return Ok(Arc::new(expert));
    }
    if let TeacherChoice::Embedded {
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
        let (folder, cap) = (context.folder.clone(), money::cap(&recipe.budget));
        let metered = Metered::new(teacher, folder, cap, speech.name);
        return Ok(Arc::new(metered.beside(reserves.clone())));
    }
    endpoint(context, choice, speech, reserves, OpenAi::new)
}

/// The batches of an endpoint that is asked so.
fn batches(
    context: &RunContext,
    choice: &TeacherChoice,
    options: &OpenAiOptions,
) -> Result<Option<Batches>, RunError> {
    let TeacherChoice::Openai { batch: true, .. } = choice else {
        return Ok(None);
    };
    let attempts = context.recipe.rollout.attempts;
    let batches = Batches::new(options.clone(), context.folder.clone(), attempts);
    batches.map(Some).map_err(refused)
}

/// An endpoint that says where texts stand (`pybench::llm::Vector`); it shares the budget with the others.
/// `name` is that under which its calls stand in the journal.
pub(crate) fn embeddings(
    context: &RunContext,
    choice: &TeacherChoice,
    name: &'static str,
    reserves: &Arc<Reserves>,
) -> Result<Arc<dyn Teacher>, RunError> {
    let speech = Speech::plain(name);
    endpoint(context, choice, &speech, reserves, Embeddings::new)
}

/// Whoever answers at an endpoint of the recipe, under each of its keys.
fn endpoint<T: Teacher + 'static>(
    context: &RunContext,
    choice: &TeacherChoice,
    speech: &Speech,
    reserves: &Arc<Reserves>,
    new: fn(OpenAiOptions) -> Result<T, TeacherError>,
) -> Result<Arc<dyn Teacher>, RunError> {
    let recipe = &context.recipe;
    let variable = |name: &str| std::env::var(name).ok();
    let options = OpenAiOptions::from_recipe(choice, variable).map_err(refused)?;
    let options = options.ok_or_else(|| RunError::Internal("no such teacher".to_owned()))?;
    let options = options.offering(speech.tools.clone());
    let more = options.under_more_keys(choice, variable).map_err(refused)?;
    let endpoint = endpoint_name(&options);
    let keyed: Result<Vec<_>, _> = more.into_iter().map(new).collect();
    let batches = batches(context, choice, &options)?;
    let teacher = new(options).map_err(refused)?;
    let metered = Metered::in_turn(
        teacher,
        keyed.map_err(refused)?,
        Limits::of(choice),
        context.folder.clone(),
        money::cap(&recipe.budget),
        speech.name,
    );
    let mut metered = metered.beside(reserves.clone());
    if let Some(batches) = batches {
        metered = metered.batching(batches);
    }
    Ok(match recipe.rollout.reuse {
        false => Arc::new(metered),
        true => {
            let root = context.project_root.join(COMPLETIONS);
            Arc::new(metered.sharing(Completions::new(&root, &endpoint)))
        }
    })
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
    let endpoint = endpoint_name(&options);
    let teacher = OpenAi::new(options).map_err(refused)?;
    let metered = Metered::new(teacher, folder, money::cap(budget), format);
    Ok(match shared {
        None => Arc::new(metered),
        Some(root) => Arc::new(metered.sharing(Completions::new(root, &endpoint))),
    })
}

/// What tells endpoints apart whose replies are shared.
fn endpoint_name(options: &OpenAiOptions) -> String {
    let mut endpoint = format!("{} {}", options.base_url, options.model);
    if !options.extra.is_empty() {
        endpoint += &format!(" {}", Digest::of_json(&options.extra));
    }
    endpoint
}

pub(crate) fn refused(error: TeacherError) -> RunError {
    match error {
        TeacherError::Rejected(text) => RunError::BadInput(text),
        other => RunError::Endpoint(other.to_string()),
    }
}
