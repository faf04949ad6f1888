//! Finds the table in the cells of a worksheet: rows above the header, a header of one or two rows, and merged cells.

use calamine::Dimensions;
use pybench_types::read_options::ReadOptions;

use super::two_rows::is_filled;
use super::value::YEARS;
use super::{Cell, MAX_CELLS, RawTable};

/// Rows above the header, at most.
const MAX_ROWS_ABOVE: usize = 10;

/// The cells of a worksheet as a grid, with the areas of merged cells, of which the first cell has the value.
struct Sheet<'a> {
    grid: Vec<Cell>,
    width: usize,
    merged: &'a [Dimensions],
}

/// Arranges cells (row, column, value) as a table.
///
/// # Errors
/// The reason why pandas does not read them as a table.
pub(super) fn arrange(
    cells: Vec<(usize, usize, Cell)>,
    merged: &[Dimensions],
) -> Result<RawTable, String> {
    let width = cells.iter().map(|(_, column, _)| column + 1).max();
    let width = width.ok_or("its sheet is empty")?;
    let height = cells.iter().map(|(row, ..)| row + 1).max().unwrap_or(0);
    if width.saturating_mul(height) > MAX_CELLS {
        return Err("its sheet is too large".into());
    }
    let mut grid = vec![Cell::Null; width * height];
    for (row, column, value) in cells {
        grid[row * width + column] = value;
    }
    let sheet = Sheet {
        grid,
        width,
        merged,
    };
    let header = sheet.header()?;
    let mut table = RawTable::new(header.names)?;
    for (index, row) in sheet.rows().enumerate().skip(header.end) {
        if row.iter().all(|cell| *cell == Cell::Null) {
            return Err(format!("row {} is empty", index + 1));
        }
        table.push(row.iter().cloned())?;
    }
    table.read = header.read;
    sheet.fill(&mut table, header.end)?;
    Ok(table)
}

/// The texts of cells; an empty one for an empty cell.
fn texts(row: &[Option<String>]) -> impl Iterator<Item = &str> {
    row.iter().map(|cell| cell.as_deref().unwrap_or_default())
}

/// The header of a table.
struct Header {
    names: Vec<String>,
    /// The row below it.
    end: usize,
    read: ReadOptions,
}

impl Sheet<'_> {
    fn rows(&self) -> std::slice::Chunks<'_, Cell> {
        self.grid.chunks(self.width)
    }

    /// The first row that names every column, or two rows of which the upper one has merged cells. Above it may be
    /// titles: rows with one value at most.
    fn header(&self) -> Result<Header, String> {
        let first = self.names(0);
        for (top, row) in self.rows().enumerate().take(MAX_ROWS_ABOVE) {
            if let Some((names, is_regular)) = self.joined_names(top) {
                let read = ReadOptions {
                    skip_rows: top as u32,
                    names: names.clone(),
                    joined_header: is_regular,
                    ..ReadOptions::default()
                };
                let end = top + 2;
                return Ok(Header { names, end, read });
            }
            if let Ok(names) = self.names(top) {
                let read = ReadOptions {
                    skip_rows: top as u32,
                    ..ReadOptions::default()
                };
                let end = top + 1;
                return Ok(Header { names, end, read });
            }
            let values = row.iter().filter(|cell| **cell != Cell::Null).count();
            if values > 1 {
                break;
            }
        }
        Err(first.err().unwrap_or_default())
    }

    /// The names in a row, which every column must have.
    fn names(&self, row: usize) -> Result<Vec<String>, String> {
        let row = self.rows().nth(row).unwrap_or_default();
        let name = |cell: &Cell| match cell {
            Cell::Text(text) => Ok(text.to_string()),
            Cell::Null => Err("its first row is no header: a cell is empty".into()),
            _ => Err("its first row is no header: it holds values".into()),
        };
        row.iter().map(name).collect()
    }

    /// The upper and the lower name of each column, joined by a space, if the row and the next one are a header: some
    /// names of the row stand above several columns, and every column has a name of its own below or in both rows. And
    /// whether filling the upper row from the left gives the same names.
    fn joined_names(&self, top: usize) -> Option<(Vec<String>, bool)> {
        let spans = |area: &&Dimensions| {
            let columns = (area.start.1..=area.end.1).count();
            area.start.0 as usize == top && area.end.0 as usize == top && columns > 1
        };
        let mut groups = self.merged.iter().filter(spans).peekable();
        groups.peek()?;
        let mut upper = self.texts(top)?;
        let lower = self.texts(top + 1)?;
        let written = upper.clone();
        for area in groups {
            let (from, to) = (area.start.1 as usize, area.end.1 as usize);
            if from > to || to >= self.width || to + 1 - from == self.width {
                return None;
            }
            let name = upper[from].clone();
            upper[from..=to].fill(name);
        }
        let pairs = upper.iter().zip(&lower);
        let joined = pairs.map(|pair| match pair {
            (Some(upper), Some(lower)) => Some(format!("{} {}", upper.trim(), lower.trim())),
            (Some(one), None) | (None, Some(one)) => Some(one.trim().to_owned()),
            (None, None) => None,
        });
        let names: Vec<String> = joined.collect::<Option<_>>()?;
        let is_regular = is_filled(texts(&written), texts(&lower), &names);
        Some((names, is_regular))
    }

    /// The texts and years of a row; `None` if it holds other values.
    fn texts(&self, row: usize) -> Option<Vec<Option<String>>> {
        let text = |cell: &Cell| match cell {
            Cell::Null => Some(None),
            Cell::Text(text) => Some(Some(text.to_string())),
            Cell::Int(year) if YEARS.contains(year) => Some(Some(year.to_string())),
            _ => None,
        };
        self.rows().nth(row)?.iter().map(text).collect()
    }

    /// Gives the value of cells that are merged over several rows to each of these rows. pandas can do so only by filling
    /// a column downward, so a column with other missing values is refused.
    fn fill(&self, table: &mut RawTable, start: usize) -> Result<(), String> {
        let mut merged = 0;
        for area in self.merged {
            let (rows, columns) = (area.start.0..=area.end.0, area.start.1..=area.end.1);
            let Some(top) = (*rows.start() as usize).checked_sub(start) else {
                continue;
            };
            let height = rows.count();
            let column = *columns.start() as usize;
            if columns.count() > 1 {
                let row = top + start + 1;
                return Err(format!(
                    "row {row} has a cell that is merged over several columns"
                ));
            }
            if column >= self.width || top >= table.rows() || height < 2 {
                continue;
            }
            merged += height;
            if merged > MAX_CELLS {
                return Err("too many of its cells are merged".into());
            }
            let value = table.cells[top * self.width + column].clone();
            let below = table.cells.iter_mut().skip(column).step_by(self.width);
            below
                .skip(top)
                .take(height)
                .for_each(|cell| *cell = value.clone());
            let name = &table.names[column];
            if !table.read.filled.contains(name) {
                table.read.filled.push(name.clone());
            }
        }
        for (index, name) in table.names.iter().enumerate() {
            let mut column = table.cells.iter().skip(index).step_by(self.width);
            if table.read.filled.contains(name) && column.any(|cell| *cell == Cell::Null) {
                return Err(format!(
                    "column `{name}` has merged cells and missing values"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Cell {
        match text {
            "" => Cell::Null,
            _ => text
                .parse()
                .map_or_else(|_| Cell::Text(text.into()), Cell::Int),
        }
    }

    /// A worksheet of rows with `|` between cells, and areas of merged cells (first row, first column, last row, last
    /// column).
    fn sheet(rows: &[&str], merged: &[[u32; 4]]) -> Result<RawTable, String> {
        let rows = rows.iter().enumerate();
        let cells = rows.flat_map(|(row, line)| {
            let cells = line.split('|').enumerate();
            cells.map(move |(column, value)| (row, column, text(value)))
        });
        let cells = cells.filter(|(.., value)| *value != Cell::Null);
        let merged = merged
            .iter()
            .map(|[a, b, c, d]| Dimensions::new((*a, *b), (*c, *d)));
        arrange(cells.collect(), &merged.collect::<Vec<_>>())
    }

    #[test]
    fn a_plain_sheet_needs_no_options() {
        let table = sheet(&["a|b", "1|x", "2|"], &[]).unwrap();
        assert_eq!(table.names, ["a", "b"]);
        assert!(table.read.is_default());
        assert_eq!(table.rows(), 2);
    }

    #[test]
    fn titles_above_the_header_are_skipped() {
        let table = sheet(&["Sales|", "|", "a|b", "1|x"], &[[0, 0, 0, 1]]).unwrap();
        assert_eq!((table.read.skip_rows, table.rows()), (2, 1));
        assert_eq!(table.names, ["a", "b"]);
    }

    #[test]
    fn two_header_rows_are_joined() {
        let rows = ["Region|Sales||Rest", "|2023|2024|Share", "N|1|2|3"];
        let table = sheet(&rows, &[[0, 1, 0, 2], [0, 0, 1, 0]]).unwrap();
        let names = ["Region", "Sales 2023", "Sales 2024", "Rest Share"];
        assert_eq!(table.names, names);
        assert_eq!(table.read.names, names);
        assert!(table.read.joined_header);
        assert_eq!(table.rows(), 1);
        // No name stands above the first column, and none but that of the group to the left of the last one.
        let rows = ["|Sales||", "id|2023|2024|Share", "N|1|2|3"];
        let table = sheet(&rows, &[[0, 1, 0, 2]]).unwrap();
        assert_eq!(table.names, ["id", "Sales 2023", "Sales 2024", "Share"]);
        assert!(!table.read.joined_header);
    }

    #[test]
    fn cells_merged_over_rows_are_filled() {
        let rows = ["place|n", "a|1", "|2", "b|3"];
        let table = sheet(&rows, &[[1, 0, 2, 0]]).unwrap();
        assert_eq!(table.read.filled, ["place"]);
        assert_eq!(table.cells[2], text("a"));
    }

    #[test]
    fn what_pandas_cannot_read_so_is_refused() {
        let refused = |rows: &[&str], merged: &[[u32; 4]], reason: &str| {
            let error = sheet(rows, merged).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        refused(&["a|b", "x|", "1|2"], &[[1, 0, 1, 1]], "row 2 has a cell");
        refused(
            &["a|b", "x|1", "|2", "|3"],
            &[[1, 0, 2, 0]],
            "`a` has merged cells and missing",
        );
        refused(&["a|", "1|2"], &[], "a cell is empty");
        refused(&["a|b|", "c||", "d|e|f"], &[], "a cell is empty");
        refused(&["a|b", "|", "1|2"], &[], "row 2 is empty");
    }
}
