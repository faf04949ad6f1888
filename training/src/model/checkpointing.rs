//! Gradient checkpointing: the forward pass keeps only the input of a block, and the backward pass runs the block again.

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
    /// Keep only the input of each of the first blocks: about a third more time for them, a fraction of the memory.
    Blocks {
        /// Number of blocks that are recomputed. The others, whose activations are needed first, keep them.
        first: usize,
    },
}

impl GradientCheckpointing {
    /// Every block is recomputed.
    pub const ALL: Self = Self::Blocks { first: usize::MAX };
}

/// What a forward pass through all blocks keeps for the backward pass.
pub(super) struct BlockInputs {
    blocks: Vec<Kept>,
    context: Context,
}

/// What is kept of a block.
struct Kept {
    /// `[rows, width, hidden]`, a leaf.
    input: Tensor,
    /// The output with all activations, unless the block is recomputed.
    output: Option<Tensor>,
}

impl std::fmt::Debug for BlockInputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockInputs({} blocks)", self.blocks.len())
    }
}

impl BlockInputs {
    /// Runs all blocks on `x`, `[rows, width, hidden]`, the first ones without their activations. The output of the last
    /// one is a leaf that requires a gradient.
    pub(super) fn forward(
        model: &Model,
        x: &Tensor,
        layout: &Arc<Layout>,
        first: usize,
    ) -> (Self, Tensor) {
        let context = Context::new(model, layout);
        let mut blocks = Vec::with_capacity(model.blocks.len());
        let mut x = x.detach();
        for (layer, block) in model.blocks.iter().enumerate() {
            let _guard = model.gathered(ShardUnit::Block(layer));
            let recomputed = layer < first;
            let input = x.set_requires_grad(!recomputed);
            let output = match recomputed {
                true => no_grad(|| block.forward(&input, &context)),
                false => block.forward(&input, &context),
            };
            x = output.detach();
            let output = (!recomputed).then_some(output);
            blocks.push(Kept { input, output });
        }
        (Self { blocks, context }, x.set_requires_grad(true))
    }

    /// Runs the backward pass of each block, the last one first. `gradient` is that of their output; the result is that
    /// of their input. `complete` is called when the gradients of a block are complete.
    pub(super) fn backward<E>(
        self,
        model: &Model,
        mut gradient: Tensor,
        mut complete: impl FnMut(ShardUnit) -> Result<(), E>,
    ) -> Result<Tensor, E> {
        let Self { blocks, context } = self;
        for (layer, Kept { input, output }) in blocks.into_iter().enumerate().rev() {
            let unit = ShardUnit::Block(layer);
            let _guard = model.gathered(unit);
            gradient = {
                let input = input.set_requires_grad(true);
                let output =
                    output.unwrap_or_else(|| model.blocks[layer].forward(&input, &context));
                fused::backward(&output, &gradient);
                input.grad()
            };
            complete(unit)?;
        }
        Ok(gradient)
    }
}
