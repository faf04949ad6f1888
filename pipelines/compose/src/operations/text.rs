//! Operations on texts.

use polars::prelude::*;

use crate::argument::{Argument, Arguments};
use crate::draw::{Draw, quotable};
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = filters();
    all.extend(measures());
    all.extend(parts());
    all.extend(changes());
    all
}

/// A text column without gaps in which all is ASCII, since cases and lengths of other scripts differ between engines.
pub(super) fn plain_text(draw: &mut Draw<'_>) -> Option<String> {
    let column = draw.full_text()?;
    let ascii = draw
        .texts(&column)
        .iter()
        .flatten()
        .all(|text| text.is_ascii() && !text.is_empty());
    ascii.then_some(column)
}

fn one(patterns: &'static [&'static str]) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let column = plain_text(draw)?;
        let new = draw.new_name(patterns, &column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("new", new),
        ]))
    }
}

/// Rows by a part of a text.
fn filters() -> Vec<Operation> {
    let with_part = |cut: fn(&str) -> Option<String>| {
        move |draw: &mut Draw<'_>| {
            let column = plain_text(draw)?;
            let part = cut(&draw.value(&column)?).filter(|part| quotable(part))?;
            Some(Arguments::new([
                ("column", Argument::Column(column)),
                ("part", Argument::Text(part)),
            ]))
        }
    };
    let word = |text: &str| {
        let longest = text
            .split(|c: char| !c.is_alphanumeric())
            .max_by_key(|word| word.len());
        longest.filter(|word| word.len() >= 3).map(str::to_owned)
    };
    let part = |a: &Arguments| lit(a.text("part").to_owned());
    vec![
        Operation::new("filter_contains", Role::Filter, with_part(word), move |a, t| {
            t.filter(a.col("column").str().contains_literal(part(a)))
        })
        .pandas("$t = $t[$t[$column].str.contains($part, regex=False)]")
        .pandas("$t = $t[[$part in text for text in $t[$column]]]")
        .python("$t = [row for row in $t if $part in row[$column]]")
        .sql("SELECT * FROM $t WHERE INSTR($column, $part) > 0")
        .en([
            "keep only the rows whose $column contains $part (exactly so, upper and lower case matter)",
            "look only at records with $part somewhere in $column, case-sensitive",
        ])
        .zh(["只保留$column中包含$part的行（区分大小写）"]),
        Operation::new(
            "filter_starts_with",
            Role::Filter,
            with_part(|text| text.get(..1).filter(|c| c.chars().all(char::is_alphanumeric)).map(str::to_owned)),
            move |a, t| t.filter(a.col("column").str().starts_with(part(a))),
        )
        .pandas("$t = $t[$t[$column].str.startswith($part)]")
        .python("$t = [row for row in $t if row[$column].startswith($part)]")
        .sql("SELECT * FROM $t WHERE SUBSTR($column, 1, LENGTH($part)) = $part")
        .en([
            "keep only the rows whose $column starts with $part (case-sensitive)",
            "use only records with a $column that begins with $part, case-sensitive",
        ])
        .zh(["只保留$column以$part开头的行（区分大小写）"]),
        Operation::new(
            "filter_longer_text",
            Role::Filter,
            |draw| {
                let column = plain_text(draw)?;
                let mut lengths: Vec<usize> = draw.texts(&column).iter().flatten().map(String::len).collect();
                lengths.sort_unstable();
                let count = *lengths.get(lengths.len() / 2)? as i64;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("count", Argument::Count(count)),
                ]))
            },
            |a, t| t.filter(a.col("column").str().len_chars().gt(lit(a.count("count") as u32))),
        )
        .pandas("$t = $t[$t[$column].str.len() > $count]")
        .python("$t = [row for row in $t if len(row[$column]) > $count]")
        .sql("SELECT * FROM $t WHERE LENGTH($column) > $count")
        .en([
            "keep only the rows whose $column is longer than $count characters",
            "use only records with more than $count characters in $column",
        ])
        .zh(["只保留$column超过$count个字符的行"]),
    ]
}

/// Numbers and labels from a text.
fn measures() -> Vec<Operation> {
    vec![
        Operation::derive("text_length", one(&["*_length", "length"]), |a| {
            a.col("column").str().len_chars().cast(DataType::Int64)
        })
        .pandas("$t[$new] = $t[$column].str.len()")
        .pandas("$t = $t.assign(**{$new: $t[$column].map(len)})")
        .python("for row in $t:\n    row[$new] = len(row[$column])")
        .sql("SELECT *, LENGTH($column) AS $new FROM $t")
        .en([
            "add a column $new with the number of characters of $column",
            "store the length of the text in $column as $new",
        ])
        .zh(["新增一列$new，为$column的字符数"]),
        Operation::derive("text_words", one(&["*_words", "words"]), |a| {
            a.col("column")
                .str()
                .count_matches(lit(r"\S+"), false)
                .cast(DataType::Int64)
        })
        .pandas("$t[$new] = $t[$column].str.split().str.len()")
        .pandas("$t = $t.assign(**{$new: [len(text.split()) for text in $t[$column]]})")
        .python("for row in $t:\n    row[$new] = len(row[$column].split())")
        .en([
            "add a column $new with the number of words of $column (separated by white space)",
            "count the words in $column, split at white space, into $new",
        ])
        .zh(["新增一列$new，为$column按空白分隔的单词数"]),
        Operation::derive("text_initial", one(&["*_initial", "initial"]), |a| {
            a.col("column").str().head(lit(1)).str().to_uppercase()
        })
        .pandas("$t[$new] = $t[$column].str[0].str.upper()")
        .pandas("$t = $t.assign(**{$new: $t[$column].str[:1].str.upper()})")
        .python("for row in $t:\n    row[$new] = row[$column][0].upper()")
        .sql("SELECT *, UPPER(SUBSTR($column, 1, 1)) AS $new FROM $t")
        .en([
            "add a column $new with the first character of $column in upper case",
            "store the upper-case initial of $column as $new",
        ])
        .zh(["新增一列$new，为$column首字符的大写"]),
        Operation::derive("text_vowels", one(&["*_vowels", "vowels"]), |a| {
            a.col("column")
                .str()
                .count_matches(lit("(?i)[aeiou]"), false)
                .cast(DataType::Int64)
        })
        .pandas("$t[$new] = $t[$column].str.count(\"[aeiouAEIOU]\")")
        .pandas("$t[$new] = [sum(c in \"aeiou\" for c in text.lower()) for text in $t[$column]]")
        .python("for row in $t:\n    row[$new] = sum(c in \"aeiou\" for c in row[$column].lower())")
        .en([
            "add a column $new with the number of vowels (a, e, i, o, u in either case) in $column",
            "count the vowels a, e, i, o, u of $column, upper or lower case, into $new",
        ])
        .zh(["新增一列$new，为$column中元音字母（a、e、i、o、u，不分大小写）的个数"]),
    ]
}

/// A text column of which each text has a match of a test.
fn each(
    patterns: &'static [&'static str],
    fits: fn(&str) -> bool,
) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let arguments = one(patterns)(draw)?;
        let texts = draw.texts(arguments.name("column"));
        texts
            .iter()
            .flatten()
            .all(|text| fits(text))
            .then_some(arguments)
    }
}

/// Parts of a text: a number, a word, how often a letter occurs.
fn parts() -> Vec<Operation> {
    let digits = |text: &str| {
        let first = text
            .split(|c: char| !c.is_ascii_digit())
            .find(|part| !part.is_empty());
        first.is_some_and(|digits| digits.len() <= 9)
    };
    let words = |text: &str| !text.trim().is_empty();
    let letter = |draw: &mut Draw<'_>| {
        let arguments = one(&["*_letters", "occurrences"])(draw)?;
        let letter = ["a", "e", "i", "n", "o", "r", "s", "t"][draw.count(0, 7) as usize];
        let mut arguments = arguments;
        arguments
            .0
            .insert("letter".into(), Argument::Text(letter.into()));
        Some(arguments)
    };
    vec![
        Operation::derive("text_number", each(&["*_number", "value"], digits), |a| {
            a.col("column").str().extract(lit("([0-9]+)"), 1).cast(DataType::Int64)
        })
        .pandas("$t[$new] = $t[$column].str.extract(r\"([0-9]+)\")[0].astype(int)")
        .pandas("import re\n$t = $t.assign(**{$new: [int(re.search(r\"[0-9]+\", text)[0]) for text in $t[$column]]})")
        .python("import re\nfor row in $t:\n    row[$new] = int(re.search(r\"[0-9]+\", row[$column])[0])")
        .en([
            "add a column $new with the first run of digits in $column as a whole number",
            "read the first whole number (a run of digits, no sign) out of $column into $new",
        ])
        .zh(["新增一列$new，为$column中第一串连续数字所表示的整数"]),
        Operation::derive("text_first_word", each(&["*_start", "first_word"], words), |a| {
            a.col("column").str().extract(lit(r"(\S+)"), 1)
        })
        .pandas("$t[$new] = $t[$column].str.split().str[0]")
        .python("for row in $t:\n    row[$new] = row[$column].split()[0]")
        .en([
            "add a column $new with the first word of $column (up to the first white space)",
            "store what $column has before its first white space as $new",
        ])
        .zh(["新增一列$new，为$column中的第一个词（到第一个空白为止）"]),
        Operation::derive("text_last_word", each(&["*_end", "last_word"], words), |a| {
            a.col("column").str().extract(lit(r"(\S+)\s*$"), 1)
        })
        .pandas("$t[$new] = $t[$column].str.split().str[-1]")
        .python("for row in $t:\n    row[$new] = row[$column].split()[-1]")
        .en([
            "add a column $new with the last word of $column (after the last white space)",
            "store what $column has after its last white space as $new",
        ])
        .zh(["新增一列$new，为$column中的最后一个词（最后一个空白之后）"]),
        Operation::derive("text_letter_count", letter, |a| {
            a.col("column")
                .str()
                .count_matches(lit(a.text("letter").to_owned()), true)
                .cast(DataType::Int64)
        })
        .pandas("$t[$new] = $t[$column].str.count($letter)")
        .python("for row in $t:\n    row[$new] = row[$column].count($letter)")
        .en([
            "add a column $new with how often the letter $letter occurs in $column (lower case only)",
            "count the lower-case letter $letter in $column into $new",
        ])
        .zh(["新增一列$new，为$column中小写字母$letter出现的次数"]),
    ]
}

/// Texts from texts.
fn changes() -> Vec<Operation> {
    vec![
        Operation::derive("text_upper", one(&["*_upper", "upper"]), |a| {
            a.col("column").str().to_uppercase()
        })
        .pandas("$t[$new] = $t[$column].str.upper()")
        .python("for row in $t:\n    row[$new] = row[$column].upper()")
        .sql("SELECT *, UPPER($column) AS $new FROM $t")
        .en([
            "add a column $new with $column in upper case",
            "store $column in capital letters as $new",
        ])
        .zh(["新增一列$new，为$column的大写形式"]),
        Operation::derive("text_lower", one(&["*_lower", "lower"]), |a| {
            a.col("column").str().to_lowercase()
        })
        .pandas("$t[$new] = $t[$column].str.lower()")
        .python("for row in $t:\n    row[$new] = row[$column].lower()")
        .sql("SELECT *, LOWER($column) AS $new FROM $t")
        .en([
            "add a column $new with $column in lower case",
            "store $column in small letters as $new",
        ])
        .zh(["新增一列$new，为$column的小写形式"]),
        Operation::derive(
            "text_join",
            |draw| {
                let column = plain_text(draw)?;
                let other = plain_text(draw).filter(|other| *other != column)?;
                let between = ["-", "/", "_", " | "][draw.count(0, 3) as usize];
                let new = draw.new_name(&["*_key", "joined"], &column)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("other", Argument::Column(other)),
                    ("between", Argument::Text(between.into())),
                    ("new", new),
                ]))
            },
            |a| a.col("column") + lit(a.text("between").to_owned()) + a.col("other"),
        )
        .pandas("$t[$new] = $t[$column] + $between + $t[$other]")
        .pandas("$t[$new] = $t[$column].str.cat($t[$other], sep=$between)")
        .python("for row in $t:\n    row[$new] = row[$column] + $between + row[$other]")
        .sql("SELECT *, $column || $between || $other AS $new FROM $t")
        .en([
            "add a column $new that joins $column and $other with $between between them",
            "combine $column and $other into $new, separated by $between",
        ])
        .zh(["新增一列$new，用$between连接$column和$other"]),
        Operation::derive(
            "text_replace",
            |draw| {
                let column = draw.category()?;
                let value = draw.value(&column)?;
                let new = draw.new_name(&["*_renamed", "*_clean"], &column)?;
                let with = ["Other", "Group 1", "renamed"][draw.count(0, 2) as usize];
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("value", Argument::Text(value)),
                    ("with", Argument::Text(with.into())),
                    ("new", new),
                ]))
            },
            |a| {
                let value = lit(a.text("value").to_owned());
                when(a.col("column").eq(value))
                    .then(lit(a.text("with").to_owned()))
                    .otherwise(a.col("column"))
            },
        )
        .pandas("$t[$new] = $t[$column].replace($value, $with)")
        .pandas("$t[$new] = $t[$column].where($t[$column] != $value, $with)")
        .python("for row in $t:\n    row[$new] = $with if row[$column] == $value else row[$column]")
        .sql("SELECT *, CASE WHEN $column = $value THEN $with ELSE $column END AS $new FROM $t")
        .en([
            "add a column $new that equals $column, with $with in place of $value",
            "copy $column to $new and write $with wherever it says $value",
        ])
        .zh(["新增一列$new，内容同$column，但把$value改为$with"]),
    ]
}
