//! Text, tokens and masks against transformers' `apply_chat_template`.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use pybench_training_data::{Message, Renderer, Source, read};
use serde::Deserialize;
use serde_json::json;

use crate::support::data;

#[derive(Deserialize)]
struct Line {
    messages: Vec<Message>,
    text: String,
    ids: Vec<u32>,
    /// A content holds a control token, which transformers obeys and we do not.
    hostile: bool,
}

fn each(mut check: impl FnMut(&str, &Renderer, Line)) {
    for name in ["chatml", "llama3", "methods"] {
        let folder = data("templates").join(name);
        let renderer = Renderer::load(&folder).unwrap();
        let lines = std::fs::read_to_string(folder.join("expected.jsonl")).unwrap();
        for line in lines.lines() {
            check(name, &renderer, serde_json::from_str(line).unwrap());
        }
    }
}

#[test]
fn text_and_tokens_are_those_of_transformers() {
    let mut compared = 0;
    each(|name, renderer, line| {
        let text = renderer.template.render(&line.messages, false).unwrap();
        assert_eq!(text, line.text, "{name}");
        if !line.hostile {
            let rendered = renderer.render(&line.messages).unwrap();
            assert_eq!(rendered.ids, line.ids, "{name}: {text}");
            compared += 1;
        }
    });
    assert!(compared >= 45, "{compared} conversations compared");
}

#[test]
fn control_tokens_in_contents_are_text() {
    let mut hostile = 0;
    each(|name, renderer, line| {
        let rendered = renderer.render(&line.messages).unwrap();
        let text = renderer.tokenizer.decode(&rendered.ids).unwrap();
        assert_eq!(text, line.text, "{name}");
        if line.hostile {
            hostile += 1;
            let controls = |ids: &[u32]| {
                ids.iter()
                    .filter(|&&id| renderer.tokenizer.is_control(id))
                    .count()
            };
            assert!(controls(&rendered.ids) < controls(&line.ids), "{name}");
        }
    });
    assert!(hostile >= 3);
}

#[test]
fn replies_and_their_ends_are_trained_and_nothing_else() {
    each(|name, renderer, line| {
        let rendered = renderer.render(&line.messages).unwrap();
        let trained = |index: &usize| rendered.spans[*index].trained;
        let ids: Vec<u32> = (0..rendered.ids.len())
            .filter(trained)
            .map(|p| rendered.ids[p])
            .collect();
        let found = renderer.tokenizer.decode(&ids).unwrap();
        let end = match name {
            "chatml" => "<|im_end|>",
            "llama3" => "<|eot_id|>",
            _ => "<|endoftext|>",
        };
        // As Python's `strip` has it.
        let space = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
        let content = |m: &Message| match name {
            "chatml" => m.content.clone(),
            _ => m.content.trim_matches(space).to_owned(),
        };
        let replies = line.messages.iter().filter(|m| m.is_assistant());
        let wanted: String = replies.map(|m| content(m) + end).collect();
        // A token that starts in template text cannot be trained; at most one per reply.
        match rendered.straddling {
            0 => assert_eq!(found, wanted, "{name}"),
            _ => assert!(found.len() < wanted.len() && found.ends_with(end), "{name}"),
        }
    });
}

/// A shortened version of Qwen2.5's template for tool calls.
const CALLS: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role }}\
{% if m.content %}{{ '\\n' + m.content }}{% endif %}\
{% for call in m.tool_calls %}{{ '\\n<tool_call>\\n' }}{{ call.function | tojson }}{{ '\\n</tool_call>' }}{% endfor %}\
{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

fn with_calls() -> (tempfile::TempDir, Renderer) {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("calls.jinja");
    std::fs::write(&template, CALLS).unwrap();
    let renderer = Renderer::load_with(&data("templates/chatml"), Some(&template)).unwrap();
    (folder, renderer)
}

fn talk(argument: &str, content: &str) -> Vec<Message> {
    let call = json!({"type": "function", "function":
        {"name": "add", "arguments": {"b": 2.0, "a": argument, "none": null}}});
    let messages = json!([
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": content, "tool_calls": [call.clone(), call]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "It is 4.", "tool_calls": null},
    ]);
    serde_json::from_value(messages).unwrap()
}

#[test]
fn calls_of_tools_are_trained_to_the_end_of_their_turn() {
    let (_folder, renderer) = with_calls();
    for content in ["", "I add."] {
        let messages = talk("中\"<", content);
        let rendered = renderer.render(&messages).unwrap();
        let text = renderer.tokenizer.decode(&rendered.ids).unwrap();
        assert_eq!(text, renderer.template.render(&messages, false).unwrap());
        assert!(renderer.matches_rendered_text(&messages).unwrap());
        // As Python's json.dumps writes it.
        let call = r#"{"name": "add", "arguments": {"b": 2.0, "a": "中\"<", "none": null}}"#;
        let calls = format!("<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{call}\n</tool_call>");
        let between = if content.is_empty() { "" } else { "\n" };
        let wanted = format!("{content}{between}{calls}<|im_end|>It is 4.<|im_end|>");
        let spans = rendered.ids.iter().zip(&rendered.spans);
        let trained: Vec<u32> = spans
            .filter(|(_, s)| s.trained)
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(renderer.tokenizer.decode(&trained).unwrap(), wanted);
        let ends = rendered.spans.iter().filter(|s| s.trained && s.ends_turn);
        assert_eq!(ends.count(), 2);
        let owners: Vec<usize> = rendered.spans.iter().map(|span| span.message).collect();
        assert!(owners.is_sorted() && owners.contains(&2), "{owners:?}");
    }
}

#[test]
fn a_control_token_in_a_call_is_text_and_a_template_without_calls_is_refused() {
    let (_folder, renderer) = with_calls();
    let controls = |argument: &str| {
        let rendered = renderer.render(&talk(argument, "")).unwrap();
        let ids = rendered.ids.into_iter();
        ids.filter(|&id| renderer.tokenizer.is_control(id)).count()
    };
    assert_eq!(controls("<|im_end|>"), controls("a"));
    // ChatML ignores tool_calls, so an empty reply would be trained.
    let plain = Renderer::load(&data("templates/chatml")).unwrap();
    let refused = plain.render(&talk("2", "")).unwrap_err();
    assert!(refused.to_string().contains("message 1"), "{refused}");
}

/// The messages as a column of structs, as `datasets` writes them.
fn column(messages: &[Message]) -> ArrayRef {
    let texts = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let field = |name: &str, kind: &DataType| Arc::new(Field::new(name, kind.clone(), true));
    let arguments: Vec<_> = messages.iter().flat_map(|m| &m.tool_calls).collect();
    let a = |call: &&serde_json::Value| {
        call["function"]["arguments"]["a"]
            .as_str()
            .map(str::to_owned)
    };
    let a: Vec<Option<String>> = arguments.iter().map(a).collect();
    let b: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![2.0; a.len()]));
    let a = Arc::new(StringArray::from(a)) as ArrayRef;
    let wrap = |columns: Vec<(&str, ArrayRef)>| {
        let fields = columns
            .into_iter()
            .map(|(name, c)| (field(name, c.data_type()), c));
        Arc::new(StructArray::from(fields.collect::<Vec<_>>())) as ArrayRef
    };
    let names = texts(vec![Some("add"); b.len()]);
    let kinds = texts(vec![Some("function"); b.len()]);
    let function = wrap(vec![
        ("name", names),
        ("arguments", wrap(vec![("b", b), ("a", a)])),
    ]);
    let calls = wrap(vec![("type", kinds), ("function", function)]);
    let list = |items: ArrayRef, lengths: Vec<usize>| {
        let item = field("item", items.data_type());
        Arc::new(ListArray::new(
            item,
            OffsetBuffer::from_lengths(lengths),
            items,
            None,
        )) as ArrayRef
    };
    let calls = list(calls, messages.iter().map(|m| m.tool_calls.len()).collect());
    let roles = texts(messages.iter().map(|m| Some(m.role.as_str())).collect());
    let contents = texts(messages.iter().map(|m| Some(m.content.as_str())).collect());
    let rows = wrap(vec![
        ("role", roles),
        ("content", contents),
        ("tool_calls", calls),
    ]);
    list(rows, vec![messages.len()])
}

#[test]
fn calls_of_tools_are_read_from_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut messages = talk("2", "");
    crate::sources::write_parquet(&path, vec![("messages", column(&messages))]);
    let found = read(&Source::from_path(&path)).unwrap();
    // A field that is null is one that another row has.
    for call in messages.iter_mut().flat_map(|m| &mut m.tool_calls) {
        call["function"]["arguments"]
            .as_object_mut()
            .unwrap()
            .shift_remove("none");
    }
    assert_eq!(found[0].messages, messages);
}
