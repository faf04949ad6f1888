//! `OpenAi` models against a real server on the loopback interface.

use std::collections::BTreeMap;
use std::time::Duration;

use pybench_llm::{ChatError, ChatModel, ChatRequest, OpenAi, OpenAiOptions, Reply, ReplyWatcher};
use pybench_testing::endpoint::{Answer, Endpoint, completion};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling, Usage};
use serde_json::json;

fn teacher(base_url: String, key: Option<&str>) -> OpenAi {
    teacher_with_timeout(Duration::from_secs(60), base_url, key)
}

fn teacher_with_timeout(timeout: Duration, base_url: String, key: Option<&str>) -> OpenAi {
    let options = OpenAiOptions {
        model: "m".into(),
        base_url,
        key: key.map(|key| key.to_owned().into()),
        headers: BTreeMap::new(),
        price: None,
        timeout,
        extra: serde_json::Map::new(),
        restore_python_tag: false,
    };
    OpenAi::new(options).unwrap()
}

async fn ask(teacher: &OpenAi) -> Result<Reply, ChatError> {
    ask_with(teacher, None).await
}

/// Asks for a reply, and for its text piece by piece if somebody watches.
async fn ask_with(teacher: &OpenAi, watcher: Option<&ReplyWatcher>) -> Result<Reply, ChatError> {
    let sampling = Sampling::default();
    let request = ChatRequest {
        key: &Digest::of_bytes(b"task"),
        sample: 0,
        messages: &[Message::new(Role::User, "数据")],
        sampling: &sampling,
        stop: &["END".to_owned()],
        pictures: &[],
    };
    match watcher {
        None => teacher.reply(&request).await,
        Some(watcher) => teacher.reply_live(&request, watcher).await,
    }
}

#[tokio::test]
async fn a_reply_is_sent_while_it_is_generated() {
    let pieces = ["It is ", "", "数", "."].map(str::to_owned).to_vec();
    let streamed = Answer::Pieces(pieces, Duration::from_millis(5));
    for (answer, expected) in [
        (streamed, vec!["It is ", "数", "."]),
        (Answer::Content("four".into()), vec!["fo", "ur"]),
        // An endpoint that does not stream.
        (
            Answer::Bytes(completion("It is 数.").to_string().into_bytes()),
            vec!["It is 数."],
        ),
    ] {
        let server = Endpoint::always(answer).await;
        let (watcher, mut receiver) = ReplyWatcher::new();
        let reply = ask_with(&teacher(server.base_url(), None), Some(&watcher)).await;
        let reply = reply.unwrap();
        let mut arrived = Vec::new();
        while let Ok(piece) = receiver.try_recv() {
            arrived.push(piece);
        }
        assert_eq!(arrived, expected);
        assert_eq!(reply.content, expected.concat());
        assert_eq!((reply.usage.total(), reply.truncated), (110, false));
        let sent = server.calls().into_keys().next().unwrap();
        let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(sent["stream"], true);
        assert_eq!(sent["stream_options"], json!({"include_usage": true}));
    }
}

#[tokio::test]
async fn a_good_response_is_parsed_and_the_request_is_as_documented() {
    let server = Endpoint::always(Answer::Content("好\n".into())).await;
    let reply = ask(&teacher(server.base_url(), Some("sk-1")))
        .await
        .unwrap();
    assert_eq!(reply.content, "好\n");
    let usage = Usage {
        prompt_tokens: 100,
        completion_tokens: 10,
    };
    assert_eq!(reply.usage, usage);
    assert_eq!(server.keys(), [Some("Bearer sk-1".to_owned())]);
    let sent = server.calls().into_keys().next().unwrap();
    let expected = json!({
        "model": "m", "messages": [{"role": "user", "content": "数据"}],
        "temperature": 0.2, "top_p": 0.85, "max_tokens": 1000, "stop": ["END"], "stream": false,
    });
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&sent).unwrap(),
        expected
    );
}

#[tokio::test]
async fn no_key_is_sent_unless_configured() {
    let server = Endpoint::always(Answer::Content("a".into())).await;
    ask(&teacher(server.base_url(), None)).await.unwrap();
    assert_eq!(server.keys(), [None]);
}

#[tokio::test]
async fn failures_map_to_kinds_and_take_one_request() {
    let half = "{\"choices\": [{\"message\": {\"content\": \"数\"}}]}".as_bytes();
    let cut = half.iter().position(|b| *b > 127).unwrap() + 1;
    let half_a_character = [&half[..cut], &half[cut + 2..]].concat();
    let status = |status| Answer::Status(status, None, "{}".into());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases = [
        (
            Answer::Status(429, Some("3".into()), String::new()),
            "rate_limited",
        ),
        (status(500), "server"),
        (status(401), "unauthorized"),
        (status(403), "unauthorized"),
        (status(404), "not_found"),
        (status(422), "rejected"),
        (Answer::Hang, "timeout"),
        (Answer::Bytes(b"{\"choices\": [".to_vec()), "malformed"),
        (Answer::Bytes(b"{\"choices\": []}".to_vec()), "malformed"),
        (Answer::Bytes(Vec::new()), "malformed"),
        (Answer::Bytes(half_a_character), "malformed"),
        (Answer::Bytes(deep.into_bytes()), "malformed"),
        (Answer::Huge(20_000_000), "too_large"),
        (Answer::CloseMidway, "broken"),
    ];
    for (answer, kind) in cases {
        let name = format!("{answer:.60?}");
        let server = Endpoint::always(answer).await;
        let patience = Duration::from_secs(if kind == "timeout" { 5 } else { 60 });
        let teacher = teacher_with_timeout(patience, server.base_url(), None);
        let error = ask(&teacher).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert_eq!(server.call_count(), 1, "{name}: no hidden retry");
        if kind != "timeout" {
            let (watcher, _receiver) = ReplyWatcher::new();
            let live = ask_with(&teacher, Some(&watcher)).await.unwrap_err();
            assert_eq!(live.kind(), kind, "{name}, streamed: {live}");
        }
        if let ChatError::RateLimited { retry_after } = error {
            assert_eq!(retry_after, Some(Duration::from_secs(3)));
        }
    }
}

#[tokio::test]
async fn a_closed_port_is_a_connection_failure() {
    let error = ask(&teacher("http://127.0.0.1:1/v1".to_owned(), None)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), "connection", "{error}");
    assert!(!error.may_be_charged());
}

#[tokio::test]
async fn a_refused_key_is_not_repeated_in_the_error() {
    let body = r#"{"error": {"message": "Incorrect API key: sk-abcdef"}}"#;
    let server = Endpoint::always(Answer::Status(401, None, body.into())).await;
    let error = ask(&teacher(server.base_url(), Some("sk-abcdef"))).await;
    let text = format!("{0} {0:?}", error.unwrap_err());
    assert!(
        text.contains("Incorrect API key") && !text.contains("sk-abcdef"),
        "{text}"
    );
}
