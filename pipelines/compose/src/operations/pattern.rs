//! Operations that split texts at a sign, extract by a pattern, and replace signs.

use polars::prelude::*;

use super::text::plain_text;
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::operation::{Operation, Role};

/// Signs at which texts are split.
const SEPARATORS: [&str; 7] = ["-", "/", "_", ":", ", ", "@", "."];

/// Signs that are replaced by others.
const REPLACED: [&str; 5] = [" ", "-", "_", "/", "."];

pub(super) fn operations() -> Vec<Operation> {
    let mut all = split();
    all.extend(extracted());
    all.extend(replaced());
    all.push(with_digit());
    all
}

/// Whether a text reads as a text in every tool: neither as a number nor as a missing value.
fn is_word(text: &str) -> bool {
    let lower = text.to_lowercase();
    let is_gap = matches!(
        lower.as_str(),
        "na" | "nan" | "n/a" | "null" | "none" | "inf"
    );
    let is_truth = matches!(lower.as_str(), "true" | "false");
    !is_gap
        && !is_truth
        && text.trim() == text
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.parse::<f64>().is_err()
}

/// A text column without gaps for whose texts a test holds.
fn each(
    patterns: &'static [&'static str],
    fits: fn(&str) -> bool,
) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let column = plain_text(draw)?;
        let new = draw.new_name(patterns, &column)?;
        let texts = draw.texts(&column);
        texts
            .iter()
            .flatten()
            .all(|text| fits(text))
            .then(|| Arguments::new([("column", Argument::Column(column)), ("new", new)]))
    }
}

/// A text column of which each text has a sign with words on both sides.
fn separated(patterns: &'static [&'static str]) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let column = plain_text(draw)?;
        let texts: Vec<String> = draw.texts(&column).into_iter().flatten().collect();
        let splits = |sign: &&&str| {
            let in_two = |text: &String| {
                let parts = text.split_once(**sign);
                parts.is_some_and(|(before, after)| is_word(before) && is_word(after))
            };
            texts.iter().all(in_two)
        };
        let sign = SEPARATORS.iter().find(splits)?;
        let new = draw.new_name(patterns, &column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("sign", Argument::Text((*sign).to_owned())),
            ("new", new),
        ]))
    }
}

/// What stands on one side of the first occurrence of a sign.
fn split() -> Vec<Operation> {
    let side = |a: &Arguments, before: bool| {
        let sign = regex::escape(a.text("sign"));
        let pattern = match before {
            true => format!("(?s)^(.*?){sign}"),
            false => format!("(?s)^.*?{sign}(.*)$"),
        };
        a.col("column").str().extract(lit(pattern), 1)
    };
    vec![
        Operation::derive(
            "text_before",
            separated(&["*_prefix", "*_before", "left_part"]),
            move |a| side(a, true),
        )
        .pandas("$t[$new] = $t[$column].str.partition($sign)[0]")
        .pandas("$t = $t.assign(**{$new: [text.split($sign, 1)[0] for text in $t[$column]]})")
        .python("for row in $t:\n    row[$new] = row[$column].split($sign, 1)[0]")
        .sql("SELECT *, SUBSTR($column, 1, INSTR($column, $sign) - 1) AS $new FROM $t")
        .en([
            "add a column $new with the part of $column before the first $sign",
            "split $column at the first $sign and store what stands before it as $new",
        ])
        .zh(["新增一列$new，为$column中第一个$sign之前的部分"]),
        Operation::derive(
            "text_after",
            separated(&["*_suffix", "*_after", "right_part"]),
            move |a| side(a, false),
        )
        .pandas("$t[$new] = $t[$column].str.partition($sign)[2]")
        .pandas("$t = $t.assign(**{$new: [text.split($sign, 1)[1] for text in $t[$column]]})")
        .python("for row in $t:\n    row[$new] = row[$column].split($sign, 1)[1]")
        .sql("SELECT *, SUBSTR($column, INSTR($column, $sign) + LENGTH($sign)) AS $new FROM $t")
        .en([
            "add a column $new with the part of $column after the first $sign",
            "split $column at the first $sign and store what stands after it as $new",
        ])
        .zh(["新增一列$new，为$column中第一个$sign之后的部分"]),
    ]
}

/// The capital letters of a text.
fn capitals(text: &str) -> String {
    text.chars().filter(char::is_ascii_uppercase).collect()
}

/// What matches a pattern.
fn extracted() -> Vec<Operation> {
    let year = |text: &str| {
        let is_year =
            |run: &str| run.len() == 4 && (run.starts_with("19") || run.starts_with("20"));
        // A letter or an underscore beside a number belongs to the same word.
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words
            .filter(|word| word.bytes().all(|b| b.is_ascii_digit()))
            .any(is_year)
    };
    vec![
        Operation::derive("text_year", each(&["*_year", "year_in_text"], year), |a| {
            let pattern = lit(r"\b((?:19|20)[0-9]{2})\b");
            a.col("column").str().extract(pattern, 1).cast(DataType::Int64)
        })
        .pandas("$t[$new] = $t[$column].str.extract(r\"\\b((?:19|20)[0-9]{2})\\b\")[0].astype(int)")
        .pandas("import re\n$t = $t.assign(**{$new: [int(re.search(r\"\\b(?:19|20)[0-9]{2}\\b\", text)[0]) for text in $t[$column]]})")
        .python("import re\nfor row in $t:\n    row[$new] = int(re.search(r\"\\b(?:19|20)[0-9]{2}\\b\", row[$column])[0])")
        .en([
            "add a column $new with the first year in $column, a number of four digits that begins with 19 or 20 and stands alone, as a whole number",
            "extract from $column the first separate four-digit number that starts with 19 or 20 into $new, as a number",
        ])
        .zh(["新增一列$new，为$column中第一个独立的、以19或20开头的四位数（年份，数字）"]),
        Operation::derive("text_capitals", each(&["*_capitals", "capitals"], |text| is_word(&capitals(text))), |a| {
            a.col("column").str().replace_all(lit("[^A-Z]"), lit(""), false)
        })
        .pandas("$t[$new] = $t[$column].str.replace(\"[^A-Z]\", \"\", regex=True)")
        .pandas("$t[$new] = $t[$column].str.findall(\"[A-Z]\").str.join(\"\")")
        .python("import re\nfor row in $t:\n    row[$new] = \"\".join(re.findall(\"[A-Z]\", row[$column]))")
        .en([
            "add a column $new with the capital letters A to Z of $column, in their order and with nothing between them",
            "extract all upper-case letters of $column, joined together, into $new",
        ])
        .zh(["新增一列$new，为$column中所有大写字母A到Z按顺序连成的文本"]),
    ]
}

/// Texts with fewer or other signs.
fn replaced() -> Vec<Operation> {
    let without_digits = |text: &str| {
        let kept: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        kept != text && is_word(&kept)
    };
    let prefix = |draw: &mut Draw<'_>| {
        let column = plain_text(draw)?;
        let count = draw.count(2, 4);
        let new = draw.new_name(&["*_code", "*_short", "short"], &column)?;
        let texts = draw.texts(&column);
        let fits = |text: &String| text.get(..count as usize).is_some_and(is_word);
        texts.iter().flatten().all(fits).then(|| {
            Arguments::new([
                ("column", Argument::Column(column)),
                ("count", Argument::Count(count)),
                ("new", new),
            ])
        })
    };
    let sign = |draw: &mut Draw<'_>| {
        let column = plain_text(draw)?;
        let texts: Vec<String> = draw.texts(&column).into_iter().flatten().collect();
        let occurs = |sign: &&&str| texts.iter().any(|text| text.contains(**sign));
        let sign = REPLACED.iter().find(occurs)?;
        let with = ["+", "=", "~"][draw.count(0, 2) as usize];
        let fits = |text: &String| is_word(&text.replace(*sign, with));
        let new = draw.new_name(&["*_clean", "*_changed"], &column)?;
        texts.iter().all(fits).then(|| {
            Arguments::new([
                ("column", Argument::Column(column)),
                ("sign", Argument::Text((*sign).to_owned())),
                ("with", Argument::Text(with.to_owned())),
                ("new", new),
            ])
        })
    };
    vec![
        Operation::derive("text_without_digits", each(&["*_letters", "*_words"], without_digits), |a| {
            a.col("column").str().replace_all(lit("[0-9]"), lit(""), false)
        })
        .pandas("$t[$new] = $t[$column].str.replace(\"[0-9]\", \"\", regex=True)")
        .pandas("import re\n$t = $t.assign(**{$new: [re.sub(\"[0-9]\", \"\", text) for text in $t[$column]]})")
        .python("import re\nfor row in $t:\n    row[$new] = re.sub(\"[0-9]\", \"\", row[$column])")
        .en([
            "add a column $new with $column without its digits (all else stays as it is)",
            "copy $column to $new and delete all digits 0 to 9 there",
        ])
        .zh(["新增一列$new，为去掉所有数字0到9之后的$column"]),
        Operation::derive("text_prefix", prefix, |a| {
            a.col("column").str().head(lit(a.count("count")))
        })
        .pandas("$t[$new] = $t[$column].str[:$count]")
        .pandas("$t[$new] = $t[$column].str.slice(0, $count)")
        .python("for row in $t:\n    row[$new] = row[$column][:$count]")
        .sql("SELECT *, SUBSTR($column, 1, $count) AS $new FROM $t")
        .en([
            "add a column $new with the first $count characters of $column",
            "shorten $column to its first $count characters in a column $new",
        ])
        .zh(["新增一列$new，为$column的前$count个字符"]),
        Operation::derive("text_replace_sign", sign, |a| {
            let (sign, with) = (a.text("sign").to_owned(), a.text("with").to_owned());
            a.col("column").str().replace_all(lit(sign), lit(with), true)
        })
        .pandas("$t[$new] = $t[$column].str.replace($sign, $with, regex=False)")
        .pandas("$t = $t.assign(**{$new: [text.replace($sign, $with) for text in $t[$column]]})")
        .python("for row in $t:\n    row[$new] = row[$column].replace($sign, $with)")
        .sql("SELECT *, REPLACE($column, $sign, $with) AS $new FROM $t")
        .en([
            "add a column $new that is $column with $with in place of every $sign",
            "copy $column to $new and replace each $sign there by $with",
        ])
        .zh(["新增一列$new，内容同$column，但把每个$sign换成$with"]),
    ]
}

/// Rows whose text has a digit.
fn with_digit() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = plain_text(draw)?;
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    Operation::new("filter_with_digit", Role::Filter, draw, |a, t| {
        t.filter(a.col("column").str().contains(lit("[0-9]"), true))
    })
    .pandas("$t = $t[$t[$column].str.contains(\"[0-9]\")]")
    .pandas("$t = $t[[any(c in \"0123456789\" for c in text) for text in $t[$column]]]")
    .python("$t = [row for row in $t if any(c in \"0123456789\" for c in row[$column])]")
    .sql("SELECT * FROM $t WHERE $column GLOB '*[0-9]*'")
    .en([
        "keep only the rows whose $column has a digit in it",
        "use only records with at least one digit (0 to 9) in $column",
    ])
    .zh([
        "只保留$column中含有数字（0到9）的行",
        "筛选出$column里至少有一个数字字符的记录",
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_no_numbers_and_no_gaps() {
        for text in ["ab", "A1", "a-b"] {
            assert!(is_word(text), "{text}");
        }
        for text in ["", "12", "nan", "NA", "-a", "a ", "inf", "True"] {
            assert!(!is_word(text), "{text}");
        }
    }
}
