//! Tools that a chat request offers, and the calls in a reply.

use pybench_training_data::{
    CallParser, CallSyntax, CallableTools, RenderedText, ReplyPart, ToolCall, tool_name,
};
use serde_json::{Value, json};

use super::error::ApiError;

const MAX_TOOLS: usize = 128;
const MAX_NAME: usize = 64;

/// What the model may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OfferedTools {
    /// OpenAI's `tools`; none if the model shall not call any.
    pub(super) tools: Vec<Value>,
    pub(super) choice: ToolChoice,
    /// Whether a reply may have several calls.
    pub(super) parallel: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolChoice {
    #[default]
    Auto,
    /// Some tool.
    Required,
    Named(String),
}

impl OfferedTools {
    /// Validates `tools`, `tool_choice` and `parallel_tool_calls`.
    pub(super) fn parse(
        tools: &[Value],
        choice: Option<&Value>,
        parallel: Option<bool>,
    ) -> Result<Self, ApiError> {
        let bad = |param, text: String| Err(ApiError::bad(Some(param), text));
        if tools.len() > MAX_TOOLS {
            return bad("tools", format!("at most {MAX_TOOLS} tools"));
        }
        if let Some(number) = tools.iter().position(|tool| !is_tool(tool)) {
            let text = "{\"type\": \"function\", \"function\": {\"name\": …, \"parameters\": {…}}}";
            return bad(
                "tools",
                format!(
                    "tool {number} is not {text} with a name of 1 to {MAX_NAME} letters, digits, _ and -"
                ),
            );
        }
        let choice = match choice {
            None | Some(Value::Null) => Some(ToolChoice::Auto),
            Some(Value::String(word)) => match word.as_str() {
                "none" => None,
                "auto" => Some(ToolChoice::Auto),
                "required" => Some(ToolChoice::Required),
                _ => {
                    let text = format!(
                        "tool_choice = {word}: it must be none, auto, required or a function"
                    );
                    return bad("tool_choice", text);
                }
            },
            Some(function) => match tool_name(function) {
                Some(name) if tools.iter().any(|tool| tool_name(tool) == Some(name)) => {
                    Some(ToolChoice::Named(name.to_owned()))
                }
                _ => return bad("tool_choice", "the function is not among the tools".into()),
            },
        };
        if choice == Some(ToolChoice::Required) && tools.is_empty() {
            return bad("tool_choice", "there are no tools".into());
        }
        Ok(match choice {
            None => Self::default(),
            Some(choice) => Self {
                tools: tools.to_vec(),
                choice,
                parallel: parallel.unwrap_or(true),
            },
        })
    }

    /// The tool that the reply must call: `Some(None)` is any of them.
    pub(super) fn forced(&self) -> Option<Option<&str>> {
        match &self.choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(None),
            ToolChoice::Named(name) => Some(Some(name)),
        }
    }
}

fn is_tool(tool: &Value) -> bool {
    let letters = |name: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed)
    };
    let parameters = &tool["function"]["parameters"];
    tool["type"] == "function"
        && tool_name(tool).is_some_and(letters)
        && (parameters.is_null() || parameters.is_object())
}

/// Reads the text and the calls of one reply.
#[derive(Clone, Debug)]
pub(super) struct ReplyReader {
    /// `None` if no tools are offered: all is text.
    parser: Option<CallParser>,
    parallel: bool,
    /// Number of calls so far.
    pub(super) calls: usize,
}

/// What a reader returns.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReplyPiece {
    Text(String),
    /// An entry of `tool_calls`.
    Call(Value),
}

impl ReplyReader {
    /// Reads a reply that is text.
    pub(super) fn of_text() -> Self {
        Self {
            parser: None,
            parallel: true,
            calls: 0,
        }
    }

    /// Reads a reply that may call the tools. Its start may be part of the prompt.
    pub(super) fn new(
        syntax: CallSyntax,
        offered: &OfferedTools,
        opening: Option<&RenderedText>,
    ) -> Self {
        let mut parser = CallParser::new(syntax, CallableTools::Of(offered.tools.clone()));
        if let Some(opening) = opening {
            // The start of a call: nothing is decided yet.
            parser.push(&opening.text);
        }
        Self {
            parser: Some(parser),
            parallel: offered.parallel,
            calls: 0,
        }
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<ReplyPiece> {
        match &mut self.parser {
            Some(parser) => {
                let parts = parser.push(text);
                self.pieces(parts)
            }
            None if text.is_empty() => vec![],
            None => vec![ReplyPiece::Text(text.to_owned())],
        }
    }

    pub(super) fn finish(&mut self) -> Vec<ReplyPiece> {
        let parts = self.parser.as_mut().map(CallParser::finish);
        self.pieces(parts.unwrap_or_default())
    }

    fn pieces(&mut self, parts: Vec<ReplyPart>) -> Vec<ReplyPiece> {
        let mut pieces = vec![];
        for part in parts {
            match part {
                ReplyPart::Text(text) => pieces.push(ReplyPiece::Text(text)),
                ReplyPart::Call(_) if self.calls > 0 && !self.parallel => {}
                ReplyPart::Call(call) => {
                    pieces.push(ReplyPiece::Call(entry(&call)));
                    self.calls += 1;
                }
            }
        }
        pieces
    }
}

fn entry(call: &ToolCall) -> Value {
    let arguments = Value::Object(call.arguments.clone()).to_string();
    json!({
        "id": call_id(rand::random()), "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

/// Nine letters and digits, as Mistral's templates want ids.
fn call_id(mut random: u64) -> String {
    let digit = || {
        let digit = char::from_digit((random % 36) as u32, 36);
        random /= 36;
        digit.unwrap_or('0')
    };
    std::iter::repeat_with(digit).take(9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    #[test]
    fn requests_are_validated() {
        let tools = [tool("f")];
        let parse = |choice: Value| OfferedTools::parse(&tools, Some(&choice), None);
        let choice = |value: Value| parse(value).unwrap().choice;
        assert_eq!(choice(json!("auto")), ToolChoice::Auto);
        assert_eq!(choice(json!(null)), ToolChoice::Auto);
        assert_eq!(choice(json!("required")), ToolChoice::Required);
        assert_eq!(choice(tool("f")), ToolChoice::Named("f".into()));
        assert!(parse(json!("none")).unwrap().tools.is_empty());
        for bad in [json!("f"), tool("g"), json!(3)] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
        assert!(OfferedTools::parse(&[], Some(&json!("required")), None).is_err());
        assert!(OfferedTools::parse(&[], Some(&json!("auto")), None).is_ok());
        for bad in [
            json!({}),
            tool(""),
            tool("a b"),
            tool(&"x".repeat(65)),
            json!({"type": "function", "function": {"name": "f", "parameters": 3}}),
        ] {
            assert!(
                OfferedTools::parse(std::slice::from_ref(&bad), None, None).is_err(),
                "{bad}"
            );
        }
        assert!(OfferedTools::parse(&vec![tool("f"); 129], None, None).is_err());
    }

    #[test]
    fn replies_are_text_and_calls() {
        let offered = OfferedTools::parse(&[tool("f")], None, Some(false)).unwrap();
        let mut reader = ReplyReader::new(CallSyntax::Tags, &offered, None);
        let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}</tool_call>";
        assert_eq!(reader.push("I call."), [ReplyPiece::Text("I call.".into())]);
        let pieces = reader.push(&format!("\n{call}\n{call}"));
        let [ReplyPiece::Call(call)] = &pieces[..] else {
            panic!("{pieces:?}");
        };
        assert_eq!(call["function"]["arguments"], r#"{"b":1,"a":2}"#);
        assert_eq!(call["id"].as_str().map(str::len), Some(9));
        assert_eq!((reader.finish(), reader.calls), (vec![], 1));
        let mut text = ReplyReader::of_text();
        assert_eq!(
            text.push("<tool_call>"),
            [ReplyPiece::Text("<tool_call>".into())]
        );
        assert_eq!(text.finish(), []);
    }
}
