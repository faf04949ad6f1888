//! The lines of a batch's files: requests, and what became of each.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::id::Digest;
use crate::llm::http::{error_of, plain};
use crate::llm::openai::read_answer;
use crate::llm::{Reply, TeacherError};

/// What every request of a batch is asked of.
pub(super) const ENDPOINT: &str = "/v1/chat/completions";

/// The name of a call in a batch: 64 characters, as many as the strictest endpoints allow.
pub(super) fn custom_id(call: &str) -> String {
    Digest::of_bytes(call.as_bytes()).to_string()
}

/// The line of a request.
pub(super) fn write(call: &str, body: &Value) -> String {
    let id = custom_id(call);
    json!({"custom_id": id, "method": "POST", "url": ENDPOINT, "body": body}).to_string()
}

/// What became of a request.
#[derive(Debug, PartialEq)]
pub(super) struct Ended {
    /// The request's name.
    pub(super) custom_id: String,
    /// Its reply.
    pub(super) end: Result<Reply, TeacherError>,
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

/// Reads a line of an output or error file; `None` where it says nothing of any request.
pub(super) fn read(line: &[u8]) -> Option<Ended> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let end = match (line.response, line.error) {
        (Some(response), _) if (200..300).contains(&response.status_code) => {
            read_answer(response.body)
        }
        (Some(response), _) => Err(error_of(response.status_code, &response.body)),
        // Expired, cancelled, or never tried: only completed requests are charged.
        (None, Some(error)) => Err(TeacherError::Unanswered(said(&error))),
        (None, None) => Err(TeacherError::Malformed("neither answer nor error".into())),
    };
    Some(Ended {
        custom_id: line.custom_id,
        end,
    })
}

fn said(error: &Error) -> String {
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

    fn read_json(line: Value) -> Option<Ended> {
        read(line.to_string().as_bytes())
    }

    #[test]
    fn each_line_has_its_end() {
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
        assert_eq!(error, TeacherError::Unanswered(said));
        assert!(error.retryable() && !error.may_be_charged());
        let bare = read_json(json!({"custom_id": "c"})).unwrap();
        assert_eq!(bare.end.unwrap_err().kind(), "malformed");
    }

    #[test]
    fn what_names_no_request_is_nothing() {
        for line in [
            "",
            "{}",
            "[]",
            "{\"custom_id\": 5}",
            "{\"custom_id\": \"a\"",
            "\u{0}",
        ] {
            assert_eq!(read(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_request_has_a_short_name_of_its_own() {
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
            if let Some(Err(TeacherError::Unanswered(said))) = read(bytes).map(|line| line.end) {
                assert!(!said.chars().any(char::is_control) && said.chars().count() <= 602);
            }
        });
    }
}
