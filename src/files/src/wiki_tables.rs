//! The files of WikiTableQuestions: CSV in which a backslash escapes quotes and backslashes, and lists in tab-separated
//! files. The evaluation reads its test split, the query stage its training split.

/// The repository.
pub const REPOSITORY: &str = "https://github.com/ppasupat/WikiTableQuestions.git";
/// The commit that both read.
pub const COMMIT: &str = "7d455a5a707b96341ef72aff9428749d443d8aa9";

/// The cells of a table by row.
///
/// # Errors
/// A field is not quoted as upstream documents.
pub fn parse(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    let mut chars = text.chars().peekable();
    while chars.peek().is_some() {
        let place = || format!("row {}, column {}", rows.len() + 1, row.len() + 1);
        if chars.next() != Some('"') {
            return Err(format!("{}: the field is not quoted", place()));
        }
        let mut cell = String::new();
        loop {
            match chars.next() {
                Some('"') => break,
                Some('\\') => cell.extend(chars.next()),
                Some(c) => cell.push(c),
                None => return Err(format!("{}: the quote is not closed", place())),
            }
        }
        row.push(cell);
        match chars.next() {
            Some(',') => {}
            Some('\n') | None => rows.push(std::mem::take(&mut row)),
            Some(other) => {
                let row = rows.len() + 1;
                return Err(format!("row {row}: unexpected `{other}` after a quote"));
            }
        }
    }
    Ok(rows)
}

/// The table as CSV readers expect it: quotes are doubled, and backslashes mean nothing.
pub fn write(rows: &[Vec<String>]) -> String {
    let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
    let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
    rows.iter().map(line).collect()
}

/// A list in a tab-separated file.
pub fn list(text: &str) -> Vec<String> {
    text.split('|').map(unescape).collect()
}

/// A text in a tab-separated file.
pub fn unescape(text: &str) -> String {
    text.replace("\\n", "\n")
        .replace("\\p", "|")
        .replace("\\\\", "\\")
}

/// The place of each of these columns in the first line of a tab-separated file.
///
/// # Errors
/// One is missing.
pub fn columns<const N: usize>(header: &str, names: [&str; N]) -> Result<[usize; N], String> {
    let header: Vec<&str> = header.split('\t').collect();
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        let at = header.iter().position(|column| *column == name);
        *place = at.ok_or_else(|| format!("the column `{name}` is missing"))?;
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_rewritten() {
        let text = "\"a\",\"b\"\n\"x \\\"y\\\"\",\"1\n2\"\n\"back\\\\slash\",\"\"\n";
        let rows = parse(text).unwrap();
        assert_eq!(rows[1], ["x \"y\"", "1\n2"]);
        assert_eq!(rows[2], ["back\\slash", ""]);
        let written = write(&rows);
        assert_eq!(
            written,
            "\"a\",\"b\"\n\"x \"\"y\"\"\",\"1\n2\"\n\"back\\slash\",\"\"\n"
        );
    }

    #[test]
    fn invalid_tables_are_reported() {
        for (text, problem) in [
            ("a,b\n", "row 1, column 1: the field is not quoted"),
            ("\"a\",\"b", "row 1, column 2: the quote is not closed"),
            ("\"a\"\n\"b\"c\n", "row 2: unexpected `c` after a quote"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem);
        }
    }

    #[test]
    fn fuzz_tables() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = parse(&String::from_utf8_lossy(bytes));
        });
    }
}
