use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use pybench_types::trajectory::{Message, Sampling};

/// Replies with 100 + 10 tokens at one dollar per million after a short wait, or fails.
#[derive(Default)]
struct Paid {
    calls: AtomicU32,
    fails: Option<ChatError>,
    hangs: bool,
    /// Token counts that it reports instead.
    claims: Option<Usage>,
}

#[async_trait]
impl ChatModel for &Paid {
    fn name(&self) -> &str {
        "paid"
    }
    fn price(&self) -> Option<Price> {
        Some(Price {
            prompt: 1.0,
            completion: 1.0,
        })
    }
    async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if let Some(error) = &self.fails {
            return Err(error.clone());
        }
        let usage = Usage {
            prompt_tokens: 100,
            completion_tokens: 10,
        };
        Ok(Reply {
            content: format!("reply {number}"),
            usage: self.claims.unwrap_or(usage),
            truncated: false,
            repetition: false,
        })
    }
}

const FREE: BudgetCap = BudgetCap {
    micro_usd: None,
    tokens: None,
};
/// Upper bound on the tokens of a request of one message of 168 bytes with `max_tokens` 800.
const MAX_TOKENS: u64 = 168 + 2 * 16 + 800;

async fn ask(metered: &Metered<&Paid>, sample: u32, words: char) -> Result<Reply, ChatError> {
    let sampling = Sampling {
        max_tokens: 800,
        ..Sampling::default()
    };
    let messages = [Message::new(Role::User, words.to_string().repeat(168))];
    let request = ChatRequest {
        key: &Digest::of_bytes(b"task"),
        sample,
        messages: &messages,
        sampling: &sampling,
        stop: &[],
        pictures: &[],
    };
    metered.reply(&request).await
}

fn folder(at: &tempfile::TempDir) -> Arc<RunFolder> {
    Arc::new(RunFolder::open(at.path(), "").unwrap())
}

#[tokio::test]
async fn a_settled_call_is_not_paid_again_unless_the_conversation_differs() {
    let (at, paid) = (tempfile::tempdir().unwrap(), Paid::default());
    let metered = Metered::new(&paid, folder(&at), FREE, "f");
    let first = ask(&metered, 0, 'a').await.unwrap();
    assert_eq!(ask(&metered, 0, 'a').await.unwrap(), first);
    assert_eq!(paid.calls.load(Ordering::SeqCst), 1);
    let other = ask(&metered, 0, 'b').await.unwrap();
    assert_ne!(other, first, "a different conversation");
    assert_eq!(ask(&metered, 0, 'a').await.unwrap(), first);
    assert_eq!(ask(&metered, 0, 'b').await.unwrap(), other);
    let spent = metered.folder.journal().spent().unwrap();
    assert_eq!((spent.calls, spent.tokens, spent.micro_usd), (2, 220, 220));
}

#[tokio::test]
async fn a_reply_that_an_outage_kept_out_of_the_journal_is_not_paid_again() {
    let (at, paid) = (tempfile::tempdir().unwrap(), Paid::default());
    let metered = Metered::new(&paid, folder(&at), FREE, "f");
    let sampling = Sampling::default();
    let messages = [Message::new(Role::User, "question")];
    let request = ChatRequest {
        key: &Digest::of_bytes(b"task"),
        sample: 0,
        messages: &messages,
        sampling: &sampling,
        stop: &[],
        pictures: &[],
    };
    let call = metered.call(&request);
    let id = format!("{}/0", call.turn);
    let reserved = metered.reserve(id.clone(), metered.cost(call.most)).await;
    drop(reserved.unwrap());
    let reply = Reply {
        content: "a reply".to_owned(),
        usage: Usage {
            prompt_tokens: 100,
            completion_tokens: 10,
        },
        truncated: false,
        repetition: false,
    };
    let used = metered.cost(reply.usage);
    let settled = SettledCall {
        request: call.digest.clone(),
        reply: reply.clone(),
    };
    let settled = serde_json::to_value(settled).unwrap();
    metered.ledger.unrecorded().insert(id, (used, settled));
    for _ in 0..2 {
        assert_eq!(metered.reply(&request).await.unwrap(), reply);
        assert!(metered.ledger.unrecorded().is_empty());
    }
    assert_eq!(paid.calls.load(Ordering::SeqCst), 0);
    let spent = metered.folder.journal().spent().unwrap();
    assert_eq!((spent.calls, spent.uncertain, spent.tokens), (1, 0, 110));
}

#[tokio::test]
async fn another_run_does_not_pay_again_for_the_same_sample() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, paid) = (tempfile::tempdir().unwrap(), Paid::default());
    let of = |at, endpoint| {
        let metered = Metered::new(&paid, folder(at), FREE, "f");
        metered.with_cache(ResponseCache::new(cache.path(), endpoint))
    };
    let first = ask(&of(&one, "e"), 0, 'a').await.unwrap();
    let metered = of(&two, "e");
    assert_eq!(ask(&metered, 0, 'a').await.unwrap(), first);
    assert_eq!(paid.calls.load(Ordering::SeqCst), 1);
    let spent = metered.folder.journal().spent().unwrap();
    assert_eq!((spent.calls, spent.tokens, spent.micro_usd), (1, 0, 0));
    assert_ne!(
        ask(&metered, 1, 'a').await.unwrap(),
        first,
        "a different sample"
    );
    drop(metered);
    assert_ne!(ask(&of(&two, "other"), 2, 'a').await.unwrap(), first);
    assert_eq!(paid.calls.load(Ordering::SeqCst), 3);

    let mut files = vec![cache.path().to_owned()];
    while let Some(path) = files.pop() {
        match std::fs::read_dir(&path) {
            Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
            Err(_) => std::fs::write(path, b"{").unwrap(),
        }
    }
    let three = tempfile::tempdir().unwrap();
    ask(&of(&three, "e"), 0, 'a').await.unwrap();
    assert_eq!(
        paid.calls.load(Ordering::SeqCst),
        4,
        "a broken file is ignored"
    );
}

#[tokio::test]
async fn a_reply_that_a_kill_kept_out_of_the_cache_is_stored_on_the_next_request() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, paid) = (tempfile::tempdir().unwrap(), Paid::default());
    // Settled in the journal only, as if killed before the reply was stored in the cache.
    let alone = Metered::new(&paid, folder(&one), FREE, "f");
    let first = ask(&alone, 0, 'a').await.unwrap();
    drop(alone);
    let of = |at| {
        let metered = Metered::new(&paid, folder(at), FREE, "f");
        metered.with_cache(ResponseCache::new(cache.path(), "e"))
    };
    assert_eq!(ask(&of(&one), 0, 'a').await.unwrap(), first);
    assert_eq!(ask(&of(&two), 0, 'a').await.unwrap(), first);
    assert_eq!(paid.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn failures_are_charged_when_they_may_have_been() {
    let journal_after = |error: ChatError| async move {
        let at = tempfile::tempdir().unwrap();
        let paid = Paid {
            fails: Some(error),
            ..Paid::default()
        };
        let metered = Metered::new(&paid, folder(&at), FREE, "f");
        ask(&metered, 0, 'a').await.unwrap_err();
        metered.folder.journal().spent().unwrap()
    };
    let free = [
        ChatError::RateLimited { retry_after: None },
        ChatError::Connection(String::new()),
        ChatError::Rejected(String::new()),
    ];
    for error in free {
        assert_eq!(journal_after(error).await.calls, 0);
    }
    let charged = [
        ChatError::Timeout,
        ChatError::Malformed(String::new()),
        ChatError::Broken(String::new()),
        ChatError::TooLarge(1),
        ChatError::Server(502),
    ];
    for error in charged {
        let spent = journal_after(error).await;
        assert_eq!((spent.uncertain, spent.tokens), (1, MAX_TOKENS));
    }
}

#[tokio::test]
async fn an_endpoint_without_token_counts_is_charged_in_full() {
    let at = tempfile::tempdir().unwrap();
    let paid = Paid {
        claims: Some(Usage::default()),
        ..Paid::default()
    };
    let metered = Metered::new(&paid, folder(&at), FREE, "f");
    ask(&metered, 0, 'a').await.unwrap();
    assert_eq!(metered.folder.journal().spent().unwrap().tokens, MAX_TOKENS);
}

#[tokio::test]
async fn impossible_token_counts_are_charged_as_reserved_and_the_run_continues() {
    let claims = [
        (5_000_000_000_000_000_000, 10),
        (5_000_000_000_000_000_000, 10),
        (1 << 63, 1 << 63),
        (u64::MAX, u64::MAX),
        (1_000_000_000_000, 0),
    ];
    let at = tempfile::tempdir().unwrap();
    for (sample, (prompt_tokens, completion_tokens)) in (0..).zip(claims) {
        let paid = Paid {
            claims: Some(Usage {
                prompt_tokens,
                completion_tokens,
            }),
            ..Paid::default()
        };
        let metered = Metered::new(&paid, folder(&at), FREE, "f");
        let reply = ask(&metered, sample, 'a').await.unwrap();
        assert_eq!(reply.usage, Usage::default(), "no count for later sums");
        assert_eq!(ask(&metered, sample, 'a').await.unwrap(), reply);
        assert_eq!(paid.calls.load(Ordering::SeqCst), 1, "paid once");
        let spent = metered.folder.journal().spent().unwrap();
        let calls = u64::from(sample) + 1;
        assert_eq!((spent.calls, spent.tokens), (calls, calls * MAX_TOKENS));
    }
}

#[tokio::test]
async fn a_call_in_flight_when_the_process_ends_stays_charged() {
    let at = tempfile::tempdir().unwrap();
    let hanging = Paid {
        hangs: true,
        ..Paid::default()
    };
    let metered = Metered::new(&hanging, folder(&at), FREE, "f");
    let cut = tokio::time::timeout(Duration::from_millis(50), ask(&metered, 0, 'a')).await;
    assert!(cut.is_err());
    assert_eq!(*metered.in_flight(), 0);
    drop(metered);

    let paid = Paid::default();
    let metered = Metered::new(&paid, folder(&at), FREE, "f");
    ask(&metered, 0, 'a').await.unwrap();
    let spent = metered.folder.journal().spent().unwrap();
    assert_eq!((spent.calls, spent.uncertain), (2, 1));
    assert_eq!(spent.tokens, MAX_TOKENS + 110);
}

#[tokio::test]
async fn the_limit_is_exact_across_restarts() {
    let (at, paid) = (tempfile::tempdir().unwrap(), Paid::default());
    // The budget allows four settled calls plus the reservation of a fifth, but not of a sixth.
    let cap = BudgetCap {
        micro_usd: Some(4 * 110 + MAX_TOKENS),
        tokens: None,
    };
    for sample in 0..8 {
        // A new process each time.
        let metered = Metered::new(&paid, folder(&at), cap, "f");
        let end = ask(&metered, sample, 'a').await;
        if sample < 5 {
            end.unwrap();
        } else {
            assert_eq!(end.unwrap_err().kind(), "budget");
        }
    }
    assert_eq!(paid.calls.load(Ordering::SeqCst), 5);
    let metered = Metered::new(&paid, folder(&at), cap, "f");
    assert_eq!(ask(&metered, 0, 'a').await.unwrap().content, "reply 0");
    assert_eq!(metered.folder.journal().spent().unwrap().micro_usd, 550);
}

#[tokio::test]
async fn a_reservation_waits_for_calls_in_flight() {
    let (at, paid) = (tempfile::tempdir().unwrap(), Paid::default());
    // The budget allows one reservation at a time and five settled calls.
    let cap = BudgetCap {
        micro_usd: None,
        tokens: Some(4 * 110 + MAX_TOKENS),
    };
    let metered = Metered::new(&paid, folder(&at), cap, "f");
    let all = futures::future::join_all((0..8).map(|sample| ask(&metered, sample, 'a'))).await;
    let answered = all.iter().filter(|end| end.is_ok()).count();
    assert_eq!(answered, 5, "{all:?}");
    assert!(metered.folder.journal().spent().unwrap().tokens <= cap.tokens.unwrap());
}

#[tokio::test]
async fn an_interrupt_ends_the_wait_for_the_rate_limit() {
    let at = tempfile::tempdir().unwrap();
    let busy = Paid {
        fails: Some(ChatError::RateLimited {
            retry_after: Some(Duration::from_secs(1_000_000_000_000)),
        }),
        ..Paid::default()
    };
    let interrupt = Interrupt::new();
    let metered = Metered::new(&busy, folder(&at), FREE, "f").with_interrupt(interrupt.clone());
    let error = ask(&metered, 0, 'a').await.unwrap_err();
    assert!(error.to_string().contains("1000000000000 s"), "{error}");
    let raised = async {
        tokio::task::yield_now().await;
        interrupt.raise();
    };
    let (waited, ()) = tokio::join!(ask(&metered, 1, 'a'), raised);
    assert_eq!(waited, Err(ChatError::Interrupted));
    assert_eq!(busy.calls.load(Ordering::SeqCst), 1, "nothing was sent");
    assert_eq!(metered.folder.journal().spent().unwrap().calls, 0);
}

/// Two keys, of which one may be refused.
#[tokio::test]
async fn requests_rotate_over_keys_and_skip_refused_ones() {
    let at = tempfile::tempdir().unwrap();
    let (good, other) = (Paid::default(), Paid::default());
    let refused = Paid {
        fails: Some(ChatError::Unauthorized("401".into())),
        ..Paid::default()
    };
    let keys = |more| Metered::with_keys(&good, more, Limits::default(), folder(&at), FREE, "f");
    let metered = keys(vec![&other]);
    for sample in 0..6 {
        ask(&metered, sample, 'a').await.unwrap();
    }
    let calls = |paid: &Paid| paid.calls.load(Ordering::SeqCst);
    assert_eq!((calls(&good), calls(&other)), (3, 3));
    drop(metered);

    let metered = keys(vec![&refused]);
    for sample in 6..12 {
        ask(&metered, sample, 'a').await.unwrap();
    }
    assert_eq!(
        (calls(&good), calls(&refused)),
        (9, 1),
        "tried once, then skipped"
    );
    assert_eq!(
        metered.folder.journal().spent().unwrap().micro_usd,
        12 * 110
    );
    drop(metered);

    let metered = Metered::new(&refused, folder(&at), FREE, "f");
    for _ in 0..2 {
        let error = ask(&metered, 99, 'a').await.unwrap_err();
        assert_eq!(error.kind(), "unauthorized");
    }
    assert_eq!(metered.folder.journal().spent().unwrap().uncertain, 0);
}
