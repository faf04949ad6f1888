//! Chat templates given as files render as Python's Jinja2 renders them.
//!
//! `PYBENCH_TEMPLATES` names a folder of further `*.jinja` files, which Python renders when the test
//! runs (`PYBENCH_PYTHON` is one that has Jinja2).

use std::path::Path;
use std::process::Command;

use pybench_test_needs::skip;
use pybench_training_data::{ChatTemplate, Message};
use serde::Deserialize;

use crate::support::data;

#[derive(Deserialize)]
struct Line {
    template: String,
    messages: Vec<Message>,
    prompt: bool,
    /// `None` where the template refuses.
    text: Option<String>,
}

/// Compares each line and returns the number of lines.
fn compare(folder: &Path, lines: &str) -> usize {
    for line in lines.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let source = std::fs::read_to_string(folder.join(&line.template)).unwrap();
        let template = ChatTemplate::new(&source, "<s>", "</s>").unwrap();
        let found = template.render(&line.messages, line.prompt).ok();
        assert_eq!(found, line.text, "{} of {:?}", line.template, line.messages);
    }
    lines.lines().count()
}

#[test]
fn templates_render_as_in_python() {
    let folder = data("jinja");
    let lines = std::fs::read_to_string(folder.join("expected.jsonl")).unwrap();
    assert_eq!(compare(&folder, &lines), 5 * 17 * 2);
}

#[test]
fn further_templates_render_as_in_python() {
    let Some(folder) = std::env::var_os("PYBENCH_TEMPLATES") else {
        return skip::unavailable("PYBENCH_TEMPLATES names no folder of templates");
    };
    let python = std::env::var_os("PYBENCH_PYTHON").unwrap_or("python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/templates.py");
    let output = Command::new(python)
        .arg(script)
        .arg(&folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let compared = compare(
        Path::new(&folder),
        &String::from_utf8(output.stdout).unwrap(),
    );
    assert!(compared > 0, "no templates there");
    eprintln!("{compared} renderings compared");
}
