//! For comparisons: logits, loss and gradients of one text as safetensors, and the losses of conversations.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use pybench_training_data::{Renderer, Source, read, read_bounded};
use serde::Deserialize;
use serde_json::{Map, json};
use tch::{Device, Kind, Tensor, no_grad};

use crate::model::{GradientCheckpointing, Layout, LoadOptions, Model, SafetensorsWriter, Targets};

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
    check_ids(&ids, model.config.vocab)?;
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

/// Prints a JSON line for each conversation: the mean loss of the tokens that are trained, and their number. Weights that
/// need no conversion stay mapped.
pub fn losses(folder: &Path, conversations: &Source, kind: Kind, device: Device) -> Result<()> {
    let renderer = Renderer::load(folder)?;
    let options = LoadOptions {
        kind,
        device,
        mapped: true,
        quantize: None,
    };
    let model = Model::load_with(folder, &options)?;
    let mut out = std::io::stdout().lock();
    for conversation in read(conversations)? {
        let rendered = renderer.render(&conversation)?;
        let ids: Vec<i64> = rendered.ids.iter().map(|&id| id.into()).collect();
        check_ids(&ids, model.config.vocab)?;
        let trained = rendered.spans.iter().map(|span| f32::from(span.trained));
        let weights: Vec<f32> = trained.collect();
        let layout = Arc::new(Layout::plain(1, ids.len() as i64));
        let batch = Tensor::from_slice(&ids).unsqueeze(0).to_device(device);
        let loss = model.evaluate(&batch, &layout, &Targets::new(&ids, &weights, &layout));
        writeln!(
            out,
            "{}",
            json!({"loss": loss.mean(), "tokens": loss.weight})
        )?;
    }
    Ok(())
}

fn check_ids(ids: &[i64], vocab: i64) -> Result<()> {
    if ids.iter().any(|id| !(0..vocab).contains(id)) {
        bail!("a token id has no row in the embedding of {vocab} rows");
    }
    Ok(())
}
