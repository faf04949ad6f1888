use proptest::prelude::*;
use serde_json::json;

use super::settle::{invalid_calls, missing_reply_error, turn_of};
use super::*;

proptest! {
    #[test]
    fn queued_calls_are_split_only_at_the_limits(
        lengths in proptest::collection::vec(0_u64..50, 0..60),
        most_requests in 1_usize..9,
        most_bytes in 51_u64..200,
    ) {
        let named = lengths.iter().enumerate();
        let queued: Vec<_> = named.map(|(n, length)| (n.to_string(), *length)).collect();
        let batches = split(queued, most_requests, most_bytes);
        let bytes = |batch: &[String]| -> u64 {
            batch.iter().map(|call| 1 + lengths[call.parse::<usize>().unwrap()]).sum()
        };
        for batch in &batches {
            prop_assert!(!batch.is_empty() && batch.len() <= most_requests);
            prop_assert!(bytes(batch) <= most_bytes);
        }
        for pair in batches.windows(2) {
            let more = bytes(&pair[0]) + bytes(&pair[1][..1]);
            prop_assert!(pair[0].len() == most_requests || more > most_bytes, "split too early");
        }
        let all: Vec<String> = batches.concat();
        prop_assert_eq!(all, (0..lengths.len()).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn requests_without_a_line_get_an_error() {
    let remote = |value| serde_json::from_value::<RemoteBatch>(value).unwrap();
    let kind = |status: &str, errors| {
        let errors = json!({"data": errors});
        let ended = remote(json!({"id": "b", "status": status, "errors": errors}));
        assert!(ended.ended(), "{status}");
        let why = missing_reply_error(&ended);
        (why.kind(), why.retryable(), why.may_be_charged())
    };
    assert_eq!(kind("completed", json!([])), ("malformed", true, true));
    assert_eq!(kind("expired", json!([])), ("unanswered", true, false));
    assert_eq!(kind("cancelled", json!(null)), ("unanswered", true, false));
    assert_eq!(
        kind("failed", json!([{"code": "x"}])),
        ("rejected", false, false)
    );
    let full = json!([{"code": "token_limit_exceeded"}]);
    assert_eq!(kind("failed", full), ("unanswered", true, false));
    let of_lines = json!([{"line": 2, "message": "m"}, {"line": 0}, {"line": 9}]);
    assert_eq!(
        kind("failed", of_lines.clone()),
        ("unanswered", true, false)
    );
    let calls = ["a".to_owned(), "b".to_owned()];
    let ended = remote(json!({"id": "b", "status": "failed", "errors": {"data": of_lines}}));
    let invalid = invalid_calls(&ended, &calls);
    assert_eq!(invalid.keys().collect::<Vec<_>>(), [&"b"]);
}

#[test]
fn attempts_map_to_their_turn() {
    assert_eq!(turn_of("t/3/12"), "t/3");
    assert_eq!(turn_of("odd"), "odd");
}
