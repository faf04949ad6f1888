//! Each mistake that the preflight stops a run for.

use pybench_training_data::{
    Conversation, Message, Preflight, Renderer, TokenStats, judge, preflight,
};

use crate::support::data;

/// A tokenizer with another template and configuration.
fn renderer(template: &str, config: serde_json::Value) -> Renderer {
    let folder = tempfile::tempdir().unwrap();
    let from = data("templates/chatml/tokenizer.json");
    std::fs::copy(from, folder.path().join("tokenizer.json")).unwrap();
    std::fs::write(
        folder.path().join("tokenizer_config.json"),
        config.to_string(),
    )
    .unwrap();
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    Renderer::load(folder.path()).unwrap()
}

const CHATML: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

fn plain() -> serde_json::Value {
    serde_json::json!({"bos_token": "<|begin_of_text|>", "pad_token": "<|endoftext|>"})
}

fn look(renderer: &Renderer, messages: &[Message], vocab: i64, pad: bool) -> Preflight {
    let conversation = Conversation {
        messages: messages.to_vec(),
        tools: vec![],
        location: "a.jsonl:1".into(),
        unseen: pybench_types::held_out::Unseen::Files,
        difficulty: 0,
    };
    let rendered = renderer.render(messages).unwrap();
    preflight(renderer, &[conversation], &[rendered], vocab, pad).unwrap()
}

fn talk() -> Vec<Message> {
    vec![Message::new("user", "1+1?"), Message::new("assistant", "2")]
}

fn stops(renderer: &Renderer, messages: &[Message], words: &str) {
    let found = look(renderer, messages, 520, false);
    assert!(
        found.errors.iter().any(|stop| stop.contains(words)),
        "{found:?}"
    );
}

#[test]
fn a_good_conversation_is_let_through() {
    let found = look(&renderer(CHATML, plain()), &talk(), 520, false);
    assert_eq!(found, Preflight::default());
}

#[test]
fn no_trained_token() {
    let messages = [Message::new("user", "anyone?")];
    stops(
        &renderer(CHATML, plain()),
        &messages,
        "no token would be trained",
    );
}

#[test]
fn two_beginnings() {
    let template = format!("{{{{ bos_token }}}}<|begin_of_text|>{CHATML}");
    stops(&renderer(&template, plain()), &talk(), "double BOS");
}

#[test]
fn an_end_that_is_never_trained() {
    let template = "<|im_start|>{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}";
    stops(
        &renderer(template, plain()),
        &talk(),
        "end of a turn is never trained",
    );
}

#[test]
fn padding_that_is_assistant() {
    let config = serde_json::json!({"pad_token": "<|im_end|>"});
    let renderer = renderer(CHATML, config);
    stops(&renderer, &talk(), "padding token");
    let allowed = look(&renderer, &talk(), 520, true);
    assert!(
        allowed.errors.is_empty() && allowed.notes[0].contains("padding token"),
        "{allowed:?}"
    );
}

#[test]
fn a_template_whose_tokens_differ() {
    // Half a control token in the template, the other half in the message.
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n<|im_{{ m.content }}<|im_end|>{% endfor %}";
    let messages = [
        Message::new("user", "end|>"),
        Message::new("assistant", "2"),
    ];
    stops(
        &renderer(template, plain()),
        &messages,
        "a.jsonl:1: the tokens differ",
    );
}

#[test]
fn more_tokens_than_the_embedding_has_rows() {
    let renderer = renderer(CHATML, plain());
    let found = look(&renderer, &talk(), 100, false);
    assert!(
        found
            .errors
            .iter()
            .any(|stop| stop.contains("different models")),
        "{found:?}"
    );
    assert!(
        found
            .errors
            .iter()
            .any(|stop| stop.contains("another model")),
        "{found:?}"
    );
}

#[test]
fn texts_need_no_turns() {
    let renderer = renderer(CHATML, plain());
    let mut stats = TokenStats::default();
    let text = renderer.text("print(1)").unwrap();
    stats.add(&text, false, &renderer.tokenizer);
    assert_eq!(
        judge(&stats, &renderer.tokenizer, 520, false),
        Preflight::default()
    );
}
