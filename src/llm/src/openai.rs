//! Chat models behind OpenAI-compatible endpoints.

mod stream;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_openai::Client;
use async_openai::config::Config;
use async_openai::error::OpenAIError;
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::http::{Answered, Transport};
use super::lines::{Lines, ReadLimits};
use super::{ChatError, ChatModel, ChatRequest, Reply, ReplyWatcher, RequiredText, price_of};
use pybench_run::ModelChoice;
use pybench_run::{Price, RepetitionDetection};
use stream::StreamedAnswer;
use wire::Body;

pub(super) use wire::read_answer;

/// Limits of a streamed response. Every token has an event of its own, of some hundred bytes.
const MAX_STREAM: ReadLimits = ReadLimits {
    bytes: 64 << 20,
    line: 1 << 20,
};

/// Connection settings of an endpoint.
#[derive(Clone, Debug)]
pub struct OpenAiOptions {
    /// Model name, as the endpoint expects it.
    pub model: String,
    /// Base URL of the API, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// API key, if any.
    pub key: Option<SecretString>,
    /// Extra headers with resolved values.
    pub headers: BTreeMap<String, SecretString>,
    /// Price of tokens; `None` if unknown.
    pub price: Option<Price>,
    /// Timeout of one exchange, from connecting to the last byte.
    pub timeout: Duration,
    /// Additional fields of every request, such as `frequency_penalty`.
    pub extra: serde_json::Map<String, Value>,
    /// Puts `<|python_tag|>`, which vLLM leaves out, before a reply that `<|eom_id|>` ended. For the built-in code
    /// interpreter of Llama 3.1 and later; other models have another token with that number.
    pub restore_python_tag: bool,
}

impl OpenAiOptions {
    /// The settings of a recipe; `variable` reads environment variables. `None` for other kinds of models. Fails
    /// with [`ChatError::Unauthorized`] if a variable named in the recipe is not set.
    pub fn from_recipe(
        choice: &ModelChoice,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ChatError> {
        let ModelChoice::Openai {
            model,
            base_url,
            key_env,
            headers,
            timeout_seconds,
            ..
        } = choice
        else {
            return Ok(None);
        };
        let secret = |name: &str| secret(name, &variable);
        let resolve = |(name, value): (&String, &String)| {
            let value = match value.strip_prefix('$') {
                Some(variable) => secret(variable)?,
                None => SecretString::from(value.clone()),
            };
            Ok((name.clone(), value))
        };
        Ok(Some(Self {
            model: model.clone(),
            base_url: base_url.trim_end_matches('/').to_owned(),
            key: key_env.as_deref().map(secret).transpose()?,
            headers: headers.iter().map(resolve).collect::<Result<_, _>>()?,
            price: price_of(choice),
            timeout: Duration::from_secs((*timeout_seconds).max(1)),
            extra: serde_json::Map::new(),
            restore_python_tag: false,
        }))
    }
}

impl OpenAiOptions {
    /// One copy of the settings for each additional key that the recipe names.
    ///
    /// # Errors
    /// [`ChatError::Unauthorized`] if a variable is not set.
    pub fn with_additional_keys(
        &self,
        choice: &ModelChoice,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Self>, ChatError> {
        let ModelChoice::Openai { more_keys_env, .. } = choice else {
            return Ok(Vec::new());
        };
        let under = |name: &String| {
            Ok(Self {
                key: Some(secret(name, &variable)?),
                ..self.clone()
            })
        };
        more_keys_env.iter().map(under).collect()
    }

    /// Offers these tools (OpenAI's `tools`) in every request. Tool calls are returned as text; see
    /// [`tool_calls`](crate::tool_calls).
    pub fn with_tools(mut self, tools: Option<Value>) -> Self {
        self.extra
            .extend(tools.map(|tools| ("tools".to_owned(), tools)));
        self
    }

    /// Reads replies as those of Llama's built-in code interpreter; see [`OpenAiOptions::restore_python_tag`].
    pub fn with_python_tag(mut self, restore: bool) -> Self {
        self.restore_python_tag = restore;
        self
    }

    /// Asks `pybench serve` to end replies that lack a text.
    pub fn with_required_text(mut self, required: Option<&RequiredText>) -> Self {
        let field = required.map(|required| {
            let value = serde_json::json!(required);
            (RequiredText::FIELD.to_owned(), value)
        });
        self.extra.extend(field);
        self
    }

    /// Asks the server to end replies that repeat themselves: a parameter of vLLM and of `pybench serve`.
    pub fn with_repetition_detection(mut self, detection: Option<RepetitionDetection>) -> Self {
        let field = detection.map(|detection| {
            let value = serde_json::json!(detection);
            ("repetition_detection".to_owned(), value)
        });
        self.extra.extend(field);
        self
    }
}

fn secret(
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<SecretString, ChatError> {
    match variable(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(SecretString::from(value)),
        None => Err(ChatError::Unauthorized(format!(
            "the environment variable {name}, which the recipe names, is not set; export it"
        ))),
    }
}

/// A chat model behind an OpenAI-compatible endpoint.
pub struct OpenAi {
    name: String,
    options: OpenAiOptions,
    client: Client<Endpoint>,
    endpoint: Endpoint,
    transport: Transport,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `SecretString` prints itself redacted.
        f.debug_struct("OpenAi")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl OpenAi {
    /// Creates the model without sending anything. Fails with [`ChatError::Rejected`] if the base URL or a header
    /// is invalid.
    pub fn new(options: OpenAiOptions) -> Result<Self, ChatError> {
        let endpoint = Endpoint::new(&options)?;
        let transport = Transport::new(options.timeout)?;
        Ok(Self {
            name: Self::name_of(&options.model),
            client: Client::with_config(endpoint.clone()).with_http_service(transport.clone()),
            endpoint,
            transport,
            options,
        })
    }
}

impl OpenAi {
    /// The name, in ids and rows, of a model that an endpoint knows as `model`.
    pub fn name_of(model: &str) -> String {
        format!("openai:{model}")
    }

    /// The body of a request, as JSON.
    pub(super) fn body(&self, request: &ChatRequest<'_>) -> Result<Value, ChatError> {
        serde_json::to_value(Body::new(&self.options, request))
            .map_err(|error| ChatError::Internal(error.to_string()))
    }

    pub(super) fn options(&self) -> &OpenAiOptions {
        &self.options
    }

    /// Asks for a streamed reply. A response that is not a stream is read as a whole.
    async fn ask_live(
        &self,
        request: &ChatRequest<'_>,
        watcher: &ReplyWatcher,
    ) -> Result<Reply, ChatError> {
        let body = serde_json::to_value(Body::new(&self.options, request).streamed())
            .map_err(|error| ChatError::Internal(error.to_string()))?;
        let (url, headers) = self.endpoint.at("/chat/completions");
        let restore = self.options.restore_python_tag;
        match self
            .transport
            .post_live(&url, headers, &body, MAX_STREAM)
            .await?
        {
            Answered::Events(lines) => read_answer(follow(*lines, watcher).await?, restore),
            Answered::Whole(answer) => {
                let reply = read_answer(answer, restore)?;
                watcher.send(crate::tool_calls::read(&reply.content, 0).text);
                Ok(reply)
            }
        }
    }
}

/// Reads a stream to its end and sends the text in it.
async fn follow(mut lines: Lines, watcher: &ReplyWatcher) -> Result<Value, ChatError> {
    let mut answer = StreamedAnswer::default();
    while let Some(arrived) = lines.next().await? {
        for line in arrived {
            let line = line.ok_or(ChatError::TooLarge(MAX_STREAM.line as u64))?;
            watcher.send(&answer.add(&line)?);
        }
    }
    answer.into_answer()
}

/// Removes secrets from an error, because servers sometimes repeat a refused key in their message.
pub(super) fn redact(options: &OpenAiOptions, error: ChatError) -> ChatError {
    let secrets = options.key.iter().chain(options.headers.values());
    let clean = |text: String| {
        secrets
            .map(ExposeSecret::expose_secret)
            .filter(|secret| secret.len() >= 4)
            .fold(text, |text, secret| text.replace(secret, "[redacted]"))
    };
    match error {
        ChatError::Unauthorized(text) => ChatError::Unauthorized(clean(text)),
        ChatError::NotFound(text) => ChatError::NotFound(clean(text)),
        ChatError::Rejected(text) => ChatError::Rejected(clean(text)),
        // A stream can carry an error of the endpoint.
        ChatError::Broken(text) => ChatError::Broken(clean(text)),
        other => other,
    }
}

#[async_trait]
impl ChatModel for OpenAi {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        self.options.price
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let body = Body::new(&self.options, request);
        let answer: Result<Value, OpenAIError> = self.client.chat().create_byot(body).await;
        match answer {
            Ok(answer) => read_answer(answer, self.options.restore_python_tag),
            Err(error) => Err(redact(&self.options, chat_error(error))),
        }
    }

    async fn reply_live(
        &self,
        request: &ChatRequest<'_>,
        watcher: &ReplyWatcher,
    ) -> Result<Reply, ChatError> {
        let reply = self.ask_live(request, watcher).await;
        reply.map_err(|error| redact(&self.options, error))
    }
}

/// Converts an error of async-openai, which may wrap one of our transport.
fn chat_error(error: OpenAIError) -> ChatError {
    match error {
        OpenAIError::Boxed(inner) => match inner.downcast::<ChatError>() {
            Ok(error) => *error,
            Err(other) => ChatError::Internal(other.to_string()),
        },
        OpenAIError::JSONDeserialize(error, _) => {
            ChatError::Malformed(format!("not JSON: {error}"))
        }
        other => ChatError::Internal(other.to_string()),
    }
}

/// URL and headers of requests. The default configuration of async-openai would read keys from the environment.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    base_url: String,
    key: SecretString,
    headers: HeaderMap,
}

impl Endpoint {
    /// URL of a path, and the headers of a request.
    pub(super) fn at(&self, path: &str) -> (String, HeaderMap) {
        (self.url(path), self.headers.clone())
    }

    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, ChatError> {
        let url = reqwest::Url::parse(&options.base_url);
        if !url.is_ok_and(|url| ["http", "https"].contains(&url.scheme())) {
            return Err(ChatError::Rejected(format!(
                "`base_url` must be an http or https URL, not {}",
                options.base_url
            )));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        if let Some(key) = &options.key {
            let bearer = SecretString::from(format!("Bearer {}", key.expose_secret()));
            headers.insert(AUTHORIZATION, header_value("authorization", &bearer)?);
        }
        Ok(Self {
            base_url: options.base_url.clone(),
            key: options.key.clone().unwrap_or_default(),
            headers,
        })
    }
}

fn header_name(name: &str) -> Result<HeaderName, ChatError> {
    HeaderName::try_from(name)
        .map_err(|_| ChatError::Rejected(format!("`{name}` is not a valid name of an HTTP header")))
}

fn header_value(name: &str, value: &SecretString) -> Result<HeaderValue, ChatError> {
    let value = HeaderValue::try_from(value.expose_secret().trim());
    let mut value = value.map_err(|_| {
        ChatError::Rejected(format!(
            "the value of the HTTP header `{name}` contains invalid characters"
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &SecretString {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(headers: &[(&str, &str)], key_env: Option<&str>) -> ModelChoice {
        ModelChoice::Openai {
            model: "m".into(),
            base_url: "http://localhost:1/v1/".into(),
            key_env: key_env.map(str::to_owned),
            headers: headers
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            price: None,
            timeout_seconds: 1,
            more_keys_env: Vec::new(),
            requests_per_minute: None,
            tokens_per_minute: None,
            batch: false,
        }
    }

    fn environment(name: &str) -> Option<String> {
        (name == "MY_KEY").then(|| "sk-very-secret".to_owned())
    }

    #[test]
    fn secrets_come_from_the_environment_and_are_never_printed() {
        let choice = choice(&[("x-token", "$MY_KEY"), ("x-plain", "a")], Some("MY_KEY"));
        let options = OpenAiOptions::from_recipe(&choice, environment)
            .unwrap()
            .unwrap();
        let teacher = OpenAi::new(options).unwrap();
        let headers = teacher.client.config().headers();
        assert_eq!(headers[AUTHORIZATION], "Bearer sk-very-secret");
        assert_eq!(headers["x-token"], "sk-very-secret");
        assert_eq!(
            teacher.client.config().url("/chat"),
            "http://localhost:1/v1/chat"
        );
        for printed in [
            format!("{teacher:?}"),
            format!("{:?}", teacher.client.config()),
        ] {
            assert!(!printed.contains("very-secret"), "{printed}");
        }
        let echoed = ChatError::Unauthorized("bad key sk-very-secret".into());
        assert_eq!(
            redact(&teacher.options, echoed),
            ChatError::Unauthorized("bad key [redacted]".into())
        );
    }

    #[test]
    fn variables_named_in_the_recipe_must_be_set() {
        for choice in [choice(&[], Some("OTHER")), choice(&[("a", "$OTHER")], None)] {
            let error = OpenAiOptions::from_recipe(&choice, environment).unwrap_err();
            assert_eq!(error.kind(), "unauthorized");
            assert!(error.to_string().contains("OTHER"), "{error}");
        }
        let without = choice(&[], None);
        let options = OpenAiOptions::from_recipe(&without, environment).unwrap();
        let teacher = OpenAi::new(options.unwrap()).unwrap();
        assert!(
            teacher.client.config().headers().is_empty(),
            "no key configured"
        );
    }

    fn options(url: &str, header: &str) -> OpenAiOptions {
        OpenAiOptions {
            model: "m".into(),
            base_url: url.into(),
            key: None,
            headers: BTreeMap::from([(header.to_owned(), "v".to_owned().into())]),
            price: None,
            timeout: Duration::from_secs(1),
            extra: serde_json::Map::new(),
            restore_python_tag: false,
        }
    }

    #[test]
    fn urls_and_headers_are_validated() {
        for (url, header) in [("localhost:80", "a"), ("", "a"), ("http://h", "a b")] {
            assert_eq!(
                OpenAi::new(options(url, header)).unwrap_err().kind(),
                "rejected"
            );
        }
    }
}
