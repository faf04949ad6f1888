//! Rendering: strict minijinja, the filter `py`, and who may see what.
//!
//! Three contexts keep the expert honest. A query or a reference sees the file's profile; a cell
//! sees how to open the file; a thought or an answer sees neither, so that every data value in it
//! was read from an observation.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use pybench::task::{FileKind, Language, Profile, SourceFile, TaskFile};

/// Variables of a rendering.
pub(crate) type Context = BTreeMap<String, Value>;

/// The environment every string of the library is rendered in.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    // Building fails only for delimiters that clash; these are the default ones.
    environment.set_syntax(syntax.build().unwrap_or_default());
    environment.add_filter("py", py);
    environment
}

/// The Python literal of a value.
fn py(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_literal(value, &mut out)?;
    Ok(out)
}

fn write_literal(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool if value.is_true() => out.push_str("True"),
        ValueKind::Bool => out.push_str("False"),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => write_float(f64::try_from(value.clone())?, out),
        ValueKind::String => write_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_literal(&item, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_literal(&key, out)?;
                out.push_str(": ");
                write_literal(&value.get_item(&key)?, out)?;
            }
            out.push('}');
        }
        kind => {
            let message = format!("filter `py`: a value of type {kind} has no Python literal");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn write_float(value: f64, out: &mut String) {
    if value.is_nan() {
        out.push_str("float('nan')");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 {
            "float('inf')"
        } else {
            "float('-inf')"
        });
    } else {
        // Rust's `{:?}` is the shortest text that reads back as the same number; so is Python's.
        out.push_str(&format!("{value:?}"));
    }
}

/// A Python string literal of a text.
pub(crate) fn py_str(text: &str) -> String {
    let mut out = String::new();
    write_str(text, &mut out);
    out
}

fn write_str(text: &str, out: &mut String) {
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Control characters, and separators and byte-order marks that editors swallow.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('\'');
}

/// What a file shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Name and kind.
    Thought,
    /// And how to open it.
    Cell,
}

/// The variables `file` and `files` as thoughts and cells see them. `readers` are the expressions
/// that read tables, one per file, `None` for other files.
pub(crate) fn file_variables(
    files: &[TaskFile],
    readers: &[Option<String>],
    view: View,
) -> Vec<BTreeMap<&'static str, Value>> {
    let readers = readers.iter().cloned().chain(std::iter::repeat(None));
    let variables = files.iter().zip(readers).map(|(file, reader)| {
        let mut variables = name_variables(&file.name, file.kind);
        if let (View::Cell, Some(reader)) = (view, reader) {
            variables.insert("pandas", reader.into());
        }
        variables
    });
    variables.collect()
}

fn name_variables(name: &str, kind: FileKind) -> BTreeMap<&'static str, Value> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    BTreeMap::from([
        ("path", format!("./data/{name}").into()),
        ("name", name.into()),
        ("stem", stem.into()),
        ("kind", kind.name().into()),
    ])
}

/// The variables of a source file as queries and references see them.
pub(crate) fn profile_variables(file: &SourceFile) -> BTreeMap<&'static str, Value> {
    let mut variables = name_variables(&file.name, file.kind);
    if let Some(reader) = super::reader::pandas(file) {
        variables.insert("pandas", reader.into());
    }
    let mut set = |name, value: Value| variables.insert(name, value);
    match &file.profile {
        Profile::Table(table) => {
            set("rows", table.rows.into());
        }
        Profile::Document(document) => {
            if let Some(pages) = document.pages {
                set("pages", pages.into());
            }
        }
        Profile::Image(image) => {
            set("width", image.width.into());
            set("height", image.height.into());
            set("mode", image.mode.as_str().into());
        }
        Profile::Audio(audio) => {
            set("duration", audio.duration.into());
            set("rate", audio.rate.into());
            set("channels", audio.channels.into());
        }
        Profile::Broken { .. } => {}
    }
    variables
}

/// A context of slots, files and language; read values are inserted by the caller.
pub(crate) fn context(
    slots: &BTreeMap<String, serde_json::Value>,
    files: Vec<BTreeMap<&'static str, Value>>,
    language: Language,
) -> Context {
    let mut context: Context = slots.iter().map(|(k, v)| (k.clone(), value(v))).collect();
    let files: Vec<Value> = files.into_iter().map(Value::from).collect();
    if let Some(first) = files.first() {
        context.insert("file".into(), first.clone());
    }
    context.insert("files".into(), files.into());
    let lang = match language {
        Language::En => "en",
        Language::Zh => "zh",
    };
    context.insert("lang".into(), lang.into());
    context
}

/// A JSON value as minijinja has it.
pub(crate) fn value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => (*flag).into(),
        Json::Number(n) => match n.as_i64() {
            Some(n) => n.into(),
            None => n.as_f64().unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => items.iter().map(value).collect::<Vec<_>>().into(),
        Json::Object(map) => map
            .iter()
            .map(|(k, v)| (k.clone(), value(v)))
            .collect::<BTreeMap<_, _>>()
            .into(),
    }
}
