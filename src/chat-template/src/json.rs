//! JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it. Chat templates insert tool calls
//! with it, and the resulting tokens must be those of transformers.

use std::io::{self, Write};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Number, Value};

/// The same nesting limit as serde_json's reader.
const MAX_DEPTH: usize = 128;

/// The filter `tojson` of chat templates. As in transformers, non-ASCII characters are not escaped. The
/// options of the filter are rejected.
pub(crate) fn tojson(value: &minijinja::Value, options: Kwargs) -> Result<String, Error> {
    let reject = |text: String| Error::new(ErrorKind::InvalidOperation, text);
    for name in ["indent", "ensure_ascii", "sort_keys", "separators"] {
        let given: Option<minijinja::Value> = options.get(name)?;
        if given.is_some_and(|value| value.is_true()) {
            return Err(reject(format!("tojson({name}) is not supported")));
        }
    }
    dumps(&from_template(value, 0)?).map_err(|error| reject(error.to_string()))
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
        ValueKind::Seq => {
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

pub(crate) fn dumps(value: &impl Serialize) -> serde_json::Result<String> {
    let mut out = vec![];
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out,
        PythonFormatter,
    ))?;
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

/// A space after commas and colons, and floats formatted as Python formats them.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
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
    fn numbers_pass_through_a_template_as_they_are() {
        let text = "[-9223372036854775808, 18446744073709551615, 1.0, 0.1]";
        let value: Value = serde_json::from_str(text).unwrap();
        let no_options = || Kwargs::from_iter([("indent", false.into())]);
        assert_eq!(tojson(&to_template(&value), no_options()).unwrap(), text);
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
        let write = |levels| tojson(&nest(levels), Kwargs::from_iter([("indent", false.into())]));
        assert_eq!(write(2).unwrap(), "[[1]]");
        assert!(write(200).unwrap_err().to_string().contains("levels"));
    }
}
