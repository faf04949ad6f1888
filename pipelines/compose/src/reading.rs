//! Writes the pandas expression that reads a table as its profile says. `quoted` writes a Python literal.

use pybench_types::read_options::{NumberNotation, ReadOptions};
use pybench_types::task::FileKind;

/// Writes the Python literal of a text.
type Quote = fn(&str) -> String;

/// A file with a table.
pub struct TableFile<'a> {
    /// A Python expression of its path.
    pub path: &'a str,
    /// Csv, tsv, xlsx, json or jsonl; others are read as Parquet.
    pub kind: FileKind,
    pub encoding: Option<&'a str>,
    pub delimiter: Option<char>,
    /// The worksheet, where it has to be named.
    pub sheet: Option<&'a str>,
    pub read: &'a ReadOptions,
}

/// The expression that reads a table.
pub fn expression(file: &TableFile<'_>, quoted: Quote) -> String {
    let path = file.path;
    let expression = match file.kind {
        FileKind::Csv | FileKind::Tsv => {
            format!("pd.read_csv({path}{})", csv_options(file, quoted))
        }
        FileKind::Xlsx => format!("pd.read_excel({path}{})", excel_options(file, quoted)),
        // Without `dtype=False`, pandas converts numeric text to numbers and guesses dates by column name.
        FileKind::Json => format!("pd.read_json({path}, dtype=False)"),
        FileKind::Jsonl => format!("pd.read_json({path}, lines=True, dtype=False)"),
        _ => format!("pd.read_parquet({path})"),
    };
    expression + &conversions(file.read, quoted)
}

/// Whether pandas assumes this encoding of a text.
pub(crate) fn is_usual(encoding: &str) -> bool {
    matches!(encoding, "utf-8" | "ascii" | "utf8")
}

/// The options of `pd.read_csv` after the path, each with a comma before it.
fn csv_options(file: &TableFile<'_>, quoted: Quote) -> String {
    let (read, source) = (file.read, csv_source(file, quoted));
    let mut options = source.clone();
    if !read.decimal_comma.is_empty() {
        options += ", decimal=','";
    }
    if let Some(thousands) = read.thousands {
        // The default parser knows single bytes only.
        options += &match thousands.is_ascii() {
            true => format!(", thousands='{thousands}'"),
            false => format!(
                ", thousands='\\u{:04x}', engine='python'",
                u32::from(thousands)
            ),
        };
    }
    // Otherwise points between thousands are removed from dates, too.
    options += &text_columns(read, quoted);
    options + &header_options(file, "pd.read_csv", &source, quoted)
}

/// The options that say how a text is divided into fields.
fn csv_source(file: &TableFile<'_>, quoted: Quote) -> String {
    let mut options = String::new();
    if let Some(delimiter) = file.delimiter.filter(|delimiter| *delimiter != ',') {
        options += &format!(", sep={}", quoted(&delimiter.to_string()));
    }
    if let Some(encoding) = file.encoding.filter(|encoding| !is_usual(encoding)) {
        options += &format!(", encoding={}", quoted(encoding));
    }
    options
}

/// Columns that are converted from text, as an option.
fn text_columns(read: &ReadOptions, quoted: Quote) -> String {
    let names = read.dates.keys().chain(read.numbers.keys());
    let names = names.chain(&read.mixed_dates);
    let types: Vec<String> = names.map(|name| format!("{}: str", quoted(name))).collect();
    match types.is_empty() {
        true => String::new(),
        false => format!(", dtype={{{}}}", types.join(", ")),
    }
}

/// The options that say where the header is, and what its two rows are together. `reader` is the function that reads the
/// file, and `source` the options that it needs to find the cells.
fn header_options(file: &TableFile<'_>, reader: &str, source: &str, quoted: Quote) -> String {
    let read = file.read;
    if read.names.is_empty() {
        return skip_option(read.skip_rows);
    }
    let names = match read.joined_header {
        true => format!(
            "{reader}({}{source}, header=None{}, nrows=2, dtype=str).T\
             .pipe(lambda t: (t[0].ffill() + ' ' + t[1].fillna('')).str.strip().tolist())",
            file.path,
            skip_option(read.skip_rows)
        ),
        false => {
            let names: Vec<String> = read.names.iter().map(|name| quoted(name)).collect();
            format!("[{}]", names.join(", "))
        }
    };
    let skipped = skip_option(read.skip_rows + 2);
    format!(", header=None, names={names}{skipped}")
}

/// The option that leaves out so many rows at the top.
fn skip_option(rows: u32) -> String {
    match rows {
        0 => String::new(),
        rows => format!(", skiprows={rows}"),
    }
}

/// The options of `pd.read_excel` after the path.
fn excel_options(file: &TableFile<'_>, quoted: Quote) -> String {
    let source = match file.sheet {
        Some(sheet) => format!(", sheet_name={}", quoted(sheet)),
        None => String::new(),
    };
    let header = header_options(file, "pd.read_excel", &source, quoted);
    format!("{source}{}{header}", text_columns(file.read, quoted))
}

/// What turns the columns that were read into those of the profile; empty if nothing has to be done.
fn conversions(read: &ReadOptions, quoted: Quote) -> String {
    let dates = read.dates.iter().map(|(name, format)| {
        let name = quoted(name);
        format!(
            "{name}: lambda t: pd.to_datetime(t[{name}], format='{format}').dt.strftime('%Y-%m-%d')"
        )
    });
    let mixed = read.mixed_dates.iter().map(|name| {
        let name = quoted(name);
        let iso = format!("pd.to_datetime(t[{name}], format='%Y-%m-%d', errors='coerce')");
        let others = second_form(&name);
        format!("{name}: lambda t: {iso}{others}.dt.strftime('%Y-%m-%d')")
    });
    let numbers = read.numbers.iter().map(|(name, notation)| {
        let name = quoted(name);
        format!("{name}: lambda t: {}", number(&name, notation, quoted))
    });
    let filled = read.filled.iter().map(|name| {
        let name = quoted(name);
        format!("{name}: lambda t: t[{name}].ffill()")
    });
    let all = dates.chain(mixed).chain(numbers).chain(filled);
    let all: Vec<String> = all.collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(".assign(**{{{}}})", all.join(", ")),
    }
}

/// What adds the days of a column that are written day first to those in ISO 8601. `name` is a Python literal.
pub(crate) fn second_form(name: &str) -> String {
    format!(".fillna(pd.to_datetime(t[{name}], format='%d.%m.%Y', errors='coerce'))")
}

/// The numbers of a column of texts.
fn number(name: &str, notation: &NumberNotation, quoted: Quote) -> String {
    let ignored = notation.ignored.chars().map(String::from);
    let removed = notation.currency.clone().into_iter().chain(ignored);
    let mut text = format!("t[{name}]");
    for sign in removed {
        text += &format!(".str.replace({}, '', regex=False)", quoted(&sign));
    }
    if notation.decimal_comma {
        text += ".str.replace(',', '.', regex=False)";
    }
    format!("pd.to_numeric({text})")
}
