//! What a query says of a file that is not read as pandas assumes.

use pybench_types::read_options::ReadOptions;
use pybench_types::task::Language;

/// What a query must say of the file, so that its result is well defined; `None` if the defaults read it.
pub fn note(read: &ReadOptions, path: &str, language: Language) -> Option<String> {
    let facts = facts(read, path)
        .into_iter()
        .map(|(en, zh)| match language {
            Language::En => en,
            Language::Zh => zh,
        });
    let facts: Vec<String> = facts.collect();
    (!facts.is_empty()).then(|| match language {
        Language::En => format!("About {path}: {}.", facts.join("; ")),
        Language::Zh => format!("关于 {path}：{}。", facts.join("；")),
    })
}

/// Each fact in English and Chinese.
fn facts(read: &ReadOptions, path: &str) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Some(sheet) = &read.sheet {
        facts.push((
            format!("the table is in the worksheet \"{sheet}\""),
            format!("表格在工作表“{sheet}”中"),
        ));
    }
    if read.skip_rows > 0 {
        let row = read.skip_rows + 1;
        facts.push((
            format!("the header begins in row {row}"),
            format!("表头从第 {row} 行开始"),
        ));
    }
    if !read.names.is_empty() {
        // A workbook has merged cells instead.
        let (en, zh) = match path.ends_with(".xlsx") {
            true => ("", ""),
            false => (
                "; an empty upper name is the one to its left",
                "；上级名称为空时沿用其左侧的名称",
            ),
        };
        facts.push((
            format!("the header has two rows, and a column is called by its upper and its lower name, joined by a space{en}"),
            format!("表头有两行，列名由上、下两级名称以一个空格连接而成{zh}"),
        ));
    }
    if !read.filled.is_empty() {
        facts.push((
            "the value of merged cells counts for each of their rows".into(),
            "合并单元格的值适用于其中每一行".into(),
        ));
    }
    if let Some((written, plain)) = number_example(read) {
        facts.push((
            format!(
                "numbers are written with a decimal comma ({written} is {plain}); write them with a decimal point"
            ),
            format!("数字以逗号为小数点（{written} 即 {plain}），结果中请用小数点"),
        ));
    }
    for (name, notation) in &read.numbers {
        let (written, plain) = (&notation.example, notation.plain(&notation.example));
        facts.push((
            format!("the column \"{name}\" holds numbers ({written} is {plain}); write them as plain numbers"),
            format!("“{name}”列为数字（{written} 即 {plain}），结果中请写成普通数字"),
        ));
    }
    if let Some(example) = date_example(read) {
        let (en, zh) = match read.dates.values().any(|format| format.contains("%y")) {
            true => (
                "; the years 69 to 99 are 1969 to 1999, all others are after 1999",
                "；69 至 99 表示 1969 至 1999 年，其余为 2000 年以后",
            ),
            false => ("", ""),
        };
        facts.push((
            format!("dates are written day first ({example}{en}); write them as 2024-12-31"),
            format!("日期为日在前（{example}{zh}），结果中请写成 2024-12-31"),
        ));
    }
    for name in &read.mixed_dates {
        facts.push((
            format!("some dates in the column \"{name}\" are written day first (31.12.2024), the others as 2024-12-31; write all as 2024-12-31"),
            format!("“{name}”列的日期有的写成日在前（31.12.2024），有的写成 2024-12-31，结果中请一律写成 2024-12-31"),
        ));
    }
    facts
}

/// A number as the file writes it, and the same number with a decimal point.
fn number_example(read: &ReadOptions) -> Option<(String, &'static str)> {
    let plain = "1018.64";
    let thousands = read.thousands.map(String::from).unwrap_or_default();
    (!read.decimal_comma.is_empty()).then(|| (format!("1{thousands}018,64"), plain))
}

/// The last day of 2024 as the file writes dates.
fn date_example(read: &ReadOptions) -> Option<String> {
    let format = read.dates.values().next()?;
    Some(
        format
            .replace("%d", "31")
            .replace("%m", "12")
            .replace("%Y", "2024")
            .replace("%y", "24"),
    )
}
