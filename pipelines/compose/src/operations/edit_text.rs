//! Operations on the whole text of a file: changes, answers and the text as a file.

use std::collections::{BTreeMap, BTreeSet};

use polars::prelude::Column;
use rand::RngExt;
use rand::seq::IndexedRandom;

use super::columns::{FromValues, table};
use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::draw::{Draw, always, quotable};
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = lines();
    all.extend(words());
    all.extend(parts());
    all.extend(answers());
    all.push(
        Operation::save(Medium::Text, "save_txt")
            .code("with open($path, \"w\", encoding=\"utf-8\") as file:\n    file.write($source)")
            .code("from pathlib import Path\nPath($path).write_text($source, encoding=\"utf-8\")")
            .en([
                "save the resulting text as a UTF-8 text file",
                "write what you get to a plain text file in UTF-8",
            ])
            .zh(["把得到的文本保存为UTF-8文本文件"])
            .counted_as("find and replace"),
    );
    all
}

fn edit(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    meaning: impl Fn(&Arguments, &str) -> String + Send + Sync + 'static,
) -> Operation {
    Operation::edit(Medium::Text, name, draw, move |a, content| {
        Some(Content::Text(meaning(a, content.text()?).into()))
    })
}

/// The lines that a function leaves, each followed by a line end where another one comes.
fn by_lines<'a>(text: &'a str, keep: impl Fn(&str) -> bool) -> String {
    let kept: Vec<&'a str> = text.split('\n').filter(|line| keep(line)).collect();
    kept.join("\n")
}

/// A word that some lines have and some have not.
fn dividing_word(draw: &mut Draw<'_>) -> Option<Arguments> {
    let text = draw.text()?;
    let lines: Vec<&str> = text
        .split('\n')
        .filter(|line| !line.trim().is_empty())
        .collect();
    let words: BTreeSet<&str> = lines.iter().flat_map(|line| ascii_words(line)).collect();
    let divides = |word: &&str| {
        let count = lines.iter().filter(|line| line.contains(word)).count();
        word.len() >= 3 && count >= 2 && count * 10 <= lines.len() * 9
    };
    let words: Vec<&str> = words.into_iter().filter(divides).collect();
    let word = (*words.choose(draw.rng)?).to_owned();
    Some(Arguments::new([("word", Argument::Text(word))]))
}

fn ascii_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    words.filter(|word| !word.is_empty())
}

/// Lines that stay, and their order.
fn lines() -> Vec<Operation> {
    let counted = "deduplicate lines";
    vec![
        edit("keep_lines_with", dividing_word, |a, text| {
            by_lines(text, |line| line.contains(a.text("word")))
        })
        .code("$source = \"\\n\".join(line for line in $source.split(\"\\n\") if $word in line)")
        .code("kept = []\nfor line in $source.split(\"\\n\"):\n    if $word in line:\n        kept.append(line)\n$source = \"\\n\".join(kept)")
        .en([
            "keep only the lines that contain $word (case-sensitive, also inside longer words)",
            "drop every line without $word in it (case-sensitive; part of a longer word counts)",
        ])
        .zh(["只保留包含$word的行（区分大小写，作为其他单词的一部分也算）"]),
        edit("drop_lines_with", dividing_word, |a, text| {
            by_lines(text, |line| !line.contains(a.text("word")))
        })
        .code("$source = \"\\n\".join(line for line in $source.split(\"\\n\") if $word not in line)")
        .code("$source = \"\\n\".join(filter(lambda line: $word not in line, $source.split(\"\\n\")))")
        .en([
            "remove all lines that contain $word (case-sensitive, also inside longer words)",
            "delete every line with $word in it (case-sensitive; part of a longer word counts)",
        ])
        .zh(["删除所有包含$word的行（区分大小写，作为其他单词的一部分也算）"]),
        edit("drop_blank_lines", always, |_, text| {
            by_lines(text, |line| !line.trim().is_empty())
        })
        .code("$source = \"\\n\".join(line for line in $source.split(\"\\n\") if line.strip())")
        .code("$source = \"\\n\".join(filter(str.strip, $source.split(\"\\n\")))")
        .en([
            "remove the lines that are empty or hold only white space",
            "delete all blank lines",
        ])
        .zh(["删除空行和只含空白的行"]),
        edit("sort_lines", always, |_, text| {
            let mut lines: Vec<&str> = text.split('\n').filter(|line| !line.trim().is_empty()).collect();
            lines.sort_unstable();
            lines.join("\n")
        })
        .code("$source = \"\\n\".join(sorted(line for line in $source.split(\"\\n\") if line.strip()))")
        .code("lines = list(filter(str.strip, $source.split(\"\\n\")))\nlines.sort()\n$source = \"\\n\".join(lines)")
        .en([
            "drop blank lines and sort the lines by code point (upper case before lower case)",
            "sort the lines in code point order (upper case first), without the blank ones",
        ])
        .zh(["去掉空行，并按字符编码顺序对各行排序"]),
        edit("reverse_lines", always, |_, text| {
            let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').rev().collect();
            lines.join("\n")
        })
        .code("$source = \"\\n\".join($source.rstrip(\"\\n\").split(\"\\n\")[::-1])")
        .code("lines = $source.rstrip(\"\\n\").split(\"\\n\")\nlines.reverse()\n$source = \"\\n\".join(lines)")
        .en([
            "reverse the order of the lines (line ends at the end of the text aside), so that the last one comes first",
            "put the lines in reverse order, last line first, not counting empty lines at the very end",
        ])
        .zh(["把各行的顺序倒过来，最后一行在最前（不计文末的空行）"]),
        edit("drop_repeated_lines", always, |_, text| {
            let mut seen = BTreeSet::new();
            let lines: Vec<&str> = text.split('\n').filter(|line| seen.insert(*line)).collect();
            lines.join("\n")
        })
        .code("$source = \"\\n\".join(dict.fromkeys($source.split(\"\\n\")))")
        .code("kept, seen = [], set()\nfor line in $source.split(\"\\n\"):\n    if line not in seen:\n        seen.add(line)\n        kept.append(line)\n$source = \"\\n\".join(kept)")
        .en([
            "keep only the first of lines that are exactly equal (blank lines too)",
            "remove duplicate lines, keeping the first of each (this also holds for empty lines)",
        ])
        .zh(["完全相同的行只保留第一次出现的一行（空行也一样）"]),
        edit(
            "skip_lines",
            |draw| {
                let lines = draw.text()?.split('\n').count() as i64;
                let count = draw.count(1, (lines / 3).clamp(1, 12));
                (lines >= 8).then(|| Arguments::new([("count", Argument::Count(count))]))
            },
            |a, text| {
                let lines: Vec<&str> = text.split('\n').skip(a.count("count") as usize).collect();
                lines.join("\n")
            },
        )
        .code("$source = \"\\n\".join($source.split(\"\\n\")[$count:])")
        .code("from itertools import islice\n$source = \"\\n\".join(islice($source.split(\"\\n\"), $count, None))")
        .en([
            "leave out the first $count lines of the text (blank lines count)",
            "cut off the first $count lines, blank ones included in the count",
        ])
        .zh(["去掉文本的前$count行（空行也计入）"]),
        edit("number_lines", always, |_, text| {
            let lines = text.split('\n').filter(|line| !line.trim().is_empty());
            let lines = lines.enumerate().map(|(at, line)| format!("{}: {line}", at + 1));
            lines.collect::<Vec<_>>().join("\n")
        })
        .code(
            "numbered = enumerate((line for line in $source.split(\"\\n\") if line.strip()), 1)\n\
             $source = \"\\n\".join(f\"{number}: {line}\" for number, line in numbered)",
        )
        .code("lines = list(filter(str.strip, $source.split(\"\\n\")))\n$source = \"\\n\".join(\"%d: %s\" % (at + 1, line) for at, line in enumerate(lines))")
        .en([
            "drop blank lines and put the number of each line, a colon and a space before it, beginning with `1: `",
            "number the lines that are not blank (`1: `, `2: ` and so on before the text of the line) and drop the blank ones",
        ])
        .zh(["去掉空行，并在每行前加上行号、冒号和一个空格，从“1: ”开始"]),
    ]
    .into_iter()
    .map(|operation| operation.counted_as(counted))
    .collect()
}

/// Whether lower case is the same in Rust and in Python: other scripts have letters that depend on their neighbors.
fn has_plain_case(text: &str) -> bool {
    text.chars().all(|c| {
        c.is_ascii() || !(c.is_uppercase() || c.is_lowercase()) || ('à'..='ÿ').contains(&c)
    })
}

/// Words and characters that are changed.
fn words() -> Vec<Operation> {
    let frequent = |draw: &mut Draw<'_>| {
        let text = draw.text()?;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for word in ascii_words(&text) {
            *counts.entry(word).or_default() += 1;
        }
        let words = counts
            .into_iter()
            .filter(|(word, count)| word.len() >= 3 && *count >= 2);
        let words: Vec<&str> = words.map(|(word, _)| word).collect();
        let word = (*words.choose(draw.rng)?).to_owned();
        Some(word)
    };
    let replaced = move |draw: &mut Draw<'_>| {
        let word = frequent(draw)?;
        let with = crate::rename::word(draw.rng);
        (with != word).then(|| {
            Arguments::new([
                ("word", Argument::Text(word)),
                ("with", Argument::Text(with)),
            ])
        })
    };
    let plain_case = |draw: &mut Draw<'_>| has_plain_case(&draw.text()?).then(Arguments::default);
    vec![
        edit("replace_text", replaced, |a, text| text.replace(a.text("word"), a.text("with")))
            .code("$source = $source.replace($word, $with)")
            .code("$source = $with.join($source.split($word))")
            .en([
                "replace every occurrence of $word by $with (case-sensitive, also inside longer words)",
                "write $with wherever the text has $word (case-sensitive; within longer words too)",
            ])
            .zh(["把所有$word替换为$with（区分大小写，作为其他单词的一部分也替换）"]),
        edit("text_to_lower_case", plain_case, |_, text| text.to_lowercase())
            .code("$source = $source.lower()")
            .en(["convert the whole text to lower case", "put all letters in lower case"])
            .zh(["把全文转换为小写"]),
        edit("collapse_spaces", always, |_, text| {
            let lines = text.split('\n').map(|line| {
                let words: Vec<&str> = line.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
                words.join(" ")
            });
            lines.collect::<Vec<_>>().join("\n")
        })
        .code("import re\n$source = \"\\n\".join(re.sub(r\"[ \\t]+\", \" \", line).strip(\" \") for line in $source.split(\"\\n\"))")
        .code("lines = [line.replace(\"\\t\", \" \").split(\" \") for line in $source.split(\"\\n\")]\n$source = \"\\n\".join(\" \".join(filter(None, parts)) for parts in lines)")
        .en([
            "turn each run of spaces and tabs into one space and remove those at the start and end of lines",
            "reduce runs of spaces and tabs to a single space, and strip them from both ends of every line",
        ])
        .zh(["把连续的空格和制表符合并为一个空格，并去掉每行首尾的空格"]),
        edit("drop_punctuation", always, |_, text| {
            text.chars().filter(|c| !c.is_ascii_punctuation()).collect()
        })
        .code("import string\n$source = $source.translate(str.maketrans(\"\", \"\", string.punctuation))")
        .code("import string\n$source = \"\".join(c for c in $source if c not in string.punctuation)")
        .en([
            "remove all ASCII punctuation (the characters of Python's string.punctuation)",
            "delete every character that string.punctuation in Python lists",
        ])
        .zh(["删除所有ASCII标点（即Python的string.punctuation中的字符）"]),
        edit("mask_digits", always, |_, text| {
            text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect()
        })
        .code("import re\n$source = re.sub(r\"[0-9]\", \"#\", $source)")
        .code("$source = $source.translate(str.maketrans(\"0123456789\", \"#\" * 10))")
        .en([
            "replace each digit (0 to 9) by the sign `#`",
            "mask all digits from 0 to 9, one `#` for each",
        ])
        .zh(["把每个数字（0到9）替换为“#”"]),
    ]
    .into_iter()
    .map(|operation| operation.counted_as("find and replace"))
    .collect()
}

/// A part of the text.
fn parts() -> Vec<Operation> {
    let title = |draw: &mut Draw<'_>| {
        let text = draw.text()?;
        let titles: Vec<String> = super::read_text::sections(&text)
            .into_iter()
            .map(|section| section.title)
            .collect();
        let once = |title: &&String| {
            quotable(title) && titles.iter().filter(|other| other == title).count() == 1
        };
        let titles: Vec<&String> = titles.iter().filter(once).collect();
        let title = (*titles.choose(draw.rng)?).clone();
        Some(Arguments::new([("heading", Argument::Text(title))]))
    };
    let many_paragraphs = |draw: &mut Draw<'_>| {
        let count = super::read_text::paragraphs(&draw.text()?).len();
        let skipped = draw.rng.random_range(1..=3.min(count.max(2) - 1));
        (count >= 4).then(|| Arguments::new([("count", Argument::Count(skipped as i64))]))
    };
    vec![
        edit("take_section", title, |a, text| {
            let sections = super::read_text::sections(text);
            let found = sections.into_iter().find(|section| section.title == a.text("heading"));
            found.map_or_else(String::new, |section| section.lines.join("\n"))
        })
        .code(
            "import re\n\
             kept, inside, fenced = [], False, False\n\
             for line in $source.split(\"\\n\"):\n    \
             fenced ^= line.startswith(\"```\")\n    \
             heading = None if fenced else re.match(r\"#{1,6} +(.*)\", line)\n    \
             if heading:\n        inside = heading[1].strip() == $heading\n    \
             elif inside:\n        kept.append(line)\n\
             $source = \"\\n\".join(kept)",
        )
        .en([
            "take only the text below the Markdown heading $heading, without the heading, up to the next heading of any level (headings in code fences do not count)",
            "continue with the section $heading alone: the lines after that heading and before the next heading of any level (those in code fences are none)",
        ])
        .zh(["只取Markdown标题$heading之下的文本（不含标题行），到下一个任意级别的标题为止（代码块中的不算标题）"])
        .counted_as("headings"),
        edit("skip_paragraphs", many_paragraphs, |a, text| {
            let paragraphs = super::read_text::paragraphs(text);
            let rest: Vec<String> = paragraphs.into_iter().skip(a.count("count") as usize).collect();
            rest.join("\n\n")
        })
        .code(
            "import re\n\
             paragraphs = [\" \".join(part.split()) for part in re.split(r\"\\n\\s*\\n\", $source) if part.strip()]\n\
             $source = \"\\n\\n\".join(paragraphs[$count:])",
        )
        .code("from itertools import groupby\ngroups = groupby($source.split(\"\\n\"), lambda line: bool(line.strip()))\nparagraphs = [\" \".join(\" \".join(lines).split()) for filled, lines in groups if filled]\n$source = \"\\n\\n\".join(paragraphs[$count:])")
        .en([
            "split the text into paragraphs at blank lines, write each as one line with single spaces, leave out the first $count and put a blank line between the others",
            "leave out the first $count paragraphs (blank lines separate them); write each of the others as one line with single spaces, with a blank line between them",
        ])
        .zh(["按空行分段，每段写成一行（词间一个空格），去掉前$count段，其余各段之间空一行"])
        .counted_as("split document"),
    ]
}

/// An operation that ends a task with a value; several where there is a tie.
fn answer<T: 'static>(name: &str, value: fn(&str) -> Vec<T>) -> Operation
where
    Column: FromValues<T>,
{
    let meaning = move |_: &Arguments, content: &Content| {
        table(vec![Column::from_values("answer", value(content.text()?))])
    };
    Operation::read(Medium::Text, name, Role::Answer, always, meaning)
}

fn answers() -> Vec<Operation> {
    vec![
        answer("answer_text_words", |text| vec![text.split_whitespace().count()])
            .code("answer = len($source.split())")
            .code("import re\nanswer = len(re.findall(r\"\\S+\", $source))")
            .en([
                "report how many words the text has, separated by white space",
                "count the words of what is left (split at white space)",
            ])
            .zh(["求文本的单词数（按空白分隔）"])
            .counted_as("word count"),
        answer("answer_text_characters", |text| {
            vec![text.chars().filter(|c| !c.is_whitespace()).count()]
        })
        .code("answer = len(\"\".join($source.split()))")
        .code("answer = sum(not c.isspace() for c in $source)")
        .en([
            "report the number of characters that are no white space",
            "count the characters of what is left, white space aside",
        ])
        .zh(["求除空白外的字符数"])
        .counted_as("character frequency"),
        answer("answer_text_lines", |text| {
            vec![text.split('\n').filter(|line| !line.trim().is_empty()).count()]
        })
        .code("answer = sum(1 for line in $source.split(\"\\n\") if line.strip())")
        .code("answer = len(list(filter(str.strip, $source.split(\"\\n\"))))")
        .en([
            "report the number of lines that are not blank",
            "count the lines with more than white space in them",
        ])
        .zh(["求非空行的行数"])
        .counted_as("line statistics"),
        answer("answer_longest_line", |text| {
            let lengths = text.split('\n').map(|line| line.trim_end().chars().count());
            vec![lengths.max().unwrap_or(0)]
        })
        .code("answer = max(len(line.rstrip()) for line in $source.split(\"\\n\"))")
        .code("answer = len(max(map(str.rstrip, $source.split(\"\\n\")), key=len))")
        .en([
            "report how many characters the longest line has, white space at its end aside",
            "give the length of the longest line in characters, not counting white space at line ends",
        ])
        .zh(["求最长一行的字符数（不计行尾空白）"])
        .counted_as("line statistics"),
        answer("answer_different_words", |text| {
            let lower = text.to_ascii_lowercase();
            vec![ascii_words(&lower).collect::<BTreeSet<_>>().len()]
        })
        .code("import re\nanswer = len({word.lower() for word in re.findall(r\"[A-Za-z]+\", $source)})")
        .code("import re\nfrom collections import Counter\nanswer = len(Counter(map(str.lower, re.findall(r\"[A-Za-z]+\", $source))))")
        .en([
            "report how many different words there are, words being runs of the letters A to Z in either case and case being ignored",
            "count the distinct words (runs of the letters A to Z, upper and lower case taken for the same)",
        ])
        .zh(["求不同单词的个数（单词为连续的英文字母，不区分大小写）"])
        .counted_as("word count"),
        answer("answer_longest_word", |text| {
            let words: BTreeSet<&str> = ascii_words(text).collect();
            let most = words.iter().map(|word| word.len()).max().unwrap_or(0);
            let longest = words.into_iter().filter(|word| word.len() == most);
            longest.map(str::to_owned).collect()
        })
        .code("import re\nanswer = max(re.findall(r\"[A-Za-z]+\", $source), key=len)")
        .code("import re\nwords = set(re.findall(r\"[A-Za-z]+\", $source))\nanswer = sorted(words, key=len)[-1]")
        .en([
            "report the longest word, words being runs of the letters A to Z in either case",
            "name the word with the most letters (a word is a run of the letters A to Z, upper or lower case)",
        ])
        .zh(["求最长的单词（单词为连续的英文字母）"])
        .counted_as("word frequency"),
        answer("answer_common_word", |text| {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for word in ascii_words(text).filter(|word| word.len() >= 4) {
                *counts.entry(word.to_ascii_lowercase()).or_default() += 1;
            }
            let most = counts.values().max().copied().unwrap_or(0);
            let common = counts.into_iter().filter(|(_, count)| *count == most);
            common.map(|(word, _)| word).collect()
        })
        .code(
            "import re\nfrom collections import Counter\n\
             words = [word.lower() for word in re.findall(r\"[A-Za-z]+\", $source) if len(word) >= 4]\n\
             answer = Counter(words).most_common(1)[0][0]",
        )
        .code("import re\ncounts = {}\nfor word in re.findall(r\"[A-Za-z]+\", $source):\n    if len(word) >= 4:\n        word = word.lower()\n        counts[word] = counts.get(word, 0) + 1\nanswer = max(counts, key=counts.get)")
        .en([
            "report the most frequent word of at least four letters (runs of the letters A to Z, case ignored), in lower case",
            "name the word of four or more letters that occurs most often, in lower case; words are runs of the letters A to Z and case is ignored",
        ])
        .zh(["求出现次数最多的、至少四个字母的单词（连续的英文字母，不区分大小写），用小写写出"])
        .counted_as("word frequency"),
    ]
}
