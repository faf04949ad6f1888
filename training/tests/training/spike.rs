//! A loss that jumps stops training before the weights change.

use std::path::Path;

use pybench_training::train::{Batch, Document, Recipe, StepError, Trainer};
use tch::Device;

use crate::support::model;

fn batch(token: impl Fn(i64) -> i64) -> Batch {
    let document = Document {
        ids: (0..32).map(token).collect(),
        weights: vec![1.0; 32],
        place: String::new(),
    };
    Batch::new(&[document], &[vec![0]], Device::Cpu).unwrap()
}

#[test]
fn a_strange_batch_is_caught_before_it_is_learnt() {
    let text = "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\ncontext=32\nsteps=99\n[optimizer]\nrate=0.02\nschedule='constant'\n";
    let recipe = Recipe::parse(text, Path::new("r")).unwrap();
    let mut trainer = Trainer::new(model("llama"), &recipe, 99, None).unwrap();
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
    assert!(error.to_string().contains("optimizer.spike"), "{error}");
    let after = trainer.model.parameters();
    assert!(after.iter().zip(&before).all(|((_, a), b)| a.equal(b)));
    trainer.step(61, &[batch(|place| place % 4)]).unwrap();
}
