//! Rows of a sheet of a workbook. The first row of the sheet gives the names of the columns.

use std::io::Cursor;

use calamine::{Reader, SheetType, Xlsx};

use super::super::Cell;
use super::super::workbook::{MAX_UNPACKED, convert};
use super::{MAX_COLUMNS, RowRange, TablePage, cut, shown, unreadable};
use crate::document::check_package;

/// Maximum number of cells of a sheet that are read.
const MAX_CELLS: usize = 10_000_000;

/// Rows of a sheet.
///
/// # Errors
/// The workbook cannot be read or is too large, or has no such sheet.
pub(super) fn page(bytes: &[u8], rows: RowRange) -> Result<TablePage, String> {
    check_package(bytes, MAX_UNPACKED)?;
    let mut book = Xlsx::new(Cursor::new(bytes)).map_err(unreadable)?;
    let sheets = book.sheets_metadata().iter();
    let sheets = sheets.filter(|sheet| sheet.typ == SheetType::WorkSheet);
    let sheets: Vec<String> = sheets.map(|sheet| sheet.name.clone()).collect();
    let name = sheets.get(rows.sheet).ok_or("there is no such sheet")?;
    let mut reader = book.worksheet_cells_reader(name).map_err(unreadable)?;
    let mut sheet = Sheet {
        rows,
        names: Vec::new(),
        shown: vec![Vec::new(); rows.count],
        first: None,
        last: 0,
        cut: false,
    };
    for _ in 0..MAX_CELLS {
        let Some(cell) = reader.next_cell().map_err(unreadable)? else {
            return Ok(sheet.page(sheets));
        };
        let (row, column) = cell.get_position();
        sheet.take(u64::from(row), column as usize, &convert(cell.get_value()));
    }
    Err(format!("the sheet has more than {MAX_CELLS} cells"))
}

/// The cells of a sheet that are shown.
struct Sheet {
    rows: RowRange,
    names: Vec<Option<String>>,
    shown: Vec<Vec<Option<String>>>,
    /// Number of the row that has the names.
    first: Option<u64>,
    last: u64,
    cut: bool,
}

impl Sheet {
    /// Takes a cell, which come row by row.
    fn take(&mut self, row: u64, column: usize, value: &Cell) {
        if *value == Cell::Null {
            return;
        }
        let first = *self.first.get_or_insert(row);
        self.last = self.last.max(row);
        if column >= MAX_COLUMNS {
            self.cut = true;
            return;
        }
        let row = match row.checked_sub(first) {
            Some(0) => Some(&mut self.names),
            // A damaged sheet may have earlier rows behind later ones.
            None => None,
            Some(below) => {
                let at = (below - 1).checked_sub(self.rows.from);
                let at = at.map(|at| usize::try_from(at).unwrap_or(usize::MAX));
                self.shown.get_mut(at.unwrap_or(usize::MAX))
            }
        };
        if let Some(row) = row {
            row.resize(row.len().max(column + 1), None);
            let mut text = shown(value);
            // Many cells can share one long text.
            self.cut |= text.as_mut().is_some_and(cut);
            row[column] = text;
        }
    }

    fn page(self, sheets: Vec<String>) -> TablePage {
        let total = self.first.map_or(0, |first| self.last - first);
        let left = total.saturating_sub(self.rows.from);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let shown = self.shown.iter().take(left);
        let width = shown.chain([&self.names]).map(Vec::len).max();
        let width = width.unwrap_or_default();
        let mut columns: Vec<String> = self
            .names
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect();
        columns.resize(width, String::new());
        let mut page = TablePage {
            columns,
            total: Some(total),
            sheets: if sheets.len() > 1 { sheets } else { Vec::new() },
            cut: self.cut,
            ..TablePage::default()
        };
        for mut row in self.shown.into_iter().take(left) {
            row.resize(width, None);
            page.push(row);
        }
        page.bound();
        page
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_CELL;
    use super::*;

    #[test]
    fn texts_are_cut_before_they_are_kept() {
        let mut sheet = Sheet {
            rows: RowRange::default(),
            names: Vec::new(),
            shown: vec![Vec::new()],
            first: None,
            last: 0,
            cut: false,
        };
        sheet.take(0, 0, &Cell::Text("a".into()));
        assert!(!sheet.cut);
        sheet.take(1, 0, &Cell::Text("x".repeat(2 * MAX_CELL).into()));
        let kept = sheet.shown[0][0].as_ref().unwrap();
        assert_eq!((kept.chars().count(), sheet.cut), (MAX_CELL + 1, true));
    }
}
