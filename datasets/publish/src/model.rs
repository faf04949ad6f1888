//! Collects and checks a model for publication: complete weights, a valid tokenizer, and a card about training, data
//! and evaluation.

mod adapter;
mod evidence;
mod lineage;
mod weights;

use std::fs;
use std::path::{Path, PathBuf};

use pybench_run::RunError;
use pybench_run::project::{default_runs_dir, project_root};
use serde_json::Value;

use super::Package;
use adapter::Adapter;
use lineage::Lineage;
use pybench_hub::Kind;

/// Maximum size of a configuration, a recipe or a report, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// Maximum size of a tokenizer, in bytes.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;
/// Optional files that are published with the weights.
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

/// Arguments for models.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Models")]
pub struct ModelArgs {
    /// License of the model, as the Hub's identifier (apache-2.0, llama3, …) [default: the license of the base model,
    /// if the training run or the Hub states it]
    #[arg(long, value_name = "NAME")]
    pub license: Option<String>,
    /// Base model on the Hub; can be repeated
    #[arg(long, value_name = "OWNER/NAME")]
    pub base_model: Vec<String>,
    /// Training dataset on the Hub; can be repeated
    #[arg(long, value_name = "OWNER/NAME")]
    pub dataset: Vec<String>,
    /// Training recipe [default: the recipe in the training run]
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Evaluation report: a folder with report.md and report.json
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Whether `source` is a model: a model folder, a training run, or the name of a training run.
pub(super) fn is_model(source: &Path) -> bool {
    has_config(&model_folder(source))
}

/// Whether the folder holds a whole model or an adapter.
fn has_config(folder: &Path) -> bool {
    ["config.json", adapter::CONFIG]
        .iter()
        .any(|name| folder.join(name).is_file())
}

fn model_folder(source: &Path) -> PathBuf {
    let runs = default_runs_dir(project_root(Path::new(".")).as_deref());
    let candidates = [
        source.to_owned(),
        source.join("model"),
        source.join("adapter"),
        runs.join(source).join("model"),
        runs.join(source).join("adapter"),
    ];
    let found = candidates.into_iter().find(|folder| has_config(folder));
    found.unwrap_or_else(|| source.to_owned())
}

/// The base models whose cards must be asked for the license; none where it is known.
///
/// # Errors
/// [`RunError::BadInput`] if the configuration of an adapter is broken or names no base model.
pub(super) fn asked_for_license(source: &Path, args: &ModelArgs) -> Result<Vec<String>, RunError> {
    let folder = model_folder(source);
    if args.license.is_some() || evidence::results(&folder)?["license"].is_string() {
        return Ok(Vec::new());
    }
    let adapter = Adapter::open(&folder, &args.base_model)?;
    Ok(adapter.map_or_else(|| args.base_model.clone(), |adapter| vec![adapter.base]))
}

/// Collect the files of a model.
///
/// # Errors
/// [`RunError::BadInput`] with the problem that prevents publication.
pub(super) fn package(
    source: &Path,
    repo: Option<&str>,
    args: &ModelArgs,
) -> Result<Package, RunError> {
    let folder = model_folder(source);
    let content = Content::read(&folder, args)?;
    let weights = weights::check(&folder, content.stem())?;
    check_tokenizer(&folder)?;
    let title = repo.and_then(|repo| repo.split('/').nth(1));
    let title = title.map_or_else(|| run_name(&folder), str::to_owned);
    let mut package = Package::new(Kind::Model, title, owns);
    package.notes.push(format!(
        "{}, {} parameters in {} files; all files are complete",
        content.name(),
        weights.parameters,
        weights.files.len()
    ));
    if let Content::Adapter(adapter) = &content {
        package.bytes(adapter::CONFIG, adapter.config_text())?;
    }
    for file in ["config.json", "tokenizer.json", adapter::ORIGIN]
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
            .push("no chat template: the model can only complete text".into());
    }
    let results = evidence::results(&folder)?;
    let license = evidence::license(args.license.as_deref(), &results, &mut package.notes)?;
    let lineage = Lineage::collect(&folder, args, &mut package)?;
    let card = lineage.card(args, &license, repo, &content, &weights, template);
    package.with_card(card)
}

/// What a folder holds.
#[derive(Debug)]
enum Content {
    /// A whole model, with its `model_type`.
    Model(String),
    Adapter(Adapter),
}

impl Content {
    fn read(folder: &Path, args: &ModelArgs) -> Result<Self, RunError> {
        if let Some(adapter) = Adapter::open(folder, &args.base_model)? {
            return Ok(Self::Adapter(adapter));
        }
        let path = folder.join("config.json");
        let kind = json(&path, MAX_TEXT_BYTES)?["model_type"]
            .as_str()
            .map(str::to_owned);
        let missing = || RunError::BadInput(format!("{}: model_type is missing", path.display()));
        kind.map(Self::Model).ok_or_else(missing)
    }

    /// Name of the weights' file without `.safetensors`.
    fn stem(&self) -> &'static str {
        match self {
            Self::Model(_) => "model",
            Self::Adapter(_) => "adapter_model",
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Model(kind) => kind.clone(),
            Self::Adapter(adapter) => format!("an adapter for {}", adapter.base),
        }
    }
}

fn check_tokenizer(folder: &Path) -> Result<(), RunError> {
    let path = folder.join("tokenizer.json");
    match json(&path, MAX_TOKENIZER_BYTES)?["model"].is_object() {
        true => Ok(()),
        false => Err(bad_file(&path, "not a valid tokenizer: it has no `model`")),
    }
}

/// Whether this program manages a path in model repositories.
fn owns(path: &str) -> bool {
    let plain = !path.contains('/');
    let weights = path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
    let named = [
        "README.md",
        "config.json",
        "tokenizer.json",
        adapter::CONFIG,
        adapter::ORIGIN,
    ];
    (plain && (weights || named.contains(&path) || COMPANIONS.contains(&path)))
        || path.starts_with("training/")
        || path.starts_with("evaluation/")
}

fn run_name(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut names = absolute.iter().rev().map(|part| part.to_string_lossy());
    let name = names.find(|name| name != "model" && name != "adapter");
    name.map_or_else(|| "model".into(), |name| name.into_owned())
}

fn bad_file(path: &Path, what: &str) -> RunError {
    RunError::BadInput(format!("{}: {what}", path.display()))
}

/// Read a file of at most `max_bytes` bytes.
fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, RunError> {
    let metadata = fs::metadata(path).map_err(|error| bad_file(path, &error.to_string()))?;
    if metadata.len() > max_bytes {
        return Err(bad_file(
            path,
            &format!("larger than {} MiB", max_bytes >> 20),
        ));
    }
    fs::read(path).map_err(RunError::io(path.display().to_string()))
}

fn json(path: &Path, max_bytes: u64) -> Result<Value, RunError> {
    serde_json::from_slice(&read(path, max_bytes)?)
        .map_err(|error| bad_file(path, &error.to_string()))
}

/// Whether the model has a chat template.
fn has_template(folder: &Path) -> Result<bool, RunError> {
    if folder.join("chat_template.jinja").is_file() {
        return Ok(true);
    }
    let config = folder.join("tokenizer_config.json");
    let config = match config.is_file() {
        true => json(&config, MAX_TEXT_BYTES)?,
        false => Value::Null,
    };
    Ok(!config["chat_template"].is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_this_program_are_managed() {
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
