//! From a conversation to the tokens that a reply goes on from, by the typed renderer: what a message
//! says is never a control token.

use std::sync::Arc;

use thiserror::Error;

use super::vocabulary::Vocabulary;
use crate::data::{Message, Renderer, TemplateError, TokenizerError};

/// Why a conversation cannot be answered.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub(super) enum PromptError {
    #[error(transparent)]
    Renderer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("{0}")]
    Encode(String),
    #[error(
        "a message says {0}, a control token of the model, and the chat template does more with messages than put them in: the two cannot be told apart"
    )]
    Opaque(String),
}

/// Prompts of one model.
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

    /// The tokens of the conversation and of the words that open a reply: of the chat template's text
    /// with `add_generation_prompt`.
    pub(super) fn tokens(&self, messages: &[Message]) -> Result<Vec<i64>, PromptError> {
        let wanted = self.renderer.template.render(messages, true)?;
        let says = |ids: &[i64]| {
            let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
            let text = self.renderer.tokenizer.decode(&ids);
            text.is_ok_and(|text| text == wanted)
        };
        if let Some(ids) = self.before_reply(messages)
            && says(&ids)
        {
            return Ok(ids);
        }
        // Templates may write other things before a reply to come than before one that is there, or
        // do more with a message than put it in. Where no message says a control token, all that
        // stand in the text are the template's.
        if let Some(control) = messages
            .iter()
            .find_map(|m| self.vocabulary.control_in(&m.content))
        {
            return Err(PromptError::Opaque(control.into()));
        }
        self.vocabulary
            .encode(&wanted, false)
            .map_err(PromptError::Encode)
    }

    /// The tokens before an empty reply to these messages.
    fn before_reply(&self, messages: &[Message]) -> Option<Vec<i64>> {
        let rendered = self.renderer.render(&with_reply(messages)).ok()?;
        let reply = |span: &crate::data::Span| span.message == messages.len() && span.trained;
        let end = rendered.spans.iter().position(reply)?;
        Some(wide(&rendered.ids[..end]))
    }

    /// The control token that ends a reply, where the template writes one.
    pub(super) fn end_of_turn(&self) -> Option<u32> {
        let messages = with_reply(&[Message::new("user", "a")]);
        let rendered = self.renderer.render(&messages).ok()?;
        let place = rendered.spans.iter().position(|span| span.trained)?;
        let id = rendered.ids[place];
        self.vocabulary.is_special(id).then_some(id)
    }
}

fn with_reply(messages: &[Message]) -> Vec<Message> {
    let mut all = messages.to_vec();
    all.push(Message::new("assistant", ""));
    all
}

fn wide(ids: &[u32]) -> Vec<i64> {
    ids.iter().map(|&id| i64::from(id)).collect()
}
