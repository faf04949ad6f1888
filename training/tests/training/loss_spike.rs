//! A loss spike stops training before the weights change.

use std::path::Path;

use pybench_training::train::{Batch, Recipe, StepError, TokenizedDocument, Trainer};
use tch::Device;

use crate::support::model;

fn batch(token: impl Fn(i64) -> i64) -> Batch {
    let document = TokenizedDocument {
        ids: (0..32).map(token).collect(),
        weights: vec![1.0; 32],
        location: String::new(),
    };
    Batch::new(&[document], &[vec![0]], Device::Cpu).unwrap()
}

#[test]
fn a_spike_is_detected_before_the_weights_change() {
    let text = "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\nmax_seq_len=32\nmax_steps=99\n[optimizer]\nlearning_rate=0.02\nlr_scheduler='constant'\n";
    let recipe = Recipe::parse(text, Path::new("r")).unwrap();
    let mut trainer = Trainer::new(model("llama"), &recipe, 99).unwrap();
    for step in 0..60 {
        trainer.step(step, &[batch(|place| place % 4)]).unwrap();
    }
    let before: Vec<_> = trainer
        .model
        .parameters()
        .iter()
        .map(|(_, p)| p.copy())
        .collect();
    let error = trainer
        .step(60, &[batch(|place| (place * 29 + 17) % 47)])
        .unwrap_err();
    assert!(
        matches!(error, StepError::Spike { step: 60, .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("optimizer.loss_spike_threshold"),
        "{error}"
    );
    let after = trainer.model.parameters();
    assert!(after.iter().zip(&before).all(|((_, a), b)| a.equal(b)));
    trainer.step(61, &[batch(|place| place % 4)]).unwrap();
}
