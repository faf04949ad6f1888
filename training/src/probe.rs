//! Writes logits, loss and gradients of one text as safetensors, for `parity/live.py`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use pybench_training_data::read_bounded;
use serde::Deserialize;
use serde_json::Map;
use tch::{Device, Kind, Tensor, no_grad};

use crate::model::{GradientCheckpointing, Layout, Model, SafetensorsWriter, Targets};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    ids: Vec<i64>,
    weights: Vec<f32>,
}

/// Reads `{"ids": [...], "weights": [...]}` and writes `logits`, `loss` and `grad.<parameter>`.
pub fn probe(
    folder: &Path,
    request: &Path,
    answer: &Path,
    kind: Kind,
    device: Device,
) -> Result<()> {
    let Request { ids, weights } = serde_json::from_slice(&read_bounded(request, 64 << 20)?)?;
    let model = Model::load(folder, kind, device)?;
    if ids.is_empty() || ids.len() != weights.len() {
        bail!("ids and weights must have equal length and must not be empty");
    }
    if ids.iter().any(|id| !(0..model.config.vocab).contains(id)) {
        bail!(
            "a token id has no row in the embedding of {} rows",
            model.config.vocab
        );
    }
    let layout = Arc::new(Layout::plain(1, ids.len() as i64));
    let batch = Tensor::from_slice(&ids).unsqueeze(0).to_device(device);
    for (_, parameter) in model.parameters() {
        let _ = parameter.set_requires_grad(true);
    }
    let mut answers = vec![(
        "logits".to_owned(),
        no_grad(|| model.logits(&batch, &layout)),
    )];
    let targets = Targets::new(&ids, &weights, &layout);
    let keep = GradientCheckpointing::Off;
    let loss = model.backward(&batch, &layout, &targets, targets.weight(), keep);
    answers.push(("loss".into(), Tensor::from_slice(&[loss.mean() as f32])));
    for (name, parameter) in model.parameters() {
        answers.push((format!("grad.{name}"), parameter.grad()));
    }
    Ok(SafetensorsWriter::write(answer, &answers, &Map::new())?)
}
