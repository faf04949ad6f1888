//! The lines of batch files: requests and results.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{error_of, plain};
use crate::openai::read_answer;
use crate::{ChatError, Reply};
use pybench_types::id::Digest;

/// URL of every request in a batch.
pub(super) const ENDPOINT: &str = "/v1/chat/completions";

/// The custom ID of a call: 64 characters, the maximum of the strictest endpoints.
pub(super) fn custom_id(call: &str) -> String {
    Digest::of_bytes(call.as_bytes()).to_string()
}

/// Formats the line of a request.
pub(super) fn write(call: &str, body: &Value) -> String {
    let id = custom_id(call);
    json!({"custom_id": id, "method": "POST", "url": ENDPOINT, "body": body}).to_string()
}

/// The result of a request.
#[derive(Debug, PartialEq)]
pub(super) struct LineResult {
    pub(super) custom_id: String,
    pub(super) end: Result<Reply, ChatError>,
}

#[derive(Deserialize)]
struct Line {
    custom_id: String,
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    error: Option<Error>,
}

#[derive(Deserialize)]
struct Response {
    status_code: u16,
    #[serde(default)]
    body: Value,
}

#[derive(Deserialize)]
struct Error {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// Parses a line of an output or error file; `None` if it belongs to no request. `restore_python_tag` is that of the
/// options.
pub(super) fn read(line: &[u8], restore_python_tag: bool) -> Option<LineResult> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let end = match (line.response, line.error) {
        (Some(response), _) if (200..300).contains(&response.status_code) => {
            read_answer(response.body, restore_python_tag)
        }
        (Some(response), _) => Err(error_of(response.status_code, &response.body)),
        // Expired, canceled or never started: only completed requests are charged.
        (None, Some(error)) => Err(ChatError::Unanswered(error_text(&error))),
        (None, None) => Err(ChatError::Malformed(
            "the line has neither response nor error".into(),
        )),
    };
    Some(LineResult {
        custom_id: line.custom_id,
        end,
    })
}

fn error_text(error: &Error) -> String {
    let parts = [&error.code, &error.message];
    let parts: Vec<_> = parts
        .into_iter()
        .flatten()
        .map(|part| plain(part))
        .collect();
    match parts.is_empty() {
        true => "no reason given".to_owned(),
        false => parts.join(": "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_json(line: Value) -> Option<LineResult> {
        read(line.to_string().as_bytes(), false)
    }

    #[test]
    fn lines_are_parsed_into_results() {
        let choice = json!({"message": {"content": "hi"}, "finish_reason": "stop"});
        let body =
            json!({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        let answered = |status: u16, body: &Value| {
            let response = json!({"status_code": status, "request_id": "r", "body": body});
            let line = json!({"id": "b", "custom_id": "c", "response": response, "error": null});
            read_json(line).unwrap().end
        };
        let reply = answered(200, &body).unwrap();
        assert_eq!(
            (reply.content.as_str(), reply.usage.prompt_tokens),
            ("hi", 3)
        );
        let refusal = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
        let kind = |status, body: &Value| answered(status, body).unwrap_err().kind();
        assert_eq!(kind(400, &refusal), "rejected");
        assert_eq!(kind(401, &Value::Null), "unauthorized");
        assert_eq!(kind(429, &Value::Null), "rate_limited");
        assert_eq!(kind(500, &Value::Null), "server");
        assert_eq!(kind(7, &Value::Null), "server");
        assert_eq!(kind(200, &json!({"choices": []})), "malformed");

        let expired = json!({"code": "batch_expired", "message": "not within\n24h"});
        let line = json!({"custom_id": "c", "response": null, "error": expired});
        let error = read_json(line).unwrap().end.unwrap_err();
        let said = "batch_expired: not within 24h".to_owned();
        assert_eq!(error, ChatError::Unanswered(said));
        assert!(error.retryable() && !error.may_be_charged());
        let bare = read_json(json!({"custom_id": "c"})).unwrap();
        assert_eq!(bare.end.unwrap_err().kind(), "malformed");
    }

    #[test]
    fn lines_without_a_request_are_ignored() {
        for line in [
            "",
            "{}",
            "[]",
            "{\"custom_id\": 5}",
            "{\"custom_id\": \"a\"",
            "\u{0}",
        ] {
            assert_eq!(read(line.as_bytes(), false), None, "{line}");
        }
    }

    #[test]
    fn requests_have_unique_short_ids() {
        let line = write("t/0/0", &json!({"model": "m"}));
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["custom_id"].as_str().unwrap().len(), 64);
        assert_ne!(line["custom_id"], custom_id("t/0/1"));
        assert_eq!(
            (&line["method"], &line["url"]),
            (&json!("POST"), &json!(ENDPOINT))
        );
        assert_eq!(line["body"]["model"], "m");
    }

    #[test]
    fn fuzz_output_lines_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(Err(ChatError::Unanswered(said))) = read(bytes, true).map(|line| line.end) {
                assert!(!said.chars().any(char::is_control) && said.chars().count() <= 602);
            }
        });
    }
}
