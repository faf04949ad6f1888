//! How documents are batched changes nothing: packing, padding, accumulation.

use std::collections::BTreeMap;

use pybench_training::model::{GradientCheckpointing, Loss, Model};
use pybench_training::train::{Batch, TokenizedDocument};
use tch::{Device, Tensor};

use crate::support::{distance, gradients, model};

fn documents() -> Vec<TokenizedDocument> {
    let lengths = [9usize, 4, 14, 7, 11, 2, 5, 8];
    let document = |(number, &length): (usize, &usize)| TokenizedDocument {
        ids: (0..length)
            .map(|i| ((number * 31 + i * 7) % 47) as i64)
            .collect(),
        weights: (0..length)
            .map(|i| if (number + i) % 3 == 0 { 0.0 } else { 1.0 })
            .collect(),
        location: format!("{number}"),
    };
    lengths.iter().enumerate().map(document).collect()
}

/// Loss and gradients of all documents in those parts, each of rows of documents.
fn measure(model: &Model, parts: &[Vec<Vec<usize>>]) -> (Loss, BTreeMap<String, Tensor>) {
    let documents = documents();
    let batches: Vec<Batch> = parts
        .iter()
        .map(|rows| Batch::new(&documents, rows, Device::Cpu).unwrap())
        .collect();
    let denominator = batches.iter().map(|batch| batch.targets.weight()).sum();
    let mut loss = Loss::default();
    for b in &batches {
        let keep = GradientCheckpointing::Off;
        loss += model.backward(&b.ids, &b.layout, &b.targets, denominator, keep);
    }
    (loss, gradients(model))
}

#[test]
fn packing_padding_and_accumulation_give_the_same_gradients() {
    let alone: Vec<Vec<Vec<usize>>> = (0..8).map(|d| vec![vec![d]]).collect();
    let ways = [
        ("padded", vec![(0..8).map(|d| vec![d]).collect()]),
        (
            "packed",
            vec![vec![vec![2, 0, 1], vec![3, 5, 4], vec![6, 7]]],
        ),
        (
            "packed in two parts",
            vec![vec![vec![2, 0, 1], vec![3, 5, 4]], vec![vec![6, 7]]],
        ),
        ("one row", vec![vec![(0..8).collect()]]),
    ];
    for name in crate::support::MODELS {
        let model = model(name);
        let (wanted, wanted_gradients) = measure(&model, &alone);
        for (way, parts) in &ways {
            let (found, found_gradients) = measure(&model, parts);
            assert_eq!(found.weight, wanted.weight);
            let off = (found.sum - wanted.sum).abs() / wanted.sum;
            assert!(off <= 1e-5, "{name} {way}: loss off by {off:e}");
            for (parameter, gradient) in &found_gradients {
                let off = distance(gradient, &wanted_gradients[parameter]);
                assert!(off <= 1e-5, "{name} {way} {parameter}: off by {off:e}");
            }
        }
    }
}

#[test]
fn other_documents_in_the_row_change_nothing() {
    let model = model("llama");
    let mut documents = documents();
    let logits = |documents: &[TokenizedDocument]| {
        let batch = Batch::new(documents, &[vec![0, 2]], Device::Cpu).unwrap();
        let logits = tch::no_grad(|| model.logits(&batch.ids, &batch.layout));
        logits.narrow(1, 9, 14).copy()
    };
    let before = logits(&documents);
    documents[0]
        .ids
        .iter_mut()
        .for_each(|id| *id = (*id + 5) % 47);
    assert!(before.equal(&logits(&documents)));
}
