//! Output matrix and cross-entropy in chunks: the logits of all tokens are never held, and tokens
//! without weight cost nothing.

use std::sync::Arc;

use tch::{Device, IndexOp, Kind, Reduction, Tensor, no_grad};

use super::{Layout, Model, Recomputation};
use crate::torch::fused::{self, Predicted};

/// Elements of logits held at once: on a CPU what its caches nearly hold.
pub(crate) fn chunk_elements(device: Device) -> i64 {
    match device {
        Device::Cpu => 1 << 23,
        _ => 1 << 25,
    }
}

/// What is to be predicted: the token after each, and how much it counts.
#[derive(Debug)]
pub struct Targets {
    /// Flat places in the batch whose next token counts, int64 `[n]`.
    places: Tensor,
    /// Those next tokens, int64 `[n]`.
    tokens: Tensor,
    /// Their weights, float32 `[n]`.
    weights: Tensor,
}

/// A summed loss.
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
    /// From a batch's tokens and the weight of each *as a target*, both row by row. The first token
    /// of a document is predicted by nothing, whatever its weight.
    pub fn new(ids: &[i64], weights: &[f32], layout: &Layout) -> Self {
        let (mut places, mut tokens, mut kept) = (vec![], vec![], vec![]);
        for (row, documents) in layout.rows().iter().enumerate() {
            for document in documents {
                let start = row as i64 * layout.width() + document.start;
                for place in start..start + document.length - 1 {
                    let next = place as usize + 1;
                    if weights[next] != 0.0 {
                        places.push(place);
                        tokens.push(ids[next]);
                        kept.push(weights[next]);
                    }
                }
            }
        }
        Self {
            places: Tensor::from_slice(&places),
            tokens: Tensor::from_slice(&tokens),
            weights: Tensor::from_slice(&kept),
        }
    }

    /// Sum of weights: what a step divides by.
    pub fn weight(&self) -> f64 {
        self.weights.sum(Kind::Double).double_value(&[])
    }

    fn is_empty(&self) -> bool {
        self.places.numel() == 0
    }
}

impl Model {
    /// Adds the gradient of `loss.sum / denominator` to the parameters' and returns the loss.
    pub fn backward(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        denominator: f64,
        memory: Recomputation,
    ) -> Loss {
        // Where parameters lie with several processes, each must go through all blocks.
        if targets.is_empty() && self.residence.is_none() {
            return Loss::default();
        }
        let chosen = self.chosen(ids, layout, targets, memory);
        // The head runs forward and backward chunk by chunk on a cut-off copy; the gradient that
        // gathers there is then sent through the blocks at once.
        let (loss, gradient) = match fused::supports(&chosen) {
            true => self.fused_loss(&chosen.detach(), targets, Some(1.0 / denominator)),
            false => {
                let cut = chosen.detach().set_requires_grad(true);
                let loss = self.chunks(&cut, targets, |sum| (sum / denominator).backward());
                let gradient = cut.grad();
                (loss, gradient.defined().then_some(gradient))
            }
        };
        let gradient = gradient.unwrap_or_else(|| chosen.zeros_like());
        fused::backward(&chosen, &gradient);
        loss
    }

    /// The loss without gradients.
    pub fn evaluate(&self, ids: &Tensor, layout: &Arc<Layout>, targets: &Targets) -> Loss {
        if targets.is_empty() {
            return Loss::default();
        }
        let residence = self.residence.clone();
        let _root = residence.map(|residence| residence.stay(self.blocks.len()));
        no_grad(|| {
            let chosen = self.chosen(ids, layout, targets, Recomputation::Keep);
            match fused::supports(&chosen) {
                true => self.fused_loss(&chosen, targets, None).0,
                false => self.chunks(&chosen, targets, |_| ()),
            }
        })
    }

    /// The normalised hidden states that predict something, `[n, hidden]`.
    fn chosen(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        memory: Recomputation,
    ) -> Tensor {
        let hidden = self.hidden(ids, layout, memory);
        let flat = hidden.reshape([-1, self.config.hidden]);
        self.normalised(&flat.index_select(0, &targets.places.to_device(hidden.device())))
    }

    /// The loss, and with a scale its gradient times that.
    fn fused_loss(
        &self,
        hidden: &Tensor,
        targets: &Targets,
        scale: Option<f64>,
    ) -> (Loss, Option<Tensor>) {
        let predicted = Predicted {
            head: self.head(),
            tokens: &targets.tokens,
            weights: &targets.weights,
        };
        let chunk = self.chunk(hidden.device());
        let (sum, gradient) = fused::linear_cross_entropy(hidden, predicted, chunk, scale);
        let weight = targets.weight();
        (Loss { sum, weight }, gradient)
    }

    /// Rows of hidden states whose logits are held at once.
    fn chunk(&self, device: Device) -> i64 {
        (chunk_elements(device) / self.config.vocab).max(1)
    }

    fn chunks(&self, hidden: &Tensor, targets: &Targets, each: impl Fn(&Tensor)) -> Loss {
        let device = hidden.device();
        let rows = hidden.size()[0];
        let chunk = self.chunk(device);
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
