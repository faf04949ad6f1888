//! The fixtures that `parity/fixtures.py` made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pybench_training::model::{Model, Weights};
use serde::Deserialize;
use tch::{Device, Kind, Tensor};

pub(crate) const MODELS: [&str; 3] = ["llama", "qwen2", "mistral"];

pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A chat template of the renderer's tests.
pub(crate) fn jinja(name: &str) -> PathBuf {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../src/chat-template/tests/data/jinja");
    folder.canonicalize().unwrap().join(name)
}

pub(crate) fn model(name: &str) -> Model {
    let model = Model::load(&data(name), Kind::Float, Device::Cpu).unwrap();
    for (_, tensor) in model.parameters() {
        let _ = tensor.set_requires_grad(true);
    }
    model
}

/// A batch that transformers has seen.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) width: i64,
    pub(crate) rows: Vec<Vec<i64>>,
    pub(crate) ids: Vec<Vec<i64>>,
    pub(crate) weights: Vec<Vec<f32>>,
}

pub(crate) fn cases(name: &str) -> BTreeMap<String, Case> {
    let bytes = std::fs::read(data(name).join("cases.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

pub(crate) fn expected(name: &str) -> Weights {
    Weights::open_file(&data(name).join("expected.safetensors")).unwrap()
}

pub(crate) fn distance(found: &Tensor, wanted: &Tensor) -> f64 {
    let off = (found - wanted).norm().double_value(&[]);
    off / wanted.norm().double_value(&[])
}

pub(crate) fn gradients(model: &Model) -> BTreeMap<String, Tensor> {
    let all = model.parameters().into_iter();
    all.map(|(name, mut tensor)| {
        let gradient = tensor.grad().copy();
        tensor.zero_grad();
        (name, gradient)
    })
    .collect()
}
