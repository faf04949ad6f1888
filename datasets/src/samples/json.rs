//! JSON: one object per line, or one array of objects.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use super::ReadError;

/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 << 20;
/// Maximum length of an array, in bytes.
const MAX_ARRAY: u64 = 8 << 30;

pub(super) fn rows(
    path: &Path,
    on_row: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    match reader.fill_buf().map_err(io)?.first() {
        Some(b'[') => array(path, reader, on_row),
        _ => lines(path, reader, on_row),
    }
}

fn invalid(path: &Path, reason: String) -> ReadError {
    ReadError::Invalid {
        path: path.to_owned(),
        reason,
    }
}

fn lines(
    path: &Path,
    mut reader: impl BufRead,
    on_row: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE {
            let reason = format!("line {number}: longer than {} MiB", MAX_LINE >> 20);
            return Err(invalid(path, reason));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = serde_json::from_slice(&line)
            .map_err(|error| invalid(path, format!("line {number}: not JSON: {error}")))?;
        on_row(value)?;
    }
    Ok(())
}

/// Read one element at a time, so that the array is never in memory as a whole.
fn array(
    path: &Path,
    reader: impl Read,
    on_row: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    struct Elements<'a> {
        on_row: &'a mut dyn FnMut(Value) -> Result<(), ReadError>,
        stopped: &'a mut Option<ReadError>,
    }
    impl<'de> Visitor<'de> for Elements<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
            while let Some(value) = elements.next_element::<Value>()? {
                if let Err(error) = (self.on_row)(value) {
                    *self.stopped = Some(error);
                    return Err(A::Error::custom("stopped"));
                }
            }
            Ok(())
        }
    }
    let mut stopped = None;
    let mut json = serde_json::Deserializer::from_reader(reader.take(MAX_ARRAY));
    let elements = Elements {
        on_row,
        stopped: &mut stopped,
    };
    let read = json.deserialize_seq(elements).and_then(|()| json.end());
    match (stopped, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(invalid(path, format!("not JSON: {error}"))),
        (None, Ok(())) => Ok(()),
    }
}
