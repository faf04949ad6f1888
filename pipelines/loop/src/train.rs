//! What a round trains: the student, on the datasets of all rounds so far, then on their preference pairs.

use std::path::{Path, PathBuf};

use pybench_run::project::{invocation, is_in_bucket};
use pybench_run::{
    LoopChoice, ModelChoice, PreferenceChoice, RunContext, RunError, local_copy, write_output,
};
use pybench_shard::DATASET;
use toml::{Table, Value};

use crate::preferences::PREFERENCES;
use crate::{round_dir, round_name, runs_dir, trainer};

/// Folder of training recipes, relative to the project root.
const RECIPES: &str = "training/recipes";
/// End of the name of a training run.
const TRAIN: &str = "-train";
/// What a training run says of each of its steps.
const METRICS: &str = "metrics.jsonl";
/// What a training run has done.
const RESULTS: &str = "results.json";
/// Stages of a round with preference pairs: supervised, then on the pairs.
const STAGES: [&str; 2] = ["sft", "dpo"];

/// Checks that a round can train, before anything is played: the trainer reads the recipe of the first round, with the
/// stage of preference pairs.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such recipe, or the trainer refuses it; [`RunError::Environment`] if
/// `pybench-train` is missing.
pub(crate) async fn check(
    context: &RunContext,
    (looped, path): (&LoopChoice, &Path),
) -> Result<(), RunError> {
    let name = round_name(context, 1) + TRAIN;
    let mut table = recipe(context, 1, path, (&name, &context.recipe.teacher))?;
    if let Some(preference) = &looped.preference {
        let pairs = round_dir(context, 1).join(PREFERENCES);
        add_stages(preference, vec![preference_source(&pairs)?], &mut table);
    }
    let own = write_recipe(context, "train-check.toml", path, &table)?;
    trainer::check(path, &own).await
}

/// Trains the student with the recipe `looped.train`, whose `model` and `data` the round sets, and returns the trained
/// student. A training run that is done is not repeated; one that was interrupted resumes from its last checkpoint.
///
/// # Errors
/// [`RunError::BadInput`] for a recipe that cannot be used; [`RunError::Environment`] if `pybench-train` is missing;
/// the error that the exit code of the trainer stands for.
pub(crate) async fn train(
    context: &RunContext,
    number: u32,
    (looped, path): (&LoopChoice, &Path),
    student: &ModelChoice,
) -> Result<ModelChoice, RunError> {
    let name = round_name(context, number) + TRAIN;
    let out = train_dir(context, number);
    if let Some(trained) = done(context, number, student)? {
        return Ok(trained);
    }
    let mut table = recipe(context, number, path, (&name, student))?;
    if let Some(preference) = &looped.preference {
        add_preference(context, number, preference, &mut table)?;
    }
    let own = write_recipe(context, &format!("train-{number}.toml"), path, &table)?;
    tracing::info!("round {number}: training, run {name}");
    trainer::run(context, &own, &out, number).await?;
    let journal = context.folder.journal();
    journal.set_metadata(&done_key(number), &true.into())?;
    done(context, number, student)?.ok_or_else(|| {
        RunError::Incomplete(format!(
            "{} has neither a model nor an adapter after training; run the same command again",
            out.display()
        ))
    })
}

/// Writes the recipe that was made of the one at `path` into the loop's run folder.
fn write_recipe(
    context: &RunContext,
    name: &str,
    path: &Path,
    table: &Table,
) -> Result<PathBuf, RunError> {
    let text = toml::to_string(table)
        .map_err(|error| RunError::BadInput(format!("{}: {error}", path.display())))?;
    let own = context.folder.root().join(name);
    write_output(&own, text.as_bytes())?;
    Ok(own)
}

/// The model in this folder, served as `student` is.
fn trained_student(context: &RunContext, folder: &Path, student: &ModelChoice) -> ModelChoice {
    let (dtype, engine) = match student {
        ModelChoice::Checkpoint { dtype, engine, .. } => (*dtype, *engine),
        _ => Default::default(),
    };
    ModelChoice::Checkpoint {
        model: shown(context, folder),
        dtype,
        engine,
    }
}

/// The student that round `number` has trained; `None` if that is still to be done.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn done(
    context: &RunContext,
    number: u32,
    student: &ModelChoice,
) -> Result<Option<ModelChoice>, RunError> {
    let ended = context.folder.journal().metadata(&done_key(number))?;
    let folder = ended.and_then(|_| trained(&train_dir(context, number)));
    Ok(folder.map(|folder| trained_student(context, &folder, student)))
}

fn train_dir(context: &RunContext, number: u32) -> PathBuf {
    runs_dir(context).join(round_name(context, number) + TRAIN)
}

fn done_key(number: u32) -> String {
    format!("trained/{number}")
}

/// The folder with what a training run has made: that of its last stage, if it has stages.
fn trained(out: &Path) -> Option<PathBuf> {
    let [first, last] = STAGES.map(|stage| out.join(stage));
    let out = match first.is_dir() {
        true => last,
        false => out.to_owned(),
    };
    let folders = ["model", "adapter"].map(|name| out.join(name));
    folders.into_iter().find(|folder| folder.is_dir())
}

/// The tokens with a loss that round `number` trained; `None` if its training run has no metrics.
pub(crate) fn trained_tokens(context: &RunContext, number: u32) -> Option<u64> {
    tokens_in(&train_dir(context, number))
}

/// The tokens that would have a loss but that round `number` did not train, since their rows are too long; `None` if its
/// training run does not say.
pub(crate) fn lost_tokens(context: &RunContext, number: u32) -> Option<u64> {
    let out = train_dir(context, number);
    let lost = folders(&out).filter_map(|folder| lost_in(&folder));
    lost.reduce(|one, other| one + other)
}

/// The trained tokens that a training run lost to the length of its rows, over all sources.
fn lost_in(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join(RESULTS)).ok()?;
    let results: serde_json::Value = serde_json::from_str(&text).ok()?;
    let sources = results["mixture"].as_array()?.iter();
    sources.map(|source| source["lost_trained"].as_u64()).sum()
}

/// The folders that a training run may have made: its own, and those of its stages.
fn folders(out: &Path) -> impl Iterator<Item = PathBuf> {
    let stages = STAGES.map(|stage| out.join(stage));
    std::iter::once(out.to_owned()).chain(stages)
}

/// The trained tokens of a training run, or of its stages.
fn tokens_in(out: &Path) -> Option<u64> {
    let texts =
        folders(out).filter_map(|folder| std::fs::read_to_string(folder.join(METRICS)).ok());
    let sums = texts.map(|text| text.lines().filter_map(trained_in_step).sum::<f64>());
    let sum = sums.reduce(|one, other| one + other);
    sum.map(|tokens| tokens.round() as u64)
}

/// The trained tokens of a line of the metrics.
fn trained_in_step(line: &str) -> Option<f64> {
    let step: serde_json::Value = serde_json::from_str(line).ok()?;
    step["trained"].as_f64()
}

/// Adds the stage that trains on the preference pairs of all rounds so far; none if there are no pairs.
fn add_preference(
    context: &RunContext,
    number: u32,
    preference: &PreferenceChoice,
    table: &mut Table,
) -> Result<(), RunError> {
    let mut sources = vec![];
    for round in 1..=number {
        let file = round_dir(context, round).join(PREFERENCES);
        let size = std::fs::metadata(&file).map_err(RunError::io(file.display().to_string()))?;
        if size.len() > 0 {
            sources.push(preference_source(&file)?);
        }
    }
    if sources.is_empty() {
        tracing::info!("round {number}: there are no preference pairs to train on");
        return Ok(());
    }
    add_stages(preference, sources, table);
    Ok(())
}

/// A file of preference pairs, as an entry of `data`.
fn preference_source(file: &Path) -> Result<Value, RunError> {
    let source = [("path", absolute(file)?), ("kind", "preference".into())];
    Ok(strings(source))
}

/// Makes a recipe one of two stages: what it was, and training on preference pairs.
fn add_stages(preference: &PreferenceChoice, sources: Vec<Value>, table: &mut Table) {
    let values = |pairs: &[(&str, Value)]| -> Value {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()));
        Value::Table(pairs.collect())
    };
    let stage = values(&[
        ("data", Value::Array(sources)),
        ("dpo", values(&[("beta", preference.beta.into())])),
        (
            "train",
            values(&[
                ("num_epochs", preference.num_epochs.into()),
                // A pair cannot be cut, and only its replies count.
                ("overflow", "drop".into()),
                ("prompt_weight", 0.0.into()),
                ("observation_weight", 0.0.into()),
                // Pairs have no level of difficulty.
                ("curriculum", "random".into()),
            ]),
        ),
        (
            "optimizer",
            values(&[("learning_rate", preference.learning_rate.into())]),
        ),
    ]);
    let names = STAGES.map(Value::from);
    table.insert("stages".into(), Value::Array(names.into()));
    let stages = [(STAGES[0], values(&[])), (STAGES[1], stage)];
    table.insert("stage".into(), values(&stages));
}

fn strings<const N: usize>(pairs: [(&str, String); N]) -> Value {
    let pairs = pairs.map(|(key, value)| (key.to_owned(), Value::String(value)));
    Value::Table(pairs.into_iter().collect())
}

/// The path as recipes and ids have it: relative to the project, so that it is the same on every machine.
fn shown(context: &RunContext, folder: &Path) -> String {
    // Joined, because an empty path is that of the working directory.
    let root = std::path::absolute(context.project_root.join(".")).unwrap_or_default();
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let relative = folder.strip_prefix(root).unwrap_or(&folder);
    relative.display().to_string()
}

/// The training recipe of a round.
fn recipe(
    context: &RunContext,
    number: u32,
    path: &Path,
    (name, student): (&str, &ModelChoice),
) -> Result<Table, RunError> {
    let path = find(context, path)?;
    let bad = |why: String| RunError::BadInput(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(RunError::io(path.display().to_string()))?;
    let mut table: Table = text.parse().map_err(|error| bad(format!("{error}")))?;
    if table.contains_key("stages") {
        return Err(bad("a loop trains one stage; remove `stages`".into()));
    }
    table.insert("name".into(), name.into());
    // These are relative to the recipe, which the copy is not beside.
    let beside = path.parent().unwrap_or(Path::new("."));
    for key in ["extends", "chat_template", "model_config"] {
        if let Some(Value::String(file)) = table.get_mut(key)
            && !is_address(Path::new(file.as_str()))
        {
            *file = absolute(&beside.join(&*file))?;
        }
    }
    // The loop measures the student itself.
    table.remove("agent_eval");
    if let ModelChoice::Checkpoint { model, .. } = student {
        let folder = context.project_root.join(model);
        let model = match folder.is_dir() {
            true => absolute(&folder)?,
            false => model.clone(),
        };
        table.insert("model".into(), model.into());
    }
    let data = table
        .entry("data")
        .or_insert_with(|| Value::Array(Vec::new()));
    let data = data
        .as_array_mut()
        .ok_or_else(|| bad("`data` is not a list".into()))?;
    for round in 1..=number {
        let folder = round_dir(context, round).join(DATASET).join("data");
        let source = [("path", absolute(&folder)?), ("prefix", "train-".into())];
        data.push(strings(source));
    }
    Ok(table)
}

/// Whether a path is an address in a bucket or on the Hub.
fn is_address(path: &Path) -> bool {
    is_in_bucket(path) || path.starts_with("hf:")
}

/// The training recipe: a file of the project or in a bucket, or the name of one in `training/recipes`.
fn find(context: &RunContext, path: &Path) -> Result<PathBuf, RunError> {
    if let Some(copy) = local_copy(path, &context.cache_dir)? {
        return Ok(copy);
    }
    if is_address(path) {
        return Err(RunError::BadInput(format!(
            "loop.train: {} is not a file of this machine or in a bucket; download it with `{} run fetch`",
            path.display(),
            invocation()
        )));
    }
    let named = Path::new(RECIPES).join(path).with_extension("toml");
    let candidates = [context.resolve(path), context.resolve(&named)];
    let found = candidates.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| {
        RunError::BadInput(format!(
            "loop.train: there is no training recipe {}; it is the path of a file, or the name of one in {RECIPES}",
            path.display()
        ))
    })
}

fn absolute(path: &Path) -> Result<String, RunError> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.map_err(RunError::io(path.display().to_string()))?;
    Ok(absolute.display().to_string())
}
