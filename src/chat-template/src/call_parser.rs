//! Reads the tool calls in a reply while it is generated.

use serde_json::{Map, Value};

use crate::call_block::{CLOSE_TAG, ClosingTag, OPEN_TAG, call_fields};
use crate::call_format::CallSyntax;

/// Starts code for the built-in interpreter of Llama 3.1.
pub const PYTHON_TAG: &str = "<|python_tag|>";
const CALLS_TAG: &str = "[TOOL_CALLS]";

/// Texts that may be control tokens and that the parser must see.
pub const CALL_TAGS: [&str; 6] = [
    PYTHON_TAG,
    CALLS_TAG,
    OPEN_TAG,
    CLOSE_TAG,
    "[ARGS]",
    "[CALL_ID]",
];

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyPart {
    Text(String),
    Call(ToolCall),
}

/// What may be called.
#[derive(Clone, Debug)]
pub enum CallableTools {
    Any,
    /// OpenAI's `tools`.
    Of(Vec<Value>),
}

impl CallableTools {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tools) => tools.iter().any(|tool| tool_name(tool) == Some(name)),
        }
    }

    /// The only tool that takes code: one that has the one parameter `code`.
    fn interpreter(&self) -> Option<&str> {
        let Self::Of(tools) = self else { return None };
        let takes_code = |tool: &&Value| {
            let parameters = tool["function"]["parameters"]["properties"].as_object();
            parameters.is_some_and(|all| all.len() == 1 && all.contains_key("code"))
        };
        let mut found = tools.iter().filter(takes_code);
        match (found.next(), found.next()) {
            (Some(tool), None) => tool_name(tool),
            _ => None,
        }
    }
}

/// The name of a tool as OpenAI's API has it.
pub fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

/// Splits a reply into text and calls. What is not a well-formed call of a known tool is text.
#[derive(Clone, Debug)]
pub struct CallParser {
    syntax: CallSyntax,
    tools: CallableTools,
    state: State,
    /// Text that is not decided.
    held: String,
    /// The end of the current call.
    closing: ClosingTag,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space has come.
    Start,
    Text,
    /// After a call: white space is dropped.
    Between,
    /// Inside of a call. With it, the text that opened it and white space before.
    Call(String),
}

impl CallParser {
    pub fn new(syntax: CallSyntax, tools: CallableTools) -> Self {
        Self {
            syntax,
            tools,
            state: State::Start,
            held: String::new(),
            closing: ClosingTag::default(),
        }
    }

    /// Splits a whole reply.
    pub fn split(syntax: CallSyntax, tools: CallableTools, reply: &str) -> Vec<ReplyPart> {
        let mut parser = Self::new(syntax, tools);
        let mut parts = parser.push(reply);
        parts.extend(parser.finish());
        joined(parts)
    }

    /// Adds text of the reply. Returns the parts that are decided.
    pub fn push(&mut self, text: &str) -> Vec<ReplyPart> {
        self.held.push_str(text);
        let mut parts = vec![];
        while self.step(&mut parts) {}
        parts
    }

    /// The rest of the reply.
    pub fn finish(&mut self) -> Vec<ReplyPart> {
        let rest = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.state, State::Text) {
            State::Call(opening) => match self.calls_at_end(&opening, &rest) {
                Some(calls) => calls.into_iter().map(ReplyPart::Call).collect(),
                None => text(opening + &rest),
            },
            State::Between => text(rest.trim_start().to_owned()),
            State::Start | State::Text => text(rest),
        }
    }

    fn opening_tag(&self) -> &'static str {
        match self.syntax {
            CallSyntax::Json => PYTHON_TAG,
            CallSyntax::Tags => OPEN_TAG,
            CallSyntax::List => CALLS_TAG,
        }
    }

    /// Decides about the start of the held text. `false` if more text is needed.
    fn step(&mut self, parts: &mut Vec<ReplyPart>) -> bool {
        if let State::Call(opening) = &self.state {
            let opening = opening.clone();
            return self.syntax == CallSyntax::Tags && self.close(&opening, parts);
        }
        let start = self.held.trim_start();
        if start.is_empty() {
            return false;
        }
        if self.state == State::Start && self.syntax == CallSyntax::Json && start.starts_with('{') {
            self.state = State::Call(String::new());
            return false;
        }
        let tag = self.opening_tag();
        if let Some(at) = self.held.find(tag) {
            let before = self.held[..at].trim_end().len();
            let (from, rest) = (self.between(), at + tag.len());
            parts.extend(text(self.held[from.min(before)..before].to_owned()));
            self.state = State::Call(self.held[from.max(before)..rest].to_owned());
            self.held.drain(..rest);
            self.closing = ClosingTag::default();
            return true;
        }
        // White space belongs to a call that may follow.
        let decided = self.held.len() - overlap(&self.held, tag);
        let decided = self.held[..decided].trim_end().len();
        let from = self.between();
        if decided > from {
            parts.extend(text(self.held[from..decided].to_owned()));
            self.held.drain(..decided);
            self.state = State::Text;
        }
        false
    }

    /// Where the text after a call starts.
    fn between(&self) -> usize {
        match self.state {
            State::Between => self.held.len() - self.held.trim_start().len(),
            _ => 0,
        }
    }

    /// Looks for the end of a call in tags.
    fn close(&mut self, opening: &str, parts: &mut Vec<ReplyPart>) -> bool {
        let Some(at) = self.closing.find(&self.held) else {
            return false;
        };
        let end = at + CLOSE_TAG.len();
        let call = serde_json::from_str(&self.held[..at]).ok();
        match call.and_then(|call| self.call(&call)) {
            Some(call) => {
                parts.push(ReplyPart::Call(call));
                self.state = State::Between;
            }
            None => {
                parts.extend(text(opening.to_owned() + &self.held[..end]));
                self.state = State::Text;
            }
        }
        self.held.drain(..end);
        true
    }

    /// The calls of a reply that ends inside of a call.
    fn calls_at_end(&self, opening: &str, rest: &str) -> Option<Vec<ToolCall>> {
        let rest = rest.trim();
        match self.syntax {
            CallSyntax::Tags => Some(vec![self.call(&serde_json::from_str(rest).ok()?)?]),
            CallSyntax::Json => self.calls(rest).or_else(|| {
                let python = opening.ends_with(PYTHON_TAG).then_some(rest)?;
                Some(vec![self.python(python)?])
            }),
            CallSyntax::List => match rest.starts_with(['[', '{']) {
                true => self.calls(rest),
                false => rest.split(CALLS_TAG).map(|call| self.named(call)).collect(),
            },
        }
    }

    /// Calls as JSON: one after another, or in a list.
    fn calls(&self, text: &str) -> Option<Vec<ToolCall>> {
        let (mut calls, mut rest) = (vec![], text);
        while !rest.is_empty() {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match values.next()?.ok()? {
                Value::Array(listed) => {
                    for call in &listed {
                        calls.push(self.call(call)?);
                    }
                }
                call => calls.push(self.call(&call)?),
            }
            rest = rest[values.byte_offset()..]
                .trim_start_matches(|c: char| c.is_whitespace() || ";,".contains(c));
        }
        (!calls.is_empty()).then_some(calls)
    }

    fn call(&self, value: &Value) -> Option<ToolCall> {
        let (name, arguments) = call_fields(value)?;
        let arguments = match arguments {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(Value::String(json)) => serde_json::from_str(json).ok()?,
            Some(_) => return None,
        };
        self.tools.contains(name).then(|| ToolCall {
            name: name.to_owned(),
            arguments,
        })
    }

    /// `name[ARGS]{…}`, perhaps with an id.
    fn named(&self, text: &str) -> Option<ToolCall> {
        let (name, arguments) = text.split_once("[ARGS]")?;
        let name = name.split("[CALL_ID]").next()?.trim();
        self.tools.contains(name).then_some(())?;
        Some(ToolCall {
            name: name.to_owned(),
            arguments: serde_json::from_str(arguments.trim()).ok()?,
        })
    }

    /// `name.call(key="value")`, or code for the interpreter among the tools.
    fn python(&self, text: &str) -> Option<ToolCall> {
        if let Some((name, rest)) = text.split_once(".call(")
            && self.tools.contains(name)
            && let Some(arguments) = rest.strip_suffix(')').and_then(keyword_arguments)
        {
            let name = name.to_owned();
            return Some(ToolCall { name, arguments });
        }
        let name = self.tools.interpreter().filter(|_| !text.is_empty())?;
        Some(ToolCall {
            name: name.to_owned(),
            arguments: Map::from_iter([("code".to_owned(), text.into())]),
        })
    }
}

/// `a="x", b=2`, whose values are JSON.
fn keyword_arguments(text: &str) -> Option<Map<String, Value>> {
    let (mut arguments, mut rest) = (Map::new(), text.trim());
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=')?;
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
        arguments.insert(name.trim().to_owned(), values.next()?.ok()?);
        rest = value[values.byte_offset()..].trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(arguments)
}

fn text(text: String) -> Vec<ReplyPart> {
    match text.is_empty() {
        true => vec![],
        false => vec![ReplyPart::Text(text)],
    }
}

/// Joins texts that follow each other.
fn joined(parts: Vec<ReplyPart>) -> Vec<ReplyPart> {
    let mut all: Vec<ReplyPart> = vec![];
    for part in parts {
        match (all.last_mut(), part) {
            (Some(ReplyPart::Text(text)), ReplyPart::Text(more)) => text.push_str(&more),
            (_, part) => all.push(part),
        }
    }
    all
}

/// Length of the longest proper prefix of `tag` at the end of `text`.
fn overlap(text: &str, tag: &str) -> usize {
    let ends = (1..tag.len())
        .rev()
        .filter(|&end| tag.is_char_boundary(end));
    ends.into_iter()
        .find(|&end| text.ends_with(&tag[..end]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const ALL: [CallSyntax; 3] = [CallSyntax::Json, CallSyntax::Tags, CallSyntax::List];

    fn tools() -> CallableTools {
        let tool = |name: &str, key: &str| {
            let parameters = json!({"type": "object", "properties": {key: {"type": "string"}}});
            json!({"type": "function", "function": {"name": name, "parameters": parameters}})
        };
        CallableTools::Of(vec![tool("python", "code"), tool("search", "query")])
    }

    fn call(name: &str, arguments: Value) -> ReplyPart {
        ReplyPart::Call(ToolCall {
            name: name.into(),
            arguments: arguments.as_object().unwrap().clone(),
        })
    }

    fn said(text: &str) -> ReplyPart {
        ReplyPart::Text(text.into())
    }

    fn split(syntax: CallSyntax, reply: &str) -> Vec<ReplyPart> {
        CallParser::split(syntax, tools(), reply)
    }

    #[test]
    fn calls_of_llama_are_read() {
        let one = r#"{"name": "search", "parameters": {"query": "a"}}"#;
        let wanted = call("search", json!({"query": "a"}));
        let split = |reply: &str| split(CallSyntax::Json, reply);
        assert_eq!(split(one), vec![wanted.clone()]);
        assert_eq!(split(&format!("\n{one}; {one}\n")), vec![wanted.clone(); 2]);
        assert_eq!(
            split(&format!("I look. <|python_tag|>{one}")),
            [said("I look."), wanted]
        );
        assert_eq!(
            split("<|python_tag|>search.call(query=\"a, b\", n=2)"),
            [call("search", json!({"query": "a, b", "n": 2}))]
        );
        assert_eq!(
            split("<|python_tag|>print(1)\nprint(2)"),
            [call("python", json!({"code": "print(1)\nprint(2)"}))]
        );
    }

    #[test]
    fn calls_in_tags_are_read() {
        let one = "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"'</tool_call>'\"}}\n</tool_call>";
        let wanted = call("python", json!({"code": "'</tool_call>'"}));
        let split = |reply: &str| split(CallSyntax::Tags, reply);
        assert_eq!(
            split(&format!("I run it.\n{one}\n{one} Done.")),
            [
                said("I run it."),
                wanted.clone(),
                wanted.clone(),
                said("Done.")
            ]
        );
        let open = one.trim_end_matches("</tool_call>");
        assert_eq!(split(open), [wanted], "a stop string may cut the end");
    }

    #[test]
    fn calls_of_mistral_are_read() {
        let search = |query: &str| call("search", json!({"query": query}));
        let split = |reply: &str| split(CallSyntax::List, reply);
        assert_eq!(
            split(
                r#"[TOOL_CALLS] [{"name": "search", "arguments": {"query": "a"}, "id": "123456789"}, {"name": "search", "arguments": "{\"query\": \"b\"}"}]"#
            ),
            [search("a"), search("b")]
        );
        assert_eq!(
            split(
                r#"So.[TOOL_CALLS]search[ARGS]{"query": "a"}[TOOL_CALLS]search[CALL_ID]12[ARGS]{"query": "b"}"#
            ),
            [said("So."), search("a"), search("b")]
        );
    }

    #[test]
    fn what_is_no_call_is_text() {
        for (syntax, reply) in [
            (CallSyntax::Json, r#"{"name": "rm", "parameters": {}}"#),
            (
                CallSyntax::Json,
                r#"{"name": "search", "parameters": {"query": "#,
            ),
            (CallSyntax::Json, r#"{"name": "search", "parameters": [1]}"#),
            (CallSyntax::Json, r#" {"answer": 4} "#),
            (CallSyntax::Json, r#"{"name": "search"} and more"#),
            (CallSyntax::Json, "<|python_tag|>"),
            (
                CallSyntax::Tags,
                "a \n<tool_call>\n{\"name\": \"search\"\n</tool_call>\n b",
            ),
            (
                CallSyntax::Tags,
                "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q",
            ),
            (CallSyntax::Tags, " a <tool_call><tool_"),
            (CallSyntax::List, "[TOOL_CALLS] [{]"),
            (CallSyntax::List, "[TOOL_CALLS]search{}"),
            (CallSyntax::List, "[TOOL_"),
        ] {
            assert_eq!(split(syntax, reply), [said(reply)], "{syntax:?}");
        }
    }

    #[test]
    fn text_is_not_held_back_longer_than_necessary() {
        let mut parser = CallParser::new(CallSyntax::Tags, tools());
        assert_eq!(parser.push("Let me "), [said("Let me")]);
        assert_eq!(parser.push("see <tool"), [said(" see")]);
        assert_eq!(parser.push("box"), [said(" <toolbox")]);
        assert_eq!(parser.push("\n<tool_call>{\"name\": \"search\"}"), []);
        assert_eq!(parser.push("</tool_call>"), [call("search", json!({}))]);
        assert_eq!(parser.push("\n"), []);
        assert_eq!(parser.finish(), []);
    }

    proptest! {
        #[test]
        fn token_boundaries_do_not_matter(
            reply in prop::collection::vec(prop::sample::select(vec![
                "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "{\"name\": \"search\"}",
                "{\"name\": \"search\", \"arguments\": {\"query\": \"</tool_call>\"}}", " ", "\n", "a", "é", "[", "]", "{", "\"", ";",
            ]), 0..12),
            mut cuts in prop::collection::vec(0usize..200, 0..12),
        ) {
            let reply = reply.concat();
            cuts.sort();
            for syntax in ALL {
                let mut parser = CallParser::new(syntax, tools());
                let (mut parts, mut start) = (vec![], 0);
                for &cut in cuts.iter().chain([&reply.len()]) {
                    let cut = (start..=cut.clamp(start, reply.len())).rev().find(|&cut| reply.is_char_boundary(cut)).unwrap();
                    parts.extend(parser.push(&reply[start..cut]));
                    start = cut;
                }
                parts.extend(parser.finish());
                prop_assert_eq!(joined(parts), split(syntax, &reply));
            }
        }

        #[test]
        fn nothing_is_lost_without_calls(reply in "(?s)[a-z <>\\[\\]{}\"_|/\n]{0,40}") {
            for syntax in ALL {
                let wanted = text(reply.clone());
                prop_assert_eq!(split(syntax, &reply), wanted);
            }
        }
    }
}
