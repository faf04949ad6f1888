//! The recorded data of a figure. The record comes from a session and is untrusted, so it stays JSON text until a
//! reader needs its values.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::count_values;

/// Maximum size of a figure that a session records, bytes. `charts.py` keeps below it.
pub const MAX_FIGURE: usize = 2 << 20;

/// Maximum number of values in a figure that a session records. `charts.py` keeps below it.
pub const MAX_VALUES: usize = 500_000;

/// The recorded data of a figure, as compact JSON; see `charts.py`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure(Arc<str>);

/// Why the record of a figure is refused.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// It has too many bytes.
    #[error("a figure of {0} bytes, above the limit of {MAX_FIGURE}")]
    TooLarge(usize),
    /// It has too many values.
    #[error("a figure of about {0} values, above the limit of {MAX_VALUES}")]
    TooManyValues(usize),
    /// It is not JSON, or it is nested too deeply.
    #[error("a figure that is not valid JSON: {0}")]
    Invalid(#[from] serde_json::Error),
}

impl Figure {
    /// Checks the limits and rewrites the text in the form that [`serde_json`] writes, without building its values.
    ///
    /// # Errors
    /// The text exceeds a limit or is not JSON.
    pub fn parse(text: &str) -> Result<Self, FigureError> {
        if text.len() > MAX_FIGURE {
            return Err(FigureError::TooLarge(text.len()));
        }
        let values = count_values(text.as_bytes());
        if values > MAX_VALUES {
            return Err(FigureError::TooManyValues(values));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The figure as JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the figure into a tree, which takes about a hundred times the memory in the worst case.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<Value> for Figure {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Vec::new();
        Rewriter(&mut text).deserialize(deserializer)?;
        let text = String::from_utf8(text).map_err(D::Error::custom)?;
        Ok(Self(text.into()))
    }
}

/// Writes a value as compact JSON while it is deserialized.
struct Rewriter<'a>(&'a mut Vec<u8>);

impl Rewriter<'_> {
    fn write<E: serde::de::Error>(self, value: impl Serialize) -> Result<(), E> {
        serde_json::to_writer(self.0, &value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Rewriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Rewriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut separator = b'[';
        loop {
            let begin = self.0.len();
            self.0.push(separator);
            if items.next_element_seed(Rewriter(self.0))?.is_none() {
                self.0.truncate(begin);
                break;
            }
            separator = b',';
        }
        close(self.0, separator, b"[]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut separator = b'{';
        while let Some(key) = entries.next_key::<String>()? {
            self.0.push(separator);
            Rewriter(self.0).write(key)?;
            self.0.push(b':');
            entries.next_value_seed(Rewriter(self.0))?;
            separator = b',';
        }
        close(self.0, separator, b"{}")
    }
}

/// Ends a list or an object, whose brackets are given. `separator` is the opening one if it is empty.
fn close<E>(text: &mut Vec<u8>, separator: u8, brackets: &[u8; 2]) -> Result<(), E> {
    let missing = usize::from(separator != brackets[0]);
    text.extend_from_slice(&brackets[missing..]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Output;

    /// The text that a tree of the same values gives.
    fn by_tree(text: &str) -> String {
        serde_json::from_str::<Value>(text).unwrap().to_string()
    }

    #[test]
    fn the_text_is_what_a_tree_would_give() {
        for text in [
            "null",
            " [ ] ",
            "{ }",
            r#"{"a": [1, -2, 1e-07, 1.0, 18446744073709551615, 123456789012345678901], "\u00e9\n": {"": [[], {}]}}"#,
            r#"[true, false, null, "\u4e2d\ud83c\udf89"]"#,
        ] {
            assert_eq!(Figure::parse(text).unwrap().as_str(), by_tree(text));
        }
    }

    #[test]
    fn large_and_deep_figures_are_refused() {
        let large = format!("\"{}\"", "x".repeat(MAX_FIGURE));
        assert!(matches!(
            Figure::parse(&large),
            Err(FigureError::TooLarge(_))
        ));
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert!(matches!(
            Figure::parse(&many),
            Err(FigureError::TooManyValues(_))
        ));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(Figure::parse(&deep), Err(FigureError::Invalid(_))));
        for wrong in ["", "[1,]", "{1: 2}", "1 2", "[", "{\"a\"}"] {
            assert!(
                matches!(Figure::parse(wrong), Err(FigureError::Invalid(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_output_comes_back_from_its_json() {
        let output = Output::Chart {
            path: Some("output/a.png".to_owned()),
            figure: Figure::parse(r#"{"axes": [{"title": "T", "x": [0.1, 2.5]}]}"#).unwrap(),
        };
        let text = serde_json::to_string(&output).unwrap();
        assert_eq!(
            text,
            r#"{"output":"chart","path":"output/a.png","figure":{"axes":[{"title":"T","x":[0.1,2.5]}]}}"#
        );
        assert_eq!(serde_json::from_str::<Output>(&text).unwrap(), output);
        let value = serde_json::to_value(&output).unwrap();
        assert_eq!(value["figure"]["axes"][0]["title"], "T");
        assert_eq!(serde_json::from_value::<Output>(value).unwrap(), output);
    }

    #[test]
    fn fuzz_figures() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let tree = serde_json::from_str::<Value>(&text);
            let figure = Figure::parse(&text);
            assert_eq!(figure.is_ok(), tree.is_ok());
            if let Ok(figure) = figure {
                Figure::parse(figure.as_str()).unwrap();
            }
        });
    }
}
