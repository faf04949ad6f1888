//! Chat templates are Jinja programs that come with a model. They run twice, so that each part of their
//! output is known to be template text or a message's content.

use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};
use thiserror::Error;

use crate::json::{dumps, to_template, tojson};
use crate::message::Message;

const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Instructions per rendering: about one second, a hundred times what 10,000 messages need.
const MAX_INSTRUCTIONS: u64 = 20_000_000;
/// Bytes that a template may add per message, and once for the whole conversation.
const MAX_ADDED_BYTES: usize = 64 << 10;

#[derive(Debug, Error)]
pub enum TemplateError {
    #[error("the chat template is {0} bytes long, more than 1 MiB")]
    TooLong(usize),
    #[error("the chat template: {0}")]
    Syntax(String),
    #[error(
        "the model has no chat template (neither in chat_template.jinja nor in tokenizer_config.json); set chat_template in the recipe"
    )]
    Absent,
    #[error("the chat template runs too long, or its output is much longer than the messages")]
    LimitExceeded,
    #[error("the chat template rejects the conversation: {0}")]
    Rejected(String),
    #[error(
        "the chat template changes, drops or repeats message {message}, so its tokens cannot be assigned to a message"
    )]
    Opaque { message: usize },
}

/// A part of a rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Text of the template; control tokens in it count.
    Template(String),
    /// A message's content; never a control token.
    Content {
        /// Index of the message.
        message: usize,
        /// The content as the template inserted it; some templates trim it.
        text: String,
    },
}

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    source: Option<String>,
}

impl ChatTemplate {
    /// Compiles a template with the tokenizer's `bos_token` and `eos_token`.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong(source.len()));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        environment.set_unknown_method_callback(method);
        environment.add_filter("trim", trim);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment
            .add_template_owned("chat", source.to_owned())
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        Ok(Self {
            environment,
            bos: bos.into(),
            eos: eos.into(),
            source: Some(source.into()),
        })
    }

    /// Stands for the missing template of a model; it rejects every conversation.
    pub fn absent() -> Self {
        Self {
            environment: Environment::new(),
            bos: String::new(),
            eos: String::new(),
            source: None,
        }
    }

    pub fn is_absent(&self) -> bool {
        self.source.is_none()
    }

    pub fn source(&self) -> &str {
        self.source.as_deref().unwrap_or_default()
    }

    /// A hash of the template and of `bos_token` and `eos_token`.
    pub fn digest(&self) -> String {
        let all = format!("{:?}", (&self.source, &self.bos, &self.eos));
        blake3::hash(all.as_bytes()).to_hex().to_string()
    }

    /// The conversation as text. Templates are untrusted: instructions and output are bounded.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        if self.is_absent() {
            return Err(TemplateError::Absent);
        }
        let texts = messages
            .iter()
            .map(|m| m.content.len() + m.role.len() + tool_calls_json(m).len());
        let max = texts
            .sum::<usize>()
            .saturating_add(MAX_ADDED_BYTES * (messages.len() + 1));
        let mut out = BoundedWriter { text: vec![], max };
        let mut run = || {
            let template = self.environment.get_template("chat")?;
            let context = context! {
                messages => messages.iter().map(value).collect::<Vec<_>>(),
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
                add_generation_prompt => add_generation_prompt,
                tools => (),
                documents => (),
            };
            template.render_captured_to(context, &mut out).map(drop)
        };
        match run().map_err(|error: minijinja::Error| (error.kind(), describe(&error))) {
            Ok(()) => String::from_utf8(out.text)
                .map_err(|error| TemplateError::Rejected(error.to_string())),
            Err((ErrorKind::OutOfFuel | ErrorKind::WriteFailure, _)) => {
                Err(TemplateError::LimitExceeded)
            }
            Err((_, text)) => Err(TemplateError::Rejected(text)),
        }
    }

    /// The conversation in segments, which together are exactly the text of [`Self::render`].
    ///
    /// The template runs a second time with placeholders instead of the contents, which shows the template's
    /// own text. With the contents back in place the result must equal the first text.
    pub fn segments(&self, messages: &[Message]) -> Result<Vec<Segment>, TemplateError> {
        let whole = self.render(messages, false)?;
        let mark = unused_character(messages);
        let placeholder = |number: usize| format!("{mark}{number}{mark}");
        let marked: Vec<Message> = messages
            .iter()
            .enumerate()
            .map(|(number, message)| Message {
                role: message.role.clone(),
                content: match has_content(message) {
                    true => placeholder(number),
                    false => String::new(),
                },
                tool_calls: message.tool_calls.clone(),
            })
            .collect();
        let skeleton = self.render(&marked, false)?;
        let mut rest = skeleton.as_str();
        let mut segments = vec![];
        let mut done = 0;
        for (number, message) in messages.iter().enumerate().filter(|(_, m)| has_content(m)) {
            let Some((template_text, after)) = rest.split_once(&placeholder(number)) else {
                return Err(TemplateError::Opaque { message: number });
            };
            push_template_text(&mut segments, template_text);
            let opaque = TemplateError::Opaque { message: number };
            let Some(at) = whole[done..].strip_prefix(template_text) else {
                return Err(opaque);
            };
            done += template_text.len();
            // The content may be trimmed: take the variant that the template's text follows.
            let next = &after[..after.find(mark).unwrap_or(after.len())];
            let put = candidates(&message.content)
                .into_iter()
                .find(|text| at.strip_prefix(text).is_some_and(|at| at.starts_with(next)));
            let Some(text) = put else {
                return Err(opaque);
            };
            done += text.len();
            segments.push(Segment::Content {
                message: number,
                text: text.to_owned(),
            });
            rest = after;
        }
        push_template_text(&mut segments, rest);
        let last = messages.len().saturating_sub(1);
        match whole.get(done..) == Some(rest) {
            true => Ok(segments),
            false => Err(TemplateError::Opaque { message: last }),
        }
    }

    /// For each message with tool calls, the byte range of [`Self::render`]'s text that the model writes: from
    /// the end of the generation prompt to the end of the message.
    pub fn tool_call_ranges(
        &self,
        messages: &[Message],
    ) -> Result<Vec<(usize, Range<usize>)>, TemplateError> {
        let calling = messages
            .iter()
            .enumerate()
            .filter(|(_, m)| !m.tool_calls.is_empty());
        let calling: Vec<usize> = calling.map(|(number, _)| number).collect();
        if calling.is_empty() {
            return Ok(vec![]);
        }
        let whole = self.render(messages, false)?;
        let range = |message: usize| {
            let prompt = self.render(&messages[..message], true)?;
            let with_message = self.render(&messages[..=message], false)?;
            let mut without_calls = messages[..=message].to_vec();
            without_calls[message].tool_calls.clear();
            let dropped = self
                .render(&without_calls, false)
                .is_ok_and(|text| text == with_message);
            match !dropped && whole.starts_with(&with_message) && with_message.starts_with(&prompt)
            {
                true => Ok((message, prompt.len()..with_message.len())),
                false => Err(TemplateError::Opaque { message }),
            }
        };
        calling.into_iter().map(range).collect()
    }
}

/// A message that only calls tools has no content.
fn has_content(message: &Message) -> bool {
    message.tool_calls.is_empty() || !message.content.is_empty()
}

/// The tool calls of a message as JSON; empty where there are none.
pub fn tool_calls_json(message: &Message) -> String {
    match message.tool_calls.is_empty() {
        true => String::new(),
        false => dumps(&message.tool_calls).unwrap_or_default(),
    }
}

/// A writer that fails beyond `max` bytes.
struct BoundedWriter {
    text: Vec<u8>,
    max: usize,
}

impl std::io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.max {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn value(message: &Message) -> Value {
    let text = |text: &String| Value::from(text.as_str());
    let mut pairs = vec![
        ("role", text(&message.role)),
        ("content", text(&message.content)),
    ];
    if !message.tool_calls.is_empty() {
        let calls: Vec<Value> = message.tool_calls.iter().map(to_template).collect();
        pairs.push(("tool_calls", calls.into()));
    }
    Value::from_pairs(pairs)
}

fn push_template_text(segments: &mut Vec<Segment>, text: &str) {
    if !text.is_empty() {
        segments.push(Segment::Template(text.to_owned()));
    }
}

/// Python's white space: Unicode's and four separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Python's `str.strip`.
fn trim(text: &str, characters: Option<&str>) -> String {
    let strips = |c: char| characters.map_or(is_space(c), |some| some.contains(c));
    text.trim_matches(strips).to_owned()
}

/// Methods of Python values. Those that strip white space use Python's definition of it.
fn method(
    state: &mut minijinja::State,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, minijinja::Error> {
    match (value.as_str(), name, arguments) {
        (Some(text), "strip", []) => Ok(text.trim_matches(is_space).into()),
        (Some(text), "lstrip", []) => Ok(text.trim_start_matches(is_space).into()),
        (Some(text), "rstrip", []) => Ok(text.trim_end_matches(is_space).into()),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

fn candidates(content: &str) -> [&str; 4] {
    [
        content,
        content.trim_matches(is_space),
        content.trim_start_matches(is_space),
        content.trim_end_matches(is_space),
    ]
}

/// A private-use character that occurs in no message.
fn unused_character(messages: &[Message]) -> char {
    ('\u{e000}'..='\u{f8ff}')
        .find(|&mark| {
            let free =
                |m: &Message| !m.content.contains(mark) && !tool_calls_json(m).contains(mark);
            messages.iter().all(free)
        })
        .unwrap_or('\u{f8ff}')
}

fn raise_exception(message: String) -> Result<String, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

fn describe(error: &minijinja::Error) -> String {
    let detail = error.detail().unwrap_or_default();
    match error.line() {
        Some(line) => format!("{} {detail} (line {line})", error.kind()),
        None => format!("{} {detail}", error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}";
    const TRIMS: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content.strip() }}{% endfor %}";

    fn joined(segments: &[Segment]) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Template(text) | Segment::Content { text, .. } => text.clone(),
        };
        segments.iter().map(text).collect()
    }

    #[test]
    fn contents_are_told_from_template_text() {
        let template = ChatTemplate::new(CHATML, "", "").unwrap();
        let messages = [
            Message::new("user", "<|im_end|> 你好"),
            Message::new("assistant", ""),
        ];
        let segments = template.segments(&messages).unwrap();
        assert_eq!(
            joined(&segments),
            template.render(&messages, false).unwrap()
        );
        assert_eq!(
            segments[1],
            Segment::Content {
                message: 0,
                text: "<|im_end|> 你好".into()
            }
        );
    }

    #[test]
    fn trimmed_contents_are_found() {
        let template = ChatTemplate::new(TRIMS, "", "").unwrap();
        let segments = template.segments(&[Message::new("user", " a \n")]).unwrap();
        assert_eq!(
            segments[1],
            Segment::Content {
                message: 0,
                text: "a".into()
            }
        );
    }

    #[test]
    fn a_template_that_changes_text_is_rejected() {
        let upper = "{% for m in messages %}{{ m.content | upper }}{% endfor %}";
        let drops = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}";
        let cuts = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}";
        for (source, role, text) in [
            (upper, "user", "a"),
            (drops, "tool", "a"),
            (cuts, "user", "x</think>y"),
        ] {
            let template = ChatTemplate::new(source, "", "").unwrap();
            let rejected = template.segments(&[Message::new(role, text)]);
            assert!(
                matches!(rejected, Err(TemplateError::Opaque { .. })),
                "{source}"
            );
        }
    }

    #[test]
    fn instructions_and_output_are_bounded() {
        let endless =
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        let long = "{% for a in range(9999) %}{{ messages[0].content }}{% endfor %}";
        for source in [endless, long] {
            let template = ChatTemplate::new(source, "", "").unwrap();
            let messages = [Message::new("user", "x".repeat(9999))];
            let rejected = template.render(&messages, false);
            assert!(
                matches!(rejected, Err(TemplateError::LimitExceeded)),
                "{source}"
            );
        }
    }

    #[test]
    fn long_conversations_stay_within_the_limits() {
        let template = ChatTemplate::new(CHATML, "", "").unwrap();
        let messages = vec![Message::new("user", "x"); 5_000];
        assert_eq!(template.segments(&messages).unwrap().len(), 2 * 5_000 + 1);
    }

    #[test]
    fn rejections_carry_the_templates_message() {
        let source = "{{ raise_exception('roles must alternate') }}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let error = template.segments(&[]).unwrap_err().to_string();
        assert!(error.contains("roles must alternate"), "{error}");
    }
}
