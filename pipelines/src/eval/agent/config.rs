//! Upstream's YAML configurations, their fields read as they are.

use std::path::Path;
use std::time::Duration;

use pybench::llm::OpenAiOptions;
use pybench::run::RunError;
use pybench::trajectory::Sampling;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::yaml;

/// The mode in which code stands in fences or between tokens.
const PROMPT: &str = "prompt";
/// The mode in which code stands in calls.
const FUNCTION_CALL: &str = "functioncall";
/// What calls begin with unless the file says otherwise.
const CALL: &str = "<|tool_call|>";
/// Seconds to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What a configuration says. Keys never stand in it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `system_prompt_template`.
    pub system: String,
    /// `tool_call_token`, where `mode` is `functioncall`: code is the argument of a call in text.
    pub call: Option<String>,
    /// `max_turns`.
    pub max_turns: u32,
    /// `temperature`, `top_p` and `max_tokens` of `model_args`.
    pub sampling: Sampling,
    /// Where the model is; the rest of `model_args` goes with every request.
    pub endpoint: OpenAiOptions,
}

/// The file as upstream writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
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

impl Config {
    /// Read a configuration; `variable` reads the environment.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with the file and what is wrong, a literal key above all;
    /// [`RunError::Endpoint`] where the environment lacks the key.
    pub fn read(path: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Self, RunError> {
        let wrong = |text: String| RunError::BadInput(format!("{}: {text}", path.display()));
        let size = std::fs::metadata(path)
            .map_err(|error| wrong(error.to_string()))?
            .len();
        if size > yaml::MOST_BYTES as u64 {
            return Err(wrong("larger than a configuration".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text, variable).map_err(|error| match error {
            RunError::Endpoint(text) => RunError::Endpoint(format!("{}: {text}", path.display())),
            other => wrong(other.to_string()),
        })
    }

    /// The same from text.
    ///
    /// # Errors
    /// As [`Config::read`], without the file.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, RunError> {
        let value = yaml::parse(text).map_err(RunError::BadInput)?;
        let file: File = serde_json::from_value(value).map_err(|error| {
            RunError::BadInput(format!("no configuration of upstream's: {error}"))
        })?;
        refuse_other_modes(&file)?;
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
                "max_turns: {}: expected 1 to 100",
                file.max_turns
            )));
        }
        let sampling = sampling(&mut model_args)?;
        Ok(Self {
            system: file.system_prompt_template,
            call: (file.mode == FUNCTION_CALL)
                .then(|| file.tool_call_token.unwrap_or_else(|| CALL.to_owned())),
            max_turns: file.max_turns,
            sampling,
            endpoint: OpenAiOptions {
                price: pybench::llm::known_price(&model),
                model,
                base_url: client_args.base_url.trim_end_matches('/').to_owned(),
                key,
                headers: std::collections::BTreeMap::new(),
                timeout: TIMEOUT,
                extra: model_args,
            },
        })
    }
}

/// Code stands in fences or between PyBench's tokens, of which both are always read, or in calls.
fn refuse_other_modes(file: &File) -> Result<(), RunError> {
    let refuse = |text: String| Err(RunError::BadInput(text));
    if file.llm.r#type != "openai" {
        return refuse(format!(
            "llm.type: `{}`: only `openai` is known",
            file.llm.r#type
        ));
    }
    if ![PROMPT, FUNCTION_CALL].contains(&file.mode.as_str()) {
        return refuse(format!(
            "mode: `{}`: only `{PROMPT}` and `{FUNCTION_CALL}` are known",
            file.mode
        ));
    }
    if file.mode == FUNCTION_CALL && file.tool_call_token.as_deref() == Some("") {
        return refuse("tool_call_token: calls begin with nothing".to_owned());
    }
    let known = ["```python", "```", "<|execute_start|>", "<|execute_end|>"];
    for token in [&file.code_start_token, &file.code_end_token]
        .into_iter()
        .flatten()
    {
        if !known.contains(&token.trim()) {
            return refuse(format!(
                "`{token}` is no token of code that is known: {}",
                known.join(" ")
            ));
        }
    }
    Ok(())
}

/// `$NAME` or `${NAME}`: the key is in that variable. A literal key is refused, and never shown.
fn key(
    written: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>, RunError> {
    let Some(written) = written.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let name = written
        .strip_prefix('$')
        .map(|name| name.trim_start_matches('{').trim_end_matches('}'));
    let plain = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let Some(name) = name.filter(plain) else {
        return Err(RunError::BadInput(
            "`llm.args.client_args.api_key` holds a key: put it into an environment variable and write `api_key: $NAME`; without a key leave the line out".to_owned(),
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
                "model_args.{name}: {value}: expected {low} to {high}"
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
    fn fields_are_read_as_they_are() {
        let variable = |name: &str| (name == "K").then(|| "secret".to_owned());
        let config = Config::parse(&text("api_key: $K"), variable).unwrap();
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
    fn calls_begin_with_the_token_of_the_file() {
        let text = text("# none");
        assert_eq!(Config::parse(&text, |_| None).unwrap().call, None);
        let calls = text.replace("mode: prompt", "mode: functioncall");
        let config = Config::parse(&calls, |_| None).unwrap();
        assert_eq!(config.call.as_deref(), Some("<|tool_call|>"));
    }

    #[test]
    fn a_literal_key_is_refused_and_not_repeated() {
        for key in [
            "api_key: sk-literal-123",
            "api_key: \"token-abc123\"",
            "api_key: $sk-1",
        ] {
            let error = Config::parse(&text(key), |_| None).unwrap_err().to_string();
            assert!(error.contains("environment variable"), "{error}");
            assert!(
                !error.contains("literal") && !error.contains("abc123"),
                "{error}"
            );
        }
        let error = Config::parse(&text("api_key: $ABSENT"), |_| None).unwrap_err();
        assert!(error.to_string().contains("ABSENT is not set"));
        assert!(
            Config::parse(&text("# none"), |_| None)
                .unwrap()
                .endpoint
                .key
                .is_none()
        );
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (from, to, problem) in [
            ("type: openai", "type: vertex", "`vertex`"),
            ("mode: prompt", "mode: assistant", "`assistant`"),
            (
                "mode: prompt\nmax_turns: 10\ntool_call_token: <|tool_call|>",
                "mode: functioncall\nmax_turns: 10\ntool_call_token: \"\"",
                "tool_call_token",
            ),
            ("max_turns: 10", "max_turns: 0", "1 to 100"),
            ("max_turns: 10", "max_turn: 10", "max_turn"),
            ("top_p: 0.5", "top_p: 5", "model_args.top_p"),
        ] {
            let error = Config::parse(&text("# none").replace(from, to), |_| None).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }
}
