//! Turns a conversation into tokens. Text of a message never becomes a control token.

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::vocab::LlamaVocab;

use pybench_chat_template::{
    ChatTemplate, Message as ChatMessage, PYTHON_TAG, Piece, TemplateError,
};

use crate::protocol::Message;

/// Makes the prompts of one model.
pub(crate) struct PromptBuilder {
    template: ChatTemplate,
    /// Text and number of each control token.
    controls: Vec<(String, LlamaToken)>,
    bos: Option<LlamaToken>,
    /// The token `<|python_tag|>`, if the template writes it before code for Llama's built-in interpreter.
    python_tag: Option<LlamaToken>,
}

impl PromptBuilder {
    /// Uses the chat template in the GGUF file.
    ///
    /// # Errors
    /// If the file has no chat template, or it is not valid Jinja.
    pub(crate) fn new(model: &LlamaModel) -> Result<Self, TemplateError> {
        let vocab = model.vocab();
        let source = model
            .meta_val_str("tokenizer.chat_template")
            .map_err(|_| TemplateError::Absent)?;
        let text = |token: LlamaToken| match token.0 {
            0.. => vocab
                .text(token)
                .map(|text| text.to_string_lossy().into_owned()),
            _ => None,
        };
        let (bos, eos) = (text(vocab.bos()), text(vocab.eos()));
        let template = ChatTemplate::new(
            &source,
            bos.as_deref().unwrap_or_default(),
            eos.as_deref().unwrap_or_default(),
        )?;
        let tokens = (0..vocab.n_tokens()).map(LlamaToken);
        let controls: Vec<_> = tokens
            .filter(|token| vocab.is_control(*token))
            .filter_map(|token| Some((text(token)?, token)))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        let template = template.with_controls(controls.iter().map(|(text, _)| text.clone()))?;
        let bos = (vocab.should_add_bos() && bos.is_some()).then(|| vocab.bos());
        let tag = controls.iter().find(|(text, _)| text == PYTHON_TAG);
        let python_tag = tag.filter(|_| writes_python_tag(&template));
        Ok(Self {
            python_tag: python_tag.map(|(_, token)| *token),
            template,
            controls,
            bos,
        })
    }

    /// The text of a control token that is part of a reply, because it tells code from text.
    pub(crate) fn shown(&self, token: LlamaToken) -> Option<&'static str> {
        (self.python_tag == Some(token)).then_some(PYTHON_TAG)
    }

    /// The tokens of a conversation and of the generation prompt.
    ///
    /// # Errors
    /// If the template rejects the conversation.
    pub(crate) fn tokens(
        &self,
        vocab: &LlamaVocab<'_>,
        messages: &[Message],
    ) -> Result<Vec<LlamaToken>, TemplateError> {
        let messages: Vec<_> = messages.iter().map(to_chat_message).collect();
        let rendered = self.template.prompt(&messages)?;
        let spells_control = messages.iter().any(|message| {
            let mut controls = self.controls.iter();
            controls.any(|(control, _)| message.content.contains(control))
        });
        let mut tokens = match spells_control {
            // All control tokens come from the template.
            false => vocab.tokenize(rendered.text.as_bytes(), false, true),
            true => {
                let pieces = rendered.pieces(0..rendered.text.len());
                self.tokenize_pieces(vocab, &pieces)
            }
        };
        if let Some(bos) = self.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// Tokenizes control tokens and text separately, for messages that spell out a control token.
    fn tokenize_pieces(&self, vocab: &LlamaVocab<'_>, pieces: &[Piece<'_>]) -> Vec<LlamaToken> {
        let (mut tokens, mut plain) = (Vec::new(), String::new());
        for piece in pieces {
            let (Piece::Control(text) | Piece::Text(text)) = piece;
            let mut controls = self.controls.iter();
            let control = controls.find(|(control, _)| control == text);
            match (piece, control) {
                (Piece::Control(_), Some(&(_, token))) => {
                    flush(vocab, &mut plain, &mut tokens);
                    tokens.push(token);
                }
                _ => plain += text,
            }
        }
        flush(vocab, &mut plain, &mut tokens);
        tokens
    }
}

/// Whether a reply that starts with the text of the tag gets the token.
fn writes_python_tag(template: &ChatTemplate) -> bool {
    let code = format!("{PYTHON_TAG}x");
    let messages = [("user", "x"), ("assistant", &code), ("tool", "x")];
    let messages = messages.map(|(role, text)| ChatMessage::new(role, text));
    let rendered = template.prompt(&messages);
    rendered.is_ok_and(|rendered| {
        let pieces = rendered.pieces(0..rendered.text.len());
        pieces.contains(&Piece::Control(PYTHON_TAG))
    })
}

fn flush(vocab: &LlamaVocab<'_>, plain: &mut String, tokens: &mut Vec<LlamaToken>) {
    if !plain.is_empty() {
        tokens.extend(vocab.tokenize(plain.as_bytes(), false, false));
        plain.clear();
    }
}

fn to_chat_message(message: &Message) -> ChatMessage {
    ChatMessage::new(&message.role, &message.content)
}
