//! Calls that were paid for.

use pybench_run::{Price, Reservation};
use pybench_types::id::Digest;
use pybench_types::trajectory::Usage;
use serde::{Deserialize, Serialize};

use crate::Reply;

/// A settled call as stored in the journal.
#[derive(Serialize, Deserialize)]
pub(super) struct SettledCall {
    /// Digest of messages, sampling parameters and stop sequences.
    pub(super) request: Digest,
    pub(super) reply: Reply,
}

/// Cost of `usage` at `price`.
pub(super) fn cost(price: Option<Price>, usage: Usage) -> Reservation {
    Reservation {
        micro_usd: price.map_or(0, |price| price.micro_usd(usage)),
        tokens: usage.prompt_tokens + usage.completion_tokens,
    }
}
