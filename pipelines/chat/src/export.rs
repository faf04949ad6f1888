//! A conversation as notebook, JSON or HTML. API addresses and headers of the model are not part of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pybench_agent::Format;
use pybench_agent::notebook::{Notebook, Style};
use pybench_types::observation::{Observation, Output};
use pybench_types::text::escape;
use pybench_types::trajectory::{Role, Sampling};
use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::entry::Entry;
use crate::transcript;

/// Maximum size of a picture in HTML, bytes of base64.
const MAX_PICTURE: usize = 8 << 20;
/// Nothing is loaded or executed; pictures are in the page.
const HEAD: &str = "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n\
<meta name=viewport content=\"width=device-width\">\n\
<style>\n\
:root { color-scheme: light dark; }\n\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }\n\
h2 { font-size: 0.9rem; margin: 1.5rem 0 0.25rem; opacity: 0.7; }\n\
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }\n\
pre.text { font: inherit; }\n\
pre.code, pre.output { font-size: 0.85rem; padding: 0.5rem; border: 1px solid #8886; border-radius: 4px; }\n\
pre.error { color: #c33; }\n\
img { max-width: 100%; }\n\
</style>\n";

/// The form in which a conversation is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveAs {
    Notebook,
    Json,
    Html,
}

impl SaveAs {
    /// The form with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "notebook" => Some(Self::Notebook),
            "json" => Some(Self::Json),
            "html" => Some(Self::Html),
            _ => None,
        }
    }

    /// The extension of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Notebook => "ipynb",
            Self::Json => "json",
            Self::Html => "html",
        }
    }
}

/// What is exported of a conversation.
#[derive(Clone, Copy)]
pub struct ExportedChat<'a> {
    pub id: &'a str,
    /// Name of the model.
    pub model: &'a str,
    pub format: &'static dyn Format,
    pub sampling: &'a Sampling,
    /// The entries that count, in order.
    pub entries: &'a [Entry],
}

impl<'a> From<&'a Conversation> for ExportedChat<'a> {
    fn from(conversation: &'a Conversation) -> Self {
        let agent = conversation.agent();
        Self {
            id: conversation.id(),
            model: agent.model.name(),
            format: agent.format,
            sampling: &agent.rollout.sampling,
            entries: conversation.entries(),
        }
    }
}

/// The conversation in that form.
pub fn export(chat: ExportedChat<'_>, form: SaveAs) -> String {
    match form {
        SaveAs::Notebook => notebook(chat).to_string(),
        SaveAs::Json => data(chat).to_string(),
        SaveAs::Html => html(chat),
    }
}

fn about(chat: ExportedChat<'_>) -> Value {
    json!({
        "conversation": chat.id,
        "model": chat.model,
        "format": chat.format.name(),
        "sampling": chat.sampling,
    })
}

fn notebook(chat: ExportedChat<'_>) -> Value {
    let mut notebook = Notebook::new(Style::Typed);
    notebook.say(Role::System, chat.format.system());
    for entry in chat.entries {
        match entry {
            Entry::File(file) => notebook.say(Role::User, &format!("[file: data/{}]", file.name)),
            Entry::Message { text } => notebook.say(Role::User, text),
            Entry::Reply { reply } => notebook.say(Role::Assistant, &reply.content),
            Entry::PartialReply { text } => notebook.say(Role::Assistant, text),
            Entry::Run { run, .. } => {
                if let Some(cell) = &run.cell {
                    notebook.run(cell, Some(&run.observation));
                }
            }
            Entry::Rewind { .. } => {}
        }
    }
    notebook.end(about(chat))
}

fn data(chat: ExportedChat<'_>) -> Value {
    let mut data = about(chat);
    data["messages"] = json!(transcript::messages(chat.entries, chat.format));
    data["entries"] = json!(chat.entries);
    data
}

fn html(chat: ExportedChat<'_>) -> String {
    let model = escape(chat.model);
    let mut page = format!(
        "{HEAD}<title>Conversation with {model}</title>\n<h1>Conversation with {model}</h1>\n"
    );
    for entry in chat.entries {
        match entry {
            Entry::File(file) => block(&mut page, "file", "text", &format!("data/{}", file.name)),
            Entry::Message { text } => block(&mut page, "you", "text", text),
            Entry::Reply { reply } => block(&mut page, "model", "text", &reply.content),
            Entry::PartialReply { text } => block(&mut page, "model (stopped)", "text", text),
            Entry::Run { run, .. } => {
                if let Some(cell) = &run.cell {
                    block(&mut page, "cell", "code", cell);
                }
                outputs(&mut page, &run.observation);
            }
            Entry::Rewind { .. } => {}
        }
    }
    page
}

/// A heading and a text, which may be hostile.
fn block(page: &mut String, heading: &str, class: &str, text: &str) {
    let _ = writeln!(page, "<h2>{heading}</h2>");
    pre(page, class, text);
}

fn pre(page: &mut String, class: &str, text: &str) {
    let text = escape(text.trim_end());
    if !text.is_empty() {
        let _ = writeln!(page, "<pre class=\"{class}\">{text}</pre>");
    }
}

fn outputs(page: &mut String, observation: &Observation) {
    for output in &observation.outputs {
        match output {
            Output::Stream { text, .. } => pre(page, "output", text),
            Output::Result { data } | Output::Display { data } => match picture(data) {
                Some((media, content)) => {
                    let _ = writeln!(
                        page,
                        "<img alt=\"picture\" src=\"data:{media};base64,{content}\">"
                    );
                }
                None => {
                    let plain = data.get("text/plain").map_or("[not text]", String::as_str);
                    pre(page, "output", plain);
                }
            },
            Output::Chart { .. } => {}
        }
    }
    if let Some(error) = &observation.error {
        pre(page, "output error", &error.traceback);
    }
}

/// The PNG or JPEG picture of an output in base64, without line breaks.
pub fn picture(data: &BTreeMap<String, String>) -> Option<(&'static str, String)> {
    let media = ["image/png", "image/jpeg"];
    let (media, content) = media
        .into_iter()
        .find_map(|media| Some((media, data.get(media)?)))?;
    if content.len() > MAX_PICTURE {
        return None;
    }
    let content: String = content.split_ascii_whitespace().collect();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    (!content.is_empty() && content.bytes().all(is_base64)).then_some((media, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(media: &str, content: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (media.to_owned(), content.to_owned()),
            ("text/plain".to_owned(), "<b>plain</b>".to_owned()),
        ])
    }

    #[test]
    fn only_base64_becomes_a_picture() {
        let found = picture(&bundle("image/png", "iVBO\nRw0=\n"));
        assert_eq!(found, Some(("image/png", "iVBORw0=".to_owned())));
        for (media, content) in [
            ("image/png", "\"><script>alert(1)</script>"),
            ("image/png", ""),
            ("image/svg+xml", "aaaa"),
        ] {
            assert_eq!(picture(&bundle(media, content)), None, "{media}");
        }
        let large = "a".repeat(MAX_PICTURE + 1);
        assert_eq!(picture(&bundle("image/png", &large)), None);
    }

    #[test]
    fn outputs_are_escaped() {
        let observation = Observation {
            outputs: vec![
                Output::Stream {
                    name: "stdout".to_owned(),
                    text: "<script>alert(1)</script>".to_owned(),
                },
                Output::Display {
                    data: bundle("image/png", "\" onerror=\"alert(1)"),
                },
            ],
            ..Observation::default()
        };
        let mut page = String::new();
        outputs(&mut page, &observation);
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(
            page.contains("&lt;script&gt;") && !page.contains("<img"),
            "{page}"
        );
    }
}
