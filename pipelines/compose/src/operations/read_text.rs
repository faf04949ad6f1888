//! Operations that read a text into a table: one row for each line, sentence, word or match.

use std::collections::{BTreeMap, HashSet};

use polars::prelude::{Column, DataFrame};
use rand::RngExt;
use rand::seq::IndexedRandom;
use regex::Regex;

use crate::argument::{Argument, Arguments};
use crate::content::Medium;
use crate::draw::Draw;
use crate::operation::{Operation, Order, Role};
use crate::rename;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = units();
    all.extend(words());
    all.extend(matches());
    all.extend((2..=5).map(fields));
    all
}

/// Names of the columns of a table that is read, each one of these.
type Names = &'static [(&'static str, &'static [&'static str])];

const NUMBER: (&str, &[&str]) = ("number", &["number", "no", "position", "index", "nr"]);
const TEXT: (&str, &[&str]) = ("text", &["text", "content", "body", "raw"]);
const WORDS: (&str, &[&str]) = ("words", &["words", "word_count", "n_words"]);
const SIZE: (&str, &[&str]) = ("size", &["characters", "length", "chars", "size"]);
const WORD: (&str, &[&str]) = ("word", &["word", "token", "term"]);
const LETTERS: (&str, &[&str]) = ("letters", &["letters", "word_length", "n_letters"]);
const COUNT: (&str, &[&str]) = ("count", &["count", "occurrences", "frequency", "times"]);
const LINE: (&str, &[&str]) = ("line", &["line", "line_no", "row"]);
const LETTER: (&str, &[&str]) = ("letter", &["letter", "initial", "first_letter"]);
const LINES: (&str, &[&str]) = ("lines", &["lines", "n_lines", "line_count"]);
const TITLE: (&str, &[&str]) = ("heading", &["title", "heading", "section"]);
const LEVEL: (&str, &[&str]) = ("level", &["level", "depth"]);

/// An operation whose columns have one of these names each.
fn read(
    name: impl Into<String>,
    names: Names,
    meaning: impl Fn(&Arguments, &str) -> Vec<Column> + Send + Sync + 'static,
) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let mut arguments = Arguments::default();
        for (key, choices) in names {
            let name = (*choices.choose(draw.rng)?).to_owned();
            arguments.0.insert((*key).to_owned(), Argument::New(name));
        }
        Some(arguments)
    };
    Operation::read(Medium::Text, name, Role::Read, draw, move |a, content| {
        let columns = meaning(a, content.text()?);
        DataFrame::new(columns.first().map_or(0, Column::len), columns).ok()
    })
}

/// A column with the name of an argument.
fn column<T>(a: &Arguments, key: &str, values: impl IntoIterator<Item = T>) -> Column
where
    Column: FromValues<T>,
{
    Column::from_values(a.name(key), values.into_iter().collect())
}

trait FromValues<T>: Sized {
    fn from_values(name: &str, values: Vec<T>) -> Self;
}

impl FromValues<String> for Column {
    fn from_values(name: &str, values: Vec<String>) -> Self {
        Column::new(name.into(), values)
    }
}

impl FromValues<usize> for Column {
    fn from_values(name: &str, values: Vec<usize>) -> Self {
        let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
        Column::new(name.into(), values)
    }
}

impl FromValues<f64> for Column {
    fn from_values(name: &str, values: Vec<f64>) -> Self {
        Column::new(name.into(), values)
    }
}

/// The paragraphs of a text, each as one line with single spaces.
pub(super) fn paragraphs(text: &str) -> Vec<String> {
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    for line in text.split('\n') {
        match (line.trim().is_empty(), all.last_mut()) {
            (false, Some(open)) => open.extend(line.split_whitespace()),
            _ => all.push(Vec::new()),
        }
    }
    all.retain(|words| !words.is_empty());
    all.into_iter().map(|words| words.join(" ")).collect()
}

/// The sentences of a text, each as one line with single spaces: they end at `.`, `!` or `?` before white space, and
/// at their Chinese forms.
fn sentences(text: &str) -> Vec<String> {
    let flat: Vec<&str> = text.split_whitespace().collect();
    let flat = flat.join(" ");
    let mut all = vec![String::new()];
    let mut letters = flat.chars().peekable();
    while let Some(c) = letters.next() {
        if let Some(open) = all.last_mut() {
            open.push(c);
        }
        let ends = match c {
            '.' | '!' | '?' => letters.peek() == Some(&' '),
            '。' | '！' | '？' => true,
            _ => false,
        };
        if ends {
            all.push(String::new());
        }
    }
    let all = all.into_iter().map(|sentence| sentence.trim().to_owned());
    all.filter(|sentence| !sentence.is_empty()).collect()
}

/// A section of a Markdown text.
pub(super) struct Section {
    pub(super) title: String,
    level: usize,
    /// The lines between this heading and the next one.
    pub(super) lines: Vec<String>,
}

/// The sections of a Markdown text, each up to the next heading of any level.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    let mut fenced = false;
    for line in text.split('\n') {
        fenced ^= line.starts_with("```");
        let rest = line.trim_start_matches('#');
        let level = line.len() - rest.len();
        if !fenced && (1..=6).contains(&level) && rest.starts_with(' ') {
            all.push(Section {
                title: rest.trim().to_owned(),
                level,
                lines: Vec::new(),
            });
        } else if let Some(open) = all.last_mut() {
            open.lines.push(line.to_owned());
        }
    }
    all
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn word_count(text: &str) -> usize {
    text.split_whitespace().count()
}

/// A row for each unit of a text, numbered from 1.
fn numbered(name: &str, split: fn(&str) -> Vec<String>) -> Operation {
    read(name, &[NUMBER, TEXT, WORDS, SIZE], move |a, text| {
        let units = split(text);
        vec![
            column(a, "number", 1..=units.len()),
            column(a, "words", units.iter().map(|unit| word_count(unit))),
            column(a, "size", units.iter().map(|unit| length(unit))),
            column(a, "text", units),
        ]
    })
}

/// The rows of units that Python finds.
fn unit_rows(operation: Operation, before: &str, units: &str) -> Operation {
    operation.rows(
        &format!("{before}units = {units}\n"),
        "[{$number: number, $words: len(unit.split()), $size: len(unit), $text: unit} for number, unit in enumerate(units, 1)]",
    )
}

/// Lines, paragraphs, sentences, sections.
fn units() -> Vec<Operation> {
    let lines = numbered("read_lines", |text| {
        let lines = text.split('\n').map(|line| line.trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    });
    let columns_en = "the columns $number (from 1), $text, $words (number of words, separated by white space) and $size (number of characters)";
    let columns_zh = "列为$number（从1开始）、$text、$words（按空白分隔的单词数）和$size（字符数）";
    let sections = read(
        "read_sections",
        &[NUMBER, TITLE, LEVEL, WORDS, LINES],
        |a, text| {
            let sections = self::sections(text);
            let filled = |section: &Section| {
                section
                    .lines
                    .iter()
                    .filter(|line| !line.trim().is_empty())
                    .count()
            };
            vec![
                column(a, "number", 1..=sections.len()),
                column(a, "level", sections.iter().map(|section| section.level)),
                column(
                    a,
                    "words",
                    sections
                        .iter()
                        .map(|section| word_count(&section.lines.join("\n"))),
                ),
                column(a, "lines", sections.iter().map(filled)),
                column(
                    a,
                    "heading",
                    sections.into_iter().map(|section| section.title),
                ),
            ]
        },
    );
    vec![
        unit_rows(lines, "", "[line.strip() for line in $source.split(\"\\n\") if line.strip()]")
            .en([
                &format!("make a table of the lines that are not blank, without white space at both ends, with {columns_en}"),
                &format!("treat each non-blank line (stripped of outer white space) as a row with {columns_en}"),
            ])
            .zh([&format!("把非空行（去掉首尾空白）各作为一行建表，{columns_zh}")])
            .counted_as("line statistics"),
        unit_rows(
            numbered("read_paragraphs", paragraphs),
            "import re\n",
            "[\" \".join(part.split()) for part in re.split(r\"\\n\\s*\\n\", $source) if part.strip()]",
        )
        .en([
            &format!("make a table of the paragraphs, which blank lines separate and whose white space becomes single spaces, with {columns_en}"),
            &format!("treat each paragraph (they are separated by blank lines; join its words by single spaces) as a row with {columns_en}"),
        ])
        .zh([&format!("按空行分段，段内空白合并为一个空格，每段作为一行建表，{columns_zh}")])
        .counted_as("line statistics"),
        unit_rows(
            numbered("read_sentences", sentences),
            "import re\n",
            "[part.strip() for part in re.split(r\"(?<=[.!?]) |(?<=[。！？])\", \" \".join($source.split())) if part.strip()]",
        )
        .en([
            &format!("turn all white space into single spaces and split the text into sentences after each `.`, `!` or `?` that a space follows (and after each `。`, `！` or `？`); make a table of them with {columns_en}"),
            &format!("make a table of the sentences, with white space turned into single spaces, where a sentence ends at `.`, `!` or `?` before a space or at `。`, `！`, `？`, with {columns_en}"),
        ])
        .zh([&format!("把空白合并为一个空格，在后接空格的“.”“!”“?”之后以及“。”“！”“？”之后断句，每句作为一行建表，{columns_zh}")])
        .counted_as("line statistics"),
        sections
            .rows(
                "import re\n\
                 sections, fenced = [], False\n\
                 for line in $source.split(\"\\n\"):\n    \
                 fenced ^= line.startswith(\"```\")\n    \
                 heading = None if fenced else re.match(r\"(#{1,6}) +(.*)\", line)\n    \
                 if heading:\n        sections.append((len(heading[1]), heading[2].strip(), []))\n    \
                 elif sections:\n        sections[-1][2].append(line)\n",
                "[{$number: number, $level: level, $words: len(\" \".join(lines).split()), \
                 $lines: sum(1 for line in lines if line.strip()), $heading: title} \
                 for number, (level, title, lines) in enumerate(sections, 1)]",
            )
            .en([
                "make a table of the Markdown sections, each from its heading to the next heading of any level (lines in code fences are no headings), with the columns $number (from 1), $heading, $level (number of `#`), $words (words below the heading, separated by white space) and $lines (lines below it that are not blank)",
                "treat each Markdown heading (outside of code fences) with the text up to the next one as a row with the columns $number (from 1), $heading, $level (how many `#` it has), $words (number of words of that text, split at white space) and $lines (number of its non-blank lines)",
            ])
            .zh(["把每个Markdown标题（代码块内的除外）到下一个标题之间作为一行建表，列为$number（从1开始）、$heading、$level（“#”的个数）、$words（标题下文本按空白分隔的单词数）和$lines（其中非空行数）"])
            .counted_as("headings"),
    ]
}

fn lower_words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

/// How often each of these occurs, in the order of the first occurrences.
fn counted(items: Vec<String>) -> Vec<(String, usize)> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for item in items {
        match places.get(&item) {
            Some(at) => counts[*at].1 += 1,
            None => {
                places.insert(item.clone(), counts.len());
                counts.push((item, 1));
            }
        }
    }
    counts
}

/// Words one by one, their counts, pairs of words, names.
fn words() -> Vec<Operation> {
    let find =
        "import re\nwords = [word.lower() for word in re.findall(r\"[A-Za-z]+\", $source)]\n";
    let rule_en = "words being runs of the letters A to Z, put in lower case";
    let rule_zh = "单词为连续的英文字母，转为小写";
    vec![
        read("read_words", &[NUMBER, WORD, LETTERS], |a, text| {
            let words = lower_words(text);
            vec![
                column(a, "number", 1..=words.len()),
                column(a, "letters", words.iter().map(String::len)),
                column(a, "word", words),
            ]
        })
        .rows(
            find,
            "[{$number: number, $letters: len(word), $word: word} for number, word in enumerate(words, 1)]",
        )
        .en([
            &format!("make a table of all words in their order, {rule_en}, with the columns $number (from 1), $word and $letters (number of letters)"),
            &format!("treat each word as a row ({rule_en}) with the columns $number (position from 1), $word and $letters (its length)"),
        ])
        .zh([&format!("按顺序把所有单词（{rule_zh}）建表，列为$number（从1开始）、$word和$letters（字母数）")])
        .counted_as("word frequency"),
        read("read_word_counts", &[WORD, COUNT, LETTERS], |a, text| {
            let counts = counted(lower_words(text));
            vec![
                column(a, "count", counts.iter().map(|(_, count)| *count)),
                column(a, "letters", counts.iter().map(|(word, _)| word.len())),
                column(a, "word", counts.into_iter().map(|(word, _)| word)),
            ]
        })
        .rows(
            &format!("from collections import Counter\n{find}"),
            "[{$count: count, $letters: len(word), $word: word} for word, count in Counter(words).items()]",
        )
        .order(Order::Loses)
        .en([
            &format!("count how often each word occurs, {rule_en}, in a table with the columns $word, $count and $letters (number of letters)"),
            &format!("build a table of the different words ({rule_en}) with the columns $word, $count (how often it occurs) and $letters (its length)"),
        ])
        .zh([&format!("统计每个单词（{rule_zh}）出现的次数，建表，列为$word、$count和$letters（字母数）")])
        .counted_as("word frequency"),
        read("read_word_pairs", &[WORD, COUNT, LETTERS], |a, text| {
            let words = lower_words(text);
            let pairs = words.windows(2).map(|two| two.join(" "));
            let counts = counted(pairs.collect());
            vec![
                column(a, "count", counts.iter().map(|(_, count)| *count)),
                column(a, "letters", counts.iter().map(|(pair, _)| pair.len())),
                column(a, "word", counts.into_iter().map(|(pair, _)| pair)),
            ]
        })
        .rows(
            &format!("from collections import Counter\n{find}pairs = Counter(\" \".join(pair) for pair in zip(words, words[1:]))\n"),
            "[{$count: count, $letters: len(pair), $word: pair} for pair, count in pairs.items()]",
        )
        .order(Order::Loses)
        .en([
            &format!("count how often each pair of words that follow each other occurs, {rule_en}, in a table with the columns $word (both words, joined by a space), $count and $letters (number of characters of the pair with its space)"),
            &format!("build a table of the word pairs (bigrams) of the whole text, {rule_en}, with the columns $word (the two joined by a space), $count and $letters (length of that text)"),
        ])
        .zh([&format!("统计相邻两个单词（{rule_zh}）组成的词对出现的次数，建表，列为$word（两词以空格相连）、$count和$letters（含空格的字符数）")])
        .counted_as("word frequency"),
        read("read_initials", &[LETTER, COUNT, LETTERS], |a, text| {
            let words = lower_words(text);
            let initials = words.iter().filter_map(|word| word.get(..1)).map(str::to_owned);
            let counts = counted(initials.collect());
            let letters = counts.iter().map(|(initial, _)| {
                words.iter().filter(|word| word.starts_with(initial)).map(String::len).sum::<usize>()
            });
            vec![
                column(a, "count", counts.iter().map(|(_, count)| *count)),
                column(a, "letters", letters),
                column(a, "letter", counts.iter().map(|(initial, _)| initial.clone())),
            ]
        })
        .rows(
            &format!("groups = {{}}\n{find}for word in words:\n    groups.setdefault(word[0], []).append(word)\n"),
            "[{$count: len(group), $letters: sum(map(len, group)), $letter: initial} for initial, group in groups.items()]",
        )
        .order(Order::Loses)
        .en([
            &format!("group all words by their first letter, {rule_en}, into a table with the columns $letter (the letter), $count (number of words) and $letters (letters of all these words together)"),
            &format!("make a table with one row for each letter that a word begins with ({rule_en}): the columns are $letter (the letter), $count (how many words begin with it) and $letters (their letters in total)"),
        ])
        .zh([&format!("按首字母把所有单词（{rule_zh}）分组建表，列为$letter（首字母）、$count（单词数）和$letters（这些单词的字母总数）")])
        .counted_as("word frequency"),
        read("read_names", &[LINE, WORD, LETTERS], |a, text| {
            let mut found = Vec::new();
            for (at, line) in text.split('\n').enumerate() {
                let words = line.split(|c: char| !c.is_ascii_alphabetic());
                let named = words.filter(|word| {
                    let rest = word.get(1..).unwrap_or_default();
                    word.starts_with(|c: char| c.is_ascii_uppercase())
                        && !rest.is_empty()
                        && rest.bytes().all(|c| c.is_ascii_lowercase())
                });
                found.extend(named.map(|word| (at + 1, word.to_owned())));
            }
            vec![
                column(a, "line", found.iter().map(|(line, _)| *line)),
                column(a, "letters", found.iter().map(|(_, word)| word.len())),
                column(a, "word", found.into_iter().map(|(_, word)| word)),
            ]
        })
        .rows(
            "import re\n\
             found = [(number, word) for number, line in enumerate($source.split(\"\\n\"), 1) for word in re.findall(r\"[A-Za-z]+\", line)]\n",
            "[{$line: number, $letters: len(word), $word: word} for number, word in found if re.fullmatch(r\"[A-Z][a-z]+\", word)]",
        )
        .en([
            "make a table of the capitalized words in their order (runs of the letters A to Z whose first letter alone is upper case, at least two letters), with the columns $line (number of the line in the file, from 1, blank lines counted), $word and $letters (number of letters)",
            "extract all capitalized words (an upper-case letter and then one or more lower-case ones, A to Z, with no other letter next to it) as rows with the columns $line (line number from 1, blank lines included), $word and $letters (length)",
        ])
        .zh(["提取所有首字母大写的单词（连续英文字母，仅首字母大写，至少两个字母）建表，列为$line（所在行号，从1开始，空行计入）、$word和$letters（字母数）"])
        .counted_as("regular expression"),
    ]
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
fn matches() -> Vec<Operation> {
    PATTERNS.iter().map(pattern).collect()
}

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
            &format!("extract all {en} into a table, in their order, with the columns $line (number of the line in the file, from 1, blank lines counted) and $value"),
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
    fn a_text_is_split_as_the_wordings_say() {
        let text = "One two.  Three!\nfour?\n\n \nFive 3.5 ok.Six\n";
        assert_eq!(
            sentences(text),
            ["One two.", "Three!", "four?", "Five 3.5 ok.Six"]
        );
        assert_eq!(
            paragraphs(text),
            ["One two. Three! four?", "Five 3.5 ok.Six"]
        );
        assert_eq!(sentences("一。二！三"), ["一。", "二！", "三"]);
        assert_eq!(split("a  b\tc d", 2), ["a", "b", "c d"]);
    }

    #[test]
    fn headings_are_outside_of_fences() {
        let found = sections("x\n# One\na\n```\n# no\n```\n## Two \nb\n####### no\n#no");
        let shown: Vec<_> = found
            .iter()
            .map(|s| (s.title.as_str(), s.level, s.lines.len()))
            .collect();
        assert_eq!(shown, [("One", 1, 4), ("Two", 2, 3)]);
    }
}
