//! Gradient checkpointing: the forward pass keeps only the input of each block, and the backward pass runs each block
//! again.

use std::sync::Arc;

use tch::{Tensor, no_grad};

use super::layout::Layout;
use super::llama::{Context, Model};
use super::sharding::ShardUnit;
use crate::torch::fused;

/// Whether blocks keep their activations for the backward pass, or are recomputed in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientCheckpointing {
    /// Keep all activations: fastest.
    Off,
    /// Keep only the input of each block: about a third more time, a fraction of the memory.
    Blocks,
}

/// What a forward pass through all blocks keeps for the backward pass.
pub(super) struct BlockInputs {
    /// The input of each block, `[rows, width, hidden]`.
    inputs: Vec<Tensor>,
    context: Context,
}

impl std::fmt::Debug for BlockInputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockInputs({} blocks)", self.inputs.len())
    }
}

impl BlockInputs {
    /// Runs all blocks on `x`, `[rows, width, hidden]`. The output of the last one is a leaf that requires a gradient.
    pub(super) fn forward(model: &Model, x: &Tensor, layout: &Arc<Layout>) -> (Self, Tensor) {
        let context = Context::new(model, layout);
        let mut inputs = Vec::with_capacity(model.blocks.len());
        let mut x = x.detach();
        no_grad(|| {
            for (layer, block) in model.blocks.iter().enumerate() {
                let _guard = model.gathered(ShardUnit::Block(layer));
                let output = block.forward(&x, &context);
                inputs.push(std::mem::replace(&mut x, output));
            }
        });
        (Self { inputs, context }, x.set_requires_grad(true))
    }

    /// Runs the blocks again, the last one first, each with its backward pass. `gradient` is that of their output; the
    /// result is that of their input. `complete` is called when the gradients of a block are complete.
    pub(super) fn backward<E>(
        self,
        model: &Model,
        mut gradient: Tensor,
        mut complete: impl FnMut(ShardUnit) -> Result<(), E>,
    ) -> Result<Tensor, E> {
        let Self { inputs, context } = self;
        for (layer, input) in inputs.into_iter().enumerate().rev() {
            let unit = ShardUnit::Block(layer);
            let _guard = model.gathered(unit);
            gradient = {
                let input = input.set_requires_grad(true);
                let output = model.blocks[layer].forward(&input, &context);
                fused::backward(&output, &gradient);
                input.grad()
            };
            complete(unit)?;
        }
        Ok(gradient)
    }
}
