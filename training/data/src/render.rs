//! Renders conversations to tokens and the loss mask: for each token its message, and whether the model must
//! produce it.

use std::ops::Range;
use std::path::Path;

use pybench_chat_template::{CallFormat, Chat, ChatTemplate, Message, PYTHON_TAG, Piece};
use serde::{Deserialize, Serialize};

use crate::called_tools::with_tool_calls;
use crate::tokenizer::{TextTokenizer, TokenizerError};

/// The message that a token starts in, and its role in the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the message; template text before the first content belongs to message 0.
    pub message: usize,
    /// Whether the model must produce the token: content of the assistant, and its end of turn, unless the message has
    /// the weight 0.
    pub trained: bool,
    pub ends_turn: bool,
}

/// A conversation, or a part of one, as tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    pub ids: Vec<u32>,
    /// One per token.
    pub spans: Vec<Span>,
    /// Tokens that start in template text and end in a reply; they are not trained.
    pub straddling: usize,
    /// Messages with tool calls whose content the template leaves out.
    pub left_out: usize,
}

impl Rendered {
    /// Number of trained tokens.
    pub fn trained(&self) -> usize {
        self.spans.iter().filter(|span| span.trained).count()
    }

    /// The token range of each message, in order.
    pub fn messages(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = vec![];
        let mut last = None;
        for (index, span) in self.spans.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if last == Some(span.message) => range.end = index + 1,
                _ => ranges.push(index..index + 1),
            }
            last = Some(span.message);
        }
        ranges
    }

    /// Consecutive parts of at most `length` tokens.
    pub(crate) fn chunks(&self, length: usize) -> Vec<Self> {
        let starts = (0..self.ids.len()).step_by(length.max(1));
        let piece = |start: usize| self.part(0, start..self.ids.len().min(start + length));
        starts.map(piece).collect()
    }

    /// The first `prefix` tokens, untrained, followed by a range.
    fn part(&self, prefix: usize, range: Range<usize>) -> Self {
        let mut part = Self::default();
        for index in (0..prefix).chain(range.clone()) {
            let span = self.spans[index];
            let trained = span.trained && index >= range.start;
            part.ids.push(self.ids[index]);
            part.spans.push(Span { trained, ..span });
        }
        part
    }
}

/// Renders conversations with the tokenizer and chat template of one model.
#[derive(Debug)]
pub struct Renderer {
    pub tokenizer: TextTokenizer,
    pub template: ChatTemplate,
    /// How the template writes tool calls, if it does.
    pub calls: Option<CallFormat>,
    /// The token `<|python_tag|>`, if the template writes it before code for the built-in interpreter.
    pub python_tag: Option<u32>,
    digest: String,
}

impl Renderer {
    /// Loads the tokenizer and chat template of a model directory.
    pub fn load(folder: &Path) -> Result<Self, TokenizerError> {
        let renderer = Self::load_with(folder, None)?;
        match renderer.template.is_absent() {
            true => Err(TokenizerError::NoTemplate),
            false => Ok(renderer),
        }
    }

    /// Like [`Self::load`] with another chat template. Without any template only plain texts can be rendered.
    pub fn load_with(folder: &Path, template: Option<&Path>) -> Result<Self, TokenizerError> {
        let (tokenizer, template) = TextTokenizer::load_with(folder, template)?;
        let mut hasher = blake3::Hasher::new();
        for part in [tokenizer.digest(), &template.digest()] {
            hasher.update(part.as_bytes());
        }
        let mut renderer = Self {
            digest: hasher.finalize().to_hex().to_string(),
            tokenizer,
            calls: template.call_format(),
            python_tag: None,
            template,
        };
        let tag = renderer.tokenizer.control(PYTHON_TAG);
        let code = renderer.render_as_given(Chat::from(&replying(&format!("{PYTHON_TAG}x"))));
        renderer.python_tag = tag.filter(|tag| code.is_ok_and(|code| code.ids.contains(tag)));
        Ok(renderer)
    }

    /// A hash of everything that determines the tokens of a conversation.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The control tokens that end a reply, if the template has any: an answer, and code for the built-in
    /// interpreter.
    pub fn ends_of_turn(&self) -> Vec<u32> {
        let code = self.python_tag.map(|_| format!("{PYTHON_TAG}x"));
        let replies = [Some("x".to_owned()), code];
        let ends = replies.iter().flatten().filter_map(|reply| {
            let rendered = self.render_as_given(Chat::from(&replying(reply))).ok()?;
            let mut tokens = rendered.ids.iter().zip(&rendered.spans);
            let ends =
                tokens.find(|(id, s)| s.trained && s.ends_turn && self.tokenizer.is_control(**id));
            ends.map(|(&id, _)| id)
        });
        ends.collect()
    }

    /// The tokens of a plain text, all trained, with BOS and EOS if the model has them.
    pub fn text(&self, text: &str) -> Result<Rendered, TokenizerError> {
        let mut out = Rendered::default();
        let tokens = self.tokenizer.encode(text)?;
        let tokens = tokens.iter().map(|token| (token.id, true));
        let begin = self.tokenizer.bos.map(|id| (id, false));
        let end = self.tokenizer.eos.map(|id| (id, true));
        for (id, trained) in begin.into_iter().chain(tokens).chain(end) {
            out.ids.push(id);
            out.spans.push(span(0, trained, false));
        }
        Ok(out)
    }

    /// The messages as the template gets them, if it writes calls that they have as text in its own words.
    fn with_tool_calls(&self, chat: Chat<'_>) -> Option<Vec<Message>> {
        self.calls.as_ref().and_then(|_| with_tool_calls(chat))
    }

    /// The tokens of a conversation. Calls that the messages write as text become those of the template.
    pub fn render<'a>(&self, chat: impl Into<Chat<'a>>) -> Result<Rendered, TokenizerError> {
        let chat = chat.into();
        self.expect_interpreter(chat)?;
        match self.with_tool_calls(chat) {
            None => self.render_as_given(chat),
            Some(messages) => self.render_as_given(Chat::new(&messages, chat.tools)),
        }
    }

    /// Refuses code for the built-in interpreter whose tag the template would write as text.
    fn expect_interpreter(&self, chat: Chat<'_>) -> Result<(), TokenizerError> {
        let runs_code = |m: &Message| m.is_assistant() && m.content.starts_with(PYTHON_TAG);
        let tag = self.tokenizer.control(PYTHON_TAG);
        if tag.is_none() || self.python_tag.is_some() {
            return Ok(());
        }
        match chat.messages.iter().position(runs_code) {
            Some(message) => Err(TokenizerError::NoInterpreter { message }),
            None => Ok(()),
        }
    }

    fn render_as_given(&self, chat: Chat<'_>) -> Result<Rendered, TokenizerError> {
        let annotated = self.template.annotate(chat)?;
        let mut builder = SpanBuilder::new(&self.tokenizer);
        for part in &annotated.parts {
            let context = part.trained && !chat.messages[part.message].is_trained();
            let owner = span(part.message, part.trained && !context, part.ends_turn);
            for piece in annotated.rendered.pieces(part.range.clone()) {
                match piece {
                    Piece::Text(text) => builder.text(text, owner),
                    Piece::Control(text) => builder.control(text, owner)?,
                }
            }
        }
        builder.flush()?;
        builder.out.left_out = annotated.left_out;
        Ok(builder.out)
    }

    /// The tokens that the model gets before it writes a reply to these messages.
    pub(crate) fn prompt<'a>(&self, chat: impl Into<Chat<'a>>) -> Result<Vec<u32>, TokenizerError> {
        let mut chat = chat.into();
        let messages = self.with_tool_calls(chat);
        if let Some(messages) = &messages {
            chat = Chat::new(messages, chat.tools);
        }
        let rendered = self.template.prompt(chat)?;
        let mut builder = SpanBuilder::new(&self.tokenizer);
        for piece in rendered.pieces(0..rendered.text.len()) {
            match piece {
                Piece::Text(text) => builder.text(text, span(0, false, false)),
                Piece::Control(text) => builder.control(text, span(0, false, false))?,
            }
        }
        builder.flush()?;
        Ok(builder.out.ids)
    }

    /// Whether the tokens equal those of the rendered text, as transformers computes them. Always true for
    /// conversations whose texts spell control tokens: transformers would parse those as control tokens.
    pub fn matches_rendered_text<'a>(
        &self,
        chat: impl Into<Chat<'a>>,
    ) -> Result<bool, TokenizerError> {
        let mut chat = chat.into();
        let messages = self.with_tool_calls(chat);
        if let Some(messages) = &messages {
            chat = Chat::new(messages, chat.tools);
        }
        if chat
            .texts()
            .any(|text| self.tokenizer.spells_control(&text))
        {
            return Ok(true);
        }
        let text = self.template.render(chat, false)?;
        Ok(self.tokenizer.encode_with_controls(&text)? == self.render_as_given(chat)?.ids)
    }
}

/// A conversation with one reply.
fn replying(reply: &str) -> [Message; 2] {
    [Message::new("user", "x"), Message::new("assistant", reply)]
}

fn span(message: usize, trained: bool, ends_turn: bool) -> Span {
    Span {
        message,
        trained,
        ends_turn,
    }
}

/// Collects the text between two control tokens. It is tokenized as a whole, because a tokenizer merges
/// characters across the boundary of two segments.
struct SpanBuilder<'a> {
    tokenizer: &'a TextTokenizer,
    text: String,
    /// Start of each segment in `text`, and its span.
    owners: Vec<(usize, Span)>,
    out: Rendered,
}

impl<'a> SpanBuilder<'a> {
    fn new(tokenizer: &'a TextTokenizer) -> Self {
        Self {
            tokenizer,
            text: String::new(),
            owners: vec![],
            out: Rendered::default(),
        }
    }

    fn text(&mut self, text: &str, owner: Span) {
        self.owners.push((self.text.len(), owner));
        self.text.push_str(text);
    }

    fn control(&mut self, text: &str, owner: Span) -> Result<(), TokenizerError> {
        let Some(id) = self.tokenizer.control(text) else {
            self.text(text, owner);
            return Ok(());
        };
        self.flush()?;
        self.out.ids.push(id);
        self.out.spans.push(owner);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TokenizerError> {
        for token in self.tokenizer.encode(&self.text)? {
            let index = self
                .owners
                .partition_point(|(start, _)| *start <= token.start);
            // Empty segments share a start; the last of them owns the text.
            let Some(&(_, owner)) = self.owners.get(index.saturating_sub(1)) else {
                continue;
            };
            let mut later = self.owners[index..].iter();
            let crosses = later.any(|(start, next)| *start < token.end && next.trained);
            self.out.straddling += usize::from(crosses && !owner.trained);
            self.out.ids.push(token.id);
            self.out.spans.push(owner);
        }
        self.text.clear();
        self.owners.clear();
        Ok(())
    }
}

/// What happens to a conversation longer than `train.max_seq_len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    #[default]
    Error,
    Drop,
    /// Keep the turns that fit, up to the end of a reply. Replies with the weight 0 that come before all others give way
    /// first, but the last of them stays.
    CutAtTurn,
    /// Split it into several documents, each with the messages before the first reply as context. Every
    /// reply is trained once.
    SplitWithContext,
}

/// Conversations that did not fit, and the tokens concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowReport {
    pub conversations: usize,
    pub lost: usize,
    /// Tokens that occur in several documents, as context.
    pub repeated: usize,
    /// Trained tokens among the lost ones.
    pub lost_trained: usize,
}

impl std::ops::AddAssign for OverflowReport {
    fn add_assign(&mut self, other: Self) {
        self.conversations += other.conversations;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.lost_trained += other.lost_trained;
    }
}

/// Fits a conversation into `limit` tokens. `None` if it does not fit and the policy is [`Overflow::Error`].
pub fn fit_to_length(
    rendered: Rendered,
    limit: usize,
    overflow: Overflow,
) -> Option<(Vec<Rendered>, OverflowReport)> {
    if rendered.ids.len() <= limit {
        return Some((vec![rendered], OverflowReport::default()));
    }
    let (parts, context) = match overflow {
        Overflow::Error => return None,
        Overflow::Drop => (vec![], 0),
        Overflow::CutAtTurn => (cut_at_turn(&rendered, limit).into_iter().collect(), 0),
        Overflow::SplitWithContext => split(&rendered, limit),
    };
    let repeated = context * parts.len().saturating_sub(1);
    let sum = |count: fn(&Rendered) -> usize| parts.iter().map(count).sum::<usize>();
    let trained = sum(Rendered::trained);
    let report = OverflowReport {
        conversations: 1,
        lost: rendered.ids.len() + repeated - sum(|part| part.ids.len()),
        repeated,
        lost_trained: rendered.trained() - trained,
    };
    Some((parts, report))
}

/// The positions after the end of each reply.
fn turn_ends(rendered: &Rendered) -> Vec<usize> {
    let spans = rendered.spans.iter().enumerate();
    spans
        .filter(|(_, span)| span.trained && span.ends_turn)
        .map(|(index, _)| index + 1)
        .collect()
}

/// The turns that fit.
fn cut_at_turn(rendered: &Rendered, limit: usize) -> Option<Rendered> {
    match without_context(rendered, limit) {
        Some(shorter) if shorter.ids.len() <= limit => Some(shorter),
        Some(shorter) => first_part(&shorter, limit),
        None => first_part(rendered, limit),
    }
}

/// The conversation without the first replies that are context, and what follows each of them, as in a correction, whose
/// end must be trained. Only as many are left out as `limit` requires, and the last one, which the correction repairs, stays.
fn without_context(rendered: &Rendered, limit: usize) -> Option<Rendered> {
    let (spans, length) = (&rendered.spans, rendered.ids.len());
    let trained = spans.iter().find(|span| span.trained)?.message;
    let replies = spans
        .iter()
        .filter(|span| span.ends_turn && span.message < trained);
    // The header of a reply belongs to its message.
    let start = |reply: &Span| spans.partition_point(|span| span.message < reply.message);
    let starts: Vec<usize> = replies.map(start).collect();
    let (&prompt, &last) = (starts.first()?, starts.last()?);
    let fits = |from: &usize| prompt + length - from <= limit;
    let from = starts.iter().copied().find(fits).unwrap_or(last);
    Some(rendered.part(prompt, from..length))
}

fn first_part(rendered: &Rendered, limit: usize) -> Option<Rendered> {
    let end = turn_ends(rendered).into_iter().rfind(|&end| end <= limit)?;
    Some(rendered.part(0, 0..end))
}

/// The parts, and the length of the context with which each of them starts.
fn split(rendered: &Rendered, limit: usize) -> (Vec<Rendered>, usize) {
    let Some(context) = rendered.spans.iter().position(|span| span.trained) else {
        return (vec![], 0);
    };
    // The header of the first reply belongs to its message, not to the context.
    let message = rendered.spans[context].message;
    let context = rendered
        .spans
        .partition_point(|span| span.message < message);
    let mut parts = vec![];
    let mut start = context;
    let ends = turn_ends(rendered);
    while start < rendered.ids.len() && context < limit {
        let room = start + (limit - context);
        let Some(&end) = ends.iter().rfind(|&&end| end > start && end <= room) else {
            // Skip a single reply that does not fit.
            match ends.iter().find(|&&end| end > start) {
                Some(&end) => start = end,
                None => break,
            }
            continue;
        };
        parts.push(rendered.part(context, start..end));
        start = end;
    }
    (parts, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `context` prompt tokens, then replies of the given lengths, each after one prompt token.
    fn rendered(context: usize, replies: &[usize]) -> Rendered {
        let mut out = Rendered::default();
        let mut push = |message, trained, ends_turn| {
            out.ids.push(out.ids.len() as u32);
            out.spans.push(span(message, trained, ends_turn));
        };
        (0..context).for_each(|_| push(0, false, false));
        for (number, &length) in replies.iter().enumerate() {
            push(2 * number, false, false);
            (1..length).for_each(|_| push(2 * number + 1, true, false));
            push(2 * number + 1, true, true);
        }
        out
    }

    #[test]
    fn cutting_keeps_whole_replies() {
        let (parts, report) =
            fit_to_length(rendered(3, &[4, 5, 6]), 15, Overflow::CutAtTurn).unwrap();
        assert_eq!(parts[0].ids.len(), 3 + 5 + 6);
        assert_eq!((report.lost, report.lost_trained), (7, 6));
        assert!(fit_to_length(rendered(3, &[4, 5, 6]), 15, Overflow::Error).is_none());
    }

    #[test]
    fn cutting_leaves_context_out_before_the_trained_end() {
        let mut whole = rendered(3, &[4, 5, 6]);
        for span in &mut whole.spans {
            span.trained &= span.message == 5;
        }
        let (parts, report) = fit_to_length(whole.clone(), 16, Overflow::CutAtTurn).unwrap();
        // The first reply and what follows it are left out.
        let kept: Vec<u32> = (0..4).chain(9..21).collect();
        assert_eq!(parts[0].ids, kept);
        assert_eq!(parts[0].trained(), 6);
        assert_eq!((report.lost, report.lost_trained), (5, 0));
        // The failing reply stays, so the only trained one does not fit.
        let (parts, report) = fit_to_length(whole, 15, Overflow::CutAtTurn).unwrap();
        assert_eq!((parts.len(), report.lost_trained), (0, 6));
    }

    #[test]
    fn splitting_trains_each_reply_once() {
        let whole = rendered(3, &[4, 5, 6]);
        let (parts, report) = fit_to_length(whole.clone(), 15, Overflow::SplitWithContext).unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(
            (report.lost, report.lost_trained, report.repeated),
            (0, 0, 4)
        );
        let trained: usize = parts.iter().map(Rendered::trained).sum();
        assert_eq!(trained, whole.trained());
        assert!(parts.iter().all(|part| part.ids.len() <= 15));
    }

    #[test]
    fn a_reply_that_is_too_long_is_counted() {
        let (parts, report) =
            fit_to_length(rendered(3, &[40, 5]), 15, Overflow::SplitWithContext).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!((report.lost, report.lost_trained), (40, 40));
    }
}
