//! What a run with LoRA leaves: first the adapter, then the model that it is merged into.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pybench_training_data::is_repo_id;
use tch::Tensor;

use super::folder::replace_folder;
use super::recipe::{LoraConfig, Quantization, Recipe};
use crate::catalog::{self, ModelFiles};
use crate::exit::bad_input;
use crate::model::{
    Adapter, AdapterOrigin, AdapterSettings, ModelConfig, is_adapter, merge_adapter, save_adapter,
    weights_fingerprint,
};

/// Short names of the matrices of a block.
const MATRICES: [&str; 7] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

/// Saves the matrices of an adapter in the folder `adapter` of a run; `finish` adds files to it.
pub(super) fn save(
    recipe: &Recipe,
    lora: &LoraConfig,
    matrices: &[(String, Tensor)],
    files: &ModelFiles,
    out: &Path,
    finish: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<PathBuf> {
    let folder = out.join("adapter");
    let settings = AdapterSettings {
        base: match &files.adapter {
            Some(adapter) => adapter.base.clone(),
            None => base_name(&recipe.model, &files.weights)?,
        },
        rank: lora.rank,
        alpha: lora.alpha,
        dropout: lora.dropout,
        target_modules: match lora.target_modules.is_empty() {
            true => MATRICES.map(str::to_owned).into(),
            false => lora.target_modules.clone(),
        },
    };
    let origin = AdapterOrigin {
        dtype: recipe.train.dtype.name().into(),
        nf4: lora.quantization.is_some(),
        nf4_double: lora.quantization == Some(Quantization::Nf4Double),
        recipe: recipe.identity(),
        base_fingerprint: Some(weights_fingerprint(&files.weights)?),
    };
    replace_folder(&folder, |building| {
        save_adapter(matrices, &settings, &origin, building, &files.folder)?;
        finish(building)
    })
    .with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Refuses to continue the training of an adapter with other settings of LoRA than it has.
///
/// # Errors
/// Names the first key of the recipe that differs.
pub(super) fn check_continued(
    recipe: &Recipe,
    adapter: &Adapter,
    config: &ModelConfig,
) -> Result<()> {
    let model = &recipe.model;
    let refuse = |key: &str, value: String| {
        Err(bad_input(format!(
            "{model} is an adapter, and its training goes on only with {key} = {value}; set that, or merge the adapter first with `pybench-train merge {model} --out FOLDER`"
        )))
    };
    let (rank, alpha) = (adapter.rank, adapter.scale * adapter.rank as f64);
    let Some(lora) = &recipe.lora else {
        return Err(bad_input(format!(
            "{model} is an adapter; add [lora] with rank = {rank} and alpha = {alpha} to continue its training, or merge it first with `pybench-train merge {model} --out FOLDER`"
        )));
    };
    if lora.rank != rank {
        return refuse("lora.rank", rank.to_string());
    }
    if (lora.alpha - alpha).abs() > 1e-6 * alpha {
        return refuse("lora.alpha", alpha.to_string());
    }
    // PEFT does not record the quantization.
    if let Some(origin) = &adapter.origin
        && origin.quantization() != lora.quantization.map(Quantization::scales)
    {
        let value = Quantization::value(origin.quantization());
        return refuse("lora.quantization", value.into());
    }
    let targets: BTreeSet<&str> = match lora.target_modules.is_empty() {
        true => MATRICES.into(),
        false => lora.target_modules.iter().map(String::as_str).collect(),
    };
    let short = |name: &'_ str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let found: BTreeSet<String> = adapter.matrices().map(short).collect();
    let same = found.iter().map(String::as_str).eq(targets.iter().copied());
    // Every block must have every target.
    if !same || adapter.matrices().count() != targets.len() * config.layers {
        return refuse("lora.target_modules", format!("{found:?} in every block"));
    }
    Ok(())
}

/// A name by which PEFT finds the base model as well.
fn base_name(model: &str, source: &Path) -> Result<String> {
    if !Path::new(model).exists() && is_repo_id(model) {
        return Ok(model.to_owned());
    }
    let source = source.canonicalize();
    Ok(source.context("the base model")?.display().to_string())
}

/// Whether a run has saved its adapter, and only the merge is left.
pub(super) fn awaits_merge(recipe: &Recipe, out: &Path) -> bool {
    let saved = || Adapter::open(&out.join("adapter")).ok()?.origin;
    recipe.lora.is_some()
        && recipe.train.merge
        && !out.join("model/config.json").exists()
        && saved().is_some_and(|origin| origin.recipe == recipe.identity())
}

/// Merges an adapter into its base model, in the folder `out`, which appears when it is complete.
pub fn merge(adapter: &Path, out: &Path) -> Result<()> {
    let copy = catalog::local(&adapter.display().to_string())?;
    let adapter = Path::new(&copy);
    if !is_adapter(adapter) {
        return Err(bad_input(format!(
            "{} is not the directory of an adapter: it has no adapter_config.json",
            adapter.display()
        )));
    }
    let files = catalog::find_files(&copy)?;
    let Some(opened) = &files.adapter else {
        return Ok(());
    };
    eprintln!("merging {} into {}", adapter.display(), opened.base);
    replace_folder(out, |building| {
        merge_adapter(opened, &files.weights, &files.folder, building)
    })
    .with_context(|| out.display().to_string())
}
