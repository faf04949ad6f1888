//! Renders the strings of a template: strict minijinja, the filter `py`, and the variables of each part.
//!
//! There are three sets of variables. A query or a reference has the file's profile; a cell has the expression
//! that opens the file; a thought or an answer has neither, so that every data value in it comes from an
//! observation.

use std::collections::BTreeMap;

use crate::reader::write_str;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use pybench_types::task::{FileKind, Language, Profile, SourceFile, TaskFile};

/// The variables for rendering a string.
pub(crate) type Context = BTreeMap<String, Value>;

/// The environment that renders every string of the library.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    // Building fails only for conflicting delimiters; these are the defaults.
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
        // Like Python's repr, `{:?}` is the shortest text that parses to the same number.
        out.push_str(&format!("{value:?}"));
    }
}

/// Which variables of a file are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileDetail {
    /// Name and kind.
    Thought,
    /// Name, kind and the expression that opens it.
    Cell,
}

/// The variables of files in thoughts and cells. `readers` has the expression that reads each file; `None` for
/// files that are not tables.
pub(crate) fn file_variables(
    files: &[TaskFile],
    readers: &[Option<String>],
    detail: FileDetail,
) -> Vec<BTreeMap<&'static str, Value>> {
    let readers = readers.iter().cloned().chain(std::iter::repeat(None));
    let variables = files.iter().zip(readers).map(|(file, reader)| {
        let mut variables = name_variables(&file.name, file.kind);
        if let (FileDetail::Cell, Some(reader)) = (detail, reader) {
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

/// The variables of a file in queries and references.
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

/// The context of slots, files and language. The caller adds values read from observations.
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

/// Converts a JSON value to a minijinja value.
pub fn value(json: &serde_json::Value) -> Value {
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
