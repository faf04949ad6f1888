//! The events that a session's runner sends. A cell can send them too, so their contents are untrusted: the values of
//! a frame are counted before they are parsed, and figures stay text.

use std::collections::BTreeMap;

use pybench_types::figure::{Figure, FigureError};
use pybench_types::json::count_values;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

/// Maximum number of values in a MIME bundle.
const MAX_BUNDLE_VALUES: usize = 1000;

/// Memory that a value of a figure may take when a reader parses the figure, bytes.
const VALUE_BYTES: usize = 64;

/// An event of a cell.
#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub(super) cell: u64,
    /// Lengths of stdout and stderr at that moment, bytes.
    pub(super) at: [u64; 2],
    pub(super) what: What,
}

/// The kinds of event.
#[derive(Debug, PartialEq)]
pub(super) enum What {
    /// The shell is ready.
    Ready,
    /// Output continues in the other stream.
    Mark,
    Result {
        data: BTreeMap<String, String>,
    },
    Display {
        data: BTreeMap<String, String>,
    },
    Chart {
        path: Option<String>,
        figure: Figure,
    },
    Error {
        ename: String,
        evalue: String,
        traceback: String,
    },
    /// The cell has ended.
    Done,
}

/// Why a frame is not an event.
#[derive(Debug, thiserror::Error)]
pub(super) enum EventError {
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
    #[error(transparent)]
    Figure(#[from] FigureError),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Ready,
    Mark,
    Result,
    Display,
    Chart,
    Error,
    Done,
}

/// A frame with the fields of all kinds. Structures are not parsed yet.
#[derive(Deserialize)]
struct Frame<'a> {
    event: Kind,
    cell: u64,
    at: [u64; 2],
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    path: Option<String>,
    #[serde(borrow)]
    figure: Option<&'a RawValue>,
    ename: Option<String>,
    evalue: Option<String>,
    traceback: Option<String>,
}

impl Event {
    /// The event of a frame, and the memory that it may take, bytes.
    pub(super) fn parse(frame: &[u8]) -> Result<(Self, usize), EventError> {
        let parsed: Frame<'_> = serde_json::from_slice(frame)?;
        let figure = parsed.figure.map_or("", RawValue::get);
        let size = frame.len() + VALUE_BYTES * count_values(figure.as_bytes());
        let event = Self {
            cell: parsed.cell,
            at: parsed.at,
            what: parsed.what()?,
        };
        Ok((event, size))
    }
}

impl Frame<'_> {
    fn what(self) -> Result<What, EventError> {
        Ok(match self.event {
            Kind::Ready => What::Ready,
            Kind::Mark => What::Mark,
            Kind::Done => What::Done,
            Kind::Result => What::Result {
                data: bundle(self.data)?,
            },
            Kind::Display => What::Display {
                data: bundle(self.data)?,
            },
            Kind::Chart => What::Chart {
                path: self.path,
                figure: Figure::parse(required(self.figure, "figure")?.get())?,
            },
            Kind::Error => What::Error {
                ename: required(self.ename, "ename")?,
                evalue: required(self.evalue, "evalue")?,
                traceback: required(self.traceback, "traceback")?,
            },
        })
    }
}

fn required<T>(field: Option<T>, name: &'static str) -> Result<T, serde_json::Error> {
    field.ok_or_else(|| serde_json::Error::missing_field(name))
}

fn bundle(data: Option<&RawValue>) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let text = required(data, "data")?.get();
    if count_values(text.as_bytes()) > MAX_BUNDLE_VALUES {
        return Err(serde_json::Error::custom("a bundle of too many types"));
    }
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(figure: &str) -> Result<(Event, usize), EventError> {
        let frame =
            format!(r#"{{"event":"chart","cell":1,"at":[0,0],"path":null,"figure":{figure}}}"#);
        Event::parse(frame.as_bytes())
    }

    #[test]
    fn every_kind_is_read() {
        let begin = r#""cell":7,"at":[1,2]"#;
        let data = || BTreeMap::from([("text/plain".to_owned(), "é".to_owned())]);
        for (rest, what) in [
            (r#""event":"ready""#, What::Ready),
            (r#""event":"mark","future":[1]"#, What::Mark),
            (
                r#""event":"result","data":{"text/plain":"\u00e9"}"#,
                What::Result { data: data() },
            ),
            (
                r#""event":"display","data":{"text/plain":"é"}"#,
                What::Display { data: data() },
            ),
            (
                r#""event":"error","ename":"E","evalue":"","traceback":"T\n""#,
                What::Error {
                    ename: "E".into(),
                    evalue: String::new(),
                    traceback: "T\n".into(),
                },
            ),
            (r#""event":"done""#, What::Done),
        ] {
            let frame = format!("{{{begin},{rest}}}");
            let (event, size) = Event::parse(frame.as_bytes()).unwrap();
            assert_eq!(
                event,
                Event {
                    cell: 7,
                    at: [1, 2],
                    what
                }
            );
            assert!(size >= frame.len());
        }
        let (event, _) = chart(r#"{"axes": [1.0]}"#).unwrap();
        let What::Chart { path: None, figure } = event.what else {
            panic!("{event:?}");
        };
        assert_eq!(figure.as_str(), r#"{"axes":[1.0]}"#);
    }

    #[test]
    fn a_chart_counts_as_the_memory_that_its_values_take() {
        let (_, size) = chart(&format!("[{}0]", "0,".repeat(1000))).unwrap();
        assert!(size > 1000 * VALUE_BYTES, "{size}");
    }

    #[test]
    fn large_structures_are_refused_before_they_are_parsed() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let large = format!("[{}[]]", "[],".repeat(1 << 20));
        for figure in [deep, large] {
            assert!(matches!(chart(&figure), Err(EventError::Figure(_))));
        }
        let types: Vec<String> = (0..2000).map(|i| format!(r#""{i}":"""#)).collect();
        let frame = format!(
            r#"{{"event":"display","cell":1,"at":[0,0],"data":{{{}}}}}"#,
            types.join(",")
        );
        assert!(matches!(
            Event::parse(frame.as_bytes()),
            Err(EventError::Malformed(_))
        ));
    }

    #[test]
    fn missing_and_wrong_fields_are_errors() {
        for frame in [
            r#"{"event":"stream","cell":1,"at":[0,0]}"#,
            r#"{"event":"mark","cell":1}"#,
            r#"{"event":"mark","cell":1,"at":[0]}"#,
            r#"{"event":"display","cell":1,"at":[0,0]}"#,
            r#"{"event":"result","cell":1,"at":[0,0],"data":[]}"#,
            r#"{"event":"chart","cell":1,"at":[0,0]}"#,
            r#"{"event":"chart","cell":1,"at":[0,0],"figure":0,"path":[]}"#,
            r#"{"event":"error","cell":1,"at":[0,0],"ename":"E","evalue":""}"#,
        ] {
            assert!(Event::parse(frame.as_bytes()).is_err(), "{frame}");
        }
    }
}
