//! Reads delimited text leniently for comparing contents: also accepts tables that no task could use.

use pybench_datasets::decontaminate::Table;

const MAX_COLUMNS: usize = 10_000;
const MAX_ROWS: usize = 1_000_000;

/// Reads header and rows; returns `None` for fewer than two columns or no row.
pub(super) fn read(bytes: &[u8], separators: &[char]) -> Option<Table> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next()?;
    let count = |separator: &&char| first.matches(**separator).count();
    let separator = *separators.iter().max_by_key(count)?;
    let header = fields(first, separator);
    if header.len() < 2 || header.len() > MAX_COLUMNS {
        return None;
    }
    let rows: Vec<Vec<Option<String>>> = lines
        .take(MAX_ROWS)
        .map(|line| fields(line, separator).into_iter().map(Some).collect())
        .collect();
    (!rows.is_empty()).then(|| Table::new(&header, rows))
}

/// The fields of a line. Removes quotes around a field and unescapes doubled quotes within it.
fn fields(line: &str, separator: char) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                field.push('"');
                chars.next();
            }
            '"' => quoted = !quoted,
            c if c == separator && !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_no_task_could_use_can_be_compared() {
        let stray = read(b" name ,a\n\"x, y\",1\n", &[',', ';']).unwrap();
        let plain = read(b"\xef\xbb\xbfname;a\nx, y;1.0\n", &[',', ';']).unwrap();
        assert_eq!(stray, plain);
        assert!(read(b"one column\n1\n", &[',']).is_none());
        assert!(read(b"a,b\n", &[',']).is_none());
        assert_eq!(fields("\"a \"\"b\"\"\",c,", ','), ["a \"b\"", "c", ""]);
    }
}
