//! Renders a conversation to prompt tokens. Text of a message never becomes a control token.

use std::sync::Arc;

use pybench_training_data::{Message, Renderer, Span, TemplateError, TokenizerError};
use thiserror::Error;

use super::vocabulary::Vocabulary;

#[derive(Debug, Error)]
pub(super) enum PromptError {
    #[error(transparent)]
    Renderer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("{0}")]
    Encode(String),
    #[error(
        "a message contains {0}, a control token of the model, and the chat template changes messages, so the token cannot be told from those of the template"
    )]
    Opaque(String),
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

    /// The tokens of the rendered conversation with the generation prompt.
    pub(super) fn tokens(&self, messages: &[Message]) -> Result<Vec<i64>, PromptError> {
        let wanted = self.renderer.template.render(messages, true)?;
        let is_rendered_as = |ids: &[i64]| {
            let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
            let text = self.renderer.tokenizer.decode(&ids);
            text.is_ok_and(|text| text == wanted)
        };
        if let Some(ids) = self.before_reply(messages)
            && is_rendered_as(&ids)
        {
            return Ok(ids);
        }
        // A template may write a generation prompt that differs from the start of a reply, or change messages.
        // If no message spells a control token, all control tokens in the text come from the template.
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
        let reply = |span: &Span| span.message == messages.len() && span.trained;
        let end = rendered.spans.iter().position(reply)?;
        Some(to_i64(&rendered.ids[..end]))
    }

    /// The control token that ends a reply, if the template has one.
    pub(super) fn end_of_turn(&self) -> Option<u32> {
        let messages = with_reply(&[Message::new("user", "a")]);
        let rendered = self.renderer.render(&messages).ok()?;
        let index = rendered.spans.iter().position(|span| span.trained)?;
        let id = rendered.ids[index];
        self.vocabulary.is_special(id).then_some(id)
    }
}

fn with_reply(messages: &[Message]) -> Vec<Message> {
    let mut all = messages.to_vec();
    all.push(Message::new("assistant", ""));
    all
}

fn to_i64(ids: &[u32]) -> Vec<i64> {
    ids.iter().map(|&id| i64::from(id)).collect()
}
