//! One step: forward and backward over its parts with one denominator, clipping, AdamW.

use std::time::Instant;

use serde::Serialize;
use tch::{Kind, TchError, Tensor};
use thiserror::Error;

use super::recipe::{LoraChoice, Optimizer};
use super::{AdamW, Batch, Schedule};
use crate::model::{Lora, Loss, Model, Recomputation};

/// Why a step failed.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum StepError {
    #[error(
        "step {step}: the {what} is {value}: training diverged, or a document is broken. Lower optimizer.rate, or look at the batch"
    )]
    Diverged {
        step: u64,
        what: &'static str,
        value: f64,
    },
    #[error("step {0} has no trained token")]
    Nothing(u64),
    #[error(
        "LoRA: no matrix is called {0}; there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
    )]
    Target(String),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// What a step did. A line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Steps done, this one included.
    pub step: u64,
    /// Nats per trained token.
    pub loss: f64,
    /// Learning rate.
    pub rate: f64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Tokens that went through the model.
    pub tokens: usize,
    /// Sum of weights of trained tokens.
    pub trained: f64,
    /// Seconds.
    pub seconds: f64,
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    /// The model.
    pub model: Model,
    /// Its optimizer.
    pub optimizer: AdamW,
    schedule: Schedule,
    options: Optimizer,
    memory: Recomputation,
}

impl Trainer {
    /// Trains every parameter of a model, or only LoRA's where there are some.
    pub fn new(model: Model, options: &Optimizer, steps: u64, memory: Recomputation) -> Self {
        let parameters = model.parameters();
        let is_lora = |name: &str| name.contains(".lora_");
        let lora = parameters.iter().any(|(name, _)| is_lora(name));
        let trained = parameters
            .into_iter()
            .filter(|(name, _)| !lora || is_lora(name));
        let trained: Vec<_> = trained
            .map(|(name, tensor)| (name, tensor.set_requires_grad(true)))
            .collect();
        Self {
            optimizer: AdamW::new(trained),
            schedule: Schedule {
                kind: options.schedule,
                rate: options.rate,
                warmup: options.warmup,
                steps,
                floor: options.floor,
            },
            options: options.clone(),
            memory,
            model,
        }
    }

    /// Does step number `step` (from 0) over the parts of its batch.
    pub fn step(&mut self, step: u64, parts: &[Batch]) -> Result<StepReport, StepError> {
        let started = Instant::now();
        let denominator: f64 = parts.iter().map(|part| part.targets.weight()).sum();
        if denominator == 0.0 {
            return Err(StepError::Nothing(step));
        }
        self.optimizer.zero_gradient();
        let mut loss = Loss::default();
        for part in parts {
            loss += self.model.backward(
                &part.ids,
                &part.layout,
                &part.targets,
                denominator,
                self.memory,
            );
        }
        let norm = self.optimizer.gradient_norm();
        for (what, value) in [("loss", loss.mean()), ("norm of the gradient", norm)] {
            if !value.is_finite() {
                return Err(StepError::Diverged { step, what, value });
            }
        }
        if self.options.clip > 0.0 && norm > self.options.clip {
            self.optimizer.scale_gradient(self.options.clip / norm);
        }
        let rate = self.schedule.at(step);
        self.optimizer.step(rate, &self.options)?;
        Ok(StepReport {
            step: step + 1,
            loss: loss.mean(),
            rate,
            gradient_norm: norm,
            tokens: parts.iter().map(|part| part.tokens).sum(),
            trained: denominator,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// Gives the chosen matrices a low-rank addition that starts at zero.
pub fn attach_lora(model: &mut Model, choice: &LoraChoice, seed: u64) -> Result<(), StepError> {
    tch::manual_seed(seed as i64);
    let mut unknown: Vec<&String> = choice.targets.iter().collect();
    for block in &mut model.blocks {
        for (name, linear) in block.linears_mut() {
            let short = name.rsplit('.').next().unwrap_or(name);
            if !choice.targets.is_empty() && !choice.targets.iter().any(|t| t == short) {
                continue;
            }
            unknown.retain(|target| *target != short);
            let (out, input) = (linear.weight.size()[0], linear.weight.size()[1]);
            let place = (Kind::Float, linear.weight.device());
            let bound = 1.0 / (input as f64).sqrt();
            let a = Tensor::rand([choice.rank, input], place) * (2.0 * bound) - bound;
            linear.lora = Some(Lora {
                a: a.to_kind(linear.weight.kind()),
                b: Tensor::zeros([out, choice.rank], place).to_kind(linear.weight.kind()),
                scale: choice.alpha / choice.rank as f64,
            });
        }
    }
    match unknown.first() {
        Some(target) => Err(StepError::Target((*target).clone())),
        None => Ok(()),
    }
}
