//! Reads the first worksheet of an xlsx file cell by cell, so that a distant cell does not allocate a huge grid.

use std::io::Cursor;

use calamine::{DataRef, Reader, SheetType, Xlsx};

use super::{Cell, MAX_CELLS, MAX_COLUMNS, MAX_ROWS, RawTable, is_missing};

/// Maximum unpacked size of all parts, in bytes; calamine reads all shared strings into memory.
const MAX_UNPACKED: u64 = 128 << 20;

pub(super) fn read(bytes: &[u8]) -> Result<RawTable, String> {
    crate::document::check_package(bytes, MAX_UNPACKED)?;
    let unreadable = |e: calamine::XlsxError| format!("not a readable workbook: {e}");
    let mut book = Xlsx::new(Cursor::new(bytes)).map_err(unreadable)?;
    let sheets = book
        .sheets_metadata()
        .iter()
        .filter(|sheet| sheet.typ == SheetType::WorkSheet);
    let sheets: Vec<String> = sheets.map(|sheet| sheet.name.clone()).collect();
    let first = sheets.first().ok_or("no worksheet")?;
    let mut cells = Vec::new();
    let mut reader = book.worksheet_cells_reader(first).map_err(unreadable)?;
    while let Some(cell) = reader.next_cell().map_err(unreadable)? {
        let ((row, column), value) = (cell.get_position(), convert(cell.get_value()));
        if value == Cell::Null {
            continue;
        }
        if row as usize > MAX_ROWS || column as usize >= MAX_COLUMNS || cells.len() >= MAX_CELLS {
            return Err("its first sheet is too large".into());
        }
        cells.push((row as usize, column as usize, value));
    }
    let mut table = arrange(cells)?;
    if sheets.len() > 1 {
        table.tables = sheets;
    }
    Ok(table)
}

/// Arranges sparse cells as a table. The sheet's first row is the header.
fn arrange(cells: Vec<(usize, usize, Cell)>) -> Result<RawTable, String> {
    let width = cells
        .iter()
        .map(|(_, column, _)| column + 1)
        .max()
        .ok_or("its first sheet is empty")?;
    let height = cells.iter().map(|(row, ..)| row + 1).max().unwrap_or(0);
    if width.saturating_mul(height) > MAX_CELLS {
        return Err("its first sheet is too large".into());
    }
    let mut grid = vec![Cell::Null; width * height];
    for (row, column, value) in cells {
        grid[row * width + column] = value;
    }
    let names: Result<Vec<String>, String> = grid.drain(..width).map(name).collect();
    let mut table = RawTable::new(names?)?;
    for (index, row) in grid.chunks(width).enumerate() {
        if row.iter().all(|cell| *cell == Cell::Null) {
            return Err(format!("row {} is empty", index + 2));
        }
        table.push(row.iter().cloned())?;
    }
    Ok(table)
}

fn name(cell: Cell) -> Result<String, String> {
    match cell {
        Cell::Text(text) => Ok(text.into()),
        Cell::Null => Err("its first row is no header: a cell is empty".into()),
        _ => Err("its first row is no header: it holds values".into()),
    }
}

/// Converts a cell as pandas does: whole numbers are integers; errors and texts such as `NA` are missing
/// values.
fn convert(value: &DataRef<'_>) -> Cell {
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
