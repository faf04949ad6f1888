//! Chat models behind one trait, and embedders, with budgets, rate limits, prices, batches and classified errors.

mod batch;
mod budget;
mod embeddings;
mod endpoint_check;
mod http;
mod lenient;
mod lines;
mod openai;
mod price;
mod rate_limiter;
mod reply_watcher;
mod required_text;
mod response_cache;
mod saturation;
mod settled;
pub mod tool_calls;

use std::time::Duration;

pub use batch::Batches;
pub use budget::{BudgetLedger, Metered, PICTURE_TOKENS};
pub use embeddings::{Embedder, Vector};
pub use endpoint_check::check_endpoint;
pub use openai::{OpenAi, OpenAiOptions};
pub use price::{known_price, price_of, token_bound};
pub use rate_limiter::{Limits, RateLimiter, RatePermit, Refusal};
pub use reply_watcher::ReplyWatcher;
pub use required_text::RequiredText;
pub use response_cache::ResponseCache;

use async_trait::async_trait;

use pybench_run::Price;
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Sampling, Usage};

/// A request for one reply.
#[derive(Clone, Copy, Debug)]
pub struct ChatRequest<'a> {
    /// Identifies the conversation in the journal: the id of the task, or the digest of the first question. It is
    /// never sent to an endpoint.
    pub key: &'a Digest,
    /// Sample number.
    pub sample: u32,
    /// The conversation so far.
    pub messages: &'a [Message],
    pub sampling: &'a Sampling,
    /// Stop sequences.
    pub stop: &'a [String],
    /// Pictures sent with the last message, for vision models.
    pub pictures: &'a [Picture],
}

impl ChatRequest<'_> {
    /// Digest of the request, for bookkeeping.
    pub fn digest(&self) -> Digest {
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

/// A picture for a vision model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Media type, such as `image/png`.
    pub media_type: &'static str,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// A reply of a model.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Reply {
    pub content: String,
    /// Tokens as counted by the endpoint.
    pub usage: Usage,
    /// Whether the reply was truncated: at `max_tokens`, or because it repeated itself.
    pub truncated: bool,
    /// Whether the server ended the reply because it repeated itself (`repetition_detection`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repetition: bool,
}

/// Why there is no reply. None of these errors is a verdict on the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// Status 429, or 503 with a `Retry-After` header.
    #[error("the endpoint's rate limit was reached{}", requested_wait(*retry_after))]
    RateLimited {
        /// Wait before the next attempt, if the endpoint names one.
        retry_after: Option<Duration>,
    },
    /// A 5xx status.
    #[error("the endpoint failed with status {0}")]
    Server(u16),
    #[error("the endpoint did not answer before the timeout")]
    Timeout,
    /// No connection could be established; the request was not sent.
    #[error("cannot connect to the endpoint: {0}")]
    Connection(String),
    /// The connection was lost before the response was complete.
    #[error("the connection was lost before the response was complete: {0}")]
    Broken(String),
    /// The response violates the protocol (broken JSON, no choices, not UTF-8).
    #[error("the endpoint sent an invalid response: {0}")]
    Malformed(String),
    /// The response exceeds the size limit.
    #[error("the endpoint's response exceeds {0} bytes")]
    TooLarge(u64),
    /// Status 401, 402 or 403: API key missing or refused. Never retried.
    #[error("the endpoint refused the API key: {0}")]
    Unauthorized(String),
    /// Status 404: wrong URL, or no such model, so that every request fails. Never retried.
    #[error("the endpoint has no such model or path; check `model` and `base_url`: {0}")]
    NotFound(String),
    /// Other 4xx statuses, such as 400 and 422. Never retried.
    #[error("the endpoint rejected the request: {0}")]
    Rejected(String),
    /// A batch ended without processing this request.
    #[error("the batch ended without a reply: {0}")]
    Unanswered(String),
    /// Several batches in a row ended without a reply. Never retried by the same process.
    #[error("no reply after {batches} batches: {last}")]
    GivenUp {
        /// Number of batches.
        batches: u32,
        /// Error of the last batch.
        last: Box<ChatError>,
    },
    /// Not a failure: the reply will arrive with a batch, and the same request then returns it.
    #[error("the reply is pending in a batch")]
    Deferred,
    /// Not a failure: Ctrl-C ended the wait for the rate limit; nothing was sent. Never retried by the same
    /// process.
    #[error("interrupted while the request waited for the rate limit")]
    Interrupted,
    /// The budget does not allow the call; nothing was sent.
    #[error("the budget is used up: {0}")]
    Budget(String),
    /// The journal of the run or its store did not answer.
    #[error("{0}")]
    Outage(String),
    /// The bookkeeping of pybench failed.
    #[error("{0}")]
    Internal(String),
}

impl ChatError {
    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        !matches!(
            self,
            Self::Unauthorized(_)
                | Self::NotFound(_)
                | Self::Rejected(_)
                | Self::GivenUp { .. }
                | Self::Interrupted
                | Self::Budget(_)
                | Self::Internal(_)
        )
    }

    /// Whether the endpoint may charge for the failed call. Only a rejected request is certainly free.
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
            Self::NotFound(_) => "not_found",
            Self::Rejected(_) => "rejected",
            Self::Unanswered(_) => "unanswered",
            Self::GivenUp { last, .. } => last.kind(),
            Self::Deferred => "deferred",
            Self::Interrupted => "interrupted",
            Self::Budget(_) => "budget",
            Self::Outage(_) => "outage",
            Self::Internal(_) => "internal",
        }
    }
}

fn requested_wait(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) => format!("; it asks to wait {:.0} s", wait.as_secs_f64()),
        None => String::new(),
    }
}

/// Writes the next assistant message. One call is one attempt, without hidden retries.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// Name in ids and rows, such as `openai:gpt-4o`.
    fn name(&self) -> &str;

    /// Price of tokens; `None` if they are free.
    fn price(&self) -> Option<Price>;

    /// The batches of this model; `None` if it replies immediately.
    fn batches(&self) -> Option<&Batches> {
        None
    }

    /// Makes one attempt at a reply.
    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError>;

    /// Makes one attempt at a reply and sends its text to `watcher` while it is generated. The returned reply counts. A
    /// model that does not stream sends the text at the end. Tool calls are not sent.
    async fn reply_live(
        &self,
        request: &ChatRequest<'_>,
        watcher: &ReplyWatcher,
    ) -> Result<Reply, ChatError> {
        let reply = self.reply(request).await?;
        watcher.send(tool_calls::read(&reply.content, 0).text);
        Ok(reply)
    }
}
