//! A system prompt asks for what the replies of its format are written with, and for nothing else.

use super::*;

/// The labels at the start of a line that a prompt asks for, such as `Finished` in `Finished: the answer`.
fn labels(prompt: &str) -> Vec<&str> {
    let named = prompt.lines().filter_map(|line| line.split_once(": "));
    let is_label = |label: &str| {
        label.starts_with(char::is_uppercase)
            && label.chars().all(|c| c.is_alphabetic() || c == ' ')
            && label.split(' ').count() <= 4
    };
    named
        .map(|(label, _)| label)
        .filter(|label| is_label(label))
        .collect()
}

/// The tags in a text, such as `<execute>` and `<|execute_start|>`.
fn tags(text: &str) -> Vec<&str> {
    let starts = text.match_indices('<').map(|(at, _)| &text[at..]);
    let tags = starts.filter_map(|rest| rest.find('>').map(|end| &rest[..=end]));
    let mut tags: Vec<&str> = tags
        .filter(|tag| !tag.contains(char::is_whitespace))
        .collect();
    tags.sort_unstable();
    tags.dedup();
    tags
}

#[test]
fn replies_have_the_labels_and_tags_of_their_prompt() {
    for format in FormatChoice::ALL.map(format) {
        let step = format.write_step("I look at the table.", "print(1)");
        let replies = format!("{step}\n{}", format.write_answer("3"));
        // Llama's switch for the built-in interpreter, which is no label of a reply.
        let prompt = format.system().trim_start_matches("Environment: ipython");
        for label in labels(prompt) {
            let label = format!("{label}:");
            let used = replies.lines().any(|line| line.starts_with(&label));
            assert!(used, "{}: no reply has `{label}`", format.name());
        }
        let asked = tags(format.system());
        for tag in &asked {
            assert!(
                replies.contains(tag),
                "{}: no reply has {tag}",
                format.name()
            );
        }
        // Calls of functions and of Llama's interpreter are in the form of the model's chat template.
        let by_template = format.tools().is_some() || !format.has_thoughts();
        if !by_template {
            assert_eq!(asked, tags(&replies), "{}", format.name());
        }
    }
}

#[test]
fn a_label_that_no_reply_has_is_found() {
    let prompt = "Each step has this form:\n\nThis Step Todo: what it does\n- You see this: print it.\nFinished: it";
    assert_eq!(labels(prompt), ["This Step Todo", "Finished"]);
}
