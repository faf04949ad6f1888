//! The model in the form of `pybench-inference`, which serves it on CPUs.

use std::collections::BTreeMap;
use std::path::Path;

use pybench_inference::{self as inference, Format, Shape};
use tch::{Device, Kind, Tensor};

use super::adapter::Adapter;
use super::config::ModelConfig;
use super::llama::Model;
use super::load::{LoadError, Weights, is_block_matrix, load_config};
use super::merge::merged;
use super::save::TensorEntry;
use crate::torch::floats;

/// Elements of a parameter that are converted at once.
const PIECE: i64 = 1 << 22;

/// Packs the model in `folder`, with `adapter` merged into it, for inference on a CPU in as many threads as libtorch
/// uses. Memory holds what is packed, and of the files one matrix at a time.
///
/// # Errors
/// The model cannot be read, or the adapter does not fit it.
pub fn load_inference(
    folder: &Path,
    adapter: Option<&Adapter>,
    format: Format,
) -> Result<inference::Model, LoadError> {
    let config = load_config(folder)?;
    let weights = Weights::open(folder)?;
    let shapes: BTreeMap<_, _> = Model::parameter_shapes(&config).into_iter().collect();
    if let Some(adapter) = adapter {
        adapter.check_names(shapes.keys().map(String::as_str))?;
    }
    let threads = tch::get_num_threads() as usize;
    inference::Model::load(shape(&config), format, threads, |name, put| {
        let Some(shape) = shapes.get(name) else {
            return Ok(false);
        };
        let adapter = adapter.filter(|_| is_block_matrix(name, shape));
        put_rows(&parameter(&weights, name, shape, adapter)?, put);
        weights.release(name)?;
        Ok(true)
    })
}

/// A parameter as it is stored, or merged with an adapter as float32.
fn parameter(
    weights: &Weights,
    name: &str,
    shape: &[i64],
    adapter: Option<&Adapter>,
) -> Result<Tensor, LoadError> {
    let Some(adapter) = adapter else {
        return weights.mapped_tensor(name, shape, weights.kind(name)?, Device::Cpu);
    };
    let entry = TensorEntry {
        name: name.into(),
        shape: shape.into(),
        kind: Kind::Float,
    };
    merged(adapter, weights, &entry)
}

/// Gives the numbers of a parameter to `put`, some rows at a time.
fn put_rows(tensor: &Tensor, put: &mut dyn FnMut(&[f32])) {
    let size = tensor.size();
    let columns: i64 = size.iter().skip(1).product();
    let rows = (PIECE / columns.max(1)).max(1);
    for start in (0..size[0]).step_by(rows as usize) {
        let rows = rows.min(size[0] - start);
        put(&floats(&tensor.narrow(0, start, rows)));
    }
}

/// What the engine has to know of a configuration.
fn shape(config: &ModelConfig) -> Shape {
    let size = |number: i64| number as usize;
    let windows = config.windows.iter();
    Shape {
        hidden: size(config.hidden),
        intermediate: size(config.intermediate),
        heads: size(config.heads),
        kv_heads: size(config.kv_heads),
        head_dim: size(config.head_dim),
        vocab: size(config.vocab),
        norm_eps: config.norm_eps as f32,
        tied: config.tied,
        windows: windows.map(|window| window.map(size)).collect(),
        frequencies: config.frequencies(),
    }
}
