//! Turns a conversation into tokens. Text of a message never becomes a control token.

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::vocab::LlamaVocab;

use pybench_chat_template::{ChatTemplate, Message as ChatMessage, Segment, TemplateError};

use crate::protocol::Message;

/// Makes the prompts of one model.
pub(crate) struct PromptBuilder {
    template: ChatTemplate,
    /// Text and number of each control token, the longest text first.
    controls: Vec<(String, LlamaToken)>,
    bos: Option<LlamaToken>,
}

/// Plain text, or a control token by its index.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Control(usize),
    Plain(&'a str),
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
        let whole = self.template.render(&messages, true)?;
        let texts = messages.iter().flat_map(|m| [&m.role, &m.content]);
        let spells_control = texts.into_iter().any(|text| {
            self.controls
                .iter()
                .any(|(control, _)| text.contains(control))
        });
        let mut tokens = match spells_control {
            // All control tokens come from the template.
            false => vocab.tokenize(whole.as_bytes(), false, true),
            true => self.tokenize_segments(vocab, &messages, &whole)?,
        };
        if let Some(bos) = self.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// Tokenizes template text and contents separately, for messages that spell out a control token.
    fn tokenize_segments(
        &self,
        vocab: &LlamaVocab<'_>,
        messages: &[ChatMessage],
        whole: &str,
    ) -> Result<Vec<LlamaToken>, TemplateError> {
        let segments = self.template.segments(messages)?;
        let text = |segment: &Segment| match segment {
            Segment::Template(text) | Segment::Content { text, .. } => text.clone(),
        };
        let rendered: String = segments.iter().map(text).collect();
        let generation_prompt = whole.strip_prefix(&rendered).ok_or(TemplateError::Opaque {
            message: messages.len().saturating_sub(1),
        })?;
        let generation_prompt = [Segment::Template(generation_prompt.to_owned())];
        let (mut tokens, mut plain) = (Vec::new(), String::new());
        for segment in segments.iter().chain(&generation_prompt) {
            match segment {
                Segment::Content { text, .. } => plain += text,
                Segment::Template(text) => {
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

fn to_chat_message(message: &Message) -> ChatMessage {
    ChatMessage::new(&message.role, &message.content)
}

/// Splits template text at control tokens. Where several match at one position, the longest wins.
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
    fn text_is_split_at_control_tokens() {
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
