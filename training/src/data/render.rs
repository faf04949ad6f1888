//! The typed renderer: a conversation becomes tokens, each of which knows its message and whether the
//! model must produce it.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::template::call_text;
use super::{ChatTemplate, Message, Piece, TextTokenizer, TokenizerError};

/// Whose text a token starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the message; the template's words before the first content are message 0's.
    pub message: usize,
    /// Whether the model must produce it: an assistant's content and its end of turn.
    pub trained: bool,
    /// Whether it is an end of turn.
    pub ends_turn: bool,
}

/// A conversation, or a part of one, as tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    /// Token numbers.
    pub ids: Vec<u32>,
    /// What each belongs to.
    pub spans: Vec<Span>,
    /// Tokens that begin in the template's words and end in a reply: they are not trained.
    pub straddling: usize,
}

impl Rendered {
    /// Tokens that are trained.
    pub fn trained(&self) -> usize {
        self.spans.iter().filter(|span| span.trained).count()
    }

    /// The ranges of tokens of each message, in order.
    pub fn messages(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = vec![];
        let mut last = None;
        for (place, span) in self.spans.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if last == Some(span.message) => range.end = place + 1,
                _ => ranges.push(place..place + 1),
            }
            last = Some(span.message);
        }
        ranges
    }

    /// Pieces of at most `length` tokens, one after another.
    pub(super) fn pieces(&self, length: usize) -> Vec<Self> {
        let starts = (0..self.ids.len()).step_by(length.max(1));
        let piece = |start: usize| self.part(0, start..self.ids.len().min(start + length));
        starts.map(piece).collect()
    }

    /// The first `context` tokens, untrained, and a range after them.
    fn part(&self, context: usize, range: Range<usize>) -> Self {
        let mut part = Self::default();
        for place in (0..context).chain(range.clone()) {
            let span = self.spans[place];
            let trained = span.trained && place >= range.start;
            part.ids.push(self.ids[place]);
            part.spans.push(Span { trained, ..span });
        }
        part
    }
}

/// Renders conversations of one model.
#[derive(Debug)]
pub struct Renderer {
    /// The model's tokenizer.
    pub tokenizer: TextTokenizer,
    /// The model's template.
    pub template: ChatTemplate,
    digest: String,
}

impl Renderer {
    /// The renderer of a model directory.
    pub fn load(folder: &Path) -> Result<Self, TokenizerError> {
        let renderer = Self::load_with(folder, None)?;
        match renderer.template.is_absent() {
            true => Err(TokenizerError::NoTemplate),
            false => Ok(renderer),
        }
    }

    /// The same with another chat template. A model that has none renders texts only.
    pub fn load_with(folder: &Path, template: Option<&Path>) -> Result<Self, TokenizerError> {
        let (tokenizer, template) = TextTokenizer::load_with(folder, template)?;
        let mut hasher = blake3::Hasher::new();
        for part in [tokenizer.digest(), &template.digest()] {
            hasher.update(part.as_bytes());
        }
        Ok(Self {
            digest: hasher.finalize().to_hex().to_string(),
            tokenizer,
            template,
        })
    }

    /// A hash of all that the tokens of a conversation depend on.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The control token that ends an assistant's turn, if there is one.
    pub fn end_of_turn(&self) -> Option<u32> {
        let messages = [Message::new("user", "x"), Message::new("assistant", "x")];
        let rendered = self.render(&messages).ok()?;
        let mut tokens = rendered.ids.iter().zip(&rendered.spans);
        let ends =
            tokens.find(|(id, s)| s.trained && s.ends_turn && self.tokenizer.is_control(**id));
        ends.map(|(&id, _)| id)
    }

    /// The tokens of a text that is trained as it stands, between the tokens that begin and end one,
    /// where the model has them.
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

    /// The tokens of a conversation.
    pub fn render(&self, messages: &[Message]) -> Result<Rendered, TokenizerError> {
        let controls = |m: &Message| self.tokenizer.control_in(&call_text(m)).is_some();
        if let Some(message) = messages.iter().position(controls) {
            return Err(TokenizerError::ControlInCall { message });
        }
        let pieces = self.template.pieces(messages)?;
        let calls = self.template.calls(messages)?;
        let mut run = Run::new(&self.tokenizer);
        let after = |message: usize| (message + 1).min(messages.len().saturating_sub(1));
        let (mut next, mut done) = (0, 0);
        let mut open: Option<usize> = None;
        for piece in &pieces {
            match piece {
                Piece::Frame(text) => {
                    for (text, call) in cut(text, done, &calls) {
                        match call {
                            None => run.frame(text, open.take(), next, messages)?,
                            Some(message) => {
                                let trained = messages[message].is_trained();
                                run.call(text, message, trained)?;
                                (open, next) = (None, after(message));
                            }
                        }
                    }
                    done += text.len();
                }
                Piece::Content { message, text } => {
                    let trained = messages[*message].is_trained();
                    run.text(text, span(*message, trained, false));
                    open = Some(*message);
                    next = after(*message);
                    done += text.len();
                }
            }
        }
        run.flush()?;
        Ok(run.out)
    }

    /// Whether the tokens are those that transformers makes of the same text. Says nothing of
    /// conversations whose contents hold control tokens, which transformers would obey.
    pub fn agrees(&self, messages: &[Message]) -> Result<bool, TokenizerError> {
        let controls = |message: &Message| self.tokenizer.control_in(&message.content).is_some();
        if messages.iter().any(controls) {
            return Ok(true);
        }
        let text = self.template.render(messages, false)?;
        Ok(self.tokenizer.encode_with_controls(&text)? == self.render(messages)?.ids)
    }
}

fn span(message: usize, trained: bool, ends_turn: bool) -> Span {
    Span {
        message,
        trained,
        ends_turn,
    }
}

/// The parts of a piece of the template's words, which begins at byte `start` of the whole text: those
/// within the place of a message that calls tools have its number.
fn cut<'a>(
    text: &'a str,
    start: usize,
    calls: &[(usize, Range<usize>)],
) -> Vec<(&'a str, Option<usize>)> {
    let (mut parts, mut done) = (vec![], 0);
    for (message, place) in calls {
        let inside = |byte: usize| byte.saturating_sub(start).clamp(done, text.len());
        let (from, to) = (inside(place.start), inside(place.end));
        for (range, call) in [(done..from, None), (from..to, Some(*message))] {
            if !range.is_empty() {
                parts.push((&text[range], call));
            }
        }
        done = to;
    }
    if done < text.len() {
        parts.push((&text[done..], None));
    }
    parts
}

/// Text between two control tokens, which is tokenized as one: a tokenizer joins letters over the
/// border of two pieces, and so must we.
struct Run<'a> {
    tokenizer: &'a TextTokenizer,
    text: String,
    /// Where each owner's text begins.
    owners: Vec<(usize, Span)>,
    out: Rendered,
}

impl<'a> Run<'a> {
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

    /// The template's words after the content of message `open`, if any: up to the first control
    /// token they end its turn, the rest belongs to message `next`.
    fn frame(
        &mut self,
        mut text: &str,
        open: Option<usize>,
        next: usize,
        messages: &[Message],
    ) -> Result<(), TokenizerError> {
        let mut owner = match open {
            Some(message) => span(message, messages[message].is_trained(), true),
            None => span(next, false, false),
        };
        // Words after the last control token's turn end nothing.
        if self.tokenizer.control_in(text).is_none() {
            owner = span(next, false, false);
        }
        while let Some(control) = self.tokenizer.control_in(text) {
            self.text(&text[..control.start], owner);
            self.flush()?;
            self.out.ids.push(control.id);
            self.out.spans.push(owner);
            owner = span(next, false, false);
            text = &text[control.end..];
        }
        self.text(text, owner);
        Ok(())
    }

    /// What a message that calls tools consists of beside its content: the model produces all of it,
    /// up to the control token that ends the turn.
    fn call(
        &mut self,
        mut text: &str,
        message: usize,
        trained: bool,
    ) -> Result<(), TokenizerError> {
        let owner = span(message, trained, false);
        while let Some(control) = self.tokenizer.control_in(text) {
            self.text(&text[..control.start], owner);
            self.flush()?;
            text = &text[control.end..];
            let ends = self.tokenizer.control_in(text).is_none() && text.trim().is_empty();
            self.out.ids.push(control.id);
            self.out.spans.push(span(message, trained, ends));
            if ends {
                self.text(text, span(message, false, false));
                return Ok(());
            }
        }
        self.text(text, owner);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TokenizerError> {
        for token in self.tokenizer.encode(&self.text)? {
            let place = self
                .owners
                .partition_point(|(start, _)| *start <= token.start);
            // Empty pieces share a start; the last of them owns the text.
            let Some(&(_, owner)) = self.owners.get(place.saturating_sub(1)) else {
                continue;
            };
            let mut later = self.owners[place..].iter();
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

/// What becomes of a conversation longer than the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Stop the run.
    #[default]
    Error,
    /// Leave it out.
    Drop,
    /// Keep the turns that fit, up to the last whole reply.
    CutAtTurn,
    /// Several documents, each with the messages before the first reply as context; every reply is
    /// trained once.
    SplitWithContext,
}

/// What did not fit, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowReport {
    /// Conversations longer than the context.
    pub conversations: usize,
    /// Tokens that were left out.
    pub lost: usize,
    /// Tokens that stand in several documents, as context.
    pub repeated: usize,
    /// Of these, trained ones.
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

/// Fits a conversation into `limit` tokens. `None` where the choice is [`Overflow::Error`] and it
/// does not fit.
pub fn fit(
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
        Overflow::CutAtTurn => (first_part(&rendered, limit).into_iter().collect(), 0),
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

/// The places after which a reply is whole.
fn turn_ends(rendered: &Rendered) -> Vec<usize> {
    let spans = rendered.spans.iter().enumerate();
    spans
        .filter(|(_, span)| span.trained && span.ends_turn)
        .map(|(place, _)| place + 1)
        .collect()
}

fn first_part(rendered: &Rendered, limit: usize) -> Option<Rendered> {
    let end = turn_ends(rendered).into_iter().rfind(|&end| end <= limit)?;
    Some(rendered.part(0, 0..end))
}

/// The parts, and the length of the context that all of them begin with.
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
            // A single reply that does not fit is left out; go on after it.
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

    /// `context` prompt tokens, then replies of those lengths, each with one token of prompt before.
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
        let (parts, report) = fit(rendered(3, &[4, 5, 6]), 15, Overflow::CutAtTurn).unwrap();
        assert_eq!(parts[0].ids.len(), 3 + 5 + 6);
        assert_eq!((report.lost, report.lost_trained), (7, 6));
        assert!(fit(rendered(3, &[4, 5, 6]), 15, Overflow::Error).is_none());
    }

    #[test]
    fn splitting_trains_each_reply_once() {
        let whole = rendered(3, &[4, 5, 6]);
        let (parts, report) = fit(whole.clone(), 15, Overflow::SplitWithContext).unwrap();
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
    fn a_reply_too_long_is_counted() {
        let (parts, report) = fit(rendered(3, &[40, 5]), 15, Overflow::SplitWithContext).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!((report.lost, report.lost_trained), (40, 40));
    }
}
