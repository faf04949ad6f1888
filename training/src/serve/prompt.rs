//! Renders a conversation to prompt tokens. Text of a message never becomes a control token.

use std::sync::Arc;

use pybench_training_data::{
    CALL_TAGS, CallSyntax, Chat, Message, PYTHON_TAG, Piece, RenderedText, Renderer, TemplateError,
    TokenizerError, opening_of_text_call, with_calls_as_text,
};
use thiserror::Error;

use super::tools::{OfferedTools, ReplyReader};
use super::vocabulary::Vocabulary;

#[derive(Debug, Error)]
pub(super) enum PromptError {
    #[error(transparent)]
    Renderer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("{0}")]
    Encode(String),
}

/// The tokens of a prompt, and how its reply is read.
#[derive(Debug)]
pub(super) struct PreparedPrompt {
    pub(super) ids: Vec<i64>,
    pub(super) reader: ReplyReader,
    /// Control tokens of the reply that are shown as text, because they are part of calls, or tell code from text.
    pub(super) shown: Vec<u32>,
    /// Texts with which a call begins in the syntax of the template; an empty one if the prompt has begun the call.
    pub(super) openings: &'static [&'static str],
}

impl PreparedPrompt {
    /// A prompt whose reply is text.
    pub(super) fn of_text(ids: Vec<i64>) -> Self {
        Self {
            ids,
            reader: ReplyReader::of_text(),
            shown: vec![],
            openings: &[],
        }
    }
}

/// The texts with which a call begins.
fn openings(syntax: CallSyntax) -> &'static [&'static str] {
    match syntax {
        CallSyntax::Tags => &["<tool_call>"],
        CallSyntax::List => &["[TOOL_CALLS]"],
        CallSyntax::Json => &[PYTHON_TAG, "{"],
    }
}

/// Makes the prompts of one model.
#[derive(Debug)]
pub(super) struct ChatPrompt {
    renderer: Renderer,
    vocabulary: Arc<Vocabulary>,
}

impl ChatPrompt {
    pub(super) fn new(renderer: Renderer, vocabulary: Arc<Vocabulary>) -> Self {
        Self {
            renderer,
            vocabulary,
        }
    }

    /// The tokens of the rendered conversation with the generation prompt. If the reply must call a tool, the start of
    /// the call follows. A template that writes no calls gets them as text, as the trainer does.
    pub(super) fn prepare(
        &self,
        messages: &[Message],
        offered: &OfferedTools,
    ) -> Result<PreparedPrompt, PromptError> {
        let format = self.renderer.calls.as_ref();
        let as_text = format.is_none().then(|| with_calls_as_text(messages));
        let messages = as_text.as_deref().unwrap_or(messages);
        let template = &self.renderer.template;
        let mut ids = self.encode(&template.prompt(Chat::new(messages, &offered.tools))?)?;
        if offered.tools.is_empty() {
            let shown = self.renderer.python_tag.into_iter().collect();
            return Ok(PreparedPrompt {
                shown,
                ..PreparedPrompt::of_text(ids)
            });
        }
        let opening = offered.forced().map(|name| match format {
            Some(format) => format.opening(name),
            None => RenderedText {
                text: opening_of_text_call(name),
                controls: vec![],
            },
        });
        if let Some(opening) = &opening {
            ids.extend(self.encode(opening)?);
        }
        let syntax = format.map_or(CallSyntax::Tags, |format| format.syntax);
        let control = |tag: &&str| self.renderer.tokenizer.control(tag);
        Ok(PreparedPrompt {
            ids,
            reader: ReplyReader::new(syntax, offered, opening.as_ref()),
            shown: CALL_TAGS.iter().filter_map(control).collect(),
            openings: match opening {
                Some(_) => &[""],
                None => openings(syntax),
            },
        })
    }

    fn encode(&self, rendered: &RenderedText) -> Result<Vec<i64>, PromptError> {
        let pieces = rendered.pieces(0..rendered.text.len());
        let spells = |piece: &Piece<'_>| match piece {
            Piece::Control(_) => false,
            Piece::Text(text) => self.vocabulary.control_in(text).is_some(),
        };
        if !pieces.iter().any(spells) {
            // All control tokens come from the template.
            let ids = self.vocabulary.encode(&rendered.text, false);
            return ids.map_err(PromptError::Encode);
        }
        let mut ids = vec![];
        for piece in pieces {
            let (Piece::Control(text) | Piece::Text(text)) = piece;
            let control = self.renderer.tokenizer.control(text);
            match (piece, control) {
                (Piece::Control(_), Some(id)) => ids.push(i64::from(id)),
                _ => {
                    let tokens = self.renderer.tokenizer.encode(text)?;
                    ids.extend(tokens.iter().map(|token| i64::from(token.id)));
                }
            }
        }
        Ok(ids)
    }

    /// The control tokens that end a reply, if the template has any.
    pub(super) fn ends_of_turn(&self) -> Vec<u32> {
        self.renderer.ends_of_turn()
    }
}
