//! The cells of the tables of a document, for tasks that extract them.

use quick_xml::Reader;
use quick_xml::events::Event;
use scraper::{ElementRef, Html, Selector};

use pybench_files::{entity, text};

use super::{blocks, office};

/// The cells of a table, row by row, with single spaces between words. The first row has the names of the columns.
pub type Cells = Vec<Vec<String>>;

/// The tables of a page of HTML; none if tools disagree on one of them: because of merged cells, tables in tables, hidden
/// parts, or a first row that is no header.
pub(super) fn html(bytes: &[u8]) -> Result<Vec<Cells>, String> {
    let decoded = text::decode(bytes)?;
    let page = Html::parse_document(&decoded.text);
    let selector = |css: &str| Selector::parse(css).map_err(|error| error.to_string());
    let odd = selector(
        "table table, table [colspan], table [rowspan], table [style], table [hidden], table script, table style, \
         table br, table tfoot, table caption",
    )?;
    if page.select(&odd).next().is_some() {
        return Ok(Vec::new());
    }
    let (table, row, cell) = (selector("table")?, selector("tr")?, selector("th, td")?);
    let mut tables = Vec::new();
    for table in page.select(&table) {
        let mut cells = Cells::new();
        for row in table.select(&row) {
            let found: Vec<ElementRef<'_>> = row.select(&cell).collect();
            let is_header = found.iter().all(|cell| cell.value().name() == "th");
            if is_header != cells.is_empty() {
                return Ok(Vec::new());
            }
            cells.push(found.into_iter().map(cell_text).collect());
        }
        tables.push(cells);
    }
    Ok(all_or_none(tables))
}

fn cell_text(cell: ElementRef<'_>) -> String {
    cell.text().collect()
}

/// The tables of a Word document; none if tools disagree on one of them: because of merged cells or tables in tables.
pub(super) fn docx(bytes: &[u8]) -> Result<Vec<Cells>, String> {
    const ODD: [&str; 4] = ["<w:gridSpan", "<w:vMerge", "<w:gridBefore", "<w:gridAfter"];
    let xml = office::document_part(bytes)?;
    let plain = String::from_utf8_lossy(&xml);
    if !blocks::is_plain_docx(bytes) || ODD.iter().any(|odd| plain.contains(odd)) {
        return Ok(Vec::new());
    }
    let mut reader = Reader::from_reader(xml.as_slice());
    let (mut tables, mut buffer) = (Vec::<Cells>::new(), Vec::new());
    let mut open: Vec<String> = Vec::new();
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer);
        match event.map_err(|e| format!("its text is not well-formed: {e}"))? {
            Event::Start(tag) => {
                open.push(tag.local_name().as_ref().to_owned());
                if open.iter().filter(|name| *name == "tbl").count() > 1 {
                    return Ok(Vec::new());
                }
                begin(&open, &mut tables);
            }
            Event::Text(part) if is_text(&open) => add(&part, &mut tables),
            Event::GeneralRef(named) if is_text(&open) => {
                add(entity::resolve(&named), &mut tables);
            }
            Event::End(_) => {
                if inside(&open) == ["tr", "tc", "p"] {
                    add(" ", &mut tables);
                }
                open.pop();
            }
            Event::Eof if !open.is_empty() => return Err("its text ends inside an element".into()),
            Event::Eof => return Ok(all_or_none(tables)),
            _ => {}
        }
    }
}

/// The elements that are open inside of a table of the body itself; empty elsewhere.
fn inside(open: &[String]) -> &[String] {
    match open {
        [document, body, table, rest @ ..]
            if document == "document" && body == "body" && table == "tbl" =>
        {
            rest
        }
        _ => &[],
    }
}

fn is_text(open: &[String]) -> bool {
    inside(open) == ["tr", "tc", "p", "r", "t"]
}

/// Begins a table, a row or a cell.
fn begin(open: &[String], tables: &mut Vec<Cells>) {
    if open == ["document", "body", "tbl"] {
        tables.push(Cells::new());
    }
    let Some(table) = tables.last_mut() else {
        return;
    };
    if inside(open) == ["tr"] {
        table.push(Vec::new());
    } else if inside(open) == ["tr", "tc"]
        && let Some(row) = table.last_mut()
    {
        row.push(String::new());
    }
}

/// Adds to the text of the last cell.
fn add(text: &str, tables: &mut [Cells]) {
    let row = tables.last_mut().and_then(|table| table.last_mut());
    if let Some(cell) = row.and_then(|row| row.last_mut()) {
        cell.push_str(text);
    }
}

/// The tables with single spaces, if each of them is a grid of two columns or more and tools agree on its white space.
fn all_or_none(mut tables: Vec<Cells>) -> Vec<Cells> {
    let is_plain = |cell: &String| {
        let odd = |c: char| c.is_whitespace() && !matches!(c, ' ' | '\n' | '\r');
        !cell.contains(odd)
    };
    let is_grid = |table: &Cells| {
        let width = table.first().map_or(0, Vec::len);
        width >= 2
            && table.len() >= 2
            && table
                .iter()
                .all(|row| row.len() == width && row.iter().all(is_plain))
    };
    if !tables.iter().all(is_grid) {
        return Vec::new();
    }
    for cell in tables.iter_mut().flatten().flatten() {
        *cell = cell.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(table: &str) -> Vec<Cells> {
        html(format!("<html><body><p>x</p>{table}</body></html>").as_bytes()).unwrap()
    }

    #[test]
    fn the_cells_of_a_page_are_read_row_by_row() {
        let table = "<table><tr><th>name</th><th>price</th></tr>\n<tr><td> a &amp;\n b</td><td>1.5</td></tr></table>";
        assert_eq!(page(table), [[["name", "price"], ["a & b", "1.5"]]]);
    }

    #[test]
    fn tables_that_tools_read_in_different_ways_are_left_out() {
        for table in [
            "<table><tr><th>a</th><th>b</th></tr><tr><td colspan=2>1</td></tr></table>",
            "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>",
            "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td></tr></table>",
            "<table><tr><th>a</th><th>b</th></tr><tr><th>1</th><th>2</th></tr></table>",
            "<table><tr><th>a</th><th>b</th></tr><tr><td>1\u{a0}000</td><td>2</td></tr></table>",
        ] {
            assert_eq!(page(table), Vec::<Cells>::new(), "{table}");
        }
    }
}
