//! Tables in a PDF: each on a page of its own, with a line around each cell and the text of a cell on one line.

use std::collections::BTreeSet;

use pybench_profile::Cells;

/// How the text of a cell begins in a page; paragraphs have another size.
const CELL: &str = "BT /F1 9 Tf ";
/// Width of the widest letter in this size, in points.
const LETTER: f64 = 8.6;
/// Distances in points: around a text, between rows, and from the edges of the page.
const PADDING: usize = 4;
const ROW: usize = 18;
const LEFT: usize = 50;
const TOP: usize = 780;
/// From the upper line of a cell to the line that its text stands on.
const BASE: usize = 13;
/// Most rows of a page, and most columns.
const MAX_ROWS: usize = 40;
const MAX_COLUMNS: usize = 16;

/// What a page draws for a table, and its width; `None` if tools could read the table in another way: it has a character
/// that is not in ASCII, an odd one, or a gap in its first row or column.
pub(super) fn page(table: &Cells) -> Option<(String, usize)> {
    let header = table.first()?;
    let readable = |cell: &String| {
        let plain = cell
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'@');
        plain && cell.trim() == cell && !cell.contains("  ")
    };
    let whole = header.iter().all(|cell| !cell.is_empty())
        && table.iter().all(|row| {
            let starts = row.first().is_some_and(|cell| !cell.is_empty());
            starts && row.len() == header.len() && row.iter().all(readable)
        });
    if !whole || table.len() > MAX_ROWS || header.len() > MAX_COLUMNS {
        return None;
    }
    let width = |at: usize| {
        let letters = table.iter().map(|row| row[at].len()).max().unwrap_or(0);
        (letters as f64 * LETTER).ceil() as usize + 2 * PADDING
    };
    let mut right = LEFT;
    let mut lefts = vec![right];
    for at in 0..header.len() {
        right += width(at);
        lefts.push(right);
    }
    let bottom = TOP - ROW * table.len();
    let across = (0..=table.len()).map(|row| {
        let y = TOP - ROW * row;
        format!("{LEFT} {y} m {right} {y} l S\n")
    });
    let down = lefts
        .iter()
        .map(|x| format!("{x} {TOP} m {x} {bottom} l S\n"));
    let mut drawn = "0.5 w\n".to_owned();
    drawn.extend(across.chain(down));
    for (row, cells) in table.iter().enumerate() {
        for (x, cell) in lefts.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            let (x, y) = (x + PADDING, TOP - ROW * row - BASE);
            drawn += &format!("{CELL}{x} {y} Td ({}) Tj ET\n", literal(cell));
        }
    }
    Some((drawn, right + LEFT))
}

/// A text in a literal of a PDF.
pub(super) fn literal(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('(', "\\(")
        .replace(')', "\\)")
}

/// The text of such a literal.
fn unescaped(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut escaped = false;
    for c in literal.chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            text.push(c);
        }
    }
    text
}

/// The tables of a file that was written here; none of another file.
pub(super) fn read(bytes: &[u8]) -> Vec<Cells> {
    let Ok(file) = std::str::from_utf8(bytes) else {
        return Vec::new();
    };
    let streams = file.split("\nstream\n").skip(1);
    streams.filter_map(of_page).collect()
}

/// The table of a page; `None` if it has none, or one that is too large to be written here.
fn of_page(stream: &str) -> Option<Cells> {
    let drawn = stream.split("endstream").next()?;
    let placed: Vec<(usize, usize, String)> = drawn.lines().filter_map(placed).collect();
    // From left to right, and from top to bottom.
    let columns: BTreeSet<usize> = placed.iter().map(|(x, ..)| *x).collect();
    let rows: BTreeSet<usize> = placed
        .iter()
        .map(|(_, y, _)| TOP.saturating_sub(*y))
        .collect();
    let (columns, rows): (Vec<usize>, Vec<usize>) =
        (columns.into_iter().collect(), rows.into_iter().collect());
    if rows.len() > MAX_ROWS || columns.len() > MAX_COLUMNS {
        return None;
    }
    let mut cells = vec![vec![String::new(); columns.len()]; rows.len()];
    for (x, y, text) in placed {
        let row = rows.binary_search(&TOP.saturating_sub(y)).ok()?;
        let column = columns.binary_search(&x).ok()?;
        cells[row][column] = text;
    }
    (!cells.is_empty()).then_some(cells)
}

/// Where the text of a cell stands, and the text; `None` for another line.
fn placed(line: &str) -> Option<(usize, usize, String)> {
    let (place, text) = line.strip_prefix(CELL)?.split_once(" Td (")?;
    let (x, y) = place.split_once(' ')?;
    let text = unescaped(text.strip_suffix(") Tj ET")?);
    Some((x.parse().ok()?, y.parse().ok()?, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with a text in each place of a diagonal.
    fn diagonal(count: usize) -> String {
        let cells = (0..count).map(|at| {
            let (x, y) = (LEFT + at, TOP - BASE - at);
            format!("{CELL}{x} {y} Td (a) Tj ET\n")
        });
        format!("\nstream\n{}endstream", cells.collect::<String>())
    }

    #[test]
    fn a_foreign_page_with_too_many_places_has_no_table() {
        let tables = read(diagonal(MAX_COLUMNS).as_bytes());
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0][3][3], "a");
        assert!(read(diagonal(MAX_COLUMNS + 1).as_bytes()).is_empty());
    }
}
