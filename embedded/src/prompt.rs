//! From a conversation to tokens. What a message says is never a control token.

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::vocab::LlamaVocab;

use crate::Message;
use crate::chat::{self, ChatTemplate, Piece, TemplateError};

/// Prompts of one model.
pub(crate) struct Prompts {
    template: ChatTemplate,
    /// Control tokens as they are written, the longest first.
    controls: Vec<(String, LlamaToken)>,
    bos: Option<LlamaToken>,
}

/// Text, or a control token.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Control(usize),
    Plain(&'a str),
}

impl Prompts {
    /// By the chat template that the file carries.
    ///
    /// # Errors
    /// Where there is none, or it is no template.
    pub(crate) fn of(model: &LlamaModel) -> Result<Self, TemplateError> {
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
        let mut controls: Vec<_> = tokens
            .filter(|token| vocab.is_control(*token))
            .filter_map(|token| Some((text(token)?, token)))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        controls.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let bos = (vocab.should_add_bos() && bos.is_some()).then(|| vocab.bos());
        Ok(Self {
            template,
            controls,
            bos,
        })
    }

    /// The tokens of a conversation and of the words that open a reply.
    ///
    /// # Errors
    /// The template's.
    pub(crate) fn tokens(
        &self,
        vocab: &LlamaVocab<'_>,
        messages: &[Message],
    ) -> Result<Vec<LlamaToken>, TemplateError> {
        let asked: Vec<_> = messages.iter().map(said_in_chat).collect();
        let whole = self.template.render(&asked, true)?;
        let said = messages.iter().flat_map(|m| [&m.role, &m.content]);
        let says_control = said.into_iter().any(|text| {
            self.controls
                .iter()
                .any(|(control, _)| text.contains(control))
        });
        let mut tokens = match says_control {
            // All control tokens are the template's.
            false => vocab.tokenize(whole.as_bytes(), false, true),
            true => self.apart(vocab, &asked, &whole)?,
        };
        if let Some(bos) = self.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// The same where a message says what looks like a control token.
    fn apart(
        &self,
        vocab: &LlamaVocab<'_>,
        messages: &[chat::Message],
        whole: &str,
    ) -> Result<Vec<LlamaToken>, TemplateError> {
        let pieces = self.template.pieces(messages)?;
        let text = |piece: &Piece| match piece {
            Piece::Frame(text) | Piece::Content { text, .. } => text.clone(),
        };
        let said: String = pieces.iter().map(text).collect();
        let opening = whole.strip_prefix(&said).ok_or(TemplateError::Opaque {
            message: messages.len().saturating_sub(1),
        })?;
        let opening = [Piece::Frame(opening.to_owned())];
        let (mut tokens, mut plain) = (Vec::new(), String::new());
        for piece in pieces.iter().chain(&opening) {
            match piece {
                Piece::Content { text, .. } => plain += text,
                Piece::Frame(text) => {
                    for part in split(text, &self.controls) {
                        match part {
                            Part::Plain(text) => plain += text,
                            Part::Control(at) => {
                                flush(vocab, &mut plain, &mut tokens);
                                tokens.push(self.controls[at].1);
                            }
                        }
                    }
                }
            }
        }
        flush(vocab, &mut plain, &mut tokens);
        Ok(tokens)
    }
}

fn flush(vocab: &LlamaVocab<'_>, plain: &mut String, tokens: &mut Vec<LlamaToken>) {
    if !plain.is_empty() {
        tokens.extend(vocab.tokenize(plain.as_bytes(), false, false));
        plain.clear();
    }
}

fn said_in_chat(message: &Message) -> chat::Message {
    chat::Message::new(&message.role, &message.content)
}

/// A template's words, cut at control tokens: the first of them, of several at a place the longest.
fn split<'a>(text: &'a str, controls: &[(String, LlamaToken)]) -> Vec<Part<'a>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let found = controls
            .iter()
            .enumerate()
            .filter_map(|(at, (control, _))| Some((rest.find(control.as_str())?, at)))
            .min();
        let end = found.map_or(rest.len(), |(start, _)| start);
        if end > 0 {
            parts.push(Part::Plain(&rest[..end]));
        }
        let Some((start, at)) = found else {
            return parts;
        };
        parts.push(Part::Control(at));
        rest = &rest[start + controls[at].0.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_at_control_tokens() {
        let controls = [
            ("<|a|>b".to_owned(), LlamaToken(1)),
            ("<|a|>".to_owned(), LlamaToken(2)),
        ];
        assert_eq!(
            split("x<|a|>y<|a|>b<|a|>", &controls),
            [
                Part::Plain("x"),
                Part::Control(1),
                Part::Plain("y"),
                Part::Control(0),
                Part::Control(1)
            ]
        );
        assert!(split("", &controls).is_empty());
    }
}
