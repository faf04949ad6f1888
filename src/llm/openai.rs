//! Any endpoint that speaks OpenAI's chat completions.

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

use super::http::Transport;
use super::{ChatRequest, Price, Reply, Teacher, TeacherError, price_of};
use crate::run::TeacherChoice;
use wire::Body;

pub(super) use wire::read_answer;

/// What an endpoint is reached by.
#[derive(Clone, Debug)]
pub struct OpenAiOptions {
    /// Model name as the endpoint knows it.
    pub model: String,
    /// For instance `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key; without it none is sent.
    pub key: Option<SecretString>,
    /// Extra headers, values resolved.
    pub headers: BTreeMap<String, SecretString>,
    /// What tokens cost; `None` when unknown.
    pub price: Option<Price>,
    /// Bound of one exchange, from the connection to the last byte.
    pub timeout: Duration,
    /// More fields of every request, such as `frequency_penalty`.
    pub extra: serde_json::Map<String, Value>,
}

impl OpenAiOptions {
    /// As the recipe says; `variable` reads the environment. `None` for another kind of teacher.
    /// Fails with [`TeacherError::Unauthorized`] when a variable that the recipe names is not set.
    pub fn from_recipe(
        choice: &TeacherChoice,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TeacherError> {
        let TeacherChoice::Openai {
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
        }))
    }
}

impl OpenAiOptions {
    /// The same under each further key that the recipe names.
    ///
    /// # Errors
    /// [`TeacherError::Unauthorized`] when one of the variables is not set.
    pub fn under_more_keys(
        &self,
        choice: &TeacherChoice,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Self>, TeacherError> {
        let TeacherChoice::Openai { more_keys_env, .. } = choice else {
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

    /// The same, every request offering these tools (OpenAI's `tools`); calls come back as text, see
    /// [`calls`].
    pub fn offering(mut self, tools: Option<Value>) -> Self {
        self.extra
            .extend(tools.map(|tools| ("tools".to_owned(), tools)));
        self
    }
}

fn secret(
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<SecretString, TeacherError> {
    match variable(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(SecretString::from(value)),
        None => Err(TeacherError::Unauthorized(format!(
            "the environment variable {name}, which the recipe names, is not set"
        ))),
    }
}

/// A teacher behind an endpoint.
pub struct OpenAi {
    name: String,
    options: OpenAiOptions,
    client: Client<Endpoint>,
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
    /// A teacher at that endpoint. Nothing is sent yet. Fails with [`TeacherError::Rejected`] on a
    /// base URL or header that HTTP cannot carry.
    pub fn new(options: OpenAiOptions) -> Result<Self, TeacherError> {
        let endpoint = Endpoint::new(&options)?;
        Ok(Self {
            name: format!("openai:{}", options.model),
            client: Client::with_config(endpoint)
                .with_http_service(Transport::new(options.timeout)?),
            options,
        })
    }
}

impl OpenAi {
    /// The body of a request, as JSON.
    pub(super) fn body(&self, request: &ChatRequest<'_>) -> Result<Value, TeacherError> {
        serde_json::to_value(Body::new(&self.options, request))
            .map_err(|error| TeacherError::Internal(error.to_string()))
    }

    /// What it is reached by.
    pub(super) fn options(&self) -> &OpenAiOptions {
        &self.options
    }
}

/// Servers sometimes repeat a refused key in their message.
pub(super) fn redact(options: &OpenAiOptions, error: TeacherError) -> TeacherError {
    let secrets = options.key.iter().chain(options.headers.values());
    let clean = |text: String| {
        secrets
            .map(ExposeSecret::expose_secret)
            .filter(|secret| secret.len() >= 4)
            .fold(text, |text, secret| text.replace(secret, "[redacted]"))
    };
    match error {
        TeacherError::Unauthorized(text) => TeacherError::Unauthorized(clean(text)),
        TeacherError::Rejected(text) => TeacherError::Rejected(clean(text)),
        other => other,
    }
}

#[async_trait]
impl Teacher for OpenAi {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        self.options.price
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let body = Body::new(&self.options, request);
        let answer: Result<Value, OpenAIError> = self.client.chat().create_byot(body).await;
        match answer {
            Ok(answer) => read_answer(answer),
            Err(error) => Err(redact(&self.options, teacher_error(error))),
        }
    }
}

/// What our transport said, or what async-openai made of its answer.
fn teacher_error(error: OpenAIError) -> TeacherError {
    match error {
        OpenAIError::Boxed(inner) => match inner.downcast::<TeacherError>() {
            Ok(error) => *error,
            Err(other) => TeacherError::Internal(other.to_string()),
        },
        OpenAIError::JSONDeserialize(error, _) => {
            TeacherError::Malformed(format!("not JSON: {error}"))
        }
        other => TeacherError::Internal(other.to_string()),
    }
}

/// Where requests go. async-openai's own configuration would read keys from the environment unasked.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    base_url: String,
    key: SecretString,
    headers: HeaderMap,
}

impl Endpoint {
    /// Where something is asked for, and the headers that go with it.
    pub(super) fn at(&self, path: &str) -> (String, HeaderMap) {
        (self.url(path), self.headers.clone())
    }

    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, TeacherError> {
        let url = reqwest::Url::parse(&options.base_url);
        if !url.is_ok_and(|url| ["http", "https"].contains(&url.scheme())) {
            return Err(TeacherError::Rejected(format!(
                "`teacher.base_url` is no http or https address: {}",
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

fn header_name(name: &str) -> Result<HeaderName, TeacherError> {
    HeaderName::try_from(name)
        .map_err(|_| TeacherError::Rejected(format!("`{name}` is no name of an HTTP header")))
}

fn header_value(name: &str, value: &SecretString) -> Result<HeaderValue, TeacherError> {
    let value = HeaderValue::try_from(value.expose_secret().trim());
    let mut value = value.map_err(|_| {
        TeacherError::Rejected(format!(
            "the value of the HTTP header `{name}` holds characters that it cannot carry"
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

    fn choice(headers: &[(&str, &str)], key_env: Option<&str>) -> TeacherChoice {
        TeacherChoice::Openai {
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
        let echoed = TeacherError::Unauthorized("bad key sk-very-secret".into());
        assert_eq!(
            redact(&teacher.options, echoed),
            TeacherError::Unauthorized("bad key [redacted]".into())
        );
    }

    #[test]
    fn what_the_recipe_names_must_be_there() {
        for choice in [choice(&[], Some("OTHER")), choice(&[("a", "$OTHER")], None)] {
            let error = OpenAiOptions::from_recipe(&choice, environment).unwrap_err();
            assert_eq!(error.kind(), "unauthorized");
            assert!(error.to_string().contains("OTHER"), "{error}");
        }
        let without = choice(&[], None);
        let options = OpenAiOptions::from_recipe(&without, environment).unwrap();
        let teacher = OpenAi::new(options.unwrap()).unwrap();
        assert!(teacher.client.config().headers().is_empty(), "no key asked");
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
        }
    }

    #[test]
    fn addresses_and_headers_are_checked() {
        for (url, header) in [("localhost:80", "a"), ("", "a"), ("http://h", "a b")] {
            assert_eq!(
                OpenAi::new(options(url, header)).unwrap_err().kind(),
                "rejected"
            );
        }
    }
}
