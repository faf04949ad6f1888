//! What clients may ask for, and within what bounds.

use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use crate::data::Message;

/// Most stop strings, and bytes of one.
const STOPS: (usize, usize) = (16, 256);
/// Most replies to one prompt, and prompts of one request.
const CHOICES: usize = 32;
/// Most alternatives to a token.
const TOP: usize = 20;

/// The fields that both kinds of request share.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Common {
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
    // What would change the reply and is not here.
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    logit_bias: Option<Value>,
    response_format: Option<Value>,
    tools: Option<Value>,
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

/// A chat request.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    #[serde(flatten)]
    pub(super) common: Common,
    messages: Vec<RawMessage>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct RawMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
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

/// A completion request.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    #[serde(flatten)]
    pub(super) common: Common,
    pub(super) prompt: Prompt,
    logprobs: Option<u64>,
}

/// One prompt or several, as text or tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<i64>),
    ManyTokens(Vec<Vec<i64>>),
}

/// A request's numbers, checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) limit: Option<usize>,
    pub(super) temperature: f64,
    pub(super) top_p: f64,
    pub(super) choices: usize,
    pub(super) stops: Vec<String>,
    pub(super) stream: bool,
    pub(super) stream_usage: bool,
    pub(super) log_probabilities: Option<usize>,
}

/// Reads a JSON body.
pub(super) fn parse<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad(None, format!("the body: {error}")))
}

impl ChatRequest {
    pub(super) fn wanted(&self) -> Result<Wanted, ApiError> {
        let top = match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (true, top) => Some(bounded("top_logprobs", top.unwrap_or(0), 0, TOP)?),
            (false, Some(top)) if top > 0 => {
                let message = "top_logprobs needs logprobs = true";
                return Err(ApiError::bad(Some("top_logprobs"), message));
            }
            _ => None,
        };
        self.common.wanted(top)
    }

    /// The conversation; only text is understood.
    pub(super) fn conversation(&self) -> Result<Vec<Message>, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::bad(Some("messages"), "there must be a message"));
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
                        format!("content of type {} is not understood; text is", part.kind),
                    )),
                };
                parts.iter().map(text).collect::<Result<_, _>>()?
            }
        };
        Ok(Message::new(&self.role, text))
    }
}

impl CompletionRequest {
    pub(super) fn wanted(&self) -> Result<Wanted, ApiError> {
        let top = self.logprobs.map(|top| bounded("logprobs", top, 0, TOP));
        self.common.wanted(top.transpose()?)
    }
}

impl Common {
    fn wanted(&self, log_probabilities: Option<usize>) -> Result<Wanted, ApiError> {
        self.refuse_unknown()?;
        let limit = self.max_completion_tokens.or(self.max_tokens);
        let limit = limit.map(|n| bounded("max_tokens", n, 1, 1 << 30));
        let usage = self.stream_options.as_ref().and_then(|o| o.include_usage);
        Ok(Wanted {
            limit: limit.transpose()?,
            temperature: within("temperature", self.temperature.unwrap_or(1.0), 0.0, 2.0)?,
            top_p: within("top_p", self.top_p.unwrap_or(1.0), f64::MIN_POSITIVE, 1.0)?,
            choices: bounded("n", self.n.unwrap_or(1), 1, CHOICES)?,
            stops: self.stops()?,
            stream: self.stream.unwrap_or(false),
            stream_usage: usage.unwrap_or(false),
            log_probabilities,
        })
    }

    fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match self.stop.clone() {
            None => vec![],
            Some(OneOrMore::One(stop)) => vec![stop],
            Some(OneOrMore::More(stops)) => stops,
        };
        let (most, length) = STOPS;
        let bad = |stop: &String| stop.is_empty() || stop.len() > length;
        if stops.len() > most || stops.iter().any(bad) {
            let text = format!("at most {most} strings of 1 to {length} bytes");
            return Err(ApiError::bad(Some("stop"), text));
        }
        Ok(stops)
    }

    fn refuse_unknown(&self) -> Result<(), ApiError> {
        let some = |value: &Option<Value>| value.as_ref().is_some_and(|v| !is_nothing(v));
        let number = |value: Option<f64>| value.is_some_and(|v| v != 0.0);
        let format = self.response_format.as_ref();
        let refused = [
            ("frequency_penalty", number(self.frequency_penalty)),
            ("presence_penalty", number(self.presence_penalty)),
            ("logit_bias", some(&self.logit_bias)),
            (
                "response_format",
                format.is_some_and(|f| f["type"] != "text" && !f.is_null()),
            ),
            ("tools", some(&self.tools)),
            ("functions", some(&self.functions)),
            ("echo", self.echo == Some(true)),
            ("suffix", some(&self.suffix)),
            ("best_of", self.best_of.is_some_and(|n| n > 1)),
        ];
        match refused.into_iter().find(|(_, refused)| *refused) {
            Some((name, _)) => {
                let text = format!("{name} is not supported by this server; leave it out");
                Err(ApiError::bad(Some(name), text))
            }
            None => Ok(()),
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn bounded(name: &'static str, value: u64, least: u64, most: usize) -> Result<usize, ApiError> {
    match usize::try_from(value) {
        Ok(found) if value >= least && found <= most => Ok(found),
        _ => Err(ApiError::bad(
            Some(name),
            format!("{name} = {value} is not from {least} to {most}"),
        )),
    }
}

fn within(name: &'static str, value: f64, least: f64, most: f64) -> Result<f64, ApiError> {
    match value >= least && value <= most {
        true => Ok(value),
        false => Err(ApiError::bad(
            Some(name),
            format!("{name} = {value} is not from {least} to {most}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(extra: &str) -> Result<Wanted, ApiError> {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"a"}}]{extra}}}"#);
        parse::<ChatRequest>(body.as_bytes())?.wanted()
    }

    #[test]
    fn numbers_are_bounded_and_named() {
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
                r#","response_format":{"type":"json_object"}"#,
                "response_format",
            ),
        ] {
            let error = chat(extra).unwrap_err();
            assert_eq!(error.body()["error"]["param"], name, "{extra}");
        }
        let wanted =
            chat(r#","stop":"x","max_tokens":3,"tools":[],"response_format":{"type":"text"}"#);
        let wanted = wanted.unwrap();
        assert_eq!((wanted.limit, wanted.stops), (Some(3), vec!["x".into()]));
    }

    #[test]
    fn parts_of_text_are_joined_and_others_refused() {
        let read = |content: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
            parse::<ChatRequest>(body.as_bytes())?.conversation()
        };
        let parts = r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
        assert_eq!(read(parts).unwrap()[0].content, "ab");
        assert!(read(r#"[{"type":"image_url","image_url":{"url":"x"}}]"#).is_err());
    }

    #[test]
    fn fuzz_request() {
        bolero::check!().for_each(|noise: &[u8]| {
            if let Ok(request) = parse::<ChatRequest>(noise) {
                let _ = (request.wanted(), request.conversation());
            }
            if let Ok(request) = parse::<CompletionRequest>(noise) {
                let _ = request.wanted();
            }
        });
    }
}
