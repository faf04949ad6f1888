//! One training step: forward and backward over the micro-batches with one denominator, clipping, AdamW.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

use super::dataset::Batch;
use super::flops;
use super::loss_spike::LossSpikeDetector;
use super::optimizer::{AdamW, mix_seed};
use super::recipe::{OptimizerConfig, Recipe};
use super::schedule::LrSchedule;
use super::shard::{Parameters, Shards};
use crate::exit::{self, ExitCode};
use crate::model::{
    GradientCheckpointing, LoadError, Loss, Model, SaveError, ShardUnit, save_model,
    save_model_with,
};
use crate::torch::{Communicator, release_free_memory};

#[derive(Debug, Error)]
pub enum StepError {
    #[error(
        "step {step}: the {what} is {value}: training diverged, or a document is broken. Inspect the saved batch, or lower optimizer.learning_rate"
    )]
    Diverged {
        step: u64,
        what: &'static str,
        value: f64,
    },
    #[error(
        "step {step}: the loss jumped to {loss:.3} from a median of {median:.3}: training diverges, or a document is broken. Inspect the saved batch; lower optimizer.learning_rate, or raise optimizer.loss_spike_threshold (now {threshold}) to continue"
    )]
    Spike {
        step: u64,
        loss: f64,
        median: f64,
        threshold: f64,
    },
    #[error("step {0} has no trained token; raise train.batch_size, or check the data")]
    NoTargets(u64),
    #[error("step {step}: {reason}")]
    Failed { step: u64, reason: String },
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl StepError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Diverged { .. } | Self::Spike { .. } | Self::NoTargets(_) => ExitCode::BadInput,
            Self::Failed { reason, .. } => exit::of_torch(reason),
            Self::Torch(error) => exit::of_tch(error),
        }
    }

    /// Whether the batch should be saved for inspection.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Diverged { .. } | Self::Spike { .. })
    }
}

/// The metrics of a step, a line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Number of completed steps, including this one.
    pub step: u64,
    /// Nats per trained token.
    pub loss: f64,
    pub learning_rate: f64,
    /// Before clipping.
    pub grad_norm: f64,
    /// Tokens of all documents in the step.
    pub tokens: usize,
    /// Sum of the loss weights.
    pub trained: f64,
    pub seconds: f64,
    /// Floating-point operations, without those of recomputation.
    pub flops: f64,
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    pub model: Model,
    pub optimizer: AdamW,
    pub loss_spikes: LossSpikeDetector,
    parameters: Parameters,
    communicator: Option<Arc<Communicator>>,
    schedule: LrSchedule,
    options: OptimizerConfig,
    checkpointing: GradientCheckpointing,
    seed: u64,
}

impl Trainer {
    /// Trains every parameter of a model, or only the LoRA adapters if there are any.
    pub fn new(model: Model, recipe: &Recipe, steps: u64) -> Result<Self, StepError> {
        let all = model.parameters();
        let lora = all.iter().any(|(name, _)| name.contains(".lora_"));
        let trained = |name: &str| !lora || name.contains(".lora_");
        let chosen = all.into_iter().filter(|(name, _)| trained(name));
        let chosen = chosen.map(|(name, tensor)| (name, tensor.set_requires_grad(true)));
        let parameters = Parameters::Whole(chosen.collect());
        Self::of_parameters(model, parameters, recipe, steps, None)
    }

    /// Trains a model whose parameters are sharded over processes.
    pub fn sharded(
        model: Model,
        shards: Arc<Shards>,
        communicator: Arc<Communicator>,
        recipe: &Recipe,
        steps: u64,
    ) -> Result<Self, StepError> {
        let parameters = Parameters::Sharded(shards);
        Self::of_parameters(model, parameters, recipe, steps, Some(communicator))
    }

    fn of_parameters(
        model: Model,
        parameters: Parameters,
        recipe: &Recipe,
        steps: u64,
        communicator: Option<Arc<Communicator>>,
    ) -> Result<Self, StepError> {
        let options = &recipe.optimizer;
        Ok(Self {
            optimizer: AdamW::new(parameters.slices(), options, recipe.seed)?,
            loss_spikes: LossSpikeDetector::default(),
            parameters,
            schedule: LrSchedule {
                scheduler: options.lr_scheduler,
                peak: options.learning_rate,
                warmup_steps: options.warmup_steps,
                total_steps: steps,
                min_ratio: options.min_lr_ratio,
            },
            options: options.clone(),
            checkpointing: match recipe.recomputes(communicator.is_some()) {
                true => GradientCheckpointing::Blocks,
                false => GradientCheckpointing::Off,
            },
            seed: recipe.seed,
            communicator,
            model,
        })
    }

    /// Performs step `step` (from 0) on the micro-batches of this process. All processes have equally many; some
    /// may have no target.
    pub fn step(&mut self, step: u64, micro_batches: &[Batch]) -> Result<StepReport, StepError> {
        // tch panics where libtorch throws: out of memory, or another process is gone.
        let done = catch_unwind(AssertUnwindSafe(|| self.try_step(step, micro_batches)));
        done.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Err(StepError::Failed {
                step,
                reason: text.unwrap_or("libtorch failed").into(),
            })
        })
    }

    fn try_step(&mut self, step: u64, micro_batches: &[Batch]) -> Result<StepReport, StepError> {
        let started = Instant::now();
        let full = self
            .optimizer
            .slices
            .iter()
            .all(|p| !p.name.contains(".lora_"));
        let ours: f64 = micro_batches
            .iter()
            .map(|batch| batch.targets.weight())
            .sum();
        let tokens: usize = micro_batches.iter().map(|batch| batch.tokens).sum();
        let flops: f64 = micro_batches
            .iter()
            .map(|batch| flops::batch_flops(&self.model.config, &batch.layout, full))
            .sum();
        let [denominator, tokens, flops] = self.sum([ours, tokens as f64, flops])?;
        if denominator == 0.0 {
            return Err(StepError::NoTargets(step));
        }
        let ours = self.gradient(step, micro_batches, denominator)?;
        let gradients = self.parameters.gradients();
        let [loss, square] = self.sum([ours.sum, square_norm(&gradients)])?;
        let (loss, norm) = (loss / denominator, square.sqrt());
        self.check(step, loss, norm)?;
        let gradient_scale = match self.options.max_grad_norm {
            max if max > 0.0 && norm > max => max / norm,
            _ => 1.0,
        };
        let learning_rate = self.schedule.at(step);
        self.optimizer
            .step(step, &gradients, gradient_scale, learning_rate)?;
        drop(gradients);
        self.parameters.clear_gradients()?;
        if self.communicator.is_some() {
            // What blocks needed in the backward pass is no place for the tables that the next step gathers.
            release_free_memory();
        }
        Ok(StepReport {
            step: step + 1,
            loss,
            learning_rate,
            grad_norm: norm,
            tokens: tokens as usize,
            trained: denominator,
            seconds: started.elapsed().as_secs_f64(),
            flops,
        })
    }

    /// Accumulates the gradients of the step. Returns the loss of the micro-batches of this process.
    fn gradient(
        &mut self,
        step: u64,
        micro_batches: &[Batch],
        denominator: f64,
    ) -> Result<Loss, TchError> {
        self.parameters.clear_gradients()?;
        let sharding = self.model.sharding.clone();
        let mut loss = Loss::default();
        let rank = self.communicator.as_ref().map_or(0, |c| c.rank);
        for (number, batch) in micro_batches.iter().enumerate() {
            let pass = [self.seed, step, rank as u64, number as u64];
            self.model.set_dropout_seed(mix_seed(&pass));
            let pending = self.model.backward_head(
                &batch.ids,
                &batch.layout,
                &batch.targets,
                denominator,
                self.checkpointing,
            );
            // Before the gradient of the embedding exists.
            if let Some(sharding) = &sharding
                && self.model.head.is_some()
                && number + 1 == micro_batches.len()
            {
                sharding.reduce(ShardUnit::Head)?;
            }
            loss += pending.backward_blocks();
        }
        if let Some(sharding) = &sharding {
            sharding.reduce(ShardUnit::Embedding)?;
            sharding.reduce(ShardUnit::FinalNorm)?;
        }
        Ok(loss)
    }

    fn check(&mut self, step: u64, loss: f64, norm: f64) -> Result<(), StepError> {
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                return Err(StepError::Diverged { step, what, value });
            }
        }
        let threshold = self.options.loss_spike_threshold;
        match self.loss_spikes.observe(loss, threshold) {
            None => Ok(()),
            Some(median) => Err(StepError::Spike {
                step,
                loss,
                median,
                threshold,
            }),
        }
    }

    fn sum<const N: usize>(&self, numbers: [f64; N]) -> Result<[f64; N], TchError> {
        match &self.communicator {
            None => Ok(numbers),
            Some(communicator) => communicator.sum(numbers),
        }
    }

    /// The trained model. Gradients and optimizer state are freed; parameters stay sharded.
    pub fn into_model(self) -> TrainedModel {
        TrainedModel {
            model: self.model,
            parameters: self.parameters,
        }
    }
}

/// A model after its training.
#[derive(Debug)]
pub struct TrainedModel {
    pub model: Model,
    parameters: Parameters,
}

impl TrainedModel {
    /// Writes the model into `folder`, with the tokenizer files of `source`. The other processes of a run must call
    /// [`TrainedModel::assist_save`] meanwhile.
    pub fn save(&self, folder: &Path, source: &Path) -> Result<(), SaveError> {
        match &self.parameters {
            Parameters::Whole(_) => Ok(save_model(&self.model, folder, source)?),
            Parameters::Sharded(shards) => save_model_with(&self.model, folder, source, |name| {
                Ok(shards.copy(name).map_err(LoadError::from)?)
            }),
        }
    }

    /// Gathers the parameters that the main process saves.
    pub fn assist_save(&self) -> Result<(), TchError> {
        if let Parameters::Sharded(shards) = &self.parameters {
            for (name, _) in self.model.parameters() {
                drop(shards.copy(&name)?);
            }
        }
        Ok(())
    }

    /// Copies of the matrices of the adapters, with PEFT's names. All processes must call it together.
    pub fn adapters(&self) -> Result<Vec<(String, Tensor)>, TchError> {
        let is_adapter = |name: &str| name.contains(".lora_");
        match &self.parameters {
            Parameters::Sharded(shards) => shards.copies(is_adapter),
            Parameters::Whole(_) => {
                let all = self.model.parameters().into_iter();
                Ok(all.filter(|(name, _)| is_adapter(name)).collect())
            }
        }
    }
}

/// Elements whose norm is computed at once if they must be converted to float32 first.
const NORM_CHUNK: i64 = 1 << 22;

fn square_norm(gradients: &[Option<Tensor>]) -> f64 {
    let chunks = |gradient: &Tensor| match (gradient.kind(), gradient.device()) {
        (Kind::BFloat16, Device::Cpu) => gradient.split(NORM_CHUNK, 0),
        _ => vec![gradient.shallow_clone()],
    };
    let norms: Vec<Tensor> = gradients
        .iter()
        .flatten()
        .flat_map(chunks)
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
