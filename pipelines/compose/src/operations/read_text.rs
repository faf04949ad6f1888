//! Operations that read a text into a table: one row for each line, sentence, section or word.

use std::collections::BTreeMap;

use super::columns::{
    COUNT, LETTER, LETTERS, LEVEL, LINE, LINES, NUMBER, SIZE, TEXT, TITLE, WORD, WORDS, column,
    read,
};
use crate::operation::{Operation, Order};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = units();
    all.extend(words());
    all
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
            "make a table of the capitalized words in their order (runs of the letters A to Z whose first letter alone is upper case, at least two letters), with the columns $line (number of the line in the text at that point, from 1, blank lines counted), $word and $letters (number of letters)",
            "extract all capitalized words (an upper-case letter and then one or more lower-case ones, A to Z, with no other letter next to it) as rows with the columns $line (line number from 1, blank lines included), $word and $letters (length)",
        ])
        .zh(["提取所有首字母大写的单词（连续英文字母，仅首字母大写，至少两个字母）建表，列为$line（所在行号，从1开始，空行计入）、$word和$letters（字母数）"])
        .counted_as("regular expression"),
    ]
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
