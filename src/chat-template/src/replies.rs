//! Finds what the assistant writes in a rendered conversation.
//!
//! A reply starts where the generation prompt ends, and ends with its last control token.

use std::ops::Range;

use crate::marked_text::{RenderedText, Unmarked};
use crate::marks::Marks;
use crate::message::{Chat, Message};
use crate::placement::{MarkedMessages, content_inside};
use crate::template::{MarkedProgram, TemplateError};

/// Messages rendered to find the replies of a template without a generation prompt.
const MAX_RENDERED_MESSAGES: usize = 1 << 20;

/// A position in the text and the mark that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    at: usize,
    mark: char,
}

/// Finds the parts of a rendered conversation.
pub(crate) struct Finder<'a> {
    program: &'a MarkedProgram,
    /// Marks that occur in the conversation by chance.
    others: &'a Marks,
    chat: Chat<'a>,
    marked: MarkedMessages,
    pub(crate) whole: Unmarked,
    /// Positions of all marks, in order.
    positions: Vec<usize>,
    /// The generation prompt; empty if the template has none with a control token, which alone cannot occur in a
    /// message.
    header: RenderedText,
    rendered_messages: usize,
    /// Messages with tool calls whose content the template leaves out.
    pub(crate) left_out: usize,
}

/// The text of a reply.
pub(crate) struct Reply {
    pub(crate) range: Range<usize>,
    /// Where its last control token starts, if it ends with one.
    pub(crate) end_of_turn: Option<usize>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(
        program: &'a MarkedProgram,
        others: &'a Marks,
        chat: Chat<'a>,
        marked: MarkedMessages,
        whole: Unmarked,
    ) -> Self {
        let mut positions: Vec<usize> = whole.marks.values().flatten().copied().collect();
        positions.sort_unstable();
        Self {
            header: generation_prompt(program, others, chat, &whole.rendered),
            program,
            others,
            chat,
            marked,
            whole,
            positions,
            rendered_messages: 0,
            left_out: 0,
        }
    }

    /// Where a message ends that is not the assistant's: after the first control token behind its content.
    pub(crate) fn end_of_other(&self, number: usize, done: usize) -> Option<usize> {
        let marks = &self.marked.marks[number];
        let last = marks.all().filter_map(|mark| self.position(mark)).max()?;
        if last.at < done {
            return None;
        }
        let control = self.next_control(last.at);
        Some(control.map_or(last.at, |control| control.end))
    }

    /// What the assistant writes for a message. It does not start before `floor`.
    pub(crate) fn reply(&mut self, number: usize, floor: usize) -> Result<Reply, TemplateError> {
        let opaque = TemplateError::Opaque { message: number };
        let message = &self.chat.messages[number];
        let Some((first, last)) = self.extent(number)? else {
            return self.reply_by_beginnings(number, floor);
        };
        let start = self.after_header(first.at, floor);
        let start = match start.or_else(|| self.after_part_of_header(first.at, floor)) {
            Some(start) => start,
            None => self.start_without_header(number, first, floor)?,
        };
        let reply = match message.tool_calls.is_empty() {
            true => self.end_of_content(number, last.at, start),
            false => self.end_of_calls(number, last, start)?,
        };
        match floor <= start && start <= reply.range.end {
            true => Ok(reply),
            false => Err(opaque),
        }
    }

    fn position(&self, mark: char) -> Option<Position> {
        let at = *self.whole.marks.get(&mark)?.first()?;
        Some(Position { at, mark })
    }

    /// The first and the last mark of a message. An error if the template dropped or repeated what is trained.
    fn extent(&mut self, number: usize) -> Result<Option<(Position, Position)>, TemplateError> {
        let marks = &self.marked.marks[number];
        let message = &self.chat.messages[number];
        let repeated = |mark: char| self.whole.marks.get(&mark).is_some_and(|at| at.len() > 1);
        let dropped = |mark: &char| !self.whole.marks.contains_key(mark);
        let contents = || marks.start.into_iter().chain(marks.end);
        let content_dropped = contents().count() > 0 && contents().all(|mark| dropped(&mark));
        let has_calls = !message.tool_calls.is_empty();
        let drops = marks.calls.iter().any(dropped)
            || content_dropped && !has_calls && !message.content.is_empty();
        if drops || contents().any(repeated) {
            return Err(TemplateError::Opaque { message: number });
        }
        self.left_out += usize::from(content_dropped && has_calls);
        let found: Vec<Position> = marks.all().filter_map(|m| self.position(m)).collect();
        Ok(found.iter().min().copied().zip(found.iter().max().copied()))
    }

    /// The first control token at or after `at`, before the next mark.
    fn next_control(&self, at: usize) -> Option<Range<usize>> {
        let controls = &self.whole.rendered.controls;
        let next = controls[controls.partition_point(|c| c.start < at)..].first()?;
        let mark = self.positions[self.positions.partition_point(|&mark| mark <= at)..].first();
        mark.is_none_or(|&mark| mark > next.start)
            .then(|| next.clone())
    }

    /// The end of the last generation prompt that ends between `floor` and `at`.
    fn after_header(&self, at: usize, floor: usize) -> Option<usize> {
        let rendered = &self.whole.rendered;
        let offset = self.header.controls.first()?.start;
        let before = rendered.controls.partition_point(|c| c.end <= at);
        for (index, control) in rendered.controls[..before].iter().enumerate().rev() {
            let start = control.start.checked_sub(offset)?;
            let end = start + self.header.text.len();
            if end < floor {
                return None;
            }
            let same =
                |(a, b): (&Range<usize>, &Range<usize>)| *a == (b.start + start..b.end + start);
            let mut controls = rendered.controls[index..].iter().zip(&self.header.controls);
            let found = rendered.text.get(start..end) == Some(&self.header.text);
            if found && end <= at && controls.all(same) {
                return Some(end);
            }
        }
        None
    }

    /// The same for a template that asks for more than it shows later, such as an opened thought: after the part of
    /// the generation prompt that is there, up to a control token or the end of a line.
    fn after_part_of_header(&self, at: usize, floor: usize) -> Option<usize> {
        let rendered = &self.whole.rendered;
        let offset = self.header.controls.first()?.start;
        for control in rendered.controls_in(floor..at).iter().rev() {
            let start = control.start.checked_sub(offset)?;
            let shared = common_prefix(&rendered.text[start..at], &self.header.text);
            let line = self.header.text[..shared]
                .rfind('\n')
                .map_or(0, |end| end + 1);
            let controls = self.header.controls_in(0..shared);
            let end = controls
                .last()
                .map_or(line, |control| control.end.max(line));
            let here = rendered.controls_in(start..start + end);
            let part = &self.header.text[..end];
            if part.to_lowercase().contains("assistant") && here.len() == controls.len() {
                return Some(start + end);
            }
        }
        None
    }

    /// The first `count` messages rendered; `None` if the template rejects them.
    fn beginning(
        &mut self,
        count: usize,
        add_generation_prompt: bool,
    ) -> Result<Option<Unmarked>, TemplateError> {
        self.rendered_messages += count;
        if self.rendered_messages > MAX_RENDERED_MESSAGES {
            return Err(TemplateError::LimitExceeded);
        }
        let chat = Chat::new(&self.marked.messages[..count], self.chat.tools);
        Ok(self
            .program
            .run(chat, add_generation_prompt, self.others)
            .ok())
    }

    /// Where a reply starts, found by rendering the conversation before it.
    fn start_without_header(
        &mut self,
        number: usize,
        first: Position,
        floor: usize,
    ) -> Result<usize, TemplateError> {
        let message = &self.chat.messages[number];
        if let Some(prompt) = self.beginning(number, true)? {
            let prompt = prompt.rendered;
            let with_reply = self.beginning(number + 1, false)?;
            let before = with_reply.and_then(|with| text_before_mark(&prompt, &with, first.mark));
            let text = &self.whole.rendered.text[..first.at];
            let start = before
                .filter(|before| !self.is_header(before, message))
                .and_then(|before| text.strip_suffix(&*before.text))
                .map(str::len)
                .or_else(|| self.after_last_control(&prompt, first.at, message));
            if let Some(start) = start.filter(|&start| start >= floor) {
                return Ok(start);
            }
        }
        // The template has no generation prompt.
        if !message.tool_calls.is_empty() {
            return Err(TemplateError::Opaque { message: number });
        }
        let text = &self.whole.rendered.text[..first.at];
        let space = &message.content[..content_inside(message).start];
        Ok(text.strip_suffix(space).unwrap_or(text).len())
    }

    /// Whether text before a reply is the header of its message, which a generation prompt would contain. Only white
    /// space before its content is surely written by the model.
    fn is_header(&self, text: &RenderedText, message: &Message) -> bool {
        match message.tool_calls.is_empty() {
            true => !text.text.trim().is_empty(),
            false => text.text.contains(&message.role),
        }
    }

    /// The position before `at` that follows the control token with which a prompt ends.
    fn after_last_control(
        &self,
        prompt: &RenderedText,
        at: usize,
        message: &Message,
    ) -> Option<usize> {
        let last = prompt.controls.last()?;
        let last = (last.end == prompt.text.len()).then(|| &prompt.text[last.clone()])?;
        let rendered = &self.whole.rendered;
        let before = rendered.controls_in(0..at).iter().rev();
        let end = before
            .filter(|c| rendered.text[(*c).clone()] == *last)
            .map(|c| c.end);
        let end = end.into_iter().next()?;
        let between = rendered.slice(end..at);
        (!self.is_header(&between, message)).then_some(end)
    }

    /// A reply without calls ends with the first control token after its content.
    fn end_of_content(&self, number: usize, last: usize, start: usize) -> Reply {
        let message = &self.chat.messages[number];
        let inside = content_inside(message);
        let skipped = match self.marked.marks[number].end {
            Some(_) => &message.content[inside.end..],
            None => &message.content[inside.start..],
        };
        let text = &self.whole.rendered.text;
        let end = match text[last..].starts_with(skipped) {
            true => last + skipped.len(),
            false => last,
        };
        match self.next_control(last) {
            Some(control) => Reply {
                range: start..control.end,
                end_of_turn: Some(control.start),
            },
            None => Reply {
                range: start..end,
                end_of_turn: None,
            },
        }
    }

    /// A reply with calls ends with its last control token: some templates write several.
    fn end_of_calls(
        &mut self,
        number: usize,
        last: Position,
        start: usize,
    ) -> Result<Reply, TemplateError> {
        let opaque = TemplateError::Opaque { message: number };
        let Some(with_reply) = self.beginning(number + 1, false)? else {
            return Err(opaque);
        };
        let at = with_reply
            .marks
            .get(&last.mark)
            .and_then(|at| at.first().copied());
        let Some(at) = at else {
            return Err(opaque);
        };
        let rendered = &with_reply.rendered;
        let rest = &self.whole.rendered.text[last.at..];
        let controls = rendered.controls_in(at..rendered.text.len());
        for control in controls.iter().rev() {
            if rest.starts_with(&rendered.text[at..control.end]) {
                let end = last.at + control.end - at;
                return Ok(Reply {
                    range: start..end,
                    end_of_turn: Some(end - control.len()),
                });
            }
        }
        let tail = rendered.text[at..].trim_end();
        match controls.is_empty() && rest.starts_with(tail) {
            true => Ok(Reply {
                range: start..last.at + tail.len(),
                end_of_turn: None,
            }),
            false => Err(opaque),
        }
    }

    /// A reply without marks, in a conversation each of whose beginnings is rendered the same.
    fn reply_by_beginnings(&mut self, number: usize, floor: usize) -> Result<Reply, TemplateError> {
        let opaque = TemplateError::Opaque { message: number };
        let prompt = self.beginning(number, true)?;
        let with_reply = self.beginning(number + 1, false)?;
        let Some((prompt, with_reply)) = prompt.zip(with_reply) else {
            return Err(opaque);
        };
        let (prompt, with_reply) = (prompt.rendered, with_reply.rendered);
        let start = prompt.text.len();
        let last = with_reply
            .controls
            .last()
            .filter(|last| last.start >= start);
        let end = last.map_or(with_reply.text.trim_end().len().max(start), |last| last.end);
        let text = with_reply.text.get(..end).unwrap_or_default();
        let message = &self.chat.messages[number];
        let is_header = text
            .get(start..)
            .is_some_and(|text| text.contains(&message.role))
            && !message.content.contains(&message.role);
        let found = with_reply.starts_with(&prompt)
            && self.whole.rendered.text.starts_with(text)
            && start >= floor
            && !is_header
            && !self.is_dropped(number, &with_reply);
        match found {
            true => Ok(Reply {
                range: start..end,
                end_of_turn: last.map(|last| last.start),
            }),
            false => Err(opaque),
        }
    }

    /// Whether the text is the same without the content and the calls of the last message.
    fn is_dropped(&self, number: usize, rendered: &RenderedText) -> bool {
        let mut messages = self.chat.messages[..=number].to_vec();
        let last = &mut messages[number];
        if last.content.is_empty() && last.tool_calls.is_empty() {
            return false;
        }
        (last.content, last.tool_calls) = (String::new(), vec![]);
        let without = self
            .program
            .run(Chat::new(&messages, self.chat.tools), false, self.others);
        without.is_ok_and(|without| without.rendered == *rendered)
    }
}

/// What a reply adds to its prompt before its first mark.
fn text_before_mark(
    prompt: &RenderedText,
    with_reply: &Unmarked,
    mark: char,
) -> Option<RenderedText> {
    let at = *with_reply.marks.get(&mark)?.first()?;
    let start = prompt.text.len();
    let continues = at >= start && with_reply.rendered.starts_with(prompt);
    continues.then(|| with_reply.rendered.slice(start..at))
}

/// The length of the longest common prefix.
fn common_prefix(a: &str, b: &str) -> usize {
    let mut both = a.char_indices().zip(b.chars());
    let different = both.find(|((_, a), b)| a != b);
    different.map_or(a.len().min(b.len()), |((index, _), _)| index)
}

/// What the template writes before a reply that it asks for; empty if that has no control token.
fn generation_prompt(
    program: &MarkedProgram,
    others: &Marks,
    chat: Chat<'_>,
    whole: &RenderedText,
) -> RenderedText {
    let added = |chat: Chat<'_>, whole: &RenderedText| {
        let prompt = program.run(chat, true, others).ok()?.rendered;
        let start = whole.text.len();
        let header = prompt.starts_with(whole).then(|| RenderedText {
            text: prompt.text[start..].to_owned(),
            controls: prompt.controls[whole.controls.len()..]
                .iter()
                .map(|control| control.start - start..control.end - start)
                .collect(),
        });
        header.filter(|header| !header.controls.is_empty())
    };
    let before_reply = || {
        let last = chat.messages.iter().rposition(Message::is_assistant)?;
        let chat = chat.first(last);
        let whole = program.run(chat, false, others).ok()?.rendered;
        added(chat, &whole)
    };
    added(chat, whole).or_else(before_reply).unwrap_or_default()
}
