//! Calls that were paid for.

use pybench_run::{Price, Reservation};
use pybench_types::id::Digest;
use pybench_types::trajectory::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Reply;

/// A reply that is paid for, and kept in journal and response cache.
pub(super) trait PaidReply: Clone + Serialize + DeserializeOwned {
    /// Tokens as counted by the endpoint.
    fn usage(&self) -> Usage;
}

impl PaidReply for Reply {
    fn usage(&self) -> Usage {
        self.usage
    }
}

/// A settled call as stored in the journal.
#[derive(Serialize, Deserialize)]
pub(super) struct SettledCall<R> {
    /// Digest of messages, sampling parameters and stop sequences.
    pub(super) request: Digest,
    pub(super) reply: R,
}

/// Cost of `usage` at `price`.
pub(super) fn cost(price: Option<Price>, usage: Usage) -> Reservation {
    Reservation {
        micro_usd: price.map_or(0, |price| price.micro_usd(usage)),
        tokens: usage.prompt_tokens + usage.completion_tokens,
    }
}
