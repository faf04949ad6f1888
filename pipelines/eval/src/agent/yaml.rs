//! Parses YAML into JSON values, for configurations of other systems. Supports mappings, sequences and
//! scalars; rejects anchors, aliases and tags; limits depth and size.
//!
//! The crate `serde-saphyr` is not used because it resolves anchors, aliases and tags instead of rejecting them.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Maximum nesting depth.
const MAX_DEPTH: usize = 32;
/// Maximum size of a document, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// Parses the first document of a text. Errors contain the line.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("the file is larger than {} KiB", MAX_BYTES >> 10));
    }
    let mut events = Events(Parser::new_from_str(text));
    loop {
        match events.next()? {
            (Event::StreamStart | Event::DocumentStart(_), _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Value::Null),
            (event, line) => return events.value(event, line, 0),
        }
    }
}

struct Events<'a>(Parser<'a, saphyr_parser::StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), String> {
        match self.0.next() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(format!("line {}: {}", error.marker().line(), error.info())),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn value(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!(
                "line {line}: nested deeper than {MAX_DEPTH} levels"
            ));
        }
        match event {
            Event::Scalar(text, style, 0, None) => Ok(scalar(&text, style)),
            Event::SequenceStart(0, None) => self.sequence(depth),
            Event::MappingStart(0, None) => self.mapping(depth),
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..) => Err(format!(
                "line {line}: anchors, aliases and tags are not supported"
            )),
            _ => Err(format!("line {line}: unexpected end of the document")),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, line) => items.push(self.value(event, line, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, String> {
        let mut map = Map::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Object(map)),
                (Event::Scalar(text, _, 0, None), line) => (text.into_owned(), line),
                (_, line) => return Err(format!("line {line}: a key must be a scalar")),
            };
            let (event, line) = self.next()?;
            let value = self.value(event, line, depth + 1)?;
            if map.insert(key.0.clone(), value).is_some() {
                return Err(format!("line {}: duplicate key `{}`", key.1, key.0));
            }
        }
    }
}

/// Resolves plain scalars by YAML's core schema; quoted scalars are strings.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    let number = || {
        let looks = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        let text = text.strip_prefix('+').unwrap_or(text);
        let integer = text.parse::<i64>().ok().map(Value::from);
        let float = || {
            text.parse::<f64>()
                .ok()
                .filter(|x| x.is_finite())
                .map(Value::from)
        };
        looks.then(|| integer.or_else(float)).flatten()
    };
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number().unwrap_or_else(|| Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_become_json_values() {
        let text = "a: |\n  two\n  lines\nb: \"1\"\nc: 1.5\nd:\n  e: [1, -2, ~]\n  f: <|tool|>\ng: \"```\"\n";
        let value = parse(text).unwrap();
        assert_eq!(
            value,
            json!({"a": "two\nlines\n", "b": "1", "c": 1.5, "d": {"e": [1, -2, null], "f": "<|tool|>"}, "g": "```"})
        );
        assert_eq!(parse("").unwrap(), Value::Null);
    }

    #[test]
    fn unsupported_yaml_is_rejected() {
        for (text, problem) in [
            ("a: &x [1]\nb: *x\n", "line 1: anchors"),
            ("a: !!python/object:os.system x\n", "line 1: anchors"),
            ("a: 1\na: 2\n", "line 2: duplicate key `a`"),
            ("a: [1\n", "line"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
        assert!(parse(&"[".repeat(10_000)).is_err());
    }

    #[test]
    fn fuzz_yaml() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = parse(&String::from_utf8_lossy(bytes));
        });
    }
}
