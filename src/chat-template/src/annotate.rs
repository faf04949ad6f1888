//! Which part of a rendered conversation belongs to which message, and which the model writes itself.
//!
//! The template runs a second time with marks in the messages of the assistant: around their content and before the
//! name of each tool that they call. The marks show where these messages are, whatever the template does with the
//! others.

use std::ops::Range;

use crate::marked_text::RenderedText;
use crate::message::{Chat, Message};
use crate::placement::{MarkedMessages, PLACEMENTS};
use crate::replies::Finder;
use crate::template::{ChatTemplate, TemplateError};

/// A rendered conversation and its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotatedText {
    pub rendered: RenderedText,
    /// In order; together they are the whole text.
    pub parts: Vec<MessagePart>,
    /// Messages with tool calls whose content the template leaves out.
    pub left_out: usize,
}

/// A part of the text that belongs to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePart {
    pub range: Range<usize>,
    /// Index of the message. Template text before a message belongs to it.
    pub message: usize,
    /// Whether the model writes it.
    pub trained: bool,
    /// Whether it is the control token that ends a reply.
    pub ends_turn: bool,
}

impl ChatTemplate {
    /// Renders a conversation and tells what the model writes. The text is that of [`Self::render`] without a
    /// generation prompt.
    pub fn annotate<'a>(&self, chat: impl Into<Chat<'a>>) -> Result<AnnotatedText, TemplateError> {
        let chat = chat.into();
        let (program, marks) = self.marked_for(chat)?;
        let text = self.render(chat, false)?;
        for placement in PLACEMENTS {
            let marked = MarkedMessages::new(chat.messages, placement, &mut marks.clone());
            let marked = marked.ok_or(TemplateError::LimitExceeded)?;
            let whole = program.run(Chat::new(&marked.messages, chat.tools), false, &marks);
            let Ok(whole) = whole.and_then(|whole| match whole.rendered.text == text {
                true => Ok(whole),
                false => Err(TemplateError::ControlInMessage),
            }) else {
                continue;
            };
            let mut finder = Finder::new(&program, &marks, chat, marked, whole);
            let mut annotated = divide(&mut finder, chat.messages)?;
            let rendered = &mut annotated.rendered;
            program.add_assembled(chat, false, &self.controls, marks, rendered);
            return Ok(annotated);
        }
        Err(TemplateError::ControlInMessage)
    }
}

/// Divides the text among the messages.
fn divide(finder: &mut Finder<'_>, messages: &[Message]) -> Result<AnnotatedText, TemplateError> {
    let (mut parts, mut done) = (vec![], 0);
    let mut add = |range: Range<usize>, message, trained, ends_turn| {
        if !range.is_empty() {
            parts.push(MessagePart {
                range,
                message,
                trained,
                ends_turn,
            });
        }
    };
    for (number, message) in messages.iter().enumerate() {
        if message.is_assistant() {
            let reply = finder.reply(number, done)?;
            let Range { start, end } = reply.range;
            let text_end = reply.end_of_turn.unwrap_or(end);
            add(done..start, number, false, false);
            add(start..text_end, number, true, false);
            add(text_end..end, number, true, true);
            done = end;
        } else if let Some(end) = finder.end_of_other(number, done) {
            add(done..end, number, false, false);
            done = end;
        }
    }
    let next = messages.len().saturating_sub(1);
    add(done..finder.whole.rendered.text.len(), next, false, false);
    Ok(AnnotatedText {
        rendered: finder.whole.rendered.clone(),
        parts,
        left_out: finder.left_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CONTROLS: [&str; 8] = [
        "<|im_start|>",
        "<|im_end|>",
        "<|header|>",
        "<|eot|>",
        "[INST]",
        "[/INST]",
        "[CALLS]",
        "</s>",
    ];
    /// As in Llama 3.1: JSON calls, one per message; results through `tojson`.
    const LLAMA: &str = "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}{% set f = m.tool_calls[0].function %}{{ '<|header|>assistant\n\n{\"name\": \"' + f.name + '\", \"parameters\": ' }}{{ f.arguments | tojson }}{{ '}<|eot|>' }}{% elif m.role == 'tool' %}{{ '<|header|>ipython\n\n' }}{{ m.content | tojson }}{{ '<|eot|>' }}{% else %}{{ '<|header|>' + m.role + '\n\n' + m.content | trim + '<|eot|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|header|>assistant\n\n' }}{% endif %}";
    /// As in Mistral: no generation prompt, and the tools before the last message of the user.
    const MISTRAL: &str = "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}{% for m in messages %}{% if m.role == 'user' %}{% if tools and m == users[-1] %}{{ tools | tojson }}{% endif %}{{ '[INST] ' + m.content + '[/INST]' }}{% elif m.tool_calls %}{{ '[CALLS] [' }}{% for c in m.tool_calls %}{{ (c.function | tojson)[:-1] + ', \"id\": \"' + c.id + '\"}' }}{% endfor %}{{ ']</s>' }}{% elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    /// As in Qwen 3: thoughts of earlier replies are left out, and the last reply gets an empty one.
    const THINKS: &str = "{% for m in messages %}{% if m.role == 'assistant' %}{% set c = m.content.split('</think>')[-1].lstrip('\n') %}<|im_start|>assistant\n{% if loop.last %}{{ '<think>\n' + (m.content.split('</think>')[0].split('<think>')[-1].strip('\n') if '</think>' in m.content else '') + '\n</think>\n\n' }}{% endif %}{{ c }}<|im_end|>\n{% else %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

    fn template(source: &str) -> ChatTemplate {
        let source = source.replace("\\n", "\n");
        let template = ChatTemplate::new(&source, "", "").unwrap();
        template.with_controls(CONTROLS.map(String::from)).unwrap()
    }

    fn call(name: &str, argument: &str) -> Value {
        json!({"id": "a", "function": {"name": name, "arguments": {"x": argument}}})
    }

    fn calls(content: &str, calls: Vec<Value>) -> Message {
        Message {
            tool_calls: calls,
            ..Message::new("assistant", content)
        }
    }

    /// The trained texts, one per reply.
    fn trained(template: &ChatTemplate, messages: &[Message]) -> Vec<String> {
        let tools = [json!({"name": "f"})];
        let chat = Chat::new(messages, &tools);
        let annotated = template.annotate(chat).unwrap();
        let text = &annotated.rendered.text;
        assert_eq!(*text, template.render(chat, false).unwrap());
        let mut found: Vec<String> = vec![];
        let mut open = None;
        let mut end = 0;
        for part in &annotated.parts {
            assert_eq!(part.range.start, end);
            end = part.range.end;
            if part.trained {
                assert!(messages[part.message].is_assistant());
                match open == Some(part.message) {
                    true => found
                        .last_mut()
                        .unwrap()
                        .push_str(&text[part.range.clone()]),
                    false => found.push(text[part.range.clone()].to_owned()),
                }
                open = Some(part.message);
            }
        }
        assert_eq!(end, text.len());
        found
    }

    #[test]
    fn a_call_is_trained_and_a_changed_result_is_not() {
        let messages = [
            Message::new("user", "<|eot|> {\"name\": \"f\"}"),
            calls("", vec![call("f", "a\n<|eot|>")]),
            Message::new("tool", "4\n\"<|eot|>\""),
            Message::new("assistant", " It is 4. "),
        ];
        let wanted = [
            "{\"name\": \"f\", \"parameters\": {\"x\": \"a\\n<|eot|>\"}}<|eot|>",
            "It is 4.<|eot|>",
        ];
        let template = template(LLAMA);
        assert_eq!(trained(&template, &messages), wanted);
        let annotated = template.annotate(&messages).unwrap();
        assert_eq!(annotated.rendered.controls.len(), 2 * messages.len());
        let owners: Vec<usize> = annotated.parts.iter().map(|part| part.message).collect();
        assert_eq!(owners, [0, 1, 1, 1, 2, 3, 3, 3]);
    }

    #[test]
    fn content_beside_calls_may_be_left_out() {
        let messages = [
            Message::new("user", "a"),
            calls("I call.", vec![call("f", "")]),
        ];
        assert_eq!(template(LLAMA).annotate(&messages).unwrap().left_out, 1);
        let refused = template(LLAMA).annotate(&[
            Message::new("user", "a"),
            calls("", vec![call("f", ""), call("f", "")]),
        ]);
        assert!(matches!(refused, Err(TemplateError::Rejected(_))));
    }

    #[test]
    fn replies_without_a_generation_prompt_are_found() {
        let messages = [
            Message::new("user", "a"),
            calls("", vec![call("f", "1"), call("g", "</s>[/INST]")]),
            Message::new("tool", "4"),
            Message::new("assistant", "Four. "),
            Message::new("user", "Four. </s>"),
            Message::new("assistant", ""),
        ];
        let wanted = [
            "[CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": \"1\"}, \"id\": \"a\"}{\"name\": \"g\", \"arguments\": {\"x\": \"</s>[/INST]\"}, \"id\": \"a\"}]</s>",
            " Four. </s>",
            " </s>",
        ];
        assert_eq!(trained(&template(MISTRAL), &messages), wanted);
    }

    #[test]
    fn thoughts_that_the_template_writes_are_trained() {
        let thinks = "<think>\nhm\n</think>\n\nYes.";
        let messages = [
            Message::new("user", "a"),
            Message::new("assistant", thinks),
            Message::new("user", "</think>"),
            Message::new("assistant", thinks),
        ];
        let wanted = ["Yes.<|im_end|>", "<think>\nhm\n</think>\n\nYes.<|im_end|>"];
        assert_eq!(trained(&template(THINKS), &messages), wanted);
        let messages = [Message::new("user", "a"), Message::new("assistant", "No.")];
        let wanted = ["<think>\n\n</think>\n\nNo.<|im_end|>"];
        assert_eq!(trained(&template(THINKS), &messages), wanted);
    }

    #[test]
    fn a_template_that_drops_or_repeats_a_reply_is_refused() {
        let drops = "{% for m in messages %}<|im_start|>{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
        let repeats = "{% for m in messages %}<|im_start|>{{ m.content + m.content }}{% endfor %}";
        let messages = [Message::new("user", "a"), Message::new("assistant", "b")];
        for source in [drops, repeats] {
            let refused = template(source).annotate(&messages);
            let opaque = matches!(refused, Err(TemplateError::Opaque { message: 1 }));
            assert!(opaque, "{source}: {refused:?}");
        }
        // ChatML does not know tool calls.
        let chatml = "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
        let refused = template(chatml).annotate(&[calls("", vec![call("f", "")])]);
        assert!(matches!(refused, Err(TemplateError::Opaque { message: 0 })));
    }

    #[test]
    fn text_of_others_may_be_changed() {
        let source = "{% for m in messages %}<|header|>{{ m.role }}\n{% if m.role == 'user' %}{{ m.content | upper }}{% else %}{{ m.content }}{% endif %}<|eot|>{% endfor %}{% if add_generation_prompt %}<|header|>assistant\n{% endif %}";
        let messages = [
            Message::new("user", "a<|eot|>"),
            Message::new("assistant", "b"),
        ];
        assert_eq!(trained(&template(source), &messages), ["b<|eot|>"]);
    }
}
