//! Chat templates render as Python's Jinja2 renders them with transformers' additions.
//!
//! `PYBENCH_TEMPLATES` names a folder of further `*.jinja` files, which Python renders when the test
//! runs (`PYBENCH_PYTHON` is one that has Jinja2; without it the test makes an environment).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use pybench_chat_template::{Chat, ChatTemplate, Message};
use pybench_test_needs::skip;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Line {
    template: String,
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    prompt: bool,
    /// `None` where the template refuses.
    text: Option<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/jinja")
}

/// The lines that we render otherwise, and the number of texts of each template. Where Python refuses, we may have a
/// text: it does not iterate over nothing, and minijinja does.
fn compare(folder: &Path, lines: &str) -> (Vec<String>, BTreeMap<String, usize>) {
    let (mut different, mut texts) = (vec![], BTreeMap::new());
    for line in lines.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let source = std::fs::read_to_string(folder.join(&line.template)).unwrap();
        let template = ChatTemplate::new(&source, "<s>", "</s>").unwrap();
        let tools = line.tools.unwrap_or_default();
        let found = template.render(Chat::new(&line.messages, &tools), line.prompt);
        if line.text.is_some() && found.as_ref().ok() != line.text.as_ref() {
            let (name, messages) = (&line.template, &line.messages);
            different.push(format!(
                "{name} of {messages:?}:\n{found:?}\n{:?}",
                line.text
            ));
        }
        *texts.entry(line.template).or_default() += usize::from(line.text.is_some());
    }
    (different, texts)
}

/// What Python renders.
fn rendered(python: &Path, folder: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../training/parity/templates.py");
    let output = Command::new(python)
        .arg(script)
        .arg(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A Python with Jinja2.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("PYBENCH_PYTHON").map(PathBuf::from);
    named.or_else(|| pybench_test_needs::python::environment("jinja"))
}

/// The folder of further templates, and what Python renders of them.
fn further() -> Option<(PathBuf, String)> {
    let Some(folder) = std::env::var_os("PYBENCH_TEMPLATES").map(PathBuf::from) else {
        skip::unavailable("PYBENCH_TEMPLATES names no folder of templates");
        return None;
    };
    let lines = rendered(&python()?, &folder);
    Some((folder, lines))
}

/// What a template source seems to use as control tokens.
fn controls(source: &str) -> Vec<String> {
    let known = ["<s>", "</s>", "<start_of_turn>", "<end_of_turn>"];
    let mut found = known.map(String::from).to_vec();
    for (open, close) in [("<|", "|>"), ("<｜", "｜>"), ("[", "]")] {
        for (start, _) in source.match_indices(open) {
            let Some(length) = source[start..].find(close) else {
                continue;
            };
            let text = &source[start..start + length + close.len()];
            let is_name = |c: char| c.is_uppercase() || "[/_]".contains(c);
            let plain = !text.contains(['\'', '"', ' ', '\n', '{']);
            if plain && (open != "[" || text.len() > 3 && text.chars().all(is_name)) {
                found.push(text.to_owned());
            }
        }
    }
    found
}

/// The texts that the model writes, one per message of the assistant.
fn trained(template: &ChatTemplate, chat: Chat<'_>) -> Result<Vec<String>, String> {
    let annotated = template.annotate(chat).map_err(|error| error.to_string())?;
    let mut texts = vec![String::new(); chat.messages.len()];
    for part in annotated.parts.iter().filter(|part| part.trained) {
        texts[part.message] += &annotated.rendered.text[part.range.clone()];
    }
    let both = texts.into_iter().zip(chat.messages);
    Ok(both
        .filter(|(_, m)| m.is_assistant())
        .map(|(text, _)| text)
        .collect())
}

/// The same for conversations that a template renders piece by piece: what each reply adds to its prompt.
fn added(template: &ChatTemplate, chat: Chat<'_>) -> Option<Vec<String>> {
    let whole = template.render(chat, false).ok()?;
    let mut texts = vec![];
    for (number, message) in chat.messages.iter().enumerate() {
        if message.is_assistant() {
            let chat = |count| Chat::new(&chat.messages[..count], chat.tools);
            let prompt = template.render(chat(number), true).ok()?;
            let with_reply = template.render(chat(number + 1), false).ok()?;
            whole.starts_with(&with_reply).then_some(())?;
            texts.push(with_reply.strip_prefix(&prompt)?.to_owned());
        }
    }
    Some(texts)
}

#[test]
fn templates_render_as_in_python() {
    let lines = std::fs::read_to_string(folder().join("expected.jsonl")).unwrap();
    let (different, texts) = compare(&folder(), &lines);
    assert!(different.is_empty(), "{}", different[0]);
    assert_eq!(texts.len(), 8);
    assert!(texts.values().all(|&count| count >= 54), "{texts:?}");
}

#[test]
fn the_expected_texts_are_those_of_this_python() {
    let Some(python) = python() else { return };
    let lines = std::fs::read_to_string(folder().join("expected.jsonl")).unwrap();
    assert!(
        rendered(&python, &folder()) == lines,
        "run training/parity/templates.py"
    );
}

#[test]
fn further_templates_render_as_in_python() {
    let Some((folder, lines)) = further() else {
        return;
    };
    let (different, texts) = compare(&folder, &lines);
    assert!(!texts.is_empty(), "no templates there");
    eprintln!("texts compared: {texts:#?}");
    let shown = different.join("\n\n");
    assert!(different.is_empty(), "{} differ:\n{shown}", different.len());
}

#[test]
fn replies_of_further_templates_are_what_follows_their_prompts() {
    let Some((folder, lines)) = further() else {
        return;
    };
    let (mut compared, mut other, mut refused, mut different) = (0, 0, vec![], vec![]);
    for line in lines.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        if line.prompt || line.text.is_none() {
            continue;
        }
        let source = std::fs::read_to_string(folder.join(&line.template)).unwrap();
        let template = ChatTemplate::new(&source, "<s>", "</s>").unwrap();
        let template = template.with_controls(controls(&source)).unwrap();
        let tools = line.tools.unwrap_or_default();
        let chat = Chat::new(&line.messages, &tools);
        match (trained(&template, chat), added(&template, chat)) {
            (Err(error), _) => refused.push(format!("{}: {error}", line.template)),
            (Ok(found), Some(wanted)) => {
                for (found, wanted) in found.iter().zip(&wanted) {
                    let rest = wanted.strip_prefix(found.as_str());
                    // Phi-3.5 writes EOS once, at the end.
                    let exact = rest.is_some_and(|rest| ["", "</s>"].contains(&rest.trim()));
                    if !exact {
                        different.push(format!("{}: {found:?} of {wanted:?}", line.template));
                    }
                }
                compared += 1;
            }
            (Ok(found), None) => {
                other += 1;
                eprintln!("{}: {found:?}", line.template);
            }
        }
    }
    eprintln!(
        "{compared} conversations compared, {other} not rendered piece by piece, refused: {refused:#?}"
    );
    assert!(compared > 0 && different.is_empty(), "{different:#?}");
}
