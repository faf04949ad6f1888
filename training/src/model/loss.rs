//! Output matrix and cross-entropy in chunks: logits exist only for a chunk of tokens at a time, and only for
//! tokens with a weight.

use std::sync::Arc;

use tch::{Device, IndexOp, Kind, Reduction, Tensor, no_grad};

use super::layout::Layout;
use super::llama::{GradientCheckpointing, Model};
use super::sharding::{GatherGuard, ParamSharding, ShardUnit};
use crate::torch::fused;

/// Elements of logits per chunk. On a CPU they nearly fit its caches.
pub(crate) fn chunk_elements(device: Device) -> i64 {
    match device {
        Device::Cpu => 1 << 23,
        _ => 1 << 25,
    }
}

/// The tokens to predict and their weights.
#[derive(Debug)]
pub struct Targets {
    /// Flat positions in the batch whose next token has a weight, int64 `[n]`.
    positions: Tensor,
    /// Those next tokens, int64 `[n]`.
    tokens: Tensor,
    /// Their weights, float32 `[n]`.
    weights: Tensor,
}

/// A weighted sum of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Weighted sum of negative log-likelihoods, nats.
    pub sum: f64,
    /// Sum of weights.
    pub weight: f64,
}

impl Loss {
    /// Nats per unit of weight.
    pub fn mean(self) -> f64 {
        self.sum / self.weight
    }
}

impl std::ops::AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }
}

impl Targets {
    /// From the tokens of a batch and the weight of each *as a target*, both row by row. The first token of a
    /// document is never a target.
    pub fn new(ids: &[i64], weights: &[f32], layout: &Layout) -> Self {
        let (mut positions, mut tokens, mut kept) = (vec![], vec![], vec![]);
        for (row, documents) in layout.rows().iter().enumerate() {
            for document in documents {
                let start = row as i64 * layout.width() + document.start;
                for position in start..start + document.length - 1 {
                    let next = position as usize + 1;
                    if weights[next] != 0.0 {
                        positions.push(position);
                        tokens.push(ids[next]);
                        kept.push(weights[next]);
                    }
                }
            }
        }
        Self {
            positions: Tensor::from_slice(&positions),
            tokens: Tensor::from_slice(&tokens),
            weights: Tensor::from_slice(&kept),
        }
    }

    /// Sum of weights, the denominator of the mean loss.
    pub fn weight(&self) -> f64 {
        self.weights.sum(Kind::Double).double_value(&[])
    }

    fn is_empty(&self) -> bool {
        self.positions.numel() == 0
    }
}

/// A backward pass that has gone through the output matrix, and not yet through the blocks.
#[derive(Debug)]
pub struct HeadBackward {
    loss: Loss,
    /// The states before the output matrix, and their gradient.
    states: Option<(Tensor, Tensor)>,
    /// The backward pass needs the final norm.
    norm: Option<GatherGuard>,
    embedded: Option<EmbeddedTokens>,
}

/// Rows of a sharded embedding, whose gradients are not those of the whole embedding.
#[derive(Debug)]
struct EmbeddedTokens {
    ids: Tensor,
    rows: Tensor,
    sharding: Arc<dyn ParamSharding>,
}

impl HeadBackward {
    /// Completes the gradients.
    pub fn backward_blocks(self) -> Loss {
        if let Some((states, gradient)) = &self.states {
            fused::backward(states, gradient);
        }
        drop(self.norm);
        if let Some(embedded) = self.embedded {
            let gradient = embedded.rows.grad();
            let (ids, hidden) = (embedded.ids.reshape([-1]), embedded.rows.size()[2]);
            let gradient = gradient.reshape([-1, hidden]);
            embedded.sharding.add_embedding_rows(ids, gradient);
        }
        self.loss
    }
}

impl Model {
    /// Adds the gradient of `loss.sum / denominator` to those of the parameters, and returns the loss.
    pub fn backward(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        denominator: f64,
        checkpointing: GradientCheckpointing,
    ) -> Loss {
        self.backward_head(ids, layout, targets, denominator, checkpointing)
            .backward_blocks()
    }

    /// The first part of [`Model::backward`]: the gradient of the output matrix is complete, unless it is tied to
    /// the embedding.
    pub fn backward_head(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        denominator: f64,
        checkpointing: GradientCheckpointing,
    ) -> HeadBackward {
        // With sharded parameters every process must run all blocks.
        if targets.is_empty() && self.sharding.is_none() {
            return HeadBackward {
                loss: Loss::default(),
                states: None,
                norm: None,
                embedded: None,
            };
        }
        let norm = self.gathered(ShardUnit::FinalNorm);
        let embedded = self.embedded_tokens(ids);
        let rows = match &embedded {
            Some(embedded) => embedded.rows.shallow_clone(),
            None => self.embed_tokens(ids),
        };
        let states = self.target_states(rows, layout, targets, checkpointing);
        let _head = self.gathered(self.head_unit());
        // The head runs forward and backward chunk by chunk on a detached copy. The gradient that accumulates
        // there is then propagated through the blocks once.
        let (loss, gradient) = match fused::supports(&states) {
            true => self.fused_loss(&states.detach(), targets, Some(1.0 / denominator)),
            false => {
                let cut = states.detach().set_requires_grad(true);
                let loss = self.chunked_loss(&cut, targets, |sum| (sum / denominator).backward());
                let gradient = cut.grad();
                (loss, gradient.defined().then_some(gradient))
            }
        };
        let gradient = gradient.unwrap_or_else(|| states.zeros_like());
        HeadBackward {
            loss,
            states: Some((states, gradient)),
            norm,
            embedded,
        }
    }

    /// Cuts the embedding off from the backward pass if it is sharded and has its gradient to itself.
    fn embedded_tokens(&self, ids: &Tensor) -> Option<EmbeddedTokens> {
        let sharding = self.sharding.clone()?;
        let own = self.head.is_some() && self.embed.requires_grad();
        own.then(|| EmbeddedTokens {
            ids: ids.shallow_clone(),
            rows: no_grad(|| self.embed_tokens(ids)).set_requires_grad(true),
            sharding,
        })
    }

    /// The loss without gradients.
    pub fn evaluate(&self, ids: &Tensor, layout: &Arc<Layout>, targets: &Targets) -> Loss {
        if targets.is_empty() {
            return Loss::default();
        }
        let _norm = self.gathered(ShardUnit::FinalNorm);
        no_grad(|| {
            let rows = self.embed_tokens(ids);
            let states = self.target_states(rows, layout, targets, GradientCheckpointing::Off);
            let _head = self.gathered(self.head_unit());
            match fused::supports(&states) {
                true => self.fused_loss(&states, targets, None).0,
                false => self.chunked_loss(&states, targets, |_| ()),
            }
        })
    }

    /// The hidden states that predict a target, after the final norm, `[n, hidden]`; `rows` are those of the embedding.
    fn target_states(
        &self,
        rows: Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        checkpointing: GradientCheckpointing,
    ) -> Tensor {
        let hidden = self.hidden_of(rows, layout, checkpointing);
        let flat = hidden.reshape([-1, self.config.hidden]);
        self.final_norm(&flat.index_select(0, &targets.positions.to_device(hidden.device())))
    }

    /// The loss, and its gradient times `scale` if that is given.
    fn fused_loss(
        &self,
        hidden: &Tensor,
        targets: &Targets,
        scale: Option<f64>,
    ) -> (Loss, Option<Tensor>) {
        let fused_targets = fused::Targets {
            head: self.head(),
            tokens: &targets.tokens,
            weights: &targets.weights,
        };
        let chunk = self.chunk_rows(hidden.device());
        let (sum, gradient) = fused::linear_cross_entropy(hidden, fused_targets, chunk, scale);
        let weight = targets.weight();
        (Loss { sum, weight }, gradient)
    }

    /// Rows of hidden states per chunk.
    fn chunk_rows(&self, device: Device) -> i64 {
        (chunk_elements(device) / self.config.vocab).max(1)
    }

    fn chunked_loss(&self, hidden: &Tensor, targets: &Targets, each: impl Fn(&Tensor)) -> Loss {
        let device = hidden.device();
        let rows = hidden.size()[0];
        let chunk = self.chunk_rows(device);
        let mut loss = Loss {
            sum: 0.0,
            weight: targets.weight(),
        };
        for start in (0..rows).step_by(chunk as usize) {
            let end = (start + chunk).min(rows);
            let logits = hidden.i(start..end).linear(self.head(), None::<Tensor>);
            let tokens = targets.tokens.i(start..end).to_device(device);
            let weights = targets.weights.i(start..end).to_device(device);
            let each_loss = logits.to_kind(Kind::Float).cross_entropy_loss(
                &tokens,
                None::<Tensor>,
                Reduction::None,
                -100,
                0.0,
            );
            let sum = (each_loss * weights).sum(Kind::Float);
            each(&sum);
            loss.sum += sum.double_value(&[]);
        }
        loss
    }
}
