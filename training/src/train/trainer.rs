//! One step: forward and backward over its parts with one denominator, clipping, AdamW.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tch::{Kind, TchError, Tensor};
use thiserror::Error;

use super::optimizer::mix;
use super::recipe::{Optimizer, Recipe};
use super::{AdamW, Batch, Parameters, Schedule, Shards, Watch, flops};
use crate::model::{Loss, Model, Recomputation};
use crate::torch::Group;

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
    #[error(
        "step {step}: the loss jumped to {loss:.3}, {usual:.3} is usual: training diverges, or a document is broken. Look at the batch; lower optimizer.rate, or raise optimizer.spike ({spike}) to go on"
    )]
    Spike {
        step: u64,
        loss: f64,
        usual: f64,
        spike: f64,
    },
    #[error("step {0} has no trained token")]
    Nothing(u64),
    #[error("step {step}: {reason}")]
    Failed { step: u64, reason: String },
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl StepError {
    /// Whether the batch is to blame, perhaps.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Diverged { .. } | Self::Spike { .. })
    }
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
    /// Floating-point operations that the step needed, those of recomputation not counted.
    pub flops: f64,
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    /// The model.
    pub model: Model,
    /// Its optimizer: what this process updates.
    pub optimizer: AdamW,
    /// The last losses.
    pub watch: Watch,
    parameters: Parameters,
    group: Option<Arc<Group>>,
    schedule: Schedule,
    options: Optimizer,
    memory: Recomputation,
    seed: u64,
}

impl Trainer {
    /// Trains every parameter of a model, or only LoRA's where there are some, alone or as one of a
    /// group of processes.
    pub fn new(
        mut model: Model,
        recipe: &Recipe,
        steps: u64,
        group: Option<Arc<Group>>,
    ) -> Result<Self, StepError> {
        let names = model.parameters();
        let lora = names.iter().any(|(name, _)| name.contains(".lora_"));
        drop(names);
        let trained = |name: &str| !lora || name.contains(".lora_");
        let parameters = match &group {
            Some(group) => Parameters::Sharded(Shards::spread(&mut model, group.clone(), trained)?),
            None => {
                let all = model.parameters().into_iter();
                let chosen = all.filter(|(name, _)| trained(name));
                let chosen = chosen.map(|(name, tensor)| (name, tensor.set_requires_grad(true)));
                Parameters::Whole(chosen.collect())
            }
        };
        let options = &recipe.optimizer;
        Ok(Self {
            optimizer: AdamW::new(parameters.pieces(), options, recipe.seed)?,
            watch: Watch::default(),
            parameters,
            schedule: Schedule {
                kind: options.schedule,
                rate: options.rate,
                warmup: options.warmup,
                steps,
                floor: options.floor,
            },
            options: options.clone(),
            memory: match recipe.recomputes(group.is_some()) {
                true => Recomputation::Blocks,
                false => Recomputation::Keep,
            },
            seed: recipe.seed,
            group,
            model,
        })
    }

    /// Does step number `step` (from 0) over the parts of its batch that are this process's. All
    /// processes have equally many; some may be without a target.
    pub fn step(&mut self, step: u64, parts: &[Batch]) -> Result<StepReport, StepError> {
        // tch panics where libtorch throws: out of memory, a process of the group gone.
        let done = catch_unwind(AssertUnwindSafe(|| self.try_step(step, parts)));
        done.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Err(StepError::Failed {
                step,
                reason: text.unwrap_or("libtorch failed").into(),
            })
        })
    }

    fn try_step(&mut self, step: u64, parts: &[Batch]) -> Result<StepReport, StepError> {
        let started = Instant::now();
        let full = self
            .optimizer
            .pieces
            .iter()
            .all(|p| !p.name.contains(".lora_"));
        let ours: f64 = parts.iter().map(|part| part.targets.weight()).sum();
        let tokens: usize = parts.iter().map(|part| part.tokens).sum();
        let flops: f64 = parts
            .iter()
            .map(|part| flops::of_batch(&self.model.config, &part.layout, full))
            .sum();
        let [denominator, tokens, flops] = self.sum([ours, tokens as f64, flops])?;
        if denominator == 0.0 {
            return Err(StepError::Nothing(step));
        }
        let ours = self.gradient(step, parts, denominator)?;
        let gradients = self.parameters.gradients();
        let [loss, square] = self.sum([ours.sum, square_norm(&gradients)])?;
        let (loss, norm) = (loss / denominator, square.sqrt());
        self.check(step, loss, norm)?;
        let factor = match self.options.clip {
            clip if clip > 0.0 && norm > clip => clip / norm,
            _ => 1.0,
        };
        let rate = self.schedule.at(step);
        self.optimizer.step(step, &gradients, factor, rate)?;
        drop(gradients);
        self.parameters.forget_gradients()?;
        Ok(StepReport {
            step: step + 1,
            loss,
            rate,
            gradient_norm: norm,
            tokens: tokens as usize,
            trained: denominator,
            seconds: started.elapsed().as_secs_f64(),
            flops,
        })
    }

    /// Leaves the gradient of the step's loss with the parameters; the loss of our parts.
    fn gradient(&mut self, step: u64, parts: &[Batch], denominator: f64) -> Result<Loss, TchError> {
        self.parameters.forget_gradients()?;
        let root = self.model.blocks.len();
        let residence = self.model.residence.clone();
        let here = residence.clone().map(|residence| residence.stay(root));
        let mut loss = Loss::default();
        let rank = self.group.as_ref().map_or(0, |group| group.rank);
        for (number, part) in parts.iter().enumerate() {
            let pass = [self.seed, step, rank as u64, number as u64];
            self.model.set_dropout_seed(mix(&pass));
            loss += self.model.backward(
                &part.ids,
                &part.layout,
                &part.targets,
                denominator,
                self.memory,
            );
        }
        if let Some(residence) = &residence {
            residence.reduce(root)?;
        }
        drop(here);
        Ok(loss)
    }

    fn check(&mut self, step: u64, loss: f64, norm: f64) -> Result<(), StepError> {
        for (what, value) in [("loss", loss), ("norm of the gradient", norm)] {
            if !value.is_finite() {
                return Err(StepError::Diverged { step, what, value });
            }
        }
        let spike = self.options.spike;
        match self.watch.see(loss, spike) {
            None => Ok(()),
            Some(usual) => Err(StepError::Spike {
                step,
                loss,
                usual,
                spike,
            }),
        }
    }

    fn sum<const N: usize>(&self, numbers: [f64; N]) -> Result<[f64; N], TchError> {
        match &self.group {
            None => Ok(numbers),
            Some(group) => group.sum(numbers),
        }
    }

    /// The model, whole again, without what only training needs.
    pub fn into_model(mut self) -> Result<Model, TchError> {
        if let Parameters::Sharded(shards) = &self.parameters {
            shards.gather_all(&mut self.model)?;
        }
        for block in &mut self.model.blocks {
            block.linears_mut().into_iter().for_each(|(_, l)| l.merge());
        }
        Ok(self.model)
    }
}

fn square_norm(gradients: &[Option<Tensor>]) -> f64 {
    let norms: Vec<Tensor> = gradients
        .iter()
        .flatten()
        .map(|g| g.norm_scalaropt_dtype(2, Kind::Float))
        .collect();
    match norms.is_empty() {
        true => 0.0,
        false => {
            let norms = Tensor::stack(&norms, 0).to_kind(Kind::Double);
            norms.square().sum(Kind::Double).double_value(&[])
        }
    }
}
