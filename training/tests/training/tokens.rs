//! Text, tokens and masks against transformers' `apply_chat_template`.

use pybench_training::data::{Message, Renderer};
use serde::Deserialize;

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
        let trained = |place: &usize| rendered.spans[*place].trained;
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
        let replies = line.messages.iter().filter(|m| m.is_trained());
        let wanted: String = replies.map(|m| content(m) + end).collect();
        // A token that begins in the template's words cannot be trained; at most one for each reply.
        match rendered.straddling {
            0 => assert_eq!(found, wanted, "{name}"),
            _ => assert!(found.len() < wanted.len() && found.ends_with(end), "{name}"),
        }
    });
}
