//! Conversations with tools, in templates that do what those of Llama 3.1, Qwen 3 and Mistral do.

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use pybench_training_data::{Chat, Message, Rendered, Renderer, Source, Span, Weight, read};
use serde_json::{Value, json};

/// The control tokens of Mistral, which the tokenizer of the tests does not have.
const BRACKETS: [&str; 8] = [
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "</s>",
];

fn renderer(template: &str) -> Renderer {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tokenizer = root.join("training/tests/data/templates/llama3/tokenizer.json");
    let text = std::fs::read_to_string(tokenizer).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&text).unwrap();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    let next = 1 + added
        .iter()
        .map(|t| t["id"].as_u64().unwrap())
        .max()
        .unwrap();
    for (content, id) in BRACKETS.iter().zip(next..) {
        let mut token = added[0].clone();
        (token["content"], token["id"]) = (json!(content), json!(id));
        added.push(token);
    }
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({"bos_token": "<|begin_of_text|>", "eos_token": "</s>"});
    std::fs::write(
        folder.path().join("tokenizer_config.json"),
        config.to_string(),
    )
    .unwrap();
    let templates = root.join("src/chat-template/tests/data/jinja");
    Renderer::load_with(folder.path(), Some(&templates.join(template))).unwrap()
}

static LLAMA: LazyLock<Renderer> = LazyLock::new(|| renderer("call_json.jinja"));
static QWEN: LazyLock<Renderer> = LazyLock::new(|| renderer("call_tags.jinja"));
static MISTRAL: LazyLock<Renderer> = LazyLock::new(|| renderer("call_list.jinja"));

fn tools() -> Vec<Value> {
    let parameters = json!({"type": "object", "properties": {"code": {"type": "string"}}});
    let function =
        json!({"name": "run", "description": "Runs <|eot_id|>.", "parameters": parameters});
    vec![json!({"type": "function", "function": function})]
}

fn calling(content: &str, codes: &[&str]) -> Message {
    let call = |(number, code): (usize, &&str)| {
        let function = json!({"name": "run", "arguments": {"code": code}});
        json!({"id": format!("call{number:05}"), "type": "function", "function": function})
    };
    Message {
        tool_calls: codes.iter().enumerate().map(call).collect(),
        ..Message::new("assistant", content)
    }
}

fn result(content: &str) -> Message {
    Message {
        tool_call_id: Some("call00000".into()),
        ..Message::new("tool", content)
    }
}

/// What a template writes for a message of the assistant, in our words.
fn written(template: &str, message: &Message, is_last: bool) -> String {
    let codes = message.tool_calls.iter().map(|call| {
        let id = call["id"].as_str().unwrap();
        let code = call["function"]["arguments"]["code"].to_string();
        (format!("{{\"code\": {code}}}"), id.to_owned())
    });
    let codes: Vec<(String, String)> = codes.collect();
    // As Python's `strip` has it.
    let space = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
    match (template, codes.is_empty()) {
        ("llama", true) => message.content.trim_matches(space).to_owned() + "<|eot_id|>",
        ("llama", false) => {
            format!(
                "{{\"name\": \"run\", \"parameters\": {}}}<|eot_id|>",
                codes[0].0
            )
        }
        ("mistral", true) => format!(" {}</s>", message.content.trim_matches(space)),
        ("mistral", false) => {
            let call = |(code, id): &(String, String)| {
                format!("{{\"name\": \"run\", \"arguments\": {code}, \"id\": \"{id}\"}}")
            };
            let calls: Vec<String> = codes.iter().map(call).collect();
            format!("[TOOL_CALLS] [{}]</s>", calls.join(", "))
        }
        _ => {
            let thought = if is_last {
                "<think>\n\n</think>\n\n"
            } else {
                ""
            };
            let mut text = thought.to_owned() + message.content.trim_start_matches('\n');
            for (number, (code, _)) in codes.iter().enumerate() {
                if number > 0 || !message.content.is_empty() {
                    text.push('\n');
                }
                text += "<tool_call>\n{\"name\": \"run\", \"arguments\": ";
                text += &format!("{code}}}\n</tool_call>");
            }
            text + "<|im_end|>"
        }
    }
}

fn decoded(renderer: &Renderer, rendered: &Rendered, only: impl Fn(usize) -> bool) -> String {
    let ids: Vec<u32> = (0..rendered.ids.len())
        .filter(|&index| only(index))
        .map(|index| rendered.ids[index])
        .collect();
    renderer.tokenizer.decode(&ids).unwrap()
}

fn controls(renderer: &Renderer, rendered: &Rendered) -> Vec<u32> {
    let ids = rendered.ids.iter().copied();
    ids.filter(|&id| renderer.tokenizer.is_control(id))
        .collect()
}

/// The same conversation without anything that a template could mistake.
fn harmless(messages: &[Message]) -> Vec<Message> {
    // Equal texts stay equal: Mistral's template compares messages.
    let plain = |text: &str| match text.trim_start_matches('\n').is_empty() {
        true => text.to_owned(),
        false => format!("x{:?}", messages.iter().position(|m| m.content == text)),
    };
    let message = |message: &Message| {
        let codes = vec!["x"; message.tool_calls.len()];
        let tool_calls = calling("", &codes).tool_calls;
        Message {
            content: plain(&message.content),
            tool_calls,
            ..message.clone()
        }
    };
    messages.iter().map(message).collect()
}

fn check(name: &str, renderer: &Renderer, messages: &[Message]) {
    let tools = tools();
    let chat = Chat::new(messages, &tools);
    let rendered = renderer.render(chat).unwrap();
    let text = renderer.template.render(chat, false).unwrap();
    assert_eq!(decoded(renderer, &rendered, |_| true), text, "{name}");
    let harmless = harmless(messages);
    let wanted = renderer.render(Chat::new(&harmless, &tools)).unwrap();
    assert_eq!(
        controls(renderer, &rendered),
        controls(renderer, &wanted),
        "{name}: {text}"
    );
    for (number, message) in messages.iter().enumerate() {
        let spans = &rendered.spans;
        let found = decoded(renderer, &rendered, |i| {
            spans[i].trained && spans[i].message == number
        });
        let wanted = match message.is_assistant() {
            true => written(name, message, number + 1 == messages.len()),
            false => String::new(),
        };
        match rendered.straddling {
            0 => assert_eq!(found, wanted, "{name}: {text}"),
            _ => assert!(wanted.ends_with(&found), "{name}: {found:?} of {wanted:?}"),
        }
        let ends = spans
            .iter()
            .filter(|s| s.trained && s.ends_turn && s.message == number);
        assert_eq!(
            ends.count(),
            usize::from(message.is_assistant()),
            "{name}: {text}"
        );
    }
    assert!(rendered.spans.iter().map(|span| span.message).is_sorted());
}

/// Texts that try to be something else.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "<|eot_id|>",
        "<|im_end|>",
        "<|im_start|>assistant\n",
        "</s>",
        "[/INST]",
        "[TOOL_CALLS]",
        "<|start_header_id|>",
        "assistant",
        "<|end_header_id|>\n\n",
        "<|",
        "|>",
        "eot_id",
        "[",
        "]",
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "{\"name\": \"run\", \"arguments\": {}}",
        "\"",
        "\\",
        "\n",
        " ",
        "\x1f",
        "\u{f0000}",
        "\u{f0001}",
        "\u{10fffd}",
        "x",
        "中",
        "{{ eos_token }}",
        "\u{2028}",
    ]);
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

/// A question, perhaps calls with results, an answer.
fn turn() -> impl Strategy<Value = Vec<Message>> {
    let calls = prop::collection::vec((hostile(), hostile(), hostile()), 0..3);
    (hostile(), calls, hostile()).prop_map(|(question, calls, answer)| {
        let mut messages = vec![Message::new("user", question)];
        for (content, code, output) in calls {
            messages.push(calling(&content, &[&code]));
            messages.push(result(&output));
        }
        messages.push(Message::new("assistant", answer));
        messages
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]
    #[test]
    fn hostile_texts_are_text_and_replies_are_trained(turns in prop::collection::vec(turn(), 1..4)) {
        let messages = turns.concat();
        check("llama", &LLAMA, &messages);
        check("qwen", &QWEN, &messages);
        check("mistral", &MISTRAL, &messages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]
    #[test]
    fn a_weight_of_zero_takes_a_reply_out_of_the_loss_and_changes_nothing_else(
        turns in prop::collection::vec(turn(), 1..4),
        weights in prop::collection::vec(prop::option::of(any::<bool>()), 1..8),
    ) {
        let plain = turns.concat();
        let mut weighted = plain.clone();
        for (message, weight) in weighted.iter_mut().zip(weights.iter().cycle()) {
            message.weight = weight.map(Weight);
        }
        let tools = tools();
        for renderer in [&*LLAMA, &*QWEN, &*MISTRAL] {
            let all = renderer.render(Chat::new(&plain, &tools)).unwrap();
            let some = renderer.render(Chat::new(&weighted, &tools)).unwrap();
            prop_assert_eq!(&all.ids, &some.ids);
            for (all, some) in all.spans.iter().zip(&some.spans) {
                let context = weighted[all.message].weight == Some(Weight(false));
                let wanted = Span { trained: all.trained && !context, ..*all };
                prop_assert_eq!(*some, wanted);
            }
        }
    }
}

#[test]
fn weights_are_read_from_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let write = |weight: &str| {
        let reply = format!("{{\"role\":\"assistant\",\"content\":\"a\",\"weight\":{weight}}}");
        std::fs::write(&path, format!("{{\"messages\":[{reply}]}}")).unwrap();
        read(&Source::from_path(&path))
    };
    for (weight, trained) in [("0", false), ("1", true), ("0.0", false), ("null", true)] {
        let found = write(weight).unwrap().remove(0);
        assert_eq!(found.messages[0].is_trained(), trained, "{weight}");
    }
    for weight in ["0.5", "2", "\"0\""] {
        let error = write(weight).unwrap_err().to_string();
        assert!(error.contains("rows.jsonl:1"), "{error}");
    }
}

#[test]
fn several_calls_are_trained_where_the_template_allows_them() {
    let messages = [
        Message::new("user", "Do both."),
        calling("I do.", &["1", "2</tool_call>"]),
        result("1"),
        result("2"),
        Message::new("assistant", "Done."),
    ];
    check("qwen", &QWEN, &messages);
    check("mistral", &MISTRAL, &messages);
    let tools = tools();
    let refused = LLAMA.render(Chat::new(&messages, &tools)).unwrap_err();
    assert!(
        refused.to_string().contains("one call at a time"),
        "{refused}"
    );
}

#[test]
fn tokens_are_those_of_the_rendered_text() {
    let messages = [
        Message::new("system", "You call tools."),
        Message::new("user", "2 + 2?"),
        calling("", &["print(2 + 2)\n"]),
        result("4\n\"x\""),
        Message::new("assistant", "It is 4."),
    ];
    let tools = [
        json!({"type": "function", "function": {"name": "run", "parameters": {"properties": {}}}}),
    ];
    for renderer in [&*LLAMA, &*QWEN, &*MISTRAL] {
        let chat = Chat::new(&messages, &tools);
        assert!(renderer.matches_rendered_text(chat).unwrap());
        let text = renderer.template.render(chat, false).unwrap();
        assert!(text.contains("properties"), "the tools are missing: {text}");
    }
}

#[test]
fn our_rows_get_the_words_of_the_template() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let call =
        "I add.\n<tool_call>\n{\"name\":\"run\",\"arguments\":{\"code\":\"2 + 2\"}}\n</tool_call>";
    let row = json!({"tools": json!(tools()).to_string(), "messages": [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": call},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "Finished:\nIt is 4."},
    ]});
    std::fs::write(&path, row.to_string()).unwrap();
    let conversation = read(&Source::from_path(&path)).unwrap().remove(0);
    let trained = |renderer: &Renderer| {
        let rendered = renderer.render(&conversation).unwrap();
        let text = decoded(renderer, &rendered, |index| rendered.spans[index].trained);
        (text, rendered.left_out)
    };
    let json = "{\"name\": \"run\", \"parameters\": {\"code\": \"2 + 2\"}}";
    let wanted = format!("{json}<|eot_id|>Finished:\nIt is 4.<|eot_id|>");
    assert_eq!(
        trained(&LLAMA),
        (wanted, 1),
        "the template writes no text beside a call"
    );
    let call = "I add.\n<tool_call>\n{\"name\": \"run\", \"arguments\": {\"code\": \"2 + 2\"}}\n</tool_call><|im_end|>";
    let wanted = format!("{call}<think>\n\n</think>\n\nFinished:\nIt is 4.<|im_end|>");
    assert_eq!(trained(&QWEN), (wanted, 0));
}
