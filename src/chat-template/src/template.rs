//! Chat templates are Jinja programs that come with a model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use chrono::NaiveDate;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};
use thiserror::Error;

use crate::controls::Controls;
use crate::json::{dumps, to_template};
use crate::marks::Marks;
use crate::message::{Chat, Message};
use crate::python;

const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Instructions per rendering: about one second, a hundred times what 10,000 messages need.
const MAX_INSTRUCTIONS: u64 = 20_000_000;
/// Bytes that a template may add per message, and once for the whole conversation.
const MAX_ADDED_BYTES: usize = 64 << 10;
/// How much longer messages and tools may become: JSON in JSON, or indented.
const MAX_GROWTH: usize = 8;
/// The date that Llama's own templates name when they are given none.
const DEFAULT_DATE: NaiveDate = match NaiveDate::from_ymd_opt(2024, 7, 26) {
    Some(date) => date,
    None => NaiveDate::MIN,
};

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
        "the chat template drops, repeats or moves message {message} of the assistant, so it is unknown which tokens the model has to write"
    )]
    Opaque { message: usize },
    #[error(
        "a message contains a control token of the model and the chat template decides by it, so the token cannot be told from those of the template; remove it from the message"
    )]
    ControlInMessage,
}

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    source: Option<String>,
    bos: String,
    eos: String,
    date: NaiveDate,
    pub(crate) controls: Controls,
    plain: Program,
    marked: MarkedProgram,
}

impl ChatTemplate {
    /// Compiles a template with the tokenizer's `bos_token` and `eos_token`.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong(source.len()));
        }
        let template = Self {
            source: Some(source.into()),
            bos: bos.into(),
            eos: eos.into(),
            ..Self::absent()
        };
        template.compile()
    }

    /// Stands for the missing template of a model; it rejects every conversation.
    pub fn absent() -> Self {
        Self {
            source: None,
            bos: String::new(),
            eos: String::new(),
            date: DEFAULT_DATE,
            controls: Controls::default(),
            plain: Program::default(),
            marked: MarkedProgram::default(),
        }
    }

    /// Names the control tokens of the tokenizer, which the template may write and messages may not.
    pub fn with_controls(
        self,
        controls: impl IntoIterator<Item = String>,
    ) -> Result<Self, TemplateError> {
        let controls = Controls::new(controls);
        Self { controls, ..self }.compile()
    }

    /// Sets the date that `strftime_now` returns.
    pub fn with_date(self, date: NaiveDate) -> Result<Self, TemplateError> {
        Self { date, ..self }.compile()
    }

    fn compile(mut self) -> Result<Self, TemplateError> {
        if let Some(source) = &self.source {
            self.plain = Program::compile(source, &self.bos, &self.eos, self.date)?;
            self.marked = self.compile_marked(Marks::unused_in([source]))?;
        }
        Ok(self)
    }

    pub fn is_absent(&self) -> bool {
        self.source.is_none()
    }

    pub fn source(&self) -> &str {
        self.source.as_deref().unwrap_or_default()
    }

    /// A hash of everything that determines the text of a conversation.
    pub fn digest(&self) -> String {
        let all = format!("{:?}", (&self.source, &self.bos, &self.eos, self.date));
        blake3::hash(all.as_bytes()).to_hex().to_string()
    }

    /// The conversation as text. Templates are untrusted: instructions and output are bounded.
    pub fn render<'a>(
        &self,
        chat: impl Into<Chat<'a>>,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        match self.is_absent() {
            true => Err(TemplateError::Absent),
            false => self.plain.render(chat.into(), add_generation_prompt),
        }
    }

    /// The program that writes marks instead of control tokens, none of which occurs in the conversation; and
    /// further marks.
    pub(crate) fn marked_for(
        &self,
        chat: Chat<'_>,
    ) -> Result<(Cow<'_, MarkedProgram>, Marks), TemplateError> {
        if self.is_absent() {
            return Err(TemplateError::Absent);
        }
        let roles = chat.messages.iter().map(|message| message.role.clone());
        let mut marks = Marks::unused_in(chat.texts().chain(roles));
        let controls = &self.marked.controls;
        let program = match controls.keys().any(|&mark| marks.is_taken(mark)) {
            false => Cow::Borrowed(&self.marked),
            true => {
                let mut others = marks.clone();
                others.avoid(self.source());
                Cow::Owned(self.compile_marked(others)?)
            }
        };
        marks.avoid(self.source());
        program
            .controls
            .keys()
            .for_each(|mark| marks.avoid(&mark.to_string()));
        Ok((program, marks))
    }

    fn compile_marked(&self, mut marks: Marks) -> Result<MarkedProgram, TemplateError> {
        let mut controls = HashMap::new();
        let mut by_text = HashMap::new();
        let mut replace = |text: &str| -> Result<String, TemplateError> {
            let (mut out, mut done) = (String::new(), 0);
            for range in self.controls.find_all(text) {
                let control = &text[range.clone()];
                let mark = match by_text.get(control) {
                    Some(&mark) => mark,
                    None => {
                        let mark = marks.take().ok_or(TemplateError::LimitExceeded)?;
                        by_text.insert(control.to_owned(), mark);
                        controls.insert(mark, control.to_owned());
                        mark
                    }
                };
                out.push_str(&text[done..range.start]);
                out.push(mark);
                done = range.end;
            }
            Ok(out + &text[done..])
        };
        let (source, bos, eos) = (
            replace(self.source())?,
            replace(&self.bos)?,
            replace(&self.eos)?,
        );
        Ok(MarkedProgram {
            program: Program::compile(&source, &bos, &eos, self.date)?,
            controls,
        })
    }
}

/// The tool calls of a message as JSON; empty where there are none.
pub fn tool_calls_json(message: &Message) -> String {
    match message.tool_calls.is_empty() {
        true => String::new(),
        false => dumps(&message.tool_calls).unwrap_or_default(),
    }
}

/// A template whose control tokens are replaced by marks, so that they can be told from those in messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarkedProgram {
    pub(crate) program: Program,
    /// The control token that each mark stands for.
    pub(crate) controls: HashMap<char, String>,
}

/// A compiled Jinja program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    /// Whether the source slices something backwards.
    reverses: bool,
}

impl Program {
    fn compile(source: &str, bos: &str, eos: &str, date: NaiveDate) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        python::add_to(&mut environment, date);
        environment
            .add_template_owned("chat", python::normalized(source))
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        Ok(Self {
            environment,
            bos: bos.into(),
            eos: eos.into(),
            reverses: source.contains("[::-"),
        })
    }

    pub(crate) fn render(
        &self,
        chat: Chat<'_>,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        let roles = chat.messages.iter().map(|message| message.role.len());
        let inputs = chat.texts().map(|text| text.len()).sum::<usize>() + roles.sum::<usize>();
        let added = MAX_ADDED_BYTES.saturating_mul(chat.messages.len() + 1);
        let max = inputs.saturating_mul(MAX_GROWTH).saturating_add(added);
        let mut out = BoundedWriter { text: vec![], max };
        let mut run = || {
            let template = self.environment.get_template("chat")?;
            let tools = chat.tools.iter().map(to_template).collect::<Vec<_>>();
            let context = context! {
                messages => chat.messages.iter().map(value).collect::<Vec<_>>(),
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
                add_generation_prompt => add_generation_prompt,
                tools => if tools.is_empty() { Value::from(()) } else { tools.into() },
                documents => (),
            };
            template.render_captured_to(context, &mut out).map(drop)
        };
        // minijinja 3.0.5 panics when it iterates over an empty list backwards. Where that is expected, it shall not
        // print a panic.
        let rejected = || TemplateError::Rejected("it reverses an empty list".into());
        if chat.messages.is_empty() && self.reverses {
            return Err(rejected());
        }
        let done = catch_unwind(AssertUnwindSafe(&mut run)).map_err(|_| rejected())?;
        match done.map_err(|error: minijinja::Error| (error.kind(), describe(&error))) {
            Ok(()) => String::from_utf8(out.text)
                .map_err(|error| TemplateError::Rejected(error.to_string())),
            Err((ErrorKind::OutOfFuel | ErrorKind::WriteFailure, _)) => {
                Err(TemplateError::LimitExceeded)
            }
            Err((_, text)) => Err(TemplateError::Rejected(text)),
        }
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
    pairs.extend(
        message
            .tool_call_id
            .as_ref()
            .map(|id| ("tool_call_id", text(id))),
    );
    pairs.extend(message.name.as_ref().map(|name| ("name", text(name))));
    Value::from_pairs(pairs)
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
        let text = template.render(&messages, false).unwrap();
        assert_eq!(text.matches("<|im_end|>").count(), 5_000);
    }

    #[test]
    fn rejections_carry_the_templates_message() {
        let source = "{{ raise_exception('roles must alternate') }}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let error = template
            .render(&[] as &[Message], false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("roles must alternate"), "{error}");
    }

    #[test]
    fn a_slice_of_nothing_does_not_end_the_program() {
        let source = "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let both = [Message::new("user", "a"), Message::new("assistant", "b")];
        assert_eq!(template.render(&both, false).unwrap(), "ba");
        let other = "{% set nothing = messages[5:] %}{% for m in nothing[::-1] %}{% endfor %}";
        let other = ChatTemplate::new(other, "", "").unwrap();
        let reversed = [
            template.render(&[] as &[Message], false),
            other.render(&both, false),
        ];
        for rendered in reversed {
            let rejected = matches!(&rendered, Err(TemplateError::Rejected(_)));
            assert!(rejected, "{rendered:?}");
        }
    }

    #[test]
    fn tools_ids_and_names_reach_the_template() {
        let source = "{{ tools | tojson(indent=2) }}{% for m in messages %}{{ m.name }}{{ m.tool_call_id }}{% endfor %}{{ strftime_now('%d %b %Y') }}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let tools = [serde_json::json!({"name": "f"})];
        let messages = [Message {
            tool_call_id: Some("7".into()),
            name: Some("f".into()),
            ..Message::new("tool", "2")
        }];
        let text = template
            .render(Chat::new(&messages, &tools), false)
            .unwrap();
        assert_eq!(text, "[\n  {\n    \"name\": \"f\"\n  }\n]f726 Jul 2024");
        let date = NaiveDate::from_ymd_opt(2025, 1, 2).unwrap();
        let template = template.with_date(date).unwrap();
        assert!(
            template
                .render(&messages, false)
                .unwrap()
                .ends_with("02 Jan 2025")
        );
    }
}
