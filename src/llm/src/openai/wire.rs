//! JSON requests and responses of OpenAI-compatible endpoints.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::OpenAiOptions;
use crate::lenient;
use crate::tool_calls;
use crate::tool_calls::ToolCall;
use crate::{ChatError, ChatRequest, Reply, RequiredText};
use pybench_types::trajectory::{Message, Role};

/// The body of a request.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    temperature: f64,
    top_p: f64,
    max_tokens: u32,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    extra: &'a serde_json::Map<String, Value>,
}

/// Options of a streamed response.
#[derive(Serialize)]
struct StreamOptions {
    /// Whether the last event counts the tokens.
    include_usage: bool,
}

impl<'a> Body<'a> {
    pub(super) fn new(options: &'a OpenAiOptions, request: &ChatRequest<'a>) -> Self {
        Self {
            model: &options.model,
            messages: wire_messages(request, options.extra.contains_key("tools")),
            temperature: request.sampling.temperature,
            top_p: request.sampling.top_p,
            max_tokens: request.sampling.max_tokens,
            stop: request.stop,
            stream: false,
            stream_options: None,
            extra: &options.extra,
        }
    }

    /// The same request, answered piece by piece.
    pub(super) fn streamed(self) -> Self {
        Self {
            stream: true,
            stream_options: Some(StreamOptions {
                include_usage: true,
            }),
            ..self
        }
    }
}

/// A message in the wire format: text, or text with pictures.
#[derive(Serialize)]
#[serde(untagged)]
enum WireMessage<'a> {
    Text(&'a Message),
    Wire(Value),
    Parts { role: Role, content: Vec<Value> },
}

/// Messages in the wire format. Tool calls are converted if the request offers tools. Pictures are part of the
/// last message, as data URLs.
fn wire_messages<'a>(request: &ChatRequest<'a>, tools: bool) -> Vec<WireMessage<'a>> {
    let mut messages: Vec<_> = match tools {
        true => tool_calls::to_wire(request.messages)
            .into_iter()
            .map(WireMessage::Wire)
            .collect(),
        false => request.messages.iter().map(WireMessage::Text).collect(),
    };
    if let (Some(last), false) = (request.messages.last(), request.pictures.is_empty()) {
        let mut content = vec![json!({"type": "text", "text": last.content})];
        content.extend(request.pictures.iter().map(|picture| {
            let data = STANDARD.encode(&picture.bytes);
            let url = format!("data:{};base64,{data}", picture.media_type);
            json!({"type": "image_url", "image_url": {"url": url}})
        }));
        messages.pop();
        messages.push(WireMessage::Parts {
            role: last.role,
            content,
        });
    }
    messages
}

/// The relevant part of a response.
#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Choice {
    message: Content,
    #[serde(default)]
    finish_reason: Value,
    /// vLLM: the token that ended the reply, if it is not the main one.
    #[serde(default)]
    stop_reason: Value,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Option<Vec<WireToolCall>>,
}

#[derive(Deserialize)]
struct WireToolCall {
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// `<|eom_id|>` of Llama 3.1 and later.
const END_OF_MESSAGE: u32 = 128_008;

/// Parses the reply in a response; fails with [`ChatError::Malformed`]. `restore_python_tag` is that of the options.
pub(crate) fn read_answer(answer: Value, restore_python_tag: bool) -> Result<Reply, ChatError> {
    let malformed = |what: &str| ChatError::Malformed(what.to_owned());
    let answer: Answer = serde_json::from_value(answer)
        .map_err(|error| ChatError::Malformed(format!("not a chat completion: {error}")))?;
    let choice = answer.choices.into_iter().next();
    let choice = choice.ok_or_else(|| malformed("no choices"))?;
    let Content {
        content,
        tool_calls,
    } = choice.message;
    let called = tool_calls.unwrap_or_default().into_iter();
    let called: Vec<ToolCall> = called
        .map(|call| ToolCall {
            name: call.function.name,
            arguments: lenient::arguments(call.function.arguments),
        })
        .collect();
    let content = lenient::text(content).ok_or_else(|| malformed("the content is not text"))?;
    let content = match content {
        None if called.is_empty() => return Err(malformed("the message has no content")),
        content => tool_calls::write(&content.unwrap_or_default(), &called),
    };
    // vLLM tells how the reply ended.
    let is_code = restore_python_tag && choice.stop_reason == END_OF_MESSAGE && called.is_empty();
    let content = match is_code && !content.contains(tool_calls::PYTHON_TAG) {
        true => tool_calls::PYTHON_TAG.to_owned() + &content,
        false => content,
    };
    let repetition = choice.finish_reason == "repetition";
    let is_cut = ["length", RequiredText::FIELD]
        .iter()
        .any(|reason| choice.finish_reason == *reason);
    Ok(Reply {
        content,
        usage: lenient::chat_usage(&answer.usage),
        truncated: is_cut || repetition,
        repetition,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use pybench_types::id::Digest;

    #[test]
    fn answers_without_content_are_malformed() {
        for answer in [
            json!({}),
            json!([]),
            json!({"choices": []}),
            json!({"choices": [{"message": {"content": null}}]}),
            json!({"choices": [{"message": {"content": 5}}]}),
            json!({"choices": [{"message": {"content": [{"type": "image_url"}]}}]}),
            json!({"choices": [{}]}),
        ] {
            let error = read_answer(answer.clone(), false).unwrap_err();
            assert_eq!(error.kind(), "malformed", "{answer}");
        }
        let cut = json!({"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": null});
        let reply = read_answer(cut, false).unwrap();
        assert!(reply.truncated && reply.content.is_empty());
    }

    #[test]
    fn calls_with_one_id_are_two_calls_whatever_the_reason_to_stop() {
        let call = |code: &str| json!({"id": "same", "function": {"name": "f", "arguments": {"code": code}}});
        let message = json!({"content": null, "tool_calls": [call("1"), call("2")]});
        for reason in [
            json!("stop"),
            json!("tool_calls"),
            json!("content_filter"),
            json!("function_call"),
            json!("length"),
            json!("repetition"),
            json!("required_text"),
            json!("unknown"),
            json!(null),
            json!({"type": "stop"}),
        ] {
            let answer = json!({"choices": [{"message": message, "finish_reason": reason}]});
            let reply = read_answer(answer, false).unwrap();
            let calls = tool_calls::read(&reply.content, 2).calls;
            assert!(calls.len() == 2 && calls.iter().all(Option::is_some));
            assert_eq!(reply.repetition, reason == "repetition");
            let is_cut = ["length", "repetition", "required_text"]
                .iter()
                .any(|cut| reason == *cut);
            assert_eq!(reply.truncated, is_cut);
        }
    }

    #[test]
    fn code_for_the_built_in_interpreter_has_its_tag_again() {
        let read_as = |restore: bool, content: &str, stop_reason: Value| {
            let message = json!({"content": content});
            let choice =
                json!({"message": message, "finish_reason": "stop", "stop_reason": stop_reason});
            let answer = json!({"choices": [choice]});
            read_answer(answer, restore).unwrap().content
        };
        let read = |content: &str, stop_reason: Value| read_as(true, content, stop_reason);
        let code = "<|python_tag|>print(1)";
        assert_eq!(read("print(1)", json!(128_008)), code);
        assert_eq!(read(code, json!(128_008)), code);
        for stop_reason in [json!(128_009), json!(null), json!("x")] {
            assert_eq!(read("print(1)", stop_reason), "print(1)");
        }
        // For another model it is another token.
        assert_eq!(read_as(false, "print(1)", json!(128_008)), "print(1)");
    }

    #[test]
    fn unambiguous_deviations_from_the_protocol_are_accepted() {
        let parts = json!([{"type": "text", "text": "I "}, {"type": "text", "text": "look."}]);
        let call = |arguments: Value| json!({"function": {"name": "f", "arguments": arguments}});
        let message = |calls: &[Value]| json!({"content": parts, "tool_calls": calls});
        let read = |message: Value, usage: Value| {
            let answer =
                json!({"choices": [{"message": message, "finish_reason": 1}], "usage": usage});
            read_answer(answer, false).unwrap()
        };
        let counted = json!({"prompt_tokens": "100", "completion_tokens": 10.0});
        let reply = read(message(&[]), counted);
        assert_eq!(reply.content, "I look.");
        let usage = reply.usage;
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (100, 10));

        let text = r#"{"code":"1"}"#;
        let expected = read(message(&[call(json!(text))]), json!([1, 2]));
        assert!(expected.content.contains(r#""code":"1""#));
        assert_eq!(expected.usage.total(), 0, "a list is no usage");
        let object = read(message(&[call(json!({"code": "1"}))]), Value::Null);
        assert_eq!(object.content, expected.content);
        let empty = read(message(&[call(Value::Null)]), Value::Null);
        assert!(
            empty.content.contains(r#""arguments":{}"#),
            "{}",
            empty.content
        );
    }

    #[test]
    fn pictures_are_part_of_the_last_message() {
        let messages = [
            Message::new(Role::System, "s"),
            Message::new(Role::User, "what is this?"),
        ];
        let picture = crate::Picture {
            media_type: "image/png",
            bytes: vec![1, 2, 3],
        };
        let request = ChatRequest {
            key: &Digest::of_bytes(b"task"),
            sample: 0,
            messages: &messages,
            sampling: &Default::default(),
            stop: &[],
            pictures: &[picture],
        };
        let options = OpenAiOptions {
            model: "m".into(),
            base_url: "http://h".into(),
            key: None,
            headers: BTreeMap::new(),
            price: None,
            timeout: Duration::from_secs(1),
            extra: serde_json::Map::from_iter([("frequency_penalty".to_owned(), json!(1.02))]),
            restore_python_tag: false,
        };
        let body = serde_json::to_value(Body::new(&options, &request)).unwrap();
        assert_eq!(body["frequency_penalty"], 1.02);
        assert_eq!(body["messages"][0]["content"], "s");
        let parts = &body["messages"][1]["content"];
        assert_eq!(parts[0]["text"], "what is this?");
        assert_eq!(parts[1]["image_url"]["url"], "data:image/png;base64,AQID");
        let blind = ChatRequest {
            pictures: &[],
            ..request
        };
        assert_ne!(blind.digest(), request.digest(), "a different request");
        let body = serde_json::to_value(Body::new(&options, &blind)).unwrap();
        assert_eq!(body["messages"][1]["content"], "what is this?");
    }

    #[test]
    fn fuzz_responses_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(value) = serde_json::from_slice(bytes) {
                let _ = read_answer(value, true);
            }
        });
    }
}
