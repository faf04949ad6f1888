//! `POST /execute`, compatible with CodeAct's engine: one interpreter per conversation, and the output of a
//! cell as one text.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

use super::Service;
use super::error::ApiError;
use super::events;
use super::guard::Client;
use pybench_types::observation::{Observation, Output, Stopped};

/// Maximum length of a conversation name, bytes.
const MAX_NAME: usize = 256;

/// Request of CodeAct's chat client.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ExecuteRequest {
    /// The conversation; a new one gets a new interpreter.
    convid: ConversationId,
    /// Python code of the cell.
    code: String,
}

/// Number or name of a conversation.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
enum ConversationId {
    Name(String),
    Number(i64),
}

/// Not derived: serde would first keep whatever stands there, many times its size.
impl<'de> Deserialize<'de> for ConversationId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ConversationIdVisitor)
    }
}

struct ConversationIdVisitor;

impl Visitor<'_> for ConversationIdVisitor {
    type Value = ConversationId;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number or a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<ConversationId, E> {
        Ok(ConversationId::Name(name.to_owned()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ConversationId, E> {
        Ok(ConversationId::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ConversationId, E> {
        i64::try_from(number).map_or_else(
            |_| Err(E::custom("a number too large")),
            |n| self.visit_i64(n),
        )
    }
}

/// Response for CodeAct's chat client.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ExecuteResponse {
    /// The output of the cell as one text.
    result: String,
    /// Whether an interpreter was started for this call.
    new_kernel_created: bool,
}

/// Runs a cell in a conversation's interpreter.
pub(super) async fn execute(
    service: &Service,
    client: &Client,
    request: ExecuteRequest,
) -> Result<ExecuteResponse, ApiError> {
    let name = match request.convid {
        ConversationId::Name(name) if name.len() <= MAX_NAME => name,
        ConversationId::Name(_) => {
            return Err(ApiError::bad(format!(
                "convid has more than {MAX_NAME} bytes"
            )));
        }
        ConversationId::Number(number) => number.to_string(),
    };
    let (sandbox, new) = service.registry.conversation(client, &name).await?;
    let finished = events::wait(sandbox.kernel(None)?, request.code).await?;
    sandbox.touch();
    let seconds = (!finished.asked).then_some(sandbox.limits.cell_seconds);
    Ok(ExecuteResponse {
        result: render(&finished.observation, seconds),
        new_kernel_created: new,
    })
}

/// The text of an observation. `seconds`: the time limit, if an interrupt means that it was exceeded.
fn render(seen: &Observation, seconds: Option<u64>) -> String {
    if let (Some(Stopped::Interrupted | Stopped::Restarted), Some(seconds)) =
        (seen.stopped, seconds)
    {
        let mut text = format!("[Execution timed out ({seconds} seconds).]");
        if seen.stopped == Some(Stopped::Restarted) {
            text += " [The interpreter was restarted: variables are gone, files are kept.]";
        }
        return text;
    }
    let mut text = String::new();
    for output in &seen.outputs {
        match output {
            Output::Stream { text: piece, .. } => text += piece,
            Output::Result { data } | Output::Display { data } => {
                text += data.get("text/plain").map_or("", String::as_str);
                if let Some(png) = data.get("image/png") {
                    text += &format!("![image](data:image/png;base64,{})", png.trim());
                }
            }
            Output::Chart { .. } => {}
        }
    }
    if let Some(error) = &seen.error {
        text += &error.traceback;
    }
    if seen.outputs.is_empty() && seen.error.is_none() {
        return "[Code executed successfully with no output]".to_owned();
    }
    without_colors(&text)
}

/// Removes color codes; keeps other control sequences.
fn without_colors(text: &str) -> String {
    static COLOR: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\x1B\[\d+(;\d+){0,2}m").ok());
    match COLOR.as_ref() {
        Some(color) => color.replace_all(text, "").into_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_types::observation::CellError;
    use std::collections::BTreeMap;

    fn bundle(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn stream(text: &str) -> Output {
        Output::Stream {
            name: "stderr".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn outputs_become_one_text() {
        let mut seen = Observation {
            outputs: vec![
                stream("\x1b[1;31mred\x1b[0m\n"),
                Output::Result {
                    data: bundle(&[("text/plain", "<Figure>"), ("image/png", "QUJD\n")]),
                },
                Output::Chart {
                    path: None,
                    figure: serde_json::json!({}).into(),
                },
                Output::Display {
                    data: bundle(&[("text/html", "<b>")]),
                },
            ],
            ..Observation::default()
        };
        let expected = "red\n<Figure>![image](data:image/png;base64,QUJD)";
        assert_eq!(render(&seen, Some(60)), expected);
        seen.error = Some(CellError {
            ename: "E".to_owned(),
            evalue: "x".to_owned(),
            traceback: "Traceback…".to_owned(),
        });
        assert_eq!(render(&seen, Some(60)), format!("{expected}Traceback…"));
    }

    #[test]
    fn empty_output_and_timeouts_have_special_texts() {
        let silent = Observation::default();
        assert_eq!(
            render(&silent, None),
            "[Code executed successfully with no output]"
        );
        let late = Observation {
            outputs: vec![stream("lost")],
            stopped: Some(Stopped::Interrupted),
            ..Observation::default()
        };
        assert_eq!(
            render(&late, Some(60)),
            "[Execution timed out (60 seconds).]"
        );
        assert_eq!(render(&late, None), "lost");
    }

    #[test]
    fn conversations_have_numbers_or_names() {
        let parse = |id: &str| {
            let body = format!(r#"{{"convid": {id}, "code": ""}}"#);
            match crate::body::parse::<ExecuteRequest>(body.as_bytes())
                .ok()?
                .convid
            {
                ConversationId::Name(name) => Some(name),
                ConversationId::Number(number) => Some(number.to_string()),
            }
        };
        assert_eq!(parse(r#""a\u0062""#).as_deref(), Some("ab"));
        assert_eq!(parse("-7").as_deref(), Some("-7"));
        for refused in ["18446744073709551615", "1.5", "[0]", "{}", "null"] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }

    #[test]
    fn fuzz_requests() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = crate::body::parse::<ExecuteRequest>(bytes);
        });
    }
}
