//! What transformers adds to Jinja, and where Python's Jinja differs from minijinja.

use chrono::NaiveDate;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::json::tojson;

/// Adds the functions, filters, tests and methods that chat templates expect. `strftime_now` returns `date`, so
/// that a conversation has the same tokens every day.
pub(crate) fn add_to(environment: &mut Environment<'static>, date: NaiveDate) {
    environment.set_unknown_method_callback(method);
    environment.add_filter("trim", trim);
    environment.add_filter("tojson", tojson);
    for name in ["length", "count"] {
        environment.add_filter(name, length);
    }
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        let kinds = [ValueKind::Seq, ValueKind::String, ValueKind::Map];
        value.is_undefined() || kinds.contains(&value.kind())
    });
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| strftime(date, format));
}

/// The source as minijinja can read it: with Python's ends of lines, and with blocks that always apply instead of
/// transformers' `{% generation %}` blocks, which only mark text.
pub(crate) fn normalized(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let (mut out, mut rest) = (String::with_capacity(source.len()), source.as_str());
    while let Some((before, tag)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        rest = tag;
        let Some((inside, after)) = tag.split_once("%}") else {
            break;
        };
        let name = inside.trim_matches(|c: char| c.is_whitespace() || "-+".contains(c));
        let replacement = match name {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&inside.replace(name, replacement));
        out.push_str("%}");
        rest = after;
    }
    out + rest
}

/// Python's undefined value of Jinja has the length 0.
fn length(value: &Value) -> Result<usize, Error> {
    let unknown = || {
        let text = format!("a value of type {} has no length", value.kind());
        Error::new(ErrorKind::InvalidOperation, text)
    };
    match value.is_undefined() {
        true => Ok(0),
        false => value.len().ok_or_else(unknown),
    }
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime(date: NaiveDate, format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let midnight = date.and_time(chrono::NaiveTime::MIN);
    let mut text = String::new();
    write!(text, "{}", midnight.format(format)).map_err(|_| {
        let text = format!("strftime_now: the format {format:?} is not supported");
        Error::new(ErrorKind::InvalidOperation, text)
    })?;
    Ok(text)
}

/// Python's white space: Unicode's and four separators.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Python's `str.strip`.
fn trim(text: &str, characters: Option<&str>) -> String {
    let strips = |c: char| characters.map_or(is_space(c), |some| some.contains(c));
    text.trim_matches(strips).to_owned()
}

/// Methods of Python values. Those that strip white space use Python's definition of it.
fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), name, arguments) {
        (Some(text), "strip", []) => Ok(text.trim_matches(is_space).into()),
        (Some(text), "lstrip", []) => Ok(text.trim_start_matches(is_space).into()),
        (Some(text), "rstrip", []) => Ok(text.trim_end_matches(is_space).into()),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_are_replaced_and_nothing_else() {
        let source =
            "{%- generation -%}{{ x }}{% endgeneration %}{# {% generation #}{% if generation %}a";
        assert_eq!(
            normalized(source),
            "{%- if true -%}{{ x }}{% endif %}{# {% generation #}{% if generation %}a"
        );
        assert_eq!(normalized("a\r\n\r{% x"), "a\n\n{% x");
    }

    #[test]
    fn dates_are_written_as_python_writes_them() {
        let date = NaiveDate::from_ymd_opt(2024, 7, 6).unwrap();
        let write = |format| strftime(date, format).unwrap();
        assert_eq!(write("%d %b %Y"), "06 Jul 2024");
        assert_eq!(write("%A, %B %d %Y %H:%M"), "Saturday, July 06 2024 00:00");
        assert!(strftime(date, "%Q!").is_err());
    }
}
