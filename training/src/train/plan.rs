//! What a run will need, before step 1.

use super::Recipe;
use crate::model::ModelConfig;

/// Predicted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MemoryPlan {
    pub weights: u64,
    pub gradients: u64,
    pub moments: u64,
    pub activations: u64,
    pub logits: u64,
}

/// Elements of logits held at once, with their gradient and the softmax.
const LOGIT_COPIES: u64 = 4;
const LOGIT_ELEMENTS: u64 = 1 << 25;

impl MemoryPlan {
    /// Of a run in float32.
    pub fn new(recipe: &Recipe, config: &ModelConfig) -> Self {
        let parameters = config.parameters() as u64;
        let trained = match &recipe.lora {
            None => parameters,
            Some(lora) => {
                let all = lora.targets.is_empty();
                let shapes = matrices(config).into_iter();
                let chosen =
                    shapes.filter(|(name, ..)| all || lora.targets.iter().any(|t| t == name));
                let each = chosen.map(|(_, out, input)| (out + input) * lora.rank as u64);
                each.sum::<u64>() * config.layers as u64
            }
        };
        let tokens = (recipe.train.context * recipe.train.micro_rows) as u64;
        let layers = config.layers as u64;
        let activations = match recipe.train.recompute {
            false => layers * per_token(config),
            true => layers * config.hidden as u64 + per_token(config),
        };
        Self {
            weights: 4 * parameters,
            gradients: 4 * trained,
            moments: 8 * trained,
            activations: 4 * tokens * activations,
            logits: 4 * LOGIT_COPIES * LOGIT_ELEMENTS.min(tokens * config.vocab as u64),
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.weights + self.gradients + self.moments + self.activations + self.logits
    }

    /// A line for each part, and what to change.
    pub fn describe(&self) -> String {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        format!(
            "memory, estimated: {:.2} GiB = weights {:.2} + gradients {:.2} + moments {:.2} + activations {:.2} + logits {:.2}\n\
             to lower it: train.recompute = true, train.micro_rows, train.context, [lora]",
            gib(self.total()),
            gib(self.weights),
            gib(self.gradients),
            gib(self.moments),
            gib(self.activations),
            gib(self.logits)
        )
    }
}

fn matrices(c: &ModelConfig) -> [(&'static str, u64, u64); 7] {
    let attention = (c.heads * c.head_dim) as u64;
    let keys = (c.kv_heads * c.head_dim) as u64;
    let (hidden, wide) = (c.hidden as u64, c.intermediate as u64);
    [
        ("q_proj", attention, hidden),
        ("k_proj", keys, hidden),
        ("v_proj", keys, hidden),
        ("o_proj", hidden, attention),
        ("gate_proj", wide, hidden),
        ("up_proj", wide, hidden),
        ("down_proj", hidden, wide),
    ]
}

/// Elements that a block keeps for each token: input and output of two norms and two residuals,
/// queries and keys before, in and after rotation, values, attention's result, and the four arrays of
/// the gated layer.
fn per_token(c: &ModelConfig) -> u64 {
    let (attention, keys) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    (6 * c.hidden + 4 * (attention + keys) + keys + 2 * attention + 4 * c.intermediate) as u64
}
