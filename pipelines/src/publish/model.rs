//! A model that may leave: weights that are whole and of this configuration, a tokenizer that reads, and a card
//! with how it was trained, on what, and how it does.

mod lineage;
mod weights;

use std::fs;
use std::path::{Path, PathBuf};

use pybench::run::RunError;
use pybench::run::project::{default_runs_dir, project_root};
use serde_json::Value;

use super::Package;
use crate::hub::Kind;
use lineage::Lineage;

/// Most bytes of a configuration, a recipe or a report.
const TEXT: u64 = 16 << 20;
/// Most bytes of a tokenizer.
const TOKENIZER: u64 = 256 << 20;
/// Files of a model's folder that go with the weights.
const COMPANIONS: [&str; 8] = [
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer.model",
];

/// What only a model has.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Models")]
pub struct ModelArgs {
    /// The model's licence, as the Hub names it (apache-2.0, llama3, …)
    #[arg(long, value_name = "NAME")]
    pub licence: Option<String>,
    /// The model that it was trained from, as the Hub names it; may be given several times
    #[arg(long, value_name = "OWNER/NAME")]
    pub base_model: Vec<String>,
    /// A dataset that it was trained on, as the Hub names it; may be given several times
    #[arg(long, value_name = "OWNER/NAME")]
    pub dataset: Vec<String>,
    /// The recipe that it was trained by
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// The report of an evaluation: a folder with report.md and report.json
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Whether it is a model: a folder with one, a training run, or the name of one.
pub(super) fn is_model(what: &Path) -> bool {
    folder(what).join("config.json").is_file()
}

fn folder(what: &Path) -> PathBuf {
    let runs = default_runs_dir(project_root(Path::new(".")).as_deref());
    let places = [
        what.to_owned(),
        what.join("model"),
        runs.join(what).join("model"),
    ];
    let holds = |place: &PathBuf| place.join("config.json").is_file();
    let found = places.into_iter().find(holds);
    found.unwrap_or_else(|| what.to_owned())
}

/// The repository of a model.
///
/// # Errors
/// [`RunError::BadInput`] with what keeps it from being published.
pub(super) fn package(
    what: &Path,
    repo: Option<&str>,
    args: &ModelArgs,
) -> Result<Package, RunError> {
    let folder = folder(what);
    let config = json(&folder.join("config.json"), TEXT)?;
    let licence = args.licence.clone().ok_or_else(|| {
        RunError::BadInput(
            "whoever uses a model has to know what they may: name its licence with --licence (that of \
             the model it was trained from, in most cases)"
                .into(),
        )
    })?;
    let name = config["model_type"].as_str().ok_or_else(|| {
        let path = folder.join("config.json");
        RunError::BadInput(format!("{}: no model_type", path.display()))
    })?;
    let weights = weights::check(&folder)?;
    let tokenizer = json(&folder.join("tokenizer.json"), TOKENIZER)?;
    if !tokenizer["model"].is_object() {
        let path = folder.join("tokenizer.json");
        return Err(bad(&path, "no model: it is no tokenizer"));
    }
    let title = repo.and_then(|repo| repo.split('/').nth(1));
    let title = title.map_or_else(|| run_name(&folder), str::to_owned);
    let mut package = Package::new(Kind::Model, title, owns);
    package.notes.push(format!(
        "{name}, {} parameters in {} files; every shard is as long as its header says",
        weights.parameters,
        weights.files.len()
    ));
    for file in ["config.json", "tokenizer.json"]
        .into_iter()
        .chain(COMPANIONS)
    {
        let path = folder.join(file);
        if path.is_file() {
            package.file(file, &path)?;
        }
    }
    for file in &weights.files {
        package.file(file, &folder.join(file))?;
    }
    let template = has_template(&folder)?;
    if !template {
        package
            .notes
            .push("no chat template: only for completion of text".into());
    }
    let lineage = Lineage::gather(&folder, args, &mut package)?;
    let card = lineage.card(args, &licence, repo, &config, &weights, template);
    package.with_card(card)
}

/// What this program writes into repositories of models.
fn owns(path: &str) -> bool {
    let plain = !path.contains('/');
    let weights = path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
    let named = ["README.md", "config.json", "tokenizer.json"];
    (plain && (weights || named.contains(&path) || COMPANIONS.contains(&path)))
        || path.starts_with("training/")
        || path.starts_with("evaluation/")
}

fn run_name(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut names = absolute.iter().rev().map(|part| part.to_string_lossy());
    let name = names.find(|name| name != "model");
    name.map_or_else(|| "model".into(), |name| name.into_owned())
}

fn bad(path: &Path, what: &str) -> RunError {
    RunError::BadInput(format!("{}: {what}", path.display()))
}

/// A small file, bounded.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, RunError> {
    let metadata = fs::metadata(path).map_err(|error| bad(path, &error.to_string()))?;
    if metadata.len() > most {
        return Err(bad(path, &format!("larger than {} MiB", most >> 20)));
    }
    fs::read(path).map_err(RunError::io(path.display().to_string()))
}

fn json(path: &Path, most: u64) -> Result<Value, RunError> {
    serde_json::from_slice(&read(path, most)?).map_err(|error| bad(path, &error.to_string()))
}

/// Whether it knows how conversations are written.
fn has_template(folder: &Path) -> Result<bool, RunError> {
    if folder.join("chat_template.jinja").is_file() {
        return Ok(true);
    }
    let config = folder.join("tokenizer_config.json");
    let config = match config.is_file() {
        true => json(&config, TEXT)?,
        false => Value::Null,
    };
    Ok(!config["chat_template"].is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_owned() {
        for path in [
            "model-00001-of-00002.safetensors",
            "training/loss.svg",
            "README.md",
        ] {
            assert!(owns(path), "{path}");
        }
        for path in [
            ".gitattributes",
            "notes.md",
            "other/model.safetensors",
            "model.gguf",
        ] {
            assert!(!owns(path), "{path}");
        }
    }
}
