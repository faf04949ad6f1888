//! One training step: forward and backward over the micro-batches with one denominator, clipping, AdamW.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tch::{TchError, Tensor};

use super::backward_update::BackwardUpdate;
use super::dataset::Batch;
use super::dpo::{DpoConfig, PreferenceMetrics, PreferenceSums};
use super::flops;
use super::grad_norm::square_norm;
use super::loss_spike::LossSpikeDetector;
use super::optimizer::{AdamW, mix_seed};
use super::recipe::{OptimizerConfig, Recipe};
use super::schedule::LrSchedule;
use super::shard::{Parameters, Scope, Shards};
use super::step_error::StepError;
use crate::model::{
    GradientCheckpointing, HeadBackward, LoadError, Loss, Model, SaveError, ShardUnit, save_model,
    save_model_with,
};
use crate::torch::{Communicator, release_free_memory};

/// The metrics of a step, a line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Number of completed steps, including this one.
    pub step: u64,
    /// Nats per trained token; with `[dpo]` the mean over pairs.
    pub loss: f64,
    pub learning_rate: f64,
    /// Before clipping.
    pub grad_norm: f64,
    /// Tokens of all documents in the step.
    pub tokens: usize,
    /// Sum of the loss weights; with `[dpo]` the tokens of both replies.
    pub trained: f64,
    pub seconds: f64,
    /// Floating-point operations, without those of recomputation.
    pub flops: f64,
    /// Of preference pairs.
    #[serde(flatten)]
    pub preference: Option<PreferenceMetrics>,
}

/// What a step is computed from.
#[derive(Clone, Copy)]
struct StepInput<'a> {
    /// From 0.
    step: u64,
    micro_batches: &'a [Batch],
    /// Sum of the loss weights over all processes, or number of pairs.
    denominator: f64,
    /// Pairs per token of chosen replies.
    sft_scale: f64,
    learning_rate: f64,
}

/// What a step has computed.
#[derive(Clone, Copy, Debug, Default)]
struct StepOutcome {
    loss: f64,
    /// Norm of the gradient.
    norm: f64,
    /// Sums over the pairs of all processes.
    preference: PreferenceSums,
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
    dpo: Option<DpoConfig>,
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
        let layers = model.config.layers;
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
            checkpointing: match recipe.recomputed_blocks(layers, communicator.is_some()) {
                Some(first) => GradientCheckpointing::Blocks { first },
                None => GradientCheckpointing::Off,
            },
            dpo: recipe.dpo.clone(),
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
        let ours =
            |of_batch: fn(&Batch) -> f64| -> f64 { micro_batches.iter().map(of_batch).sum() };
        let trained = ours(|batch| batch.targets.weight());
        let (denominator, chosen) = (ours(Batch::denominator), ours(Batch::chosen_tokens));
        let tokens: usize = micro_batches.iter().map(|batch| batch.tokens).sum();
        let flops: f64 = micro_batches
            .iter()
            .map(|batch| flops::batch_flops(&self.model.config, &batch.layout, full))
            .sum();
        let [denominator, trained, chosen, tokens, flops] =
            self.sum([denominator, trained, chosen, tokens as f64, flops])?;
        if denominator == 0.0 {
            return Err(StepError::NoTargets(step));
        }
        let learning_rate = self.schedule.at(step);
        let input = StepInput {
            step,
            micro_batches,
            denominator,
            sft_scale: denominator / chosen.max(1.0),
            learning_rate,
        };
        let outcome = match self.options.optimizer_in_bwd {
            true => self.step_in_backward(input)?,
            false => self.step_after_backward(input)?,
        };
        if self.communicator.is_some() {
            // What blocks needed in the backward pass is no place for the tables that the next step gathers.
            release_free_memory();
        }
        Ok(StepReport {
            step: step + 1,
            loss: outcome.loss,
            learning_rate,
            grad_norm: outcome.norm,
            tokens: tokens as usize,
            trained,
            seconds: started.elapsed().as_secs_f64(),
            flops,
            preference: self
                .dpo
                .as_ref()
                .map(|_| outcome.preference.means(denominator)),
        })
    }

    /// Updates the parameters when all gradients exist.
    fn step_after_backward(&mut self, input: StepInput) -> Result<StepOutcome, StepError> {
        let (ours, preference) = self.gradient(input)?;
        let gradients = self.parameters.gradients(Scope::All);
        let [loss, square] = self.sum([ours.sum, square_norm(&gradients)])?;
        let preference = self.sum_preference(preference)?;
        let (loss, norm) = (loss / input.denominator, square.sqrt());
        check_finite(input.step, "loss", loss)?;
        check_finite(input.step, "gradient norm", norm)?;
        let threshold = self.spike_threshold();
        check_spike(&mut self.loss_spikes, input.step, loss, threshold)?;
        let gradient_scale = match self.options.max_grad_norm {
            max if max > 0.0 && norm > max => max / norm,
            _ => 1.0,
        };
        self.optimizer
            .step(input.step, &gradients, gradient_scale, input.learning_rate)?;
        drop(gradients);
        self.parameters.clear_gradients(Scope::All)?;
        Ok(StepOutcome {
            loss,
            norm,
            preference,
        })
    }

    /// Updates the parameters of each unit as soon as its gradients are complete.
    fn step_in_backward(&mut self, input: StepInput) -> Result<StepOutcome, StepError> {
        let [batch] = input.micro_batches else {
            return Err(StepError::SeveralMicroBatches {
                step: input.step,
                count: input.micro_batches.len(),
            });
        };
        self.parameters.clear_gradients(Scope::All)?;
        self.seed_dropout(input.step, 0);
        let mut preference = PreferenceSums::default();
        let (dpo, checkpointing) = (self.dpo.as_ref(), self.checkpointing);
        let sums = &mut preference;
        let pending = backward_head(&self.model, batch, input, checkpointing, dpo, sums);
        // The last moment before parameters change.
        let [loss] = self.sum([pending.loss().sum])?;
        let preference = self.sum_preference(preference)?;
        let loss = loss / input.denominator;
        check_finite(input.step, "loss", loss)?;
        let threshold = self.spike_threshold();
        check_spike(&mut self.loss_spikes, input.step, loss, threshold)?;
        let mut updates = BackwardUpdate {
            step: input.step,
            learning_rate: input.learning_rate,
            parameters: &self.parameters,
            optimizer: &mut self.optimizer,
            communicator: self.communicator.as_deref(),
            square: 0.0,
        };
        pending.finish(|unit| {
            if let Some(sharding) = &self.model.sharding {
                sharding.reduce(unit)?;
            }
            updates.update(unit)
        })?;
        Ok(StepOutcome {
            loss,
            norm: updates.square.sqrt(),
            preference,
        })
    }

    /// Accumulates the gradients of the step. Returns the loss of the micro-batches of this process, and the sums over
    /// its pairs.
    fn gradient(&mut self, input: StepInput) -> Result<(Loss, PreferenceSums), TchError> {
        self.parameters.clear_gradients(Scope::All)?;
        let (mut loss, mut preference) = (Loss::default(), PreferenceSums::default());
        for (number, batch) in input.micro_batches.iter().enumerate() {
            self.seed_dropout(input.step, number as u64);
            let (dpo, checkpointing) = (self.dpo.as_ref(), self.checkpointing);
            let sums = &mut preference;
            let pending = backward_head(&self.model, batch, input, checkpointing, dpo, sums);
            loss += pending.loss();
            let is_last = number + 1 == input.micro_batches.len();
            pending.finish(|unit| match &self.model.sharding {
                // Gradients of the other units accumulate on this process.
                Some(sharding) if is_last || matches!(unit, ShardUnit::Block(_)) => {
                    sharding.reduce(unit)
                }
                _ => Ok(()),
            })?;
        }
        Ok((loss, preference))
    }

    /// The sums over the pairs of all processes.
    fn sum_preference(&self, ours: PreferenceSums) -> Result<PreferenceSums, TchError> {
        match self.dpo {
            None => Ok(ours),
            Some(_) => self.sum(ours.to_array()).map(PreferenceSums::from_array),
        }
    }

    /// The threshold of the check for loss spikes; 0 for pairs, whose loss is far above its median wherever the model
    /// prefers the rejected reply.
    fn spike_threshold(&self) -> f64 {
        match self.dpo {
            None => self.options.loss_spike_threshold,
            Some(_) => 0.0,
        }
    }

    /// Gives each forward pass of each process its own dropout.
    fn seed_dropout(&mut self, step: u64, micro_batch: u64) {
        let rank = self.communicator.as_ref().map_or(0, |c| c.rank);
        let seed = mix_seed(&[self.seed, step, rank as u64, micro_batch]);
        self.model.set_dropout_seed(seed);
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

/// The first part of the backward pass of a batch. What is measured of its pairs is added to `sums`.
fn backward_head<'a>(
    model: &'a Model,
    batch: &Batch,
    input: StepInput,
    checkpointing: GradientCheckpointing,
    dpo: Option<&DpoConfig>,
    sums: &mut PreferenceSums,
) -> HeadBackward<'a> {
    let (ids, layout, targets) = (&batch.ids, &batch.layout, &batch.targets);
    let denominator = input.denominator;
    match dpo.filter(|_| !batch.reference.is_empty()) {
        None => model.backward_head(ids, layout, targets, denominator, checkpointing),
        Some(dpo) => {
            let document_loss = |logps: &[f64]| {
                let (loss, of_batch) = batch.pair_loss(dpo, logps, input.sft_scale);
                *sums += of_batch;
                loss
            };
            model.backward_documents_head(
                ids,
                layout,
                targets,
                denominator,
                checkpointing,
                document_loss,
            )
        }
    }
}

fn check_finite(step: u64, what: &'static str, value: f64) -> Result<(), StepError> {
    match value.is_finite() {
        true => Ok(()),
        false => Err(StepError::Diverged { step, what, value }),
    }
}

fn check_spike(
    seen: &mut LossSpikeDetector,
    step: u64,
    loss: f64,
    threshold: f64,
) -> Result<(), StepError> {
    match seen.observe(loss, threshold) {
        None => Ok(()),
        Some(median) => Err(StepError::Spike {
            step,
            loss,
            median,
            threshold,
        }),
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
