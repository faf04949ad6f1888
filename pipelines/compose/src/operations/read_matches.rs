//! Operations that read what a text has line by line into a table: matches of a pattern, and fields.

use std::collections::HashSet;

use polars::prelude::{Column, DataFrame};
use rand::RngExt;
use regex::Regex;

use super::columns::{LINE, Names, column, read};
use crate::argument::{Argument, Arguments};
use crate::content::Medium;
use crate::draw::Draw;
use crate::operation::{Operation, Role};
use crate::rename;

pub(super) fn operations() -> Vec<Operation> {
    let mut all: Vec<Operation> = PATTERNS.iter().map(pattern).collect();
    all.extend((2..=5).map(fields));
    all
}

/// What a pattern matches, line by line.
struct Pattern {
    name: &'static str,
    /// In the syntax that Rust and Python share.
    regex: &'static str,
    en: &'static str,
    zh: &'static str,
}

const PATTERNS: [Pattern; 7] = [
    Pattern {
        name: "numbers",
        regex: r"[0-9]+(?:\.[0-9]+)?",
        en: "numbers (digits, perhaps with a decimal point and more digits, wherever they stand and without a sign)",
        zh: "数字（连续数字，可带小数点和小数，不计正负号，无论出现在何处）",
    },
    Pattern {
        name: "dates",
        regex: r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        en: "dates of the form YYYY-MM-DD",
        zh: "YYYY-MM-DD 形式的日期",
    },
    Pattern {
        name: "times",
        regex: r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?",
        en: "times of the form H:MM, HH:MM or HH:MM:SS",
        zh: "H:MM、HH:MM 或 HH:MM:SS 形式的时间",
    },
    Pattern {
        name: "emails",
        regex: r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
        en: "e-mail addresses (matches of the regular expression `[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+`)",
        zh: "电子邮件地址（正则表达式 `[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+`）",
    },
    Pattern {
        name: "links",
        regex: r#"https?://[^\s"'<>()]+"#,
        en: "web addresses (from `http://` or `https://` up to white space, a quote, a parenthesis or an angle bracket)",
        zh: "网址（从 `http://` 或 `https://` 起，到空白、引号、圆括号或尖括号为止）",
    },
    Pattern {
        name: "codes",
        regex: r"[A-Za-z]+[-_]?[0-9]+",
        en: "codes (letters A to Z in either case, perhaps a hyphen or underscore, then digits)",
        zh: "代码（英文字母，可接一个连字符或下划线，再接数字）",
    },
    Pattern {
        name: "quotes",
        regex: r#""[^"]+""#,
        en: "passages in straight double quotes within one line, with the quotes",
        zh: "同一行内直双引号括起的文字（含引号）",
    },
];

/// The matches of a pattern, with the lines they are in.
fn pattern(of: &'static Pattern) -> Operation {
    let is_number = of.name == "numbers";
    let regex = Regex::new(of.regex).ok();
    let names: Names = match is_number {
        true => &[LINE, ("value", &["value", "number", "amount", "figure"])],
        false => &[LINE, ("value", &["match", "found", "value", "item"])],
    };
    let operation = read(format!("read_{}", of.name), names, move |a, text| {
        let Some(regex) = &regex else {
            return Vec::new();
        };
        let lines = text.split('\n').enumerate();
        let found: Vec<(usize, String)> = lines
            .flat_map(|(at, line)| {
                regex
                    .find_iter(line)
                    .map(move |found| (at + 1, found.as_str().to_owned()))
            })
            .collect();
        let line = column(a, "line", found.iter().map(|(line, _)| *line));
        let values = found.into_iter().map(|(_, value)| value);
        let value = match is_number {
            true => column(a, "value", values.map(|value| value.parse().unwrap_or(0.0))),
            false => column(a, "value", values),
        };
        vec![line, value]
    });
    let (quote, value) = match (of.regex.contains('"'), is_number) {
        (true, _) => ("'''", "value"),
        (false, true) => ("\"", "float(value)"),
        _ => ("\"", "value"),
    };
    let (en, zh) = (of.en, of.zh);
    operation
        .rows(
            "import re\n",
            &format!(
                "[{{$line: number, $value: {value}}} for number, line in enumerate($source.split(\"\\n\"), 1) \
                 for value in re.findall(r{quote}{}{quote}, line)]",
                of.regex
            ),
        )
        .en([
            &format!("extract all {en} into a table, in their order, with the columns $line (number of the line in the text at that point, from 1, blank lines counted) and $value"),
            &format!("make a table of all {en}: one row for each, with the columns $line (line number from 1, blank lines included) and $value"),
        ])
        .zh([&format!("提取所有{zh}，按顺序建表，列为$line（所在行号，从1开始，空行计入）和$value")])
        .counted_as("regular expression")
}

/// Keys of the fields of a line.
const FIELDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The parts of each line at its first so many runs of white space.
fn fields(cuts: usize) -> Operation {
    let keys = &FIELDS[..=cuts];
    let names = move |draw: &mut Draw<'_>| {
        let text = draw.text()?;
        let mut lines = text.split('\n').filter(|line| !line.trim().is_empty());
        if lines.any(|line| line.split_whitespace().count() <= cuts) {
            return None;
        }
        let invented = draw.rng.random_bool(0.5);
        let mut taken = HashSet::new();
        let mut arguments = Arguments::default();
        for (at, key) in keys.iter().enumerate() {
            let name = match invented {
                true => rename::unused(&mut taken, draw.rng, rename::word),
                false => format!("field_{}", at + 1),
            };
            arguments.0.insert((*key).to_owned(), Argument::New(name));
        }
        Some(arguments)
    };
    let meaning = move |a: &Arguments, content: &crate::content::Content| {
        let lines: Vec<&str> = content
            .text()?
            .split('\n')
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let rows: Vec<Vec<String>> = lines.into_iter().map(|line| split(line, cuts)).collect();
        let part = |at: usize| {
            rows.iter()
                .map(move |row| row.get(at).cloned().unwrap_or_default())
        };
        let columns: Vec<Column> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| column(a, key, part(at)))
            .collect();
        DataFrame::new(rows.len(), columns).ok()
    };
    let listed = |sign: &str| {
        keys.iter()
            .map(|key| format!("${key}"))
            .collect::<Vec<_>>()
            .join(sign)
    };
    let items: Vec<String> = keys
        .iter()
        .enumerate()
        .map(|(at, key)| format!("${key}: parts[{at}]"))
        .collect();
    Operation::read(Medium::Text, format!("read_fields_{}", cuts + 1), Role::Read, names, meaning)
        .rows(
            &format!("lines = [line.strip().split(maxsplit={cuts}) for line in $source.split(\"\\n\") if line.strip()]\n"),
            &format!("[{{{}}} for parts in lines]", items.join(", ")),
        )
        .en([
            &format!("split each non-blank line at its first {cuts} runs of white space into the columns {} (the last one is the rest of the line, without white space at its end)", listed(", ")),
            &format!("make a table of the non-blank lines with the columns {}, cut at the first {cuts} runs of white space of each line, the rest (stripped) being the last column", listed(", ")),
        ])
        .zh([&format!("把每个非空行在前{cuts}处空白处切开，列为{}（最后一列为该行其余部分，去掉尾部空白）", listed("、"))])
        .counted_as("log analysis")
}

/// The words before the first so many runs of white space, and the rest.
fn split(line: &str, cuts: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = line;
    for _ in 0..cuts {
        let Some((part, tail)) = rest.split_once(char::is_whitespace) else {
            break;
        };
        parts.push(part.to_owned());
        rest = tail.trim_start();
    }
    parts.push(rest.to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_field_is_the_rest_of_the_line() {
        assert_eq!(split("a  b\tc d", 2), ["a", "b", "c d"]);
    }
}
