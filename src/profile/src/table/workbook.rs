//! Reads a worksheet of an xlsx file cell by cell, so that a distant cell does not allocate a huge grid.

use std::io::Cursor;

use calamine::{DataRef, Reader, SheetType, Xlsx};

use super::{Cell, MAX_CELLS, MAX_COLUMNS, MAX_ROWS, RawTable, is_missing, notation, worksheet};

/// Maximum unpacked size of all parts, in bytes; calamine reads all shared strings into memory.
pub(super) const MAX_UNPACKED: u64 = 128 << 20;

/// Reads the first worksheet that holds a table, which is the first one in almost all workbooks.
///
/// # Errors
/// The reason why the first worksheet holds none, if no other does either.
pub(super) fn read(bytes: &[u8]) -> Result<RawTable, String> {
    crate::document::check_package(bytes, MAX_UNPACKED)?;
    let unreadable = |e: calamine::XlsxError| format!("not a readable workbook: {e}");
    let mut book = Xlsx::new(Cursor::new(bytes)).map_err(unreadable)?;
    let sheets = book
        .sheets_metadata()
        .iter()
        .filter(|sheet| sheet.typ == SheetType::WorkSheet);
    let sheets: Vec<String> = sheets.map(|sheet| sheet.name.clone()).collect();
    let mut reason = None;
    for (index, sheet) in sheets.iter().enumerate() {
        match read_sheet(&mut book, sheet) {
            Ok(mut table) => {
                if index > 0 {
                    table.read.sheet = Some(sheet.clone());
                }
                if sheets.len() > 1 {
                    let others = sheets.iter().filter(|other| *other != sheet);
                    table.tables = std::iter::once(sheet).chain(others).cloned().collect();
                }
                return Ok(table);
            }
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    Err(reason.unwrap_or_else(|| "no worksheet".into()))
}

fn read_sheet(book: &mut Xlsx<Cursor<&[u8]>>, sheet: &str) -> Result<RawTable, String> {
    let unreadable = |e: calamine::XlsxError| format!("not a readable workbook: {e}");
    let merged = book.merge_cells_by_sheet_name(sheet).map_err(unreadable)?;
    let mut cells = Vec::new();
    let mut reader = book.worksheet_cells_reader(sheet).map_err(unreadable)?;
    while let Some(cell) = reader.next_cell().map_err(unreadable)? {
        let ((row, column), value) = (cell.get_position(), convert(cell.get_value()));
        if value == Cell::Null {
            continue;
        }
        if row as usize > MAX_ROWS || column as usize >= MAX_COLUMNS || cells.len() >= MAX_CELLS {
            return Err("its sheet is too large".into());
        }
        cells.push((row as usize, column as usize, value));
    }
    let mut table = worksheet::arrange(cells, &merged)?;
    notation::recognize_texts(&mut table);
    match table.cells.is_empty() {
        true => Err("no rows".into()),
        false => Ok(table),
    }
}

/// Converts a cell as pandas does: whole numbers are integers; errors and texts such as `NA` are missing
/// values.
pub(super) fn convert(value: &DataRef<'_>) -> Cell {
    let text = |text: &str| {
        if is_missing(text) {
            Cell::Null
        } else {
            Cell::Text(text.into())
        }
    };
    match value {
        DataRef::Empty | DataRef::Error(_) => Cell::Null,
        DataRef::Int(n) => Cell::Int(*n),
        DataRef::Float(x) if x.fract() == 0.0 && x.abs() < 9e15 => Cell::Int(*x as i64),
        DataRef::Float(x) => Cell::Float(*x),
        DataRef::Bool(b) => Cell::Bool(*b),
        DataRef::String(s) => text(s),
        DataRef::SharedString(s) => text(s),
        DataRef::DateTimeIso(s) => Cell::Date(s.as_str().into()),
        DataRef::DurationIso(s) => Cell::Other(s.as_str().into()),
        DataRef::DateTime(date) if date.is_duration() || date.as_f64() < 1.0 => {
            Cell::Other(date.as_f64().to_string().into())
        }
        DataRef::DateTime(date) => {
            let (year, month, day, hour, minute, second, _) = date.to_ymd_hms_milli();
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
            Cell::Date(text.into())
        }
    }
}
