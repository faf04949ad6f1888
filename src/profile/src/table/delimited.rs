//! Reads csv and tsv with the tokenization of pandas' C parser.

use super::two_rows::TwoRows;
use super::{Cell, MAX_COLUMNS, RawTable, is_missing, notation};
use pybench_files::text;

/// Reads delimited text with the separator that gives the widest table without ragged rows.
pub(super) fn read(bytes: &[u8], separators: &[char]) -> Result<RawTable, String> {
    let decoded = text::decode(bytes)?;
    let text = decoded.text.as_ref();
    let separator = detect_separator(text, separators);
    let mut records = Records::new(text, separator);
    let mut record = Vec::new();
    if !records.next_into(&mut record)? {
        return Err("no header".into());
    }
    let (mut table, two_rows) = match header(&record) {
        Ok(table) => (table, None),
        Err(reason) => {
            let (table, joined) =
                second_header(&record, &mut records).ok_or_else(|| reason.clone())?;
            (table, Some((joined, reason)))
        }
    };
    while records.next_into(&mut record)? {
        if record.len() != table.names.len() {
            return Err(format!(
                "line {} has {} fields where the header has {}",
                records.line,
                record.len(),
                table.names.len()
            ));
        }
        table.push(record.drain(..).map(cell))?;
    }
    check_second_header(&table)?;
    table.delimiter = Some(separator);
    table.encoding = Some(decoded.encoding.to_owned());
    table.untyped = true;
    table.read = notation::recognize(&table)?;
    if let Some((joined, reason)) = two_rows {
        if !joined.is_proven(&table) {
            return Err(reason);
        }
        table.read.names = joined.names;
        table.read.joined_header = joined.is_regular;
    }
    Ok(table)
}

/// The table below a header of two rows, which are the first two lines: pandas counts lines where it skips the header.
fn second_header(upper: &[String], records: &mut Records<'_>) -> Option<(RawTable, TwoRows)> {
    let mut lower = Vec::new();
    let lines = (
        records.line,
        records.next_into(&mut lower).ok()?,
        records.line,
    );
    let joined =
        TwoRows::join(upper, &lower).filter(|_| lines == (1, true, 2) && records.next_line == 3)?;
    Some((RawTable::new(joined.names.clone()).ok()?, joined))
}

fn cell(field: String) -> Cell {
    if is_missing(&field) {
        Cell::Null
    } else {
        Cell::Text(field.into())
    }
}

fn header(fields: &[String]) -> Result<RawTable, String> {
    if fields.first().is_some_and(|f| f.starts_with(['#', '%'])) {
        return Err("begins with a comment".into());
    }
    let value = |f: &String| is_missing(f) || f.trim().parse::<f64>().is_ok();
    if let Some(field) = fields.iter().find(|f| !f.is_empty() && value(f)) {
        return Err(format!(
            "no header: the first line holds the value `{field}`"
        ));
    }
    RawTable::new(fields.to_vec())
}

/// Rejects a table with a second header line (for example units): a first row of words above columns of
/// numbers.
fn check_second_header(table: &RawTable) -> Result<(), String> {
    let width = table.names.len();
    let number = |cell: &Cell| match cell {
        Cell::Text(text) => text.trim().parse::<f64>().is_ok(),
        Cell::Null => true,
        _ => false,
    };
    let below = |column: usize| table.cells.iter().skip(column).step_by(width).skip(1);
    let suspicious = |column: usize| {
        let first = table.cells.get(column).is_some_and(|cell| !number(cell));
        first
            && below(column).filter(|c| **c != Cell::Null).count() >= 5
            && below(column).all(number)
    };
    match (0..width).find(|&column| suspicious(column)) {
        Some(column) => Err(format!(
            "the header seems to have a second line: `{}` is numeric but for its first row",
            table.names[column]
        )),
        None => Ok(()),
    }
}

/// The separator that splits the first records into the most fields, the same number in each record.
fn detect_separator(text: &str, separators: &[char]) -> char {
    let width = |separator: char| {
        let mut records = Records::new(text, separator);
        let (mut record, mut width) = (Vec::new(), 0);
        for _ in 0..50 {
            match records.next_into(&mut record) {
                Ok(true) if width == 0 || width == record.len() => width = record.len(),
                Ok(false) => break,
                _ => return 0,
            }
        }
        width
    };
    let mut best = (separators[0], width(separators[0]).max(1));
    for &separator in &separators[1..] {
        let width = width(separator);
        if width > best.1 {
            best = (separator, width);
        }
    }
    best.0
}

/// Records of delimited text.
struct Records<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    separator: char,
    line: usize,
    next_line: usize,
}

impl<'a> Records<'a> {
    fn new(text: &'a str, separator: char) -> Self {
        Self {
            chars: text.chars().peekable(),
            separator,
            line: 1,
            next_line: 1,
        }
    }

    /// Reads the next record that is not blank; returns `false` at the end. [`Records::line`] is the line where
    /// the record began.
    fn next_into(&mut self, record: &mut Vec<String>) -> Result<bool, String> {
        loop {
            record.clear();
            self.line = self.next_line;
            if self.chars.peek().is_none() {
                return Ok(false);
            }
            let quoted = self.record(record)?;
            // Like pandas, skip lines that contain only white space, but not a quoted empty field.
            let blank =
                record.len() == 1 && !quoted && record[0].trim_matches([' ', '\t']).is_empty();
            if !blank {
                return Ok(true);
            }
        }
    }

    /// Reads one record and returns whether any field was quoted.
    fn record(&mut self, record: &mut Vec<String>) -> Result<bool, String> {
        let (mut field, mut in_quotes, mut fresh, mut quoted) = (String::new(), false, true, false);
        while let Some(c) = self.chars.next() {
            if in_quotes {
                match c {
                    '"' if self.chars.peek() == Some(&'"') => {
                        self.chars.next();
                        field.push('"');
                    }
                    '"' => in_quotes = false,
                    c => {
                        self.next_line += usize::from(c == '\n');
                        field.push(c);
                    }
                }
                continue;
            }
            match c {
                '"' if fresh => (in_quotes, quoted) = (true, true),
                c if c == self.separator => {
                    record.push(std::mem::take(&mut field));
                    if record.len() > MAX_COLUMNS {
                        return Err(format!(
                            "line {} has more than {MAX_COLUMNS} fields",
                            self.line
                        ));
                    }
                    fresh = true;
                    continue;
                }
                '\n' | '\r' => {
                    if c == '\r' && self.chars.peek() == Some(&'\n') {
                        self.chars.next();
                    }
                    self.next_line += 1;
                    record.push(field);
                    return Ok(quoted);
                }
                c => field.push(c),
            }
            fresh = false;
        }
        if in_quotes {
            return Err(format!(
                "a quote opened in line {} is never closed",
                self.line
            ));
        }
        record.push(field);
        Ok(quoted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &str) -> Result<(Vec<String>, Vec<Cell>), String> {
        read(text.as_bytes(), &[',', ';', '\t', '|']).map(|t| (t.names, t.cells))
    }

    #[test]
    fn quotes_blank_lines_and_line_ends_are_read_like_pandas() {
        let (names, cells) = rows("a,\"b c\"\r\n\r\n\"x\"\"y\n z\",NA\r   \n1,\n").unwrap();
        assert_eq!(names, ["a", "b c"]);
        let text = |s: &str| Cell::Text(s.into());
        assert_eq!(cells, [text("x\"y\n z"), Cell::Null, text("1"), Cell::Null]);
    }

    #[test]
    fn tables_that_pandas_does_not_read_cleanly_are_rejected() {
        for (text, reason) in [
            ("a,b\n1,2\n1,2,3\n", "line 3 has 3 fields"),
            ("a,b\n1\n", "line 2 has 1 fields"),
            ("# c\na,b\n", "comment"),
            ("1.5,2\n3,4\n", "no header"),
            ("a,a\n1,2\n", "two columns"),
            ("a,\n1,2\n", "no name"),
            ("a,b\n1,\"2\n", "never closed"),
            ("t,v\nday,kg\n1,2\n2,3\n3,4\n4,5\n5,6\n6,7\n", "second line"),
        ] {
            let error = rows(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_header_of_two_rows_is_read_where_numbers_prove_it() {
        let text = "Region,Sales,,Share\n,2023,2024,of all\nN,1,2,0.5\nS,3,4,0.5\n";
        let table = read(text.as_bytes(), &[',']).unwrap();
        let names = ["Region", "Sales 2023", "Sales 2024", "Share of all"];
        assert_eq!(
            (&*table.names, table.rows()),
            (&names.map(str::to_owned)[..], 2)
        );
        assert_eq!(table.read.names, names);
        assert!(table.read.joined_header);
        let years = "Region;2023;;2024;\n;Q1;Q2;Q1;Q2\nN;1,5;2;3;4\nS;5;6,25;7;8\n";
        let table = read(years.as_bytes(), &[';']).unwrap();
        assert_eq!(table.names[2..4], ["2023 Q2", "2024 Q1"]);
        assert_eq!(table.read.decimal_comma, ["2023 Q1", "2023 Q2"]);
        for text in [
            // Rows of values below a header without a name.
            "name,city,\nAnna,Paris,x\nBob,Rome,y\n",
            "name,sales,\nA,2020,2021\nB,2019,2022\n",
            "id,a,\n1,2,3\n4,5,6\n",
            // Lines that pandas would count.
            "Region,Sales,\n\n,Q1,Q2\nN,1,2\nS,3,4\n",
            "Region,Sales,\n,Q1,\nN,1,2\nS,3,4\n",
        ] {
            let error = rows(text).unwrap_err();
            assert!(error.contains("no name"), "{text:?}: {error}");
        }
    }

    #[test]
    fn separators_are_detected() {
        for (text, separator) in [
            ("a;b\n1,5;2,5\n", ';'),
            ("a\tb\n1\t2\n", '\t'),
            ("a|b\n1|2\n", '|'),
            ("a\n1\n", ','),
        ] {
            let table = read(text.as_bytes(), &[',', ';', '\t', '|']).unwrap();
            assert_eq!(table.delimiter, Some(separator), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn quoted_fields_are_read_back(
            rows_in in prop::collection::vec(prop::collection::vec("[a-z,\"\n ]{1,8}x", 3), 1..10)
        ) {
            let quote = |f: &String| format!("\"{}\"", f.replace('"', "\"\""));
            let line = |r: &Vec<String>| r.iter().map(quote).collect::<Vec<_>>().join(",") + "\n";
            let text = "k,l,m\n".to_owned() + &rows_in.iter().map(line).collect::<String>();
            let (_, cells) = rows(&text).unwrap();
            let expected: Vec<Cell> = rows_in.concat().into_iter().map(|f| Cell::Text(f.into())).collect();
            prop_assert_eq!(cells, expected);
        }

        #[test]
        fn any_text_is_read_or_rejected(text in "[a-z0-9,;\"\n\r\t ]{0,200}") {
            let _ = rows(&text);
        }
    }
}
