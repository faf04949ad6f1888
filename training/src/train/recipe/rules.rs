//! Bounds on the values of a recipe.

use std::path::Path;

use pybench_training_data::{Overflow, RecordKind};

use super::super::dpo::LossType;
use super::{Curriculum, DpoConfig, LoraConfig, OptimizerConfig, Recipe, RecipeError, TrainConfig};

impl Recipe {
    /// Fails with [`RecipeError::Value`] on the first value that is out of bounds.
    pub(super) fn check(&self, path: &Path) -> Result<(), RecipeError> {
        let parts = [
            self.source_rules(),
            vec![self.recompute_rule()],
            self.train.rules(),
            self.optimizer.rules(),
            self.lora.iter().flat_map(LoraConfig::rules).collect(),
            self.dpo.iter().flat_map(DpoConfig::rules).collect(),
            self.preference_rules(),
        ];
        match parts.into_iter().flatten().find(|rule| !rule.holds) {
            None => Ok(()),
            Some(Rule {
                key,
                value,
                expected,
                ..
            }) => Err(RecipeError::Value {
                path: path.into(),
                key,
                value,
                expected,
            }),
        }
    }

    /// Why a run of so many processes cannot follow this recipe; `None` if it can.
    pub(in crate::train) fn conflict(&self, processes: usize) -> Option<String> {
        if processes > 1 && self.train.recompute_num_layers.is_some() {
            let why = "train.recompute_num_layers is for one process: of several, each recomputes all blocks, because their weights are gathered one block at a time. Take the key out";
            return Some(why.to_owned());
        }
        let (rows, micro) = (self.train.batch_size, self.train.micro_batch_size);
        let count = rows.div_ceil(micro);
        (self.optimizer.optimizer_in_bwd && count > processes).then(|| {
            format!(
                "optimizer.optimizer_in_bwd = true needs one micro-batch per step and process, because it keeps no gradients that others could be added to. train.batch_size = {rows} and train.micro_batch_size = {micro} make {count} micro-batches for {processes} process(es). Set train.batch_size = {}, or train.micro_batch_size = {}",
                micro * processes,
                rows.div_ceil(processes)
            )
        })
    }

    fn recompute_rule(&self) -> Rule {
        let wanted = self.train.recompute_num_layers;
        rule(
            wanted.is_none() || self.recomputes(false),
            "train.recompute_num_layers",
            wanted.unwrap_or_default(),
            "it needs train.gradient_checkpointing = true",
        )
    }

    fn source_rules(&self) -> Vec<Rule> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let valid_name = (1..=64).contains(&self.name.len()) && self.name.chars().all(fits);
        let mut weights = self.data.iter().map(|source| source.weight);
        let bad = weights.find(|w| !(0.0..=1000.0).contains(w));
        let name = &self.name;
        vec![
            rule(
                valid_name,
                "name",
                name,
                "it must have 1 to 64 letters, digits, `-` or `_`",
            ),
            rule(
                !self.data.is_empty(),
                "data",
                "[]",
                "there must be at least one [[data]]",
            ),
            rule(
                bad.is_none(),
                "data.weight",
                bad.unwrap_or_default(),
                "it must be from 0 to 1000",
            ),
        ]
    }
}

impl Recipe {
    /// What preference pairs need of other sections.
    fn preference_rules(&self) -> Vec<Rule> {
        let pairs = RecordKind::Preference;
        let held_out = self.held_out.as_ref().map(|held_out| held_out.kind);
        let of_pairs = rule(
            held_out != Some(RecordKind::Text),
            "held_out.kind",
            "\"text\"",
            "it must be \"messages\" or \"preference\"",
        );
        if self.dpo.is_none() {
            let without = "pairs need the section [dpo]";
            let data = self.data.iter().all(|source| source.kind != pairs);
            return vec![
                of_pairs,
                rule(data, "data.kind", "\"preference\"", without),
                rule(
                    held_out != Some(pairs),
                    "held_out.kind",
                    "\"preference\"",
                    without,
                ),
            ];
        }
        let train = &self.train;
        let whole = matches!(train.overflow, Overflow::Error | Overflow::Drop);
        let texts = self.data.iter().any(|s| s.kind == RecordKind::Text);
        let column = self.data.iter().find_map(|source| source.column.as_ref());
        let replies_only = "only replies count in the log-probabilities of [dpo]; leave it out";
        vec![
            of_pairs,
            rule(
                whole,
                "train.overflow",
                format!("{:?}", train.overflow),
                "a pair cannot be cut: with [dpo] it must be \"error\" or \"drop\"",
            ),
            rule(
                !texts,
                "data.kind",
                "\"text\"",
                "with [dpo] every source has preference pairs",
            ),
            rule(
                column.is_none(),
                "data.column",
                column.map_or("", String::as_str),
                "pairs have the columns prompt, chosen and rejected; leave it out",
            ),
            rule(
                train.prompt_weight == 0.0,
                "train.prompt_weight",
                train.prompt_weight,
                replies_only,
            ),
            rule(
                train.observation_weight == 0.0,
                "train.observation_weight",
                train.observation_weight,
                replies_only,
            ),
            rule(
                train.curriculum != Some(Curriculum::Difficulty),
                "train.curriculum",
                "\"difficulty\"",
                "pairs have no level of difficulty; leave it out, or set it to \"random\" in a stage that inherits it",
            ),
        ]
    }
}

impl DpoConfig {
    fn rules(&self) -> Vec<Rule> {
        let weights = &self.loss_weights;
        let smoothed = self.loss_type.contains(&LossType::Robust);
        vec![
            rule(
                positive(self.beta),
                "dpo.beta",
                self.beta,
                "it must be above 0",
            ),
            rule(
                !self.loss_type.is_empty(),
                "dpo.loss_type",
                "[]",
                "it must be a loss, or a list of losses",
            ),
            rule(
                weights.is_empty() || weights.len() == self.loss_type.len(),
                "dpo.loss_weights",
                format!("{weights:?}"),
                "there must be one weight for each loss in dpo.loss_type",
            ),
            rule(
                weights.iter().all(|weight| (0.0..=1000.0).contains(weight)),
                "dpo.loss_weights",
                format!("{weights:?}"),
                "each must be from 0 to 1000",
            ),
            rule(
                (0.0..0.5).contains(&self.label_smoothing),
                "dpo.label_smoothing",
                self.label_smoothing,
                "it must be at least 0 and below 0.5",
            ),
            rule(
                smoothed || self.label_smoothing == 0.0,
                "dpo.label_smoothing",
                self.label_smoothing,
                "only the loss_type \"robust\" has it",
            ),
        ]
    }
}

struct Rule {
    holds: bool,
    key: &'static str,
    value: String,
    expected: &'static str,
}

fn rule(holds: bool, key: &'static str, value: impl ToString, expected: &'static str) -> Rule {
    let value = value.to_string();
    Rule {
        holds,
        key,
        value,
        expected,
    }
}

fn positive(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

fn below_one(x: f64) -> bool {
    (0.0..1.0).contains(&x)
}

impl TrainConfig {
    fn rules(&self) -> Vec<Rule> {
        let weight = |x: f32| (0.0..=1000.0).contains(&x);
        let max_seq_len = (2..=1 << 24).contains(&self.max_seq_len);
        let batch_size = (1..=1 << 20).contains(&self.batch_size);
        let micro_batch_size = (1..=self.batch_size).contains(&self.micro_batch_size);
        let one_length = self.max_steps.is_some() != self.num_epochs.is_some();
        let epochs = self.num_epochs.is_none_or(|e| positive(e) && e <= 1e4);
        let length = match (self.max_steps, self.num_epochs) {
            (Some(steps), Some(epochs)) => format!("{steps}, num_epochs = {epochs}"),
            _ => "(none)".to_owned(),
        };
        vec![
            rule(
                max_seq_len,
                "train.max_seq_len",
                self.max_seq_len,
                "it must be from 2 to 16777216 tokens",
            ),
            rule(
                batch_size,
                "train.batch_size",
                self.batch_size,
                "it must be from 1 to 1048576",
            ),
            rule(
                micro_batch_size,
                "train.micro_batch_size",
                self.micro_batch_size,
                "it must be from 1 to train.batch_size",
            ),
            rule(
                one_length,
                "train.max_steps",
                length,
                "give either max_steps or num_epochs",
            ),
            rule(
                epochs,
                "train.num_epochs",
                self.num_epochs.unwrap_or_default(),
                "it must be above 0 and at most 10000",
            ),
            rule(
                weight(self.prompt_weight),
                "train.prompt_weight",
                self.prompt_weight,
                "it must be from 0 to 1000",
            ),
            rule(
                weight(self.observation_weight),
                "train.observation_weight",
                self.observation_weight,
                "it must be from 0 to 1000",
            ),
        ]
    }
}

impl OptimizerConfig {
    fn rules(&self) -> Vec<Rule> {
        let not_negative = |x: f64| x.is_finite() && x >= 0.0;
        let betas = below_one(self.betas.0) && below_one(self.betas.1);
        vec![
            rule(
                positive(self.learning_rate),
                "optimizer.learning_rate",
                self.learning_rate,
                "it must be above 0",
            ),
            rule(
                positive(self.eps),
                "optimizer.eps",
                self.eps,
                "it must be above 0",
            ),
            rule(
                betas,
                "optimizer.betas",
                format!("{:?}", self.betas),
                "each must be at least 0 and below 1",
            ),
            rule(
                (0.0..=1.0).contains(&self.min_lr_ratio),
                "optimizer.min_lr_ratio",
                self.min_lr_ratio,
                "it must be from 0 to 1",
            ),
            rule(
                self.max_grad_norm >= 0.0,
                "optimizer.max_grad_norm",
                self.max_grad_norm,
                "it must be 0 (no clipping) or more",
            ),
            rule(
                !self.optimizer_in_bwd || self.max_grad_norm == 0.0,
                "optimizer.optimizer_in_bwd",
                self.optimizer_in_bwd,
                "it needs optimizer.max_grad_norm = 0, because parameters are updated before the norm of the whole gradient is known",
            ),
            rule(
                self.weight_decay >= 0.0,
                "optimizer.weight_decay",
                self.weight_decay,
                "it must be 0 or more",
            ),
            rule(
                not_negative(self.loss_spike_threshold),
                "optimizer.loss_spike_threshold",
                self.loss_spike_threshold,
                "it must be 0 (off) or more",
            ),
        ]
    }
}

impl LoraConfig {
    fn rules(&self) -> Vec<Rule> {
        vec![
            rule(
                (1..=4096).contains(&self.rank),
                "lora.rank",
                self.rank,
                "it must be from 1 to 4096",
            ),
            rule(
                positive(self.alpha),
                "lora.alpha",
                self.alpha,
                "it must be above 0",
            ),
            rule(
                below_one(self.dropout),
                "lora.dropout",
                self.dropout,
                "it must be at least 0 and below 1",
            ),
        ]
    }
}
