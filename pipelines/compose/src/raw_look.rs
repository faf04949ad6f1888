//! The expert's look at a file as it is written, before it is read as a table: nobody knows separator, encoding, header and
//! notation of a file that was not seen.

use std::collections::BTreeSet;

use pybench_types::read_options::ReadOptions;
use pybench_types::task::{FileKind, Language, TaskFile};

use crate::argument::python_string;
use crate::inputs;
use crate::reading;

/// Lines or rows of each file that are shown: the same number for all, since the row of the header is not known before.
pub(crate) const ROWS: usize = 8;

/// Bytes of each file that a brief look shows.
const BYTES: usize = 200;

/// What is searched in the whole file, since its beginning may lack it, as patterns of Python and of Rust: words from a
/// character beyond ASCII or a byte that is no UTF-8 on, numbers with a sign between thousands, and dates whose day cannot
/// be a month.
pub(crate) const SIGNS: [&str; 3] = [
    r"(?:[^\x00-\x7f]|\\x)\w*",
    r"\d[.,' \xa0\u202f]\d{3}[.,]\d+",
    r"\b(?:1[3-9]|2\d|3[01])[./-]\d\d?[./-]\d+",
];

/// Whether a file is not read with the defaults, apart from what its extension says.
pub(crate) fn is_needed(file: &TaskFile) -> bool {
    let Some(format) = &file.format else {
        return false;
    };
    let usual = if file.kind == FileKind::Tsv {
        '\t'
    } else {
        ','
    };
    let other_separator = format.delimiter.is_some_and(|sign| sign != usual);
    let other_encoding = format
        .encoding
        .as_deref()
        .is_some_and(|name| !reading::is_usual(name));
    is_text(file.kind) && (other_separator || other_encoding) || !format.read.is_default()
}

/// Whether files of a type are written in many ways, so that a look is worthwhile even if this one is a plain one.
pub(crate) fn is_worthwhile(file: &TaskFile) -> bool {
    matches!(file.kind, FileKind::Csv | FileKind::Xlsx)
}

/// Whether the separator and the encoding of files of a type are up to who writes them.
fn is_text(kind: FileKind) -> bool {
    matches!(kind, FileKind::Csv | FileKind::Tsv)
}

/// Whether the first line of a text file says how it is read.
fn is_plain(file: &TaskFile) -> bool {
    let format = file.format.as_ref();
    is_text(file.kind)
        && format.is_none_or(|format| {
            let encoding = format.encoding.as_deref();
            format.read.is_default() && encoding.is_none_or(reading::is_usual)
        })
}

/// The cell that shows the first bytes of files, if they are all that one needs to see of them.
pub(crate) fn brief_cell(files: &[&TaskFile]) -> Option<String> {
    let is_enough = !files.is_empty() && files.iter().all(|file| is_plain(file));
    let shown = |file: &&TaskFile| {
        let path = python_string(&inputs::path(file));
        format!("print(open({path}, \"rb\").read({BYTES}))")
    };
    is_enough.then(|| files.iter().map(shown).collect::<Vec<_>>().join("\n"))
}

/// The cell that shows how files are written; `None` if there are none.
pub(crate) fn cell(files: &[&TaskFile]) -> Option<String> {
    let (books, texts): (Vec<&TaskFile>, Vec<&TaskFile>) = files
        .iter()
        .copied()
        .partition(|file| file.kind == FileKind::Xlsx);
    let imports = match books.is_empty() {
        true => "import re",
        false => "import re\nimport openpyxl",
    };
    let parts = [
        part(&texts, "open(path, \"rb\").read()", text_lines),
        part(
            &books,
            "openpyxl.load_workbook(path, data_only=True)",
            book_lines,
        ),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{imports}\n\n{}", parts.join("\n\n")))
}

/// The statements for files of one sort, of which `open` opens one and `lines` shows it.
fn part(files: &[&TaskFile], open: &str, lines: fn() -> Vec<String>) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let paths: Vec<String> = files
        .iter()
        .map(|file| python_string(&inputs::path(file)))
        .collect();
    if let [path] = paths.as_slice() {
        let open = format!("raw = {}", open.replace("path", path));
        return Some([vec![open], lines()].concat().join("\n"));
    }
    let shown = format!("raw = {open}\nprint(path)\n{}", lines().join("\n"));
    let looped: Vec<String> = shown.lines().map(|line| format!("    {line}")).collect();
    Some(format!(
        "for path in [{}]:\n{}",
        paths.join(", "),
        looped.join("\n")
    ))
}

/// Shows the first lines of a text, with bytes that are no UTF-8 as `\xfc`.
fn text_lines() -> Vec<String> {
    vec![
        r#"encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8""#.to_owned(),
        r#"text = raw.decode(encoding, "backslashreplace")"#.to_owned(),
        r#"print(encoding, len(text), "characters")"#.to_owned(),
        format!("for line in text.splitlines()[:{ROWS}]:"),
        "    print(repr(line[:600]))".to_owned(),
        signs(&SIGNS, ""),
    ]
}

/// Shows the first rows of each sheet of a workbook, with some of its merged cells.
fn book_lines() -> Vec<String> {
    vec![
        "for sheet in raw:".to_owned(),
        "    merged = sorted(str(cells) for cells in sheet.merged_cells.ranges)".to_owned(),
        "    print(sheet.title, sheet.dimensions, \"merged:\", merged[:4])".to_owned(),
        "    rows = list(sheet.iter_rows(values_only=True))".to_owned(),
        format!("    for row in rows[:{ROWS}]:"),
        "        print(row)".to_owned(),
        "    text = str(rows)".to_owned(),
        signs(&SIGNS[1..], "    "),
    ]
}

/// Shows what a text has of each sign.
fn signs(signs: &[&str], indent: &str) -> String {
    let literals: Vec<String> = signs.iter().map(|sign| format!("r\"{sign}\"")).collect();
    format!(
        "{indent}for sign in [{}]:\n{indent}    print(re.findall(sign, text)[:3])",
        literals.join(", ")
    )
}

/// What the expert thinks before it looks at files.
pub(crate) fn purpose(files: &[&TaskFile], language: Language) -> String {
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let is_text = files.iter().any(|file| file.kind != FileKind::Xlsx);
    match (language, is_text) {
        (Language::En, true) => format!(
            "First I look at the raw beginning of {}: separator, encoding, header, and how numbers and days are written.",
            names.join(" and ")
        ),
        (Language::En, false) => format!(
            "First I look at the raw cells of {}: sheets, header, merged cells, and how numbers and days are written.",
            names.join(" and ")
        ),
        (Language::Zh, true) => format!(
            "先看看 {} 的原始开头：分隔符、编码、表头，以及数字和日期的写法。",
            names.join("、")
        ),
        (Language::Zh, false) => format!(
            "先看看 {} 的原始单元格：工作表、表头、合并单元格，以及数字和日期的写法。",
            names.join("、")
        ),
    }
}

/// What the expert has seen of files, and does about it.
pub(crate) fn findings(files: &[&TaskFile], language: Language) -> String {
    let said = files.iter().filter_map(|file| {
        let facts = facts(file).into_iter().map(|(en, zh)| match language {
            Language::En => en,
            Language::Zh => zh,
        });
        let facts: Vec<String> = facts.collect();
        (!facts.is_empty()).then(|| match language {
            Language::En => format!("In {}, {}.", file.name, facts.join(", ")),
            Language::Zh => format!("{} 中{}。", file.name, facts.join("，")),
        })
    });
    let said: Vec<String> = said.collect();
    match (language, said.is_empty()) {
        (Language::En, true) => {
            "I see one row of names and the data below it, so the defaults read it.".to_owned()
        }
        (Language::En, false) => format!("{} I read it accordingly.", said.join(" ")),
        (Language::Zh, true) => "只有一行列名，下面就是数据，用默认参数读取即可。".to_owned(),
        (Language::Zh, false) => format!("{}按此读取。", said.join("")),
    }
}

/// How files differ from plain ones, in a few words; `None` if they do not.
pub(crate) fn brief_findings(files: &[&TaskFile], language: Language) -> Option<String> {
    let facts = files.iter().flat_map(|file| facts(file));
    let facts: Vec<String> = match language {
        Language::En => facts.map(|(en, _)| en).collect(),
        Language::Zh => facts.map(|(_, zh)| zh).collect(),
    };
    (!facts.is_empty()).then(|| match language {
        Language::En => format!("I see that {}.", facts.join(", ")),
        Language::Zh => format!("{}。", facts.join("，")),
    })
}

/// How a file differs from a plain one, in English and Chinese.
fn facts(file: &TaskFile) -> Vec<(String, String)> {
    let Some(format) = &file.format else {
        return Vec::new();
    };
    let mut facts = Vec::new();
    if let Some(sign) = format.delimiter.filter(|sign| *sign != ',') {
        facts.push(match sign {
            '\t' => ("tabs separate the fields".into(), "字段以制表符分隔".into()),
            sign => (
                format!("`{sign}` separates the fields"),
                format!("字段以“{sign}”分隔"),
            ),
        });
    }
    let encoding = format.encoding.as_deref();
    if let Some(name) = encoding.filter(|name| is_text(file.kind) && !reading::is_usual(name)) {
        facts.push((format!("the encoding is {name}"), format!("编码为 {name}")));
    }
    facts.extend(layout(&format.read));
    facts.extend(notation(&format.read));
    facts
}

/// Where the table and its header are.
fn layout(read: &ReadOptions) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Some(sheet) = &read.sheet {
        facts.push((
            format!("the table is in the sheet \"{sheet}\""),
            format!("表格在工作表“{sheet}”中"),
        ));
    }
    if read.skip_rows > 0 {
        let rows = read.skip_rows;
        let en = match rows {
            1 => "one row stands above the header".to_owned(),
            rows => format!("{rows} rows stand above the header"),
        };
        facts.push((en, format!("表头上方另有 {rows} 行")));
    }
    if !read.names.is_empty() {
        facts.push((
            "the header has two rows, which I join".into(),
            "表头有两行，需要合并".into(),
        ));
    }
    if !read.filled.is_empty() {
        facts.push((
            "merged cells hold their value once".into(),
            "合并单元格的值只写了一次".into(),
        ));
    }
    facts
}

/// How numbers and days are written.
fn notation(read: &ReadOptions) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut notations = read.numbers.values();
    if !read.decimal_comma.is_empty() || notations.any(|notation| notation.decimal_comma) {
        facts.push((
            "numbers have a decimal comma".into(),
            "数字以逗号为小数点".into(),
        ));
    }
    if let Some(sign) = read.thousands {
        facts.push((
            format!("`{sign}` stands between thousands"),
            format!("千位之间有“{sign}”"),
        ));
    }
    // The example of a notation need not be among the lines that were shown.
    for (name, notation) in &read.numbers {
        if let Some(sign) = &notation.currency {
            facts.push((
                format!("\"{name}\" holds numbers with `{sign}`"),
                format!("“{name}”列的数字带有“{sign}”"),
            ));
        }
        if let Some(sign) = notation.ignored.chars().find(|sign| !sign.is_whitespace()) {
            facts.push((
                format!("\"{name}\" has `{sign}` between thousands"),
                format!("“{name}”列的千位之间有“{sign}”"),
            ));
        }
    }
    let formats: BTreeSet<&String> = read.dates.values().collect();
    for format in formats {
        facts.push((
            format!("days are written as {format}"),
            format!("日期写作 {format}"),
        ));
    }
    for name in &read.mixed_dates {
        facts.push((
            format!("some days in \"{name}\" are written as %d.%m.%Y, the others as %Y-%m-%d"),
            format!("“{name}”列的日期有的写作 %d.%m.%Y，有的写作 %Y-%m-%d"),
        ));
    }
    facts
}
