//! JSON as Python's `json.dumps` writes it. Chat templates insert tools and tool calls with it, and the resulting
//! tokens must be those of transformers.

use std::io::{self, Write};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Number, Value};

/// The same nesting limit as serde_json's reader.
const MAX_DEPTH: usize = 128;
/// Spaces per level.
const MAX_INDENT: usize = 16;

/// The filter `tojson` of chat templates. As in transformers, non-ASCII characters are not escaped.
pub(crate) fn tojson(value: &minijinja::Value, options: Kwargs) -> Result<String, Error> {
    let formatter = PythonFormatter::of_options(&options)?;
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut json = from_template(value, 0)?;
    if sorted {
        json.sort_all_objects();
    }
    write(&json, formatter)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

pub(crate) fn to_template(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => ().into(),
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => whole.into(),
            (None, Some(large), _) => large.into(),
            (None, None, real) => real.unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_template).collect::<Vec<_>>().into(),
        Value::Object(fields) => {
            let pairs = fields
                .iter()
                .map(|(key, value)| (key.as_str(), to_template(value)));
            minijinja::Value::from_pairs(pairs)
        }
    }
}

fn from_template(value: &minijinja::Value, depth: usize) -> Result<Value, Error> {
    let reject = |what: String| {
        let text = format!("tojson of {what} is not supported");
        Error::new(ErrorKind::InvalidOperation, text)
    };
    if depth > MAX_DEPTH {
        return Err(reject(format!("more than {MAX_DEPTH} levels")));
    }
    Ok(match value.kind() {
        ValueKind::None => Value::Null,
        ValueKind::Bool => value.is_true().into(),
        ValueKind::Number => number(value)
            .ok_or_else(|| reject(format!("the number {value}")))?
            .into(),
        ValueKind::String => value.as_str().unwrap_or_default().into(),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value
                .try_iter()?
                .map(|item| from_template(&item, depth + 1));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        ValueKind::Map => {
            let mut fields = serde_json::Map::new();
            for key in value.try_iter()? {
                let field = from_template(&value.get_item(&key)?, depth + 1)?;
                let name = key.as_str();
                let name =
                    name.ok_or_else(|| reject(format!("the key {key}, which is not a string")))?;
                fields.insert(name.to_owned(), field);
            }
            fields.into()
        }
        kind => return Err(reject(kind.to_string())),
    })
}

/// The JSON number, if it fits 64 bits.
fn number(value: &minijinja::Value) -> Option<Number> {
    if !value.is_integer() {
        return Number::from_f64(f64::try_from(value.clone()).ok()?);
    }
    let small = i64::try_from(value.clone()).map(Number::from);
    small
        .or_else(|_| u64::try_from(value.clone()).map(Number::from))
        .ok()
}

/// `json.dumps(value, ensure_ascii=False)`.
pub(crate) fn dumps(value: &impl Serialize) -> serde_json::Result<String> {
    write(value, PythonFormatter::default())
}

fn write(value: &impl Serialize, formatter: PythonFormatter) -> serde_json::Result<String> {
    let mut out = vec![];
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out, formatter,
    ))?;
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

/// Separators, indentation and floats as Python has them.
struct PythonFormatter {
    /// What one level is indented by; `None` writes everything on one line.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    ascii: bool,
    level: usize,
    /// Whether the innermost list or object has an item.
    has_item: bool,
}

impl Default for PythonFormatter {
    fn default() -> Self {
        Self {
            indent: None,
            between_items: ", ".into(),
            after_key: ": ".into(),
            ascii: false,
            level: 0,
            has_item: false,
        }
    }
}

impl PythonFormatter {
    fn of_options(options: &Kwargs) -> Result<Self, Error> {
        let mut formatter = Self::default();
        let indent: Option<minijinja::Value> = options.get("indent")?;
        formatter.indent = match indent.filter(|indent| !indent.is_none()) {
            None => None,
            Some(indent) => Some(match (indent.as_str(), indent.as_usize()) {
                (Some(text), _) if text.len() <= MAX_INDENT => text.to_owned(),
                (None, Some(spaces)) if spaces <= MAX_INDENT => " ".repeat(spaces),
                _ => {
                    let text = format!("tojson(indent={indent}) is not supported");
                    return Err(Error::new(ErrorKind::InvalidOperation, text));
                }
            }),
        };
        if formatter.indent.is_some() {
            formatter.between_items = ",".into();
        }
        if let Some(separators) = options.get::<Option<Vec<String>>>("separators")?
            && let [between_items, after_key] = &separators[..]
        {
            formatter.between_items.clone_from(between_items);
            formatter.after_key.clone_from(after_key);
        }
        let ascii: Option<bool> = options.get("ensure_ascii")?;
        formatter.ascii = ascii.unwrap_or(false);
        Ok(formatter)
    }

    fn new_line<W: Write + ?Sized>(&self, to: &mut W) -> io::Result<()> {
        match &self.indent {
            None => Ok(()),
            Some(indent) => write!(to, "\n{}", indent.repeat(self.level)),
        }
    }

    fn begin<W: Write + ?Sized>(&mut self, to: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level += 1;
        self.has_item = false;
        to.write_all(bracket)
    }

    fn item<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(self.between_items.as_bytes())?;
        }
        self.new_line(to)
    }

    fn end<W: Write + ?Sized>(&mut self, to: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level -= 1;
        if self.has_item {
            self.new_line(to)?;
        }
        self.has_item = true;
        to.write_all(bracket)
    }
}

impl Formatter for PythonFormatter {
    fn begin_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.item(to, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_item = true;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.item(to, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(self.after_key.as_bytes())
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_item = true;
        Ok(())
    }

    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return to.write_all(text.as_bytes());
        }
        for letter in text.chars() {
            match letter {
                ' '..='~' => write!(to, "{letter}")?,
                _ => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        write!(to, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }

    fn write_f64<W: Write + ?Sized>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size != 0.0 && !(1e-4..1e16).contains(&size) {
            // 1e-7 is 1e-07 in Python, and 1e16 is 1e+16.
            let text = format!("{value:e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, power) = match power.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', power),
            };
            return write!(to, "{digits}e{sign}{power:0>2}");
        }
        write!(to, "{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(json: &str, options: &[(&str, minijinja::Value)]) -> Result<String, Error> {
        let value: Value = serde_json::from_str(json).unwrap();
        tojson(
            &to_template(&value),
            Kwargs::from_iter(options.iter().cloned()),
        )
    }

    fn no_options() -> Kwargs {
        Kwargs::from_iter([] as [(&str, minijinja::Value); 0])
    }

    #[test]
    fn output_equals_pythons() {
        // python3 -c 'import json; print(json.dumps(…, ensure_ascii=False))'
        let value: serde_json::Value = serde_json::from_str(
            r#"{"b":[1,2.0,-0.5,1e-7,1e16,123456789012345680.0,0.0001],"a":{"t":"é\"\n\u001f<>&'中"},"n":null,"e":{},"l":[],"y":true}"#,
        )
        .unwrap();
        assert_eq!(
            dumps(&value).unwrap(),
            r#"{"b": [1, 2.0, -0.5, 1e-07, 1e+16, 1.2345678901234568e+17, 0.0001], "a": {"t": "é\"\n\u001f<>&'中"}, "n": null, "e": {}, "l": [], "y": true}"#
        );
    }

    #[test]
    fn options_are_those_of_python() {
        // python3 -c 'import json; print(repr(json.dumps(…, ensure_ascii=False, indent=4)))'
        let json = r#"{"b":[1,{"x":[]},[[2]]],"a":{},"t":"é😀\u007f"}"#;
        assert_eq!(
            with(json, &[("indent", 4.into())]).unwrap(),
            "{\n    \"b\": [\n        1,\n        {\n            \"x\": []\n        },\n        [\n            [\n                2\n            ]\n        ]\n    ],\n    \"a\": {},\n    \"t\": \"é😀\u{7f}\"\n}"
        );
        assert_eq!(
            with(r#"[1,{"a":2}]"#, &[("indent", 0.into())]).unwrap(),
            "[\n1,\n{\n\"a\": 2\n}\n]"
        );
        assert_eq!(
            with(json, &[("sort_keys", true.into())]).unwrap(),
            "{\"a\": {}, \"b\": [1, {\"x\": []}, [[2]]], \"t\": \"é😀\u{7f}\"}"
        );
        assert_eq!(
            with(json, &[("ensure_ascii", true.into())]).unwrap(),
            r#"{"b": [1, {"x": []}, [[2]]], "a": {}, "t": "\u00e9\ud83d\ude00\u007f"}"#
        );
        let separators = minijinja::Value::from(vec![",", ":"]);
        assert_eq!(
            with(r#"{"a":[1,2]}"#, &[("separators", separators)]).unwrap(),
            r#"{"a":[1,2]}"#
        );
        assert!(with("1", &[("indent", 1000.into())]).is_err());
        assert!(with("1", &[("default", 1.into())]).is_err());
    }

    #[test]
    fn numbers_pass_through_a_template_as_they_are() {
        let text = "[-9223372036854775808, 18446744073709551615, 1.0, 0.1]";
        assert_eq!(with(text, &[]).unwrap(), text);
        for not_finite in [f64::NAN, f64::INFINITY] {
            assert!(tojson(&not_finite.into(), no_options()).is_err());
        }
        let keys = minijinja::Value::from_pairs([(1, 2)]);
        assert!(
            tojson(&keys, no_options())
                .unwrap_err()
                .to_string()
                .contains("key 1")
        );
    }

    #[test]
    fn deep_nesting_is_rejected() {
        let nest = |levels| (0..levels).fold(minijinja::Value::from(1), |v, _| vec![v].into());
        let write = |levels| tojson(&nest(levels), no_options());
        assert_eq!(write(2).unwrap(), "[[1]]");
        assert!(write(200).unwrap_err().to_string().contains("levels"));
    }
}
