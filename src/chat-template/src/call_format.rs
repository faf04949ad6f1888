//! How a chat template writes tool calls.

use serde_json::{Value, json};

use crate::annotate::MessagePart;
use crate::marked_text::RenderedText;
use crate::message::{Chat, Message};
use crate::template::ChatTemplate;

const NAME: &str = "example_tool";

/// The syntax of calls in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSyntax {
    /// Llama: the reply is `{"name": …, "parameters": {…}}`, or starts with `<|python_tag|>`.
    Json,
    /// Hermes and Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.
    Tags,
    /// Mistral: `[TOOL_CALLS]` and a list of calls, or `[TOOL_CALLS]name[ARGS]{…}`.
    List,
}

impl CallSyntax {
    fn of_reply(text: &str) -> Option<Self> {
        let starts = |start: &str| text.trim_start().starts_with(start);
        if text.contains("[TOOL_CALLS]") {
            Some(Self::List)
        } else if text.contains("<tool_call>") {
            Some(Self::Tags)
        } else if starts("{") || starts("<|python_tag|>") {
            Some(Self::Json)
        } else {
            None
        }
    }
}

/// The tool calls of one template.
#[derive(Clone, Debug)]
pub struct CallFormat {
    pub syntax: CallSyntax,
    /// What a reply with a call starts with.
    before_name: RenderedText,
    before_arguments: String,
}

impl CallFormat {
    /// The start of a reply that calls some tool, or the tool `name`. It does not end with a space, which tokenizers
    /// join with what follows.
    pub fn opening(&self, name: Option<&str>) -> RenderedText {
        let mut opening = self.before_name.clone();
        if let Some(name) = name {
            opening.text += name;
            opening.text += self.before_arguments.trim_end();
        }
        opening
    }
}

impl ChatTemplate {
    /// How the template writes tool calls; `None` if it has none, or none that we can read back.
    pub fn call_format(&self) -> Option<CallFormat> {
        let arguments = json!({"key": "value"});
        let tool = json!({"type": "function", "function": {
            "name": NAME, "description": "An example",
            "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "A key"}}},
        }});
        let call = json!({"id": "call00000", "type": "function",
            "function": {"name": NAME, "arguments": arguments}});
        let messages = [
            Message::new("user", "Call it."),
            Message {
                tool_calls: vec![call],
                ..Message::new("assistant", "")
            },
        ];
        let tools = [tool];
        let annotated = self.annotate(Chat::new(&messages, &tools)).ok()?;
        let trained = |part: &&MessagePart| part.trained;
        let reply = annotated.parts.iter().find(trained)?.range.clone();
        let text = &annotated.rendered.text;
        let name = reply.start + text[reply.clone()].find(NAME)?;
        let after_name = &text[name + NAME.len()..reply.end];
        let before_arguments = &after_name[..after_name.find(&arguments_text(&arguments))?];
        Some(CallFormat {
            syntax: CallSyntax::of_reply(&text[reply.clone()])?,
            before_name: annotated.rendered.slice(reply.start..name),
            before_arguments: before_arguments.to_owned(),
        })
    }
}

fn arguments_text(arguments: &Value) -> String {
    crate::json::dumps(arguments).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(name: &str) -> Option<CallFormat> {
        let path = format!(
            "{}/tests/data/jinja/{name}.jinja",
            env!("CARGO_MANIFEST_DIR")
        );
        let source = std::fs::read_to_string(path).unwrap();
        let controls = [
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|im_start|>",
            "<|im_end|>",
            "[TOOL_CALLS]",
            "[INST]",
            "[/INST]",
            "</s>",
        ];
        let template = ChatTemplate::new(&source, "", "</s>").unwrap();
        let template = template.with_controls(controls.map(String::from)).unwrap();
        template.call_format()
    }

    #[test]
    fn the_syntax_of_a_template_is_recognized() {
        let syntax = |name| format(name).map(|format| format.syntax);
        assert_eq!(syntax("call_json"), Some(CallSyntax::Json));
        assert_eq!(syntax("call_tags"), Some(CallSyntax::Tags));
        assert_eq!(syntax("call_list"), Some(CallSyntax::List));
        assert_eq!(syntax("brackets"), None);
        assert!(ChatTemplate::absent().call_format().is_none());
    }

    #[test]
    fn openings_are_the_start_of_a_call() {
        let opening = |name, tool| format(name).unwrap().opening(tool);
        let text = |name, tool| opening(name, tool).text;
        assert_eq!(text("call_json", None), "{\"name\": \"");
        assert_eq!(
            text("call_json", Some("f")),
            "{\"name\": \"f\", \"parameters\":"
        );
        assert_eq!(
            text("call_tags", Some("f")),
            "<think>\n\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\":"
        );
        let list = opening("call_list", Some("f"));
        assert_eq!(list.text, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\":");
        assert_eq!(list.controls.first(), Some(&(0..12)));
    }
}
