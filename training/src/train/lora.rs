//! LoRA adapters.

use tch::{Device, Kind, Tensor};
use thiserror::Error;

use super::optimizer::mix_seed;
use super::recipe::LoraConfig;
use crate::model::{Block, Dropout, Lora, Model};

#[derive(Debug, Error)]
#[error(
    "lora.target_modules: there is no matrix {0}; the matrices are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
)]
pub struct UnknownTargetModule(String);

/// Adds new adapters, initially zero, to the target matrices of one block after the other.
pub(super) struct NewLora<'a> {
    _seeded: crate::random::Seeded,
    config: &'a LoraConfig,
    /// Targets that no block has had so far.
    unknown: Vec<&'a String>,
}

impl<'a> NewLora<'a> {
    /// The caller draws no other random numbers until the last block has its adapters.
    pub(super) fn new(config: &'a LoraConfig, seed: u64) -> Self {
        Self {
            _seeded: crate::random::seed(seed as i64),
            config,
            unknown: config.target_modules.iter().collect(),
        }
    }

    pub(super) fn attach(&mut self, block: &mut Block) {
        let config = self.config;
        for (name, linear) in block.linears_mut() {
            let short = name.rsplit('.').next().unwrap_or(name);
            if !config.target_modules.is_empty()
                && !config.target_modules.iter().any(|t| t == short)
            {
                continue;
            }
            self.unknown.retain(|target| *target != short);
            let (out, input) = (linear.weight.size()[0], linear.weight.size()[1]);
            let (kind, device) = (linear.weight.kind(), linear.weight.device());
            let bound = 1.0 / (input as f64).sqrt();
            // Drawn on the CPU, so that every device begins with the same adapter.
            let drawn = Tensor::rand([config.rank, input], (Kind::Float, Device::Cpu));
            let a = drawn.to_device(device) * (2.0 * bound) - bound;
            linear.lora = Some(Lora {
                a: a.to_kind(kind),
                b: Tensor::zeros([out, config.rank], (kind, device)),
                scale: config.alpha / config.rank as f64,
                dropout: None,
            });
        }
    }

    /// # Errors
    /// There is no matrix of the name of a target.
    pub(super) fn finish(self) -> Result<(), UnknownTargetModule> {
        match self.unknown.first() {
            Some(target) => Err(UnknownTargetModule((*target).clone())),
            None => Ok(()),
        }
    }
}

impl Model {
    /// Sets the dropout probability of the LoRA adapters; 0 disables dropout.
    pub fn set_lora_dropout(&mut self, probability: f64) {
        let set = |lora: &mut Lora| {
            lora.dropout = (probability > 0.0).then_some(Dropout {
                probability,
                seed: 0,
            });
        };
        self.loras().for_each(|(_, lora)| set(lora));
    }

    /// Sets the dropout seeds of the next forward pass; every matrix gets its own.
    pub(super) fn set_dropout_seed(&mut self, pass: i64) {
        for (index, lora) in self.loras() {
            if let Some(dropout) = &mut lora.dropout {
                dropout.seed = mix_seed(&[pass as u64, index]);
            }
        }
    }

    fn loras(&mut self) -> impl Iterator<Item = (u64, &mut Lora)> {
        let all = self.blocks.iter_mut().flat_map(|block| block.linears_mut());
        let numbered = (0u64..).zip(all);
        numbered.filter_map(|(index, (_, linear))| Some((index, linear.lora.as_mut()?)))
    }
}
