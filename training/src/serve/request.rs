//! Parsing and validation of requests.

use pybench_training_data::Message;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::repetition::RepetitionDetection;
use super::required_text::RequiredText;
use super::tools::OfferedTools;

/// Number of stop strings, and bytes of each.
const MAX_STOPS: (usize, usize) = (16, 256);
/// Replies to one prompt.
const MAX_CHOICES: usize = 32;
/// Alternatives to a token.
const MAX_TOP_LOGPROBS: usize = 20;

/// Fields of both endpoints.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CommonFields {
    pub(super) model: Option<String>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    pub(super) seed: Option<i64>,
    n: Option<u64>,
    stop: Option<OneOrMore>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    repetition_detection: Option<RepetitionDetection>,
    required_text: Option<RequiredText>,
    // Not supported; a request that uses them is rejected.
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    logit_bias: Option<Value>,
    response_format: Option<Value>,
    functions: Option<Value>,
    echo: Option<bool>,
    suffix: Option<Value>,
    best_of: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    #[serde(flatten)]
    pub(super) common: CommonFields,
    messages: Vec<RawMessage>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct RawMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<String>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    #[serde(flatten)]
    pub(super) common: CommonFields,
    pub(super) prompt: Prompt,
    logprobs: Option<u64>,
    tools: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<i64>),
    ManyTokens(Vec<Vec<i64>>),
}

/// The validated parameters of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GenerationParams {
    pub(super) max_tokens: Option<usize>,
    pub(super) temperature: f64,
    pub(super) top_p: f64,
    pub(super) choices: usize,
    pub(super) stops: Vec<String>,
    pub(super) stream: bool,
    pub(super) stream_usage: bool,
    pub(super) top_logprobs: Option<usize>,
    pub(super) repetition: Option<RepetitionDetection>,
    pub(super) required_text: Option<RequiredText>,
}

pub(super) fn parse<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad(None, format!("invalid request body: {error}")))
}

impl ChatRequest {
    pub(super) fn params(&self) -> Result<GenerationParams, ApiError> {
        let top = match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (true, top) => Some(bounded(
                "top_logprobs",
                top.unwrap_or(0),
                0,
                MAX_TOP_LOGPROBS,
            )?),
            (false, Some(top)) if top > 0 => {
                let message = "top_logprobs needs logprobs = true";
                return Err(ApiError::bad(Some("top_logprobs"), message));
            }
            _ => None,
        };
        self.common.params(top)
    }

    pub(super) fn tools(&self) -> Result<OfferedTools, ApiError> {
        let tools = self.tools.as_deref().unwrap_or_default();
        OfferedTools::parse(tools, self.tool_choice.as_ref(), self.parallel_tool_calls)
    }

    /// The conversation; only text content is supported.
    pub(super) fn conversation(&self) -> Result<Vec<Message>, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::bad(
                Some("messages"),
                "messages must not be empty",
            ));
        }
        self.messages.iter().map(RawMessage::message).collect()
    }
}

impl RawMessage {
    fn message(&self) -> Result<Message, ApiError> {
        let text = match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let text = |part: &Part| match (&*part.kind, &part.text) {
                    ("text", Some(text)) => Ok(text.clone()),
                    _ => Err(ApiError::bad(
                        Some("messages"),
                        format!("content of type {} is not supported, only text", part.kind),
                    )),
                };
                parts.iter().map(text).collect::<Result<_, _>>()?
            }
        };
        let mut message = Message {
            tool_calls: self.tool_calls.clone().unwrap_or_default(),
            tool_call_id: self.tool_call_id.clone(),
            name: self.name.clone(),
            ..Message::new(&self.role, text)
        };
        message.parse_arguments();
        Ok(message)
    }
}

impl CompletionRequest {
    pub(super) fn params(&self) -> Result<GenerationParams, ApiError> {
        if self.tools.as_ref().is_some_and(|tools| !is_empty(tools)) {
            let text = "tools are for /v1/chat/completions";
            return Err(ApiError::bad(Some("tools"), text));
        }
        let top = self
            .logprobs
            .map(|top| bounded("logprobs", top, 0, MAX_TOP_LOGPROBS));
        self.common.params(top.transpose()?)
    }
}

impl CommonFields {
    fn params(&self, top_logprobs: Option<usize>) -> Result<GenerationParams, ApiError> {
        self.reject_unsupported()?;
        let limit = self.max_completion_tokens.or(self.max_tokens);
        let limit = limit.map(|n| bounded("max_tokens", n, 1, 1 << 30));
        let usage = self.stream_options.as_ref().and_then(|o| o.include_usage);
        Ok(GenerationParams {
            max_tokens: limit.transpose()?,
            temperature: within("temperature", self.temperature.unwrap_or(1.0), 0.0, 2.0)?,
            top_p: within("top_p", self.top_p.unwrap_or(1.0), f64::MIN_POSITIVE, 1.0)?,
            choices: bounded("n", self.n.unwrap_or(1), 1, MAX_CHOICES)?,
            stops: self.stops()?,
            stream: self.stream.unwrap_or(false),
            stream_usage: usage.unwrap_or(false),
            top_logprobs,
            repetition: self.repetition_detection.unwrap_or_default().validate()?,
            required_text: self
                .required_text
                .clone()
                .map(RequiredText::validate)
                .transpose()?,
        })
    }

    fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match self.stop.clone() {
            None => vec![],
            Some(OneOrMore::One(stop)) => vec![stop],
            Some(OneOrMore::More(stops)) => stops,
        };
        let (max, length) = MAX_STOPS;
        let bad = |stop: &String| stop.is_empty() || stop.len() > length;
        if stops.len() > max || stops.iter().any(bad) {
            let text = format!("at most {max} strings of 1 to {length} bytes");
            return Err(ApiError::bad(Some("stop"), text));
        }
        Ok(stops)
    }

    fn reject_unsupported(&self) -> Result<(), ApiError> {
        let some = |value: &Option<Value>| value.as_ref().is_some_and(|v| !is_empty(v));
        let number = |value: Option<f64>| value.is_some_and(|v| v != 0.0);
        let format = self.response_format.as_ref();
        let unsupported = [
            ("frequency_penalty", number(self.frequency_penalty)),
            ("presence_penalty", number(self.presence_penalty)),
            ("logit_bias", some(&self.logit_bias)),
            (
                "response_format",
                format.is_some_and(|f| f["type"] != "text" && !f.is_null()),
            ),
            ("functions", some(&self.functions)),
            ("echo", self.echo == Some(true)),
            ("suffix", some(&self.suffix)),
            ("best_of", self.best_of.is_some_and(|n| n > 1)),
        ];
        match unsupported.into_iter().find(|(_, used)| *used) {
            Some((name, _)) => {
                let text = format!("{name} is not supported by this server; remove it");
                Err(ApiError::bad(Some(name), text))
            }
            None => Ok(()),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn bounded(name: &'static str, value: u64, min: u64, max: usize) -> Result<usize, ApiError> {
    match usize::try_from(value) {
        Ok(found) if value >= min && found <= max => Ok(found),
        _ => Err(ApiError::bad(
            Some(name),
            format!("{name} = {value}: it must be from {min} to {max}"),
        )),
    }
}

fn within(name: &'static str, value: f64, min: f64, max: f64) -> Result<f64, ApiError> {
    match value >= min && value <= max {
        true => Ok(value),
        false => Err(ApiError::bad(
            Some(name),
            format!("{name} = {value}: it must be from {min} to {max}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(extra: &str) -> Result<GenerationParams, ApiError> {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"a"}}]{extra}}}"#);
        let request = parse::<ChatRequest>(body.as_bytes())?;
        request.tools()?;
        request.params()
    }

    #[test]
    fn numbers_are_bounded() {
        for (extra, name) in [
            (r#","temperature":2.5"#, "temperature"),
            (r#","temperature":-1"#, "temperature"),
            (r#","top_p":0"#, "top_p"),
            (r#","max_tokens":0"#, "max_tokens"),
            (r#","n":33"#, "n"),
            (r#","stop":[""]"#, "stop"),
            (r#","top_logprobs":3"#, "top_logprobs"),
            (r#","logprobs":true,"top_logprobs":21"#, "top_logprobs"),
            (r#","tools":[{}]"#, "tools"),
            (
                r#","repetition_detection":{"max_pattern_size":4,"min_count":1}"#,
                "repetition_detection",
            ),
            (
                r#","required_text":{"any_of":[],"within_tokens":1}"#,
                "required_text",
            ),
            (
                r#","response_format":{"type":"json_object"}"#,
                "response_format",
            ),
        ] {
            let error = chat(extra).unwrap_err();
            assert_eq!(error.body()["error"]["param"], name, "{extra}");
        }
        let params =
            chat(r#","stop":"x","max_tokens":3,"tools":[],"response_format":{"type":"text"}"#);
        let params = params.unwrap();
        assert_eq!(
            (params.max_tokens, params.stops),
            (Some(3), vec!["x".into()])
        );
    }

    #[test]
    fn text_parts_are_joined_and_others_rejected() {
        let read = |content: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
            parse::<ChatRequest>(body.as_bytes())?.conversation()
        };
        let parts = r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
        assert_eq!(read(parts).unwrap()[0].content, "ab");
        assert!(read(r#"[{"type":"image_url","image_url":{"url":"x"}}]"#).is_err());
    }

    #[test]
    fn calls_and_their_results_are_messages() {
        let body = r#"{"messages":[
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": 2}"}}]},
            {"role":"tool","tool_call_id":"1","content":"3"}]}"#;
        let request = parse::<ChatRequest>(body.as_bytes()).unwrap();
        let messages = request.conversation().unwrap();
        let arguments = &messages[0].tool_calls[0]["function"]["arguments"];
        assert_eq!(*arguments, serde_json::json!({"b": 1, "a": 2}));
        assert_eq!(messages[0].content, "");
        assert_eq!(messages[1].tool_call_id.as_deref(), Some("1"));
    }

    #[test]
    fn fuzz_request() {
        bolero::check!().for_each(|noise: &[u8]| {
            if let Ok(request) = parse::<ChatRequest>(noise) {
                let _ = (request.params(), request.conversation(), request.tools());
            }
            if let Ok(request) = parse::<CompletionRequest>(noise) {
                let _ = request.params();
            }
        });
    }
}
