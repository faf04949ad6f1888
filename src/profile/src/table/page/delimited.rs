//! Rows of delimited text.

use std::io::{BufRead, Cursor};

use super::{Clock, MAX_CELL, MAX_COLUMNS, RowRange, TablePage, Text, unreadable};

/// Bytes of a field that are kept: a character has at most four.
const MAX_BYTES: usize = 4 * (MAX_CELL + 1);
/// Fields of a record that are kept: one more shows that there are more.
const MAX_FIELDS: usize = MAX_COLUMNS + 1;

/// Rows of a text; its first record is the header.
///
/// # Errors
/// The text has no header, cannot be read, or the rows cannot be found in time.
pub(super) fn page(
    text: Text,
    separators: &[char],
    rows: RowRange,
    clock: Clock,
) -> Result<TablePage, String> {
    let separator = separator(&text.head, separators, clock);
    let mut records = Records {
        reader: text.reader,
        separator,
        clock,
    };
    let names = records.next(true)?.ok_or("no header")?;
    let mut page = TablePage {
        columns: names.into_iter().map(lossy).collect(),
        ..TablePage::default()
    };
    page.bound();
    let mut at = 0;
    while at < rows.from {
        if records.next(false)?.is_none() {
            page.total = Some(at);
            return Ok(page);
        }
        at += 1;
    }
    while page.rows.len() < rows.count {
        let Some(fields) = records.next(true)? else {
            page.total = Some(at);
            return Ok(page);
        };
        page.push(fields.into_iter().map(|field| Some(lossy(field))).collect());
        at += 1;
    }
    while clock.may_count() {
        match records.next(false) {
            Ok(Some(_)) => at += 1,
            Ok(None) => {
                page.total = Some(at);
                break;
            }
            // The rows of the page were found.
            Err(_) => break,
        }
    }
    Ok(page)
}

/// The separator that splits the header into the most fields. Separators are ASCII.
fn separator(head: &str, separators: &[char], clock: Clock) -> u8 {
    let width = |separator: u8| {
        let mut records = Records {
            reader: Box::new(Cursor::new(head.to_owned())),
            separator,
            clock,
        };
        let header = records.next(true).ok().flatten();
        header.map_or(0, |fields| fields.len())
    };
    let separators = separators.iter().map(|separator| *separator as u8);
    // Of equal ones, the first: `max_by_key` takes the last.
    let best = separators.rev().max_by_key(|separator| width(*separator));
    best.unwrap_or(b',')
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Records of delimited text. Blank lines are none.
struct Records {
    reader: Box<dyn BufRead>,
    separator: u8,
    clock: Clock,
}

/// The record that is being read.
#[derive(Default)]
struct Record {
    /// The fields before the current one, if they are kept.
    fields: Vec<Vec<u8>>,
    field: Vec<u8>,
    /// Whether the field has no byte yet.
    is_fresh: bool,
    is_quoted: bool,
    /// Whether the last byte was a quote in a quoted field: the field ends, or the next quote is part of it.
    is_closing: bool,
    /// Whether the record has a byte.
    has_bytes: bool,
}

impl Records {
    /// The fields of the next record, of which none is kept unless `keep`; `None` at the end.
    fn next(&mut self, keep: bool) -> Result<Option<Vec<Vec<u8>>>, String> {
        let mut record = Record {
            is_fresh: true,
            ..Record::default()
        };
        loop {
            self.clock.check()?;
            let chunk = self.reader.fill_buf().map_err(unreadable)?;
            if chunk.is_empty() {
                return Ok(record.has_bytes.then(|| record.end(keep)));
            }
            let end = chunk
                .iter()
                .position(|byte| record.take(*byte, self.separator, keep));
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(record.end(keep)));
            }
        }
    }
}

impl Record {
    /// Takes a byte; `true` if it ends the record.
    fn take(&mut self, byte: u8, separator: u8, keep: bool) -> bool {
        if self.is_quoted && !self.is_closing {
            match byte {
                b'"' => self.is_closing = true,
                byte => self.push(byte, keep),
            }
            return false;
        }
        if self.is_closing {
            self.is_closing = false;
            if byte == b'"' {
                self.push(byte, keep);
                return false;
            }
            self.is_quoted = false;
        }
        match byte {
            b'\n' | b'\r' => return self.has_bytes,
            b'"' if self.is_fresh => (self.is_quoted, self.is_fresh) = (true, false),
            byte if byte == separator => self.end_field(keep),
            byte => {
                self.is_fresh = false;
                self.push(byte, keep);
            }
        }
        self.has_bytes = true;
        false
    }

    fn push(&mut self, byte: u8, keep: bool) {
        if keep && self.field.len() < MAX_BYTES {
            self.field.push(byte);
        }
    }

    fn end_field(&mut self, keep: bool) {
        let field = std::mem::take(&mut self.field);
        if keep && self.fields.len() < MAX_FIELDS {
            self.fields.push(field);
        }
        self.is_fresh = true;
    }

    fn end(&mut self, keep: bool) -> Vec<Vec<u8>> {
        self.end_field(keep);
        std::mem::take(&mut self.fields)
    }
}
