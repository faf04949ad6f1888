//! A grid of cells as delimited text and as a workbook.

use std::fmt::Write as _;

use crate::office_file::{RELATIONS, XML, content_types, escaped, relation, zipped};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Empty,
    Number(String),
    Boolean(bool),
    Text(String),
}

/// Merged cells, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    rows: (usize, usize),
    columns: (usize, usize),
}

impl Area {
    /// Some cells of one row.
    pub(super) fn across(row: usize, first: usize, count: usize) -> Self {
        Self {
            rows: (row, row),
            columns: (first, first + count - 1),
        }
    }
}

pub(super) struct Sheet {
    pub rows: Vec<Vec<Cell>>,
    pub merged: Vec<Area>,
    /// Between the fields of delimited text.
    pub delimiter: char,
}

impl Sheet {
    /// Merges the equal values of a column that follow each other, from a row on.
    pub(super) fn merge_equal(&mut self, top: usize, column: usize) {
        let mut first = top;
        for row in top..=self.rows.len() {
            let value = |row: usize| {
                self.rows
                    .get(row)
                    .and_then(|cells| cells.get(column))
                    .cloned()
            };
            if row < self.rows.len() && value(row) == value(first) {
                continue;
            }
            if row - first > 1 {
                self.merged.push(Area {
                    rows: (first, row - 1),
                    columns: (column, column),
                });
                for cells in &mut self.rows[first + 1..row] {
                    cells[column] = Cell::Empty;
                }
            }
            first = row;
        }
    }

    pub(super) fn csv(&self) -> String {
        let field = |cell: &Cell| match cell {
            Cell::Empty => String::new(),
            Cell::Boolean(true) => "True".to_owned(),
            Cell::Boolean(false) => "False".to_owned(),
            Cell::Number(text) | Cell::Text(text) => {
                let special =
                    text.contains([self.delimiter, '"', '\n', '\r']) || text.trim() != text;
                match special || text.is_empty() {
                    true => format!("\"{}\"", text.replace('"', "\"\"")),
                    false => text.clone(),
                }
            }
        };
        let lines = self.rows.iter().map(|row| {
            let fields: Vec<String> = row.iter().map(field).collect();
            fields.join(&self.delimiter.to_string()) + "\n"
        });
        lines.collect()
    }

    /// A workbook with one worksheet.
    pub(super) fn xlsx(&self) -> Option<Vec<u8>> {
        const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
        const TYPE: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml";
        let types = [
            ("/xl/workbook.xml", "sheet.main"),
            ("/xl/worksheets/sheet1.xml", "worksheet"),
        ];
        let workbook = format!(
            "{XML}<workbook xmlns=\"{MAIN}\" xmlns:r=\"{RELATIONS}\"><sheets>\
             <sheet name=\"Sheet1\" sheetId=\"1\" r:id=\"rId1\"/></sheets></workbook>"
        );
        let rows = self.rows_xml();
        let merged = self.merged_xml();
        zipped(&[
            ("[Content_Types].xml", content_types(TYPE, types)),
            ("_rels/.rels", relation("officeDocument", "xl/workbook.xml")),
            ("xl/workbook.xml", workbook),
            (
                "xl/_rels/workbook.xml.rels",
                relation("worksheet", "worksheets/sheet1.xml"),
            ),
            (
                "xl/worksheets/sheet1.xml",
                format!(
                    "{XML}<worksheet xmlns=\"{MAIN}\"><sheetData>{rows}</sheetData>{merged}</worksheet>"
                ),
            ),
        ])
    }

    fn rows_xml(&self) -> String {
        let mut xml = String::new();
        // Writing to a String cannot fail.
        for (row, cells) in self.rows.iter().enumerate() {
            let _ = write!(xml, "<row r=\"{}\">", row + 1);
            for (column, cell) in cells.iter().enumerate() {
                let at = reference(row, column);
                let _ = match cell {
                    Cell::Empty => Ok(()),
                    Cell::Number(number) => write!(xml, "<c r=\"{at}\"><v>{number}</v></c>"),
                    Cell::Boolean(truth) => {
                        write!(xml, "<c r=\"{at}\" t=\"b\"><v>{}</v></c>", u8::from(*truth))
                    }
                    Cell::Text(text) => write!(
                        xml,
                        "<c r=\"{at}\" t=\"inlineStr\"><is><t xml:space=\"preserve\">{}</t></is></c>",
                        escaped(text)
                    ),
                };
            }
            xml.push_str("</row>");
        }
        xml
    }

    fn merged_xml(&self) -> String {
        if self.merged.is_empty() {
            return String::new();
        }
        let areas = self.merged.iter().map(|area| {
            let first = reference(area.rows.0, area.columns.0);
            let last = reference(area.rows.1, area.columns.1);
            format!("<mergeCell ref=\"{first}:{last}\"/>")
        });
        let areas: String = areas.collect();
        format!(
            "<mergeCells count=\"{}\">{areas}</mergeCells>",
            self.merged.len()
        )
    }
}

/// A cell as `AB12`.
fn reference(row: usize, column: usize) -> String {
    let mut letters = String::new();
    let mut rest = column + 1;
    while rest > 0 {
        let digit = (rest - 1) % 26;
        letters.insert(0, char::from(b'A' + digit as u8));
        rest = (rest - 1) / 26;
    }
    format!("{letters}{}", row + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_named_as_in_a_workbook() {
        let names = [(0, 0), (9, 25), (1, 26), (0, 701), (0, 702)]
            .map(|(row, column)| reference(row, column));
        assert_eq!(names, ["A1", "Z10", "AA2", "ZZ1", "AAA1"]);
    }

    #[test]
    fn equal_values_below_each_other_are_merged() {
        let text = |text: &str| vec![Cell::Text(text.to_owned())];
        let mut sheet = Sheet {
            rows: ["head", "a", "a", "b", "c", "c", "c"].map(text).into(),
            merged: Vec::new(),
            delimiter: ',',
        };
        sheet.merge_equal(1, 0);
        let rows: Vec<_> = sheet.merged.iter().map(|area| area.rows).collect();
        assert_eq!(rows, [(1, 2), (4, 6)]);
        assert_eq!(sheet.rows[2], [Cell::Empty]);
    }
}
