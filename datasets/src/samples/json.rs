//! JSON: one object per line, or one array of objects.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use super::ReadError;

/// Longest line, bytes.
const MOST_LINE: u64 = 64 << 20;
/// Longest array, bytes.
const MOST_ARRAY: u64 = 8 << 30;

pub(super) fn rows(
    path: &Path,
    take: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    match reader.fill_buf().map_err(io)?.first() {
        Some(b'[') => array(path, reader, take),
        _ => lines(path, reader, take),
    }
}

fn broken(path: &Path, reason: String) -> ReadError {
    ReadError::Broken {
        path: path.to_owned(),
        reason,
    }
}

fn lines(
    path: &Path,
    mut reader: impl BufRead,
    take: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut reader).take(MOST_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        if read as u64 == MOST_LINE {
            let reason = format!("line {number}: longer than {} MiB", MOST_LINE >> 20);
            return Err(broken(path, reason));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = serde_json::from_slice(&line)
            .map_err(|error| broken(path, format!("line {number}: not JSON: {error}")))?;
        take(value)?;
    }
    Ok(())
}

/// One element at a time, so that no array is in memory whole.
fn array(
    path: &Path,
    reader: impl Read,
    take: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    struct Elements<'a> {
        take: &'a mut dyn FnMut(Value) -> Result<(), ReadError>,
        stopped: &'a mut Option<ReadError>,
    }
    impl<'de> Visitor<'de> for Elements<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
            while let Some(value) = elements.next_element::<Value>()? {
                if let Err(error) = (self.take)(value) {
                    *self.stopped = Some(error);
                    return Err(A::Error::custom("stopped"));
                }
            }
            Ok(())
        }
    }
    let mut stopped = None;
    let mut json = serde_json::Deserializer::from_reader(reader.take(MOST_ARRAY));
    let elements = Elements {
        take,
        stopped: &mut stopped,
    };
    let read = json.deserialize_seq(elements).and_then(|()| json.end());
    match (stopped, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(broken(path, format!("not JSON: {error}"))),
        (None, Ok(())) => Ok(()),
    }
}
