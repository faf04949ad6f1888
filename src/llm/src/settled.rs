//! Calls that were paid for.

use std::sync::atomic::{AtomicBool, Ordering};

use pybench_run::{Price, Reservation};
use pybench_types::id::Digest;
use pybench_types::trajectory::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Reply;

/// Tokens that an endpoint may count in addition to what was sent: its own system prompt, and the tools.
const UNSEEN_TOKENS: u64 = 4_096;

/// A reply that is paid for, and kept in journal and response cache.
pub(super) trait PaidReply: Clone + Serialize + DeserializeOwned {
    /// Tokens as counted by the endpoint; zero if it did not count them.
    fn usage(&self) -> Usage;

    /// Discards the endpoint's token counts.
    fn discard_usage(&mut self);

    /// Bytes of generated text: at least as many as visible tokens.
    fn generated_bytes(&self) -> u64;
}

impl PaidReply for Reply {
    fn usage(&self) -> Usage {
        self.usage
    }

    fn discard_usage(&mut self) {
        self.usage = Usage::default();
    }

    fn generated_bytes(&self) -> u64 {
        self.content.len() as u64
    }
}

/// Whether this process has warned about an endpoint that counts tokens wrongly: such an endpoint does it in every call.
static WARNED: AtomicBool = AtomicBool::new(false);

/// Discards token counts that the call `id` cannot have used, given the tokens that were reserved for it and the
/// text that it returned.
pub(super) fn check_usage<R: PaidReply>(id: &str, mut reply: R, reserved: u64) -> R {
    let claimed = reply.usage();
    let most = reserved
        .saturating_add(reply.generated_bytes())
        .saturating_add(UNSEEN_TOKENS);
    if claimed.total() > most {
        let text = format!(
            "call {id}: the endpoint reports {} prompt and {} completion tokens, but at most {most} are possible; \
             charging the {reserved} tokens that were reserved",
            claimed.prompt_tokens, claimed.completion_tokens,
        );
        match WARNED.swap(true, Ordering::Relaxed) {
            false => tracing::warn!("{text} (-v logs every such call)"),
            true => tracing::debug!("{text}"),
        }
        reply.discard_usage();
    }
    reply
}

/// The charge for a reply: what was reserved if the endpoint did not count the tokens.
pub(super) fn charge<R: PaidReply>(
    price: Option<Price>,
    reply: &R,
    reserved: Reservation,
) -> Reservation {
    match reply.usage() {
        usage if usage == Usage::default() => reserved,
        usage => cost(price, usage),
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
        tokens: usage.total(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(prompt_tokens: u64, completion_tokens: u64) -> Reply {
        Reply {
            content: "four".into(),
            usage: Usage {
                prompt_tokens,
                completion_tokens,
            },
            truncated: false,
            repetition: false,
        }
    }

    #[test]
    fn impossible_token_counts_are_discarded() {
        let most = 100 + 4 + UNSEEN_TOKENS;
        for (prompt, completion) in [(0, 0), (90, 10), (120, 3), (most - 1, 1)] {
            let reply = reply(prompt, completion);
            assert_eq!(check_usage("c", reply.clone(), 100), reply);
        }
        for (prompt, completion) in [
            (most, 1),
            (1, most),
            (u64::MAX, u64::MAX),
            (u64::MAX, 1),
            (5_000_000_000_000_000_000, 10),
        ] {
            let checked = check_usage("c", reply(prompt, completion), 100);
            assert_eq!(checked, reply(0, 0), "{prompt} {completion}");
        }
    }

    #[test]
    fn uncounted_replies_are_charged_with_the_reservation() {
        let reserved = Reservation {
            micro_usd: 7,
            tokens: 9,
        };
        assert_eq!(charge(None, &reply(0, 0), reserved), reserved);
        assert_eq!(charge(None, &reply(2, 3), reserved).tokens, 5);
        let dear = Some(Price {
            prompt: 1e300,
            completion: 1e300,
        });
        let most = charge(dear, &reply(u64::MAX, u64::MAX), reserved);
        assert_eq!((most.micro_usd, most.tokens), (u64::MAX, u64::MAX));
    }
}
