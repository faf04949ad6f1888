//! Chat templates: Jinja programs that come with a model, run so that every piece of their output is
//! known to be the template's own text or a message's content.

use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};
use thiserror::Error;

use super::Message;
use super::json::{dumps, to_template, tojson};

/// Most bytes of a template.
const TEMPLATE_BYTES: usize = 1 << 20;
/// Instructions of one run: a second's worth, a hundred times what 10,000 messages need.
const FUEL: u64 = 20_000_000;
/// Bytes that a template may add to each message, and to the whole.
const WORDS: usize = 64 << 10;

/// Why a conversation cannot be rendered.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum TemplateError {
    #[error("the chat template is {0} bytes long, more than 1 MiB")]
    TooLong(usize),
    #[error("the chat template: {0}")]
    Syntax(String),
    #[error(
        "the model has no chat template (neither chat_template.jinja nor in tokenizer_config.json); name one as chat_template in the recipe"
    )]
    Absent,
    #[error("the chat template does not end, or writes much more than the messages")]
    TooMuch,
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    #[error(
        "the chat template does more with message {message} than put it in (it depends on the text, or drops or repeats it), so its tokens cannot be told apart"
    )]
    Opaque { message: usize },
}

/// A piece of a rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The template's own words, in which control tokens count.
    Frame(String),
    /// What a message says; never a control token.
    Content {
        /// Its number.
        message: usize,
        /// The text as the template put it (some trim it).
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
        if source.len() > TEMPLATE_BYTES {
            return Err(TemplateError::TooLong(source.len()));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
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

    /// The template of a model without one: it refuses every conversation.
    pub fn absent() -> Self {
        Self {
            environment: Environment::new(),
            bos: String::new(),
            eos: String::new(),
            source: None,
        }
    }

    /// Whether the model has none.
    pub fn is_absent(&self) -> bool {
        self.source.is_none()
    }

    /// Its text.
    pub fn source(&self) -> &str {
        self.source.as_deref().unwrap_or_default()
    }

    /// A hash of the template and the tokens it puts in.
    pub(super) fn digest(&self) -> String {
        let all = format!("{:?}", (&self.source, &self.bos, &self.eos));
        blake3::hash(all.as_bytes()).to_hex().to_string()
    }

    /// The conversation as text. Templates come from outside: instructions and output are bounded.
    pub fn render(&self, messages: &[Message], prompt: bool) -> Result<String, TemplateError> {
        if self.is_absent() {
            return Err(TemplateError::Absent);
        }
        let texts = messages
            .iter()
            .map(|m| m.content.len() + m.role.len() + call_text(m).len());
        let most = texts
            .sum::<usize>()
            .saturating_add(WORDS * (messages.len() + 1));
        let mut out = Bounded { text: vec![], most };
        let mut run = || {
            let template = self.environment.get_template("chat")?;
            let context = context! {
                messages => messages.iter().map(value).collect::<Vec<_>>(),
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
                add_generation_prompt => prompt,
                tools => (),
                documents => (),
            };
            template.render_captured_to(context, &mut out).map(drop)
        };
        match run().map_err(|error: minijinja::Error| (error.kind(), describe(&error))) {
            Ok(()) => String::from_utf8(out.text)
                .map_err(|error| TemplateError::Refused(error.to_string())),
            Err((ErrorKind::OutOfFuel | ErrorKind::WriteFailure, _)) => Err(TemplateError::TooMuch),
            Err((_, text)) => Err(TemplateError::Refused(text)),
        }
    }

    /// The conversation in pieces, which together are exactly [`Self::render`]'s text.
    ///
    /// The template runs a second time over stand-ins for the contents, which shows its own words;
    /// the contents are put in for the stand-ins, and what comes out must be the first text.
    pub fn pieces(&self, messages: &[Message]) -> Result<Vec<Piece>, TemplateError> {
        let whole = self.render(messages, false)?;
        let mark = unused_mark(messages);
        let stand_in = |number: usize| format!("{mark}{number}{mark}");
        let marked: Vec<Message> = messages
            .iter()
            .enumerate()
            .map(|(number, message)| Message {
                role: message.role.clone(),
                content: match speaks(message) {
                    true => stand_in(number),
                    false => String::new(),
                },
                calls: message.calls.clone(),
            })
            .collect();
        let skeleton = self.render(&marked, false)?;
        let mut rest = skeleton.as_str();
        let mut pieces = vec![];
        let mut done = 0;
        for (number, message) in messages.iter().enumerate().filter(|(_, m)| speaks(m)) {
            let Some((frame, after)) = rest.split_once(&stand_in(number)) else {
                return Err(TemplateError::Opaque { message: number });
            };
            push_frame(&mut pieces, frame);
            let opaque = TemplateError::Opaque { message: number };
            let Some(at) = whole[done..].strip_prefix(frame) else {
                return Err(opaque);
            };
            done += frame.len();
            // Trimmed or as it stands: whichever the template's text goes on with.
            let next = &after[..after.find(mark).unwrap_or(after.len())];
            let put = candidates(&message.content)
                .into_iter()
                .find(|text| at.strip_prefix(text).is_some_and(|at| at.starts_with(next)));
            let Some(text) = put else {
                return Err(opaque);
            };
            done += text.len();
            pieces.push(Piece::Content {
                message: number,
                text: text.to_owned(),
            });
            rest = after;
        }
        push_frame(&mut pieces, rest);
        let last = messages.len().saturating_sub(1);
        match whole.get(done..) == Some(rest) {
            true => Ok(pieces),
            false => Err(TemplateError::Opaque { message: last }),
        }
    }

    /// Where in [`Self::render`]'s text the messages that call tools are written by the model: from
    /// the end of the prompt before each to the end of what the message adds.
    pub(super) fn calls(
        &self,
        messages: &[Message],
    ) -> Result<Vec<(usize, Range<usize>)>, TemplateError> {
        let calling = messages
            .iter()
            .enumerate()
            .filter(|(_, m)| !m.calls.is_empty());
        let calling: Vec<usize> = calling.map(|(number, _)| number).collect();
        if calling.is_empty() {
            return Ok(vec![]);
        }
        let whole = self.render(messages, false)?;
        let place = |message: usize| {
            let prompt = self.render(&messages[..message], true)?;
            let told = self.render(&messages[..=message], false)?;
            let mut silent = messages[..=message].to_vec();
            silent[message].calls.clear();
            let dropped = self.render(&silent, false).is_ok_and(|text| text == told);
            match !dropped && whole.starts_with(&told) && told.starts_with(&prompt) {
                true => Ok((message, prompt.len()..told.len())),
                false => Err(TemplateError::Opaque { message }),
            }
        };
        calling.into_iter().map(place).collect()
    }
}

/// Whether a message has a content to be found: one that only calls tools has none.
fn speaks(message: &Message) -> bool {
    message.calls.is_empty() || !message.content.is_empty()
}

/// The calls of a message as they are written, or nothing.
pub(super) fn call_text(message: &Message) -> String {
    match message.calls.is_empty() {
        true => String::new(),
        false => dumps(&message.calls).unwrap_or_default(),
    }
}

/// Output that ends with an error rather than with the memory.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.most {
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
    if !message.calls.is_empty() {
        let calls: Vec<Value> = message.calls.iter().map(to_template).collect();
        pairs.push(("tool_calls", calls.into()));
    }
    Value::from_pairs(pairs)
}

fn push_frame(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Frame(text.to_owned()));
    }
}

/// White space as Python has it: four separators more than Unicode.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Python's `strip`, where the template says nothing of which characters.
fn trim(text: &str, characters: Option<&str>) -> String {
    let strips = |c: char| characters.map_or(is_space(c), |some| some.contains(c));
    text.trim_matches(strips).to_owned()
}

/// Methods of Python's values; those that strip white space have Python's.
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

/// A private-use character that no message has.
fn unused_mark(messages: &[Message]) -> char {
    ('\u{e000}'..='\u{f8ff}')
        .find(|&mark| {
            let free = |m: &Message| !m.content.contains(mark) && !call_text(m).contains(mark);
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

    fn joined(pieces: &[Piece]) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Frame(text) | Piece::Content { text, .. } => text.clone(),
        };
        pieces.iter().map(text).collect()
    }

    #[test]
    fn contents_are_told_from_the_frame() {
        let template = ChatTemplate::new(CHATML, "", "").unwrap();
        let messages = [
            Message::new("user", "<|im_end|> 你好"),
            Message::new("assistant", ""),
        ];
        let pieces = template.pieces(&messages).unwrap();
        assert_eq!(joined(&pieces), template.render(&messages, false).unwrap());
        assert_eq!(
            pieces[1],
            Piece::Content {
                message: 0,
                text: "<|im_end|> 你好".into()
            }
        );
    }

    #[test]
    fn trimmed_contents_are_found() {
        let template = ChatTemplate::new(TRIMS, "", "").unwrap();
        let pieces = template.pieces(&[Message::new("user", " a \n")]).unwrap();
        assert_eq!(
            pieces[1],
            Piece::Content {
                message: 0,
                text: "a".into()
            }
        );
    }

    #[test]
    fn a_template_that_changes_text_is_refused() {
        let upper = "{% for m in messages %}{{ m.content | upper }}{% endfor %}";
        let drops = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}";
        let cuts = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}";
        for (source, role, text) in [
            (upper, "user", "a"),
            (drops, "tool", "a"),
            (cuts, "user", "x</think>y"),
        ] {
            let template = ChatTemplate::new(source, "", "").unwrap();
            let refused = template.pieces(&[Message::new(role, text)]);
            assert!(
                matches!(refused, Err(TemplateError::Opaque { .. })),
                "{source}"
            );
        }
    }

    #[test]
    fn work_and_output_are_bounded() {
        let endless =
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        let long = "{% for a in range(9999) %}{{ messages[0].content }}{% endfor %}";
        for source in [endless, long] {
            let template = ChatTemplate::new(source, "", "").unwrap();
            let messages = [Message::new("user", "x".repeat(9999))];
            let refused = template.render(&messages, false);
            assert!(matches!(refused, Err(TemplateError::TooMuch)), "{source}");
        }
    }

    #[test]
    fn long_conversations_have_work_enough() {
        let template = ChatTemplate::new(CHATML, "", "").unwrap();
        let messages = vec![Message::new("user", "x"); 5_000];
        assert_eq!(template.pieces(&messages).unwrap().len(), 2 * 5_000 + 1);
    }

    #[test]
    fn refusals_carry_the_templates_words() {
        let source = "{{ raise_exception('roles must alternate') }}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let error = template.pieces(&[]).unwrap_err().to_string();
        assert!(error.contains("roles must alternate"), "{error}");
    }
}
