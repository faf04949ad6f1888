//! Output matrix and cross-entropy in chunks: logits exist only for a chunk of tokens at a time, and only for
//! tokens with a weight.

use std::sync::Arc;

use tch::{Device, IndexOp, Kind, Reduction, Tensor, no_grad};

use super::checkpointing::{BlockInputs, GradientCheckpointing};
use super::layout::Layout;
use super::llama::{Model, multiplied};
use super::sharding::{GatherGuard, ShardUnit};
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
    /// Number of targets of each document, in the order of rows and columns.
    per_document: Vec<i64>,
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

/// A loss that is a function of the log-probabilities of documents.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentLoss {
    pub loss: Loss,
    /// The derivative of `loss.sum` by the log-probability of each document, negated.
    pub factors: Vec<f64>,
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
        let mut per_document = vec![];
        for (row, documents) in layout.rows().iter().enumerate() {
            for document in documents {
                let start = row as i64 * layout.width() + document.start;
                let before = kept.len();
                for position in start..start + document.length - 1 {
                    let next = position as usize + 1;
                    if weights[next] != 0.0 {
                        positions.push(position);
                        tokens.push(ids[next]);
                        kept.push(weights[next]);
                    }
                }
                per_document.push((kept.len() - before) as i64);
            }
        }
        Self {
            positions: Tensor::from_slice(&positions),
            tokens: Tensor::from_slice(&tokens),
            weights: Tensor::from_slice(&kept),
            per_document,
        }
    }

    /// Number of targets of each document, in the order of rows and columns.
    pub fn per_document(&self) -> &[i64] {
        &self.per_document
    }

    /// The targets of each document, and where they begin among those of all.
    fn documents(&self) -> impl Iterator<Item = (i64, Self)> {
        let mut end = 0;
        self.per_document.iter().map(move |&count| {
            let start = end;
            end += count;
            let part = |all: &Tensor| all.narrow(0, start, count);
            let targets = Self {
                positions: part(&self.positions),
                tokens: part(&self.tokens),
                weights: part(&self.weights),
                per_document: vec![count],
            };
            (start, targets)
        })
    }

    /// The same targets with the weights of each document multiplied by a factor, which may be negative.
    fn scaled(&self, factors: &[f64]) -> Self {
        let counts = self.per_document.iter().map(|&count| count as usize);
        let factors = factors.iter().zip(counts);
        let each: Vec<f32> = factors
            .flat_map(|(&factor, count)| std::iter::repeat_n(factor as f32, count))
            .collect();
        Self {
            positions: self.positions.shallow_clone(),
            tokens: self.tokens.shallow_clone(),
            weights: &self.weights * Tensor::from_slice(&each),
            per_document: self.per_document.clone(),
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
pub struct HeadBackward<'a> {
    model: &'a Model,
    loss: Loss,
    /// `None` if no token is a target.
    rest: Option<BlocksBackward>,
}

/// The forward pass from the embedding to the output matrix.
#[derive(Debug)]
struct BlocksBackward {
    ids: Tensor,
    /// Rows of the embedding, `[rows, width, hidden]`.
    rows: Tensor,
    /// The inputs of blocks that are recomputed, and their output.
    recomputed: Option<(BlockInputs, Tensor)>,
    /// The states before the output matrix, `[n, hidden]`, and their gradient.
    states: Tensor,
    gradient: Tensor,
    /// The backward pass needs the final norm.
    norm: Option<GatherGuard>,
}

impl HeadBackward<'_> {
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Completes the gradients. `complete` is called for each unit as soon as its gradients are complete; nothing of
    /// the backward pass that follows reads its parameters. The blocks come one by one if they are recomputed.
    ///
    /// # Errors
    /// That of `complete`, which ends the backward pass.
    pub fn finish<E>(self, mut complete: impl FnMut(ShardUnit) -> Result<(), E>) -> Result<(), E> {
        let Some(rest) = self.rest else {
            return Ok(());
        };
        if self.model.head.is_some() {
            complete(ShardUnit::Head)?;
        }
        rest.backward(self.model, complete)
    }
}

impl BlocksBackward {
    fn backward<E>(
        self,
        model: &Model,
        mut complete: impl FnMut(ShardUnit) -> Result<(), E>,
    ) -> Result<(), E> {
        fused::backward(&self.states, &self.gradient);
        drop((self.states, self.gradient));
        complete(ShardUnit::FinalNorm)?;
        drop(self.norm);
        match self.recomputed {
            None => {
                let blocks = (0..model.blocks.len()).rev();
                blocks.map(ShardUnit::Block).try_for_each(&mut complete)?;
            }
            Some((inputs, output)) => {
                let gradient = output.grad();
                drop(output);
                let gradient = inputs.backward(model, gradient, &mut complete)?;
                if self.rows.requires_grad() {
                    fused::backward(&self.rows, &gradient);
                }
            }
        }
        if let Some(sharding) = &model.sharding
            && model.cuts_off_embedding()
        {
            let gradient = self.rows.grad().reshape([-1, model.config.hidden]);
            sharding.add_embedding_rows(self.ids.reshape([-1]), gradient);
        }
        drop(self.rows);
        complete(ShardUnit::Embedding)
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
        let pending = self.backward_head(ids, layout, targets, denominator, checkpointing);
        let loss = pending.loss();
        match pending.finish(|_| Ok::<_, std::convert::Infallible>(())) {
            Ok(()) => loss,
            Err(never) => match never {},
        }
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
    ) -> HeadBackward<'_> {
        let plain = None::<fn(&[f64]) -> DocumentLoss>;
        self.backward_head_of(ids, layout, targets, denominator, checkpointing, plain)
    }

    /// Like [`Model::backward_head`], for a loss that is a function of the log-probability of each document.
    /// `document_loss` gets these, in the order of rows and columns.
    pub fn backward_documents_head(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        denominator: f64,
        checkpointing: GradientCheckpointing,
        document_loss: impl FnOnce(&[f64]) -> DocumentLoss,
    ) -> HeadBackward<'_> {
        let loss = Some(document_loss);
        self.backward_head_of(ids, layout, targets, denominator, checkpointing, loss)
    }

    fn backward_head_of(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
        denominator: f64,
        checkpointing: GradientCheckpointing,
        document_loss: Option<impl FnOnce(&[f64]) -> DocumentLoss>,
    ) -> HeadBackward<'_> {
        // With sharded parameters every process must run all blocks.
        if targets.is_empty() && self.sharding.is_none() {
            return HeadBackward {
                model: self,
                loss: Loss::default(),
                rest: None,
            };
        }
        let norm = self.gathered(ShardUnit::FinalNorm);
        let rows = match self.cuts_off_embedding() {
            true => no_grad(|| self.embed_tokens(ids)).set_requires_grad(true),
            false => self.embed_tokens(ids),
        };
        let (inputs, hidden) = match checkpointing {
            GradientCheckpointing::Off => (None, self.hidden_of(rows.shallow_clone(), layout)),
            GradientCheckpointing::Blocks { first } => {
                let (inputs, hidden) = BlockInputs::forward(self, &rows, layout, first);
                (Some(inputs), hidden)
            }
        };
        let states = self.target_states(&hidden, targets);
        let _head = self.gathered(self.head_unit());
        let of_documents = document_loss.map(|document_loss| {
            let logps = no_grad(|| self.log_probabilities(&states.detach(), targets));
            document_loss(&logps)
        });
        let scaled = of_documents
            .as_ref()
            .map(|loss| targets.scaled(&loss.factors));
        let targets = scaled.as_ref().unwrap_or(targets);
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
            model: self,
            loss: of_documents.map_or(loss, |of_documents| of_documents.loss),
            rest: Some(BlocksBackward {
                ids: ids.shallow_clone(),
                rows,
                recomputed: inputs.map(|inputs| (inputs, hidden)),
                states,
                gradient,
                norm,
            }),
        }
    }

    /// Whether the backward pass ends at the rows of the embedding: it is sharded, and has its gradient to itself.
    fn cuts_off_embedding(&self) -> bool {
        self.sharding.is_some() && self.head.is_some() && self.embed.requires_grad()
    }

    /// The loss without gradients.
    pub fn evaluate(&self, ids: &Tensor, layout: &Arc<Layout>, targets: &Targets) -> Loss {
        if targets.is_empty() {
            return Loss::default();
        }
        let _norm = self.gathered(ShardUnit::FinalNorm);
        no_grad(|| {
            let rows = self.embed_tokens(ids);
            let states = self.target_states(&self.hidden_of(rows, layout), targets);
            let _head = self.gathered(self.head_unit());
            match fused::supports(&states) {
                true => self.fused_loss(&states, targets, None).0,
                false => self.chunked_loss(&states, targets, |_| ()),
            }
        })
    }

    /// The log-probability of the targets of each document, in nats, in the order of rows and columns.
    pub fn document_log_probabilities(
        &self,
        ids: &Tensor,
        layout: &Arc<Layout>,
        targets: &Targets,
    ) -> Vec<f64> {
        let _norm = self.gathered(ShardUnit::FinalNorm);
        no_grad(|| {
            let rows = self.embed_tokens(ids);
            let states = self.target_states(&self.hidden_of(rows, layout), targets);
            let _head = self.gathered(self.head_unit());
            self.log_probabilities(&states, targets)
        })
    }

    /// The weighted log-probability of the targets of each document, from the states that predict them.
    fn log_probabilities(&self, states: &Tensor, targets: &Targets) -> Vec<f64> {
        let of_document = |(start, targets): (i64, Targets)| {
            if targets.is_empty() {
                return 0.0;
            }
            let states = states.narrow(0, start, targets.positions.numel() as i64);
            let loss = match fused::supports(&states) {
                true => self.fused_loss(&states, &targets, None).0,
                false => self.chunked_loss(&states, &targets, |_| ()),
            };
            -loss.sum
        };
        targets.documents().map(of_document).collect()
    }

    /// The hidden states that predict a target, after the final norm, `[n, hidden]`.
    fn target_states(&self, hidden: &Tensor, targets: &Targets) -> Tensor {
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
            let logits = multiplied(&hidden.i(start..end), self.head(), None);
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
