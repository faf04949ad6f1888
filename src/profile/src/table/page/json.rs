//! Rows of JSON: the items of an array, or one value after the other.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;

use super::{Clock, RowRange, TablePage};

/// Maximum length of the items of a page, bytes. In memory they may take 20 times as much.
const MAX_ITEMS: u64 = 4 << 20;
/// The time is looked at after so many calls of the reader.
const CALLS: u64 = 1 << 16;
/// Name of the column of items that are no objects.
const VALUE: &str = "value";

/// Rows of an array.
///
/// # Errors
/// The file has no array, its rows are too large, or they cannot be found in time.
pub(super) fn array(reader: impl Read, rows: RowRange, clock: Clock) -> Result<TablePage, String> {
    let (reader, left) = Bounded::new(reader, clock);
    let mut reader = serde_json::Deserializer::from_reader(reader);
    let mut found = Found::default();
    let items = Items {
        rows,
        clock,
        left,
        found: &mut found,
    };
    let read = reader.deserialize_seq(items);
    // The deserializer misses the end of an array that was left.
    if !found.is_left {
        read.map_err(|error| error.to_string())?;
    }
    Ok(of_items(found.items, found.total))
}

/// Rows of a file that has one value after the other.
///
/// # Errors
/// As [`array`].
pub(super) fn lines(reader: impl Read, rows: RowRange, clock: Clock) -> Result<TablePage, String> {
    let (reader, left) = Bounded::new(reader, clock);
    let mut reader = serde_json::Deserializer::from_reader(reader);
    let (mut items, mut at) = (Vec::new(), 0);
    // After white space comes the next value, or the end.
    while reader.end().is_err() {
        let failed = |error: serde_json::Error| format!("row {}: {error}", at + 1);
        let is_shown = at >= rows.from && items.len() < rows.count;
        if is_shown {
            if items.is_empty() {
                left.set(MAX_ITEMS);
            }
            items.push(Value::deserialize(&mut reader).map_err(failed)?);
        } else {
            if at >= rows.from && !clock.may_count() {
                return Ok(of_items(items, None));
            }
            left.set(u64::MAX);
            IgnoredAny::deserialize(&mut reader).map_err(failed)?;
        }
        at += 1;
    }
    Ok(of_items(items, Some(at)))
}

/// The table of some items. Its columns are their keys, in the order in which they occur.
fn of_items(items: Vec<Value>, total: Option<u64>) -> TablePage {
    let mut page = TablePage {
        total,
        ..TablePage::default()
    };
    for item in &items {
        match item {
            Value::Object(object) => {
                for key in object.keys() {
                    page.column(key);
                }
            }
            _ => page.column(VALUE),
        }
    }
    for item in items {
        let row = match item {
            Value::Object(mut object) => {
                let columns = page.columns.iter();
                columns
                    .map(|key| object.remove(key).and_then(text))
                    .collect()
            }
            value => {
                let mut row = vec![None; page.columns.len()];
                let at = page.columns.iter().position(|name| name == VALUE);
                if let Some(at) = at {
                    row[at] = text(value);
                }
                row
            }
        };
        page.push(row);
    }
    page.bound();
    page
}

impl TablePage {
    /// Adds a column that it does not have. Those after the maximum only show that there are more.
    fn column(&mut self, name: &str) {
        if self.columns.len() <= super::MAX_COLUMNS
            && !self.columns.iter().any(|known| known == name)
        {
            self.columns.push(name.to_owned());
        }
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        value => Some(value.to_string()),
    }
}

/// Takes the items of an array that are asked for.
struct Items<'a> {
    rows: RowRange,
    clock: Clock,
    /// Bytes that the reader may still read.
    left: Rc<Cell<u64>>,
    found: &'a mut Found,
}

/// What was found in an array.
#[derive(Default)]
struct Found {
    items: Vec<Value>,
    total: Option<u64>,
    /// Whether the items behind the page were left.
    is_left: bool,
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let RowRange { from, count, .. } = self.rows;
        let mut at = 0;
        while at < from {
            if items.next_element::<IgnoredAny>()?.is_none() {
                self.found.total = Some(at);
                return Ok(());
            }
            at += 1;
        }
        self.left.set(MAX_ITEMS);
        while self.found.items.len() < count {
            let Some(item) = items.next_element()? else {
                self.found.total = Some(at);
                return Ok(());
            };
            self.found.items.push(item);
            at += 1;
        }
        self.left.set(u64::MAX);
        while self.clock.may_count() {
            if items.next_element::<IgnoredAny>()?.is_none() {
                self.found.total = Some(at);
                return Ok(());
            }
            at += 1;
        }
        self.found.is_left = true;
        Ok(())
    }
}

/// A reader that ends with an error after some bytes, or after the time for a page.
struct Bounded<R> {
    reader: R,
    left: Rc<Cell<u64>>,
    clock: Clock,
    /// Number of calls.
    calls: u64,
}

impl<R: Read> Bounded<R> {
    /// The reader, and the number of bytes that it may still read.
    fn new(reader: R, clock: Clock) -> (Self, Rc<Cell<u64>>) {
        let left = Rc::new(Cell::new(u64::MAX));
        let bounded = Self {
            reader,
            left: left.clone(),
            clock,
            calls: 0,
        };
        (bounded, left)
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // It is called for each byte, and the time costs more than that.
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS) {
            self.clock.check().map_err(io::Error::other)?;
        }
        let read = self.reader.read(buffer)?;
        match self.left.get().checked_sub(read as u64) {
            Some(left) => self.left.set(left),
            None => {
                let text = format!("these rows are larger than {} MiB", MAX_ITEMS >> 20);
                return Err(io::Error::other(text));
            }
        }
        Ok(read)
    }
}
