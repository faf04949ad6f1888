//! Logits, loss and every gradient are transformers' own, to 1e-4 of their norm.

use std::collections::BTreeMap;
use std::sync::Arc;

use pybench_training::model::{GradientCheckpointing, Layout, Targets, save_model};
use pybench_training::torch::kernels::Emulation;
use tch::{Device, Kind, Tensor, no_grad};

use crate::support::{MODELS, cases, data, distance, expected, gradients, model};

const TOLERANCE: f64 = 1e-4;

#[test]
fn logits_loss_and_gradients_are_those_of_transformers() {
    compare();
}

/// The whole way that a GPU takes, but for its product of matrices and its attention.
#[test]
fn so_are_those_of_emulated_kernels() {
    let _emulation = Emulation::begin();
    compare();
}

fn compare() {
    let mut compared = 0;
    for name in MODELS {
        let (model, expected) = (model(name), expected(name));
        for (case_name, case) in cases(name) {
            let layout = Arc::new(Layout::packed(case.width, &case.rows).unwrap());
            let rows = case.rows.len() as i64;
            let ids = Tensor::from_slice(&case.ids.concat()).view([rows, case.width]);
            let wanted = |key: &str, shape: &[i64]| {
                let key = format!("{case_name}.{key}");
                expected
                    .tensor(&key, shape, Kind::Float, Device::Cpu)
                    .unwrap()
            };
            let logits = no_grad(|| model.logits(&ids, &layout));
            // Padding is not compared.
            let place = layout.positions(Device::Cpu) + ids.zeros_like();
            let inside = (place.gt(0) + first_tokens(&layout)).gt(0).unsqueeze(-1);
            let off = distance(
                &(logits * &inside),
                &wanted("logits", &[rows, case.width, model.config.vocab]),
            );
            assert!(off <= TOLERANCE, "{name} {case_name} logits: {off:e}");

            let targets = Targets::new(&case.ids.concat(), &case.weights.concat(), &layout);
            let first_block = GradientCheckpointing::Blocks { first: 1 };
            let mut recomputed = BTreeMap::new();
            for memory in [
                GradientCheckpointing::Off,
                GradientCheckpointing::ALL,
                first_block,
            ] {
                let loss = model.backward(&ids, &layout, &targets, targets.weight(), memory);
                let wanted_loss = wanted("loss", &[1]).double_value(&[0]);
                let off = (loss.mean() - wanted_loss).abs() / wanted_loss;
                assert!(off <= 1e-5, "{name} {case_name} loss: {off:e}");
                for (parameter, gradient) in gradients(&model) {
                    let wanted = wanted(&format!("grad.{parameter}"), &gradient.size());
                    let off = distance(&gradient, &wanted);
                    assert!(off <= TOLERANCE, "{name} {case_name} {parameter}: {off:e}");
                    compared += 1;
                    if memory != GradientCheckpointing::Off {
                        let bits = recomputed
                            .entry(parameter.clone())
                            .or_insert_with(|| gradient.copy());
                        assert!(gradient.equal(bits), "{name} {case_name} {parameter}");
                    }
                }
            }
        }
    }
    assert!(compared > 300, "{compared} gradients compared");
}

/// 1 where a document begins.
fn first_tokens(layout: &Layout) -> Tensor {
    let mut first = vec![0i64; layout.rows().len() * layout.width() as usize];
    for (row, documents) in layout.rows().iter().enumerate() {
        for document in documents {
            first[row * layout.width() as usize + document.start as usize] = 1;
        }
    }
    Tensor::from_slice(&first).view([layout.rows().len() as i64, layout.width()])
}

#[test]
fn a_saved_model_is_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let first = model(name);
        let out = folder.path().join(name);
        save_model(&first, &out, &data(name)).unwrap();
        let second = pybench_training::model::Model::load(&out, Kind::Float, Device::Cpu).unwrap();
        assert_eq!(first.config, second.config);
        for ((name, a), (_, b)) in first.parameters().iter().zip(second.parameters()) {
            assert!(a.equal(&b), "{name}");
        }
    }
}
