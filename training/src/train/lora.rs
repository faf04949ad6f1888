//! Low-rank additions and packed matrices.

use tch::{Kind, Tensor};
use thiserror::Error;

use super::optimizer::mix;
use super::recipe::LoraChoice;
use crate::model::{Dropout, Lora, Model};

/// A target that no model has.
#[derive(Debug, Error)]
#[error(
    "LoRA: no matrix is called {0}; there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
)]
pub struct UnknownTarget(String);

/// Gives the chosen matrices a low-rank addition that starts at zero, and packs all of a block's
/// matrices where the recipe says so.
pub fn attach_lora(model: &mut Model, choice: &LoraChoice, seed: u64) -> Result<(), UnknownTarget> {
    tch::manual_seed(seed as i64);
    let mut unknown: Vec<&String> = choice.targets.iter().collect();
    for block in &mut model.blocks {
        for (name, linear) in block.linears_mut() {
            if choice.quantise.is_some() {
                linear.pack();
            }
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
                dropout: None,
            });
        }
    }
    match unknown.first() {
        Some(target) => Err(UnknownTarget((*target).clone())),
        None => Ok(()),
    }
}

impl Model {
    /// Lets LoRA leave out this share of its inputs in training, or nothing.
    pub fn set_dropout(&mut self, share: f64) {
        let choose = |lora: &mut Lora| {
            lora.dropout = (share > 0.0).then_some(Dropout { share, seed: 0 });
        };
        self.loras().for_each(|(_, lora)| choose(lora));
    }

    /// Chooses what is left out in the next pass. Every matrix has a seed of its own.
    pub(super) fn set_dropout_seed(&mut self, pass: i64) {
        for (place, lora) in self.loras() {
            if let Some(dropout) = &mut lora.dropout {
                dropout.seed = mix(&[pass as u64, place]);
            }
        }
    }

    fn loras(&mut self) -> impl Iterator<Item = (u64, &mut Lora)> {
        let all = self.blocks.iter_mut().flat_map(|block| block.linears_mut());
        let numbered = (0u64..).zip(all);
        numbered.filter_map(|(place, (_, linear))| Some((place, linear.lora.as_mut()?)))
    }
}
