//! Reads PyBench's own YAML configurations.

use std::path::Path;
use std::time::Duration;

use pybench_llm::OpenAiOptions;
use pybench_run::RunError;
use pybench_types::trajectory::Sampling;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::yaml;

/// Mode in which replies contain code in fences or between tokens.
const PROMPT: &str = "prompt";
/// Mode in which replies contain code in function calls.
const FUNCTION_CALL: &str = "functioncall";
/// Default of `tool_call_token`.
const DEFAULT_CALL_TOKEN: &str = "<|tool_call|>";
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An agent as PyBench's configuration describes it.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// `system_prompt_template`.
    pub system: String,
    /// `tool_call_token` if `mode` is `functioncall`: code is the argument of a function call in text.
    pub call: Option<String>,
    /// `max_turns`.
    pub max_turns: u32,
    /// `temperature`, `top_p` and `max_tokens` of `model_args`.
    pub sampling: Sampling,
    /// The endpoint. The rest of `model_args` is sent with every request.
    pub endpoint: OpenAiOptions,
}

/// The configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    system_prompt_template: String,
    #[serde(default)]
    code_start_token: Option<String>,
    #[serde(default)]
    code_end_token: Option<String>,
    #[serde(default)]
    tool_call_token: Option<String>,
    #[serde(default = "prompt")]
    mode: String,
    max_turns: u32,
    llm: Llm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Llm {
    r#type: String,
    args: Args,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    client_args: ClientArgs,
    model_args: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientArgs {
    #[serde(default)]
    api_key: Option<String>,
    base_url: String,
}

fn prompt() -> String {
    PROMPT.to_owned()
}

impl UpstreamConfig {
    /// Reads a configuration; `variable` looks up environment variables.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file is invalid or contains a literal API key; [`RunError::Endpoint`] if
    /// the environment variable of the key is not set.
    pub fn read(path: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Self, RunError> {
        let wrong = |text: String| RunError::BadInput(format!("{}: {text}", path.display()));
        let size = std::fs::metadata(path)
            .map_err(|error| wrong(error.to_string()))?
            .len();
        if size > yaml::MAX_BYTES as u64 {
            return Err(wrong(
                "the file is too large for a configuration".to_owned(),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text, variable).map_err(|error| match error {
            RunError::Endpoint(text) => RunError::Endpoint(format!("{}: {text}", path.display())),
            other => wrong(other.to_string()),
        })
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// As [`UpstreamConfig::read`], without the file name.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, RunError> {
        let value = yaml::parse(text).map_err(RunError::BadInput)?;
        let file: ConfigFile = serde_json::from_value(value)
            .map_err(|error| RunError::BadInput(format!("not a PyBench configuration: {error}")))?;
        reject_unsupported(&file)?;
        let Args {
            client_args,
            mut model_args,
        } = file.llm.args;
        let key = key(client_args.api_key.as_deref(), variable)?;
        let model = model_args.remove("model");
        let Some(Value::String(model)) = model else {
            return Err(RunError::BadInput(
                "`llm.args.model_args.model` is missing".to_owned(),
            ));
        };
        if !(1..=100).contains(&file.max_turns) {
            return Err(RunError::BadInput(format!(
                "max_turns: {}: expected a number from 1 to 100",
                file.max_turns
            )));
        }
        let sampling = sampling(&mut model_args)?;
        Ok(Self {
            system: file.system_prompt_template,
            call: (file.mode == FUNCTION_CALL).then(|| {
                file.tool_call_token
                    .unwrap_or_else(|| DEFAULT_CALL_TOKEN.to_owned())
            }),
            max_turns: file.max_turns,
            sampling,
            endpoint: OpenAiOptions {
                price: pybench_llm::known_price(&model),
                model,
                base_url: client_args.base_url.trim_end_matches('/').to_owned(),
                key,
                headers: std::collections::BTreeMap::new(),
                timeout: TIMEOUT,
                extra: model_args,
                restore_python_tag: false,
            },
        })
    }
}

/// Rejects settings that are not supported. Code in fences and between PyBench's tokens is always read,
/// regardless of which the file names.
fn reject_unsupported(file: &ConfigFile) -> Result<(), RunError> {
    let reject = |text: String| Err(RunError::BadInput(text));
    if file.llm.r#type != "openai" {
        return reject(format!(
            "llm.type: `{}` is not supported; expected `openai`",
            file.llm.r#type
        ));
    }
    if ![PROMPT, FUNCTION_CALL].contains(&file.mode.as_str()) {
        return reject(format!(
            "mode: `{}` is not supported; expected `{PROMPT}` or `{FUNCTION_CALL}`",
            file.mode
        ));
    }
    if file.mode == FUNCTION_CALL && file.tool_call_token.as_deref() == Some("") {
        return reject("tool_call_token: must not be empty in the mode `functioncall`".to_owned());
    }
    let known = ["```python", "```", "<|execute_start|>", "<|execute_end|>"];
    for token in [&file.code_start_token, &file.code_end_token]
        .into_iter()
        .flatten()
    {
        if !known.contains(&token.trim()) {
            return reject(format!(
                "code_start_token, code_end_token: `{token}` is not supported; expected one of {}",
                known.join(" ")
            ));
        }
    }
    Ok(())
}

/// Reads the API key from the environment variable `$NAME` or `${NAME}`. A literal key is rejected and never
/// printed.
fn key(
    value: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>, RunError> {
    let Some(value) = value.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let name = value
        .strip_prefix('$')
        .map(|name| name.trim_start_matches('{').trim_end_matches('}'));
    let plain = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let Some(name) = name.filter(plain) else {
        return Err(RunError::BadInput(
            "`llm.args.client_args.api_key` contains an API key: store the key in an environment variable and write `api_key: $NAME`, or remove the line if no key is needed".to_owned(),
        ));
    };
    match variable(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(SecretString::from(value))),
        None => Err(RunError::Endpoint(format!(
            "the environment variable {name} is not set"
        ))),
    }
}

fn sampling(arguments: &mut Map<String, Value>) -> Result<Sampling, RunError> {
    let mut sampling = Sampling::default();
    let mut number = |name: &str, low: f64, high: f64| match arguments.remove(name) {
        None => Ok(None),
        Some(value) => match value.as_f64().filter(|x| (low..=high).contains(x)) {
            Some(x) => Ok(Some(x)),
            None => Err(RunError::BadInput(format!(
                "model_args.{name}: {value}: expected a number from {low} to {high}"
            ))),
        },
    };
    if let Some(x) = number("temperature", 0.0, 2.0)? {
        sampling.temperature = x;
    }
    if let Some(x) = number("top_p", 0.0, 1.0)? {
        sampling.top_p = x;
    }
    if let Some(x) = number("max_tokens", 1.0, 1e6)? {
        sampling.max_tokens = x as u32;
    }
    Ok(sampling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn text(key: &str) -> String {
        format!(
            "system_prompt_template: |\n  Be good.\n  <|execute_end|>\ncode_start_token: \"```python\"\ncode_end_token: \"```\"\n\
             mode: prompt\nmax_turns: 10\ntool_call_token: <|tool_call|>\nllm:\n  type: openai\n  args:\n    client_args:\n\
             \u{20}     {key}\n      base_url: http://localhost:1/v1/\n    model_args:\n      model: m\n      temperature: 0.2\n\
             \u{20}     max_tokens: 1000\n      top_p: 0.5\n      frequency_penalty: 1.02"
        )
    }

    #[test]
    fn all_fields_are_read() {
        let variable = |name: &str| (name == "K").then(|| "secret".to_owned());
        let config = UpstreamConfig::parse(&text("api_key: $K"), variable).unwrap();
        assert_eq!(config.system, "Be good.\n<|execute_end|>\n");
        assert_eq!(config.max_turns, 10);
        assert_eq!(
            (config.sampling.top_p, config.sampling.max_tokens),
            (0.5, 1000)
        );
        assert_eq!(config.endpoint.base_url, "http://localhost:1/v1");
        assert_eq!(config.endpoint.extra["frequency_penalty"], 1.02);
        assert!(!config.endpoint.extra.contains_key("model"));
        assert_eq!(config.endpoint.key.unwrap().expose_secret(), "secret");
    }

    #[test]
    fn the_call_token_is_read_from_the_file() {
        let text = text("# none");
        assert_eq!(UpstreamConfig::parse(&text, |_| None).unwrap().call, None);
        let calls = text.replace("mode: prompt", "mode: functioncall");
        let config = UpstreamConfig::parse(&calls, |_| None).unwrap();
        assert_eq!(config.call.as_deref(), Some("<|tool_call|>"));
    }

    #[test]
    fn a_literal_key_is_rejected_and_not_printed() {
        for key in [
            "api_key: sk-literal-123",
            "api_key: \"token-abc123\"",
            "api_key: $sk-1",
        ] {
            let error = UpstreamConfig::parse(&text(key), |_| None)
                .unwrap_err()
                .to_string();
            assert!(error.contains("environment variable"), "{error}");
            assert!(
                !error.contains("literal") && !error.contains("abc123"),
                "{error}"
            );
        }
        let error = UpstreamConfig::parse(&text("api_key: $ABSENT"), |_| None).unwrap_err();
        assert!(error.to_string().contains("ABSENT is not set"));
        assert!(
            UpstreamConfig::parse(&text("# none"), |_| None)
                .unwrap()
                .endpoint
                .key
                .is_none()
        );
    }

    #[test]
    fn unsupported_settings_are_reported() {
        for (from, to, problem) in [
            ("type: openai", "type: vertex", "`vertex`"),
            ("mode: prompt", "mode: assistant", "`assistant`"),
            (
                "mode: prompt\nmax_turns: 10\ntool_call_token: <|tool_call|>",
                "mode: functioncall\nmax_turns: 10\ntool_call_token: \"\"",
                "tool_call_token",
            ),
            ("max_turns: 10", "max_turns: 0", "from 1 to 100"),
            ("max_turns: 10", "max_turn: 10", "max_turn"),
            ("top_p: 0.5", "top_p: 5", "model_args.top_p"),
        ] {
            let error =
                UpstreamConfig::parse(&text("# none").replace(from, to), |_| None).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }
}
