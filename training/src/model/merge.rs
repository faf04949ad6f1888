//! Merges an adapter into its base model, one matrix at a time.

use std::path::Path;

use tch::{Device, Kind, Tensor};

use super::adapter::{Adapter, AdapterOrigin};
use super::llama::{Linear, Model};
use super::load::{LoadError, Weights, is_block_matrix, load_config};
use super::save::{SaveError, TensorEntry, save_tensors};

/// Writes `W + scale · B · A` of every adapted matrix, and everything else of the model in `base`, into `folder`. If
/// the base was quantized in training, `W` is rounded as it was then. The files of the tokenizer come from `tokenizer`.
/// Memory holds one matrix at a time.
///
/// # Errors
/// The base or the adapter cannot be read, or they do not fit; I/O errors.
pub fn merge_adapter(
    adapter: &Adapter,
    base: &Path,
    tokenizer: &Path,
    folder: &Path,
) -> Result<(), SaveError> {
    let config = load_config(base)?;
    let weights = Weights::open(base)?;
    let kind = match &adapter.origin {
        Some(origin) if origin.dtype == "float32" => Kind::Float,
        Some(_) => Kind::BFloat16,
        None => weights.kind("model.embed_tokens.weight")?,
    };
    let shapes = Model::parameter_shapes(&config).into_iter();
    let entry = |(name, shape)| TensorEntry { name, shape, kind };
    let parameters: Vec<_> = shapes.map(entry).collect();
    adapter.check_names(parameters.iter().map(|entry| entry.name.as_str()))?;
    save_tensors(&config, &parameters, folder, tokenizer, |entry| {
        Ok(merged(adapter, &weights, entry)?)
    })
}

/// A parameter, merged with the adapter if it is one of its matrices.
pub(super) fn merged(
    adapter: &Adapter,
    weights: &Weights,
    entry: &TensorEntry,
) -> Result<Tensor, LoadError> {
    let TensorEntry { name, shape, kind } = entry;
    let weight = weights.tensor(name, shape, *kind, Device::Cpu)?;
    let matrix = name.strip_suffix(".weight").unwrap_or(name);
    if !is_block_matrix(name, shape) {
        return Ok(weight);
    }
    let mut linear = Linear {
        weight,
        bias: None,
        lora: None,
        quantized: None,
    };
    if let Some(scales) = adapter
        .origin
        .as_ref()
        .and_then(AdapterOrigin::quantization)
    {
        linear.quantize(scales);
    }
    adapter.attach_to(&mut linear, matrix)?;
    linear.merge();
    Ok(linear.weight)
}
