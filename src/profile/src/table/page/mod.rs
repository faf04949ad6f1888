//! Pages of tables for people to look at, read from the file, however large it is.
//!
//! Profiles are strict, since tasks are written for their tables; pages show what is there. Memory is bounded by the page,
//! time by a deadline. Workbooks and databases are read whole, so these are bounded in size.

mod delimited;
mod json;
mod parquet;
mod workbook;

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use pybench_files::text;
use pybench_types::task::FileKind;

use super::{Cell, RawTable, sqlite};

/// Maximum number of rows of a page.
pub const MAX_PAGE_ROWS: usize = 500;
/// Maximum number of columns of a page.
const MAX_COLUMNS: usize = 100;
/// Maximum length of a cell, characters.
const MAX_CELL: usize = 300;
/// Files of at most this size, in bytes, are read whole where their format needs it.
const MAX_WHOLE: u64 = 64 << 20;
/// Length of the beginning of a text that says how it is encoded and separated, bytes.
const HEAD: usize = 64 << 10;
/// Time in which a page has to be found.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Time after which the rows behind a page are not counted.
const COUNT_TIME: Duration = Duration::from_secs(1);

/// Some rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePage {
    pub columns: Vec<String>,
    /// The cells of each row; `None` is a missing value.
    pub rows: Vec<Vec<Option<String>>>,
    /// Number of all rows; `None` if counting them takes too long.
    pub total: Option<u64>,
    /// Names of the sheets, or the tables of a database, of which a page shows one.
    pub sheets: Vec<String>,
    /// Whether columns or texts were cut.
    pub cut: bool,
}

/// Which rows are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRange {
    /// Number of the first one, from 0.
    pub from: u64,
    pub count: usize,
    /// Number of the sheet or table, from 0.
    pub sheet: usize,
}

/// Rows of a table file.
///
/// # Errors
/// The reason why they cannot be shown.
pub(crate) fn read(kind: FileKind, mut file: File, rows: RowRange) -> Result<TablePage, String> {
    let rows = RowRange {
        count: rows.count.min(MAX_PAGE_ROWS),
        ..rows
    };
    let clock = Clock(Instant::now());
    match kind {
        FileKind::Csv => delimited::page(Text::open(file)?, &[',', ';', '\t', '|'], rows, clock),
        FileKind::Tsv => delimited::page(Text::open(file)?, &['\t'], rows, clock),
        FileKind::Json => json::array(BufReader::new(file), rows, clock),
        FileKind::Jsonl => json::lines(BufReader::new(file), rows, clock),
        FileKind::Parquet => parquet::page(file, rows),
        FileKind::Xlsx => workbook::page(&whole(&mut file)?, rows),
        FileKind::Sqlite => {
            let table = sqlite::read_table(&whole(&mut file)?, rows.sheet)?;
            Ok(of_table(&table, rows))
        }
        other => Err(format!("{} is no table", other.name())),
    }
}

/// The time that a page has taken.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn check(self) -> Result<(), String> {
        match self.0.elapsed() > MAX_TIME {
            true => Err("finding these rows takes too long; download the file".to_owned()),
            false => Ok(()),
        }
    }

    /// Whether the rows behind the page may still be counted.
    fn may_count(self) -> bool {
        self.0.elapsed() < COUNT_TIME
    }
}

/// A text file as UTF-8, and its beginning.
struct Text {
    head: String,
    reader: Box<dyn BufRead>,
}

impl Text {
    fn open(mut file: File) -> Result<Self, String> {
        if size(&file)? <= MAX_WHOLE {
            let bytes = whole(&mut file)?;
            let text = text::decode(&bytes)?.text.into_owned();
            let head = String::from_utf8_lossy(&text.as_bytes()[..text.len().min(HEAD)]);
            return Ok(Self {
                head: head.into_owned(),
                reader: Box::new(Cursor::new(text.into_bytes())),
            });
        }
        let mut head = Vec::new();
        let read = (&mut file).take(HEAD as u64).read_to_end(&mut head);
        read.map_err(unreadable)?;
        let mark = usize::from(head.starts_with(b"\xef\xbb\xbf")) * 3;
        if head.contains(&0) {
            return Err("it is larger than 64 MiB and not UTF-8".to_owned());
        }
        file.seek(SeekFrom::Start(mark as u64))
            .map_err(unreadable)?;
        Ok(Self {
            head: String::from_utf8_lossy(&head[mark..]).into_owned(),
            reader: Box::new(BufReader::with_capacity(HEAD, file)),
        })
    }
}

fn size(file: &File) -> Result<u64, String> {
    Ok(file.metadata().map_err(unreadable)?.len())
}

/// The bytes of a file that is not too large.
fn whole(file: &mut File) -> Result<Vec<u8>, String> {
    if size(file)? > MAX_WHOLE {
        return Err("larger than 64 MiB".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_WHOLE).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    Ok(bytes)
}

fn unreadable(error: impl std::fmt::Display) -> String {
    format!("it cannot be read: {error}")
}

/// Rows of a table that was read whole.
fn of_table(table: &RawTable, rows: RowRange) -> TablePage {
    let mut page = TablePage {
        columns: table.names.clone(),
        total: Some(table.rows() as u64),
        sheets: table.tables.clone(),
        ..TablePage::default()
    };
    let from = usize::try_from(rows.from).unwrap_or(usize::MAX);
    let chunks = table.cells.chunks(table.names.len().max(1));
    for row in chunks.skip(from).take(rows.count) {
        page.push(row.iter().map(shown).collect());
    }
    page.bound();
    page
}

/// A cell as text; `None` for a missing value.
fn shown(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Int(number) => Some(number.to_string()),
        Cell::Float(number) => Some(number.to_string()),
        Cell::Bool(value) => Some(value.to_string()),
        Cell::Date(text) | Cell::Text(text) | Cell::Other(text) => Some(text.to_string()),
    }
}

impl TablePage {
    fn push(&mut self, mut row: Vec<Option<String>>) {
        if row.len() > MAX_COLUMNS {
            row.truncate(MAX_COLUMNS);
            self.cut = true;
        }
        for text in row.iter_mut().flatten() {
            self.cut |= cut(text);
        }
        self.rows.push(row);
    }

    /// Cuts the names of the columns.
    fn bound(&mut self) {
        if self.columns.len() > MAX_COLUMNS {
            self.columns.truncate(MAX_COLUMNS);
            self.cut = true;
        }
        for name in &mut self.columns {
            self.cut |= cut(name);
        }
    }
}

/// Cuts a text that is too long; `true` if it was.
fn cut(text: &mut String) -> bool {
    let end = text.char_indices().nth(MAX_CELL).map(|(end, _)| end);
    if let Some(end) = end {
        text.truncate(end);
        text.push('…');
    }
    end.is_some()
}

#[cfg(test)]
mod tests;
