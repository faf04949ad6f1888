//! Prices of models.

use pybench_types::trajectory::Usage;

/// Price of a model per million tokens.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// US dollars per million prompt tokens.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub prompt: f64,
    /// US dollars per million completion tokens.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub completion: f64,
}

impl Price {
    /// The price of batched requests: half, for prompt and completion tokens.
    /// Source: OpenAI's announcement of the Batch API (community.openai.com/t/718416), 50 % off.
    pub fn in_batches(self) -> Self {
        Self {
            prompt: self.prompt / 2.0,
            completion: self.completion / 2.0,
        }
    }

    /// Cost in micro-dollars (millionths of a US dollar), rounded up.
    pub fn micro_usd(&self, usage: Usage) -> u64 {
        let cost = self.prompt * usage.prompt_tokens as f64
            + self.completion * usage.completion_tokens as f64;
        cost.ceil() as u64
    }
}
