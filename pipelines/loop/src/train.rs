//! What a round trains: the student, on the datasets of all rounds so far.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use pybench_attempts::model_server;
use pybench_run::{ExitCode, ModelChoice, RunContext, RunError, write_output};
use pybench_shard::DATASET;
use toml::{Table, Value};

use crate::{run_name, runs_dir};

/// Folder of training recipes, relative to the project root.
const RECIPES: &str = "training/recipes";

/// Checks that a round can train, before anything is played.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such recipe; [`RunError::Environment`] if `pybench-train` is missing.
pub(crate) fn check(context: &RunContext, path: &Path) -> Result<(), RunError> {
    find(context, path)?;
    model_server::required_program().map(drop)
}

/// Trains the student with the recipe at `path`, whose `model` and `data` the round sets, and returns the trained
/// student. A training run that is done is not repeated; one that was interrupted resumes from its last checkpoint.
///
/// # Errors
/// [`RunError::BadInput`] for a recipe that cannot be used; [`RunError::Environment`] if `pybench-train` is missing;
/// the error that the exit code of the trainer stands for.
pub(crate) async fn train(
    context: &RunContext,
    number: u32,
    path: &Path,
    student: &ModelChoice,
) -> Result<ModelChoice, RunError> {
    let name = format!("{}-round-{number}-train", run_name(context));
    let out = runs_dir(context).join(&name);
    let (journal, key) = (context.folder.journal(), format!("trained/{number}"));
    if journal.metadata(&key)?.is_none() || trained(&out).is_none() {
        let text = recipe(context, number, path, (&name, student))?;
        let own = context.folder.root().join(format!("train-{number}.toml"));
        write_output(&own, text.as_bytes())?;
        tracing::info!("round {number}: training, run {name}");
        run_trainer(&own, &out, number).await?;
        journal.set_metadata(&key, &true.into())?;
    }
    let folder = trained(&out).ok_or_else(|| {
        RunError::Incomplete(format!(
            "{} has neither a model nor an adapter after training; run the same command again",
            out.display()
        ))
    })?;
    Ok(ModelChoice::Checkpoint {
        model: shown(context, &folder),
        dtype: match student {
            ModelChoice::Checkpoint { dtype, .. } => *dtype,
            _ => None,
        },
    })
}

/// The folder with what a training run has made.
fn trained(out: &Path) -> Option<PathBuf> {
    let folders = ["model", "adapter"].map(|name| out.join(name));
    folders.into_iter().find(|folder| folder.is_dir())
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
) -> Result<String, RunError> {
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
        if let Some(Value::String(file)) = table.get_mut(key) {
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
        let run = format!("{}-round-{round}", run_name(context));
        let folder = runs_dir(context).join(run).join(DATASET).join("data");
        let source = [("path", absolute(&folder)?), ("prefix", "train-".into())];
        let source = source.map(|(key, value)| (key.to_owned(), Value::String(value)));
        data.push(Value::Table(source.into_iter().collect()));
    }
    toml::to_string(&table).map_err(|error| bad(error.to_string()))
}

/// The training recipe: a file of the project, or the name of one in `training/recipes`.
fn find(context: &RunContext, path: &Path) -> Result<PathBuf, RunError> {
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

async fn run_trainer(recipe: &Path, out: &Path, number: u32) -> Result<(), RunError> {
    let program = model_server::required_program()?;
    let mut command = tokio::process::Command::new(&program);
    command.arg("run").arg(recipe).arg("--out").arg(out);
    // Standard output belongs to this program.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.kill_on_drop(true);
    let status = command.status().await;
    let status = status.map_err(RunError::io(program.display().to_string()))?;
    match status.success() {
        true => Ok(()),
        false => Err(failure(status, number)),
    }
}

/// The error that the trainer's exit code stands for.
fn failure(status: ExitStatus, number: u32) -> RunError {
    let text = format!(
        "training of round {number} ended with {status}; the output above says why, and the same command goes on with it"
    );
    match status.code().and_then(ExitCode::from_number) {
        Some(ExitCode::BadInput | ExitCode::Usage) => RunError::BadInput(text),
        Some(ExitCode::Environment) => RunError::Environment(text),
        Some(ExitCode::Conflict) => RunError::Conflict(text),
        Some(ExitCode::Interrupted) => RunError::Interrupted,
        _ => RunError::Incomplete(text),
    }
}
