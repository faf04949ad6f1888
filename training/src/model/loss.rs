//! Output matrix and cross-entropy in chunks: the logits of all tokens are never held, and tokens
//! without weight cost nothing.

use std::sync::Arc;

use tch::{IndexOp, Kind, Reduction, Tensor, no_grad};

use super::{Layout, Model, Recomputation};

/// Elements of logits held at once.
pub(crate) const CHUNK_ELEMENTS: i64 = 1 << 25;

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
        let hidden = self.hidden(ids, layout, memory);
        let chosen = select(&hidden, targets);
        // The head runs forward and backward chunk by chunk on a cut-off copy; the gradient that
        // gathers there is then sent through the blocks at once.
        let cut = chosen.detach().set_requires_grad(true);
        let loss = self.chunks(&cut, targets, |sum| (sum / denominator).backward());
        let gradient = match cut.grad() {
            gradient if gradient.defined() => gradient,
            _ => cut.zeros_like(),
        };
        (chosen * gradient).sum(None::<Kind>).backward();
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
            let hidden = self.hidden(ids, layout, Recomputation::Keep);
            self.chunks(&select(&hidden, targets), targets, |_| ())
        })
    }

    fn chunks(&self, hidden: &Tensor, targets: &Targets, each: impl Fn(&Tensor)) -> Loss {
        let device = hidden.device();
        let rows = hidden.size()[0];
        let chunk = (CHUNK_ELEMENTS / self.config.vocab).max(1);
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

/// The rows of `[rows, width, hidden]` that predict something, `[n, hidden]`.
fn select(hidden: &Tensor, targets: &Targets) -> Tensor {
    let flat = hidden.reshape([-1, hidden.size()[2]]);
    flat.index_select(0, &targets.places.to_device(hidden.device()))
}
