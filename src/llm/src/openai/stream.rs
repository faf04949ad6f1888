//! A chat completion that arrives as server-sent events, put together to the response that the same request gives in one
//! piece, so that both are read by the same code.

use serde_json::{Map, Value, json};

use crate::ChatError;
use crate::http::plain;

/// Maximum number of tool calls of a reply.
const MAX_CALLS: usize = 64;
/// The event after the last one.
const DONE: &[u8] = b"[DONE]";

/// What has arrived.
#[derive(Default)]
pub(super) struct StreamedAnswer {
    content: String,
    calls: Vec<StreamedCall>,
    finish_reason: Value,
    stop_reason: Value,
    usage: Value,
    ended: bool,
}

#[derive(Default)]
struct StreamedCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl StreamedAnswer {
    /// Adds a line of the response and returns the text in it.
    ///
    /// # Errors
    /// [`ChatError::Malformed`] if the line is no event of a chat completion; [`ChatError::Broken`] if it is an error of the
    /// endpoint.
    pub(super) fn add(&mut self, line: &[u8]) -> Result<String, ChatError> {
        // Comments and other fields of server-sent events are skipped.
        let Some(data) = line.strip_prefix(b"data:") else {
            return Ok(String::new());
        };
        let data = data.trim_ascii();
        if data == DONE {
            self.ended = true;
            return Ok(String::new());
        }
        let chunk: Value = serde_json::from_slice(data).map_err(|error| {
            ChatError::Malformed(format!("an event of the stream is not JSON: {error}"))
        })?;
        self.add_chunk(&chunk)
    }

    fn add_chunk(&mut self, chunk: &Value) -> Result<String, ChatError> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").unwrap_or(error);
            let text = message.as_str().map_or(message.to_string(), str::to_owned);
            return Err(ChatError::Broken(plain(&text)));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = usage.clone();
        }
        let Some(choice) = chunk.pointer("/choices/0") else {
            return Ok(String::new());
        };
        for (field, kept) in [
            ("finish_reason", &mut self.finish_reason),
            ("stop_reason", &mut self.stop_reason),
        ] {
            if let Some(value) = choice.get(field).filter(|value| !value.is_null()) {
                *kept = value.clone();
            }
        }
        let delta = &choice["delta"];
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.add_call(call)?;
        }
        let text = delta["content"].as_str().unwrap_or_default();
        self.content.push_str(text);
        Ok(text.to_owned())
    }

    /// Adds a part of a tool call. Parts of one call have the same index, and no other id: some servers give every call the
    /// index 0.
    fn add_call(&mut self, part: &Value) -> Result<(), ChatError> {
        let index = part["index"].as_u64().unwrap_or_default();
        let id = part["id"].as_str().unwrap_or_default();
        let is_same = |call: &StreamedCall| {
            call.index == index && (id.is_empty() || call.id.is_empty() || call.id == id)
        };
        let at = match self.calls.iter().rposition(is_same) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => {
                let text = format!("the reply has more than {MAX_CALLS} tool calls");
                return Err(ChatError::Malformed(text));
            }
            None => {
                self.calls.push(StreamedCall {
                    index,
                    id: id.to_owned(),
                    ..StreamedCall::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        let text = |field: &str| part["function"][field].as_str().unwrap_or_default();
        call.name.push_str(text("name"));
        call.arguments.push_str(text("arguments"));
        Ok(())
    }

    /// The response as one JSON object.
    ///
    /// # Errors
    /// [`ChatError::Broken`] if the stream ended before the reply did.
    pub(super) fn into_answer(self) -> Result<Value, ChatError> {
        if !self.ended && self.finish_reason.is_null() {
            let text = "the stream ended before the reply was complete";
            return Err(ChatError::Broken(text.to_owned()));
        }
        let calls = self
            .calls
            .into_iter()
            .map(|call| json!({"function": {"name": call.name, "arguments": call.arguments}}));
        let mut message = Map::new();
        message.insert("content".to_owned(), json!(self.content));
        message.insert("tool_calls".to_owned(), calls.collect());
        Ok(json!({
            "choices": [{
                "message": message,
                "finish_reason": self.finish_reason,
                "stop_reason": self.stop_reason,
            }],
            "usage": self.usage,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_answer;
    use super::*;

    fn event(chunk: &Value) -> Vec<u8> {
        format!("data: {chunk}\r").into_bytes()
    }

    fn delta(delta: Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    #[test]
    fn pieces_are_sent_and_put_together() {
        let mut answer = StreamedAnswer::default();
        assert_eq!(answer.add(b": a comment").unwrap(), "");
        let first = event(&delta(json!({"role": "assistant", "content": "It is "})));
        assert_eq!(answer.add(&first).unwrap(), "It is ");
        let second = event(&delta(json!({"content": "4."})));
        assert_eq!(answer.add(&second).unwrap(), "4.");
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]});
        answer.add(&event(&end)).unwrap();
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        answer.add(&event(&usage)).unwrap();
        answer.add(b"data: [DONE]").unwrap();
        let reply = read_answer(answer.into_answer().unwrap(), false).unwrap();
        assert_eq!((&*reply.content, reply.truncated), ("It is 4.", true));
        assert_eq!(reply.usage.total(), 7);
    }

    #[test]
    fn parts_of_tool_calls_are_joined_by_index_and_id() {
        let mut answer = StreamedAnswer::default();
        let parts = [
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"code\""}}),
            json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}),
            json!({"index": 0, "function": {"arguments": ": \"1\"}"}}),
            json!({"index": 1, "function": {"arguments": "{}"}}),
            json!({"index": 0, "id": "c", "function": {"name": "h", "arguments": "{}"}}),
        ];
        for part in parts {
            answer
                .add(&event(&delta(json!({"tool_calls": [part]}))))
                .unwrap();
        }
        answer.add(b"data: [DONE]").unwrap();
        let whole = answer.into_answer().unwrap();
        let calls = &whole["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls[0]["function"]["arguments"], "{\"code\": \"1\"}");
        assert_eq!(calls[1]["function"]["name"], "g");
        assert_eq!(calls[2]["function"]["name"], "h");
        let content = read_answer(whole, false).unwrap().content;
        assert_eq!(content.matches("<tool_call>").count(), 3);
        let mut flood = StreamedAnswer::default();
        let many = |index: usize| event(&delta(json!({"tool_calls": [{"index": index}]})));
        let result = (0..=MAX_CALLS).try_for_each(|index| flood.add(&many(index)).map(drop));
        assert!(matches!(result, Err(ChatError::Malformed(_))));
    }

    #[test]
    fn an_error_and_a_stream_that_breaks_off_are_errors() {
        let mut answer = StreamedAnswer::default();
        let error = event(&json!({"error": {"message": "no\nmemory", "code": 500}}));
        let told = answer.add(&error).unwrap_err();
        assert_eq!(told, ChatError::Broken("no memory".to_owned()));
        assert!(matches!(
            answer.add(b"data: {"),
            Err(ChatError::Malformed(_))
        ));
        answer
            .add(&event(&delta(json!({"content": "It "}))))
            .unwrap();
        assert!(matches!(answer.into_answer(), Err(ChatError::Broken(_))));
    }

    #[test]
    fn fuzz_lines_of_a_stream() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let mut answer = StreamedAnswer::default();
            for line in bytes.split(|byte| *byte == b'\n') {
                let _ = answer.add(line);
            }
            if let Ok(answer) = answer.into_answer() {
                let _ = read_answer(answer, true);
            }
        });
    }
}
