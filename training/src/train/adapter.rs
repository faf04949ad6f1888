//! What a run with LoRA leaves: first the adapter, then the model that it is merged into.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pybench_training_data::is_repo_id;
use tch::Tensor;

use super::folder::replace_folder;
use super::recipe::{LoraConfig, Recipe};
use crate::catalog;
use crate::exit::bad_input;
use crate::model::{
    Adapter, AdapterOrigin, AdapterSettings, is_adapter, merge_adapter, save_adapter,
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
    source: &Path,
    out: &Path,
    finish: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<PathBuf> {
    let folder = out.join("adapter");
    let settings = AdapterSettings {
        base: base_name(&recipe.model, source)?,
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
        recipe: recipe.identity(),
    };
    replace_folder(&folder, |building| {
        save_adapter(matrices, &settings, &origin, building, source)?;
        finish(building)
    })
    .with_context(|| folder.display().to_string())?;
    Ok(folder)
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
    if !is_adapter(adapter) {
        return Err(bad_input(format!(
            "{} is not the directory of an adapter: it has no adapter_config.json",
            adapter.display()
        )));
    }
    let files = catalog::find_files(&adapter.display().to_string())?;
    let Some(opened) = &files.adapter else {
        return Ok(());
    };
    eprintln!("merging {} into {}", adapter.display(), opened.base);
    replace_folder(out, |building| {
        merge_adapter(opened, &files.weights, &files.folder, building)
    })
    .with_context(|| out.display().to_string())
}
