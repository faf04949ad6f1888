//! Writes the parts of the pandas expression that reads a file as its profile says. `quoted` writes a Python literal.

use pybench_types::read_options::ReadOptions;

/// Writes the Python literal of a text.
type Quote = fn(&str) -> String;

/// The options of `pd.read_csv` after the path, each with a comma before it.
pub fn csv_options(
    delimiter: Option<char>,
    encoding: Option<&str>,
    read: &ReadOptions,
    quoted: Quote,
) -> String {
    let mut options = String::new();
    if let Some(delimiter) = delimiter.filter(|delimiter| *delimiter != ',') {
        options += &format!(", sep={}", quoted(&delimiter.to_string()));
    }
    if let Some(encoding) = encoding.filter(|e| !matches!(*e, "utf-8" | "ascii" | "utf8")) {
        options += &format!(", encoding={}", quoted(encoding));
    }
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
    if !read.dates.is_empty() {
        // Otherwise points between thousands are removed from dates, too.
        let types = read
            .dates
            .keys()
            .map(|name| format!("{}: str", quoted(name)));
        options += &format!(", dtype={{{}}}", types.collect::<Vec<_>>().join(", "));
    }
    options
}

/// The options of `pd.read_excel` after the path. `sheet` is the name of the worksheet if there are several.
pub fn excel_options(sheet: Option<&str>, read: &ReadOptions, quoted: Quote) -> String {
    let mut options = String::new();
    if let Some(sheet) = sheet {
        options += &format!(", sheet_name={}", quoted(sheet));
    }
    let header = if read.names.is_empty() { 0 } else { 2 };
    if header > 0 {
        let names: Vec<String> = read.names.iter().map(|name| quoted(name)).collect();
        options += &format!(", header=None, names=[{}]", names.join(", "));
    }
    if read.skip_rows + header > 0 {
        options += &format!(", skiprows={}", read.skip_rows + header);
    }
    options
}

/// What turns the columns that were read into those of the profile; empty if nothing has to be done.
pub fn conversions(read: &ReadOptions, quoted: Quote) -> String {
    let dates = read.dates.iter().map(|(name, format)| {
        let name = quoted(name);
        format!(
            "{name}: lambda t: pd.to_datetime(t[{name}], format='{format}').dt.strftime('%Y-%m-%d')"
        )
    });
    let filled = read.filled.iter().map(|name| {
        let name = quoted(name);
        format!("{name}: lambda t: t[{name}].ffill()")
    });
    let all: Vec<String> = dates.chain(filled).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(".assign(**{{{}}})", all.join(", ")),
    }
}
