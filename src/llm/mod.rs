//! Teachers: one trait for chat completion, with prices and classified errors; embeddings go the same way.

mod batch;
mod budget;
pub mod calls;
mod completions;
mod embeddings;
mod gate;
mod http;
mod lines;
mod openai;
mod price;

use std::time::Duration;

pub use batch::Batches;
pub use budget::{Metered, PICTURE_TOKENS, Reserves};
pub use completions::Completions;
pub use embeddings::{Embeddings, Vector};
pub use gate::{Gate, Limits, Pass};
pub use openai::{OpenAi, OpenAiOptions};
pub use price::{known_price, price_of, token_bound};

use async_trait::async_trait;

use crate::id::Digest;
use crate::task::Task;
use crate::trajectory::{Message, Sampling, Usage};

/// One request for a reply.
#[derive(Clone, Copy, Debug)]
pub struct ChatRequest<'a> {
    /// The task; the expert needs it, an endpoint never sees it.
    pub task: &'a Task,
    /// Sample number.
    pub sample: u32,
    /// The conversation so far.
    pub messages: &'a [Message],
    /// Sampling parameters.
    pub sampling: &'a Sampling,
    /// Sequences at which the reply ends.
    pub stop: &'a [String],
    /// Shown with the last message, to models that see.
    pub pictures: &'a [Picture],
}

impl ChatRequest<'_> {
    /// Digest of what an endpoint is asked, for book-keeping.
    fn digest(&self) -> Digest {
        let asked = (self.messages, self.sampling, self.stop);
        match self.pictures {
            [] => Digest::of_json(&asked),
            pictures => {
                let shown = pictures.iter().map(|p| Digest::of_bytes(&p.bytes));
                Digest::of_json(&(asked, shown.collect::<Vec<_>>()))
            }
        }
    }
}

/// A picture for a model that sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// `image/png`, …
    pub media_type: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Reply {
    /// The text.
    pub content: String,
    /// Tokens as the endpoint counted them (zero for the expert).
    pub usage: Usage,
    /// Whether the reply was cut at `max_tokens`.
    pub truncated: bool,
    /// Expert only: the fault that this reply carries on purpose.
    #[serde(default)]
    pub fault: Option<String>,
}

/// Why a reply could not be had. None of these is a verdict on the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TeacherError {
    /// 429, or 503 with a `Retry-After`: the server's word on when to come again.
    #[error("rate limited by the endpoint")]
    RateLimited {
        /// From now; 429 may leave it out.
        retry_after: Option<Duration>,
    },
    /// 5xx, with its status.
    #[error("the endpoint failed with status {0}")]
    Server(u16),
    /// No answer in time.
    #[error("the endpoint did not answer in time")]
    Timeout,
    /// No connection came about; the request was not sent.
    #[error("the endpoint could not be reached: {0}")]
    Connection(String),
    /// The connection broke before the answer was complete.
    #[error("the connection broke before the answer was complete: {0}")]
    Broken(String),
    /// The answer was not what the protocol promises (broken JSON, no choices, not UTF-8).
    #[error("the endpoint's answer could not be read: {0}")]
    Malformed(String),
    /// The answer was larger than is read.
    #[error("the endpoint's answer exceeds {0} bytes")]
    TooLarge(u64),
    /// 401, 403: key missing or refused. Never retried.
    #[error("the endpoint refused the key: {0}")]
    Unauthorized(String),
    /// 400, 404, 422 and the like. Never retried.
    #[error("the endpoint refused the request: {0}")]
    Rejected(String),
    /// A batch ended, and this request has no answer; nothing was done for it.
    #[error("the batch ended without an answer: {0}")]
    Unanswered(String),
    /// One batch after another ended without an answer. Never retried by the same process.
    #[error("given up after {batches} batches: {last}")]
    GivenUp {
        /// How many.
        batches: u32,
        /// Why the last one had none.
        last: Box<TeacherError>,
    },
    /// No failure: the reply comes with a batch, and is there when the same is asked after that.
    #[error("the reply comes with a batch")]
    Deferred,
    /// The budget does not allow the call; nothing was sent.
    #[error("the budget is used up: {0}")]
    Budget(String),
    /// Our own book-keeping failed.
    #[error("{0}")]
    Internal(String),
    /// No such script (expert only): a bug of ours.
    #[error("the expert has no reply: {0}")]
    NoScript(String),
}

impl TeacherError {
    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        !matches!(
            self,
            Self::Unauthorized(_)
                | Self::Rejected(_)
                | Self::GivenUp { .. }
                | Self::Budget(_)
                | Self::Internal(_)
                | Self::NoScript(_)
        )
    }

    /// Whether the endpoint may charge for the failed call. Only a refusal is surely free.
    pub fn may_be_charged(&self) -> bool {
        matches!(
            self,
            Self::Server(_)
                | Self::Timeout
                | Self::Broken(_)
                | Self::Malformed(_)
                | Self::TooLarge(_)
        )
    }

    /// A short name for counting: `rate_limited`, `server`, `timeout`, …
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Server(_) => "server",
            Self::Timeout => "timeout",
            Self::Connection(_) => "connection",
            Self::Broken(_) => "broken",
            Self::Malformed(_) => "malformed",
            Self::TooLarge(_) => "too_large",
            Self::Unauthorized(_) => "unauthorized",
            Self::Rejected(_) => "rejected",
            Self::Unanswered(_) => "unanswered",
            Self::GivenUp { last, .. } => last.kind(),
            Self::Deferred => "deferred",
            Self::Budget(_) => "budget",
            Self::Internal(_) => "internal",
            Self::NoScript(_) => "no_script",
        }
    }
}

/// Price of a model.
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
    /// The price of requests in batches: half of it, for what is read and for what is written.
    /// Source: OpenAI's announcement of the Batch API (community.openai.com/t/718416), 50 % off.
    pub fn in_batches(self) -> Self {
        Self {
            prompt: self.prompt / 2.0,
            completion: self.completion / 2.0,
        }
    }

    /// Cost in millionths of a dollar, rounded up.
    pub fn micro_usd(&self, usage: Usage) -> u64 {
        let cost = self.prompt * usage.prompt_tokens as f64
            + self.completion * usage.completion_tokens as f64;
        cost.ceil() as u64
    }
}

/// Writes the next assistant message. One call is one attempt: no hidden retries.
#[async_trait]
pub trait Teacher: Send + Sync {
    /// Name that enters ids and rows: `expert`, `openai:gpt-4o`.
    fn name(&self) -> &str;

    /// What tokens cost; `None` when they cost nothing.
    fn price(&self) -> Option<Price>;

    /// What this teacher asks in batches; `None` when it answers at once.
    fn batches(&self) -> Option<&Batches> {
        None
    }

    /// One attempt at a reply.
    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError>;
}
