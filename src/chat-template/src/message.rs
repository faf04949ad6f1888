//! A conversation and its messages.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Prefixes of observations that are sent as user messages (PyBench, CodeActInstruct).
const OBSERVATION_PREFIXES: [&str; 3] = [
    "[INFO]This is a Code Interpreter Message:",
    "There are some errors in the code.",
    "Observation:",
];

/// A message. The template interprets the role; `assistant` messages are trained, unless their weight is 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    #[serde(alias = "from")]
    pub role: String,
    #[serde(alias = "value")]
    pub content: String,
    /// Passed to the chat template as they are; the assistant writes them after the content.
    #[serde(
        default,
        deserialize_with = "list_or_null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<Value>,
    /// Id of the call whose result this message is.
    #[serde(
        default,
        deserialize_with = "text_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub tool_call_id: Option<String>,
    /// Name of the tool whose result this message is, or of the author.
    #[serde(
        default,
        deserialize_with = "text_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    /// 0 for a reply that is context only, as in OpenAI's fine-tuning format; templates do not see it.
    #[serde(default, skip_serializing)]
    pub weight: Option<Weight>,
}

/// Whether a reply is trained: the key `weight`, which is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Weight(pub bool);

impl TryFrom<f64> for Weight {
    type Error = String;

    fn try_from(weight: f64) -> Result<Self, Self::Error> {
        match weight {
            0.0 => Ok(Self(false)),
            1.0 => Ok(Self(true)),
            other => Err(format!(
                "the weight {other} of a message is neither 0 nor 1"
            )),
        }
    }
}

fn list_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn text_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().map(str::to_owned))
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            tool_calls: vec![],
            tool_call_id: None,
            name: None,
            weight: None,
        }
    }

    /// Whether the message is a reply that the model learns to write.
    pub fn is_trained(&self) -> bool {
        self.is_assistant() && self.weight != Some(Weight(false))
    }

    /// Parses the arguments of tool calls that are JSON in a string, as OpenAI's API has them: chat templates expect
    /// objects.
    pub fn parse_arguments(&mut self) {
        for call in &mut self.tool_calls {
            let arguments = match call.get("function").is_some_and(Value::is_object) {
                true => call["function"].get_mut("arguments"),
                false => call.get_mut("arguments"),
            };
            let Some(arguments) = arguments else { continue };
            let parsed = arguments.as_str().map(serde_json::from_str::<Value>);
            if let Some(Ok(parsed @ Value::Object(_))) = parsed {
                *arguments = parsed;
            }
        }
    }

    pub fn is_assistant(&self) -> bool {
        self.role == "assistant"
    }

    /// Whether the message is output of a tool or of the interpreter.
    pub fn is_observation(&self) -> bool {
        let roles = ["tool", "function", "ipython", "observation"];
        let begins = |start: &&str| self.content.trim_start().starts_with(*start);
        roles.contains(&self.role.as_str())
            || self.role == "user" && OBSERVATION_PREFIXES.iter().any(begins)
    }
}

/// What a chat template renders: messages, and the tools that the model may call.
#[derive(Clone, Copy, Debug)]
pub struct Chat<'a> {
    pub messages: &'a [Message],
    /// As in OpenAI's API.
    pub tools: &'a [Value],
}

impl<'a> Chat<'a> {
    pub fn new(messages: &'a [Message], tools: &'a [Value]) -> Self {
        Self { messages, tools }
    }

    /// The first `count` messages, with the same tools.
    pub(crate) fn first(self, count: usize) -> Self {
        Self {
            messages: &self.messages[..count],
            ..self
        }
    }

    /// The strings that come from outside: not the roles, which a template may build control tokens of.
    pub fn texts(self) -> impl Iterator<Item = String> {
        let text = |message: &Message| {
            let optional = |text: &Option<String>| text.clone().unwrap_or_default();
            let calls = message.tool_calls.iter().map(Value::to_string);
            let mut all = vec![
                message.content.clone(),
                optional(&message.tool_call_id),
                optional(&message.name),
            ];
            all.extend(calls);
            all
        };
        let messages = self.messages.iter().flat_map(text);
        messages.chain(self.tools.iter().map(Value::to_string))
    }
}

impl<'a> From<&'a [Message]> for Chat<'a> {
    fn from(messages: &'a [Message]) -> Self {
        Self::new(messages, &[])
    }
}

impl<'a> From<&'a Vec<Message>> for Chat<'a> {
    fn from(messages: &'a Vec<Message>) -> Self {
        Self::new(messages, &[])
    }
}

impl<'a, const N: usize> From<&'a [Message; N]> for Chat<'a> {
    fn from(messages: &'a [Message; N]) -> Self {
        Self::new(messages, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_in_strings_are_parsed() {
        let parsed = |arguments: Value| {
            let mut message = Message::new("assistant", "");
            message.tool_calls = vec![
                serde_json::json!({"function": {"name": "f", "arguments": arguments.clone()}}),
                serde_json::json!({"name": "f", "arguments": arguments}),
            ];
            message.parse_arguments();
            let function = &message.tool_calls[0]["function"]["arguments"];
            assert_eq!(*function, message.tool_calls[1]["arguments"]);
            function.clone()
        };
        let object = serde_json::json!({"b": 1, "a": "x"});
        assert_eq!(parsed(r#"{"b": 1, "a": "x"}"#.into()), object);
        assert_eq!(parsed(object.clone()), object);
        for other in ["not JSON", "[1]", ""] {
            assert_eq!(parsed(other.into()), *other);
        }
    }

    #[test]
    fn observations_are_told_from_questions() {
        let is_observation = |role, text| Message::new(role, text).is_observation();
        assert!(is_observation("tool", "2"));
        assert!(is_observation(
            "user",
            "[INFO]This is a Code Interpreter Message:\n2"
        ));
        assert!(is_observation("user", "Observation:\n2"));
        assert!(!is_observation(
            "user",
            "[INFO]The data is uploaded to ./a.csv"
        ));
        assert!(!is_observation("assistant", "Observation: none"));
    }
}
